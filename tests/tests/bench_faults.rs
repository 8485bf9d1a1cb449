//! `maitred bench` before servers, names, limits and clocks that are not as they should be.

use std::fs;
use std::io::{BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use maitred_tests::bench::{Benched, bench, command};
use maitred_tests::odd::{Odd, answer, next_request};
use maitred_tests::processes::{Process, Signal};
use maitred_tests::wait;
use maitred_tests::{maitred_program, ports};

const LOAD: [&str; 3] = ["--rate=50", "--duration=1s", "--warm-up=0"];

fn run(server: &Odd) -> Benched {
    run_with(server, "--timeout=50s")
}

fn run_with(server: &Odd, flag: &str) -> Benched {
    let url = format!("http://{}/", server.address());
    bench(&[&[url.as_str(), flag], &LOAD[..]].concat())
}

/// Reads a request, and answers with these bytes before it closes.
fn says(bytes: &'static [u8]) -> Odd {
    Odd::start(move |stream| {
        if next_request(&mut BufReader::new(&stream)).is_some() {
            let _ = (&stream).write_all(bytes);
        }
    })
}

#[test]
fn nobody_who_listens_is_said_at_once() {
    let url = format!("http://{}/", ports::free_address());
    let run = bench(&[&url, "--rate=50"]);
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains("Connection refused"), "{run:?}");
}

#[test]
fn a_server_that_refuses_halfway_is_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let answering = std::thread::spawn(move || {
        for stream in listener.incoming().take(11).flatten() {
            if next_request(&mut BufReader::new(&stream)).is_some() {
                let _ = (&stream).write_all(answer("200 OK", "hello").as_bytes());
            }
        }
    });
    let run = bench(&[&[url.as_str(), "--no-keepalive"], &LOAD[..]].concat());
    // The first connection only looked whether anybody listens.
    assert_eq!(run.counts()[0], 10, "{run:?}");
    assert_eq!(run.counts()[2], 40, "{run:?}");
    assert_eq!(run.causes()[0], "Connection refused (os error 111)");
    answering.join().expect("it ends");
}

#[test]
fn half_answers_and_no_answers_and_what_is_no_answer_have_failed() {
    for (server, cause) in [
        (says(b""), "closed without a response"),
        (
            says(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello"),
            "closed in the middle of the response body",
        ),
        (says(b"HTTP/1.1 200 O"), "closed in the middle of the response header"),
        (says(b"220 mail.example ESMTP\r\n"), "not an HTTP/1.1 response"),
    ] {
        let run = run(&server);
        assert_eq!(run.counts(), [0, 0, 50, 0, 0], "{run:?}");
        assert_eq!(run.causes(), [cause]);
        assert_eq!(run.code, Some(1), "nothing was served: {run:?}");
    }
}

#[test]
fn a_connection_that_is_reset_has_failed() {
    let server = Odd::start(|stream| {
        // What is closed with unread bytes is reset.
        let mut byte = [0];
        let _ = stream.peek(&mut byte);
    });
    let run = run(&server);
    assert_eq!(run.counts(), [0, 0, 50, 0, 0], "{run:?}");
    assert_eq!(run.causes()[0], "Connection reset by peer (os error 104)");
}

#[test]
fn a_server_that_hangs_is_given_up_in_time_and_counted_apart() {
    let server = Odd::start(|stream| {
        let mut reader = BufReader::new(&stream);
        while next_request(&mut reader).is_some() {}
    });
    let run = run_with(&server, "--timeout=300ms");
    assert_eq!(run.counts(), [0, 0, 0, 50, 0], "{run:?}");
    assert!(run.number("not_served.timed_out.service.min") >= 0.299, "{run:?}");
}

#[test]
fn endless_headers_are_cut_off() {
    let server = Odd::start(|mut stream| {
        if next_request(&mut BufReader::new(&stream)).is_some() {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
            while stream.write_all(b"X-Again: and again\r\n").is_ok() {}
        }
    });
    let run = run(&server);
    assert_eq!(run.counts(), [0, 0, 50, 0, 0], "{run:?}");
    let causes = run.causes();
    let known = ["more than 128 headers", "a header longer than 64 KiB"];
    assert!(causes.iter().all(|cause| known.contains(&cause.as_str())), "{causes:?}");
}

#[test]
fn a_redirect_is_followed_only_if_asked_for_and_never_to_another_server() {
    let other = Odd::answering(|_| answer("200 OK", "yours"));
    let away = format!("http://{}/", other.address());
    let server = Odd::answering(move |line| match line.split(' ').nth(1) {
        Some("/away") => redirect(&away),
        Some("/here") => redirect("/there"),
        Some("/round") => redirect("/round"),
        _ => answer("200 OK", "hello"),
    });
    let ask = |path: &str, flags: &[&str]| {
        let url = format!("http://{}{path}", server.address());
        bench(&[&[url.as_str()], flags, &["--users=1", "--requests=5"]].concat())
    };
    assert_eq!(ask("/here", &["--follow"]).counts(), [5, 0, 0, 0, 0]);
    let run = ask("/here", &[]);
    assert_eq!(run.counts(), [0, 0, 0, 0, 5]);
    assert_eq!(run.causes(), ["302, a redirect (--follow follows it)"]);
    assert_eq!(ask("/round", &["--follow"]).causes(), ["too many redirects"]);
    for flags in [&[][..], &["--follow"]] {
        let run = ask("/away", flags);
        assert_eq!(run.causes(), ["302, a redirect to another host, not followed"]);
    }
    assert_eq!(other.accepted(), 0);
}

fn redirect(to: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
}

#[test]
fn another_machine_is_not_asked_anything_unless_it_is_ones_own() {
    let run = bench(&["http://192.0.2.1/", "--rate=1"]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("--yes-i-own-it"), "{run:?}");
}

#[test]
fn a_name_that_nobody_knows_is_said() {
    let run = bench(&["http://nowhere.invalid/"]);
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains("the name 'nowhere.invalid' cannot be resolved"), "{run:?}");
}

#[test]
fn more_connections_than_open_files_are_refused_before_the_run() {
    let server = Odd::answering(|_| answer("200 OK", "hello"));
    let url = format!("http://{}/", server.address());
    let limited = |flag: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n 200; exec \"$@\"", "sh"]);
        command.arg(maitred_program()).args(["bench", "--json", &url, flag]);
        command.args(["--duration=1s"]);
        Benched::of(&command.output().expect("a shell"))
    };
    for flag in ["--connections=1000", "--users=1000"] {
        let run = limited(flag);
        assert_eq!(run.code, Some(2), "{run:?}");
        assert!(run.stderr.contains("raise it (ulimit -n)"), "{run:?}");
    }
    // Where nothing is said, it takes what there is.
    assert_eq!(limited("--rate=20").number("run.connections"), 136.0);
}

#[test]
fn a_run_that_is_interrupted_reports_what_it_has_measured() {
    let answered = Arc::new(AtomicUsize::new(0));
    let counted = answered.clone();
    let server = Odd::answering(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        answer("200 OK", "hello")
    });
    let url = format!("http://{}/", server.address());
    let child = command(&[&url, "--rate=100", "--duration=10m", "--warm-up=0"]).spawn();
    let child = child.expect("maitred bench can be started");
    wait::until_true("answers", || answered.load(Ordering::SeqCst) > 30);
    Process::read(child.id() as i32).expect("it runs").signal(Signal::INT);
    let run = Benched::of(&child.wait_with_output().expect("it ends"));
    assert_eq!(run.code, Some(130), "{run:?}");
    assert_eq!(run.report["partial"], true);
    assert!(run.number("requests.served") > 10.0);
    assert!(run.number("run.seconds") < 60.0);
}

#[test]
fn a_server_that_answers_502_to_everything_serves_nothing_however_fast_it_is() {
    let server = Odd::answering(|_| answer("502 Bad Gateway", "no upstream"));
    let url = format!("http://{}/", server.address());
    let run = bench(&[&[url.as_str(), "--slo=p99<1s"], &LOAD[..]].concat());
    assert_eq!(run.counts(), [0, 0, 50, 0, 0], "{run:?}");
    assert_eq!(run.causes(), ["502 Bad Gateway"]);
    assert_eq!(run.number("requests.rate"), 0.0);
    assert_eq!(run.report["corrected"]["count"], 0, "no failure is a latency");
    assert_eq!(run.code, Some(4), "nothing carries the p99: {run:?}");
    let closed = bench(&[&url, "--users=2", "--requests=10"]);
    assert_eq!(closed.counts(), [0, 0, 10, 0, 0]);
    assert_eq!(closed.code, Some(1));
}

#[test]
fn users_who_are_interrupted_are_reported_and_so_is_a_comparison() {
    let server = Odd::answering(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        answer("200 OK", "hello")
    });
    let url = format!("http://{}/", server.address());
    let interrupted = |mut command: Command| {
        let before = server.accepted();
        let child = command.spawn().expect("maitred bench can be started");
        wait::until_true("users", || server.accepted() > before + 2);
        let process = Process::read(child.id() as i32).expect("it runs");
        process.signal(Signal::INT);
        Benched::of(&child.wait_with_output().expect("it ends"))
    };
    let load = ["--users=3", "--duration=10m"];
    let run = interrupted(command(&[&[url.as_str(), "--warm-up=0"], &load[..]].concat()));
    assert_eq!(run.code, Some(130), "{run:?}");
    assert_eq!(run.report["partial"], true);
    assert!(run.number("run.seconds") < 60.0, "{run:?}");
    let mut comparison = Command::new(maitred_program());
    comparison.args(["bench", "compare", &url, &url, "--json"]).args(load);
    comparison.stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = interrupted(comparison);
    assert_eq!(run.code, Some(130), "{run:?}");
    assert_eq!(run.report["pairs"], 0);
}

#[test]
fn a_report_that_cannot_be_written_is_said_before_the_run() {
    let server = Odd::answering(|_| answer("200 OK", "hello"));
    let url = format!("http://{}/", server.address());
    for flag in ["--html", "--csv", "--json"] {
        let file = format!("{flag}=/nowhere/report");
        let mut command = Command::new(maitred_program());
        command.args(["bench", &url, &file, "--duration=10m"]);
        let run = Benched::of(&command.output().expect("it runs"));
        assert_eq!(run.code, Some(1), "{run:?}");
        let complaint = "/nowhere/report cannot be written: No such file or directory";
        assert!(run.stderr.contains(complaint), "{run:?}");
    }
    assert_eq!(server.accepted(), 0);
}

#[test]
fn a_log_of_ten_gigabytes_is_read_as_it_is_needed() {
    let server = Odd::answering(|_| answer("200 OK", "hello"));
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("access.log");
    let mut file = fs::File::create(&log).expect("a file");
    let mut text = String::new();
    for number in 0..20_000 {
        let (minute, second) = (number / 60 % 60, number % 60);
        let time = format!("22/Nov/2026:{:02}:{minute:02}:{second:02} +0000", number / 3_600);
        text += &format!("::1 - - [{time}] \"GET /old?{number} HTTP/1.1\" 200 5\n");
    }
    file.write_all(text.as_bytes()).expect("room");
    // What follows takes no room on the disk, and ten gigabytes wherever it is read to.
    file.set_len(10 << 30).expect("a hole");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v 2000000; exec \"$@\"", "sh"]);
    command.arg(maitred_program()).args(["bench", "--json"]);
    command.arg(format!("http://{}/", server.address()));
    command.arg(format!("--replay={}", log.display()));
    command.args(["--speed=50", "--duration=1s", "--late-after=2s"]);
    let run = Benched::of(&command.output().expect("a shell"));
    assert_eq!(run.counts(), [50, 0, 0, 0, 0], "{run:?}");
    assert_eq!(run.code, Some(0));
}

/// A library that lets the wall's clock jump an hour to and fro whenever it is looked at.
const JUMPING: &str = r"
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int looks;
    long failed = syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec += ++looks % 2 ? 3600 : -3600;
    return failed;
}
";

#[test]
fn a_wall_clock_that_jumps_changes_no_latency() {
    let server = Odd::answering(|_| answer("200 OK", "hello"));
    let url = format!("http://{}/", server.address());
    let folder = tempfile::tempdir().expect("a folder");
    let (source, library) = (folder.path().join("jump.c"), folder.path().join("jump.so"));
    std::fs::write(&source, JUMPING).expect("a file");
    compile(&source, &library);
    let mut command = command(&[&[url.as_str()], &LOAD[..]].concat());
    let run = Benched::of(&command.env("LD_PRELOAD", &library).output().expect("it runs"));
    assert_eq!(run.counts(), [50, 0, 0, 0, 0], "{run:?}");
    assert!(run.number("corrected.max") < 60.0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let off = now.expect("a time").as_secs_f64() - run.number("began");
    assert!(off.abs() > 1_800.0, "the clock has jumped: {off}");
}

fn compile(source: &Path, library: &Path) {
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(library).arg(source);
    let done = cc.stdin(Stdio::null()).status().expect("a C compiler");
    assert!(done.success());
}
