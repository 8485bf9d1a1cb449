//! Workers and generations of workers that take each other's place while clients are served.

use std::fs;
use std::path::PathBuf;

use maitred_tests::Target;
use maitred_tests::http::{self, Connection, Request};
use maitred_tests::load::{ECHO_PAGE, Load};
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{Server, Setup, document_root};
use maitred_tests::wait;
use tempfile::TempDir;

/// Connections of a load: more than there are workers, so that requests wait.
const CONNECTIONS: usize = 6;
const WORKERS: u32 = 3;
/// Answers that a load must get between two reloads.
const ENOUGH: u64 = 50;
/// Reloads in a row.
const RELOADS: usize = 12;
/// Descriptors by which the front's number may differ from one look to the next: connections, and
/// a generation that is leaving.
const SOME_DESCRIPTORS: usize = 8;

fn site() -> TempDir {
    document_root(&[
        ECHO_PAGE,
        ("pid.php", "<?php echo getmypid();"),
        ("who.php", "<?php echo getenv('GENERATION');"),
        (
            "hoard.php",
            // PHP keeps part of what a script had for the next one. Once the file is old enough for
            // OPcache, that would make a constant of a text that is the same each time.
            "<?php for ($i = 0; $i < 20000; $i++) { $all[] = str_repeat(chr($i % 256), 2000); }
             echo getmypid();",
        ),
        (
            "wait.php",
            "<?php echo 'waiting'; while (ob_get_level()) { ob_end_flush(); } flush();
             while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(2000); }
             echo getenv('GENERATION');",
        ),
    ])
}

fn pool(root: &TempDir) -> Setup {
    Setup::new(root.path()).workers(WORKERS).pool("env = { GENERATION = \"0\" }")
}

/// The file of a server's configuration, which it names when it starts.
fn configuration(server: &Server) -> PathBuf {
    let line = server.expect_log(0, "configuration: ");
    let (_, path) = line.split_once("configuration: ").expect("it names a file");
    PathBuf::from(path.trim())
}

/// Changes the configuration and has it read again; returns what is said of it.
fn reload(server: &Server, change: impl Fn(&str) -> String) -> String {
    let file = configuration(server);
    let before = fs::read_to_string(&file).expect("the configuration is there");
    fs::write(&file, change(&before)).expect("the configuration can be written");
    let mark = server.log().mark();
    server.signal(Signal::HUP);
    server.expect_log(mark, "reload")
        + &wait::until("the reload to end", || {
            let said = server.log().since(mark);
            let ended = |line: &String| line.contains("reloaded:") || line.contains("is refused");
            said.into_iter().find(ended)
        })
}

/// Another value of the pool's environment: a new generation.
fn next_generation(number: usize) -> impl Fn(&str) -> String {
    move |before| {
        let (head, rest) = before.split_once("GENERATION = \"").expect("the setting");
        let (_, tail) = rest.split_once('"').expect("its end");
        format!("{head}GENERATION = \"{number}\"{tail}")
    }
}

fn ask(server: &Server, target: &str) -> String {
    http::get(server.address(), target).text()
}

/// Descriptors and mappings of a process.
fn belongings(process: &Process) -> (usize, usize) {
    let folder = format!("/proc/{}", process.pid);
    let descriptors = fs::read_dir(format!("{folder}/fd")).map_or(0, Iterator::count);
    let maps = fs::read_to_string(format!("{folder}/maps")).unwrap_or_default();
    let pools = maps.lines().filter(|line| line.contains("maitred-"));
    (descriptors, pools.count())
}

#[test]
fn reloads_under_load_lose_no_request_and_leave_nothing_in_the_front() {
    let root = site();
    let server = pool(&root).start();
    let load = Load::start(server.address(), CONNECTIONS);
    load.wait_for_ok(ENOUGH);
    let front = server.front().expect("a front runs");
    let before = belongings(&front);
    for number in 1..=RELOADS {
        let said = reload(&server, next_generation(number));
        assert!(said.contains("reloaded: pool www restarted"), "{said}");
        load.wait_for_ok(ENOUGH);
    }
    let tally = load.stop();
    assert_eq!(tally.failed() + tally.mixed_up, 0, "{tally:?}");
    assert_eq!(ask(&server, "/who.php"), RELOADS.to_string());
    wait::until_true("the generations before to be forgotten", || {
        server.workers().len() == WORKERS as usize && belongings(&front).1 <= before.1
    });
    assert!(belongings(&front).0 <= before.0 + SOME_DESCRIPTORS);
    assert_eq!(server.front(), Some(front), "it is the same front");
    server.stop();
}

#[test]
fn what_runs_is_finished_by_its_own_generation_and_what_comes_runs_in_the_new_one() {
    let root = site();
    let server = pool(&root).start();
    let mut running = Connection::open(server.address());
    let request = Request::get("/wait.php").to_bytes();
    running.send(&request).expect("the server takes a request");
    let head = running.read_head().expect("the script has begun");
    assert_eq!(head.status, 200);
    reload(&server, next_generation(1));
    wait::until_true("the new generation to answer", || ask(&server, "/who.php") == "1");
    fs::write(root.path().join("go"), "").expect("the root can be written");
    let rest = String::from_utf8_lossy(&running.read_chunk().expect("an answer")).into_owned()
        + &String::from_utf8_lossy(&running.read_chunk().unwrap_or_default());
    assert!(rest.ends_with('0'), "{rest}");
    server.stop();
}

#[test]
fn a_reload_that_is_refused_changes_nothing_and_one_that_adds_a_site_serves_it() {
    let root = site();
    let second = document_root(&[("only.txt", "the second")]);
    let server = pool(&root).start();
    let said = reload(&server, |before| {
        format!(
            "{before}\n[[sites]]\nhosts = [\"second.test\"]\nroot = \"/nowhere\"\npool = \"no\"\n"
        )
    });
    assert!(said.contains("refused"), "{said}");
    assert_eq!(ask(&server, "/who.php"), "0");
    let there = second.path().display().to_string();
    let said =
        reload(&server, |before| before.replace("/nowhere", &there).replace("pool = \"no\"\n", ""));
    assert!(said.contains("reloaded"), "{said}");
    let mut client = Connection::open(server.address());
    let request = b"GET /only.txt HTTP/1.1\r\nHost: second.test\r\n\r\n";
    client.send(request).expect("the server takes a request");
    let answer = client.read_response(false).expect("an answer");
    assert_eq!(answer.text(), "the second");
    assert_eq!(ask(&server, "/who.php"), "0");
    server.stop();
}

#[test]
fn workers_are_replaced_after_max_requests_without_anybody_noticing() {
    let root = site();
    let server = pool(&root).pool("max_requests = 40").start();
    let before = server.workers();
    let load = Load::start(server.address(), CONNECTIONS);
    load.wait_for_ok(10 * ENOUGH);
    let tally = load.stop();
    assert_eq!(tally.failed() + tally.mixed_up, 0, "{tally:?}");
    assert!(before.iter().all(|worker| !worker.is_running()));
    wait::until_true("the pool to be whole", || server.workers().len() == WORKERS as usize);
    server.stop();
}

#[test]
fn a_worker_that_keeps_too_much_memory_is_replaced_after_its_answer() {
    let root = site();
    let server = Setup::new(root.path()).workers(1).pool("max_private_memory = \"12M\"").start();
    let modest = ask(&server, "/pid.php");
    for _ in 0..20 {
        assert_eq!(ask(&server, "/pid.php"), modest, "it is within its limit");
    }
    let hoarder = wait::until("a worker to be replaced", || {
        let pid = ask(&server, "/hoard.php");
        (pid != modest).then_some(pid)
    });
    assert_ne!(hoarder, modest);
    server.stop();
}
