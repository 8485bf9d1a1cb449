//! `maitred bench`: finding a capacity, comparing, and doing as other tools do.

use std::io::{BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use maitred_tests::odd::{Odd, answer, next_request};
use maitred_tests::processes;
use maitred_tests::{maitred_program, ports};
use serde_json::Value;

/// A server that serves one request at a time, each for this number of milliseconds.
fn slow(millis: u64) -> Odd {
    let turn = Mutex::new(());
    Odd::answering(move |_| {
        let _turn = turn.lock();
        std::thread::sleep(Duration::from_millis(millis));
        answer("200 OK", "hello")
    })
}

fn url(server: &Odd) -> String {
    format!("http://{}/", server.address())
}

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(maitred_program());
    command.arg("bench").args(arguments).stdin(Stdio::null());
    let output = command.output().expect("maitred bench can be started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_highest_rate_is_found_and_what_comes_beyond_it_is_named() {
    // It cannot serve more than 200 a second.
    let server = slow(5);
    let (code, out, err) = run(&[
        &url(&server),
        "--find-capacity=p50<50ms,error<1%",
        "--rate=50",
        "--step=1s",
        "--late-after=200ms",
        "--connections=50",
        "--json",
    ]);
    let found: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}"));
    assert_eq!(code, Some(0), "{found}");
    let capacity = found["capacity"].as_f64().expect("a rate");
    assert!((50.0..205.0).contains(&capacity), "{found}");
    assert!(found["cliff"].as_f64().expect("a rate") > capacity, "{found}");
    assert!(found["shape"].is_string(), "{found}");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("steps.json");
    let (code, out, _) = run(&[
        &url(&server),
        "--find-capacity=max<1ms",
        "--rate=4",
        "--step=500ms",
        "--late-after=200ms",
        &format!("--json={}", file.display()),
    ]);
    assert_eq!(code, Some(4), "{out}");
    assert!(out.contains("holds at none of the tried rates"), "{out}");
    let steps = std::fs::read_to_string(&file).expect("a file beside the table");
    let steps: Value = serde_json::from_str(&steps).expect("JSON");
    assert!(steps["capacity"].is_null() && steps["steps"][0]["rate"] == 4.0, "{steps}");
    for (arguments, complaint) in [
        (&["http://127.0.0.1/", "--find-capacity=p50<1s", "--csv=x"][..], "makes many runs"),
        (
            &["compare", "http://127.0.0.1/", "http://127.0.0.1/", "--find-capacity=p50<1s"],
            "one load",
        ),
    ] {
        let (code, _, err) = run(arguments);
        assert_eq!(code, Some(2), "{err}");
        assert!(err.contains(complaint), "{err}");
    }
}

fn verdict(outcome: &Value, figure: &str) -> String {
    let rows = outcome["b_beside_a"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["figure"] == figure).expect("a figure");
    row["verdict"].as_str().expect("a verdict").to_owned()
}

/// With little time for each run, but with servers that differ by far more than chance.
fn compare(arguments: &[&str]) -> Value {
    let pairs = arguments.iter().any(|argument| argument.starts_with("--pairs"));
    let flags = [
        if pairs { "--threads=1" } else { "--pairs=5" },
        "--max-pairs=6",
        "--duration=400ms",
        "--users=1",
        // Whatever else this machine does, it is borne with: runs are not made again for it.
        "--with=1",
        "--json",
    ];
    // A machine that does other things may make A differ from itself.
    let mut last = String::new();
    for _ in 0..4 {
        let (code, out, err) = run(&[&["compare"], arguments, &flags[..]].concat());
        last = out + &err;
        if code == Some(0) {
            return serde_json::from_str(&last).expect("an outcome");
        }
        assert_eq!(code, Some(3), "{last}");
    }
    panic!("A always differs from itself: {last}");
}

/// The verdict on requests per second. A machine that does other things may leave it open.
fn decided(arguments: &[&str]) -> String {
    let verdicts = (0..4).map(|_| verdict(&compare(arguments), "served/s"));
    let mut left_open = None;
    for verdict in verdicts {
        match verdict.as_str() {
            "undecided" => left_open = Some(verdict),
            _ => return verdict,
        }
    }
    left_open.expect("a verdict")
}

#[test]
fn two_servers_are_compared_in_both_directions() {
    let (fast, slow) = (slow(5), slow(20));
    assert_eq!(decided(&[&url(&fast), &url(&slow)]), "slower");
    assert_eq!(decided(&[&url(&slow), &url(&fast)]), "faster");
}

/// Says `hello` after as many milliseconds as `delay` makes of the number of the connections that
/// have asked anything before.
fn by_connection(delay: fn(usize) -> u64) -> Odd {
    let asked = AtomicUsize::new(0);
    Odd::start(move |stream| {
        let mut reader = BufReader::new(&stream);
        let mut number = None;
        while next_request(&mut reader).is_some() {
            let number = *number.get_or_insert_with(|| asked.fetch_add(1, Ordering::SeqCst));
            std::thread::sleep(Duration::from_millis(delay(number)));
            if (&stream).write_all(answer("200 OK", "hello").as_bytes()).is_err() {
                return;
            }
        }
    })
}

#[test]
fn two_servers_that_do_the_same_do_not_differ() {
    let server = by_connection(|_| 200);
    // A machine that does other things may hide it.
    let found = (0..4).any(|_| {
        let outcome = compare(&[&url(&server), &url(&server)]);
        assert_eq!(verdict(&outcome, "p99"), "undecided", "so few carry no p99");
        verdict(&outcome, "served/s").starts_with("no difference larger than")
    });
    assert!(found);
}

#[test]
fn what_only_the_order_of_the_runs_has_done_is_undecided() {
    // The second run of every pair is slower, whichever of the two it is.
    let server = by_connection(|run| if run % 2 == 0 { 5 } else { 25 });
    let outcome = compare(&["--pairs=6", &url(&server), &url(&server)]);
    assert_eq!(verdict(&outcome, "served/s"), "undecided", "{outcome}");
    assert_eq!(outcome["pairs"], 6);
    let row = &outcome["b_beside_a"][0];
    assert!(row["smallest_detectable"].as_f64() > Some(0.5), "{outcome}");
    assert!(row["sign_test"].as_f64() > Some(0.3), "{outcome}");
}

#[test]
fn servers_that_are_started_for_it_leave_nothing() {
    let address = ports::free_address();
    let url = format!("http://{address}/");
    let program = env!("CARGO_BIN_EXE_standing-server");
    let command = format!("sleep 1234 | {program} {address}");
    let outcome = compare(&["--url", &url, &command, &format!(": B; {command}")]);
    assert_eq!(outcome["schema"], "maitred-bench-compare/1");
    assert!(outcome["pairs"].as_u64().expect("a number") >= 5);
    assert!(!ports::is_listening(address));
    let left = processes::all();
    let left = left.iter().filter(|process| format!("{process:?}").contains("sleep 1234"));
    assert_eq!(left.count(), 0);
    let (code, _, err) = run(&["compare", "--url", &url, "exit 7", "exit 7"]);
    assert_eq!(code, Some(1));
    assert!(err.contains("exited before it listened"), "{err}");
}

/// Uses as much of each processor as it gets, outside the server's process tree.
struct Stranger(Vec<String>);

impl Stranger {
    fn start() -> Stranger {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        let begin = "timeout 300 sh -c 'while :; do :; done' >/dev/null 2>&1 & echo $!";
        let one = |_| {
            let output = Command::new("sh").args(["-c", begin]).output();
            let pid = output.expect("sh can be started").stdout;
            String::from_utf8_lossy(&pid).trim().to_owned()
        };
        Stranger((0..processors).map(one).collect())
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(&self.0).status();
    }
}

#[test]
fn runs_in_which_others_use_the_processors_are_made_again() {
    let server = Odd::answering(|_| answer("200 OK", "hello"));
    let url = url(&server);
    // Many times what /proc counts processor time by.
    let load = ["--duration=200ms", "--warm-up=0", "--users=1"];
    let pairs = ["compare", &url, &url, "--pairs=5", "--max-pairs=5", "--json"];
    let _stranger = Stranger::start();
    let (_, out, err) = run(&[&pairs[..], &load[..]].concat());
    let outcome: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}"));
    let disturbed = &outcome["disturbed"];
    // Where A differs from itself there are no more runs than the ten that show it, at three tries
    // each; the system may have let the generator alone in some of them.
    assert!(disturbed["repeated"].as_u64() >= Some(10), "{disturbed}");
    assert!(disturbed["counted"].as_u64() >= Some(5), "{disturbed}");
    assert_eq!(disturbed["unknown"], 0, "{disturbed}");
}

#[test]
fn other_tools_are_taken_at_their_word() {
    let server = Odd::answering(|_| answer("200 OK", "hello"));
    let url = url(&server);
    for (words, line) in [
        (
            &["siege", "-c3", "-b", "-r", "10", &url][..],
            "Transactions:                        30 hits",
        ),
        (&["ab", "-n", "40", "-c", "2", &url], "Complete requests:      40"),
        (&["wrk", "-c2", "-d1s", &url], "Requests/sec:"),
        (&["locust", "-u", "3", "-r", "3", "-t", "1s", "-H", &url], "Aggregated"),
        (&["blitz", "-p", "1-3:1", &url], "This rush generated"),
        (&["k6", "--vus=2", "--iterations=20", &url], "http_reqs..................: 20"),
    ] {
        let (code, out, err) = run(&[&["--as"], words].concat());
        assert_eq!(code, Some(0), "{out}{err}");
        assert!(out.contains(line), "{words:?}: {out}");
        assert!(out.contains("corrected"), "beside ours: {out}");
    }
    let (code, _, err) = run(&["--as", "wrk", "-s", "x.lua", &url]);
    assert_eq!(code, Some(2));
    assert!(err.contains("wrk's -s is not known here"), "{err}");
}
