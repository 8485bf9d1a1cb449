//! Processes that open logs whose opening may wait for a tenant, who can hold the lock of the file,
//! of a FIFO in its place or of its folder for as long as they like. The supervisor waits for them
//! together, and for a limited time. They are root's and run no code of tenants, and they send
//! regular files only, so their descriptors can be received.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use maitred_control::log_opening::{LogReport, LogToOpen, LogsToOpen};
use maitred_os::packets::{Packets, Received};
use maitred_os::shared;
use maitred_os::spawn::{self, Program};
use maitred_os::walk::Untrusted;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::limits::{LOG_OPEN_TIMEOUTS_MOST, LOG_OPENERS_STUCK, LOGS_PER_OPENER};
use crate::peer::{THIS_PROGRAM, roomy_name};

/// The argument that makes our program one that opens logs.
const LOG_OPENER_ROLE: &str = "log-opener";

/// The processes that have not opened their logs in time.
#[derive(Debug, Default)]
pub struct LogOpeners {
    environment: Vec<(String, String)>,
    stuck: Vec<StuckOpener>,
}

/// A process that was late. Its own processes, one for each log, are killed then, and those that
/// wait for a lock in the kernel end when they get it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StuckOpener {
    pid: i32,
    /// The logs that it has not opened.
    paths: Vec<PathBuf>,
}

/// A process that opens logs.
#[derive(Debug)]
struct Opener {
    pid: i32,
    reports: Packets,
    /// The places of its logs among all.
    logs: Vec<usize>,
    /// Those that it has not reported.
    awaited: BTreeSet<usize>,
}

/// An opened log, or why it cannot be opened.
type Opened = Result<File, String>;

impl LogOpeners {
    /// Processes get this environment. `stuck`: those of the program before an upgrade.
    pub fn new(environment: Vec<(String, String)>, stuck: Vec<StuckOpener>) -> LogOpeners {
        LogOpeners { environment, stuck }
    }

    /// Those that have not ended, for the program after an upgrade.
    pub fn stuck(&self) -> &[StuckOpener] {
        &self.stuck
    }

    /// A process has ended. False: it is none that was late.
    pub fn process_ended(&mut self, pid: i32) -> bool {
        let before = self.stuck.len();
        self.stuck.retain(|stuck| stuck.pid != pid);
        self.stuck.len() < before
    }

    /// Opens logs, and returns the outcomes in their order. `limit`: the longest wait for the next
    /// of them.
    pub fn open(&mut self, logs: &[LogToOpen], limit: Duration) -> Vec<Opened> {
        let mut outcomes: Vec<Option<Opened>> = logs.iter().map(|log| self.refusal(log)).collect();
        let places: Vec<usize> =
            (0..logs.len()).filter(|place| outcomes[*place].is_none()).collect();
        let mut openers = Vec::new();
        for places in places.chunks(LOGS_PER_OPENER) {
            let logs = places.iter().map(|place| logs[*place].clone()).collect();
            match start(logs, &self.environment) {
                Ok((pid, reports)) => {
                    let awaited = (0..places.len()).collect();
                    openers.push(Opener { pid, reports, logs: places.to_vec(), awaited });
                }
                Err(why) => {
                    let why = format!("no process could be started to open it: {why}");
                    places.iter().for_each(|place| outcomes[*place] = Some(Err(why.clone())));
                }
            }
        }
        receive_all(&mut openers, &mut outcomes, limit);
        for opener in openers.iter().filter(|opener| !opener.awaited.is_empty()) {
            let late = opener.awaited.iter().map(|number| logs[opener.logs[*number]].path.clone());
            self.stuck.push(StuckOpener { pid: opener.pid, paths: late.collect() });
        }
        let late = || {
            let limit = limit.as_secs();
            Err(format!(
                "opening it takes longer than {limit} s, as if a program held the lock of the file \
                 or of its folder; end that program"
            ))
        };
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(late)).collect()
    }

    /// Why no process is started for a log.
    fn refusal(&self, log: &LogToOpen) -> Option<Opened> {
        if self.stuck.iter().any(|stuck| stuck.paths.contains(&log.path)) {
            let why = "the process that was to open it before still waits, as if a program held \
                       the lock of the file or of its folder; end that program";
            return Some(Err(why.to_owned()));
        }
        (self.stuck.len() >= LOG_OPENERS_STUCK).then(|| {
            Err(format!(
                "{LOG_OPENERS_STUCK} processes that were to open logs wait for locks of files or \
                 folders; end the programs that hold them"
            ))
        })
    }
}

impl Opener {
    /// Takes the reports that have arrived.
    fn receive(&mut self, outcomes: &mut [Option<Opened>]) {
        while !self.awaited.is_empty() {
            match self.reports.receive(false, 1) {
                Ok(Received::Message(report, mut files)) => {
                    let Ok(report) = serde_json::from_slice::<LogReport>(&report) else { continue };
                    if !self.awaited.remove(&report.number) {
                        continue;
                    }
                    let opened = match (report.refused, files.pop()) {
                        (Some(why), _) => Err(why),
                        (None, Some(file)) => Ok(File::from(file)),
                        (None, None) => Err("this process has no free descriptor".to_owned()),
                    };
                    outcomes[self.logs[report.number]] = Some(opened);
                }
                Ok(Received::Nothing) => return,
                Ok(Received::Closed) => return self.lost("it has ended", outcomes),
                Err(why) => return self.lost(&why.to_string(), outcomes),
            }
        }
    }

    /// No report will arrive any more.
    fn lost(&mut self, why: &str, outcomes: &mut [Option<Opened>]) {
        for number in std::mem::take(&mut self.awaited) {
            let why = format!("the process that opens it has failed: {why}");
            outcomes[self.logs[number]] = Some(Err(why));
        }
    }
}

/// Takes reports until all have arrived, or the next one takes too long.
fn receive_all(openers: &mut [Opener], outcomes: &mut [Option<Opened>], limit: Duration) {
    let end = Instant::now() + limit * LOG_OPEN_TIMEOUTS_MOST;
    let missing = |openers: &[Opener]| openers.iter().map(|one| one.awaited.len()).sum::<usize>();
    let mut left = missing(openers);
    let mut deadline = Instant::now() + limit;
    while left > 0 && wait(openers, deadline.min(end)) {
        openers.iter_mut().for_each(|opener| opener.receive(outcomes));
        let before = std::mem::replace(&mut left, missing(openers));
        if left < before {
            deadline = Instant::now() + limit;
        }
    }
}

/// Waits for a report. False at the deadline.
fn wait(openers: &[Opener], deadline: Instant) -> bool {
    let awaited = openers.iter().filter(|opener| !opener.awaited.is_empty());
    let mut ready: Vec<PollFd<'_>> =
        awaited.map(|opener| PollFd::new(&opener.reports, PollFlags::IN)).collect();
    let left = deadline.saturating_duration_since(Instant::now());
    let Ok(timeout) = Timespec::try_from(left) else { return false };
    match poll(&mut ready, Some(&timeout)) {
        Ok(0) => false,
        Ok(_) | Err(Errno::INTR) => !left.is_zero(),
        Err(_) => false,
    }
}

fn start(logs: Vec<LogToOpen>, environment: &[(String, String)]) -> io::Result<(i32, Packets)> {
    let order = LogsToOpen { untrusted_groups: Untrusted::current(), logs };
    let order = shared::file_with("logs", &serde_json::to_vec(&order)?)?;
    let (theirs, ours) = Packets::one_way()?;
    let pid = spawn::start(&Program {
        path: Path::new(THIS_PROGRAM),
        name: &roomy_name("maitred: logs"),
        arguments: &[OsStr::new(LOG_OPENER_ROLE)],
        environment,
        inherit: &[order.as_fd(), theirs.as_fd()],
        output: None,
        group: None,
    })?;
    Ok((pid, ours))
}

#[cfg(test)]
mod tests {
    use maitred_control::log_opening::LogUse;

    use super::*;

    fn log(path: &str) -> LogToOpen {
        LogToOpen { path: PathBuf::from(path), use_of: LogUse::Site }
    }

    fn stuck(pid: i32, path: &str) -> StuckOpener {
        StuckOpener { pid, paths: vec![PathBuf::from(path)] }
    }

    #[test]
    fn a_log_whose_process_is_stuck_is_not_tried_again_before_it_has_ended() {
        let mut openers = LogOpeners::new(Vec::new(), vec![stuck(7, "/srv/a.log")]);
        assert!(openers.refusal(&log("/srv/a.log")).is_some());
        assert!(openers.refusal(&log("/srv/b.log")).is_none());
        assert!(!openers.process_ended(8));
        assert!(openers.process_ended(7));
        assert!(openers.refusal(&log("/srv/a.log")).is_none());
    }

    #[test]
    fn no_process_is_started_while_too_many_are_stuck() {
        let pids = 0..i32::try_from(LOG_OPENERS_STUCK).unwrap();
        let all = pids.map(|pid| stuck(pid, &format!("/srv/{pid}.log"))).collect();
        let mut openers = LogOpeners::new(Vec::new(), all);
        assert!(openers.refusal(&log("/srv/other.log")).is_some());
        openers.process_ended(0);
        assert!(openers.refusal(&log("/srv/other.log")).is_none());
    }

    #[test]
    fn reports_are_matched_by_their_number_and_an_end_without_one_is_an_error() {
        let (theirs, reports) = Packets::one_way().unwrap();
        let awaited = BTreeSet::from([0, 1]);
        let mut opener = Opener { pid: 1, reports, logs: vec![2, 0], awaited };
        let report = |number, refused| {
            let report: LogReport = LogReport { number, refused };
            serde_json::to_vec(&report).unwrap()
        };
        let file = File::open("/dev/null").unwrap();
        theirs.send(&report(1, None), &[file.as_fd()]).unwrap();
        theirs.send(&report(7, None), &[]).unwrap();
        let mut outcomes = [None, None, None];
        opener.receive(&mut outcomes);
        assert!(matches!(outcomes, [Some(Ok(_)), None, None]), "{outcomes:?}");
        drop(theirs);
        opener.receive(&mut outcomes);
        assert!(matches!(outcomes[2], Some(Err(_))), "{outcomes:?}");
    }
}
