//! What the scripts of one pool say fills neither the server's log nor the way of another's words.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use maitred_tests::server::{Server, Setup, document_root, give_to_web_user};
use maitred_tests::{Target, http};
use tempfile::TempDir;

/// Lines that a flood consists of, and what of them may be logged: those of a few seconds.
const FLOOD_LINES: usize = 100_000;
const LOGGED_AT_MOST: usize = 15_000;

fn scripts() -> TempDir {
    let root = document_root(&[
        ("flood.php", "<?php for ($i = 0; $i < 100000; $i++) error_log('flood'); echo 'over';"),
        (
            "long.php",
            "<?php for ($i = 0; $i < 1000; $i++) error_log(str_repeat('z', 30000)); echo 'over';",
        ),
        (
            "prints.php",
            "<?php $err = fopen('php://stderr', 'w');
             for ($i = 0; $i < 100000; $i++) { fwrite($err, \"flood\\n\"); } echo 'over';",
        ),
        ("calm.php", "<?php error_log('calm ' . $_GET['n']); echo 'said';"),
    ]);
    give_to_web_user(root.path());
    root
}

/// A server with a pool whose scripts say much, and another beside it at `/calm.php`.
fn start(root: &Path) -> Server {
    Setup::new(root)
        .pool("[pools.calm]\npm = \"static\"\nmax_children = 1")
        .site("classic_paths = [\"/calm.php\"]\nclassic_pool = \"calm\"")
        .start()
}

fn lines_with(server: &Server, text: &str) -> usize {
    let lines = server.log().since(0);
    lines.iter().filter(|line| line.contains(text)).count()
}

#[test]
fn a_flood_of_error_log_is_cut_and_counted_and_takes_no_line_of_another_pool() {
    let root = scripts();
    let server = start(root.path());
    for n in 0..10 {
        assert_eq!(http::get(server.address(), "/flood.php").text(), "over");
        assert_eq!(http::get(server.address(), &format!("/calm.php?n={n}")).text(), "said");
    }
    for n in 0..10 {
        server.expect_log(0, &format!("calm {n}"));
    }
    server.expect_log(0, "the lines beyond are dropped and counted");
    let told = server.expect_log(0, "because they were too many");
    let flooded =
        lines_with(&server, "flood.php: flood") + lines_with(&server, "PHP message: flood");
    assert!(flooded >= 500, "{flooded} lines");
    assert!(flooded <= LOGGED_AT_MOST, "{flooded} lines of {}", 10 * FLOOD_LINES);
    let dropped: usize = told
        .split_whitespace()
        .zip(told.split_whitespace().skip(1))
        .find_map(|(count, unit)| (unit == "lines").then(|| count.parse().unwrap()))
        .unwrap();
    // Where what was said comes in pieces, a line may be two.
    let all = flooded + dropped;
    assert!((10 * FLOOD_LINES..=10 * FLOOD_LINES + FLOOD_LINES / 10).contains(&all), "{told}");
    server.stop();
}

#[test]
fn long_lines_are_limited_by_their_bytes() {
    let root = scripts();
    let server = start(root.path());
    assert_eq!(http::get(server.address(), "/long.php").text(), "over");
    server.expect_log(0, "the lines beyond are dropped and counted");
    let bytes: usize = server.log().since(0).iter().map(String::len).sum();
    assert!(bytes < 8 << 20, "{bytes} bytes of 30 MB were logged");
    server.stop();
}

#[test]
fn a_flood_on_standard_error_is_told_as_well() {
    let root = scripts();
    let server = start(root.path());
    assert_eq!(http::get(server.address(), "/prints.php").text(), "over");
    assert_eq!(http::get(server.address(), "/calm.php?n=after").text(), "said");
    server.expect_log(0, "calm after");
    server.expect_log(0, "the lines beyond are dropped and counted");
    let flooded = lines_with(&server, ": flood");
    assert!(flooded <= LOGGED_AT_MOST, "{flooded} lines");
    server.stop();
}

#[test]
fn what_a_silent_command_has_printed_too_much_of_is_counted_while_it_runs() {
    let root = scripts();
    let command = "[[pools.www.commands]]\nname = \"burst\"\n\
                   command = [\"sh\", \"-c\", \"seq 600; exec sleep 1000\"]\n";
    let server = Setup::new(root.path()).pool(command).start();
    server.expect_log(0, "burst: it logs more than");
    let counted = server.expect_log(0, "because they were too many");
    assert!(counted.contains("pool www: commands and schedules: 100 lines"), "{counted}");
    server.stop();
}

#[test]
fn processes_of_a_command_have_one_limit_together() {
    let root = scripts();
    // Each of them prints less than a pool may.
    let command = "[[pools.www.commands]]\nname = \"many\"\nprocesses = 8\n\
                   command = [\"sh\", \"-c\", \"while seq 200; do sleep 1; done\"]\n";
    let server = Setup::new(root.path()).pool(command).start();
    server.expect_log(0, "many: it logs more than 500 lines");
    server.stop();
}
