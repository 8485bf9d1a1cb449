//! A process that this one forks for a task with its own memory, and does not wait for, or not for
//! long.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::fork::{OwnProc, die_with_parent, exit_now};
use crate::signals::{self, Signal};
use crate::spawn::FIRST_INHERITED_FD;

/// Exit code of a task that has panicked (Rust's own).
const PANICKED: i32 = 101;

/// Forks a process that runs `task` and ends with its exit code. Returns its pid. It dies with this
/// process, and has no descriptors but the standard streams and those that are `kept`: the task
/// must use no others, and no destructor runs.
///
/// # Errors
/// When a second thread runs here (see [`fork_orphan`](crate::fork::fork_orphan)), or when the
/// system refuses a process.
pub fn fork_task(kept: &[BorrowedFd<'_>], task: impl FnOnce() -> i32) -> io::Result<i32> {
    if OwnProc::open()?.threads()? != 1 {
        return Err(io::Error::other("a process that forks must have one thread"));
    }
    let parent = Pid::this().as_raw();
    // SAFETY: this process has one thread (checked above), so the child may run any code.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child.as_raw()),
        ForkResult::Child => {
            die_with_parent(parent);
            signals::reset(&[]);
            // It fails only for the leader of a session.
            let _ = nix::unistd::setsid();
            close_others(kept);
            exit_now(catch_unwind(AssertUnwindSafe(task)).unwrap_or(PANICKED));
        }
    }
}

/// As [`fork_task`], but waits for the end of the process, whose exit code it returns. None: it has
/// not ended within `limit`. Then it is killed, and left to what reaps the children of this
/// process: it may be in a system call that a signal does not end at once.
///
/// # Errors
/// As [`fork_task`], or when the system refuses a descriptor; the process is left then, too.
pub fn run_task(
    limit: Duration,
    kept: &[BorrowedFd<'_>],
    task: impl FnOnce() -> i32,
) -> io::Result<Option<i32>> {
    let pid = fork_task(kept, task)?;
    let ended = signals::pidfd(pid)?;
    let until = Instant::now() + limit;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&timeout)) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(0) => {
                signals::send_to(ended.as_fd(), Signal::SIGKILL)?;
                return Ok(None);
            }
            Ok(_) => break,
        }
    }
    match waitpid(Pid::from_raw(pid), None)? {
        WaitStatus::Exited(_, code) => Ok(Some(code)),
        how => Err(io::Error::other(format!("the process for it has ended otherwise: {how:?}"))),
    }
}

/// Closes all descriptors but the standard streams and these.
fn close_others(kept: &[BorrowedFd<'_>]) {
    let mut kept: Vec<RawFd> = kept.iter().map(AsRawFd::as_raw_fd).collect();
    kept.sort_unstable();
    let mut first = FIRST_INHERITED_FD;
    for number in kept.into_iter().chain([RawFd::MAX]) {
        if number > first {
            // SAFETY: the descriptors in the range are used by nothing that this process still
            // runs, and the owners of their numbers are never dropped, since it ends by `_exit`.
            unsafe { libc::syscall(libc::SYS_close_range, first, number - 1, 0) };
        }
        first = first.max(number.saturating_add(1));
    }
}
