//! Slow logs whose paths tenants control. A tenant can hold the lock of such a file, of a FIFO in
//! its place or of its folder for as long as they like, so the supervisor neither opens nor writes
//! them: for each, a process writes what has come, one at a time.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use maitred_control::slowlog_entries::SlowlogEntries;
use maitred_os::fork::HowEnded;
use maitred_os::shared;
use maitred_os::signals::{self, Signal};
use maitred_os::spawn::{self, Program};
use maitred_os::users::Identity;
use maitred_text::humanize::plural_with;
use tracing::warn;

use crate::limits::{Moment, SLOWLOG_PAUSE, SLOWLOG_QUEUE_BYTES, SLOWLOG_TIMEOUT};
use crate::logging::log_files::{LOG_MODE, worded};
use crate::peer::{THIS_PROGRAM, roomy_name};

/// The argument that makes our program one that writes.
const SLOWLOG_WRITER_ROLE: &str = "slowlog-writer";

/// A slow log whose path a tenant controls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantSlowlog {
    /// The pool, for messages.
    pub pool: String,
    /// The pool's user.
    pub identity: Identity,
    /// The path.
    pub path: PathBuf,
}

/// The processes that write, and what they are to write.
#[derive(Debug, Default)]
pub struct SlowlogWriters(Vec<LogQueue>);

/// What waits for a log.
#[derive(Debug)]
struct LogQueue {
    log: TenantSlowlog,
    entries: String,
    count: u64,
    /// The file is to be created, even without an entry.
    is_new: bool,
    writer: Option<Writer>,
    /// When the next process may start.
    start_at: Moment,
    /// Entries lost since the last one that was written.
    lost: u64,
    /// Whether it was logged that entries are lost.
    said: bool,
}

/// A process that writes.
#[derive(Debug)]
struct Writer {
    pid: i32,
    pidfd: OwnedFd,
    /// How many entries it writes.
    count: u64,
    /// When it is late; none: it was, and is killed.
    until: Option<Moment>,
}

impl SlowlogWriters {
    /// Has a log created, so that an error shows before the first entry.
    pub fn create(&mut self, log: TenantSlowlog) {
        self.queue(log).is_new = true;
    }

    /// Adds an entry, or counts it as lost.
    pub fn append(&mut self, log: TenantSlowlog, entry: &str) {
        let queue = self.queue(log);
        if queue.entries.len() + entry.len() > SLOWLOG_QUEUE_BYTES {
            return queue.lose(1, "too many entries wait for it");
        }
        queue.entries.push_str(entry);
        queue.count += 1;
    }

    /// Starts and kills processes. `hurry`: the server stops, and no entry waits for others.
    pub fn keep(&mut self, environment: &[(String, String)], hurry: bool, now: Moment) {
        for queue in &mut self.0 {
            queue.kill_if_late(now);
            if queue.start_due(hurry).is_some_and(|due| due <= now) {
                queue.start(environment, now);
            }
        }
        self.0.retain(|queue| {
            let is_busy = queue.writer.is_some() || queue.is_waiting();
            is_busy || queue.said || now < queue.start_at
        });
    }

    /// When [`SlowlogWriters::keep`] is to be called.
    pub fn deadline(&self, hurry: bool) -> Option<Moment> {
        let dues = self.0.iter().filter_map(|queue| match &queue.writer {
            Some(writer) => writer.until,
            None => queue.start_due(hurry),
        });
        dues.min()
    }

    /// Whether this is one of the processes.
    pub fn is_process(&self, pid: i32) -> bool {
        self.0.iter().any(|queue| queue.is_writer(pid))
    }

    /// A process has ended.
    pub fn process_ended(&mut self, pid: i32, how: HowEnded) {
        let Some(queue) = self.0.iter_mut().find(|queue| queue.is_writer(pid)) else { return };
        let count = queue.writer.take().map_or(0, |writer| writer.count);
        match how {
            HowEnded::Exited(0) => queue.written(),
            HowEnded::Exited(errno) => {
                let why = worded(io::Error::from_raw_os_error(errno));
                queue.lose(count, &why.to_string());
            }
            HowEnded::Signaled(_) => queue.lose(count, "the process that writes it was killed"),
        }
    }

    fn queue(&mut self, log: TenantSlowlog) -> &mut LogQueue {
        let is_its =
            |queue: &LogQueue| queue.log.path == log.path && queue.log.identity == log.identity;
        let place = self.0.iter().position(is_its).unwrap_or_else(|| {
            self.0.push(LogQueue::of(log));
            self.0.len() - 1
        });
        &mut self.0[place]
    }
}

impl LogQueue {
    fn of(log: TenantSlowlog) -> LogQueue {
        LogQueue {
            log,
            entries: String::new(),
            count: 0,
            is_new: false,
            writer: None,
            start_at: Moment::ZERO,
            lost: 0,
            said: false,
        }
    }

    fn is_writer(&self, pid: i32) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.pid == pid)
    }

    fn is_waiting(&self) -> bool {
        self.is_new || self.count > 0
    }

    /// When a process is to be started, if one is.
    fn start_due(&self, hurry: bool) -> Option<Moment> {
        let is_due = self.writer.is_none() && self.is_waiting();
        is_due.then_some(if hurry { Moment::ZERO } else { self.start_at })
    }

    fn kill_if_late(&mut self, now: Moment) {
        let Some(writer) = &mut self.writer else { return };
        if writer.until.take_if(|until| *until <= now).is_none() {
            return;
        }
        // One that waits for a lock in the kernel ends only when it has it.
        let _ = signals::send_to(writer.pidfd.as_fd(), Signal::SIGKILL);
        let limit = SLOWLOG_TIMEOUT.as_secs();
        self.lose(0, &format!("a write takes longer than {limit} s (is the file locked?)"));
    }

    fn start(&mut self, environment: &[(String, String)], now: Moment) {
        let (entries, count) = (std::mem::take(&mut self.entries), std::mem::take(&mut self.count));
        self.is_new = false;
        self.start_at = now + SLOWLOG_PAUSE;
        match start(&self.log, entries, environment) {
            Ok((pid, pidfd)) => {
                let until = Some(now + SLOWLOG_TIMEOUT);
                self.writer = Some(Writer { pid, pidfd, count, until });
            }
            Err(why) => self.lose(count, &format!("no process could be started for it: {why}")),
        }
    }

    fn written(&mut self) {
        let lost = std::mem::take(&mut self.lost);
        if std::mem::take(&mut self.said) {
            let (pool, path) = (&self.log.pool, self.log.path.display());
            let lost = plural_with(lost, "entry", "were");
            warn!("pool {pool}: the slow log {path} can be written again; {lost} lost");
        }
    }

    fn lose(&mut self, count: u64, why: &str) {
        self.lost += count;
        if !std::mem::replace(&mut self.said, true) {
            let (pool, path) = (&self.log.pool, self.log.path.display());
            warn!(
                "pool {pool}: the slow log {path} cannot be written: {why}; its entries are lost \
                 until it can"
            );
        }
    }
}

fn start(
    log: &TenantSlowlog,
    entries: String,
    environment: &[(String, String)],
) -> io::Result<(i32, OwnedFd)> {
    let (identity, path) = (log.identity.clone(), log.path.clone());
    let order = SlowlogEntries { identity, path, mode: LOG_MODE, entries };
    let order = shared::file_with("slow log", &serde_json::to_vec(&order)?)?;
    let pid = spawn::start(&Program {
        path: Path::new(THIS_PROGRAM),
        name: &roomy_name("maitred: slow log"),
        arguments: &[OsStr::new(SLOWLOG_WRITER_ROLE)],
        environment,
        inherit: &[order.as_fd()],
        output: None,
        group: None,
    })?;
    Ok((pid, signals::pidfd(pid)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use maitred_os::users;

    fn log() -> TenantSlowlog {
        let path = PathBuf::from("/srv/slow.log");
        TenantSlowlog { pool: "www".to_owned(), identity: users::current(), path }
    }

    /// A process in the place of one that writes.
    fn busy(writers: &mut SlowlogWriters, count: u64, until: Moment) -> std::process::Child {
        let child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let pidfd = signals::pidfd(pid).unwrap();
        writers.0[0].writer = Some(Writer { pid, pidfd, count, until: Some(until) });
        writers.0[0].is_new = false;
        child
    }

    #[test]
    fn a_process_that_is_late_is_killed_once_and_no_other_starts_before_it_has_ended() {
        let mut writers = SlowlogWriters::default();
        writers.create(log());
        let mut child = busy(&mut writers, 1, SLOWLOG_TIMEOUT);
        writers.append(log(), "entry");
        assert_eq!(writers.deadline(true), Some(SLOWLOG_TIMEOUT));
        writers.keep(&[], true, SLOWLOG_TIMEOUT);
        assert_eq!((writers.deadline(true), writers.0[0].said), (None, true));
        assert!(!child.wait().unwrap().success());
        writers.keep(&[], true, SLOWLOG_TIMEOUT * 2);
        assert_eq!(writers.0[0].count, 1, "the entry still waits");
        let pid = i32::try_from(child.id()).unwrap();
        assert!(writers.is_process(pid));
        writers.process_ended(pid, HowEnded::Signaled(9));
        assert!(!writers.is_process(pid));
        assert_eq!((writers.0[0].lost, writers.deadline(true)), (1, Some(Moment::ZERO)));
    }

    #[test]
    fn entries_without_room_are_lost_and_counted_until_the_log_can_be_written_again() {
        let mut writers = SlowlogWriters::default();
        writers.create(log());
        let mut child = busy(&mut writers, 0, SLOWLOG_TIMEOUT);
        let half = "x".repeat(SLOWLOG_QUEUE_BYTES / 2);
        for _ in 0..5 {
            writers.append(log(), &half);
        }
        assert_eq!((writers.0[0].count, writers.0[0].lost), (2, 3));
        let pid = i32::try_from(child.id()).unwrap();
        writers.process_ended(pid, HowEnded::Exited(0));
        assert_eq!((writers.0[0].lost, writers.0[0].said), (0, false));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
