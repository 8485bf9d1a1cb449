//! That the latencies of `maitred bench` are the truth. A test of its own, since others beside it
//! would take the processor from it.

use maitred_tests::bench::{Benched, StandingServer, command};

/// Requests come evenly for 20 s, and those of three seconds wait until these are over. So 1 % of
/// all, those of the first 0.2 s, take 2.8 s and more, and 0.1 % take 2.98 s and more. A machine that
/// does other things meanwhile adds to that, so there are a few attempts.
#[test]
fn a_server_that_stands_still_shows_in_the_percentiles_as_arithmetic_has_it() {
    let mut last = Vec::new();
    for _ in 0..4 {
        let (run, stood) = run_with_a_server_that_stands_still();
        assert_eq!(run.counts(), [20_000, 0, 0, 0, 0], "{run:?}");
        let figures = [("p99", stood - 0.2), ("p99_9", stood - 0.02)];
        last = figures
            .map(|(name, truth)| (name, run.number(&format!("corrected.{name}")) / truth))
            .to_vec();
        assert!(
            last.iter().all(|(_, ratio)| *ratio > 0.97),
            "too short: {last:?}"
        );
        if last.iter().all(|(_, ratio)| *ratio < 1.03) {
            return;
        }
    }
    panic!("too long: {last:?}");
}

/// The run, and for how many seconds the server stood still.
fn run_with_a_server_that_stands_still() -> (Benched, f64) {
    let mut server = StandingServer::start(env!("CARGO_BIN_EXE_standing-server"));
    let url = server.url.clone();
    let child = command(&[&url, "--rate=1000", "--duration=20s", "--warm-up=1s"]).spawn();
    let child = child.expect("maitred bench can be started");
    // Somewhere in the middle of the run, after the warm-up.
    std::thread::sleep(std::time::Duration::from_secs(6));
    let stood = server.stand(3_000);
    (
        Benched::of(&child.wait_with_output().expect("it ends")),
        stood,
    )
}
