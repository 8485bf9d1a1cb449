//! Wakes the supervisor when a schedule is due by the wall clock, and when that clock is set: it
//! need not wake up for anything else (timerfd_create(2)).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, SystemTime};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// A time of the wall clock: since 1970 UTC.
pub type WallTime = Duration;

/// The timer.
#[derive(Debug)]
pub struct Alarm {
    timer: OwnedFd,
    set: Option<WallTime>,
}

impl Alarm {
    /// A timer that is not set.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Realtime, flags)?;
        Ok(Alarm { timer, set: None })
    }

    /// The time now.
    pub fn wall() -> WallTime {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    }

    /// What to poll.
    pub fn listening(&self) -> Option<BorrowedFd<'_>> {
        self.set.map(|_| self.timer.as_fd())
    }

    /// It has rung, or the clock was set. It has to be set again.
    pub fn take(&mut self) {
        let mut count = [0; 8];
        // The error is that the clock was set; either way there is a check now.
        let _ = rustix::io::read(&self.timer, &mut count);
        self.set = None;
    }

    /// Rings at this time; none: never.
    pub fn set(&mut self, at: Option<WallTime>) {
        if self.set == at {
            return;
        }
        let of = |time: WallTime| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        let spec = Itimerspec {
            it_interval: of(Duration::ZERO),
            it_value: of(at.unwrap_or(Duration::ZERO)),
        };
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        // It can only fail for values that a timetable does not have.
        let is_set = timerfd_settime(&self.timer, flags, &spec).is_ok();
        self.set = at.filter(|_| is_set);
    }
}
