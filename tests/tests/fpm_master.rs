//! The master that is started as php-fpm: its signals, and the lines that monitoring looks for.
//! The common behaviour is checked with Debian's php-fpm, too.

use std::fs;
use std::io;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use maitred_tests::fpm::{Answer, Daemon, Listener, Params, Place, Which, usual};
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::document_root;
use maitred_tests::wait;
use tempfile::TempDir;

const RELOADED: &str = "ready to handle connections";

/// Scripts that say where they run, and take their time.
fn scripts() -> TempDir {
    document_root(&[
        ("hello.php", "<?php echo 'hello';"),
        ("pid.php", "<?php echo getmypid();"),
        ("slow.php", "<?php usleep(1000 * $_GET['ms']); echo 'done';"),
    ])
}

fn ask(listener: &Listener, root: &TempDir, target: &str) -> io::Result<Answer> {
    listener.ask(&Params::get(&root.path().display().to_string(), target), b"")
}

fn body(listener: &Listener, root: &TempDir, target: &str) -> String {
    ask(listener, root, target).expect("an answer").body()
}

/// Asks for a script that takes `millis`, and returns when it runs. A POST is never tried again.
fn run_slowly(daemon: &Daemon, root: &TempDir, millis: u32) -> JoinHandle<io::Result<Answer>> {
    let folder = root.path().display().to_string();
    let params = Params::get(&folder, &format!("/slow.php?ms={millis}"));
    let params = params.with("REQUEST_METHOD", "POST");
    let listener = daemon.listener();
    let asked = thread::spawn(move || listener.ask(&params, b""));
    let text = format!("ms={millis}");
    wait::until_true("the script to run", || busy(daemon, root).contains(&text));
    asked
}

/// What the pool's status page says of its processes.
fn busy(daemon: &Daemon, root: &TempDir) -> String {
    let mut params = Params::get(&root.path().display().to_string(), "/status?full");
    params.set("SCRIPT_FILENAME", "/status");
    let listener = daemon.place().listener("status.sock");
    listener.ask(&params, b"").map(|answer| answer.body()).unwrap_or_default()
}

const STATUS: &str = "pm.status_path = /status\npm.status_listen = @FOLDER@/status.sock\n";

fn reload(daemon: &mut Daemon, signal: Signal) {
    let mark = daemon.log().mark();
    daemon.signal(signal);
    daemon.expect_log(mark, RELOADED);
}

#[test]
fn sigterm_ends_everything_at_once_and_sigint_too() {
    let root = scripts();
    for which in Which::BOTH {
        for signal in [Signal::TERM, Signal::INT] {
            let daemon = Daemon::start(which, &usual(STATUS));
            let running = run_slowly(&daemon, &root, 300_000);
            let log = daemon.log().clone();
            let mark = log.mark();
            let begun = Instant::now();
            let status = daemon.stop_with(signal);
            assert!(status.success(), "{which:?}: {status}");
            assert!(begun.elapsed() < wait::DEADLINE, "{which:?} waited");
            let answer = running.join().expect("the client does not panic");
            let done = answer.is_ok_and(|answer| answer.body() == "done");
            assert!(!done, "{which:?} waited for the script");
            let lines = log.since(mark).join("\n");
            assert!(lines.contains("NOTICE: Terminating ..."), "{lines}");
            assert!(lines.ends_with("NOTICE: exiting, bye-bye!"), "{lines}");
            // The front may have the time to tell of the request that was cut.
            let is_of_it = |line: &&str| line.contains("The worker died while it ran the script");
            let others = lines.lines().filter(|line| !is_of_it(line)).count();
            assert_eq!(others, 2, "{lines}");
        }
    }
}

#[test]
fn sigquit_waits_for_what_runs_though_nobody_set_a_time() {
    let root = scripts();
    let daemon = Daemon::start(Which::Maitred, &usual(STATUS));
    let running = run_slowly(&daemon, &root, 2_000);
    let log = daemon.log().clone();
    let start = log.lines().join("\n");
    let pid = daemon.pid();
    assert!(start.contains(&format!("NOTICE: fpm is running, pid {pid}\n")), "{start}");
    let mark = log.mark();
    // A further one changes nothing.
    daemon.signal(Signal::QUIT);
    let status = daemon.stop_with(Signal::QUIT);
    assert!(status.success(), "{status}");
    let answer = running.join().expect("the client does not panic");
    assert_eq!(answer.expect("an answer").body(), "done");
    let lines = log.since(mark).join("\n");
    assert!(lines.contains("NOTICE: Finishing ..."), "{lines}");
    assert!(lines.ends_with("NOTICE: exiting, bye-bye!"), "{lines}");
}

#[test]
fn sigterm_hurries_a_graceful_stop() {
    let root = scripts();
    let mut daemon = Daemon::start(Which::Maitred, &usual(STATUS));
    let running = run_slowly(&daemon, &root, 300_000);
    let mark = daemon.log().mark();
    daemon.signal(Signal::QUIT);
    daemon.expect_log(mark, "Finishing ...");
    let status = daemon.stop_with(Signal::TERM);
    assert!(status.success(), "{status}");
    let answer = running.join().expect("the client does not panic");
    assert!(answer.map_or(true, |answer| answer.body() != "done"));
}

#[test]
fn sigusr1_opens_logs_again_and_restarts_no_worker() {
    let root = scripts();
    let mut daemon = Daemon::start(Which::Maitred, &usual("access.log = @FOLDER@/access.log\n"));
    let before = daemon.workers("www");
    let mark = daemon.log().mark();
    daemon.signal(Signal::USR1);
    daemon.expect_log(mark, "NOTICE: error log file re-opened");
    daemon.expect_log(mark, "NOTICE: access log file re-opened");
    assert_eq!(body(&daemon.listener(), &root, "/hello.php"), "hello");
    assert_eq!(daemon.workers("www"), before);
    daemon.stop();
}

#[test]
fn a_reload_is_told_as_php_fpm_tells_it_and_the_pid_stays() {
    let root = scripts();
    for which in Which::BOTH {
        for signal in [Signal::USR2, Signal::HUP] {
            let mut daemon = Daemon::start(which, &usual("listen = @PORT1@\n"));
            let listener = daemon.place().listener("@PORT1@");
            let first = body(&listener, &root, "/pid.php");
            let (pid, mark) = (daemon.pid(), daemon.log().mark());
            reload(&mut daemon, signal);
            let lines = daemon.said(mark);
            let expected = [
                "NOTICE: Reloading in progress ...",
                "NOTICE: reloading: execvp(",
                "NOTICE: using inherited socket fd=#, \"#.#.#.#:#\"",
                "NOTICE: fpm is running, pid #",
                "NOTICE: ready to handle connections",
            ];
            // A bare port is any address of both families.
            let expected = expected.map(|line| line.replace("\"#.#.#.#:#\"", "\":::#\""));
            for (line, expected) in lines.iter().zip(&expected) {
                assert!(line.starts_with(expected), "{which:?}: {lines:#?}");
            }
            assert_eq!(daemon.pid(), pid);
            let second = body(&listener, &root, "/pid.php");
            assert_ne!(first, second, "{which:?} kept a worker");
            daemon.stop();
        }
    }
}

#[test]
fn many_reloads_at_once_are_few_and_the_last_configuration_counts() {
    let root = scripts();
    let place = Place::default();
    let mut daemon = Daemon::start_with(Which::Maitred, &usual(""), place, &[]);
    let mark = daemon.log().mark();
    for number in 0..25 {
        let text = usual(&format!("env[NUMBER] = number-{number}\n"));
        fs::write(daemon.place().file("php-fpm.conf"), daemon.place().fill_in(&text))
            .expect("a file can be written");
        daemon.signal(Signal::USR2);
        thread::sleep(Duration::from_millis(number));
    }
    fs::write(root.path().join("number.php"), "<?php echo getenv('NUMBER');").expect("written");
    wait::until_true("the last configuration to be used", || {
        body(&daemon.listener(), &root, "/number.php") == "number-24"
    });
    let done = |daemon: &Daemon| {
        let lines = daemon.said(mark);
        lines.iter().filter(|line| line.contains(RELOADED)).count()
    };
    assert!(done(&daemon) < 25);
    // The new workers answer before the reload that brings them is over.
    daemon.expect_log(mark, RELOADED);
    let mark = daemon.log().mark();
    daemon.signal(Signal::USR2);
    daemon.expect_log(mark, "Reloading in progress");
    daemon.expect_log(mark, RELOADED);
    daemon.stop();
}

#[test]
fn a_reload_cuts_no_request_though_nobody_set_a_time() {
    let root = scripts();
    let mut daemon =
        Daemon::start(Which::Maitred, &usual(&format!("{STATUS}pm.max_children = 4\n")));
    let running = run_slowly(&daemon, &root, 3_000);
    let listener = daemon.listener();
    let folder = root.path().display().to_string();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (listener, folder, stop) = (listener.clone(), folder.clone(), stop.clone());
            thread::spawn(move || {
                let mut asked = 0;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let answer = listener.ask(&Params::get(&folder, "/hello.php"), b"");
                    assert_eq!(answer.expect("no request is lost").body(), "hello");
                    asked += 1;
                }
                asked
            })
        })
        .collect();
    for _ in 0..3 {
        reload(&mut daemon, Signal::USR2);
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    for client in clients {
        assert!(client.join().expect("a client does not panic") > 0);
    }
    let answer = running.join().expect("the client does not panic");
    assert_eq!(answer.expect("an answer").body(), "done");
    daemon.stop();
}

#[test]
fn a_wrong_configuration_changes_nothing() {
    let root = scripts();
    let mut daemon = Daemon::start(Which::Maitred, &usual(""));
    let first = body(&daemon.listener(), &root, "/pid.php");
    let file = daemon.place().file("php-fpm.conf");
    let good = fs::read_to_string(&file).expect("it was written");
    fs::write(&file, format!("{good}pm.max_children = none\nnonsense = 1\n")).expect("written");
    let mark = daemon.log().mark();
    daemon.signal(Signal::USR2);
    daemon.expect_log(mark, "ERROR: the reload is refused, and every pool goes on as it was");
    assert_eq!(body(&daemon.listener(), &root, "/pid.php"), first);
    fs::write(&file, good).expect("written");
    reload(&mut daemon, Signal::USR2);
    assert_ne!(body(&daemon.listener(), &root, "/pid.php"), first);
    daemon.stop();
}

#[test]
fn the_death_of_a_worker_and_its_successor_are_told() {
    for which in Which::BOTH {
        for (signal, name) in [(Signal::SEGV, "11 (SIGSEGV"), (Signal::KILL, "9 (SIGKILL")] {
            let mut daemon = Daemon::start(which, &usual(""));
            let worker = wait::until("a worker", || daemon.workers("www").pop());
            let mark = daemon.log().mark();
            worker.signal(signal);
            let said = format!("WARNING: [pool www] child {} exited on signal {name}", worker.pid);
            let line = daemon.expect_log(mark, &said);
            assert!(line.ends_with(" seconds from start"), "{line}");
            daemon.expect_log(mark, "NOTICE: [pool www] child ");
            let line = daemon.expect_log(mark, " started");
            assert!(line.contains("NOTICE: [pool www] child "), "{line}");
            daemon.stop();
        }
    }
}

#[test]
fn a_worker_that_has_served_its_requests_alarms_nobody() {
    let root = scripts();
    for which in Which::BOTH {
        let mut daemon = Daemon::start(which, &usual("pm.max_requests = 2\n"));
        let mark = daemon.log().mark();
        for _ in 0..4 {
            assert_eq!(body(&daemon.listener(), &root, "/hello.php"), "hello");
        }
        let line = daemon.expect_log(mark, "exited with code 0 after");
        assert!(line.contains("NOTICE: [pool www] child "), "{line}");
        let line = daemon.expect_log(mark, " started");
        assert!(line.contains("NOTICE: [pool www] child "), "{line}");
        daemon.stop();
    }
}

#[test]
fn a_script_that_runs_too_long_is_told_with_its_request_and_its_worker() {
    let root = scripts();
    for which in Which::BOTH {
        let mut daemon = Daemon::start(which, &usual("request_terminate_timeout = 1\n"));
        let mark = daemon.log().mark();
        let answer = ask(&daemon.listener(), &root, "/slow.php?ms=60000");
        assert!(answer.map_or(true, |answer| answer.body() != "done"));
        let line = daemon.expect_log(mark, "execution timed out (");
        let script = root.path().join("slow.php");
        let said = format!(
            ", script '{}' (request: \"GET /slow.php?ms=60000\") execution timed out (",
            script.display()
        );
        assert!(line.contains("WARNING: [pool www] child ") && line.contains(&said), "{line}");
        assert!(line.ends_with(" sec), terminating"), "{line}");
        let line = daemon.expect_log(mark, "exited on signal 15 (SIGTERM) after");
        assert!(line.contains("WARNING: [pool www] child "), "{line}");
        daemon.expect_log(mark, " started");
        daemon.stop();
    }
}

#[test]
fn a_pool_that_has_reached_its_limit_is_told_in_the_words_of_its_kind() {
    let root = scripts();
    let dynamic = "pm = dynamic\npm.start_servers = 1\npm.min_spare_servers = 1\n\
                   pm.max_spare_servers = 1\n";
    for which in Which::BOTH {
        let kinds = [(dynamic, "pm.max_children"), ("pm = ondemand\n", "max_children")];
        for (kind, setting) in kinds {
            // php-fpm looks there only when a connection comes after its last worker.
            if which == Which::PhpFpm && kind != dynamic {
                continue;
            }
            let mut daemon = Daemon::start(which, &usual(&format!("{kind}{STATUS}")));
            let mark = daemon.log().mark();
            let folder = root.path().display().to_string();
            let clients: Vec<_> = (0..3)
                .map(|_| {
                    let (listener, folder) = (daemon.listener(), folder.clone());
                    thread::spawn(move || {
                        listener.ask(&Params::get(&folder, "/slow.php?ms=1500"), b"")
                    })
                })
                .collect();
            let said = format!(
                "WARNING: [pool www] server reached {setting} setting (1), consider raising it"
            );
            daemon.expect_log(mark, &said);
            for client in clients {
                let answer = client.join().expect("a client does not panic");
                assert_eq!(answer.expect("an answer").body(), "done", "{which:?}");
            }
            daemon.stop();
        }
    }
}

#[test]
fn workers_that_crash_one_after_the_other_begin_a_reload() {
    for which in Which::BOTH {
        let mut daemon = Daemon::start(
            which,
            &format!(
                "[global]\nemergency_restart_threshold = 2\nemergency_restart_interval = 1m\n{}",
                usual("")
            ),
        );
        let mark = daemon.log().mark();
        for _ in 0..2 {
            let mark = daemon.log().mark();
            let worker = wait::until("a worker", || daemon.workers("www").pop());
            worker.signal(Signal::SEGV);
            daemon.expect_log(mark, "exited on signal 11");
        }
        let said =
            "WARNING: failed processes threshold (2 in 60 sec) is reached, initiating reload";
        daemon.expect_log(mark, said);
        daemon.expect_log(mark, "NOTICE: reloading: execvp(");
        daemon.expect_log(mark, RELOADED);
        daemon.stop();
    }
}

#[test]
fn pools_share_what_process_max_leaves_them() {
    let root = scripts();
    let mut daemon = Daemon::start(
        Which::Maitred,
        &format!(
            "[global]\nprocess.max = 4\n{}pm.max_children = 8\n[other]\n\
             listen = @FOLDER@/other.sock\n\
             pm = static\npm.max_children = 8\n{}",
            usual(""),
            match maitred_tests::server::is_root() {
                true => "user = www-data\n",
                false => "",
            }
        ),
    );
    let all = |daemon: &Daemon| (daemon.workers("www").len(), daemon.workers("other").len());
    // It serves when each pool has its first worker.
    wait::until_true("two workers of each", || all(&daemon) == (2, 2));
    daemon.expect_log(
        0,
        "WARNING: The maximum number of processes has been reached. Please review your \
         configuration and consider raising 'process.max'",
    );
    assert_eq!(body(&daemon.listener(), &root, "/hello.php"), "hello");
    let other = daemon.place().listener("other.sock");
    assert_eq!(body(&other, &root, "/hello.php"), "hello");
    assert_eq!(all(&daemon), (2, 2), "there are more by now");
    daemon.stop();
}

#[test]
fn a_pool_at_rest_rests_through_a_reload_and_answers_afterwards() {
    let root = scripts();
    let mut daemon = Daemon::start(Which::Maitred, &usual("pm = ondemand\n"));
    reload(&mut daemon, Signal::USR2);
    assert_eq!(daemon.workers("www"), [], "there was no request");
    assert_eq!(body(&daemon.listener(), &root, "/hello.php"), "hello");
    daemon.stop();
}

#[test]
fn a_worker_that_ignores_signals_is_killed_when_process_control_timeout_is_over() {
    let root = scripts();
    let text = format!("[global]\nprocess_control_timeout = 1\n{}", usual(STATUS));
    let mut daemon = Daemon::start(Which::Maitred, &text);
    let running = run_slowly(&daemon, &root, 300_000);
    let old = daemon.workers("www");
    reload(&mut daemon, Signal::USR2);
    wait::until_true("the old worker to go", || !old.iter().any(Process::is_running));
    let answer = running.join().expect("the client does not panic");
    assert!(answer.map_or(true, |answer| answer.body() != "done"));
    assert_eq!(body(&daemon.listener(), &root, "/hello.php"), "hello");
    daemon.stop();
}

#[test]
fn a_reload_brings_pools_takes_pools_and_changes_the_level_of_the_log() {
    let root = scripts();
    let mut daemon = Daemon::start(Which::Maitred, &usual(""));
    let file = daemon.place().file("php-fpm.conf");
    let good = fs::read_to_string(&file).expect("it was written");
    let user = match maitred_tests::server::is_root() {
        true => "user = www-data\n",
        false => "",
    };
    let other = daemon.place().file("other.sock");
    let more = format!(
        "[other]\nlisten = {}\npm = ondemand\npm.max_children = 1\n{user}[global]\n\
         log_level = debug\n",
        other.display()
    );
    fs::write(&file, format!("{good}{more}")).expect("written");
    let mark = daemon.log().mark();
    reload(&mut daemon, Signal::USR2);
    let listener = daemon.place().listener("other.sock");
    assert_eq!(body(&listener, &root, "/hello.php"), "hello");
    daemon.expect_log(mark, " DEBUG: ");
    fs::write(&file, good).expect("written");
    reload(&mut daemon, Signal::USR2);
    wait::until_true("the other pool to go", || listener.try_connect().is_err());
    assert!(!other.exists(), "its socket stayed");
    assert_eq!(body(&daemon.listener(), &root, "/hello.php"), "hello");
    daemon.stop();
}
