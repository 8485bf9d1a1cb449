//! `maitred profile`: what the scripts of a pool run, seen from outside.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use maitred_tests::http;
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user};
use maitred_tests::{Target, maitred_program, wait};

/// Computes in one function and waits in another, half a tenth of a second each.
const WORK: &str = "
function compute() { $end = hrtime(true) + 50e6; while (hrtime(true) < $end) { strrev('a'); } }
function nap() { usleep(50000); }
function page() { compute(); nap(); echo 'done'; }
";

/// How long a profile is tried for, each of which takes a second and more.
const TRIES: Duration = wait::DEADLINE.saturating_mul(3);

fn profile(server: &Server, arguments: &[&str]) -> Output {
    let mut command = Command::new(maitred_program());
    command.arg("profile").args(arguments);
    command.arg("--admin-socket").arg(server.admin_socket());
    command.output().expect("maitred can be run")
}

/// Makes a profile of `www` while a client requests pages.
fn profile_under_load(server: &Server, file: &Path) -> Output {
    let (address, is_over) = (server.address(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(http::get(address, "/").text(), "done");
            }
        });
        let file = file.to_str().expect("a path of the test's own");
        let output = profile(server, &["www", "--for", "2s", "--output", file]);
        is_over.store(true, Ordering::Relaxed);
        output
    })
}

/// Samples of folded stacks in which `name` is called, and all samples.
fn share(folded: &str, name: &str) -> f64 {
    let (mut with, mut all) = (0.0, 0.0);
    for line in folded.lines() {
        let (stack, count) = line.rsplit_once(' ').expect("a stack and a number");
        let count: f64 = count.parse().expect("a number");
        all += count;
        if stack.split(';').any(|call| call == name) {
            with += count;
        }
    }
    with / all
}

fn check(root: &Path, setup: Setup) {
    let server = setup.start();
    let folded = root.join("profile.folded");
    let output = profile_under_load(&server, &folded);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let folded = fs::read_to_string(folded).expect("the profile is written");
    for name in ["compute", "nap"] {
        let share = share(&folded, name);
        assert!((0.25..0.75).contains(&share), "{name}: {share}\n{folded}");
    }
    assert!(text.contains("usleep"), "{text}");
    server.stop();
}

#[test]
fn functions_have_their_share_in_a_profile_of_each_mode() {
    let root = document_root(&[
        ("index.php", &format!("<?php {WORK} page();")),
        ("worker.php", &format!("<?php {WORK} while (frankenphp_handle_request(page(...)));")),
        ("snapshot.php", &format!("<?php {WORK} maitred_snapshot(); page();")),
    ]);
    give_to_web_user(root.path());
    let classic = Setup::new(root.path()).workers(1);
    check(root.path(), classic);
    for mode in ["worker", "snapshot"] {
        let script = root.path().join(format!("{mode}.php"));
        let setup = Setup::new(root.path()).workers(1).pool(&format!("mode = {mode:?}"));
        check(root.path(), setup.pool(&format!("script = {script:?}")));
    }
}

#[test]
fn a_pool_has_one_profile_at_a_time_which_ends_with_its_client() {
    let root = document_root(&[("index.php", &format!("<?php {WORK} page();"))]);
    give_to_web_user(root.path());
    let server = Setup::new(root.path()).workers(1).start();
    let begin = || {
        let mut command = Command::new(maitred_program());
        command.args(["profile", "www", "--for", "10m", "--admin-socket"]);
        command.arg(server.admin_socket()).spawn().expect("maitred can be run")
    };
    let mut first = begin();
    let second = || profile(&server, &["www", "--for", "1s"]);
    wait::until_within("a refusal beside the first", TRIES, || {
        // The second may have come before it, and it was refused.
        if first.try_wait().expect("it is a child").is_some() {
            first = begin();
        }
        let printed = String::from_utf8_lossy(&second().stderr).into_owned();
        printed.contains("a profile of pool `www` is made already").then_some(())
    });
    first.kill().expect("it can be killed");
    first.wait().expect("it ends");
    wait::until_within("a profile after the first", TRIES, || {
        second().status.success().then_some(())
    });
    server.stop();
}

#[test]
fn a_profile_is_drawn_and_one_of_nothing_says_so() {
    let root = document_root(&[("index.php", &format!("<?php {WORK} page();"))]);
    give_to_web_user(root.path());
    let server = Setup::new(root.path()).workers(1).start();
    let svg = root.path().join("profile.svg");
    let output = profile_under_load(&server, &svg);
    assert!(output.status.success(), "{output:?}");
    let svg = fs::read_to_string(svg).expect("the graph is written");
    assert!(svg.contains("<svg") && svg.contains("compute (") && svg.contains("Scripts of pool"));
    let nothing = root.path().join("nothing.svg");
    let nothing = nothing.to_str().expect("a path of the test's own");
    for (arguments, code, text) in [
        (vec!["www", "--for", "1s", "--output", nothing], 1, "no script ran in that time"),
        (vec!["shop", "--for", "1s"], 2, "there is no pool `shop` that serves"),
        (vec!["www", "--for", "1s", "--output", "/nowhere/a.svg"], 2, "/nowhere/a.svg"),
        (vec!["www", "--for", "1h"], 2, "expected a time from 1s to 600s"),
    ] {
        let output = profile(&server, &arguments);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{printed}");
        assert!(printed.contains(text), "{printed}");
    }
    server.stop();
}
