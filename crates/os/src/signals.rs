//! Signals as events on a descriptor, for programs with one event loop.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

pub use nix::sys::signal::Signal;
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, raise, signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Blocked signals that are read from a descriptor instead.
#[derive(Debug)]
pub struct SignalEvents {
    fd: SignalFd,
}

impl SignalEvents {
    /// Takes over `signals` for this process: from now on they arrive only here. Call it while the
    /// process has one thread.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn take_over(signals: &[Signal]) -> io::Result<SignalEvents> {
        let set: SigSet = signals.iter().copied().collect();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None)?;
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(SignalEvents { fd })
    }

    /// The next signal, if any, with the pid of its sender (0: the kernel).
    ///
    /// # Errors
    /// No known error on a valid descriptor.
    pub fn take(&mut self) -> io::Result<Option<(Signal, u32)>> {
        match self.fd.read_signal()? {
            None => Ok(None),
            Some(info) => {
                let number = i32::try_from(info.ssi_signo).unwrap_or(0);
                Ok(Signal::try_from(number).ok().map(|signal| (signal, info.ssi_pid)))
            }
        }
    }
}

impl AsFd for SignalEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Blocked signals that a thread waits for.
#[derive(Debug)]
pub struct Awaited {
    set: SigSet,
}

impl Awaited {
    /// Takes over `signals` for this process: from now on they arrive only here. Call it while the
    /// process has one thread.
    ///
    /// # Errors
    /// No known error.
    pub fn take_over(signals: &[Signal]) -> io::Result<Awaited> {
        let set: SigSet = signals.iter().copied().collect();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None)?;
        Ok(Awaited { set })
    }

    /// Waits for one of them.
    ///
    /// # Errors
    /// No known error.
    pub fn wait(&self) -> io::Result<Signal> {
        Ok(self.set.wait()?)
    }
}

/// Ends this process by the default action of `signal`. Returns only if that fails in an unknown
/// way.
pub fn end_by(deadly: Signal) {
    // SAFETY: the default action runs no code of ours.
    let _ = unsafe { signal(deadly, SigHandler::SigDfl) };
    let only: SigSet = [deadly].into_iter().collect();
    let _ = raise(deadly);
    let _ = sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&only), None);
}

/// Unblocks every signal and gives `signals` their default action again: the state that a new
/// program, or a forked process, expects.
pub fn reset(signals: &[Signal]) {
    for &each in signals {
        // SAFETY: the default action runs no code of ours.
        let _ = unsafe { signal(each, SigHandler::SigDfl) };
    }
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None);
}

/// Makes writing to a closed socket an error instead of the end of the process.
pub fn ignore_sigpipe() {
    // SAFETY: ignoring a signal runs no code of ours.
    let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn) };
}

/// Lets SIGTERM, which a supervisor that stops sends to all its processes, not end this one.
pub fn ignore_sigterm() {
    // SAFETY: ignoring a signal runs no code of ours.
    let _ = unsafe { signal(Signal::SIGTERM, SigHandler::SigIgn) };
}

/// Makes a write beyond the file size limit (`RLIMIT_FSIZE`; setrlimit(2)) an error instead of the
/// end of the process. Files in memory count as well. Programs that [`start`](crate::spawn::start)
/// or a [`command`](crate::spawn::command) starts get the signal's default action back; others
/// inherit this.
pub fn ignore_sigxfsz() {
    // SAFETY: ignoring a signal runs no code of ours.
    let _ = unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) };
}

/// Sends `signal` to the process behind a pidfd; a process that has ended is no error.
///
/// # Errors
/// When we may not send signals to that process.
pub fn send_to(pidfd: BorrowedFd<'_>, signal: Signal) -> io::Result<()> {
    let signal = rustix::process::Signal::from_named_raw(signal as i32)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "unknown signal"))?;
    match rustix::process::pidfd_send_signal(pidfd, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A descriptor for a child that has not been reaped, readable when the child has ended.
///
/// # Errors
/// When there is no such process or no descriptor is left.
pub fn pidfd(pid: i32) -> io::Result<std::os::fd::OwnedFd> {
    let pid = rustix::process::Pid::from_raw(pid)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "pid zero"))?;
    Ok(rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?)
}
