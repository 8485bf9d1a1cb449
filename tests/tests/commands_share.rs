//! How commands share processors, disks and memory with the workers of their pool.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

use std::process::Command;

use maitred_tests::jobs::{command, maitred, pids, running};
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{Server, Setup, document_root};
use maitred_tests::{Target, http, wait};
use serde_json::Value;
use tempfile::TempDir;

/// The fields of `/proc/PID/stat` with the nice value and the policy, counted from 1.
const NICE: usize = 19;
const POLICY: usize = 41;

/// Scheduling policies (sched(7)).
const NORMAL: i64 = 0;
const BATCH: i64 = 3;
const IDLE: i64 = 5;

const MB: f64 = 1024.0 * 1024.0;

fn stat(pid: i32, field: usize) -> i64 {
    let line = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = line.rsplit_once(')').unwrap();
    fields.split_whitespace().nth(field - 3).unwrap().parse().unwrap()
}

/// The nice value, the policy, and the priority at the disk.
fn priorities(server: &Server, name: &str) -> (i64, i64, String) {
    let pid = running(server, name, 1)[0];
    let disk = Command::new("ionice").args(["-p", &pid.to_string()]).output().unwrap();
    let disk = String::from_utf8(disk.stdout).unwrap().trim().to_owned();
    (stat(pid, NICE), stat(pid, POLICY), disk)
}

/// The nice value of the session of a process, where the kernel groups processes by session.
fn session_nice(pid: i32) -> Option<i64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/autogroup")).ok()?;
    Some(text.rsplit_once(' ')?.1.trim_end().parse().unwrap())
}

#[test]
fn commands_give_way_to_workers_as_configured() {
    let root = document_root(&[]);
    let sleeps = "command = [\"sleep\", \"1000\"]";
    // The session of the workers has no nice value, even where the server has one.
    let server = Setup::new(root.path())
        .under(&["nice", "-n", "5"])
        .pool(&command("default", &[sleeps]))
        .pool(&command("equal", &[sleeps, "cpu_weight = 100", "io = \"best-effort:1\""]))
        .pool(&command("idle", &[sleeps, "cpu_weight = 0", "io = \"idle\""]))
        .pool(&command("nice", &[sleeps, "process_priority = 17"]))
        .start();
    let worker = server.workers()[0].pid;
    let workers = stat(worker, NICE);
    let (nice, policy, _) = priorities(&server, "default");
    assert_eq!((nice, policy), ((workers + 18).min(19), BATCH));
    assert_eq!(priorities(&server, "equal"), (workers, NORMAL, "best-effort: prio 1".to_owned()));
    let idle = ((workers + 19).min(19), IDLE, "idle".to_owned());
    assert_eq!(priorities(&server, "idle"), idle);
    let (nice, policy, _) = priorities(&server, "nice");
    assert_eq!((nice, policy), (17, BATCH));
    if let Some(of_workers) = session_nice(worker) {
        let of = |name: &str| session_nice(running(&server, name, 1)[0]).unwrap() - of_workers;
        assert_eq!((of("default"), of("equal"), of("idle"), of("nice")), (18, 0, 19, 17));
    }
    server.stop();
}

fn status(server: &Server) -> Value {
    let output = maitred(server, &["status", "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    status["pools"][0].clone()
}

#[test]
fn a_pool_that_finds_its_size_leaves_processors_and_memory_to_its_commands() {
    let root = document_root(&[("index.php", "<?php usleep(200_000); echo 'done';")]);
    let busy = "command = [\"php\", \"-d\", \"memory_limit=-1\", \"-r\", \
                \"$a = str_repeat('x', 200 << 20); touch('grown'); while (true) { md5('x'); }\"]";
    let dir = document_root(&[]);
    maitred_tests::server::give_to_web_user(dir.path());
    let dir = format!("dir = {:?}", dir.path());
    let server = Setup::new(root.path())
        .pm("auto")
        .workers(8)
        .pool(&command("busy", &[busy, "cpu_weight = 100", "processes = 2", &dir]))
        .start();
    let machine = std::thread::available_parallelism().unwrap().get() as f64;
    // The capacity is read every other second while more than one worker is there.
    let of = |beside: &Value, name: &str| beside[name].as_f64().unwrap_or(0.0);
    let left = wait::until_within("processors and memory to be left", wait::DEADLINE * 2, || {
        let requests: Vec<_> = (0..3)
            .map(|_| {
                let address = server.address();
                std::thread::spawn(move || http::get(address, "/").status)
            })
            .collect();
        assert!(requests.into_iter().all(|request| request.join().unwrap() == 200));
        let pool = status(&server);
        let beside = pool["beside"].clone();
        let is_left = of(&beside, "memory_bytes") > 390.0 * MB && of(&beside, "cores") > 0.1;
        (is_left && of(&pool["size"], "cores") < machine - 0.1).then_some(beside)
    });
    assert!(of(&left, "used_cores") >= of(&left, "cores") - 0.001, "{left}");
    let text = maitred(&server, &["status", "www"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("more are left to them"), "{text}");

    // One that begins again will need what it had.
    let first = pids(&server, "busy")[0];
    Process::read(first).unwrap().signal(Signal::STOP);
    Process::read(first).unwrap().signal(Signal::KILL);
    wait::until_true("its memory to be left free, or in use again", || {
        let _ = http::get(server.address(), "/");
        let beside = status(&server)["beside"].clone();
        let together = of(&beside, "memory_bytes") + of(&beside, "growth_bytes");
        !pids(&server, "busy").contains(&first) && together > 390.0 * MB
    });
    server.stop();
}

#[test]
fn the_number_of_processes_follows_what_the_probe_prints_and_stays_when_it_fails() {
    let root = document_root(&[]);
    let folder = document_root(&[("length", "35\n")]);
    let length = folder.path().join("length");
    let write = |text: &str| std::fs::write(&length, text).unwrap();
    let queue = [
        "command = [\"sleep\", \"1000\"]",
        "processes = \"auto\"",
        "probe = [\"sh\", \"-c\", \"cat length; { read x < wait; } 2> /dev/null || true\"]",
        "probe_interval = \"1s\"",
        "min_processes = 1",
        "max_processes = 5",
        &format!("dir = {:?}", folder.path()),
    ];
    let server = setup_with(&root, &queue).start();
    let first = running(&server, "queue", 4);
    write("nonsense");
    server.expect_log(
        0,
        "its probe printed \"nonsense\"; its last line has to be a number; it stays",
    );
    write("99");
    server.expect_log(0, "its probe prints the length of the queue again");
    running(&server, "queue", 5);
    // An upgrade and a reload leave the number as it is.
    let mark = server.log().mark();
    server.signal(Signal::USR2);
    server.expect_log(mark, "upgraded to");
    let now = running(&server, "queue", 5);
    assert!(first.iter().all(|pid| now.contains(pid)), "{first:?} {now:?}");
    assert!(maitred(&server, &["reload", "www"]).status.success(), "{}", server.log_text());
    wait::until_true("other processes", || {
        let others = pids(&server, "queue");
        others.len() == 5 && !others.iter().any(|pid| now.contains(pid))
    });
    // Another bound holds at once.
    let fewer = queue.map(|line| if line.starts_with("max") { "max_processes = 2" } else { line });
    server.configure(&setup_with(&root, &fewer));
    server.reload();
    running(&server, "queue", 2);
    // A probe that does not end is killed, with the server's stop as well.
    let pipe = Command::new("mkfifo").arg(folder.path().join("wait")).status();
    assert!(pipe.is_ok_and(|status| status.success()));
    server.expect_log(0, "its probe printed no number within 10 s");
    server.stop();
}

fn setup_with(root: &TempDir, lines: &[&str]) -> Setup {
    Setup::new(root.path()).pool(&command("queue", lines))
}
