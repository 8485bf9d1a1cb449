//! Metrics and status over HTTP, on the admin listener.

use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use maitred_tests::http::{self, Connection, Request};
use maitred_tests::outside::{command, let_go, occupy, pool, site, status, text};
use maitred_tests::processes::Signal;
use maitred_tests::server::{Server, Setup};
use maitred_tests::{Target, ports, wait};

/// A server with an admin listener, and its address.
fn with_listener(setup: Setup) -> (Server, SocketAddr) {
    let listener = ports::free_address();
    let server = setup.top(&format!("admin = \"{listener}\"")).start();
    (server, listener)
}

#[test]
fn status_and_metrics_tell_how_opcache_is_doing() {
    let root = site();
    let setup = Setup::new(root.path())
        .workers(1)
        .pool("php_admin_value.\"opcache.file_update_protection\" = 0")
        .pool("php_admin_value.\"opcache.restrict_api\" = \"/nowhere\"");
    let (server, listener) = with_listener(setup);
    for _ in 0..4 {
        assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    }
    let _busy = occupy(&server);
    let opcache = wait::until("figures", || {
        let opcache = pool(&server)["opcache"].clone();
        opcache.is_object().then_some(opcache)
    });
    assert_eq!(opcache["cached_scripts"], 2, "{opcache}");
    assert_eq!(opcache["hits"], 3, "{opcache}");
    assert_eq!(opcache["misses"], 2, "{opcache}");
    assert_eq!(opcache["oom_restarts"], 0, "{opcache}");
    assert!(opcache["memory_free_bytes"].as_u64() > Some(1 << 20), "{opcache}");
    let details = text(&command(&server, &["status", "www"]).stdout);
    assert!(details.contains(" 2 scripts, 60.0% hits, 0 restarts"), "{details}");
    let metrics = http::get(listener, "/metrics").text();
    for line in [
        "maitred_pool_opcache_scripts{pool=\"www\"} 2",
        "maitred_pool_opcache_hits_total{pool=\"www\"} 3",
        "maitred_pool_opcache_restarts_total{pool=\"www\",reason=\"manual\"} 0",
    ] {
        let mut lines = metrics.lines();
        assert!(lines.any(|found| found == line), "{line} in\n{metrics}");
    }
    // An OPcache is that of its zygote, and goes with it.
    let zygote = server.zygote().expect("a zygote runs");
    zygote.signal(Signal::KILL);
    wait::until_true("figures of the next zygote", || pool(&server)["opcache"]["hits"] == 0);
    let_go(&root);
}

#[test]
fn metrics_wait_for_no_zygote_that_does_not_answer() {
    let root = site();
    let (server, listener) = with_listener(Setup::new(root.path()));
    let zygote = server.zygote().expect("a zygote runs");
    zygote.signal(Signal::STOP);
    let opcache = "maitred_pool_opcache_scripts{pool=\"www\"}";
    for _ in 0..3 {
        let metrics = http::get(listener, "/metrics").text();
        assert!(!metrics.contains(opcache), "{metrics}");
        assert!(metrics.contains("maitred_pool_private_memory_bytes{pool=\"www\"} "));
    }
    zygote.signal(Signal::CONT);
    wait::until_true("figures of OPcache", || {
        http::get(listener, "/metrics").text().contains(opcache)
    });
    assert_eq!(server.zygote(), Some(zygote), "it was left alone");
}

#[test]
fn metrics_and_status_are_answered_on_the_admin_listener_while_every_worker_is_busy() {
    let root = site();
    let (server, listener) = with_listener(Setup::new(root.path()).workers(1));
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    let _busy = occupy(&server);
    wait::until_true("the request to be counted", || pool(&server)["requests"] == 1);
    let metrics = http::get(listener, "/metrics");
    assert_eq!(metrics.status, 200);
    assert_eq!(metrics.header("Content-Type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let metrics = metrics.text();
    for line in [
        "maitred_pool_workers{pool=\"www\",state=\"busy\"} 1",
        "maitred_pool_workers{pool=\"www\",state=\"idle\"} 0",
        "maitred_pool_requests_total{pool=\"www\",outcome=\"responded\"} 1",
        "maitred_pool_queue_wait_seconds_count{pool=\"www\"} 1",
        "maitred_pool_script_seconds_bucket{pool=\"www\",le=\"+Inf\"} 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} in\n{metrics}");
    }
    let private = metrics
        .lines()
        .find_map(|line| line.strip_prefix("maitred_pool_private_memory_bytes{pool=\"www\"} "));
    assert!(private.is_some_and(|bytes| bytes.parse::<u64>().is_ok_and(|bytes| bytes > 0)));
    let open =
        Request::get("/metrics").header("Accept", "application/openmetrics-text; version=1.0.0");
    let open = http::ask(listener, &open).text();
    assert!(open.contains("# TYPE maitred_pool_requests counter\n") && open.ends_with("# EOF\n"));
    let full = http::get(listener, "/status/www?json&full").json();
    assert_eq!(full["processes"][0]["request uri"], "/wait.php?***", "{full}");
    assert_eq!(http::get(listener, "/ping/www").text(), "pong");
    assert!(http::get(listener, "/").text().contains("/status/www?html"));
    for path in ["/hello.php", "/status/wwww", "/status/", "/ping", "/../metrics", "//metrics"] {
        assert_ne!(http::get(listener, path).status, 200, "{path}");
    }
    assert_ne!(http::get(server.address(), "/metrics").text(), metrics, "only on the listener");
    let_go(&root);
}

/// What `promtool check metrics` says, if it is installed.
#[test]
fn promtool_finds_nothing_wrong_with_the_metrics() {
    let promtool = std::env::var("PROMTOOL").unwrap_or_else(|_| "promtool".into());
    if Command::new(&promtool).arg("--version").output().is_err() {
        eprintln!("skipped: promtool is not installed");
        return;
    }
    let root = site();
    let (server, listener) = with_listener(Setup::new(root.path()));
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    let metrics = http::get(listener, "/metrics").body;
    let mut check = Command::new(promtool);
    check.args(["check", "metrics"]).stdin(Stdio::piped());
    check.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut check = check.spawn().expect("promtool can be started");
    let mut input = check.stdin.take().expect("a pipe");
    input.write_all(&metrics).expect("promtool reads");
    drop(input);
    let said = check.wait_with_output().expect("promtool ends");
    let all = format!("{}{}", text(&said.stdout), text(&said.stderr));
    assert!(said.status.success() && all.trim().is_empty(), "{all}");
}

#[test]
fn a_name_that_leads_to_a_loopback_listener_from_outside_opens_nothing() {
    let root = site();
    let (_server, listener) = with_listener(Setup::new(root.path()));
    let ask = |host: &str| {
        http::ask(listener, &Request::new("GET", "/metrics").header("Host", host)).status
    };
    assert_eq!(ask("rebound.example:9180"), 421);
    assert_eq!(ask("localhost:9180"), 200);
    assert_eq!(ask("127.0.0.1"), 200);
}

#[test]
fn the_listener_has_a_bounded_number_and_closes_the_oldest_for_another() {
    let root = site();
    let (server, listener) = with_listener(Setup::new(root.path()));
    let mut all: Vec<_> = (0..64).map(|_| Connection::open(listener)).collect();
    for connection in &mut all {
        let answer = connection.ask(&Request::get("/ping/www"));
        assert_eq!(answer.expect("it is let in").status, 200);
    }
    let mut one_more = Connection::open(listener);
    let response = one_more.ask(&Request::get("/ping/www"));
    assert_eq!(response.expect("there is room for it").status, 200);
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    all[0].stream().set_read_timeout(Some(wait::DEADLINE)).expect("a time-out");
    assert!(all[0].read_head().is_err(), "the oldest is closed");
    let response = all[63].ask(&Request::get("/ping/www"));
    assert_eq!(response.expect("the others stay").status, 200);
}

#[test]
fn a_pool_that_was_removed_leaves_the_metrics_with_its_last_request() {
    let root = site();
    let long = "<?php for ($i = 0; $i < 512; $i++) { echo str_repeat('x', 1 << 16); }";
    std::fs::write(root.path().join("long.php"), long).expect("a script can be written");
    let (server, listener) = with_listener(Setup::new(root.path()));
    let without = std::fs::read_to_string(server.configuration()).expect("it can be read");
    let other =
        "[pools.other]\npm = \"static\"\nmax_children = 1\n\n[[sites]]\nhosts = [\"other.test\"]\n";
    let site = format!("root = {:?}\npool = \"other\"\n", root.path());
    server.configure_as(&format!("{without}\n{other}{site}"));
    server.reload();
    let mut slow = Connection::open(server.address());
    let request = Request::new("GET", "/long.php").header("Host", "other.test");
    slow.send(&request.to_bytes()).expect("the server takes a request");
    slow.read_head().expect("its script has begun");
    let named = || http::get(listener, "/metrics").text().contains("pool=\"other\"");
    assert!(named());
    server.configure_as(&without);
    server.reload();
    wait::until_true("the supervisor to forget the removed pool", || {
        let pools = status(&server)["pools"].as_array().map(Vec::len);
        pools == Some(1) && server.processes().iter().all(|one| !one.title.contains("pool other"))
    });
    assert!(named(), "its last client is still being answered");
    drop(slow);
    wait::until_true("the removed pool to leave the metrics", || !named());
}
