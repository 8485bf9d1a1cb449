//! Log lines about memory pressure: one when it begins, one from time to time while it recurs, and
//! one when it is over.

use maitred_control::episode::{Account, LogThrottle, News};
use maitred_sizing::memory::Level;
use tracing::{info, warn};

use crate::limits::{MEMORY_CALM, Moment};
use crate::logging::repeated_errors::seconds;

/// What was logged.
#[derive(Debug)]
pub(super) struct MemoryLog {
    /// The pressure level at the last measurement.
    level: Level,
    /// Measurements that found memory nearly full or worse, and short, and how many times it had
    /// become so.
    nearly_full: LogThrottle<u64>,
    short: LogThrottle<u64>,
}

impl Default for MemoryLog {
    fn default() -> MemoryLog {
        MemoryLog {
            level: Level::Calm,
            nearly_full: LogThrottle::new(MEMORY_CALM),
            short: LogThrottle::new(MEMORY_CALM),
        }
    }
}

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MemoryLogLine {
    Info(String),
    Warning(String),
}

impl MemoryLogLine {
    pub(super) fn log(self) {
        match self {
            MemoryLogLine::Info(line) => info!("{line}"),
            MemoryLogLine::Warning(line) => warn!("{line}"),
        }
    }
}

impl MemoryLog {
    /// The pressure level at the last measurement.
    pub(super) fn level(&self) -> Level {
        self.level
    }

    /// The line to log for a measurement with this level and this percentage of memory in use, if
    /// any.
    pub(super) fn look(&mut self, now: Moment, level: Level, used: f64) -> Vec<MemoryLogLine> {
        let before = std::mem::replace(&mut self.level, level);
        let happens = |episode: &mut LogThrottle<u64>, least: Level| {
            let comes = u64::from(before < least);
            level >= least && episode.happened(now, |times| *times += comes) == 1
        };
        let fills = happens(&mut self.nearly_full, Level::Careful);
        let begins = match happens(&mut self.short, Level::Short) {
            true => Some(MemoryLogLine::Warning(format!(
                "memory is short ({used} % in use, or the kernel says that processes wait for it); \
                 pools with pm = \"auto\" give workers up"
            ))),
            false => (fills && level == Level::Careful).then(|| {
                MemoryLogLine::Info(format!(
                    "memory is nearly full ({used} % in use); pools with pm = \"auto\" get no more \
                     workers"
                ))
            }),
        };
        let short = self.short.due(now);
        let short = short.and_then(|news| further(news, "short", used));
        let nearly_full = self.nearly_full.due(now);
        let nearly_full = nearly_full.and_then(|news| further(news, "nearly full", used));
        let all = [begins, short, nearly_full];
        all.into_iter().flatten().collect()
    }
}

/// The line about an episode after its beginning. While the level stays the same there is nothing
/// to add.
fn further(news: News<u64>, what: &str, used: f64) -> Option<MemoryLogLine> {
    let line = match news {
        News::GoesOn(Account { total: 1, .. }) => return None,
        News::GoesOn(Account { lasted, total, .. }) => format!(
            "memory has become {what} {total} times in {} ({used} % in use)",
            seconds(lasted)
        ),
        News::Over(Account { total: 1, .. }) => {
            format!("memory is no longer {what} ({used} % in use)")
        }
        News::Over(Account { lasted, total, .. }) => format!(
            "memory is no longer {what} ({used} % in use); it had become so {total} times in {}",
            seconds(lasted)
        ),
    };
    Some(MemoryLogLine::Info(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str =
        "memory is nearly full (87 % in use); pools with pm = \"auto\" get no more workers";

    /// What is said in a time of which each second is on the level that `level` says.
    fn said(
        words: &mut MemoryLog,
        seconds: std::ops::Range<u64>,
        level: fn(u64) -> Level,
    ) -> Vec<MemoryLogLine> {
        let each = |second| words.look(Moment::from_secs(second), level(second), 87.0);
        seconds.flat_map(each).collect()
    }

    fn info(line: &str) -> MemoryLogLine {
        MemoryLogLine::Info(line.to_owned())
    }

    #[test]
    fn memory_that_was_nearly_full_and_never_short_is_not_said_to_be_short_no_longer() {
        let mut words = MemoryLog::default();
        let first = said(&mut words, 0..4000, |_| Level::Careful);
        assert_eq!(first, [info(FULL)], "it only stays so");
        let then = said(&mut words, 4000..5000, |_| Level::Calm);
        assert_eq!(then, [info("memory is no longer nearly full (87 % in use)")]);
    }

    #[test]
    fn memory_that_is_nearly_full_again_and_again_is_a_few_lines() {
        let mut words = MemoryLog::default();
        let goes_and_comes = |second| match second % 40 {
            0..20 => Level::Careful,
            _ => Level::Calm,
        };
        let lines = said(&mut words, 0..4000, goes_and_comes);
        assert_eq!(lines.len(), 7, "{lines:?}");
        assert_eq!(lines[0], info(FULL));
        let again = "memory has become nearly full 2 times in 60 s (87 % in use)";
        assert_eq!(lines[1], info(again));
        let over = said(&mut words, 4000..5000, |_| Level::Calm);
        let text =
            "memory is no longer nearly full (87 % in use); it had become so 100 times in 1 h 6 m";
        assert_eq!(over, [info(text)]);
    }

    #[test]
    fn memory_that_is_short_at_once_is_said_to_be_so_and_not_to_be_nearly_full_as_well() {
        let mut words = MemoryLog::default();
        let short = said(&mut words, 0..10, |_| Level::Short);
        assert!(
            matches!(
                &short[..],
                [MemoryLogLine::Warning(line)] if line.starts_with("memory is short (87 %")
            ),
            "{short:?}"
        );
        let careful = said(&mut words, 10..1000, |_| Level::Careful);
        assert_eq!(careful, [info("memory is no longer short (87 % in use)")]);
        let again = said(&mut words, 1000..1001, |_| Level::Out);
        assert_eq!(again.len(), 1, "{again:?}");
    }
}
