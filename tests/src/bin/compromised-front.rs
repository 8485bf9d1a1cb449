//! Stands in the place of a process that the supervisor talks with, as one that was taken over: it
//! takes that process's ends of the channel (as root, by pidfd_getfd), stops it, and says with its
//! voice what no process of ours says. Nothing in maitred knows of it.
//!
//! `compromised-front PID front|zygote linger|absurd|flood`. It prints what it did, and keeps what
//! it has until its standard input ends.

use std::io::{self, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;

use maitred_tests::hostile::{self, Lingering, SupervisorLink};
use maitred_tests::processes::{Process, Signal};
use serde_json::{Value, json};

/// Messages with descriptors that linger, and how many each has.
const LINGERING_MESSAGES: usize = 5;
const LINGERING_EACH: usize = 8;

/// Messages of a flood.
const FLOOD: usize = 20_000;

/// Longest message in bytes.
const LONGEST: usize = 64 * 1024;

const BIG: u32 = u32::MAX;
const HUGE: u64 = u64::MAX;

/// Every report of a front, with values that no front has.
fn of_front(generation: u32) -> Vec<Value> {
    let long = "x\n\u{1b}[2J\"".repeat(2_000);
    let time = json!({"secs": HUGE, "nanos": 999_999_999});
    let overrun = json!({"ran": time, "script": long, "target": long, "query": long});
    let seat = |seat: u32, incarnation: u32, rest: Value| {
        let mut all = json!({"generation": generation, "seat": seat, "incarnation": incarnation});
        for (name, value) in rest.as_object().into_iter().flatten() {
            all[name] = value.clone();
        }
        all
    };
    let mut all = Vec::new();
    for (number, incarnation) in [(0, 1), (0, BIG), (BIG, 1), (BIG, BIG), (1, 0)] {
        let at = |rest| seat(number, incarnation, rest);
        all.extend([
            json!({"EndWorker": at(json!({"why": long, "overrun": null}))}),
            json!({"EndWorker": at(json!({"why": "", "overrun": overrun}))}),
            json!({"ScriptDied": at(json!({"script": long}))}),
            json!({"SeatRetired": at(json!({}))}),
            json!({"SeatWorn": at(json!({"why": "Grown"}))}),
            json!({"SlowScript": at(json!({"request": HUGE, "overrun": overrun, "id": long}))}),
        ]);
    }
    for workers in [0, 1, BIG] {
        all.push(json!({"Wanted": {"generation": generation, "workers": workers}}));
    }
    all.extend([
        json!({"NotOpened": {"generation": generation}}),
        json!({"CacheFull": {"generation": generation}}),
        json!({"Reconfigured": {"refused": long}}),
        json!({"Reconfigured": {"refused": null}}),
        json!({"Settled": {"mark": HUGE}}),
        json!({"ProofsTaken": {"mark": HUGE}}),
        json!("Figures"),
        json!({"Purged": {"mark": HUGE, "outcome": {"Ok": vec![&long; 3]}}}),
        json!({"Purged": {"mark": 0, "outcome": {"Err": long}}}),
        json!({"Purging": {"dropped": [], "mark": HUGE}}),
        json!({"Purging": {"dropped": [], "mark": 1}}),
        json!("MemoryAsked"),
        json!("Drained"),
    ]);
    all
}

/// Every report of a zygote, with values that no zygote has.
fn of_zygote() -> Vec<Value> {
    let long = "x\n\u{1b}[2J\"".repeat(2_000);
    let mut all = vec![
        json!({"Traced": {"trace": HUGE, "stack": {"Err": long}}}),
        json!({"CacheFigures": {"figures": null}}),
        json!({"ScriptsListed": {"count": BIG}}),
        json!({"Warmed": {"compiled": BIG}}),
        json!({"ForkFailed": {"seat": BIG, "incarnation": BIG, "why": long}}),
        json!({"ForkFailed": {"seat": 0, "incarnation": 1, "why": long}}),
        json!({"Booted": {"seat": BIG, "incarnation": 0}}),
    ];
    for pid in [1, 0, -1, i32::MIN, i32::MAX] {
        let took = json!({"secs": HUGE, "nanos": 999_999_999});
        all.push(json!({"SeatFilled": {"seat": 0, "incarnation": 2, "pid": pid, "took": took}}));
    }
    all
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
    let reports: Vec<String> = match role {
        "front" => ["\"MemoryAsked\"", "\"Figures\"", "{\"NotOpened\":{\"generation\":1}}"]
            .map(str::to_owned)
            .to_vec(),
        _ => vec![json!({"CacheFigures": {"figures": null}}).to_string()],
    };
    let mut said = 0;
    for at in 0..FLOOD {
        said += usize::from(way.say(reports[at % reports.len()].as_bytes()));
    }
    let nested = "[".repeat(LONGEST);
    for nonsense in [nested.as_bytes(), &[0xff; LONGEST], b"{}", b"\"Unknown\""] {
        said += usize::from(way.say(nonsense));
    }
    if let Some(pipe) = &way.pipe {
        let _ = rustix::io::write(pipe, &[0xff; 4096]);
    }
    said
}

fn linger(way: &SupervisorLink) -> Vec<TcpStream> {
    let mut deaf = Vec::new();
    for _ in 0..LINGERING_MESSAGES {
        let lingering: Vec<Lingering> =
            (0..LINGERING_EACH).flat_map(|_| Lingering::new()).collect();
        for end in [&way.socket, &way.pipe].into_iter().flatten() {
            let sent = hostile::send_lingering(end.as_fd(), b"\"MemoryAsked\"", &lingering);
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
        _ => panic!("compromised-front PID front|zygote linger|absurd|flood"),
    };
    let way = SupervisorLink::of(pid);
    if let Some(process) = Process::read(pid) {
        process.signal(Signal::STOP);
    }
    let mut deaf = Vec::new();
    match what {
        "linger" => deaf = linger(&way),
        "absurd" => {
            let _ = writeln!(io::stdout(), "{} reports were taken", absurd(&way, role));
        }
        _ => {
            let _ = writeln!(io::stdout(), "{} reports were taken", flood(&way, role));
        }
    }
    let _ = writeln!(io::stdout(), "done");
    let _ = io::stdout().flush();
    let _ = io::stdin().read_line(&mut String::new());
    drop(deaf);
}
