//! The server of an application, as a process of its own below Octane's.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use maitred_os::signals::{self, Awaited, Signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::log_lines::LogLines;

/// Longest line of the log, in bytes; a longer one is several.
const MAX_LINE_BYTES: usize = 64 << 10;

/// Added to the signal in the exit code of what a signal has ended, as in a shell.
const SIGNALED: i32 = 128;

/// Signals that this process acts on.
const SIGNALS: [Signal; 5] =
    [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGHUP];

/// The running server, for all threads.
#[derive(Debug)]
pub struct ServedApplication {
    pidfd: OwnedFd,
    is_stopping: AtomicBool,
}

/// The running server, for the thread that waits for it.
#[derive(Debug)]
pub struct ServerChild {
    child: Child,
    awaited: Awaited,
}

/// What `start` returns.
#[derive(Debug)]
pub struct StartedApplication {
    /// For the main thread.
    pub child: ServerChild,
    /// For the others.
    pub served: ServedApplication,
    /// Its log.
    pub log: ChildStderr,
}

/// Starts `maitred serve` with a configuration. Call it while the process has one thread.
///
/// # Errors
/// Why the process cannot be started.
pub fn start(config: &Path, log_level: &str) -> io::Result<StartedApplication> {
    let awaited = Awaited::take_over(&SIGNALS)?;
    let mut command = Command::new(std::env::current_exe()?);
    // The program may be a copy of maitred with Octane's name for it, by which it acts as Octane's.
    command.arg0("maitred");
    command.args(["--log-level", log_level, "serve", "--production", "--config"]).arg(config);
    command.arg("--stop-with-parent").arg(std::process::id().to_string());
    // Its signals come from here: Ctrl-C would reach it twice, which ends running requests.
    command.process_group(0).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let pidfd = signals::pidfd(i32::try_from(child.id()).unwrap_or_default())?;
    let log = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let served = ServedApplication { pidfd, is_stopping: AtomicBool::new(false) };
    Ok(StartedApplication { child: ServerChild { child, awaited }, served, log })
}

impl ServedApplication {
    /// Stops the server unless it is being stopped, and waits for its end. Returns whether it has
    /// ended.
    pub fn stop_within(&self, limit: Duration) -> bool {
        if !self.is_stopping.swap(true, Ordering::SeqCst) {
            let _ = signals::send_to(self.pidfd.as_fd(), Signal::SIGTERM);
        }
        let Ok(limit) = Timespec::try_from(limit) else {
            return false;
        };
        let mut ended = [PollFd::new(&self.pidfd, PollFlags::IN)];
        matches!(poll(&mut ended, Some(&limit)), Ok(1))
    }

    fn forward(&self, signal: Signal) {
        self.is_stopping.store(true, Ordering::SeqCst);
        let _ = signals::send_to(self.pidfd.as_fd(), signal);
    }
}

impl ServerChild {
    /// Passes signals on until the server has ended, and returns its exit code.
    pub fn wait(&mut self, served: &ServedApplication) -> i32 {
        loop {
            match self.awaited.wait() {
                Ok(Signal::SIGCHLD) => {}
                // The end of a terminal is no reason to stop for Caddy.
                Ok(Signal::SIGHUP) => continue,
                Ok(signal) => served.forward(signal),
                Err(_) => return code(self.child.wait()),
            }
            match self.child.try_wait() {
                Ok(None) => {}
                ended => return code(ended.map(Option::unwrap_or_default)),
            }
        }
    }
}

fn code(ended: io::Result<ExitStatus>) -> i32 {
    match ended {
        Ok(status) => {
            let signal = status.signal().map(|signal| SIGNALED + signal);
            status.code().or(signal).unwrap_or(1)
        }
        Err(_) => 1,
    }
}

/// Passes the log on as Caddy's, until its end.
pub fn pass_on(mut log: impl Read) {
    let mut lines = LogLines::new();
    let mut pending = Vec::new();
    let mut chunk = [0; 8 << 10];
    loop {
        let count = match log.read(&mut chunk) {
            Ok(count) => count,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => 0,
        };
        pending.extend_from_slice(chunk.get(..count).unwrap_or_default());
        let mut text = String::new();
        let mut message = String::new();
        while let Some(line) = next_line(&mut pending, count == 0) {
            let line = String::from_utf8_lossy(&line);
            let is_further = line.starts_with(char::is_whitespace) && !message.is_empty();
            if is_further {
                message.push('\n');
                message += line.trim();
            } else {
                text += &lines.translate(&message, SystemTime::now());
                line.trim_end().clone_into(&mut message);
            }
        }
        text += &lines.translate(&message, SystemTime::now());
        // Without a reader the log is lost, and the server goes on.
        let _ = io::stderr().write_all(text.as_bytes());
        if count == 0 {
            return;
        }
    }
}

/// Takes the next line, or what has the length of one; at the end of the log also its rest.
fn next_line(pending: &mut Vec<u8>, is_end: bool) -> Option<Vec<u8>> {
    let end = match pending.iter().position(|byte| *byte == b'\n') {
        Some(at) => at + 1,
        None if pending.len() > MAX_LINE_BYTES || is_end => pending.len(),
        None => 0,
    };
    (end > 0).then(|| pending.drain(..end).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_once_it_is_complete_or_too_long() {
        let mut pending = b"one\ntwo".to_vec();
        assert_eq!(next_line(&mut pending, false).as_deref(), Some(&b"one\n"[..]));
        assert_eq!(next_line(&mut pending, false), None);
        assert_eq!(next_line(&mut pending, true).as_deref(), Some(&b"two"[..]));
        assert_eq!(next_line(&mut pending, true), None);
        let mut pending = vec![b'x'; MAX_LINE_BYTES + 1];
        assert_eq!(next_line(&mut pending, false).map(|line| line.len()), Some(MAX_LINE_BYTES + 1));
    }
}
