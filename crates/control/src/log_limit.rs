//! The limit of log lines from the scripts of a pool. The log file belongs to root, so no quota of
//! a tenant applies to it, and it is read and collected for all pools together. Each pool has a
//! separate limit, so a noisy pool does not suppress lines of another. Pure: the caller provides
//! the time.

use std::time::Duration;

use crate::episode::{Account, LogThrottle, Moment, News};

/// Most lines of a pool in one period.
pub const LINES_PER_PERIOD: u64 = 500;

/// Most bytes of a pool in one period.
pub const BYTES_PER_PERIOD: u64 = 512 * 1024;

/// Length of a period.
pub const PERIOD: Duration = Duration::from_secs(1);

/// How long nothing may have been dropped for the count to be complete.
const CALM: Duration = Duration::from_secs(10);

/// What was dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct DroppedLines {
    lines: u64,
    bytes: u64,
}

/// The use of a pool's limit in the current period.
#[derive(Debug)]
pub struct LogLimit {
    began: Moment,
    lines: u64,
    bytes: u64,
    dropped: LogThrottle<DroppedLines>,
}

impl Default for LogLimit {
    fn default() -> LogLimit {
        LogLimit { began: Moment::ZERO, lines: 0, bytes: 0, dropped: LogThrottle::new(CALM) }
    }
}

/// The decision on a log line.
#[derive(Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is logged.
    Logged,
    /// It is dropped and counted.
    Dropped,
    /// It is dropped as the first of a period: the sentence is logged in its place.
    Exceeded(String),
}

impl LogLimit {
    /// Decides whether a line of `bytes` bytes is logged, and counts it.
    pub fn admit(&mut self, bytes: usize, now: Moment) -> Admission {
        if now >= self.began + PERIOD {
            (self.began, self.lines, self.bytes) = (now, 0, 0);
        }
        let bytes = bytes as u64;
        if self.is_used_up() || self.bytes + bytes > BYTES_PER_PERIOD {
            return self.drop_line(bytes, now);
        }
        (self.lines, self.bytes) = (self.lines + 1, self.bytes + bytes);
        Admission::Logged
    }

    /// The end of the period, if the limit is used up: lines are logged again from then on.
    pub fn used_up_until(&self, now: Moment) -> Option<Moment> {
        let end = self.began + PERIOD;
        (self.is_used_up() && now < end).then_some(end)
    }

    /// The log message about dropped lines that is due; it counts as logged.
    pub fn due(&mut self, now: Moment) -> Option<String> {
        let (verb, account) = match self.dropped.due(now)? {
            News::GoesOn(account) => ("have been", account),
            News::Over(account) => ("were", account),
        };
        let Account { lasted, total, .. } = account;
        let DroppedLines { lines, bytes } = total;
        let lasted = lasted.as_secs_f64();
        Some(format!(
            "{lines} lines ({bytes} bytes) of what it logs {verb} dropped in {lasted:.1} s, \
             because they were too many"
        ))
    }

    /// The time at which [`LogLimit::due`] returns a message if no line is dropped before.
    pub fn deadline(&self) -> Option<Moment> {
        self.dropped.deadline()
    }

    /// Whether all dropped lines have been reported.
    pub fn is_quiet(&self) -> bool {
        self.dropped.is_quiet()
    }

    fn is_used_up(&self) -> bool {
        self.lines >= LINES_PER_PERIOD || self.bytes >= BYTES_PER_PERIOD
    }

    fn drop_line(&mut self, bytes: u64, now: Moment) -> Admission {
        // Shorter ones do not pass it.
        self.bytes = BYTES_PER_PERIOD;
        let count = |dropped: &mut DroppedLines| {
            dropped.lines += 1;
            dropped.bytes += bytes;
        };
        if self.dropped.happened(now, count) > 1 {
            return Admission::Dropped;
        }
        let kib = BYTES_PER_PERIOD / 1024;
        Admission::Exceeded(format!(
            "it logs more than {LINES_PER_PERIOD} lines or {kib} KiB a second, which is all that \
             is taken; the lines beyond are dropped and counted"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Duration::from_secs(100);

    #[test]
    fn as_many_lines_as_may_be_are_logged_in_each_second_and_the_rest_is_counted() {
        let mut limit = LogLimit::default();
        for _ in 0..LINES_PER_PERIOD {
            assert_eq!(limit.admit(10, NOW), Admission::Logged);
        }
        assert_eq!(limit.used_up_until(NOW), Some(NOW + PERIOD));
        assert!(matches!(limit.admit(10, NOW), Admission::Exceeded(_)));
        for _ in 0..99 {
            assert_eq!(limit.admit(10, NOW), Admission::Dropped);
        }
        let later = NOW + PERIOD;
        assert_eq!(limit.used_up_until(later), None);
        assert_eq!(limit.admit(10, later), Admission::Logged);
        assert_eq!(limit.due(later), None);
        let line = limit.due(NOW + CALM).expect("nothing more was dropped");
        assert!(line.contains("100 lines (1000 bytes)"), "{line}");
        assert!(limit.is_quiet());
    }

    #[test]
    fn bytes_are_limited_as_well_and_no_shorter_line_passes_one_that_is_dropped() {
        let mut limit = LogLimit::default();
        let most = BYTES_PER_PERIOD as usize;
        assert_eq!(limit.admit(most - 10, NOW), Admission::Logged);
        assert!(matches!(limit.admit(11, NOW), Admission::Exceeded(_)));
        assert_eq!(limit.admit(1, NOW), Admission::Dropped);
        assert_eq!(limit.admit(most, NOW + PERIOD), Admission::Logged);
    }
}
