//! The processes that a script has started: they end with a script that is terminated or crashes,
//! and stay when it has finished.

use maitred_tests::http;
use maitred_tests::server::{Setup, document_root};
use maitred_tests::{Target, wait};
use tempfile::TempDir;

/// Commands that run in the scripts below, with a number that only this test uses.
const JOB: &str = "3100471";
const OPENED: &str = "3200471";
const IN_SHELL: &str = "3300471";
const OF_CRASH: &str = "3400471";
const DAEMON: &str = "3500471";

fn site() -> TempDir {
    document_root(&[
        ("pid.php", "<?php echo getmypid();"),
        ("job.php", &format!("<?php exec('sleep {JOB} > /dev/null 2>&1 &'); echo 'done';")),
        (
            // The start of a process is known to a hundredth of a second.
            "hangs.php",
            &format!(
                "<?php usleep(50000); $own = proc_open(['sleep', '{OPENED}'], [], $pipes);
                exec('setsid sleep {DAEMON} > /dev/null 2>&1 &'); shell_exec('sleep {IN_SHELL} &');"
            ),
        ),
        (
            "crashes.php",
            &format!(
                "<?php usleep(50000); exec('sleep {OF_CRASH} > /dev/null 2>&1 &');
                posix_kill(getmypid(), SIGSEGV); sleep(10);"
            ),
        ),
    ])
}

/// Whether `sleep` runs with this number.
fn sleeps(number: &str) -> bool {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let lines = entries.map(|entry| entry.path().join("cmdline"));
    let wanted = format!("sleep\0{number}\0");
    lines.filter_map(|line| std::fs::read(line).ok()).any(|line| line == wanted.as_bytes())
}

#[test]
fn processes_of_a_terminated_or_crashed_script_end_with_it_and_jobs_of_finished_ones_stay() {
    let root = site();
    let setup = Setup::new(root.path()).workers(1);
    let server = setup.pool("request_terminate_timeout = \"1s\"").start();
    let address = server.address();
    let worker = http::get(address, "/pid.php").text();
    assert_eq!(http::get(address, "/job.php").text(), "done");
    assert!(sleeps(JOB));
    assert_eq!(http::get(address, "/pid.php").text(), worker, "one worker runs all of them");
    let mark = server.log().mark();
    assert!(http::get(address, "/hangs.php").status >= 500);
    server.expect_log(mark, &format!("the script of worker {worker} was ended with 2 processes"));
    wait::until_true("the processes to end", || !sleeps(OPENED) && !sleeps(IN_SHELL));
    assert!(sleeps(JOB) && sleeps(DAEMON), "they were started to stay");
    let mark = server.log().mark();
    assert!(http::get(address, "/crashes.php").status >= 500);
    server.expect_log(mark, "was ended with a process that it had started");
    wait::until_true("the process to end", || !sleeps(OF_CRASH));
    assert!(sleeps(JOB), "another worker's script had started it");
    server.stop();
    wait::until_true("all of them to end with the server", || !sleeps(JOB) && !sleeps(DAEMON));
}
