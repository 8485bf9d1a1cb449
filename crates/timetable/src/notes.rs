//! What changes of the clock do to the runs of a schedule, as sentences for `maitred check`.

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, ToSpan};

use crate::UnixSeconds;
use crate::cron_line::CronLine;

/// How far ahead changes are looked for, in hours: a year.
const AHEAD_HOURS: i64 = 366 * 24;

/// Most changes of the clock in that time that are looked at.
const MAX_CHANGES: usize = 8;

/// A change of the clock.
struct Change {
    at: Timestamp,
    before: Offset,
    after: Offset,
}

impl Change {
    /// The times of the day that are skipped, or that occur twice.
    fn range(&self) -> [DateTime; 2] {
        let ends = [self.before.to_datetime(self.at), self.after.to_datetime(self.at)];
        if self.is_gap() { ends } else { [ends[1], ends[0]] }
    }

    fn is_gap(&self) -> bool {
        self.after > self.before
    }
}

/// One sentence for each change within a year that concerns a run.
pub fn of_changes(lines: &[CronLine], zone: &TimeZone, now: UnixSeconds) -> Vec<String> {
    let Ok(now) = Timestamp::from_second(now) else { return Vec::new() };
    let Ok(end) = now.checked_add(AHEAD_HOURS.hours()) else { return Vec::new() };
    let mut before = zone.to_offset(now);
    let mut notes = Vec::new();
    for found in zone.following(now).take(MAX_CHANGES) {
        if found.timestamp() > end {
            break;
        }
        let change = Change { at: found.timestamp(), before, after: found.offset() };
        before = found.offset();
        notes.extend(lines.iter().filter_map(|line| note(line, &change)));
    }
    notes
}

fn note(line: &CronLine, change: &Change) -> Option<String> {
    let [from, to] = change.range();
    let first = line.matching(from, true).filter(|first| *first < to)?;
    let (day, first) = (first.strftime("%Y-%m-%d"), first.strftime("%H:%M"));
    let (from, to) = (from.strftime("%H:%M"), to.strftime("%H:%M"));
    Some(match (change.is_gap(), line.is_fixed()) {
        (true, true) => format!("on {day} there is no {first}, and it runs at {to}"),
        (true, false) => format!("on {day} it does not run from {from} to {to}, which is skipped"),
        (false, true) => format!("on {day} {first} occurs twice, and it runs the first time only"),
        (false, false) => {
            format!("on {day} it runs twice from {from} to {to}, which occurs twice")
        }
    })
}
