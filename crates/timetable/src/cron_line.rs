//! One cron line. The crate croner parses it and finds matching times on a clock without changes;
//! what the changes of a time zone do to them is decided here.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan};

use crate::{TimeOfDay, UnixSeconds};

/// Longest cron line, in bytes.
pub const MAX_LINE_BYTES: usize = 256;

/// Most changes of a clock that a search passes: those of some centuries.
const MAX_CHANGES: usize = 1000;

/// Most matching times of the day that are passed over since they are not later: those of a gap.
const MAX_PASSED: usize = 10_000;

/// The nickname whose hour is a wildcard.
const HOURLY: &str = "@hourly";

/// A parsed line.
#[derive(Debug, Clone)]
pub struct CronLine {
    cron: Cron,
    /// Minute and hour are given: the runs are times of the day.
    is_fixed: bool,
}

impl CronLine {
    /// Parses a line of five fields, or a nickname such as `@daily`.
    pub fn parse(line: &str) -> Result<CronLine, String> {
        if line.len() > MAX_LINE_BYTES {
            return Err(format!("is longer than {MAX_LINE_BYTES} bytes"));
        }
        let line = line.trim();
        // What croner takes beyond crontab(5) includes fields without a number, for whose next
        // match it searches thousands of years minute by minute.
        let is_nickname = line.starts_with('@') && !line.contains(char::is_whitespace);
        if !is_nickname && let Some(item) = items(line).find(|item| !is_item(item)) {
            return Err(format!("is no cron line: `{item}` is not of crontab(5)"));
        }
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed);
        let cron = parser.dom_and_dow(needs_both_days(line)).build().parse(line);
        let cron = cron.map_err(|why| {
            let why = why.to_string();
            format!("is no cron line: {}", why.trim_end_matches('.'))
        })?;
        let is_fixed = match line.starts_with('@') {
            true => !line.eq_ignore_ascii_case(HOURLY),
            false => line.split_ascii_whitespace().take(2).all(|field| !field.starts_with('*')),
        };
        // A date that does not exist, such as 30 February, would be looked for at each start.
        let line = CronLine { cron, is_fixed };
        match line.matching(DateTime::constant(2024, 1, 1, 0, 0, 0, 0), true) {
            Some(_) => Ok(line),
            None => Err("has no run: there is no such day".to_owned()),
        }
    }

    /// Every day at this time.
    pub fn daily(time: TimeOfDay) -> Result<CronLine, String> {
        CronLine::parse(&format!("{} {} * * *", time.minute, time.hour))
    }

    /// Whether its runs are times of the day.
    pub fn is_fixed(&self) -> bool {
        self.is_fixed
    }

    /// The first matching time from `from` on, which counts only if `inclusive`, on a clock without
    /// changes.
    pub fn matching(&self, from: DateTime, inclusive: bool) -> Option<DateTime> {
        let from = from.to_zoned(TimeZone::UTC).ok()?;
        let found = self.cron.find_next_occurrence(&from, inclusive).ok()?;
        Some(found.datetime())
    }

    /// The first run after `after`.
    pub fn next(&self, after: UnixSeconds, zone: &TimeZone) -> Option<UnixSeconds> {
        let after = Timestamp::from_second(after).ok()?;
        match self.is_fixed {
            true => self.next_fixed(after, zone),
            false => self.next_by_the_clock(after, zone),
        }
    }

    fn next_fixed(&self, after: Timestamp, zone: &TimeZone) -> Option<UnixSeconds> {
        let mut wanted = self.matching(zone.to_datetime(after), true)?;
        for _ in 0..MAX_PASSED {
            let at = instant(wanted, zone)?;
            if at > after {
                return Some(at.as_second());
            }
            wanted = self.matching(wanted, false)?;
        }
        None
    }

    fn next_by_the_clock(&self, after: Timestamp, zone: &TimeZone) -> Option<UnixSeconds> {
        let (mut from, mut inclusive) = (after, false);
        for _ in 0..MAX_CHANGES {
            let offset = zone.to_offset(from);
            let wanted = self.matching(offset.to_datetime(from), inclusive)?;
            let at = offset.to_timestamp(wanted).ok()?;
            let change = zone.following(from).next().map(|change| change.timestamp());
            match change.filter(|change| *change <= at) {
                None => return Some(at.as_second()),
                Some(change) => (from, inclusive) = (change, true),
            }
        }
        None
    }
}

/// The items of the lists in all fields.
fn items(line: &str) -> impl Iterator<Item = &str> {
    line.split_ascii_whitespace().flat_map(|field| field.split(','))
}

/// Whether an item is a number, a name, a range of them, or `*`, the last two also with a step.
fn is_item(item: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    let is_name = |text: &str| text.len() == 3 && text.bytes().all(|c| c.is_ascii_alphabetic());
    let (range, step) =
        item.split_once('/').map_or((item, None), |(range, step)| (range, Some(step)));
    let mut ends = range.split('-');
    let is_range = ends.all(|end| is_number(end) || is_name(end)) && range.split('-').count() <= 2;
    let has_many = range == "*" || range.contains('-');
    (range == "*" || is_range) && step.is_none_or(|step| has_many && is_number(step))
}

/// Whether a day has to match both of its fields: if one of them begins with `*` (crontab(5)).
fn needs_both_days(line: &str) -> bool {
    let mut fields = line.split_ascii_whitespace();
    let days = [fields.nth(2), fields.nth(1)];
    days.into_iter().flatten().any(|field| field.starts_with('*'))
}

/// When a time of the day comes: the first time if it occurs twice, and the end of the gap if it
/// does not.
fn instant(wanted: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    let found = zone.to_ambiguous_timestamp(wanted);
    match found.offset() {
        AmbiguousOffset::Gap { after, .. } => {
            // With the offset after the gap, the time lies before the change.
            let before = after.to_timestamp(wanted).ok()?;
            let second = 1.second();
            let change = zone.following(before.checked_sub(second).ok()?).next()?;
            Some(change.timestamp())
        }
        AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => found.earlier().ok(),
    }
}
