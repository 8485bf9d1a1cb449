//! Records of the logs: their times, their levels, and that each event has one.

use std::fs;

use maitred_tests::http;
use maitred_tests::server::{Setup, document_root, give_to_web_user, public_folder};
use maitred_tests::{Target, wait};

/// `2026-11-24T01:21:26`.
const TIME_CHARS: usize = 19;

#[test]
fn all_logs_have_the_local_time_with_its_zone() {
    let root = document_root(&[("slow.php", "<?php usleep(400000); error_log('over');")]);
    let folder = public_folder();
    give_to_web_user(folder.path());
    let (access, slow) = (folder.path().join("access.log"), folder.path().join("slow.log"));
    let server = Setup::new(root.path())
        .top(&format!("access_log = {access:?}"))
        .top("access_log_format = '$time_local $time_iso8601'")
        .pool("request_slowlog_timeout = \"100ms\"")
        .pool(&format!("slowlog = {slow:?}"))
        .under(&["env", "TZ=JST-9"])
        .start();
    assert_eq!(http::get(server.address(), "/slow.php").status, 200);
    let of_supervisor = server.expect_log(0, "request_slowlog_timeout is");
    let of_front = server.expect_log(0, ": over [request");
    for line in [of_supervisor, of_front] {
        let (time, zone) = line.split_at(TIME_CHARS);
        assert!(zone.starts_with("+09:00 "), "{line}");
        assert_eq!(time.matches([':', '-', 'T']).count(), 5, "{line}");
    }
    let written = wait::until("the line of the request", || {
        fs::read_to_string(&access).ok().filter(|text| text.ends_with('\n'))
    });
    let (local, iso) = written.trim_end().rsplit_once(' ').expect("two times");
    assert!(local.ends_with(" +0900") && iso.ends_with("+09:00"), "{written}");
    let entry = wait::until("the slow log", || {
        fs::read_to_string(&slow).ok().filter(|text| text.contains("script_filename"))
    });
    assert!(entry.contains(" +0900]  [pool www] pid "), "{entry}");
}

#[test]
fn a_script_that_is_terminated_has_one_line() {
    let root = document_root(&[("hangs.php", "<?php sleep(60);"), ("hello.php", "<?php echo 1;")]);
    let server =
        Setup::new(root.path()).workers(1).pool("request_terminate_timeout = \"200ms\"").start();
    for _ in 0..3 {
        assert_eq!(http::get(server.address(), "/hangs.php").status, 504);
        // The worker was replaced, so its end was logged.
        assert_eq!(http::get(server.address(), "/hello.php").status, 200);
    }
    server.expect_log(0, "504 after");
    let lines = server.log().since(0);
    let about: Vec<&String> = lines.iter().filter(|line| line.contains("hangs.php")).collect();
    let is_whole = |line: &&&String| {
        // The next worker may start before the slot of the last one is free.
        let is_ended =
            ["0", "1"].map(|seat| format!("timeout. Its worker is ended (seat {seat})."));
        line.contains("504 after") && is_ended.iter().any(|end| line.contains(end))
    };
    assert_eq!((about.len(), about.iter().filter(is_whole).count()), (3, 3), "{lines:#?}");
}

#[test]
fn an_error_that_ends_a_script_is_one_record_at_error_level_with_its_trace_indented() {
    let root = document_root(&[
        ("throws.php", "<?php function f() { throw new LogicException('no tea'); }\nf();"),
        ("parse.php", "<?php echo ;"),
        ("warns.php", "<?php echo $x;"),
    ]);
    let server = Setup::new(root.path()).start();
    for (page, status) in [("/throws.php", 500), ("/parse.php", 500), ("/warns.php", 200)] {
        assert_eq!(http::get(server.address(), page).status, status, "{page}");
    }
    server.expect_log(0, "Undefined variable");
    let lines = server.log().since(0);
    let first = lines.iter().position(|line| line.contains("no tea")).expect("a record");
    let script = root.path().join("throws.php").display().to_string();
    let record = &lines[first];
    let start = format!("ERROR pool www: {script}: PHP Fatal error:  Uncaught LogicException: ");
    assert!(record.contains(&start) && record.ends_with(']'), "{record}");
    let trace: Vec<&str> = lines[first + 1..first + 5].iter().map(|line| line.trim_end()).collect();
    let calls = [format!("    #0 {script}(2): f()"), "    #1 {main}".to_owned()];
    assert_eq!(trace[0], "    Stack trace:");
    assert_eq!(trace[1..3], calls);
    assert_eq!(trace[3], format!("      thrown in {script} on line 1"));
    let level = |text: &str| {
        let line = lines.iter().find(|line| line.contains(text)).expect("a line");
        line.split_whitespace().nth(1).expect("a level").to_owned()
    };
    assert_eq!(level("PHP Parse error:"), "ERROR");
    assert_eq!(level("Undefined variable"), "WARN");
}
