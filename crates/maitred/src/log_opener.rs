//! The process that opens access logs for the supervisor, started by it as root. Tenants can hold
//! the locks that this needs for as long as they like: each log is opened by a process of its own,
//! and the supervisor waits for none of them for long.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

use maitred_control::log_opening::{LogReport, LogToOpen, LogUse, LogsToOpen};
use maitred_os::fork::{OwnProc, exit_now};
use maitred_os::packets::Packets;
use maitred_os::timed_child::{TimedFork, fork_timed};
use maitred_os::{spawn, title};

use crate::exit_code::{EXIT_SUCCESS, refuse};

/// Longest wait for a process that opens a log. The supervisor closes its end long before.
const CHILD_TIMEOUT: Duration = Duration::from_secs(60);

/// Opens the logs of the inherited order, and ends when all its processes have ended.
pub fn log_opener() -> ExitCode {
    title::set("maitred: logs");
    let (Ok(order), Ok(reports)) = (spawn::inherited(0), spawn::inherited(1)) else {
        return refuse(&"`maitred log-opener` is started by `maitred serve`, not by hand");
    };
    match open_all(File::from(order), &Packets::from_fd(reports)) {
        Ok(()) => ExitCode::from(EXIT_SUCCESS),
        Err(why) => refuse(&format!("the order to open logs cannot be followed: {why}")),
    }
}

fn open_all(order: File, reports: &Packets) -> io::Result<()> {
    let LogsToOpen { untrusted_groups, logs } = serde_json::from_reader(order)?;
    untrusted_groups.apply();
    let proc = OwnProc::open()?;
    let mut children = Vec::new();
    for (number, log) in logs.iter().enumerate() {
        match fork_timed(&proc) {
            Ok(TimedFork::Child) => {
                let _ = report(number, open(log), reports);
                exit_now(0);
            }
            Ok(TimedFork::Parent(child)) => children.push(child),
            Err(why) => report(number, Err(why), reports)?,
        }
    }
    for child in children {
        // The supervisor closes its end when it waits no longer, and the child is killed.
        let _ = child.wait(CHILD_TIMEOUT, reports.as_fd());
    }
    Ok(())
}

fn open(log: &LogToOpen) -> io::Result<File> {
    maitred_supervisor::open_log(log).map_err(|why| match (&log.use_of, why.kind()) {
        (LogUse::Site, io::ErrorKind::NotFound) => io::Error::other("its folder does not exist"),
        _ => why,
    })
}

fn report(number: usize, opened: io::Result<File>, reports: &Packets) -> io::Result<()> {
    let refused = opened.as_ref().err().map(ToString::to_string);
    let report = serde_json::to_vec(&LogReport { number, refused })?;
    let files: Vec<_> = opened.iter().map(AsFd::as_fd).collect();
    reports.send(&report, &files)
}
