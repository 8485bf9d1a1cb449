//! A year of runs across two changes of the clock, beside an independent reference that walks
//! through it minute by minute with cron's rules, and beside systemd's calendar.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use maitred_timetable::{TimeOfDay, Timetable, When};

/// The year 2026, which has both changes in each of these zones but the last.
const START: i64 = 1_767_225_600;
const MINUTES: i64 = 365 * 24 * 60;
const ZONES: [&str; 4] =
    ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"];

/// Schedules for each zone: 200 together.
const SCHEDULES: usize = 50;

/// One field of a line: the numbers, and whether it begins with a `*`.
struct Field {
    numbers: u64,
    is_wild: bool,
}

impl Field {
    fn has(&self, number: i8) -> bool {
        self.numbers & (1 << number) != 0
    }
}

/// The text of a random field, and its meaning.
fn field(random: &mut fastrand::Rng, from: u32, to: u32) -> (String, Field) {
    let set = |numbers: &mut dyn Iterator<Item = u32>| numbers.fold(0, |all, one| all | 1 << one);
    match random.u32(0..6) {
        0 | 1 => {
            let one = random.u32(from..=to);
            (one.to_string(), Field { numbers: 1 << one, is_wild: false })
        }
        2 => {
            let some: BTreeSet<u32> = (0..3).map(|_| random.u32(from..=to)).collect();
            let text: Vec<String> = some.iter().map(u32::to_string).collect();
            let numbers = set(&mut some.into_iter());
            (text.join(","), Field { numbers, is_wild: false })
        }
        3 => {
            let (low, step) = (random.u32(from..to), random.u32(1..=4));
            let high = random.u32(low..=to);
            let numbers = set(&mut (low..=high).step_by(step as usize));
            (format!("{low}-{high}/{step}"), Field { numbers, is_wild: false })
        }
        4 => {
            let step = random.u32(2..=7);
            let numbers = set(&mut (from..=to).step_by(step as usize));
            (format!("*/{step}"), Field { numbers, is_wild: true })
        }
        _ => ("*".to_owned(), Field { numbers: set(&mut (from..=to)), is_wild: true }),
    }
}

struct Line {
    text: String,
    fields: [Field; 5],
}

impl Line {
    fn random(random: &mut fastrand::Rng) -> Line {
        let made = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)].map(|(from, to)| {
            // Dates that leave runs in the year.
            match to != 59 && to != 23 && random.u32(0..3) > 0 {
                true => ("*".to_owned(), Field { numbers: u64::MAX, is_wild: true }),
                false => field(random, from, to),
            }
        });
        let text = made.each_ref().map(|(text, _)| text.clone()).join(" ");
        Line { text, fields: made.map(|(_, field)| field) }
    }

    /// crontab(5): if both days are restricted, either is enough.
    fn matches(&self, at: DateTime) -> bool {
        let [minute, hour, day, month, weekday] = &self.fields;
        if !(minute.has(at.minute()) && hour.has(at.hour()) && month.has(at.month())) {
            return false;
        }
        let of_month = day.has(at.day());
        let of_week = weekday.has(at.weekday().to_sunday_zero_offset());
        match day.is_wild || weekday.is_wild {
            true => of_month && of_week,
            false => of_month || of_week,
        }
    }

    /// cron(8): a line whose minute and hour are given runs at skipped times when the clock has
    /// changed, and not at repeated ones.
    fn runs(&self, minutes: &[DateTime]) -> Vec<usize> {
        let is_fixed = !self.fields[0].is_wild && !self.fields[1].is_wild;
        let mut latest = minutes[0].checked_sub(1.minute()).unwrap();
        let mut runs = Vec::new();
        for (number, &now) in minutes.iter().enumerate() {
            let mut is_run = self.matches(now);
            if is_fixed {
                is_run = is_run && now > latest;
                let is_change = number > 0
                    && (now.minute() != (minutes[number - 1].minute() + 1) % 60
                        || now.hour() != minutes[number - 1].hour());
                if is_change {
                    let mut skipped = latest.checked_add(1.minute()).unwrap();
                    while skipped < now {
                        is_run = is_run || self.matches(skipped);
                        skipped = skipped.checked_add(1.minute()).unwrap();
                    }
                }
                latest = latest.max(now);
            }
            if is_run {
                runs.push(number);
            }
        }
        runs
    }
}

fn minutes_of(zone: &TimeZone) -> Vec<DateTime> {
    let at = |minute| zone.to_datetime(Timestamp::from_second(START + minute * 60).unwrap());
    (0..MINUTES).map(at).collect()
}

#[test]
fn two_hundred_schedules_run_for_a_year_as_cron_runs_them() {
    for (number, name) in ZONES.iter().enumerate() {
        let zone = TimeZone::get(name).unwrap();
        let minutes = minutes_of(&zone);
        let mut random = fastrand::Rng::with_seed(number as u64);
        let (mut compared, mut schedules) = (0, 0);
        while schedules < SCHEDULES {
            let line = Line::random(&mut random);
            let Ok(table) = Timetable::new(&When::Cron(line.text.clone()), Some(name)) else {
                continue;
            };
            schedules += 1;
            let mut from = START - 1;
            // Each run is looked for with a search of its own; a few thousand show enough.
            for run in line.runs(&minutes).into_iter().take(20_000) {
                let expected = START + run as i64 * 60;
                let found = table.next(from);
                let words = (found.map(|found| table.in_words(found)), table.in_words(expected));
                assert_eq!(found, Some(expected), "{} {name}: {words:?}", line.text);
                (from, compared) = (expected, compared + 1);
            }
        }
        assert!(compared > 10_000, "{compared} runs are too few to show anything");
    }
}

/// The times at which systemd would run from this time on.
fn by_systemd(spec: &str, from: i64, count: usize) -> BTreeSet<i64> {
    let from = Timestamp::from_second(from).unwrap().strftime("%Y-%m-%d %H:%M:%S");
    let output = Command::new("systemd-analyze")
        .args(["calendar".to_owned(), format!("--base-time={from}")])
        .arg(format!("--iterations={count}"))
        .arg(spec)
        .env("TZ", "UTC")
        .output()
        .expect("systemd-analyze is installed");
    let text = String::from_utf8(output.stdout).unwrap();
    let at = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let day = words.iter().position(|word| word.starts_with("202"))?;
        let zone = words.get(day + 2).filter(|zone| **zone == "UTC");
        let text = format!("{}T{}Z", words[day], words.get(day + 1).filter(|_| zone.is_some())?);
        text.parse::<Timestamp>().ok().map(Timestamp::as_second)
    };
    text.lines().filter_map(at).collect()
}

#[test]
fn times_of_the_day_are_those_of_systemds_calendar_but_for_a_skipped_one() {
    const DAYS: usize = 360;
    // systemd leaves the run out; cron and we run it when the clock has changed.
    let skipped = ["2026-03-29 03:00 +02:00"];
    for (time, expected) in [("03:10", &[][..]), ("02:30", &skipped[..]), ("23:59", &[][..])] {
        let when = When::At(vec![TimeOfDay::parse(time).unwrap()]);
        let table = Timetable::new(&when, Some("Europe/Berlin")).unwrap();
        let theirs = by_systemd(&format!("*-*-* {time}:00 Europe/Berlin"), START - 1, DAYS);
        let last = *theirs.last().unwrap();
        let ours: BTreeSet<i64> = std::iter::successors(table.next(START), |at| table.next(*at))
            .take_while(|at| *at <= last)
            .collect();
        assert!(theirs.len() > DAYS - 10, "{} runs of systemd", theirs.len());
        let differ: Vec<String> =
            ours.symmetric_difference(&theirs).map(|at| table.in_words(*at)).collect();
        assert_eq!(differ, expected, "{time}");
    }
}

/// A line of cron, and what it is in systemd's calendar.
fn same_for_both(random: &mut fastrand::Rng, zone: &str) -> (String, String) {
    let mut list = |from: u32, to: u32, most: usize| {
        let some: BTreeSet<u32> =
            (0..random.usize(1..=most)).map(|_| random.u32(from..=to)).collect();
        some.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
    };
    // Hours in which the clocks of these zones change are among them more often.
    let (minute, hour) = (list(0, 59, 2), [list(0, 23, 2), list(0, 3, 2)].join(","));
    let (days, months, weekday) = (list(1, 28, 5), list(1, 12, 6), list(0, 6, 3));
    let month = if random.bool() { "*" } else { months.as_str() };
    let by_day = random.u32(0..3);
    let day = if by_day == 1 { days.as_str() } else { "*" };
    let (of_week, names) = match by_day {
        2 => {
            const NAMES: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
            let named = weekday.split(',').map(|day| NAMES[day.parse::<usize>().unwrap()]);
            (weekday.as_str(), named.collect::<Vec<_>>().join(",") + " ")
        }
        _ => ("*", String::new()),
    };
    (
        format!("{minute} {hour} {day} {month} {of_week}"),
        format!("{names}*-{month}-{day} {hour}:{minute}:00 {zone}"),
    )
}

/// Days before each change of the clock from which systemd begins, and its runs from there. Each
/// of its steps takes a third of a millisecond: too much for the whole year.
const DAYS_BEFORE: i64 = 2;
const RUNS_OF_SYSTEMD: usize = 30;

#[test]
fn two_hundred_schedules_run_as_those_of_systemd_when_clocks_change_but_for_skipped_times() {
    let (mut compared, mut skipped) = (0, 0);
    for (number, name) in ZONES.iter().enumerate() {
        let zone = TimeZone::get(name).unwrap();
        let offset = |at: i64| zone.to_offset(Timestamp::from_second(at).unwrap());
        let year = Timestamp::from_second(START).unwrap();
        let changes = zone
            .following(year)
            .take_while(|change| change.timestamp().as_second() < START + MINUTES * 60);
        let bases = changes.map(|change| change.timestamp().as_second() - DAYS_BEFORE * 86_400);
        let mut bases: Vec<i64> = bases.collect();
        if bases.is_empty() {
            bases.push(START);
        }
        let mut random = fastrand::Rng::with_seed(number as u64);
        for _ in 0..SCHEDULES {
            let (line, spec) = same_for_both(&mut random, name);
            let table = Timetable::new(&When::Cron(line.clone()), Some(name)).unwrap();
            for base in &bases {
                let theirs = by_systemd(&spec, *base, RUNS_OF_SYSTEMD);
                let last = *theirs.last().unwrap_or_else(|| panic!("no run of {spec}"));
                let ours = std::iter::successors(table.next(*base), |at| table.next(*at));
                let ours: BTreeSet<i64> = ours.take_while(|at| *at <= last).collect();
                let words = |at: &i64| table.in_words(*at);
                let missing: Vec<_> = theirs.difference(&ours).map(words).collect();
                assert!(missing.is_empty(), "{line} {name}: systemd alone runs at {missing:?}");
                for at in ours.difference(&theirs) {
                    let is_gap = offset(*at) > offset(*at - 1);
                    assert!(is_gap, "{line} {name}: systemd does not run at {}", words(at));
                    skipped += 1;
                }
                compared += theirs.len();
            }
        }
    }
    assert!(compared > 9_000 && skipped > 5, "{compared} runs, {skipped} of skipped times");
}

fn second(text: &str) -> i64 {
    text.parse::<Timestamp>().unwrap().as_second()
}

fn in_berlin(line: &str) -> Timetable {
    Timetable::new(&When::Cron(line.into()), Some("Europe/Berlin")).unwrap()
}

#[test]
fn times_of_the_day_at_the_changes_of_the_clock() {
    let runs = |line: &str, from: &str, count: usize| {
        let table = in_berlin(line);
        let mut at = second(from);
        let mut all = Vec::new();
        for _ in 0..count {
            at = table.next(at).unwrap();
            all.push(table.in_words(at));
        }
        all
    };
    assert_eq!(
        runs("0,30 2 * * *", "2026-03-28T12:00:00Z", 3),
        ["2026-03-29 03:00 +02:00", "2026-03-30 02:00 +02:00", "2026-03-30 02:30 +02:00"]
    );
    assert_eq!(
        runs("30 2 * * *", "2026-10-24T12:00:00Z", 2),
        ["2026-10-25 02:30 +02:00", "2026-10-26 02:30 +01:00"]
    );
    assert_eq!(
        runs("*/30 2 * * *", "2026-10-24T12:00:00Z", 5),
        [
            "2026-10-25 02:00 +02:00",
            "2026-10-25 02:30 +02:00",
            "2026-10-25 02:00 +01:00",
            "2026-10-25 02:30 +01:00",
            "2026-10-26 02:00 +01:00"
        ]
    );
}

#[test]
fn what_a_change_of_the_clock_does_to_a_schedule_is_said() {
    let now = second("2026-01-01T00:00:00Z");
    assert_eq!(
        in_berlin("30 2 * * *").notes(now),
        [
            "on 2026-03-29 there is no 02:30, and it runs at 03:00",
            "on 2026-10-25 02:30 occurs twice, and it runs the first time only"
        ]
    );
    assert_eq!(
        in_berlin("*/30 * * * *").notes(now),
        [
            "on 2026-03-29 it does not run from 02:00 to 03:00, which is skipped",
            "on 2026-10-25 it runs twice from 02:00 to 03:00, which occurs twice"
        ]
    );
    assert!(in_berlin("0 12 * * *").notes(now).is_empty());
}

#[test]
fn an_interval_counts_from_the_epoch_and_a_wrong_line_says_why() {
    let every = Timetable::new(&When::Every(Duration::from_secs(300)), None).unwrap();
    assert_eq!([0, 299, 300].map(|after| every.next(after)), [Some(300), Some(300), Some(600)]);
    let wrong = |line: &str| Timetable::new(&When::Cron(line.into()), Some("UTC")).err().unwrap();
    assert!(wrong("* * * *").starts_with("is no cron line: "), "{}", wrong("* * * *"));
    assert!(wrong("61 * * * *").starts_with("is no cron line: "));
    assert_eq!(wrong(", * * * *"), "is no cron line: `` is not of crontab(5)");
    assert_eq!(wrong("0 0 L * *"), "is no cron line: `L` is not of crontab(5)");
    assert_eq!(wrong("0 0 30 2 *"), "has no run: there is no such day");
    assert!(wrong(&"1,".repeat(200)).starts_with("is longer than"));
    let zone = Timetable::new(&When::Cron("@daily".into()), Some("Europe/Nowhere")).err().unwrap();
    assert!(zone.starts_with("is no time zone"), "{zone}");
}

#[test]
fn whatever_a_line_says_its_runs_only_go_forward() {
    const WORDS: [&str; 24] = [
        "*",
        "0",
        "1",
        "7",
        "29",
        "31",
        "59",
        "60",
        "99999999999",
        "/",
        "/0",
        "-",
        ",",
        "?",
        "L",
        "W",
        "#",
        "#5",
        "+",
        "@",
        "MON",
        "FEB",
        "@yearly",
        "\u{e9}",
    ];
    let mut random = fastrand::Rng::with_seed(7);
    let (mut valid, mut slowest) = (0, (Duration::ZERO, String::new()));
    for _ in 0..20_000 {
        let fields = [5, 5, 5, random.usize(1..7)][random.usize(0..4)];
        let mut field = || {
            if random.bool() {
                return "*".to_owned();
            }
            let count = [1, 1, 2, 3][random.usize(0..4)];
            let words = (0..count).map(|_| WORDS[random.usize(0..WORDS.len())]);
            words.collect::<String>()
        };
        let line = (0..fields).map(|_| field()).collect::<Vec<_>>().join(" ");
        let begun = std::time::Instant::now();
        let table = Timetable::new(&When::Cron(line.clone()), Some("Europe/Berlin"));
        if let Ok(table) = table {
            let mut at = START;
            for _ in 0..20 {
                let Some(next) = table.next(at) else { break };
                assert!(next > at, "{line}");
                at = next;
            }
            valid += 1;
        }
        if begun.elapsed() > slowest.0 {
            slowest = (begun.elapsed(), line);
        }
    }
    assert!(valid > 100, "{valid} valid lines are too few");
    eprintln!("{valid} valid lines; the slowest took {slowest:?}");
}
