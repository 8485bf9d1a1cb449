//! Schedules of a server that was away, and of several servers.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use maitred_tests::processes::Signal;
use maitred_tests::redis::Redis;
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user, public_folder};
use maitred_tests::wait;

/// Runs of a schedule of which at least this many are looked at.
const RUNS: usize = 6;

/// Longer than the log has for a claim.
const PATIENCE: Duration = Duration::from_secs(30);

fn schedule(name: &str, lines: &[&str]) -> String {
    format!("\n[[pools.www.schedules]]\nname = \"{name}\"\n{}", lines.join("\n"))
}

/// The file with the last runs.
fn last_runs(state: &Path) -> PathBuf {
    let files = fs::read_dir(state.join("schedules")).expect("the folder is there");
    let files: Vec<PathBuf> = files.map(|entry| entry.expect("an entry").path()).collect();
    let [file] = files.try_into().expect("one file");
    file
}

fn said(server: &Server, text: &str) -> usize {
    server.log().lines().iter().filter(|line| line.contains(text)).count()
}

/// Waits for two runs of a schedule that is due each second.
fn await_ticks(server: &Server) {
    wait::until_true("ticks", || said(server, "schedule tick: a tick") >= 2);
}

#[test]
fn a_run_that_was_missed_is_made_up_once_where_the_schedule_says_so() {
    let root = document_root(&[]);
    let yearly = "cron = \"0 0 1 1 *\"";
    let server = Setup::new(root.path())
        .pool(&schedule("once", &["command = [\"echo\", \"late\"]", yearly, "missed = \"once\""]))
        .pool(&schedule("skip", &["command = [\"echo\", \"late\"]", yearly]))
        .pool(&schedule("tick", &["command = [\"echo\", \"a tick\"]", "every = \"1s\""]))
        .start();
    await_ticks(&server);
    assert_eq!(said(&server, ": late"), 0, "a new schedule has missed nothing");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let long_ago = now - 800 * 24 * 3600;
    let server = server.restart(|state| {
        let text = fs::read_to_string(last_runs(state)).unwrap();
        assert!(text.starts_with("{\"www/once\":"), "{text}");
        fs::write(last_runs(state), format!("{{\"www/once\":{long_ago}}}")).unwrap();
    });
    server.expect_log(0, "schedule once: late");
    await_ticks(&server);
    assert_eq!((said(&server, "once: late"), said(&server, "skip: late")), (1, 0));
    let server = server.restart(|_| {});
    await_ticks(&server);
    assert_eq!(said(&server, ": late"), 0, "it was made up");
    let server = server.restart(|state| fs::write(last_runs(state), "{\"www/once\":1").unwrap());
    server.expect_log(0, "the last runs of schedules cannot be read from");
    await_ticks(&server);
    assert_eq!(said(&server, ": late"), 0);
    server.stop();
}

#[test]
fn a_run_for_one_node_begins_on_one_of_two_and_on_none_without_redis() {
    let redis = Redis::start();
    let (root, folder) = (document_root(&[]), public_folder());
    give_to_web_user(folder.path());
    let runs = folder.path().join("runs");
    let script = format!("echo $MAITRED_DUE >> {}", runs.display());
    let command = format!("command = [\"sh\", \"-c\", \"{script}\"]");
    let node = |name: &str| {
        let log = format!(
            "purge_log = {{ node = \"{name}\", url = \"unix:{}\", timeout = \"500ms\" }}",
            redis.socket().display()
        );
        let lines = [command.as_str(), "every = \"1s\"", "one_node = true"];
        Setup::new(root.path()).top(&log).pool(&schedule("tick", &lines)).start()
    };
    let nodes = [node("n1"), node("n2")];
    let count = || fs::read_to_string(&runs).unwrap_or_default().lines().count();
    let claims = || {
        let keys = redis.cli(&["--raw", "KEYS", "*runs:www/tick:*"]);
        keys.lines().filter(|line| !line.is_empty()).count()
    };
    wait::until_true("runs", || count() >= RUNS);
    // A claim comes before its run.
    let (begun, claimed) = (count(), claims());
    assert!(begun <= claimed, "{begun} runs of {claimed}");

    redis.signal(Signal::STOP);
    let why = "schedule tick is left out, since the purge log does not say which node runs it";
    for node in &nodes {
        wait::until_within("the log to be missed", PATIENCE, || {
            (said(node, why) == 1).then_some(())
        });
    }
    let before = count();
    redis.signal(Signal::CONT);
    wait::until_true("runs", || count() >= before + RUNS);
    for node in &nodes {
        node.expect_log(0, "schedules with `one_node` run again, on one node each");
    }
    for node in nodes {
        node.stop();
    }
    let text = fs::read_to_string(&runs).unwrap();
    let mut due: Vec<&str> = text.lines().collect();
    due.sort_unstable();
    due.dedup();
    assert_eq!(due.len(), count(), "no run was on both nodes: {text}");
    assert!(due.len() <= claims(), "{} runs of {}", due.len(), claims());
}
