//! A process that this one forks for a task with its own memory, and does not wait for.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::unistd::{ForkResult, Pid, fork};

use crate::fork::{OwnProc, die_with_parent, exit_now};
use crate::signals;
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
