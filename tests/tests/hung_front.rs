//! A front that hangs is replaced.

use std::time::{Duration, Instant};

use maitred_tests::processes::Signal;
use maitred_tests::server::{Server, Setup, document_root};
use maitred_tests::{Target, http, wait};

/// Until clients are served again, also on a busy machine.
const REPLACED_WITHIN: Duration = Duration::from_secs(30);

/// Fronts that are stopped until one has reported its stacks. Its threads have half a second for
/// that, which is too short for them on a busy machine now and then.
const STOPPED_MAX: usize = 4;

/// How long after a front was replaced its stacks may be logged.
const LOGGED_WITHIN: Duration = Duration::from_secs(5);

/// Stops the front, and returns its stack, if it has reported it.
fn stop_front(server: &Server) -> Option<String> {
    let (front, mark) = (server.front().expect("a front"), server.log().mark());
    front.signal(Signal::STOP);
    let begun = Instant::now();
    let killed = server.expect_log(mark, "the front is killed: no sign of life for 10 s");
    assert!(killed.contains("ERROR"), "{killed}");
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    let took = begun.elapsed();
    assert!(took < REPLACED_WITHIN, "{took:?}");
    let hangs = server.expect_log(mark, &format!("hangs, process {}", front.pid));
    assert!(hangs.contains("state T (stopped)"), "{hangs}");
    assert_ne!(server.front().expect("a front").pid, front.pid);
    let stack = format!("thread {}, innermost call first: ", front.pid);
    server.log().find_since(mark, LOGGED_WITHIN, |line| line.contains(&stack))
}

#[test]
fn a_front_that_is_stopped_is_replaced_and_its_stacks_are_logged() {
    let root = document_root(&[("hello.php", "<?php echo 'hello';")]);
    let server = Setup::new(root.path()).workers(2).start();
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    let stack = (0..STOPPED_MAX).find_map(|_| stop_front(&server)).expect("a stack");
    assert!(stack.contains("maitred_front::control::run::serve_thread"), "{stack}");
    // The workers are those of before, and serve the new front.
    wait::until("both workers serve", || (server.workers().len() == 2).then_some(()));
    server.stop();
}
