//! Scripts that are slow or run for too long when the server runs as php-fpm, beside php-fpm: the
//! lines of the log, the entries of the slow log, and what the web server is answered.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io;
use std::path::Path;
use std::process::Stdio;

use maitred_tests::fpm::{Answer, Daemon, Params, Place, Which, usual};
use maitred_tests::server::{document_root, give_to_web_user};
use maitred_tests::wait;
use tempfile::TempDir;

fn scripts() -> TempDir {
    let root = document_root(&[
        (
            "deep.php",
            "<?php
function nap(int $ms) { usleep($ms * 1000); }
class Bed {
    public function lie(int $ms) { nap($ms); }
    public static function make(int $ms) { (new Bed)->lie($ms); }
}
$closure = function ($ms) { Bed::make($ms); };
array_map($closure, [(int) $_GET['ms']]);
echo 'slept';
",
        ),
        (
            "included.php",
            "<?php
include __DIR__ . '/part.php';
echo 'slept';
",
        ),
        ("part.php", "<?php\n\nusleep((int) $_GET['ms'] * 1000);\n"),
        (
            "finish.php",
            "<?php echo 'finished'; fastcgi_finish_request();
             for ($i = 0; $i < 25; $i++) { usleep(100000); }
             touch(__DIR__ . '/done');",
        ),
        ("hello.php", "<?php echo 'hello';"),
    ]);
    give_to_web_user(root.path());
    root
}

fn ask(daemon: &Daemon, root: &TempDir, target: &str) -> io::Result<Answer> {
    let params = Params::get(&root.path().display().to_string(), target);
    daemon.listener().ask(&params, b"")
}

/// The entries of a slow log without times, process ids and addresses; in it, classes are not named
/// by php-fpm.
fn entries(path: &Path, count: usize) -> Vec<String> {
    let text = wait::until(&format!("{count} entries"), || {
        let text = fs::read_to_string(path).ok()?;
        let begun = text.matches("script_filename").count();
        (begun == count && text.ends_with('\n')).then_some(text)
    });
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.map(without_figures).collect()
}

fn without_figures(line: &str) -> String {
    if let Some(frame) = line.strip_prefix("[0x") {
        let call = frame.split_once("] ").unwrap().1;
        let call = call.rsplit("::").next().unwrap().rsplit("->").next().unwrap();
        return call.to_owned();
    }
    match line.split_once("  [pool www] pid ") {
        Some((time, pid)) => {
            assert!(time.starts_with('[') && pid.parse::<i32>().is_ok(), "{line}");
            "[time]  [pool www] pid #".to_owned()
        }
        None => line.to_owned(),
    }
}

#[test]
fn entries_of_the_slow_log_are_php_fpms_line_by_line() {
    let root = scripts();
    let slow = "slowlog = @FOLDER@/slow.log\nrequest_slowlog_timeout = 1s\n";
    let [theirs, ours] = Which::BOTH.map(|which| {
        let mut daemon = Daemon::start(which, &usual(slow));
        let mark = daemon.log().mark();
        for target in ["/deep.php?ms=2600", "/included.php?ms=2600"] {
            assert_eq!(ask(&daemon, &root, target).unwrap().body(), "slept");
        }
        let line = daemon.expect_log(mark, "/deep.php");
        let script = root.path().join("deep.php");
        let said = format!(
            ", script '{}' (request: \"GET /deep.php?ms=2600\") executing too slow (",
            script.display()
        );
        assert!(line.contains("WARNING: [pool www] child "), "{line}");
        assert!(line.contains(&said), "{which:?} {line}");
        assert!(line.ends_with(" sec), logging"), "{line}");
        let entries = entries(&daemon.place().file("slow.log"), 2);
        daemon.stop();
        entries
    });
    assert_eq!(ours, theirs);
    assert!(ours.len() >= 10, "{ours:#?}");
}

#[test]
fn a_script_that_is_ended_is_answered_with_504_where_php_fpm_cuts_the_connection() {
    let root = scripts();
    let daemon = Daemon::start(Which::Maitred, &usual("request_terminate_timeout = 1s\n"));
    let answer = ask(&daemon, &root, "/deep.php?ms=60000").unwrap();
    let text = answer.text();
    assert!(text.contains("Status: 504 Gateway Timeout\r\n"), "{text}");
    assert_eq!((answer.app_status, answer.protocol_status), (0, 0));
    assert_eq!(ask(&daemon, &root, "/hello.php").unwrap().body(), "hello");
    daemon.stop();
}

#[test]
fn what_runs_after_the_answer_is_ended_only_where_it_is_tracked() {
    for which in Which::BOTH {
        for is_tracked in [false, true] {
            let root = scripts();
            let tracked = if is_tracked { "yes" } else { "no" };
            let lines = format!(
                "request_terminate_timeout = 1s\n\
                 request_terminate_timeout_track_finished = {tracked}\n"
            );
            let mut daemon = Daemon::start(which, &usual(&lines));
            let mark = daemon.log().mark();
            assert_eq!(ask(&daemon, &root, "/finish.php").unwrap().body(), "finished");
            let done = root.path().join("done");
            if is_tracked {
                let line = daemon.expect_log(mark, "execution timed out (");
                assert!(line.ends_with(" sec), terminating"), "{which:?} {line}");
                daemon.expect_log(mark, "exited on signal 15 (SIGTERM)");
                assert!(!done.exists(), "{which:?}");
            } else {
                wait::until_true("the script to end", || done.exists());
                let lines = daemon.log().since(mark);
                let ended = lines.iter().any(|line| line.contains("timed out"));
                assert!(!ended, "{which:?}: {lines:#?}");
            }
            assert_eq!(ask(&daemon, &root, "/hello.php").unwrap().body(), "hello");
            daemon.stop();
        }
    }
}

#[test]
fn a_slow_log_that_cannot_be_had_is_refused_as_php_fpm_refuses_it() {
    for which in Which::BOTH {
        let place = Place::default();
        let file = place.file("php-fpm.conf");
        let lines = "slowlog = @FOLDER@/missing/slow.log\nrequest_slowlog_timeout = 1s\n";
        fs::write(&file, place.fill_in(&usual(lines))).unwrap();
        let mut command = which.command();
        command.args(["-F", "-O", "-y"]).arg(&file).stdin(Stdio::null());
        let output = command.output().unwrap();
        let text = place.mask(&String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(78), "{which:?}: {text}");
        let said = "Unable to create or open slowlog(@FOLDER@/missing/slow.log): No such file";
        assert!(text.contains(said), "{which:?}: {text}");
    }
}

#[test]
fn a_slow_log_in_a_folder_of_the_pools_user_is_written() {
    let root = scripts();
    let log = root.path().join("slow.log");
    let lines = format!("slowlog = {}\nrequest_slowlog_timeout = 1s\n", log.display());
    let daemon = Daemon::start(Which::Maitred, &usual(&lines));
    assert_eq!(ask(&daemon, &root, "/deep.php?ms=1500").unwrap().body(), "slept");
    assert!(!entries(&log, 1).is_empty());
    daemon.stop();
}

#[test]
fn a_disk_that_is_full_loses_entries_and_nothing_else() {
    let root = scripts();
    let lines = "slowlog = /dev/full\nrequest_slowlog_timeout = 1s\n";
    let mut daemon = Daemon::start(Which::Maitred, &usual(lines));
    assert_eq!(ask(&daemon, &root, "/deep.php?ms=1500").unwrap().body(), "slept");
    daemon.expect_log(0, "the slow log /dev/full cannot be written");
    assert_eq!(ask(&daemon, &root, "/hello.php").unwrap().body(), "hello");
    daemon.stop();
}
