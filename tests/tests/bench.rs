//! `maitred bench`: what it counts, and that its latencies are the truth.

use maitred_tests::bench::{Benched, StandingServer, bench, command};
use maitred_tests::odd::{Odd, answer};
use maitred_tests::processes::{Process, Signal};
use maitred_tests::wait;

const STANDING_SERVER: &str = env!("CARGO_BIN_EXE_standing-server");

fn hello() -> Odd {
    Odd::answering(|_| answer("200 OK", "hello"))
}

fn url(server: &Odd, path: &str) -> String {
    format!("http://{}{path}", server.address())
}

#[test]
fn an_open_loop_sends_what_its_schedule_says_and_all_of_it_is_accounted_for() {
    let server = StandingServer::start(STANDING_SERVER);
    let url = server.url.as_str();
    for (load, wanted) in [
        (&["--rate=300", "--duration=2s", "--warm-up=1s"][..], 600),
        (&["--rate=0..200", "--duration=2s"], 200),
        (&["--rate=100@1s,300@500ms"], 250),
        (&["--rate=50", "--burst=500@200ms/1s", "--duration=1s"], 140),
    ] {
        let run = bench(&[&[url], load].concat());
        assert_eq!(run.code, Some(0), "{load:?} {run:?}");
        assert_eq!(run.counts(), [wanted, 0, 0, 0, 0], "{load:?}");
        assert_eq!(run.number("requests.sent") as u64, wanted);
        assert_eq!(run.report["run"]["loop"], "open");
        assert!(run.number("corrected.p50") > 0.0);
    }
    let run = bench(&[url, "--rate=400", "--poisson", "--duration=2s", "--warm-up=0"]);
    let served = run.number("requests.served");
    assert!((650.0..950.0).contains(&served), "{served}");
}

#[test]
fn the_warm_up_is_shown_and_in_no_other_figure() {
    let server = StandingServer::start(STANDING_SERVER);
    let url = server.url.as_str();
    let run = bench(&[url, "--rate=100", "--duration=1s", "--warm-up=2s"]);
    assert_eq!(run.number("warm_up.served"), 200.0);
    assert_eq!(run.number("requests.served"), 100.0);
    let series = run.report["series"].as_array().expect("seconds");
    let warm: Vec<bool> = series.iter().take(3).map(|second| second["warm_up"] == true).collect();
    assert_eq!(warm, [true, true, false]);
    let numbers: Vec<u64> = series.iter().filter_map(|second| second["number"].as_u64()).collect();
    assert!(numbers.iter().zip(0..).all(|(number, wanted)| *number == wanted), "{numbers:?}");
}

#[test]
fn a_closed_loop_sends_as_many_requests_as_it_is_told() {
    let server = StandingServer::start(STANDING_SERVER);
    let url = server.url.as_str();
    let run = bench(&[url, "--users=7", "--requests=1000"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(run.counts(), [1_000, 0, 0, 0, 0]);
    assert_eq!(run.number("connections.made"), 7.0);
    let run = bench(&[url, "--users=4", "--think=50ms..100ms", "--duration=1s", "--warm-up=0"]);
    let served = run.number("requests.served");
    // Three each, however busy the machine is, and no more than those who think allow.
    assert!((12.0..=84.0).contains(&served), "{served}");
    let run = bench(&[url, "--users=3", "--requests=60", "--no-keepalive"]);
    assert_eq!(run.number("connections.made"), 60.0);
}

#[test]
fn users_who_wait_long_are_counted_by_whole_rounds() {
    let slow = Odd::answering(|_| {
        std::thread::sleep(std::time::Duration::from_millis(200));
        answer("200 OK", "hello")
    });
    // The first round begins before the time that is measured, and the last ends after it.
    let load = ["--users=3", "--duration=500ms", "--warm-up=100ms"];
    let run = bench(&[&[url(&slow, "/").as_str()], &load[..]].concat());
    let rounds = 3.0 / run.number("service.max");
    let rate = run.number("requests.rate");
    assert!((0.8 * rounds..=15.01).contains(&rate), "{run:?}");
}

/// Whether its generator runs: looking whether anybody listens comes before that.
fn is_sending(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let mut names =
        threads.filter_map(|entry| std::fs::read_to_string(entry.path().join("comm")).ok());
    names.any(|name| name.trim() == "bench-0")
}

#[test]
fn too_few_connections_make_a_run_invalid_and_are_named() {
    let slow = Odd::answering(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        answer("200 OK", "hello")
    });
    let url = url(&slow, "/");
    let run = bench(&[&url, "--rate=100", "--duration=4s", "--connections=2", "--late-after=50ms"]);
    assert_eq!(run.code, Some(3), "{run:?}");
    assert_eq!(run.report["valid"], false);
    assert!(run.number("requests.late_for_connections") > 5.0);
    assert!(run.number("requests.unsent") > 50.0);
    let due = run.number("requests.sent") + run.number("requests.unsent");
    assert_eq!(due, 400.0);
    // From the moment they were due they took long; from the moment they were sent, 0.1 s.
    assert!(run.number("corrected.max") > 3.0 * run.number("service.max"));
}

#[test]
fn a_generator_that_is_held_up_says_that_its_figures_are_not_to_be_believed() {
    let server = StandingServer::start(STANDING_SERVER);
    let url = server.url.as_str();
    let child =
        command(&[url, "--rate=500", "--duration=3s", "--warm-up=0", "--late-after=100ms"]).spawn();
    let child = child.expect("maitred bench can be started");
    wait::until_true("requests", || is_sending(child.id()));
    let process = Process::read(child.id() as i32).expect("it runs");
    process.signal(Signal::STOP);
    std::thread::sleep(std::time::Duration::from_millis(700));
    process.signal(Signal::CONT);
    let run = Benched::of(&child.wait_with_output().expect("it ends"));
    assert_eq!(run.code, Some(3), "{run:?}");
    assert!(run.number("requests.late") > 30.0);
    assert_eq!(run.number("requests.late_for_connections"), 0.0);
    assert!(run.number("generator.lateness.max") > 0.5);
}

#[test]
fn every_way_to_end_is_counted_by_itself_with_its_latencies() {
    let server = Odd::answering(|line| match line.split(' ').nth(1) {
        Some("/cart") => answer("200 OK", "your cart"),
        Some("/login") => answer("200 OK", "who are you?"),
        Some("/busy") => answer("503 Service Unavailable", "later"),
        Some("/often") => answer("429 Too Many Requests", "later"),
        Some("/gone") => answer("404 Not Found", "cart"),
        _ => answer("502 Bad Gateway", "cart"),
    });
    let paths = ["/cart", "/login", "/busy", "/often", "/gone", "/broken"];
    let urls: Vec<String> = paths.iter().map(|path| url(&server, path)).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let rest = ["--in-order", "--rate=60", "--duration=1s", "--warm-up=0", "--contains=cart"];
    let run = bench(&[&urls[..], &rest].concat());
    assert_eq!(run.counts(), [10, 20, 10, 0, 20], "{run:?}");
    let mut causes = run.causes();
    causes.sort();
    assert_eq!(
        causes,
        [
            "404 Not Found",
            "429 Too Many Requests",
            "502 Bad Gateway",
            "503 Service Unavailable",
            "the body lacks the text of --contains",
        ]
    );
    for class in ["refused", "failed", "wrong"] {
        assert!(run.number(&format!("not_served.{class}.corrected.max")) > 0.0);
    }
    assert_eq!(run.report["urls"].as_array().map(Vec::len), Some(6));
    let run = bench(&[urls[4], "--expect=404", "--users=1", "--requests=5"]);
    assert_eq!(run.counts(), [5, 0, 0, 0, 0]);
}

#[test]
fn what_had_to_hold_decides_the_exit_code() {
    let server = hello();
    let url = url(&server, "/");
    let load = ["--rate=100", "--duration=1s", "--warm-up=0"];
    let slo = |slo: &str| bench(&[&[url.as_str(), "--slo", slo], &load[..]].concat());
    let run = slo("p50<5s,error<0.1%,rate>50");
    assert_eq!(run.code, Some(0), "{run:?}");
    let run = slo("p50<5s,rate>500");
    assert_eq!(run.code, Some(4), "{run:?}");
    let holds: Vec<bool> = (0..2).map(|at| run.report["slo"][at]["holds"] == true).collect();
    assert_eq!(holds, [true, false]);
    // 100 requests do not carry a 99.9th percentile.
    let run = slo("p99.9<5s");
    assert_eq!(run.code, Some(4));
    assert!(run.report["slo"][0]["measured"].is_null());
}

#[test]
fn every_field_of_the_report_is_documented() {
    let server = StandingServer::start(STANDING_SERVER);
    let url = server.url.as_str();
    let watch = format!("--watch={}", std::process::id());
    let run = bench(&[url, "--rate=50", "--duration=1s", "--slo=p50<1s", &watch]);
    let guide = maitred_tests::project_root().join("docs/guide/bench.md");
    let guide = std::fs::read_to_string(guide).expect("the guide can be read");
    let mut missing = Vec::new();
    for (name, value) in run.report.as_object().expect("a report") {
        let mut names = vec![name.clone()];
        if name == "statuses" {
            // The names in it are statuses.
            continue;
        }
        let inner = value.as_array().and_then(|list| list.first()).unwrap_or(value);
        names.extend(inner.as_object().into_iter().flatten().map(|(name, _)| name.clone()));
        missing.extend(names.into_iter().filter(|name| !guide.contains(&format!("`{name}`"))));
    }
    assert!(missing.is_empty(), "docs/guide/bench.md says nothing of {missing:?}");
}

#[test]
fn seconds_are_written_as_comma_separated_values() {
    let server = StandingServer::start(STANDING_SERVER);
    let url = server.url.as_str();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("series.csv");
    let csv = format!("--csv={}", file.display());
    let run = bench(&[url, "--rate=50", "--duration=2s", "--warm-up=0", &csv]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let text = std::fs::read_to_string(&file).expect("a file");
    let served: u64 =
        text.lines().skip(1).filter_map(|line| line.split(',').nth(3)?.parse::<u64>().ok()).sum();
    assert_eq!(served, 100, "{text}");
}

#[test]
fn users_come_one_after_the_other_if_they_are_to() {
    let server = hello();
    let load = ["--users=20", "--ramp-up=4s", "--duration=6s", "--warm-up=0"];
    let run = bench(&[&[url(&server, "/").as_str(), "--think=20ms"], &load[..]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    let seconds = run.report["series"].as_array().expect("seconds");
    let connections: Vec<u64> =
        seconds.iter().filter_map(|second| second["connections"].as_u64()).collect();
    assert!(connections[0] < 20, "{connections:?}");
    assert_eq!(run.number("connections.made"), 20.0, "{connections:?}");
}
