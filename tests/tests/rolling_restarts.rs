//! Nodes behind Debian's HAProxy: rolling restarts under load lose no request, and the agent check
//! gives it state and weight.
//!
//! `MAITRED_RESTARTS=50 MAITRED_LEARNS_SECONDS=3 MAITRED_RATE=200` is the long run.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use maitred_tests::booted::from_environment;
use maitred_tests::http::{self, Connection, Request};
use maitred_tests::outside::{pool, status};
use maitred_tests::ports::free_address;
use maitred_tests::processes::Signal;
use maitred_tests::server::{Server, Setup, document_root};
use maitred_tests::web::Web;
use maitred_tests::{Target, wait};

/// Clients of HAProxy.
const CLIENTS: u32 = 4;

/// A place for a node: its addresses, which a restart keeps.
#[derive(Debug, Clone, Copy)]
struct Place {
    address: SocketAddr,
    admin: SocketAddr,
    agent: SocketAddr,
}

impl Place {
    fn new() -> Place {
        Place { address: free_address(), admin: free_address(), agent: free_address() }
    }

    fn setup(&self, root: &Path, delay: Duration) -> Setup {
        Setup::new(root)
            .at(self.address)
            .workers(2)
            .top(&format!("admin = \"{}\"", self.admin))
            .top(&format!("agent_check = \"{}\"", self.agent))
            .top(&format!("stop_delay = \"{}ms\"", delay.as_millis()))
    }
}

/// Clients that send a fixed rate of requests over connections that are kept.
struct Clients {
    stop: Arc<AtomicBool>,
    ok: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Vec<String>>>,
}

impl Clients {
    fn start(address: SocketAddr, rate: u32) -> Clients {
        let (stop, ok) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let threads = (0..CLIENTS).map(|_| {
            let (stop, ok) = (stop.clone(), ok.clone());
            std::thread::spawn(move || {
                ask(address, Duration::from_secs(1) * CLIENTS / rate, &stop, &ok)
            })
        });
        let threads = threads.collect();
        Clients { stop, ok, threads }
    }

    fn wait_for_more(&self) {
        let goal = self.ok.load(Ordering::Relaxed) + 20;
        wait::until_true("responses", || self.ok.load(Ordering::Relaxed) >= goal);
    }

    /// The number of responses, and what failed.
    fn end(self) -> (u64, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        let failures = self.threads.into_iter().flat_map(|one| one.join().expect("no panic"));
        let failures = failures.collect();
        (self.ok.load(Ordering::Relaxed), failures)
    }
}

fn ask(address: SocketAddr, every: Duration, stop: &AtomicBool, ok: &AtomicU64) -> Vec<String> {
    let mut failures = Vec::new();
    let mut connection = None;
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        sleep(next.saturating_duration_since(Instant::now()));
        next += every;
        let client = connection.get_or_insert_with(|| Connection::open(address));
        match client.ask(&Request::get("/hello.php")) {
            Ok(response) if response.status == 200 && response.text() == "hello" => {
                ok.fetch_add(1, Ordering::Relaxed);
                if response.header("connection") == Some("close") {
                    connection = None;
                }
            }
            other => {
                failures.push(format!("{other:?}"));
                connection = None;
            }
        }
    }
    failures
}

/// The field of a node on HAProxy's page of statistics.
fn field(haproxy: &Web, node: &str, name: &str) -> String {
    let page = http::get(haproxy.address(), "/haproxy;csv").text();
    let mut lines = page.lines().map(|line| line.trim_start_matches("# ").split(',').collect());
    let names: Vec<&str> = lines.next().expect("a line of names");
    let place = names.iter().position(|one| *one == name).expect("the field is there");
    let mut lines = lines.filter(|line: &Vec<&str>| line.get(1) == Some(&node));
    lines.next().map(|line| line[place].to_owned()).unwrap_or_default()
}

#[test]
fn rolling_restarts_behind_haproxy_lose_no_request() {
    let restarts = from_environment("MAITRED_RESTARTS", 3);
    let learns = from_environment("MAITRED_LEARNS_SECONDS", 0);
    let rate = from_environment("MAITRED_RATE", 100);
    let interval = if learns == 0 { 250 } else { learns * 1000 };
    // HAProxy notices within two intervals: a check may just have begun.
    let delay = Duration::from_millis(u64::from(interval) * 2 + 500);
    let root = document_root(&[("hello.php", "<?php usleep(2000); echo 'hello';")]);
    let places = [Place::new(), Place::new(), Place::new()];
    let mut nodes: Vec<Option<Server>> =
        places.iter().map(|place| Some(place.setup(root.path(), delay).start())).collect();
    let mut lines = format!(
        "    retries 0\n    option httpchk GET /ready\n    stats enable\n    stats uri /haproxy\n\
         \x20   default-server check inter {interval} fall 1 rise 1\n"
    );
    for (number, place) in places.iter().enumerate() {
        let (address, admin) = (place.address, place.admin);
        lines.push_str(&format!("    server n{number} {address} port {}\n", admin.port()));
    }
    let haproxy = Web::haproxy(&lines);
    for node in ["n0", "n1", "n2"] {
        wait::until_true("a node to be up", || field(&haproxy, node, "status") == "UP");
    }
    let clients = Clients::start(haproxy.address(), rate);
    clients.wait_for_more();
    let began = Instant::now();
    for restart in 0..restarts as usize {
        let place = restart % places.len();
        let name = format!("n{place}");
        let node = nodes[place].take().expect("a node runs");
        node.stop();
        wait::until_true("HAProxy to notice", || field(&haproxy, &name, "status") != "UP");
        let node = places[place].setup(root.path(), delay).start();
        wait::until_true("HAProxy to notice", || field(&haproxy, &name, "status") == "UP");
        wait::until_true("the node to get requests", || pool(&node)["requests"].as_u64() > Some(0));
        nodes[place] = Some(node);
    }
    let took = began.elapsed();
    let (ok, failures) = clients.end();
    println!("{restarts} restarts in {took:.0?}: {ok} responses, {} failures", failures.len());
    assert!(failures.is_empty(), "{} of {ok}: {:?}", failures.len(), &failures[0]);
    assert!(ok > 20);
    nodes.into_iter().flatten().for_each(Server::stop);
}

#[test]
fn haproxys_agent_check_learns_the_state_and_the_weight_of_a_node() {
    let root = document_root(&[(
        "hello.php",
        "<?php $end = hrtime(true) + 20e6; while (hrtime(true) < $end) {} echo 'hello';",
    )]);
    let place = Place::new();
    let mut node = place.setup(root.path(), Duration::from_secs(3600)).start();
    let (address, agent) = (place.address, place.agent);
    let lines = format!(
        "    stats enable\n    stats uri /haproxy\n    server n0 {address} weight 100 check \
         agent-check agent-port {} agent-inter 200\n",
        agent.port()
    );
    let haproxy = Web::haproxy(&lines);
    wait::until_true("the agent to be asked", || field(&haproxy, "n0", "agent_status") == "L7OK");
    assert_eq!(field(&haproxy, "n0", "weight"), "100");
    let clients = Clients::start(haproxy.address(), 40);
    wait::until_true("the weight to follow the load", || {
        let weight: u32 = field(&haproxy, "n0", "weight").parse().expect("a weight");
        weight < 98
    });
    let scale = &status(&node)["scale"];
    assert!(scale["saturation"].as_f64() > Some(0.05), "{scale}");
    let page = http::get(place.admin, "/scale/www").json();
    assert!(page["saturation"].as_f64() > Some(0.05), "{page}");
    assert_eq!(http::get(place.admin, "/scale/none").status, 404);
    let metrics = http::get(place.admin, "/metrics").text();
    assert!(metrics.contains("maitred_pool_saturation{pool=\"www\"} 0."), "{metrics}");
    node.processes();
    node.signal(Signal::TERM);
    wait::until_true("HAProxy to drain the node", || {
        field(&haproxy, "n0", "status").starts_with("DRAIN")
    });
    let (_, failures) = clients.end();
    // A node that drains gets no requests, and there is no other one.
    assert!(failures.iter().all(|one| one.contains("status: 503")), "{:?}", failures.first());
    let supervisor = node.supervisor();
    wait::until_true("the node to end", || {
        supervisor.signal(Signal::INT);
        !supervisor.is_running()
    });
    assert!(node.wait_for_end().success());
    node.assert_nothing_left();
    let again = place.setup(root.path(), Duration::ZERO).start();
    wait::until_true("the node to be used again", || field(&haproxy, "n0", "status") == "UP");
    assert_eq!(http::get(haproxy.address(), "/hello.php").text(), "hello");
    again.stop();
}

/// What the agent check says.
fn agent_line(place: &Place) -> String {
    let mut client = TcpStream::connect(place.agent).expect("the agent's port accepts");
    client.set_read_timeout(Some(wait::DEADLINE)).expect("a socket has a timeout");
    let mut line = String::new();
    client.read_to_string(&mut line).expect("the agent's line is read");
    line
}

#[test]
fn the_agent_check_of_a_later_front_does_not_undo_what_an_administrator_has_set_in_haproxy() {
    let root = document_root(&[("hello.php", "<?php echo 'hello';")]);
    let place = Place::new();
    let node = place.setup(root.path(), Duration::ZERO).start();
    wait::until_true("the node to be ready", || agent_line(&place).starts_with("ready up"));
    wait::until_within("the first minute to end", 2 * wait::DEADLINE, || {
        agent_line(&place).starts_with("up").then_some(())
    });
    for signal in [Signal::USR2, Signal::KILL] {
        let before = node.front().expect("a front runs");
        match signal {
            Signal::KILL => before.signal(signal),
            _ => node.signal(signal),
        }
        wait::until_true("another front", || {
            !before.is_running() && node.front().is_some_and(|front| front != before)
        });
        let line = wait::until("the node to be ready", || {
            Some(agent_line(&place)).filter(|line| !line.starts_with("down"))
        });
        assert!(line.starts_with("up "), "{line}");
    }
    node.stop();
}

#[test]
fn silent_clients_of_the_agent_check_leave_the_admin_listener_to_others() {
    let root = document_root(&[("hello.php", "<?php echo 'hello';")]);
    let place = Place::new();
    let node = place.setup(root.path(), Duration::ZERO).start();
    let open = || TcpStream::connect(place.agent).expect("the agent's port accepts");
    let silent: Vec<TcpStream> = (0..200).map(|_| open()).collect();
    assert_eq!(http::get(place.admin, "/ready").status, 200);
    // Each gets a line, or is one too many, and none stays open.
    let mut lines = 0;
    for mut client in silent {
        client.set_read_timeout(Some(wait::DEADLINE)).expect("a socket has a timeout");
        let mut line = String::new();
        let ended = client.read_to_string(&mut line);
        assert!(ended.is_ok() || line.is_empty(), "{ended:?}");
        lines += usize::from(line.contains("up "));
    }
    assert!(lines > 0);
    node.stop();
}
