//! That the figures of `maitred bench` are the truth. A test of its own, since others beside it
//! would take the processor from it, and one after the other.
//!
//! `MAITRED_BENCH_IN_FULL=1` makes it the whole of what is claimed, which takes minutes and wants a
//! machine that does nothing else.

use std::sync::Mutex;
use std::time::Duration;

use maitred_tests::Target;
use maitred_tests::bench::{Benched, StandingServer, bench, command};
use maitred_tests::server::{Setup, document_root};

/// Held by the test that runs.
static TURN: Mutex<()> = Mutex::new(());

/// How often something is tried before the machine's other work is no excuse any more.
const ATTEMPTS: usize = 4;

fn in_full() -> bool {
    std::env::var_os("MAITRED_BENCH_IN_FULL").is_some()
}

/// Requests come evenly, and those of some time wait until it is over. So what p of all exceed is
/// that time less p of the run: 1 % of all, for one, are those that came in its first hundredth of
/// the run.
#[test]
fn a_server_that_stands_still_shows_in_the_percentiles_as_arithmetic_has_it() {
    let _turn = TURN.lock();
    let (rate, seconds, millis) = if in_full() { (2_000, 30, 1_400) } else { (1_000, 20, 3_000) };
    let mut last = Vec::new();
    for _ in 0..ATTEMPTS {
        let (run, stood) = run_with_a_server_that_stands_still(rate, seconds, millis);
        let sent = rate * seconds;
        assert_eq!(run.counts(), [sent, 0, 0, 0, 0], "{run:?}");
        let seconds = seconds as f64;
        let figures = [("p99", 0.01 * seconds), ("p99_9", 0.001 * seconds)];
        last = figures
            .map(|(name, less)| (name, run.number(&format!("corrected.{name}")) / (stood - less)))
            .to_vec();
        eprintln!("{last:?}");
        assert!(last.iter().all(|(_, ratio)| *ratio > 0.97), "too short: {last:?}");
        if last.iter().all(|(_, ratio)| *ratio < 1.03) {
            return;
        }
    }
    panic!("too long: {last:?}");
}

/// The run, and for how many seconds the server stood still.
fn run_with_a_server_that_stands_still(rate: u64, seconds: u64, millis: u64) -> (Benched, f64) {
    let mut server = StandingServer::start(env!("CARGO_BIN_EXE_standing-server"));
    let url = server.url.clone();
    let (rate, duration) = (format!("--rate={rate}"), format!("--duration={seconds}s"));
    let child = command(&[&url, &rate, &duration, "--warm-up=1s"]).spawn();
    let child = child.expect("maitred bench can be started");
    // Somewhere in the middle of the run, after the warm-up.
    std::thread::sleep(Duration::from_secs(6));
    let stood = server.stand(millis);
    (Benched::of(&child.wait_with_output().expect("it ends")), stood)
}

/// Workers that sleep for 100 ms serve ten requests a second each, however many users want more.
#[test]
fn workers_that_sleep_serve_as_many_requests_as_arithmetic_has_it() {
    let _turn = TURN.lock();
    let root = document_root(&[("sleep.php", "<?php usleep(100000);")]);
    // Where others use the machine, who has slept is not woken at once.
    let (pools, duration, least) = if in_full() {
        (&[1, 4, 16][..], "--duration=30s", 0.98)
    } else {
        (&[4][..], "--duration=2s", 0.9)
    };
    for workers in pools {
        let server = Setup::new(root.path()).workers(*workers).start();
        let url = format!("{}/sleep.php", server.base_url());
        let users = format!("--users={}", workers * 2);
        let plateau = *workers as f64 / 0.1;
        let mut last = 0.0;
        let served = (0..ATTEMPTS).any(|_| {
            let run = bench(&[&url, &users, duration, "--warm-up=500ms"]);
            last = run.number("requests.rate") / plateau;
            eprintln!("{workers} workers: {last}");
            assert!(last < 1.002, "no sleep is shorter: {run:?}");
            last > least
        });
        assert!(served, "{last} times {plateau}/s");
    }
}
