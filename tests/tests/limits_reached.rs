//! Limits of the machine and of the configuration, reached on purpose: what is served goes on, the
//! log says once which limit it is and then with numbers, and all is well afterwards.

use std::collections::HashSet;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use maitred_tests::http::{self, Connection, Request};
use maitred_tests::lowered::Lowered;
use maitred_tests::outside::{WAIT_PAGE, let_go, occupy, send};
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{Server, Setup, WEB_USER, document_root, give_to_web_user, is_root};
use maitred_tests::{Target, ports, wait};
use tempfile::TempDir;

/// How long an episode may take from its last event until its end is said, and some: it ends after
/// ten quiet seconds, and is looked at once a second.
const EPISODE_ENDS: Duration = Duration::from_secs(90);

/// Open files that the server gets in the tests about them, and the connections that fit: 512 are
/// kept back for other uses.
const OPEN_FILES: usize = 600;
const FITTING: usize = OPEN_FILES - 512;

/// Users of Debian without processes: the processes that are counted for them are ours.
const LONELY_USERS: [&str; 2] = ["uucp", "news"];

fn site() -> TempDir {
    let root = document_root(&[
        ("hello.txt", "hello, file"),
        ("hello.php", "<?php echo 'hello';"),
        ("die.php", "<?php posix_kill(getmypid(), 9); sleep(60);"),
        ("too/die.php", "<?php posix_kill(getmypid(), 9); sleep(60);"),
        WAIT_PAGE,
    ]);
    give_to_web_user(root.path());
    root
}

fn hello(server: &Server) {
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
}

fn expect_later(server: &Server, text: &str) -> String {
    let found = server.log().find_since(0, EPISODE_ENDS, |line| line.contains(text));
    found.unwrap_or_else(|| panic!("no line with {text:?}:\n{}", server.log_text()))
}

fn count(server: &Server, text: &str) -> usize {
    server.log_text().matches(text).count()
}

/// How long requests wait for a worker, here: as long as the test. A part of a request header would
/// have 20 seconds, which a busy machine may need.
const PATIENT: &str = "request_queue_timeout = \"10m\"";

/// Connections with a request, which is answered after [`let_go`].
fn open_waiting(server: &Server, number: usize) -> Vec<Connection> {
    let request = Request::get(&format!("/{}", WAIT_PAGE.0));
    (0..number).map(|_| send(server, &request)).collect()
}

fn assert_answered(mut connection: Connection, text: &str) {
    let answer = connection.read_response(false).expect("an answer");
    assert_eq!((answer.status, answer.text().as_str()), (200, text));
}

#[test]
fn connections_beyond_the_limit_wait_and_those_within_it_are_served() {
    let root = site();
    let limit = format!("--nofile={OPEN_FILES}:{OPEN_FILES}");
    let server = Setup::new(root.path()).pool(PATIENT).under(&["prlimit", &limit]).start();
    let mut open = open_waiting(&server, FITTING);
    let file = Request::get("/hello.txt");
    let beyond: Vec<Connection> = (0..20).map(|_| send(&server, &file)).collect();
    server.expect_log(0, &format!("{FITTING} connections are open"));
    // The place of one that has left is free for those that waited, one after the other.
    drop(open.pop());
    for connection in beyond {
        assert_answered(connection, "hello, file");
    }
    let_go(root.path());
    for connection in open {
        assert_answered(connection, "waiting");
    }
    hello(&server);
    expect_later(&server, "the connection limit was reached");
    assert_eq!(count(&server, "connections are open"), 1);
    server.stop();
}

#[test]
fn idle_connections_at_the_limit_make_room_for_new_clients_the_oldest_first() {
    let root = site();
    let limit = format!("--nofile={OPEN_FILES}:{OPEN_FILES}");
    let server = Setup::new(root.path()).under(&["prlimit", &limit]).start();
    let asked = Request::get("/hello.txt");
    let mut idle: Vec<Connection> = Vec::new();
    for _ in 0..2 * FITTING {
        let mut client = Connection::open(server.address());
        let response = client.ask(&asked).expect("each new client is served");
        assert_eq!(response.header("Connection"), None, "and may stay");
        idle.push(client);
    }
    let unused = TcpStream::connect(server.address()).expect("the kernel takes it");
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    let mut newest = idle.pop().expect("a connection");
    assert_eq!(newest.ask(&asked).expect("it is open").text(), "hello, file");
    assert!(idle[..FITTING].iter_mut().all(Connection::is_closed_by_server));
    assert_eq!(count(&server, "connections are open"), 0, "the limit was never reached");
    drop((unused, newest, idle));
    server.stop();
}

#[test]
fn a_front_out_of_descriptors_says_so_once_and_recovers() {
    let root = site();
    let server = Setup::new(root.path()).pool(PATIENT).start();
    let front = server.front().expect("a front");
    let fds = format!("/proc/{}/fd", front.pid);
    let used = || std::fs::read_dir(&fds).expect("its descriptors").count() as u64;
    let limit = used() + 10;
    let lowered = Lowered::new(front, WEB_USER, "Max open files", "--nofile", limit);
    let mut open = open_waiting(&server, 30);
    let line = server.expect_log(0, "no connection can be accepted at the moment");
    assert!(line.contains("Too many open files"), "{line}");
    drop(open.split_off(5));
    // Those that still waited take what has become free for as long as it takes to find them gone;
    // an answer needs a descriptor, too.
    wait::until_true("those that have left to be let go", || {
        ports::unaccepted(server.address()) == 0 && used() < limit - 2
    });
    let_go(root.path());
    for mut connection in open {
        let response = connection.read_response(false).expect("a response");
        // The last ones that fit may have taken the descriptor that finding their script needs.
        assert!(
            (response.status, response.text().as_str()) == (200, "waiting")
                || response.status == 503
                    && server.log_text().contains("no file descriptor is free"),
            "{response:?}"
        );
    }
    drop(lowered);
    hello(&server);
    expect_later(&server, "connections were not accepted");
    assert_eq!(count(&server, "no connection can be accepted"), 1);
    server.stop();
}

#[test]
fn a_fork_that_is_refused_is_said_once_and_workers_come_when_it_is_allowed_again() {
    if !is_root() {
        eprintln!("skipped: only root can run a pool as a user of its own");
        return;
    }
    let root = site();
    let server = Setup::new(root.path())
        .pm("ondemand")
        .workers(4)
        .pool(&format!("user = {:?}", LONELY_USERS[0]))
        .pool("process_idle_timeout = \"1s\"")
        .start();
    hello(&server);
    let zygote = server.zygote().expect("a zygote");
    let lowered = Lowered::new(zygote, LONELY_USERS[0], "Max processes", "--nproc", 1);
    wait::until_true("the worker to leave", || server.workers().is_empty());
    let mut waiting = send(&server, &Request::get("/hello.php"));
    let line = server.expect_log(0, "no worker could be made: ");
    assert!(line.contains("Resource temporarily unavailable"), "{line}");
    // The zygote makes further attempts; they are all one episode.
    assert_eq!(http::get(server.address(), "/hello.txt").status, 200);
    drop(lowered);
    let answer = waiting.read_response(false).expect("an answer");
    assert_eq!(answer.text(), "hello", "it has waited");
    expect_later(&server, "workers can be made again");
    assert_eq!(count(&server, "no worker could be made"), 1);
    server.stop();
}

#[test]
fn a_request_that_waits_for_a_fork_in_vain_is_refused_with_a_cause() {
    if !is_root() {
        eprintln!("skipped: only root can run a pool as a user of its own");
        return;
    }
    let root = site();
    let server = Setup::new(root.path())
        .pm("dynamic")
        .workers(4)
        .pool("min_spare_servers = 1\nmax_spare_servers = 1")
        .pool("request_queue_timeout = \"1s\"")
        .pool(&format!("user = {:?}", LONELY_USERS[1]))
        .start();
    server.wait_for_full_strength(1, EPISODE_ENDS);
    let zygote = server.zygote().expect("a zygote");
    let _lowered = Lowered::new(zygote, LONELY_USERS[1], "Max processes", "--nproc", 1);
    let _busy = occupy(&server);
    let refused = http::get(server.address(), "/hello.php");
    assert_eq!(refused.status, 503);
    server.expect_log(0, "No worker became free in time");
    server.expect_log(0, "no worker could be made: ");
    let_go(root.path());
    server.stop();
}

#[test]
fn a_boot_that_hangs_is_ended_and_tried_again_and_other_pools_never_notice() {
    let root = site();
    let preload = root.path().join("preload.php");
    std::fs::write(&preload, "<?php sleep(3600);").expect("a file can be written");
    let server = Setup::new(root.path())
        .hosts(&["localhost"])
        .top("spare_zygotes = 0")
        .site(&format!(
            "[pools.hang]\npm = \"ondemand\"\nmax_children = 2\n\
             request_queue_timeout = \"1s\"\n\
             php_admin_value = {{ \"opcache.enable\" = 1, \"opcache.preload\" = {preload:?} }}\n\
             [[sites]]\nhosts = [\"hang.example\"]\nroot = {:?}\npool = \"hang\"",
            root.path()
        ))
        .start();
    let hanging = Request::new("GET", "/hello.php").header("Host", "hang.example");
    assert_eq!(http::ask(server.address(), &hanging).status, 503);
    let zygotes = || {
        let all = server.processes().into_iter();
        let hang = all.filter(|p| p.title.starts_with("maitred-php: zygote pool hang"));
        hang.collect::<Vec<Process>>()
    };
    let first = zygotes().pop().expect("a zygote that hangs");
    let killed = "the zygote of pool `hang` is killed: ";
    let within = Duration::from_secs(60);
    let said = server.log().find_since(0, within, |line| line.contains(killed));
    assert!(said.is_some(), "{}", server.log_text());
    wait::until_true("the hanging zygote to be gone", || !first.is_running());
    // Without a request for a worker, no zygote is started again. At first they are rejected.
    wait::until_true("another attempt", || {
        assert_eq!(http::ask(server.address(), &hanging).status, 503);
        zygotes().iter().any(|zygote| *zygote != first)
    });
    hello(&server);
    server.stop();
}

#[test]
fn a_frozen_worker_is_killed_when_its_time_is_over() {
    let root = site();
    let server =
        Setup::new(root.path()).workers(1).pool("request_terminate_timeout = \"1s\"").start();
    let mut busy = occupy(&server);
    let worker = server.workers().pop().expect("a worker");
    worker.signal(Signal::STOP);
    server.expect_log(0, "Its worker is ended (seat 0).");
    wait::until_true("the frozen worker to die", || !worker.is_running());
    let _ = busy.read_chunk();
    hello(&server);
    server.stop();
}

#[test]
fn a_frozen_worker_does_not_keep_the_server_from_stopping() {
    let root = site();
    let server = Setup::new(root.path()).workers(2).top("process_control_timeout = 1").start();
    let _busy = occupy(&server);
    for worker in server.workers() {
        worker.signal(Signal::STOP);
    }
    server.stop();
}

#[test]
fn workers_that_die_in_a_row_are_counted_and_not_told_one_by_one() {
    let root = site();
    let server = Setup::new(root.path()).workers(2).start();
    // Fewer of each page than the limit of crashes.
    for number in 0..12 {
        let page = if number % 2 == 0 { "/die.php" } else { "/too/die.php" };
        let request = Request::post(page, "text/plain", b"");
        let status = http::ask(server.address(), &request).status;
        assert!([502, 503].contains(&status), "{status}");
    }
    let line = expect_later(&server, "12 workers died in");
    assert!(line.contains("12 were ended by signal 9"), "{line}");
    assert!(line.contains("die.php"), "{line}");
    assert_eq!(count(&server, ": worker "), 3);
    server.stop();
}

#[test]
fn a_queue_that_stands_and_requests_that_are_refused_are_four_lines() {
    let root = site();
    let server = Setup::new(root.path())
        .workers(1)
        .pool("request_queue_length = 5")
        .pool("request_queue_timeout = \"8s\"")
        .start();
    let _busy = occupy(&server);
    let mut waiting: Vec<Connection> =
        (0..5).map(|_| send(&server, &Request::get("/hello.php?waits"))).collect();
    let refused = wait::until("a request to find a full queue", || {
        let begun = Instant::now();
        let response = http::get(server.address(), "/hello.php?full");
        // One that has room waits for the whole timeout of the queue.
        (response.status == 503 && begun.elapsed() < Duration::from_secs(4)).then_some(response)
    });
    assert_eq!(refused.status, 503);
    assert!(refused.header("Retry-After").is_some());
    server.expect_log(0, "; further rejections are counted");
    for _ in 0..20 {
        assert_eq!(http::get(server.address(), "/hello.php?full").status, 503);
    }
    let stands = server.expect_log(0, "requests are not moving: 5 requests wait");
    assert!(stands.contains("the only worker is busy: /"), "{stands}");
    assert!(stands.contains("wait.php"), "{stands}");
    for connection in &mut waiting {
        assert_eq!(connection.read_response(false).expect("an answer").status, 503);
    }
    let_go(root.path());
    expect_later(&server, "requests were not moving for");
    let over = expect_later(&server, "503 was the status of ");
    assert!(over.contains("5 queue_timeout"), "{over}");
    assert!(over.contains("request_queue_timeout = 8 s"), "{over}");
    assert!(over.contains("request_queue_length = 5"), "{over}");
    assert_eq!(count(&server, ": 503 after "), 1, "of 26 refusals");
    hello(&server);
    server.stop();
}

#[test]
fn a_spawn_rate_that_is_reached_is_said_once() {
    let root = site();
    let server =
        Setup::new(root.path()).pm("ondemand").workers(6).pool("max_spawn_rate = 2").start();
    let busy: Vec<Connection> = (0..6).map(|_| send(&server, &Request::get("/wait.php"))).collect();
    server.expect_log(0, "pool www: max_spawn_rate = 2 workers a second is reached");
    wait::until_true("all workers", || server.workers().len() == 6);
    let_go(root.path());
    drop(busy);
    expect_later(&server, "max_spawn_rate was reached for");
    assert_eq!(count(&server, "max_spawn_rate = 2"), 1);
    server.stop();
}

#[test]
fn a_worker_that_the_front_has_no_descriptor_for_is_replaced_when_there_are_some_again() {
    let root = site();
    let server = Setup::new(root.path()).workers(1).start();
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    let front = server.front().expect("there is a front");
    let mark = server.log().mark();
    let lowered = Lowered::new(front, WEB_USER, "Max open files", "--nofile", 3);
    let worker = server.workers().remove(0);
    worker.signal(Signal::KILL);
    server.expect_log(mark, "a worker cannot be watched and is replaced");
    // One after the other is tried, and none of the others is worth a line.
    let mut tried = HashSet::new();
    wait::until_true("three more workers", || {
        tried.extend(server.workers().iter().map(|worker| worker.pid));
        tried.len() > 3
    });
    drop(lowered);
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    assert_eq!(count(&server, "cannot be watched"), 1);
    expect_later(&server, "replaced that could not be watched");
}

#[test]
fn a_reload_that_the_front_has_no_descriptors_for_comes_to_its_end_when_there_are_some_again() {
    let root = site();
    let setup = |workers| Setup::new(root.path()).workers(workers);
    let server = setup(1).start();
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    let front = server.front().expect("there is a front");
    let mark = server.log().mark();
    // Enough for the configuration and for a part of what the pool needs. A client's descriptor
    // would be free a moment later.
    wait::until_true("the front to have let its client go", || {
        ports::connections(server.address()) == 0
    });
    let folder = format!("/proc/{}/fd", front.pid);
    let used: Vec<u64> = std::fs::read_dir(folder)
        .expect("its descriptors")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    let third_free = (0..).filter(|fd| !used.contains(fd)).nth(2);
    let limit = third_free.expect("there is always another") + 1;
    let old = server.workers().remove(0);
    let lowered = Lowered::new(front, WEB_USER, "Max open files", "--nofile", limit);
    server.configure(&setup(2));
    server.signal(Signal::HUP);
    server.expect_log(mark, "is not served yet");
    assert_eq!(http::get(server.address(), "/hello.txt").status, 200);
    drop(lowered);
    wait::until_true("the new generation to serve alone", || {
        let workers = server.workers();
        workers.len() == 2 && workers.iter().all(|worker| worker.pid != old.pid)
    });
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
}
