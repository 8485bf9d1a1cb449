//! More requests than a pool can answer: who is answered, who is refused and when, and that all the
//! rest of the server does not notice. Scripts sleep, so that a slow machine makes no difference.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use maitred_tests::Target;
use maitred_tests::fastcgi::{Wire, params};
use maitred_tests::http::{self, Connection, Request, Response};
use maitred_tests::load::Load;
use maitred_tests::outside::{WAIT_PAGE, let_go, occupy, pool, send};
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user};
use maitred_tests::wait;
use serde_json::Value;
use tempfile::TempDir;

/// Connections that ask again as soon as they have an answer: many times as many as are answered.
const CROWD: usize = 40;

/// Nothing takes this long unless it hangs.
const LONG: Duration = Duration::from_secs(60);

const HEADER: &str = "X-Request-Timeout";

fn site() -> TempDir {
    let root = document_root(&[
        ("hello.php", "<?php echo 'hello';"),
        ("echo.php", "<?php usleep(20000); echo $_GET['id'];"),
        ("mark.php", "<?php error_log('the left request was executed');"),
        WAIT_PAGE,
    ]);
    give_to_web_user(root.path());
    root
}

fn waiting(server: &Server) -> u64 {
    pool(server)["queue"]["now"].as_u64().expect("a number")
}

fn refusals(server: &Server, cause: &str) -> u64 {
    pool(server)["refused"][cause].as_u64().unwrap_or(0)
}

fn limited(seconds: &str) -> Request {
    Request::get("/hello.php").header(HEADER, seconds)
}

/// What visitors read, whatever the cause.
const NEUTRAL: &str = "The server cannot respond to this now.";

fn assert_refused(refused: &Response) {
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.text().contains(NEUTRAL), "{refused:?}");
    assert_eq!(refused.header("Cache-Control"), Some("no-store"));
    let seconds = refused.header("Retry-After").expect("a time to come again");
    let seconds: u64 = seconds.parse().expect("whole seconds");
    assert!((1..=30).contains(&seconds), "{seconds}");
}

#[test]
fn too_many_requests_are_refused_by_cause_and_the_rest_of_the_server_does_not_notice() {
    let root = site();
    let server = Setup::new(root.path())
        .workers(2)
        .pool("request_queue_timeout = \"200ms\"")
        .pool("status_path = \"/status\"\nping_path = \"/ping\"")
        .start();
    let load = Load::start(server.address(), CROWD);
    server
        .log()
        .find_since(0, LONG, |line| line.contains("overload: the newest requests are served first"))
        .expect("a line that says so");
    wait::until_within("requests to be passed by newer ones", LONG, || {
        (refusals(&server, "shed") > 0).then_some(())
    });
    assert!(refusals(&server, "wait_too_long") > 0, "{}", pool(&server));
    assert_eq!(http::get(server.address(), "/ping").text(), "pong");
    let page = http::get(server.address(), "/status?json").json();
    assert!(page["listen queue"].as_u64() > Some(0), "{page}");
    load.wait_for_ok(20);
    // A reload leaves the queue as it is, and loses no request.
    server.configure(
        &Setup::new(root.path())
            .at(server.address())
            .workers(2)
            .pool("request_queue_timeout = \"300ms\""),
    );
    server.reload();
    load.wait_for_ok(20);
    let tally = load.stop();
    let statuses: Vec<u16> = tally.answers.keys().copied().collect();
    assert_eq!(statuses, [200, 503], "{tally:?}");
    assert_eq!((tally.broken, tally.mixed_up), (0, 0), "{tally:?}");
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    wait::until_true("no request to wait", || waiting(&server) == 0);
    let outcomes = &pool(&server)["outcomes"];
    let refused = tally.answers[&503];
    let counted = ["wait_too_long", "shed", "queue_timeout", "queue_full"];
    let counted = counted.map(|cause| outcomes[cause].as_u64().unwrap_or(0));
    assert_eq!(counted.iter().sum::<u64>(), refused, "{outcomes}");
    server.stop();
}

#[test]
fn clients_that_lose_patience_sooner_than_the_queue_are_answered_before_they_do() {
    let root = site();
    let server = Setup::new(root.path()).workers(1).pool("request_queue_timeout = \"60s\"").start();
    let over = AtomicBool::new(false);
    let answered = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..CROWD {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let mut asked = send(&server, &Request::get("/echo.php?id=mine"));
                    let patience = Some(Duration::from_millis(300));
                    asked.stream().set_read_timeout(patience).expect("a time-out");
                    answered
                        .fetch_add(asked.read_response(false).is_ok().into(), Ordering::Relaxed);
                }
            });
        }
        let turned = server.log().find_since(0, LONG, |line| {
            line.contains("overload: the newest requests are served first")
        });
        let before = answered.load(Ordering::Relaxed);
        let more =
            wait::poll(LONG, || (answered.load(Ordering::Relaxed) > before + 20).then_some(()));
        over.store(true, Ordering::Relaxed);
        assert!(turned.is_some() && more.is_some(), "{turned:?}, {more:?}");
    });
    server.stop();
}

#[test]
fn while_all_workers_hang_the_queue_stays_in_order_and_who_finds_it_full_is_told_at_once() {
    let root = site();
    let server = Setup::new(root.path())
        .workers(1)
        .pool("request_queue_length = 2\nrequest_queue_timeout = \"60s\"")
        .start();
    let busy = occupy(&server);
    let mut first = send(&server, &Request::get("/echo.php?id=first"));
    wait::until_true("the first to wait", || waiting(&server) == 1);
    let mut second = send(&server, &Request::get("/echo.php?id=second"));
    wait::until_true("the second to wait", || waiting(&server) == 2);
    let begun = Instant::now();
    // Longer than any interval in which a queue that moves would be turned round.
    while begun.elapsed() < Duration::from_millis(500) {
        let refused = http::get(server.address(), "/hello.php");
        assert_refused(&refused);
    }
    let_go(root.path());
    drop(busy);
    for (connection, name) in [(&mut first, "first"), (&mut second, "second")] {
        let answer = connection.read_response(false).expect("an answer");
        assert_eq!(answer.text(), name);
    }
    server.stop();
}

#[test]
fn whoever_is_refused_after_another_is_told_and_counted_the_same() {
    let root = site();
    let server = Setup::new(root.path()).workers(1).pool("request_queue_length = 0").start();
    let busy = occupy(&server);
    // Without a body, nothing is written down for a worker that there is none of.
    let asked = [
        Request::get("/hello.php"),
        Request::get("/hello.php"),
        Request::post("/hello.php", "text/plain", b"body"),
        Request::get("/hello.php"),
    ];
    let mut connection = Connection::open(server.address());
    for (before, request) in (0..).zip(&asked) {
        assert_eq!(refusals(&server, "queue_full"), before);
        let refused = connection.ask(request).expect("an answer");
        assert_refused(&refused);
    }
    let outcomes = &pool(&server)["outcomes"];
    assert_eq!(outcomes["queue_full"], asked.len(), "{outcomes}");
    let_go(root.path());
    drop(busy);
    wait::until_true("the worker to serve", || {
        let answer = connection.ask(&asked[0]).expect("an answer");
        answer.status == 200 && answer.text() == "hello"
    });
    server.stop();
}

#[test]
fn urgent_paths_are_answered_while_all_others_wait_and_hang() {
    assert_urgent_paths_are_answered_after(0);
}

#[test]
fn urgent_paths_are_answered_while_scripts_hang_that_were_short() {
    assert_urgent_paths_are_answered_after(60);
}

/// Urgent paths are served while all others hang, in a pool that has served `short` short
/// requests.
fn assert_urgent_paths_are_answered_after(short: usize) {
    let root = site();
    let server = Setup::new(root.path())
        .workers(2)
        .pool("reserved_workers = 1\nrequest_queue_timeout = \"60s\"")
        .site("paths = [{ path = \"/mark.php\", urgent = true }]")
        .start();
    let mut connection = Connection::open(server.address());
    for _ in 0..short {
        let answer = connection.ask(&Request::get("/hello.php")).expect("an answer");
        assert_eq!(answer.text(), "hello");
    }
    let busy = occupy(&server);
    let mut usual: Vec<_> = (0..3).map(|_| send(&server, &Request::get("/hello.php"))).collect();
    wait::until_true("the others to wait", || waiting(&server) == 3);
    for _ in 0..10 {
        assert_eq!(http::get(server.address(), "/mark.php").status, 200);
        assert_eq!(waiting(&server), 3);
    }
    let workers = &pool(&server)["workers"];
    assert_eq!(workers["idle"], 1, "{workers}");
    let_go(root.path());
    drop(busy);
    for connection in &mut usual {
        let answer = connection.read_response(false).expect("an answer");
        assert_eq!(answer.text(), "hello");
    }
    server.stop();
}

#[test]
fn a_client_that_leaves_the_queue_costs_no_worker() {
    let root = site();
    let server = Setup::new(root.path()).workers(1).start();
    let busy = occupy(&server);
    let leavers: Vec<_> = (0..5).map(|_| send(&server, &Request::get("/mark.php"))).collect();
    wait::until_true("all to wait", || waiting(&server) == 5);
    drop(leavers);
    wait::until_true("all to have left", || waiting(&server) == 0);
    let_go(root.path());
    drop(busy);
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    assert_eq!(pool(&server)["outcomes"]["client_closed_queued"], 5);
    let log = server.log_text();
    assert!(!log.contains("the left request was executed"), "{log}");
    server.stop();
}

#[test]
fn a_deadline_that_a_request_brings_is_kept_and_one_that_means_nothing_is_not_heeded() {
    let root = site();
    let socket = root.path().join("listener.sock");
    let server = Setup::new(root.path())
        .workers(1)
        .pool(&format!("request_deadline_header = {HEADER:?}"))
        .pool(&format!("listen = {socket:?}"))
        .start();
    for over in ["0", "-1", "-99999999999999999999s"] {
        assert_refused(&http::ask(server.address(), &limited(over)));
    }
    let patient = ["soon", "", "1e9", "99999999999999999999999999", "60s", "-"];
    for nothing in patient {
        let answer = http::ask(server.address(), &limited(nothing));
        assert_eq!(answer.text(), "hello", "{nothing:?}");
    }
    let through_listener = |timeout| {
        let params = params(root.path(), "/hello.php", &[("HTTP_X_REQUEST_TIMEOUT", timeout)]);
        Wire::connect(&socket).ask(1, &params, b"")
    };
    assert!(through_listener("60s").body().contains("hello"));
    let _busy = occupy(&server);
    let begun = Instant::now();
    assert_refused(&http::ask(server.address(), &limited("200ms")));
    assert!(through_listener("200").body().contains(NEUTRAL));
    assert!(begun.elapsed() < LONG, "not request_queue_timeout");
    assert_eq!(refusals(&server, "deadline"), 5);
    let causes: Value = pool(&server)["refused"].clone();
    assert_eq!(causes["queue_timeout"], 0, "{causes}");
    let_go(root.path());
    server.stop();
}
