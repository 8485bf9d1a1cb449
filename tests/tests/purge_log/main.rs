//! Several nodes with one purge log, in Debian's Redis: what was purged everywhere is served by no
//! node, whatever fails.
//!
//! `MAITRED_PURGES=10000` is the long run of `chaos.rs`.

mod chaos;
mod figures;
mod hostile;
mod secured;
mod shown;

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use maitred_tests::http::{self, Request, Response};
use maitred_tests::ports::free_address;
use maitred_tests::processes::{Process, Signal};
use maitred_tests::redis::Redis;
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user, public_folder};
use maitred_tests::{Target, maitred_program, wait};
use tempfile::TempDir;

/// Sends the contents of a file in `data`, and purges a URL if it is to.
const PAGE: &str = "<?php
    if (isset($_GET['purge'])) {
        header('Cache-Control: no-store');
        var_dump(@maitred_cache_purge_urls([$_GET['purge']]));
        exit;
    }
    echo file_get_contents(__DIR__ . '/data/' . basename(strtok($_SERVER['REQUEST_URI'], '?')));";

/// The cache status of a node without a lease.
const BYPASSED: &str = "maitred; fwd=bypass; fwd-status=200; detail=purge-log";

/// The shortest lease.
const LEASE: Duration = Duration::from_secs(1);

fn site() -> TempDir {
    let root = document_root(&[("index.php", PAGE), ("data/a", "1"), ("data/b", "1")]);
    give_to_web_user(&root.path().join("data"));
    root
}

fn write(root: &TempDir, key: &str, text: &str) {
    let new = root.path().join("data").join(format!(".{key}"));
    std::fs::write(&new, text).expect("data can be written");
    std::fs::rename(&new, root.path().join("data").join(key)).expect("data can be replaced");
}

/// A place for a node: its name, its address and its cached pages, which a restart keeps.
struct Place {
    name: String,
    address: SocketAddr,
    pages: Option<TempDir>,
}

impl Place {
    fn new(number: usize, has_disk: bool) -> Place {
        let pages = has_disk.then(public_folder);
        if let Some(pages) = &pages {
            give_to_web_user(pages.path());
        }
        Place { name: format!("n{number}"), address: free_address(), pages }
    }

    /// A node with the shortest lease.
    fn setup(&self, root: &Path, log: &str) -> Setup {
        self.lasting(root, &format!("lease = \"1s\", {log}"))
    }

    /// A node with these settings of the log.
    fn lasting(&self, root: &Path, log: &str) -> Setup {
        let log = format!("purge_log = {{ node = \"{}\", {log} }}", self.name);
        let setup = Setup::new(root).at(self.address).hosts(&["a.example"]).top(&log);
        let setup = match &self.pages {
            Some(pages) => setup.top(&format!("cache_dir = {:?}", pages.path())),
            None => setup,
        };
        setup
            .site("front_controller = \"/index.php\"")
            .site("[sites.cache]")
            .site("valid = \"1d\"")
            .site("purge_from = [\"127.0.0.1\"]")
    }

    fn start(&self, root: &Path, redis: &Redis) -> Server {
        let log = format!("url = \"unix:{}\", timeout = \"500ms\"", redis.socket().display());
        self.setup(root, &log).start()
    }
}

fn at(address: SocketAddr, method: &str, target: &str) -> std::io::Result<Response> {
    let request = Request::new(method, target).header("Host", "a.example");
    http::try_ask(address, &request.header("Connection", "close"))
}

fn get(server: &Server, target: &str) -> String {
    at(server.address(), "GET", target).expect("it responds").text()
}

fn cache_status(server: &Server, target: &str) -> String {
    let response = at(server.address(), "GET", target).expect("it responds");
    response.header("Cache-Status").unwrap_or_default().to_owned()
}

/// Waits until a node serves a page from its cache.
fn await_hit(server: &Server, target: &str) {
    wait::until_true("a page from the cache", || cache_status(server, target).contains("; hit;"));
}

fn purge(server: &Server, what: &str) -> Output {
    let mut command = Command::new(maitred_program());
    command.args(["purge", what, "--admin-socket"]).arg(server.admin_socket());
    command.output().expect("maitred can be run")
}

/// Waits until a purge is everywhere.
fn await_everywhere(server: &Server, what: &str) {
    wait::until_true("a purge that is everywhere", || purge(server, what).status.success());
}

fn said(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// What the status has of the purge log.
fn log_status(server: &Server) -> serde_json::Value {
    let mut command = Command::new(maitred_program());
    command.args(["status", "--json", "--admin-socket"]).arg(server.admin_socket());
    let output = command.output().expect("maitred can be run");
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    status["purge_log"].clone()
}

/// The process of a node that passes purges on.
fn purges_process(server: &Server) -> Process {
    let is_it = |process: &Process| process.title.trim_end() == "maitred: purges";
    wait::until("the process of the purge log", || server.processes().into_iter().find(is_it))
}

fn change_and_purge(root: &TempDir, text: &str, purge: impl FnOnce()) {
    write(root, "a", text);
    purge();
}

#[test]
fn a_purge_by_any_means_on_any_node_is_one_on_all_of_them() {
    let (root, redis) = (site(), Redis::start());
    let places: Vec<Place> = (0..3).map(|number| Place::new(number, number == 1)).collect();
    let nodes: Vec<Server> = places.iter().map(|place| place.start(root.path(), &redis)).collect();
    await_everywhere(&nodes[0], "a.example/none");
    let all = || {
        let texts: Vec<String> = nodes.iter().map(|node| get(node, "/a")).collect();
        nodes.iter().for_each(|node| await_hit(node, "/a"));
        texts.concat()
    };
    assert_eq!(all(), "111");
    change_and_purge(&root, "2", || {
        assert_eq!(said(&purge(&nodes[0], "a.example/a")), (Some(0), String::new()));
    });
    assert_eq!(all(), "222");
    change_and_purge(&root, "3", || {
        let response = at(nodes[1].address(), "PURGE", "/a").unwrap();
        assert_eq!((response.status, response.text()), (200, "dropped: a.example/a\n".to_owned()));
    });
    assert_eq!(all(), "333");
    change_and_purge(&root, "4", || {
        assert_eq!(get(&nodes[2], "/x?purge=a.example/a"), "bool(true)\n");
    });
    assert_eq!(all(), "444");

    // A node that stops is not waited for.
    let mut nodes = nodes;
    nodes.remove(2).stop();
    assert!(purge(&nodes[0], "a.example/a").status.success());
    await_hit(&nodes[1], "/a");

    // A process of the purge log that is killed is replaced, and nothing is lost.
    let before = purges_process(&nodes[1]);
    before.signal(Signal::KILL);
    wait::until_true("another process", || purges_process(&nodes[1]) != before);
    write(&root, "a", "5");
    await_everywhere(&nodes[0], "a.example/a");
    assert_eq!(nodes.iter().map(|node| get(node, "/a")).collect::<String>(), "55");

    // So is that of a server that is upgraded.
    let (mark, before) = (nodes[1].log().mark(), purges_process(&nodes[1]));
    nodes[1].signal(Signal::USR2);
    nodes[1].expect_log(mark, "upgraded to");
    assert_ne!(purges_process(&nodes[1]), before);
    write(&root, "a", "6");
    await_everywhere(&nodes[0], "a.example/a");
    assert_eq!(nodes.iter().map(|node| get(node, "/a")).collect::<String>(), "66");
    await_hit(&nodes[1], "/a");
}

#[test]
fn a_redis_that_hangs_or_is_gone_delays_no_client_and_purges_are_sent_later() {
    let (root, mut redis) = (site(), Redis::start());
    let places: Vec<Place> = (0..2).map(|number| Place::new(number, false)).collect();
    let longer = |place: &Place| {
        let log = format!("url = \"unix:{}\", timeout = \"300ms\"", redis.socket().display());
        place.setup(root.path(), &log).start()
    };
    let nodes: Vec<Server> = places.iter().map(longer).collect();
    await_everywhere(&nodes[0], "a.example/none");
    nodes.iter().for_each(|node| await_hit(node, "/a"));
    wait::until_true("both nodes in the status", || {
        let status = log_status(&nodes[0]);
        let is_all = status["connected"] == true && status["nodes"] == serde_json::json!(["n1"]);
        is_all && status["last_id"].is_string() && status["waiting"] == 0
    });
    redis.signal(Signal::STOP);
    let mark = nodes[0].log().mark();
    let begun = Instant::now();
    assert!(cache_status(&nodes[0], "/a").contains("; hit;"));
    write(&root, "a", "2");
    let (code, why) = said(&purge(&nodes[0], "a.example/a"));
    assert_eq!(code, Some(3), "{why}");
    assert!(why.contains("the purge log cannot be reached"), "{why}");
    assert_eq!(get(&nodes[0], "/a"), "2");
    assert!(begun.elapsed() < 2 * LEASE, "{:?}", begun.elapsed());
    let response = at(nodes[0].address(), "PURGE", "/a").unwrap();
    assert_eq!(response.status, 504);
    nodes[0].expect_log(mark, "the purge log cannot be reached");
    wait::until_true("what waits in the status", || {
        let status = log_status(&nodes[0]);
        status["connected"] == false && status["waiting"] == 2 && status["error"].is_string()
    });
    // The lease ends: what others purge is not known.
    wait::until_true("the end of the lease", || cache_status(&nodes[1], "/a") == BYPASSED);
    redis.signal(Signal::CONT);
    wait::until_true("the purge on the other node", || get(&nodes[1], "/a") == "2");
    await_everywhere(&nodes[0], "a.example/none");
    await_hit(&nodes[1], "/a");
    let said = nodes[0].log().lines().into_iter();
    assert_eq!(said.filter(|line| line.contains("cannot be reached")).count(), 1);

    // Another Redis, without the data of the first.
    redis.crash();
    write(&root, "a", "3");
    await_everywhere(&nodes[1], "a.example/a");
    assert_eq!(nodes.iter().map(|node| get(node, "/a")).collect::<String>(), "33");
}

#[test]
fn a_node_that_hears_nothing_is_named_and_serves_no_cached_page_once_it_is_not_waited_for() {
    let (root, redis) = (site(), Redis::start());
    let places: Vec<Place> = (0..2).map(|number| Place::new(number, true)).collect();
    // It is waited for as long as its lease: time enough for a purge on a busy machine.
    let start = |place: &Place| {
        let url = format!("url = \"unix:{}\"", redis.socket().display());
        let log = format!("lease = \"3s\", {url}, timeout = \"500ms\"");
        place.lasting(root.path(), &log).start()
    };
    let (first, second) = (start(&places[0]), start(&places[1]));
    await_everywhere(&first, "a.example/none");
    await_hit(&second, "/a");
    let deaf = purges_process(&second);
    deaf.signal(Signal::STOP);
    write(&root, "a", "2");
    let named = "maitred: not purged everywhere: not confirmed by n1\n";
    wait::until_true("the node to be named", || {
        said(&purge(&first, "a.example/a")) == (Some(3), named.to_owned())
    });
    await_everywhere(&first, "a.example/a");
    let response = at(second.address(), "GET", "/a").unwrap();
    assert_eq!(response.text(), "2");
    assert_eq!(response.header("Cache-Status"), Some(BYPASSED));
    deaf.signal(Signal::CONT);
    await_hit(&second, "/a");
    assert_eq!(get(&second, "/a"), "2");

    // Killed, with pages on disk. Whether it is still waited for depends on how long that takes.
    second.processes();
    second.signal(Signal::KILL);
    second.expect_killed();
    write(&root, "a", "3");
    await_everywhere(&first, "a.example/a");
    let second = start(&places[1]);
    assert_eq!(get(&second, "/a"), "3");
    await_hit(&second, "/a");
    assert_eq!(get(&second, "/a"), "3");
    await_everywhere(&first, "a.example/none");
}
