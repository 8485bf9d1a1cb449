//! A front that hangs is replaced.

use std::time::{Duration, Instant};

use maitred_tests::processes::Signal;
use maitred_tests::server::{Setup, document_root};
use maitred_tests::{Target, http, wait};

/// Until clients are served again.
const REPLACED_WITHIN: Duration = Duration::from_secs(12);

#[test]
fn a_front_that_is_stopped_is_replaced_and_its_stacks_are_logged() {
    let root = document_root(&[("hello.php", "<?php echo 'hello';")]);
    let server = Setup::new(root.path()).workers(2).start();
    let address = server.address();
    assert_eq!(http::get(address, "/hello.php").text(), "hello");
    let front = server.front().unwrap();
    front.signal(Signal::STOP);
    let begun = Instant::now();
    let killed = server.expect_log(0, "the front is killed: no sign of life for 10 s");
    assert!(killed.contains("ERROR"), "{killed}");
    assert_eq!(http::get(address, "/hello.php").text(), "hello");
    let took = begun.elapsed();
    assert!(took < REPLACED_WITHIN, "{took:?}");
    let hangs = server.expect_log(0, &format!("front 1 hangs, process {}", front.pid));
    assert!(hangs.contains("state T (stopped)"), "{hangs}");
    let stack = server.expect_log(0, &format!("thread {}, innermost call first: ", front.pid));
    assert!(stack.contains("maitred_front::control::run::serve_thread"), "{stack}");
    assert_ne!(server.front().unwrap().pid, front.pid);
    // The workers are those of before, and serve the new front.
    wait::until("both workers serve", || (server.workers().len() == 2).then_some(()));
    server.stop();
}
