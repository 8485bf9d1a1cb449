//! `mode = "snapshot"` when something fails: zygotes that are killed, locks that the dead held, code
//! that is replaced under load.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use maitred_tests::Target;
use maitred_tests::http;
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user};
use maitred_tests::wait;
use tempfile::TempDir;

/// How long something may take on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// A document root whose `index.php` boots with `boot`, and serves with `serve`.
fn application(boot: &str, serve: &str) -> TempDir {
    let script = format!("<?php\n{boot}\nmaitred_snapshot();\n{serve}\n");
    let root = document_root(&[("index.php", &script)]);
    give_to_web_user(root.path());
    root
}

fn snapshot(root: &Path) -> Setup {
    let script = root.join("index.php");
    Setup::new(root)
        .pool("mode = \"snapshot\"")
        .pool(&format!("script = {script:?}"))
        .pool("request_queue_timeout = \"60s\"")
        .site("front_controller = \"/index.php\"")
}

/// A number from the environment, for a run that takes longer.
fn from_environment(name: &str, otherwise: u32) -> u32 {
    let given = std::env::var(name).ok();
    given
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

/// The zygote of pool `www`: what it has forked has its title for a moment, and is younger.
fn zygote(server: &Server) -> Process {
    let all = server.processes().into_iter();
    let zygotes = all.filter(|process| process.title.starts_with("maitred-php: zygote pool www"));
    let oldest = zygotes.min_by_key(|process| (process.started, process.pid));
    oldest.expect("there is a zygote")
}

fn serves(server: &Server, requests: u32) {
    for _ in 0..requests {
        let answer = http::get(server.address(), "/");
        assert_eq!((answer.status, &*answer.text()), (200, "fine"));
    }
}

/// Says that it is over, also when a test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Asks again and again, from three clients, while `act` does something else.
fn under_load<T>(ask: impl Fn() + Sync, act: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    ask();
                }
            });
        }
        let _over = Over(&over);
        act()
    })
}

fn pass(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[test]
fn whenever_its_zygote_is_killed_requests_are_served_and_no_copy_is_left_over() {
    const MOMENTS_APART: Duration = Duration::from_micros(170);
    let kills = from_environment("MAITRED_SNAPSHOT_KILLS", 8);
    let root = application("", "echo 'fine';");
    let server = snapshot(root.path()).workers(1).start();
    for kill in 0..kills {
        server.wait_for_full_strength(3, PATIENCE);
        let (zygote, supervisor) = (zygote(&server), server.supervisor());
        // Two copies are used up, and orders for two others wait for a zygote that stands still.
        zygote.signal(Signal::STOP);
        serves(&server, 2);
        wait::until_true("two copies to be gone", || server.workers().len() == 1);
        // It gets through with some of them, which the supervisor hears of together with its death.
        supervisor.signal(Signal::STOP);
        zygote.signal(Signal::CONT);
        pass(MOMENTS_APART * (kill % 16));
        zygote.signal(Signal::KILL);
        supervisor.signal(Signal::CONT);
        serves(&server, 5);
    }
    server.wait_for_full_strength(3, PATIENCE);
    // And at any moment, while clients keep it forking.
    let ask = || serves(&server, 1);
    under_load(ask, || {
        for kill in 0..kills / 2 {
            let dead = zygote(&server);
            pass(MOMENTS_APART * (kill % 16));
            dead.signal(Signal::KILL);
            wait::until_within("another zygote", PATIENCE, || {
                server.zygote().filter(|zygote| *zygote != dead)
            });
            serves(&server, 4);
        }
    });
    server.wait_for_full_strength(3, PATIENCE);
    server.stop();
}
