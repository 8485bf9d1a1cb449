//! No script runs twice for one request: what a dead worker had begun has failed, and what it had
//! not begun is another's.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use maitred_tests::http::{self, Request};
use maitred_tests::outside::{pool, send};
use maitred_tests::processes::Signal;
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user};
use maitred_tests::{Target, wait};
use tempfile::TempDir;

/// A server, and the file of the orders that its scripts have begun.
fn ordering(workers: u32) -> (Server, PathBuf, TempDir) {
    let root = document_root(&[
        ("hello.php", "<?php echo 'hello';"),
        (
            "order.php",
            "<?php file_put_contents(__DIR__ . '/state/orders', getmypid() . \"\\n\", FILE_APPEND);
             sleep(300); echo 'ordered';",
        ),
    ]);
    let state = root.path().join("state");
    fs::create_dir(&state).expect("a folder can be made");
    give_to_web_user(&state);
    let server = Setup::new(root.path()).workers(workers).start();
    (server, state.join("orders"), root)
}

/// Kills the worker that took this order, counted from 0, as a kernel does that is short of memory.
fn kill_who_took(server: &Server, orders: &Path, order: usize) {
    let taker: i32 = wait::until("the order to be taken", || {
        let orders = fs::read_to_string(orders).unwrap_or_default();
        let whole = orders.ends_with('\n');
        orders.lines().nth(order).filter(|_| whole)?.parse().ok()
    });
    let mut workers = server.workers().into_iter();
    let worker = workers.find(|worker| worker.pid == taker);
    worker.expect("a worker took it").signal(Signal::KILL);
}

#[test]
fn a_request_whose_worker_is_killed_has_run_once() {
    let (server, orders, _root) = ordering(2);
    let form = "application/x-www-form-urlencoded";
    let requests = [
        Request::post("/order.php", form, b"what=tea"),
        Request::get("/order.php"),
        Request::new("PUT", "/order.php").header("Host", "localhost"),
    ];
    for (order, request) in requests.iter().enumerate() {
        let mark = server.log().mark();
        let answer = thread::scope(|scope| {
            let asked = scope.spawn(|| http::ask(server.address(), request));
            kill_who_took(&server, &orders, order);
            asked.join().expect("it is answered")
        });
        assert_eq!(answer.status, 502);
        server.expect_log(mark, "502 after ");
        server.expect_log(mark, "was ended by signal 9 (SIGKILL)");
        // Who might run it again gets the opportunity: all workers are there and have nothing to
        // do.
        server.wait_for_full_strength(2, wait::DEADLINE);
        assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
        let taken = fs::read_to_string(&orders).expect("there are orders");
        assert_eq!(taken.lines().count(), order + 1, "{taken}");
    }
    server.stop();
}

#[test]
fn what_a_killed_worker_had_not_begun_is_answered_by_another() {
    let (server, orders, _root) = ordering(1);
    // Where scripts are short, a worker is given the next request ahead of time.
    for _ in 0..100 {
        assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    }
    let mut begun = send(&server, &Request::get("/order.php"));
    wait::until_true("the order to be taken", || orders.exists());
    let mut others = [(); 4].map(|()| send(&server, &Request::get("/hello.php")));
    wait::until_true("the others to wait", || pool(&server)["queue"]["now"] == 4);
    kill_who_took(&server, &orders, 0);
    let answer = begun.read_response(false).expect("it is answered");
    assert_eq!(answer.status, 502);
    for other in &mut others {
        let answer = other.read_response(false).expect("it is answered");
        assert_eq!(answer.text(), "hello");
    }
    server.stop();
}
