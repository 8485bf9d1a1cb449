//! Waiting for a moment, to some ten microseconds: tokio's own timers wake at full milliseconds.

use std::io;
use std::os::fd::OwnedFd;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use crate::clock::{self, SECOND};

/// What is nearer than this is not slept for, in nanoseconds: going to sleep and waking up takes
/// about as long.
const TOO_NEAR: u64 = 30_000;

/// A timer of the kernel's.
#[derive(Debug)]
pub struct Timer {
    fd: AsyncFd<OwnedFd>,
}

impl Timer {
    /// A timer on the current runtime.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn new() -> io::Result<Timer> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // tokio's newer constructors are unsafe for the sake of types that may change their
        // descriptor; an `OwnedFd` cannot.
        #[allow(deprecated)]
        let fd = AsyncFd::with_interest(fd, tokio::io::Interest::READABLE)?;
        Ok(Timer { fd })
    }

    /// Waits until `moment` ([`clock::now`]) has come. Whether there was anything to wait for: if
    /// not, nobody else had a chance to run.
    pub async fn wait_until(&self, moment: u64) -> bool {
        let mut waited = false;
        loop {
            let left = moment.saturating_sub(clock::now());
            if left == 0 {
                return waited;
            }
            waited = true;
            if left <= TOO_NEAR {
                tokio::task::yield_now().await;
                continue;
            }
            let to = Timespec {
                tv_sec: i64::try_from(moment / SECOND).unwrap_or(i64::MAX),
                tv_nsec: i64::try_from(moment % SECOND).unwrap_or(0),
            };
            let once = Itimerspec {
                it_interval: Timespec::default(),
                it_value: to,
            };
            // A descriptor of ours and a moment that is none of the past: nothing can go wrong,
            // and if it does, the loop is a slower way to wait.
            let armed = timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &once);
            match armed {
                // Setting it anew takes the expiry back, so it need not be read.
                Ok(_) => match self.fd.readable().await {
                    Ok(mut ready) => ready.clear_ready(),
                    Err(_) => tokio::task::yield_now().await,
                },
                Err(_) => tokio::task::yield_now().await,
            }
        }
    }
}
