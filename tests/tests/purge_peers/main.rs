//! Several nodes that pass purges on without Redis: what was purged everywhere is served by no
//! node, and a node that is away is named.

mod peer_port;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use maitred_tests::dashboard_events::Events;
use maitred_tests::http::{self, Request, Response};
use maitred_tests::ports::free_address;
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{
    Server, Setup, document_root, give_to_web_user, public_folder, set_mode,
};
use maitred_tests::{Target, maitred_program, wait};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Sends the contents of a file in `data`, and purges a URL if it is to.
const PAGE: &str = "<?php
    if (isset($_GET['purge'])) {
        header('Cache-Control: no-store');
        var_dump(@maitred_cache_purge_urls([$_GET['purge']]));
        exit;
    }
    while (isset($_GET['endless'])) {
        usleep(10000);
    }
    echo file_get_contents(__DIR__ . '/data/' . basename(strtok($_SERVER['REQUEST_URI'], '?')));";

/// The lease: short, and longer than a busy machine lets a process wait.
const LEASE: Duration = Duration::from_secs(2);

const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn site() -> TempDir {
    let root = document_root(&[("index.php", PAGE), ("data/a", "1"), ("data/b", "1")]);
    give_to_web_user(&root.path().join("data"));
    root
}

fn write(root: &TempDir, text: &str) {
    write_page(root, "a", text);
}

fn write_page(root: &TempDir, name: &str, text: &str) {
    let new = root.path().join("data/.new");
    std::fs::write(&new, text).expect("data can be written");
    std::fs::rename(&new, root.path().join("data").join(name)).expect("data can be replaced");
}

/// A place for a node: where it serves and where it listens for peers, and its cached pages, which
/// a restart keeps.
struct Place {
    address: SocketAddr,
    peer: SocketAddr,
    pages: Option<TempDir>,
}

/// The nodes of a site, each on a loopback address of its own.
struct Cluster {
    root: TempDir,
    secrets: TempDir,
    places: Vec<Place>,
    length: u32,
}

impl Cluster {
    fn new(on_disk: &[bool]) -> Cluster {
        let place = |(number, has_disk): (u8, &bool)| {
            let pages = has_disk.then(public_folder);
            if let Some(pages) = &pages {
                give_to_web_user(pages.path());
            }
            let ip = IpAddr::from(Ipv4Addr::new(127, 0, 0, number));
            let peer = SocketAddr::new(ip, free_address().port());
            Place { address: free_address(), peer, pages }
        };
        let places = (2..).zip(on_disk).map(place).collect();
        Cluster { root: site(), secrets: public_folder(), places, length: 16_384 }
    }

    fn secret(&self, text: &str) -> PathBuf {
        let file = self.secrets.path().join(text);
        std::fs::write(&file, format!("{text}\n")).expect("a secret can be written");
        set_mode(&file, 0o600);
        file
    }

    fn setup(&self, number: usize, secret: &str) -> Setup {
        let place = &self.places[number];
        let others = self.places.iter().filter(|other| other.peer != place.peer);
        let peers: Vec<String> = others.map(|other| format!("\"{}\"", other.peer)).collect();
        let log = format!(
            "purge_log = {{ node = \"n{number}\", listen = \"{}\", peers = [{}], secret_file = \
             {:?}, lease = \"2s\", timeout = \"1500ms\", length = {} }}",
            place.peer,
            peers.join(", "),
            self.secret(secret),
            self.length
        );
        let setup = Setup::new(self.root.path()).at(place.address).hosts(&["a.example"]).top(&log);
        let setup = match &place.pages {
            Some(pages) => setup.top(&format!("cache_dir = {:?}", pages.path())),
            None => setup,
        };
        setup
            .site("front_controller = \"/index.php\"")
            .site("[sites.cache]")
            .site("valid = \"1d\"")
            .site("purge_from = [\"127.0.0.1\"]")
    }

    fn start(&self, number: usize) -> Server {
        self.setup(number, SECRET).start()
    }

    /// The sentence about nodes that have not confirmed.
    fn named(&self, number: usize) -> String {
        let peer = self.places[number].peer;
        format!("maitred: not purged everywhere: not confirmed by {peer}\n")
    }
}

fn at(server: &Server, method: &str, target: &str) -> Response {
    let request = Request::new(method, target).header("Host", "a.example");
    let request = request.header("Connection", "close");
    http::try_ask(server.address(), &request).expect("it responds")
}

fn get(server: &Server, target: &str) -> String {
    at(server, "GET", target).text()
}

fn is_hit(server: &Server, target: &str) -> bool {
    let response = at(server, "GET", target);
    response.header("Cache-Status").unwrap_or_default().contains("; hit;")
}

fn await_hit(server: &Server, target: &str) {
    wait::until_true("a page from the cache", || is_hit(server, target));
}

fn run(server: &Server, arguments: &[&str]) -> Output {
    let mut command = Command::new(maitred_program());
    command.args(arguments).arg("--admin-socket").arg(server.admin_socket());
    command.output().expect("maitred can be run")
}

/// The exit code of a purge, and what it complains about.
fn purge(server: &Server, what: &str) -> (Option<i32>, String) {
    let output = run(server, &["purge", what]);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn await_everywhere(server: &Server) {
    wait::until_true("a purge that is everywhere", || purge(server, "a.example/none").0 == Some(0));
}

fn status(server: &Server) -> Value {
    let output = run(server, &["status", "--json"]);
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

fn log_status(server: &Server) -> Value {
    status(server)["purge_log"].clone()
}

/// What a node says of all nodes.
fn nodes_status(server: &Server) -> Vec<Value> {
    status(server)["nodes"]["list"].as_array().cloned().unwrap_or_default()
}

fn purges_process(server: &Server) -> Process {
    let is_it = |process: &Process| process.title.trim_end() == "maitred: purges";
    wait::until("the process of the purge log", || server.processes().into_iter().find(is_it))
}

fn has_dropped(server: &Server, mark: usize) -> bool {
    let lines = server.log().since(mark).into_iter();
    lines.into_iter().any(|line| line.contains("all cached pages are dropped"))
}

fn kill(server: Server) {
    server.processes();
    server.signal(Signal::KILL);
    server.expect_killed();
}

#[test]
fn a_purge_reaches_all_peers_and_one_that_is_away_is_named_and_gets_it_before_it_serves_pages() {
    let cluster = Cluster::new(&[false, true, false]);
    let root = &cluster.root;
    let mut nodes: Vec<Server> = (0..3).map(|number| cluster.start(number)).collect();
    nodes.iter().for_each(await_everywhere);
    let all = |nodes: &[Server]| {
        let texts: Vec<String> = nodes.iter().map(|node| get(node, "/a")).collect();
        nodes.iter().for_each(|node| await_hit(node, "/a"));
        texts.concat()
    };
    assert_eq!(all(&nodes), "111");
    write(root, "2");
    assert_eq!(purge(&nodes[0], "a.example/a"), (Some(0), String::new()));
    assert_eq!(all(&nodes), "222");
    write(root, "3");
    let response = at(&nodes[1], "PURGE", "/a");
    assert_eq!((response.status, response.text()), (200, "dropped: a.example/a\n".to_owned()));
    assert_eq!(all(&nodes), "333");
    write(root, "4");
    assert_eq!(get(&nodes[2], "/x?purge=a.example/a"), "bool(true)\n");
    assert_eq!(all(&nodes), "444");
    wait::until_true("all peers in the status", || {
        let status = log_status(&nodes[0]);
        let peers = status["peers"].as_array().cloned().unwrap_or_default();
        let is_well = |peer: &Value| peer["connected"] == true && peer["behind"] == 0;
        status["connected"] == true && peers.len() == 2 && peers.iter().all(is_well)
    });

    // All of a node is stopped for longer than its lease.
    let begun = Instant::now();
    let stopped = nodes[1].processes();
    stopped.iter().for_each(|process| process.signal(Signal::STOP));
    write(root, "5");
    assert_eq!(purge(&nodes[0], "a.example/a"), (Some(3), cluster.named(1)));
    assert_eq!(at(&nodes[2], "PURGE", "/a").status, 504);
    assert_eq!(get(&nodes[0], "/x?purge=a.example/a"), "bool(false)\n");
    wait::until_true("what it lacks in the status", || {
        let text = String::from_utf8_lossy(&run(&nodes[0], &["status"]).stdout).into_owned();
        let peer = cluster.places[1].peer;
        let mut lines = text.lines().filter(|line| line.contains(&peer.to_string()));
        lines.any(|line| line.contains("not connected") && line.contains("behind"))
    });
    await_hit(&nodes[0], "/a");
    wait::until_true("the end of its lease", || begun.elapsed() > LEASE + LEASE / 4);
    stopped.iter().rev().for_each(|process| process.signal(Signal::CONT));
    assert_eq!(get(&nodes[1], "/a"), "5");
    await_hit(&nodes[1], "/a");
    await_everywhere(&nodes[0]);
    assert_eq!(all(&nodes), "555");

    // Killed, with pages on disk.
    kill(nodes.remove(1));
    write(root, "6");
    assert_eq!(purge(&nodes[0], "a.example/a"), (Some(3), cluster.named(1)));
    await_hit(&nodes[1], "/a");
    let second = cluster.start(1);
    assert_eq!(get(&second, "/a"), "6");
    await_hit(&second, "/a");
    assert_eq!(get(&second, "/a"), "6");
    await_everywhere(&nodes[0]);

    // Another start of a node costs its peers their pages, and an upgrade does not.
    let mark = second.log().mark();
    nodes.remove(1).stop();
    nodes.push(cluster.start(2));
    second.expect_log(mark, "all cached pages are dropped");
    await_everywhere(&nodes[1]);
    await_hit(&second, "/a");
    let mark = second.log().mark();
    let upgrade = nodes[0].log().mark();
    nodes[0].signal(Signal::USR2);
    nodes[0].expect_log(upgrade, "upgraded to");
    await_everywhere(&nodes[0]);
    assert!(!has_dropped(&second, mark), "{:#?}", second.log().since(mark));
    assert!(is_hit(&second, "/a"));
    let before = purges_process(&nodes[0]);
    before.signal(Signal::KILL);
    wait::until_true("another process", || purges_process(&nodes[0]) != before);
    write(root, "7");
    wait::until_true("a purge that is everywhere", || purge(&nodes[0], "a.example/a").0 == Some(0));
    assert_eq!(get(&second, "/a") + &get(&nodes[0], "/a") + &get(&nodes[1], "/a"), "777");
}

/// Begins to purge a page.
fn begin_purge(server: &Server, what: &str) -> Child {
    let mut command = Command::new(maitred_program());
    command.args(["purge", what]).arg("--admin-socket").arg(server.admin_socket());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().expect("maitred can be run")
}

fn has_socket(child: &Child) -> bool {
    let links = std::fs::read_dir(format!("/proc/{}/fd", child.id())).into_iter().flatten();
    let mut targets = links.flatten().filter_map(|link| std::fs::read_link(link.path()).ok());
    targets.any(|target| target.to_string_lossy().starts_with("socket:"))
}

#[test]
fn an_upgrade_while_purges_wait_for_a_peer_costs_no_node_its_pages() {
    let cluster = Cluster::new(&[true, true]);
    let held = cluster.root.path().join("data/held");
    let preload = cluster.root.path().join("preload.php");
    let text = format!("<?php while (file_exists({held:?})) {{ usleep(10_000); }}");
    std::fs::write(&preload, text).expect("it can be written");
    let preload = format!("php_admin_value.\"opcache.preload\" = {preload:?}");
    let first = cluster.setup(0, SECRET).pool(&preload).start();
    let second = cluster.start(1);
    for node in [&first, &second] {
        await_everywhere(node);
        ["/a", "/b"].iter().for_each(|page| await_hit(node, page));
    }
    // So that what is dropped without a cause is noticed.
    write_page(&cluster.root, "b", "2");

    // A purge waits for a process that is stopped, and the upgrade does not wait for the purge.
    let process = purges_process(&second);
    process.signal(Signal::STOP);
    write(&cluster.root, "2");
    let marks = (first.log().mark(), second.log().mark());
    let waiting = begin_purge(&first, "a.example/a");
    // A command that has not arrived by the upgrade is lost.
    wait::until_true("the purge to be done here", || get(&first, "/a") == "2");
    std::fs::write(&held, "").expect("it can be written");
    let before = purges_process(&first);
    first.signal(Signal::USR2);
    let waited = waiting.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&waited.stderr).into_owned();
    assert_eq!(waited.status.code(), Some(3), "{said}");
    first.expect_log(marks.0, "takes over");

    // While the new program is tried, purges are everywhere, and pages are served for longer than a
    // lease.
    process.signal(Signal::CONT);
    wait::until_true("another process", || purges_process(&first) != before);
    let begun = Instant::now();
    await_everywhere(&first);
    assert_eq!(get(&second, "/a"), "2");
    wait::until_true("more than a lease", || begun.elapsed() > LEASE + LEASE / 4);
    [&first, &second].iter().for_each(|node| await_hit(node, "/a"));
    write(&cluster.root, "3");
    wait::until_true("a purge by a peer", || purge(&second, "a.example/a").0 == Some(0));
    assert_eq!(get(&first, "/a"), "3");
    assert!(!first.log().since(marks.0).iter().any(|line| line.contains("upgraded to")));
    std::fs::remove_file(&held).expect("it can be removed");
    first.expect_log(marks.0, "upgraded to");
    await_everywhere(&first);
    assert_eq!(get(&first, "/a") + &get(&second, "/a"), "33");
    assert!(!has_dropped(&first, marks.0), "{:#?}", first.log().since(marks.0));
    assert!(!has_dropped(&second, marks.1), "{:#?}", second.log().since(marks.1));
    for node in [&first, &second] {
        wait::until_true("the page that was not purged", || is_hit(node, "/b"));
        assert_eq!(get(node, "/b"), "1");
    }
}

#[test]
fn a_purge_waits_for_a_front_that_is_about_to_start_with_pages_on_disk() {
    let cluster = Cluster::new(&[true, false]);
    let nodes = [cluster.start(0), cluster.start(1)];
    nodes.iter().for_each(await_everywhere);
    for (by, text) in [(1, "2"), (0, "3")] {
        nodes.iter().for_each(|node| await_hit(node, "/a"));
        // The death of the front and the purge reach the supervisor at the same time.
        let (front, supervisor) = (nodes[0].front().expect("it runs"), nodes[0].supervisor());
        supervisor.signal(Signal::STOP);
        front.signal(Signal::KILL);
        write(&cluster.root, text);
        let purge = begin_purge(&nodes[by], "a.example/a");
        wait::until_true("its connection", || has_socket(&purge));
        supervisor.signal(Signal::CONT);
        let purged = purge.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&purged.stderr).into_owned();
        // On a busy machine the wait of the other node may have timed out.
        match purged.status.code() {
            Some(0) => {}
            Some(3) if by == 1 => await_everywhere(&nodes[1]),
            code => panic!("{code:?} {said}"),
        }
        assert_eq!(nodes.each_ref().map(|node| get(node, "/a")), [text, text]);
    }
}

/// Connects from an address of this machine to another one.
fn connect_from(source: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("there is a socket");
    bind(&socket, &SocketAddr::new(source, 0)).expect("its address is free");
    connect(&socket, &to).expect("it listens");
    TcpStream::from(socket)
}

#[test]
fn connections_that_say_nothing_keep_no_peer_out_that_is_connected() {
    let cluster = Cluster::new(&[false, false]);
    let nodes = [cluster.start(0), cluster.start(1)];
    nodes.iter().for_each(await_everywhere);
    let (at, peer) = (cluster.places[0].peer, cluster.places[1].peer.ip());
    let is_closed = |stream: &mut TcpStream| {
        stream.set_nonblocking(true).expect("it can be set");
        match stream.read(&mut [0; 64]) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    };
    for (source, limit) in [(peer, 8), (IpAddr::from([127, 0, 0, 9]), 2)] {
        let mark = nodes[0].log().mark();
        let mut idle: Vec<TcpStream> = (0..limit).map(|_| connect_from(source, at)).collect();
        let mut more = connect_from(source, at);
        wait::until_true("the end of one too many", || is_closed(&mut more));
        nodes[0].expect_log(mark, &format!("a connection of {source} to the purge log was closed"));
        wait::until_true("a purge", || purge(&nodes[0], "a.example/a").0 == Some(0));
        wait::until_true("the end of all", || idle.iter_mut().all(&is_closed));
    }
    await_everywhere(&nodes[0]);
}

#[test]
fn what_a_front_reports_while_the_supervisor_is_stopped_arrives_afterwards() {
    let cluster = Cluster::new(&[false, false]);
    let limit = "request_terminate_timeout = \"1s\"";
    let [first, second] =
        [cluster.setup(0, SECRET).pool(limit).workers(2).start(), cluster.start(1)];
    await_everywhere(&first);
    await_hit(&second, "/a");
    write(&cluster.root, "2");
    let supervisor = first.supervisor();
    supervisor.signal(Signal::STOP);

    // Each of these fills a page of the pipe.
    let mark = first.log().mark();
    let target = format!("/{}", "x".repeat(3500));
    let fill = format!("PURGE {target} HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let fills: Vec<TcpStream> = (0..80)
        .map(|_| {
            let mut client = TcpStream::connect(first.address()).expect("it accepts clients");
            client.write_all(fill.as_bytes()).expect("it reads");
            client
        })
        .collect();
    first.expect_log(mark, "the supervisor did not take a report");
    let workers = first.workers();
    assert_eq!(at(&first, "PURGE", "/a").status, 504);
    assert_eq!(at(&first, "GET", "/x?endless=1").status, 504);

    supervisor.signal(Signal::CONT);
    wait::until_true("the end of the worker", || !workers.iter().all(Process::is_running));
    wait::until_true("the purge of the first node", || get(&second, "/a") == "2");
    drop(fills);
    first.stop();
    second.stop();
}

#[test]
fn a_peer_that_lacks_more_purges_than_the_log_has_drops_all_its_pages() {
    let cluster = Cluster { length: 100, ..Cluster::new(&[true, true]) };
    let nodes = [cluster.start(0), cluster.start(1)];
    await_everywhere(&nodes[0]);
    nodes.iter().for_each(|node| await_hit(node, "/b"));
    let [first, second] = nodes;
    second.stop();
    for _ in 0..101 {
        assert_eq!(at(&first, "PURGE", "/a").status, 504);
    }
    let second = cluster.start(1);
    second.expect_log(0, "all cached pages are dropped");
    await_everywhere(&first);
    await_hit(&second, "/b");
    wait::until_true("nothing that waits", || log_status(&first)["waiting"] == 0);

    // One that starts alone serves from its cache without the peer, after a while.
    second.stop();
    let first = first.restart(|_| {});
    first.expect_log(0, "is not waited for any more");
    await_hit(&first, "/b");
}

#[test]
fn clients_that_post_without_end_leave_other_nodes_the_pages_that_they_do_not_change() {
    let cluster = Cluster { length: 1000, ..Cluster::new(&[false, false]) };
    write_page(&cluster.root, "c", "1");
    let first = cluster.setup(0, SECRET).site("no_store_paths = [\"/c\"]").start();
    let second = cluster.start(1);
    await_everywhere(&first);
    ["/a", "/b", "/c"].iter().for_each(|page| await_hit(&second, page));
    write(&cluster.root, "2");
    // Far more than a site may purge at once, and than it earns meanwhile.
    let post = |page: &str| assert_eq!(at(&first, "POST", page).status, 200);
    std::thread::scope(|scope| {
        (0..4).for_each(|_| _ = scope.spawn(|| (0..100).for_each(|_| post("/a"))));
    });
    post("/c");
    await_hit(&second, "/a");
    write(&cluster.root, "3");
    post("/a");
    wait::until_true("the purge of the last change", || get(&second, "/a") == "3");
    assert!(is_hit(&second, "/b"), "no client has changed it");
    assert!(is_hit(&second, "/c"), "it is never stored where it was changed");
}

#[test]
fn nodes_that_are_peers_show_each_other_on_dashboards_in_the_status_and_in_metrics() {
    let cluster = Cluster::new(&[false, false]);
    let admin = free_address();
    let link = "http://node2.example:9180";
    let first = cluster.setup(0, SECRET).top(&format!("admin = \"{admin}\"")).start();
    let second = cluster.setup(1, SECRET).top(&format!("admin_url = \"{link}\"")).start();
    get(&second, "/a");
    for node in [&first, &second] {
        wait::until_true("both nodes, and the request to one of them", || {
            let list = nodes_status(node);
            let names: Vec<_> = list.iter().map(|one| one["name"].as_str()).collect();
            let requests = |one: &Value| one["requests_per_minute"].as_u64() > Some(0);
            names == [Some("n0"), Some("n1")] && requests(&list[1])
        });
    }
    let list = nodes_status(&first);
    assert_eq!((&list[0]["here"], &list[1]["here"]), (&json!(true), &json!(false)), "{list:?}");
    assert_eq!((&list[1]["ready"], &list[1]["silent"]), (&json!(true), &json!(false)), "{list:?}");
    assert_eq!(list[1]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&list[0]["url"], &list[1]["url"]), (&Value::Null, &json!(link)));
    let text = String::from_utf8_lossy(&run(&first, &["status"]).stdout).into_owned();
    let has =
        |start: &str| text.lines().any(|line| line.starts_with(start) && line.contains(" ready "));
    assert!(has("n0 (here) ") && has("n1 "), "{text}");
    let metrics = http::get(admin, "/metrics").text();
    for line in ["maitred_node_ready{node=\"n1\"} 1\n", "maitred_node_saturation{node=\"n0\"} "] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    let mut events = Events::open(admin, "", "");
    let shown = events.next("state")["nodes"]["list"].clone();
    assert_eq!((&shown[1]["name"], &shown[1]["url"]), (&json!("n1"), &json!(link)), "{shown}");
    drop(events);

    // One that is away is silent, and its figures are of before.
    kill(second);
    wait::until_true("a node that is silent", || {
        let list = nodes_status(&first);
        list.len() == 2 && list[1]["silent"] == true && list[0]["silent"] == false
    });
}

#[test]
fn a_node_with_another_secret_and_strangers_get_nothing_and_the_log_says_so() {
    let cluster = Cluster::new(&[false, false]);
    let first = cluster.start(0);
    let second = cluster.setup(1, &SECRET.replace('0', "9")).start();
    second.expect_log(0, "cannot be reached: it has another secret (`secret_file`)");
    first.expect_log(0, "was closed: it refuses the secret of this node (`secret_file`)");
    for node in [&first, &second] {
        wait::until_true("the reason in the status", || {
            let why = log_status(node)["peers"][0]["error"].clone();
            why.as_str().is_some_and(|why| why.contains("another secret"))
        });
        assert_eq!(purge(node, "a.example/a").0, Some(3));
        await_hit(node, "/a");
    }

    let at = cluster.places[0].peer;
    let closed = |mut stream: TcpStream| {
        let within = Some(Duration::from_secs(10));
        stream.set_read_timeout(within).expect("it has a timeout");
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard);
        heard
    };
    let mut stranger = TcpStream::connect(at).expect("it listens");
    let _ = stranger.write_all(b"GET / HTTP/1.1\r\n\r\n");
    let alert = closed(stranger);
    assert!(alert.first().is_none_or(|kind| *kind == 21), "an alert of TLS at most: {alert:?}");
    first.expect_log(0, "to the purge log was closed: its address is not in `peers`");

    // A node that has the secret, and that the list of the first one lacks.
    let mut third = Cluster::new(&[false, false, false]);
    third.places.drain(..2);
    third.places.push(Place { address: free_address(), peer: at, pages: None });
    let third = third.setup(0, SECRET).start();
    third.expect_log(0, "does not have this node, 127.0.0.4:");
    let begun = Instant::now();
    wait::until_true("the time of a lease", || {
        assert!(!is_hit(&third, "/a"), "it does not hear of purges");
        begun.elapsed() > LEASE
    });
    assert_eq!(purge(&third, "a.example/a").0, Some(3));

    let secret = cluster.secret("short");
    let file = first.configuration();
    let text = std::fs::read_to_string(&file).expect("it has a configuration");
    let short = cluster.secrets.path().join("short.toml");
    let text = text.replace(&cluster.secret(SECRET).display().to_string(), &path(&secret));
    std::fs::write(&short, text).expect("it can be written");
    let mut check = Command::new(maitred_program());
    let output = check.arg("check").arg("--config").arg(&short).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("holds 5 bytes"), "{said}");
}

fn path(path: &Path) -> String {
    path.display().to_string()
}
