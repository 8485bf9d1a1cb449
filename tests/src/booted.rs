//! Applications that are booted once and copied (`mode = "snapshot"`).

use std::fs;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::processes::Process;
use crate::server::{Server, Setup, document_root, give_to_web_user};
use crate::{Target, http};

/// How long something may take on a machine that is busy with other tests.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Descriptors that may be open for a moment.
const SLACK_OPEN: usize = 8;

/// A document root whose `index.php` boots with `boot`, and serves with `serve`; in a classic pool
/// it does both for each request.
pub fn application(boot: &str, serve: &str) -> TempDir {
    let script = format!(
        "<?php\n{boot}\nif (function_exists('maitred_snapshot')) {{ maitred_snapshot(); }}\n\
         {serve}\n"
    );
    let root = document_root(&[("index.php", &script)]);
    give_to_web_user(root.path());
    root
}

/// A site whose `index.php` is booted once, and copied for each request.
pub fn snapshot(root: &Path) -> Setup {
    booted(root, "snapshot")
}

/// A document root with `index.php` and other files, and a site whose one worker boots that script
/// and may write there.
pub fn worker(files: &[(&str, &str)]) -> (TempDir, Setup) {
    let root = document_root(files);
    give_to_web_user(root.path());
    let setup = booted(root.path(), "worker").workers(1);
    (root, setup)
}

fn booted(root: &Path, mode: &str) -> Setup {
    let script = root.join("index.php");
    Setup::new(root)
        .pool(&format!("mode = {mode:?}"))
        .pool(&format!("script = {script:?}"))
        .site("front_controller = \"/index.php\"")
}

/// A number from the environment, for a run that takes longer.
pub fn from_environment(name: &str, otherwise: u32) -> u32 {
    let given = std::env::var(name).ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Asks for a page again and again.
#[track_caller]
pub fn expect_fine(server: &Server, requests: u32) {
    for _ in 0..requests {
        let answer = http::get(server.address(), "/");
        assert_eq!((answer.status, &*answer.text()), (200, "fine"));
    }
}

/// After many requests for a page that says `fine`, the processes that stay have as much open as
/// after some.
#[track_caller]
pub fn expect_nothing_grows(server: &Server, workers: usize, requests: u32) {
    let open = |process: &Process| {
        fs::read_dir(format!("/proc/{}/fd", process.pid)).map_or(0, Iterator::count)
    };
    expect_fine(server, requests / 4);
    server.wait_for_full_strength(workers, PATIENCE);
    let all =
        [server.supervisor(), server.zygote().expect("a zygote"), server.front().expect("a front")];
    let before = all.each_ref().map(open);
    expect_fine(server, requests);
    server.wait_for_full_strength(workers, PATIENCE);
    for (process, before) in all.iter().zip(before) {
        let after = open(process);
        assert!(after <= before + SLACK_OPEN, "{}: {before} to {after}", process.title);
    }
}
