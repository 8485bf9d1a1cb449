//! Waits for a moment with a precision of some microseconds; tokio's own timers have milliseconds.
//!
//! The kernel wakes a sleeping processor 30 to 100 µs late, and a request that is sent late looks
//! like one that waited at the server. So the timer expires earlier by the usual delay, and the
//! rest of the time is spent yielding to other tasks.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use crate::clock::{self, SECOND};

/// A wait shorter than this does not sleep, in nanoseconds: going to sleep and waking up takes
/// about as long.
const TOO_NEAR: u64 = 30_000;

/// The most by which the timer expires early, in nanoseconds.
const MAX_HEAD_START: u64 = 200_000;

/// The step in which that changes, in nanoseconds.
const STEP: u64 = 2_000;

/// At most this part of the time until the next request is spent awake: the server may need the
/// processor.
const PART_AWAKE: u64 = 10;

/// A timer of the kernel.
#[derive(Debug)]
pub struct Timer {
    fd: AsyncFd<OwnedFd>,
    head_start: Cell<HeadStart>,
}

/// The median delay of the kernel's wake-ups, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct HeadStart(u64);

impl HeadStart {
    /// Learns from a wake-up that was this late. Only the direction counts: one busy moment of the
    /// machine must not make later wake-ups too early.
    fn learn(&mut self, late: u64) {
        self.0 = if late > self.0 {
            (self.0 + STEP).min(MAX_HEAD_START)
        } else {
            self.0.saturating_sub(STEP)
        };
    }

    /// How long before a moment that is `left` away the timer expires.
    fn before(self, left: u64) -> u64 {
        self.0.min(left / PART_AWAKE)
    }
}

impl Timer {
    /// A timer on the current runtime.
    ///
    /// # Errors
    /// When the process is out of file descriptors.
    pub fn new() -> io::Result<Timer> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // tokio's newer constructors are unsafe for types that may change their descriptor; an
        // `OwnedFd` cannot.
        #[allow(deprecated)]
        let fd = AsyncFd::with_interest(fd, tokio::io::Interest::READABLE)?;
        let head_start = Cell::default();
        Ok(Timer { fd, head_start })
    }

    /// Waits until `moment` ([`clock::now`]). Returns whether it waited at all: if not, no other
    /// task had a chance to run.
    pub async fn wait_until(&self, moment: u64) -> bool {
        let mut waited = false;
        let before = self.head_start.get().before(moment.saturating_sub(clock::now()));
        let alarm = moment.saturating_sub(before);
        loop {
            let now = clock::now();
            if now >= moment {
                return waited;
            }
            waited = true;
            if alarm <= now + TOO_NEAR {
                tokio::task::yield_now().await;
                continue;
            }
            let to = Timespec {
                tv_sec: i64::try_from(alarm / SECOND).unwrap_or(i64::MAX),
                tv_nsec: i64::try_from(alarm % SECOND).unwrap_or(0),
            };
            let once = Itimerspec { it_interval: Timespec::default(), it_value: to };
            // The descriptor is valid and the moment is in the future, so this cannot fail; if it
            // does, the loop is a slower way to wait.
            let armed = timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &once);
            match armed {
                // Setting the timer again clears its expiry, so it need not be read.
                Ok(_) => match self.fd.readable().await {
                    Ok(mut ready) => {
                        ready.clear_ready();
                        let mut head_start = self.head_start.get();
                        head_start.learn(clock::now().saturating_sub(alarm));
                        self.head_start.set(head_start);
                    }
                    Err(_) => tokio::task::yield_now().await,
                },
                Err(_) => tokio::task::yield_now().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_start_is_what_is_usually_needed_and_no_more_than_the_server_can_spare() {
        let mut head_start = HeadStart::default();
        let mut learn = |late: u64| {
            (0..200).for_each(|_| head_start.learn(late));
            head_start
        };
        for late in [60_000, 10_000, 60_000] {
            let learned = learn(late);
            assert!(learned.0.abs_diff(late) <= STEP, "{learned:?}");
        }
        // The processor was busy for a while.
        let learned = learn(20_000_000);
        assert_eq!(learned.before(5_000_000), MAX_HEAD_START);
        assert_eq!(learned.before(100_000), 10_000);
    }
}
