//! A page whose requests end their workers: the other pages of its pool are served.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use maitred_tests::Target;
use maitred_tests::booted::{application, snapshot};
use maitred_tests::http;
use maitred_tests::server::{Setup, document_root};

const CRASH: &str = "<?php posix_kill(getmypid(), 11); sleep(5);";

/// Requests of the page that crashes, one after the other.
const CRASHES: usize = 60;

/// Deaths that the log reports one by one.
const LOGGED_DEATHS: usize = 3;

#[test]
fn a_page_that_crashes_is_refused_after_a_while_and_the_others_are_served() {
    let root = document_root(&[("crash.php", CRASH), ("hello.php", "<?php echo 'hello';")]);
    for pm in ["static", "auto"] {
        let server = Setup::new(root.path()).pm(pm).workers(2).start();
        let is_over = AtomicBool::new(false);
        let address = server.address();
        let (statuses, served) = thread::scope(|scope| {
            let healthy = scope.spawn(|| {
                let mut served = 0;
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(http::get(address, "/hello.php").text(), "hello", "after {served}");
                    served += 1;
                }
                served
            });
            let crashes = (0..CRASHES).map(|_| http::get(address, "/crash.php?a=1").status);
            let statuses: Vec<u16> = crashes.collect();
            is_over.store(true, Ordering::Relaxed);
            (statuses, healthy.join().expect("each healthy page is served"))
        });
        let count = |status: u16| statuses.iter().filter(|one| **one == status).count();
        // A burst of ten, and five more for each second.
        assert!(count(502) >= 10 && count(503) > 0, "{pm}: {statuses:?}");
        assert_eq!(count(502) + count(503), CRASHES, "{pm}: {statuses:?}");
        assert!(served > 0, "{pm}");
        server.stop();
    }
}

#[test]
fn the_log_names_the_script_of_each_worker_that_died() {
    let root = document_root(&[("crash.php", CRASH)]);
    let booted = application("", CRASH.trim_start_matches("<?php"));
    let plain = Setup::new(root.path());
    for (setup, script) in [
        // The next worker takes the seat, and its board, at once.
        (plain.clone(), root.path().join("crash.php")),
        (plain.pool("max_requests = 1"), root.path().join("crash.php")),
        (snapshot(booted.path()), booted.path().join("index.php")),
    ] {
        let server = setup.workers(1).start();
        let ran = format!(" while it ran {};", script.display());
        for _ in 0..LOGGED_DEATHS {
            let mark = server.log().mark();
            let path = format!("/{}", script.file_name().unwrap().display());
            assert_eq!(http::get(server.address(), &path).status, 502);
            let line = server.expect_log(mark, "was ended by signal 11");
            assert!(line.contains(&ran), "{line}");
        }
        server.stop();
    }
}
