//! Stands in the place of a process that the supervisor talks with, as one that was taken over: it
//! takes that process's ends of the channel (as root, by pidfd_getfd), stops it, and says with its
//! voice what no process of ours says. Nothing in maitred knows of it.
//!
//! `compromised-front PID front|zygote linger|absurd|flood`, or, as a zygote that names other
//! processes as its workers, `compromised-front PID zygote foresee|PID`. It prints what it did, and
//! keeps what it has until its standard input ends.

use std::io::{self, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use maitred_control::{FromFront, FromZygote};
use maitred_tests::hostile::{self, Lingering, SupervisorLink};
use maitred_tests::processes::{Process, Signal};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Messages with descriptors that linger, and how many each has.
const LINGERING_MESSAGES: usize = 5;
const LINGERING_EACH: usize = 8;

/// Messages of a flood.
const FLOOD: usize = 20_000;

/// Longest message in bytes.
const LONGEST: usize = 64 * 1024;

/// How long the orders pause after which a zygote announces workers, in milliseconds, and how long
/// it waits for orders at most.
const PAUSE: i64 = 200;
const PATIENCE: Duration = Duration::from_secs(60);

const BIG: u32 = u32::MAX;
const HUGE: u64 = u64::MAX;

/// Reports of a front, with values that no front has.
fn of_front(generation: u32) -> Vec<Value> {
    let long = "x\n\u{1b}[2J\"".repeat(2_000);
    let time = json!({"secs": HUGE, "nanos": 999_999_999});
    let overrun = json!({"ran": time, "script": long, "target": long, "query": long});
    let slow = json!({"request": HUGE, "overrun": overrun, "id": long});
    let mut all = Vec::new();
    for (number, incarnation) in [(0, 1), (0, BIG), (BIG, 1), (BIG, BIG), (1, 0)] {
        let worker = json!({"seat": number, "incarnation": incarnation});
        let at = |rest: Value| {
            let mut all = json!({"generation": generation, "worker": worker});
            for (name, value) in rest.as_object().into_iter().flatten() {
                all[name] = value.clone();
            }
            all
        };
        all.extend([
            json!({"WorkerFailed": at(json!({"why": long, "overrun": null}))}),
            json!({"WorkerFailed": at(json!({"why": "", "overrun": overrun}))}),
            json!({"WorkerFailed": at(json!({"why": "", "overrun": null, "broke_rules": true}))}),
            json!({"ScriptDied": at(json!({"script": long}))}),
            json!({"SeatRetired": at(json!({}))}),
            json!({"SeatWorn": at(json!({"why": "Grown"}))}),
            json!({"SlowScriptFound": at(slow.clone())}),
        ]);
    }
    for workers in [0, 1, BIG] {
        let needed = json!({"generation": generation, "workers": workers});
        all.push(json!({"WorkersNeeded": needed}));
    }
    all.extend([
        json!({"OpenFailed": {"generation": generation}}),
        json!({"OpcacheFilled": {"generation": generation}}),
        json!({"Reconfigured": {"refused": long}}),
        json!({"Reconfigured": {"refused": null}}),
        json!({"Settled": {"mark": HUGE}}),
        json!({"AcmeProofsSet": {"mark": HUGE}}),
        json!("StatsWritten"),
        json!({"Purged": {"mark": HUGE, "outcome": {"Ok": vec![&long; 3]}}}),
        json!({"Purged": {"mark": 0, "outcome": {"Err": long}}}),
        json!({"PagesDropped": {"dropped": [], "mark": HUGE}}),
        json!({"PagesDropped": {"dropped": [], "mark": 1}}),
        json!({"StackReported": {"thread": -1, "calls": [i64::MAX, i64::MIN, 0]}}),
        json!({"CookiesSeen": {"site_key": long, "names": [long]}}),
        json!("MetricsRequested"),
        json!("Drained"),
    ]);
    checked::<FromFront>(all)
}

/// Reports of a zygote, with values that no zygote has. After the first of the last ones, none of
/// which was requested, no more is read.
fn of_zygote() -> Vec<Value> {
    let long = "x\n\u{1b}[2J\"".repeat(2_000);
    let mut all = Vec::new();
    for pid in [1, 0, -1, i32::MIN, i32::MAX] {
        let worker = json!({"seat": 0, "incarnation": 2});
        let took = json!({"secs": HUGE, "nanos": 999_999_999});
        all.push(json!({"SeatFilled": {"worker": worker, "pid": pid, "took": took}}));
    }
    for (seat, incarnation) in [(BIG, BIG), (0, 1)] {
        let worker = json!({"seat": seat, "incarnation": incarnation});
        all.push(json!({"ForkFailed": {"worker": worker, "why": long}}));
    }
    all.extend([
        json!({"Booted": {"worker": {"seat": BIG, "incarnation": 0}}}),
        json!({"Traced": {"trace": HUGE, "stack": {"Err": long}}}),
        json!({"Profiled": {"profile": HUGE, "samples": {"Err": long}}}),
        json!({"OpcacheReported": {"figures": null}}),
        json!({"ScriptsListed": {"count": BIG}}),
        json!({"PreloadableListed": {"count": BIG}}),
        json!({"Warmed": {"compiled": BIG}}),
    ]);
    checked::<FromZygote>(all)
}

/// These, each of which is a report: one that is none would end the process at once.
fn checked<Report: DeserializeOwned>(reports: Vec<Value>) -> Vec<Value> {
    for report in &reports {
        let parsed = serde_json::from_value::<Report>(report.clone());
        assert!(parsed.is_ok(), "{report} is no report: {:?}", parsed.err());
    }
    reports
}

fn absurd(way: &SupervisorLink, role: &str) -> usize {
    let reports = match role {
        "front" => [0, 1, 2, BIG].into_iter().flat_map(of_front).collect(),
        _ => of_zygote(),
    };
    let mut said = 0;
    for report in reports {
        let text = report.to_string();
        if text.len() <= LONGEST && way.say(text.as_bytes()) {
            said += 1;
        }
    }
    said
}

/// Says the same again and again, as fast as it is taken, and at last what is no report at all.
fn flood(way: &SupervisorLink, role: &str) -> usize {
    let reports = match role {
        "front" => checked::<FromFront>(vec![
            json!("MetricsRequested"),
            json!("StatsWritten"),
            json!({"OpenFailed": {"generation": 1}}),
        ]),
        // No stack was requested.
        _ => checked::<FromZygote>(vec![
            json!({"Traced": {"trace": 1, "stack": {"Err": "x".repeat(LONGEST / 2)}}}),
        ]),
    };
    let reports: Vec<String> = reports.iter().map(Value::to_string).collect();
    let mut said = 0;
    for at in 0..FLOOD {
        said += usize::from(way.say(reports[at % reports.len()].as_bytes()));
    }
    let nested = "[".repeat(LONGEST);
    for nonsense in [nested.as_bytes(), &[0xff; LONGEST], b"{}", b"\"Unknown\""] {
        said += usize::from(way.say(nonsense));
    }
    if let Some(frames) = &way.frames {
        let _ = rustix::io::write(frames, &[0xff; 4096]);
    }
    said
}

/// The workers that the zygote was ordered to fork, once no further order comes for a moment. The
/// pipes that came with the orders go to `pipes`.
fn ordered_workers(way: &SupervisorLink, pipes: &mut Vec<OwnedFd>) -> Vec<Value> {
    let mut workers = Vec::new();
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        match way.next_order(PAUSE) {
            Some((order, fds)) => {
                workers.extend(order["FillSeat"].get("worker").cloned());
                pipes.extend(fds);
            }
            None if workers.is_empty() => {}
            None => break,
        }
    }
    workers
}

/// Names as its workers, when some are ordered, processes that are none: those with the next pids,
/// which do not exist yet, or once the one with this pid.
fn announce(way: &SupervisorLink, whose: &str, pipes: &mut Vec<OwnedFd>) -> usize {
    let workers = ordered_workers(way, pipes);
    let pids: Vec<i32> = match whose.parse() {
        Ok(pid) => vec![pid],
        Err(_) => (hostile::last_process() + 1..).take(workers.len()).collect(),
    };
    let took = json!({"secs": 0, "nanos": 1});
    let announced = workers.iter().zip(pids);
    let said = announced.filter(|(worker, pid)| {
        let report = json!({"SeatFilled": {"worker": worker, "pid": pid, "took": took}});
        way.say(report.to_string().as_bytes())
    });
    said.count()
}

fn linger(way: &SupervisorLink) -> Vec<TcpStream> {
    let mut deaf = Vec::new();
    for _ in 0..LINGERING_MESSAGES {
        let lingering: Vec<Lingering> =
            (0..LINGERING_EACH).flat_map(|_| Lingering::new()).collect();
        for end in [&way.socket, &way.frames].into_iter().flatten() {
            let sent = hostile::send_lingering(end.as_fd(), b"\"MetricsRequested\"", &lingering);
            let _ = writeln!(io::stdout(), "{LINGERING_EACH} lingering descriptors: {sent:?}");
        }
        deaf.extend(lingering.into_iter().map(Lingering::let_go));
    }
    deaf
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (pid, role, what) = match &arguments[..] {
        [pid, role, what] => (pid.parse().unwrap_or(0), role.as_str(), what.as_str()),
        _ => panic!("compromised-front PID front|zygote linger|absurd|flood|foresee|PID"),
    };
    let way = SupervisorLink::of(pid);
    if let Some(process) = Process::read(pid) {
        process.signal(Signal::STOP);
    }
    let (mut deaf, mut pipes) = (Vec::new(), Vec::new());
    match what {
        "linger" => deaf = linger(&way),
        "absurd" => {
            let _ = writeln!(io::stdout(), "{} reports were taken", absurd(&way, role));
        }
        "flood" => {
            let _ = writeln!(io::stdout(), "{} reports were taken", flood(&way, role));
        }
        _ => {}
    }
    let _ = writeln!(io::stdout(), "done");
    if !matches!(what, "linger" | "absurd" | "flood") {
        let _ = writeln!(io::stdout(), "{} workers announced", announce(&way, what, &mut pipes));
    }
    let _ = io::stdin().read_line(&mut String::new());
    drop((deaf, pipes));
}
