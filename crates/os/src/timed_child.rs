//! A child that is forked for one task with a time limit.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::fork::{HowEnded, OwnProc, die_with_parent, exit_now};
use crate::signals::{Signal, pidfd, send_to};

/// Which process returned from [`fork_timed`].
#[derive(Debug)]
pub enum TimedFork {
    /// The caller, with its child.
    Parent(TimedChild),
    /// The child. It dies with its parent, has no output, and ends by [`exit_now`].
    Child,
}

/// A running child.
#[derive(Debug)]
pub struct TimedChild {
    pid: Pid,
    ended: OwnedFd,
}

/// The result of a child.
#[derive(Debug, PartialEq, Eq)]
pub enum ChildResult {
    /// It ended.
    Ended(HowEnded),
    /// It exceeded the limit and was killed.
    TimedOut,
    /// Its client has disconnected, and it was killed.
    Cancelled,
}

/// Forks a child for one task.
///
/// # Errors
/// When a second thread runs here (see [`fork_orphan`](crate::fork::fork_orphan)), or when the
/// system refuses a process or a descriptor.
pub fn fork_timed(proc: &OwnProc) -> io::Result<TimedFork> {
    if proc.threads()? != 1 {
        return Err(io::Error::other("a process that forks must have one thread"));
    }
    let parent = Pid::this().as_raw();
    // SAFETY: this process has one thread (checked above), so the child may run any code.
    match unsafe { fork() }? {
        ForkResult::Child => {
            die_with_parent(parent);
            if print_to_nowhere().is_err() {
                exit_now(1);
            }
            Ok(TimedFork::Child)
        }
        ForkResult::Parent { child } => match pidfd(child.as_raw()) {
            Ok(ended) => Ok(TimedFork::Parent(TimedChild { pid: child, ended })),
            Err(error) => {
                let _ = nix::sys::signal::kill(child, Signal::SIGKILL);
                let _ = waitpid(child, None);
                Err(error)
            }
        },
    }
}

fn print_to_nowhere() -> io::Result<()> {
    let nowhere = std::fs::File::options().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    rustix::stdio::dup2_stderr(&nowhere)?;
    Ok(())
}

impl TimedChild {
    /// Waits until the child has ended, kills it when that takes longer than `limit` or when the
    /// other end of `for_whom` has closed, and collects it.
    ///
    /// # Errors
    /// When the system refuses to wait; the child is killed and collected then, too.
    pub fn wait(self, limit: Duration, for_whom: BorrowedFd<'_>) -> io::Result<ChildResult> {
        let came = self.wait_for_end(Instant::now() + limit, for_whom);
        if !matches!(came, Ok(None)) {
            send_to(rustix::fd::AsFd::as_fd(&self.ended), Signal::SIGKILL)?;
        }
        let how = self.collect()?;
        Ok(came?.unwrap_or(ChildResult::Ended(how)))
    }

    /// `None`: the child has ended.
    fn wait_for_end(
        &self,
        deadline: Instant,
        for_whom: BorrowedFd<'_>,
    ) -> io::Result<Option<ChildResult>> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut watched = [
                PollFd::new(&self.ended, PollFlags::IN),
                // No event is requested: a hangup is always reported.
                PollFd::from_borrowed_fd(for_whom, PollFlags::empty()),
            ];
            let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
            match poll(&mut watched, Some(&timeout)) {
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(0) => return Ok(Some(ChildResult::TimedOut)),
                Ok(_) if !watched[0].revents().is_empty() => return Ok(None),
                Ok(_) => return Ok(Some(ChildResult::Cancelled)),
            }
        }
    }

    fn collect(&self) -> io::Result<HowEnded> {
        loop {
            match waitpid(self.pid, Some(WaitPidFlag::empty())) {
                Ok(WaitStatus::Exited(_, code)) => return Ok(HowEnded::Exited(code)),
                Ok(WaitStatus::Signaled(_, signal, _)) => {
                    return Ok(HowEnded::Signaled(signal as i32));
                }
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
