//! When the runs of a schedule are due: a cron line or times of the day in a time zone, or a fixed
//! interval. No clock: the caller has the time. The time zones are those of the system
//! (`/usr/share/zoneinfo`).
//!
//! When clocks change, runs are those of cron (cron(8), "daylight saving time"): a time of the day
//! that is skipped runs at the end of the gap, one that occurs twice runs the first time only, and
//! lines whose minute or hour is a wildcard (`*`, `*/5`) follow the clock that people see, minute
//! by minute.

mod cron_line;
mod notes;

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use cron_line::CronLine;
pub use cron_line::MAX_LINE_BYTES;

/// A point in time: seconds since 1970 UTC.
pub type UnixSeconds = i64;

/// A time of the day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TimeOfDay {
    /// From 0 to 23.
    pub hour: u8,
    /// From 0 to 59.
    pub minute: u8,
}

impl TimeOfDay {
    /// Parses `03:10`.
    pub fn parse(text: &str) -> Option<TimeOfDay> {
        let (hour, minute) = text.split_once(':')?;
        let digits = |part: &str, most: u8| {
            let good = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
            part.parse().ok().filter(|number| good && *number <= most)
        };
        Some(TimeOfDay { hour: digits(hour, 23)?, minute: digits(minute, 59)? })
    }
}

impl std::fmt::Display for TimeOfDay {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:02}:{:02}", self.hour, self.minute)
    }
}

/// When a schedule runs, as it is configured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// At the multiples of this interval, counted from 1970 UTC: at least a second.
    Every(Duration),
    /// Every day at these times.
    At(Vec<TimeOfDay>),
    /// By a cron line of five fields (crontab(5)).
    Cron(String),
}

/// The runs of a schedule.
#[derive(Debug, Clone)]
pub struct Timetable {
    kind: Kind,
    zone: TimeZone,
}

#[derive(Debug, Clone)]
enum Kind {
    Every(i64),
    Lines(Vec<CronLine>),
}

impl Timetable {
    /// The runs of `when` in the time zone `zone`, such as `Europe/Berlin`; none: the system's.
    ///
    /// # Errors
    /// The end of a sentence about the setting: what is wrong with it.
    pub fn new(when: &When, zone: Option<&str>) -> Result<Timetable, String> {
        let kind = match when {
            When::Every(interval) => {
                let seconds = i64::try_from(interval.as_secs()).unwrap_or(i64::MAX);
                if seconds == 0 || interval.subsec_nanos() != 0 {
                    return Err("is no number of whole seconds".to_owned());
                }
                Kind::Every(seconds)
            }
            When::At(times) => {
                let lines = times.iter().map(|time| CronLine::daily(*time));
                Kind::Lines(lines.collect::<Result<_, _>>()?)
            }
            When::Cron(line) => Kind::Lines(vec![CronLine::parse(line)?]),
        };
        let zone = match zone {
            Some(name) => zone_named(name)?,
            None => TimeZone::try_system().unwrap_or(TimeZone::UTC),
        };
        Ok(Timetable { kind, zone })
    }

    /// The first run after `after`; none: there is no further one.
    pub fn next(&self, after: UnixSeconds) -> Option<UnixSeconds> {
        match &self.kind {
            Kind::Every(interval) => {
                after.div_euclid(*interval).checked_add(1)?.checked_mul(*interval)
            }
            Kind::Lines(lines) => {
                lines.iter().filter_map(|line| line.next(after, &self.zone)).min()
            }
        }
    }

    /// Whether its runs are times of the day, which a clock that is set back does not repeat.
    pub fn is_fixed(&self) -> bool {
        match &self.kind {
            Kind::Every(_) => false,
            Kind::Lines(lines) => lines.iter().all(CronLine::is_fixed),
        }
    }

    /// A point in time as people in the schedule's time zone write it, such as
    /// `2027-03-28 03:00 +02:00`.
    pub fn in_words(&self, at: UnixSeconds) -> String {
        let Ok(at) = Timestamp::from_second(at) else { return "never".to_owned() };
        let zoned = at.to_zoned(self.zone.clone());
        zoned.strftime("%Y-%m-%d %H:%M:%S %:z").to_string().replace(":00 ", " ")
    }

    /// What happens to the runs at the changes of the clock within a year after `now`: one sentence
    /// for each change that concerns one.
    pub fn notes(&self, now: UnixSeconds) -> Vec<String> {
        match &self.kind {
            Kind::Every(_) => Vec::new(),
            Kind::Lines(lines) => notes::of_changes(lines, &self.zone, now),
        }
    }
}

/// Whether the system knows a time zone of this name.
///
/// # Errors
/// The end of a sentence about the name.
pub fn zone_named(name: &str) -> Result<TimeZone, String> {
    TimeZone::get(name).map_err(|_| {
        "is no time zone of this system; expected one such as \"Europe/Berlin\" or \"UTC\", from \
         /usr/share/zoneinfo (package tzdata)"
            .to_owned()
    })
}
