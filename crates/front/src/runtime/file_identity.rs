//! The identity of a file, which changes when the file is changed or replaced.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::Stat;

/// A file changed less than this long ago may change again without a change of its times, since the
/// kernel's clock for them has ticks of up to 10 ms; it is sent, and not cached.
pub(crate) const UNSETTLED: Duration = Duration::from_millis(20);

/// The identity of a file, which changes when the file is changed or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    dev: u64,
    ino: u64,
    pub(crate) size: u64,
    pub(crate) mtime: (i64, u32),
    ctime: (i64, u32),
}

impl Identity {
    /// The identity in a file's status.
    pub fn of(stat: &Stat) -> Identity {
        Identity {
            dev: stat.st_dev,
            ino: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mtime: (stat.st_mtime, stat.st_mtime_nsec as u32),
            ctime: (stat.st_ctime, stat.st_ctime_nsec as u32),
        }
    }

    /// Whether a later change would show: the last status change (its time cannot be set back) is
    /// longer ago than the kernel's tick. For a time in the future this is not certain.
    pub(crate) fn is_settled(&self, now: SystemTime) -> bool {
        let changed = system_time(self.ctime);
        let apart = now.duration_since(changed).unwrap_or_else(|early| early.duration());
        apart >= UNSETTLED
    }
}

pub(crate) fn system_time(time: (i64, u32)) -> SystemTime {
    let seconds = u64::try_from(time.0).unwrap_or(0).min(LAST_HTTP_SECOND);
    UNIX_EPOCH + Duration::new(seconds, time.1.min(999_999_999))
}

/// The latest second of an HTTP date, 9999-12-31T23:59:59Z (RFC 9110 §5.6.7 has four digits for the
/// year).
pub(crate) const LAST_HTTP_SECOND: u64 = 253_402_300_799;
