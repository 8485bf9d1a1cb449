//! What workers print when the server runs as php-fpm, beside php-fpm's own log of it; and what
//! becomes of a log without a reader, or on a full disk.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use maitred_tests::fpm::{Answer, Daemon, Params, Place, Which, usual};
use maitred_tests::guard::Guarded;
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{document_root, is_root};
use maitred_tests::wait;
use tempfile::TempDir;

const CAUGHT: &str = "catch_workers_output = yes\n";

/// Scripts that print what a request names.
fn scripts() -> TempDir {
    document_root(&[
        (
            "say.php",
            "<?php fwrite(fopen('php://' . ($_GET['to'] ?? 'stderr'), 'w'), $_GET['text']); \
             echo 'said';",
        ),
        (
            "bytes.php",
            "<?php fwrite(fopen('php://stderr', 'w'), \"a\\0b\\xff\\x1b[31m\\r\\n\\tc\\n\"); \
             echo 'said';",
        ),
        (
            "long.php",
            "<?php fwrite(fopen('php://stderr', 'w'), str_repeat('x', (int) $_GET['bytes']) . \
             \"\\n\"); echo 'said';",
        ),
        (
            "flood.php",
            "<?php $err = fopen('php://stderr', 'w');
             for ($i = 0; $i < (int) $_GET['lines'];
             $i++) fwrite($err, \"line $i of the flood\\n\");
             echo 'said';",
        ),
        (
            "endless.php",
            "<?php $err = fopen('php://stderr', 'w'); while (true) fwrite($err, \"on and on\\n\");",
        ),
        ("child.php", "<?php exec('printf \"of a child\\nand more\" >&2'); echo 'said';"),
        (
            "exit.php",
            "<?php fwrite(fopen('php://stderr', 'w'), 'half'); posix_kill(getmypid(), \
                      9);",
        ),
        ("hello.php", "<?php echo 'hello';"),
    ])
}

fn ask(place: &Place, root: &TempDir, target: &str) -> std::io::Result<Answer> {
    let params = Params::get(&root.path().display().to_string(), target);
    // What kills its worker is not tried again.
    let params = params.with("REQUEST_METHOD", "POST");
    place.listener("www.sock").ask(&params, b"")
}

fn said(daemon: &Daemon, root: &TempDir, target: &str) {
    let answer = ask(daemon.place(), root, target).unwrap();
    assert_eq!(answer.body(), "said", "{:?} {target}", daemon.which());
}

/// The lines of a log after `mark` without their times and process ids.
fn logged(daemon: &Daemon, mark: usize) -> Vec<String> {
    let lines = daemon.log().since(mark).into_iter();
    lines.map(|line| without_pid(&line)).collect()
}

fn without_pid(line: &str) -> String {
    let line = line.split_once("] ").map_or(
        line,
        |(time, rest)| {
            if time.contains(':') { rest } else { line }
        },
    );
    match line.split_once(" child ") {
        Some((before, rest)) => {
            let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
            format!("{before} child #{rest}")
        }
        None => line.to_owned(),
    }
}

/// The output of both for these requests, one after the other.
fn both_say(lines: &str, targets: &[&str]) -> [Vec<String>; 2] {
    let root = scripts();
    Which::BOTH.map(|which| {
        let mut daemon = Daemon::start(which, &usual(lines));
        let mark = daemon.log().mark();
        for target in targets {
            // A script that kills its worker is not answered by everybody.
            let _ = ask(daemon.place(), &root, target);
            wait_until_heard(&mut daemon, &root);
        }
        let heard = logged(&daemon, mark);
        daemon.stop();
        heard
            .into_iter()
            // A notification of systemd may come late.
            .filter(|line| !line.contains("HEARD") && !line.contains("systemd"))
            .collect()
    })
}

/// What came before has been logged when this has.
fn wait_until_heard(daemon: &mut Daemon, root: &TempDir) {
    let mark = daemon.log().mark();
    said(daemon, root, "/say.php?text=HEARD%0A");
    daemon.expect_log(mark, "HEARD");
}

#[test]
fn what_workers_print_is_logged_as_php_fpm_logs_it() {
    let targets = [
        "/say.php?text=one",
        "/say.php?text=one%0Atwo%0A%0Athree",
        "/say.php?text=%0A%0A",
        "/say.php?to=stdout&text=out%0A",
        "/say.php?to=stdout&text=no%20end",
        "/bytes.php",
        "/child.php",
        "/long.php?bytes=900",
        "/long.php?bytes=1023",
        "/long.php?bytes=1024",
        "/long.php?bytes=5000",
    ];
    for further in ["", "decorate_workers_output = no\n", "[global]\nlog_limit = 2048\n"] {
        let lines = [CAUGHT, further].concat();
        let [theirs, ours] = both_say(&lines, &targets);
        assert_eq!(ours, theirs, "{further}");
        assert!(ours.len() > targets.len(), "{ours:#?}");
    }
}

#[test]
fn a_line_of_a_megabyte_is_wrapped_and_nothing_of_it_is_missing() {
    const BYTES: usize = 1_000_000;
    let target = format!("/long.php?bytes={BYTES}");
    let [theirs, ours] = both_say(CAUGHT, &[&target]);
    let count = |lines: &[String]| -> usize {
        let parts = lines.iter().map(|line| line.matches("xx").count() * 2);
        parts.sum()
    };
    // A pair may be cut by the end of a line.
    assert!(count(&ours) >= BYTES - 2 * ours.len(), "{}", count(&ours));
    assert!(count(&theirs) >= BYTES - 2 * theirs.len());
    assert!(ours.iter().all(|line| line.len() <= 1024));
}

#[test]
fn what_is_not_caught_is_lost_and_harms_nobody() {
    let targets = ["/say.php?text=one", "/bytes.php", "/flood.php?lines=10000"];
    let root = scripts();
    for which in Which::BOTH {
        let daemon = Daemon::start(which, &usual(""));
        let mark = daemon.log().mark();
        for target in targets {
            said(&daemon, &root, target);
        }
        let lines = logged(&daemon, mark);
        let heard = lines.iter().any(|line| line.contains("child"));
        assert!(!heard, "{which:?} {lines:#?}");
        daemon.stop();
    }
}

#[test]
fn the_last_words_of_a_worker_that_was_killed_are_logged() {
    let [theirs, ours] = both_say(CAUGHT, &["/exit.php"]);
    let half = |lines: &[String]| -> Vec<String> {
        let lines = lines.iter().filter(|line| line.contains("half"));
        lines.cloned().collect()
    };
    let said = "WARNING: [pool www] child # said into stderr: \"half\"";
    assert_eq!(half(&ours), [format!("{said}, pipe is closed")]);
    // php-fpm says so only where it reads the words and the end at once.
    let theirs = half(&theirs);
    assert_eq!(theirs.len(), 1, "{theirs:#?}");
    assert!(theirs[0].starts_with(said), "{theirs:#?}");
}

#[test]
fn a_worker_that_floods_the_log_is_heard_to_its_end_while_others_answer() {
    const LINES: usize = 40_000;
    let root = scripts();
    let lines = [CAUGHT, "pm.max_children = 2\n"].concat();
    let daemon = Daemon::start(Which::Maitred, &usual(&lines));
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| said(&daemon, &root, &format!("/flood.php?lines={LINES}")));
        while !flood.is_finished() {
            let answer = ask(daemon.place(), &root, "/hello.php").unwrap();
            assert_eq!(answer.body(), "hello");
        }
    });
    wait::until_true("every line, or a word of those that we did not read", || {
        let heard = daemon.log().lines();
        heard.iter().map(|line| flood_lines(line)).sum::<usize>() == LINES
    });
    daemon.stop();
}

/// How many lines of the flood a line of the log stands for: itself, or those without a reader in
/// time.
fn flood_lines(line: &str) -> usize {
    let missing = line.split_once(" of the log were dropped here");
    let missing = missing.and_then(|(before, _)| before.rsplit(' ').nth(1)?.parse().ok());
    missing.unwrap_or_else(|| usize::from(line.contains("of the flood")))
}

#[test]
fn workers_that_print_without_end_hinder_neither_a_reload_nor_the_end() {
    const FLOODS: usize = 8;
    let root = scripts();
    let limits = format!("process_control_timeout = 1\n[www]\npm.max_children = {}\n", FLOODS + 1);
    let lines = [CAUGHT, "[global]\n", &limits].concat();
    let daemon = Daemon::start(Which::Maitred, &usual(&lines));
    std::thread::scope(|scope| {
        for _ in 0..FLOODS {
            // The reload ends them.
            scope.spawn(|| ask(daemon.place(), &root, "/endless.php"));
        }
        wait::until_true("all to print", || {
            let heard = daemon.log().lines();
            let who = heard.iter().filter(|line| line.contains("on and on"));
            let who = who.filter_map(|line| line.split_whitespace().nth(6));
            who.collect::<HashSet<_>>().len() == FLOODS
        });
        let answer = ask(daemon.place(), &root, "/hello.php").unwrap();
        assert_eq!(answer.body(), "hello");
        let old = daemon.workers("www");
        daemon.signal(Signal::USR2);
        wait::until_true("the old workers to go", || !old.iter().any(Process::is_running));
    });
    let answer = ask(daemon.place(), &root, "/hello.php").unwrap();
    assert_eq!(answer.body(), "hello");
    daemon.stop();
}

/// A server in the foreground whose standard error is this, once it answers.
fn start(place: &Place, root: &TempDir, lines: &str, stderr: impl Into<Stdio>) -> Guarded {
    let file = place.file("php-fpm.conf");
    fs::write(&file, place.fill_in(&usual(lines))).unwrap();
    let mut command = Which::Maitred.command();
    command.args(["-F", "-O", "-y"]).arg(&file);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    let server = Guarded::spawn(&mut command, Signal::TERM);
    wait::until("an answer", || ask(place, root, "/hello.php").ok());
    server
}

#[test]
fn a_log_that_nobody_reads_stops_nobody_and_who_reads_it_later_is_told_what_is_missing() {
    let (place, root) = (Place::default(), scripts());
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut server = start(&place, &root, CAUGHT, writer);
    // Far more than a pipe holds, twice: the worker writes, and the master has to read.
    for _ in 0..2 {
        let answer = ask(&place, &root, "/flood.php?lines=20000").unwrap();
        assert_eq!(answer.body(), "said");
    }
    // It handles signals, too: a reload without a reader.
    let before = Process::read(server.pid()).unwrap();
    before.signal(Signal::USR2);
    let answer = ask(&place, &root, "/flood.php?lines=20000").unwrap();
    assert_eq!(answer.body(), "said");
    let mut all = vec![0; 1 << 20];
    let mut text = String::new();
    // What is in the pipe, and what is written once there is room again.
    wait::until_true("a word of what is missing", || {
        let _ = ask(&place, &root, "/say.php?text=again%0A");
        let count = reader.read(&mut all).unwrap();
        text.push_str(&String::from_utf8_lossy(&all[..count]));
        text.contains(" of the log were dropped here: no reader took them")
    });
    assert!(text.contains("WARNING: "), "{text}");
    std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    assert!(server.stop().unwrap().success());
}

#[test]
fn a_log_that_nobody_reads_does_not_hinder_the_end() {
    let (place, root) = (Place::default(), scripts());
    let (reader, writer) = std::io::pipe().unwrap();
    let mut server = start(&place, &root, CAUGHT, writer);
    let answer = ask(&place, &root, "/flood.php?lines=20000").unwrap();
    assert_eq!(answer.body(), "said");
    assert!(server.stop().unwrap().success());
    drop(reader);
}

#[test]
fn a_disk_that_is_full_loses_the_log_and_nothing_else() {
    let (place, root) = (Place::default(), scripts());
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut server = start(&place, &root, CAUGHT, full);
    let answer = ask(&place, &root, "/flood.php?lines=20000").unwrap();
    assert_eq!(answer.body(), "said");
    assert_eq!(ask(&place, &root, "/hello.php").unwrap().body(), "hello");
    assert!(server.stop().unwrap().success());
}

#[test]
fn an_access_log_on_standard_error_is_that_of_the_start_though_it_comes_with_a_reload() {
    let root = scripts();
    for which in Which::BOTH {
        let place = Place::default();
        let file = place.file("php-fpm.conf");
        let lines = usual("[global]\nerror_log = @FOLDER@/error.log\n");
        fs::write(&file, place.fill_in(&lines)).unwrap();
        let mut command = which.command();
        command.args(["-F", "-y"]).arg(&file);
        command.stderr(File::create(place.file("stderr")).unwrap());
        let mut server = Guarded::spawn(&mut command, Signal::TERM);
        let read = |name: &str| fs::read_to_string(place.file(name)).unwrap_or_default();
        let ready = |times: usize| {
            let what = format!("{which:?} to be ready");
            wait::until_true(&what, || {
                let log = read("error.log");
                log.matches("ready to handle connections").count() == times
            });
        };
        ready(1);
        let more = "[www]\naccess.log = /dev/stderr\naccess.format = \"logged %r\"\n";
        fs::write(&file, place.fill_in(&[&lines, more].concat())).unwrap();
        Process::read(server.pid()).unwrap().signal(Signal::USR2);
        ready(2);
        assert_eq!(ask(&place, &root, "/hello.php").unwrap().body(), "hello");
        wait::until_true("a line", || {
            [read("stderr"), read("error.log")].concat().contains("logged /hello.php")
        });
        assert!(read("stderr").contains("logged /hello.php"), "{which:?}");
        let ended = server.stop();
        assert!(ended.is_some_and(|status| status.success()), "{which:?}");
    }
}

/// How many pipes the supervisor of a server that was started as php-fpm has.
fn pipes_of(daemon: &Daemon) -> usize {
    let fds = fs::read_dir(format!("/proc/{}/fd", daemon.pid()));
    let fds = fds.unwrap().flatten().flat_map(|fd| fs::read_link(fd.path()));
    fds.filter(|file| file.to_string_lossy().starts_with("pipe:")).count()
}

#[test]
fn a_zygote_that_names_a_worker_of_its_pool_as_another_one_leaves_no_pipe() {
    if !is_root() {
        return eprintln!("skipped: only root can take the place of a process");
    }
    let root = document_root(&[(
        "index.php",
        "<?php file_put_contents('php://stderr', \"it says so\\n\"); echo getmypid();",
    )]);
    let lines = "pm.max_children = 2\ncatch_workers_output = yes\n";
    let mut daemon = Daemon::start(Which::Maitred, &usual(lines));
    let params = Params::get(&root.path().display().to_string(), "/index.php");
    let ask = |daemon: &Daemon| daemon.listener().ask(&params, b"").unwrap();
    let process = |daemon: &Daemon, title: &str| {
        daemon.processes().into_iter().find(|process| process.title.contains(title))
    };
    wait::until_true("both workers", || daemon.workers("www").len() == 2);
    ask(&daemon);
    daemon.expect_log(0, "it says so");
    let pipes = pipes_of(&daemon);
    let mut workers = daemon.workers("www");
    workers.sort_by_key(|worker| worker.pid);
    let [named, killed] = &workers[..] else { panic!("two") };
    let zygote = process(&daemon, "zygote pool www").unwrap();
    let (zygote, named_pid) = (zygote.pid.to_string(), named.pid.to_string());
    let mut command = Command::new(env!("CARGO_BIN_EXE_compromised-front"));
    command.args([&zygote, "zygote", &named_pid]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut hostile = Guarded::spawn(&mut command, Signal::TERM);
    let said = BufReader::new(hostile.child().stdout.take().unwrap());
    let mut said = said.lines().map_while(Result::ok);
    assert!(said.any(|line| line == "done"));
    killed.signal(Signal::KILL);
    assert_eq!(said.next().as_deref(), Some("1 workers announced"));
    // The end of the worker waits for its output, which is read late.
    process(&daemon, "maitred: pipes").unwrap().signal(Signal::STOP);
    ask(&daemon);
    named.signal(Signal::KILL);
    daemon.expect_log(0, "the zygote of pool `www` is killed: it did not keep to the rules");
    wait::until_true("two other workers, and no more pipes than before", || {
        let workers = daemon.workers("www");
        workers.len() == 2 && !workers.contains(named) && pipes_of(&daemon) <= pipes
    });
    drop(hostile);
    daemon.stop();
}
