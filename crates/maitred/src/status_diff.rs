//! `maitred diff`: what is different between two saved statuses, as a check after a deploy.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use maitred_control::admin::{PoolStatus, Reply, Request, ServerStatus};
use maitred_text::humanize::{bytes, compact_time, percent};

use crate::client::{Client, UNEXPECTED};
use crate::command::Reach;
use crate::exit_code::{EXIT_SUCCESS, fail, print_line, refuse};

/// Exit code if something is worse.
const EXIT_WORSE: u8 = 3;

/// Scripts are slower if their p99 is this many times what it was, and by this much, in seconds.
const SLOWER: f64 = 1.5;
const SLOWER_BY: f64 = 0.01;

/// Memory has grown if it is this many times what it was, and by this much, in bytes.
const GROWN: f64 = 1.5;
const GROWN_BY: f64 = 64.0 * 1024.0 * 1024.0;

/// Largest file with a status, in bytes.
const MAX_STATUS_BYTES: u64 = 64 << 20;

/// Arguments of `maitred diff`.
#[derive(Debug, Args)]
pub struct StatusDiff {
    /// A saved status: the output of `maitred status --json`
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// A later one
    ///
    /// [default: that of the running server]
    #[arg(value_name = "AFTER")]
    after: Option<PathBuf>,
    #[command(flatten)]
    reach: Reach,
}

/// What is different.
#[derive(Debug, Default, PartialEq, Eq)]
struct Differences {
    /// All of it, a line each.
    lines: Vec<String>,
    /// Whether something is worse.
    is_worse: bool,
}

/// Compares two statuses, and prints what is different.
pub fn diff(asked: &StatusDiff) -> ExitCode {
    let before = match read(&asked.before) {
        Ok(before) => before,
        Err(why) => return refuse(&why),
    };
    let after = match &asked.after {
        Some(file) => match read(file) {
            Ok(after) => after,
            Err(why) => return refuse(&why),
        },
        None => match running(&asked.reach) {
            Ok(after) => after,
            Err(why) => return fail(&why),
        },
    };
    let found = compare(&before, &after);
    if found.lines.is_empty() {
        print_line("nothing is different");
    }
    found.lines.iter().for_each(|line| print_line(line));
    ExitCode::from(if found.is_worse { EXIT_WORSE } else { EXIT_SUCCESS })
}

fn read(file: &Path) -> Result<ServerStatus, String> {
    let name = file.display();
    let size = std::fs::metadata(file).map_or(0, |found| found.len());
    if size > MAX_STATUS_BYTES {
        return Err(format!("{name} has {size} bytes; expected at most {MAX_STATUS_BYTES}"));
    }
    let text = std::fs::read(file).map_err(|error| format!("{name} cannot be read: {error}"))?;
    serde_json::from_slice(&text).map_err(|error| {
        format!("{name} is no status ({error}); write one with `maitred status --json > {name}`")
    })
}

fn running(reach: &Reach) -> Result<ServerStatus, String> {
    match Client::reach(reach)?.ask(&Request::Status { pool: None })? {
        Reply::Status(status) => Ok(*status),
        Reply::Refused { why } => Err(why),
        _ => Err(UNEXPECTED.to_string()),
    }
}

fn compare(before: &ServerStatus, after: &ServerStatus) -> Differences {
    let mut found = Differences::default();
    if before.version != after.version {
        found.note(format!("version {} → {}", before.version, after.version));
    }
    // In a container each server has the same process id.
    let is_same = before.pid == after.pid && after.uptime_seconds >= before.uptime_seconds;
    if !is_same {
        found.note("the server was restarted: counters start from 0".to_owned());
    }
    for fault in after.faults.iter().filter(|fault| !before.faults.contains(fault)) {
        found.worse(fault.clone());
    }
    if before.readiness.ready && !after.readiness.ready {
        let why = after.readiness.reason.as_deref().unwrap_or("no reason is known");
        found.worse(format!("the server is not ready: {why}"));
    }
    let names = before.pools.iter().chain(&after.pools).map(|pool| &pool.name);
    for name in names.collect::<BTreeSet<_>>() {
        let in_status =
            |status: &ServerStatus| status.pools.iter().find(|pool| pool.name == *name).cloned();
        match (in_status(before), in_status(after)) {
            (Some(old), Some(new)) => found.compare_pools(&old, &new, is_same),
            (Some(_), None) => found.worse(format!("pool {name}: is gone")),
            (None, _) => found.note(format!("pool {name}: is new")),
        }
    }
    found
}

/// Whether a count of a pool is smaller than it was: its counters have started again.
fn has_started_again(old: &PoolStatus, new: &PoolStatus) -> bool {
    let fell = |old: &BTreeMap<String, u64>, new: &BTreeMap<String, u64>| {
        old.iter().any(|(reason, count)| new.get(reason).copied().unwrap_or_default() < *count)
    };
    new.requests < old.requests
        || fell(&old.failed, &new.failed)
        || fell(&old.refused, &new.refused)
}

impl Differences {
    fn note(&mut self, line: String) {
        self.lines.push(line);
    }

    fn worse(&mut self, line: String) {
        self.lines.push(format!("worse: {line}"));
        self.is_worse = true;
    }

    /// `is_same`: both are of one server, so that counters go on.
    fn compare_pools(&mut self, old: &PoolStatus, new: &PoolStatus, is_same: bool) {
        let name = &new.name;
        let starts_again = is_same && has_started_again(old, new);
        if starts_again {
            self.note(format!("pool {name}: counters start from 0"));
        }
        let is_same = is_same && !starts_again;
        let before = |count: u64| if is_same { count } else { 0 };
        let requests = new.requests.saturating_sub(before(old.requests));
        for (kind, old, new) in
            [("failed", &old.failed, &new.failed), ("refused", &old.refused, &new.refused)]
        {
            for (reason, count) in new {
                let known = old.get(reason).copied().unwrap_or_default();
                let more = count.saturating_sub(before(known));
                if more > 0 {
                    let share = percent(more as f64 / requests.max(1) as f64);
                    let why = reason.replace('_', " ");
                    self.worse(format!(
                        "pool {name}: {more} of {requests} requests {kind} ({why}), {share}"
                    ));
                }
            }
        }
        self.compare_times(
            name,
            "script p99",
            [old.script_time.recent.p99_seconds, new.script_time.recent.p99_seconds],
        );
        self.compare_times(
            name,
            "queue wait p99",
            [old.queue_wait.recent.p99_seconds, new.queue_wait.recent.p99_seconds],
        );
        let (old_bytes, new_bytes) = (old.memory.private_bytes, new.memory.private_bytes);
        let grown = new_bytes as f64 - old_bytes as f64;
        if grown > GROWN_BY && new_bytes as f64 > old_bytes as f64 * GROWN {
            let (old, new) = (bytes(old_bytes as f64), bytes(new_bytes as f64));
            self.worse(format!("pool {name}: private memory {old} → {new}"));
        }
        if old.php != new.php {
            let php = |pool: &PoolStatus| pool.php.clone().unwrap_or_else(|| "none".to_owned());
            self.note(format!("pool {name}: PHP {} → {}", php(old), php(new)));
        }
        if (&old.pm, old.workers.limit) != (&new.pm, new.workers.limit) {
            let limits = |pool: &PoolStatus| format!("{} {}", pool.pm, pool.workers.limit);
            self.note(format!("pool {name}: workers {} → {}", limits(old), limits(new)));
        }
    }

    /// Compares p99 before and after, where both are known.
    fn compare_times(&mut self, pool: &str, what: &str, [old, new]: [Option<f64>; 2]) {
        let Some((old, new)) = old.zip(new) else { return };
        let line = || format!("pool {pool}: {what} {} → {}", compact_time(old), compact_time(new));
        if new > old * SLOWER && new - old > SLOWER_BY {
            self.worse(line());
        } else if old > new * SLOWER && old - new > SLOWER_BY {
            self.note(line());
        }
    }
}

#[cfg(test)]
mod tests {
    use maitred_control::admin::{Quantiles, Times};

    use super::*;

    fn status(p99: f64, failed: u64) -> ServerStatus {
        let recent = Quantiles { count: 9, p50_seconds: Some(p99), p99_seconds: Some(p99) };
        let pool = PoolStatus {
            name: "www".to_owned(),
            requests: 100 + failed,
            failed: [("worker_died".to_owned(), failed)].into(),
            script_time: Times { recent, ..Times::default() },
            ..PoolStatus::default()
        };
        ServerStatus { pid: 1, pools: vec![pool], ..ServerStatus::default() }
    }

    #[test]
    fn the_same_is_not_different() {
        assert_eq!(compare(&status(0.1, 3), &status(0.1, 3)), Differences::default());
        assert!(compare(&status(0.001, 0), &status(0.008, 0)).lines.is_empty(), "by little");
    }

    #[test]
    fn new_failures_and_slower_scripts_are_worse() {
        let found = compare(&status(0.1, 3), &status(0.2, 5));
        let expected = [
            "worse: pool www: 2 of 2 requests failed (worker died), 100 %",
            "worse: pool www: script p99 100ms → 200ms",
        ];
        assert_eq!((found.lines, found.is_worse), (expected.map(str::to_owned).to_vec(), true));
        let found = compare(&status(0.2, 0), &status(0.1, 0));
        assert_eq!(found.lines, ["pool www: script p99 200ms → 100ms"]);
        assert!(!found.is_worse);
    }

    #[test]
    fn a_server_that_was_restarted_counts_from_0() {
        let after = ServerStatus { pid: 2, ..status(0.1, 3) };
        let found = compare(&status(0.1, 3), &after);
        assert_eq!(found.lines.len(), 2, "{found:?}");
        assert!(found.lines[1].contains("3 of 103 requests failed"), "{found:?}");
        // As the first process of a container.
        let before = ServerStatus { uptime_seconds: 900.0, ..status(0.1, 100) };
        let mut after = ServerStatus { uptime_seconds: 60.0, ..status(0.1, 50) };
        after.pools[0].requests = 60;
        let found = compare(&before, &after);
        assert_eq!(found.lines.len(), 2, "{found:?}");
        assert!(found.lines[0].contains("the server was restarted"), "{found:?}");
        assert!(found.lines[1].contains("50 of 60 requests failed"), "{found:?}");
        assert!(found.is_worse);
        after.uptime_seconds = 900.0;
        let found = compare(&before, &after);
        assert!(found.lines[0].contains("pool www: counters start from 0"), "{found:?}");
        assert!(found.lines[1].contains("50 of 60 requests failed"), "{found:?}");
        let gone = ServerStatus { pid: 1, ..ServerStatus::default() };
        assert_eq!(compare(&status(0.1, 0), &gone).lines, ["worse: pool www: is gone"]);
    }
}
