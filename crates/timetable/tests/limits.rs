//! What a schedule may say: times, intervals, lines, and where each of them ends.

use std::time::Duration;

use maitred_timetable::{MAX_LINE_BYTES, TimeOfDay, Timetable, When};

fn wrong(line: &str) -> Option<String> {
    Timetable::new(&When::Cron(line.to_owned()), Some("UTC")).err()
}

#[test]
fn a_time_of_the_day_has_two_digits_for_each_part() {
    let time = |hour, minute| Some(TimeOfDay { hour, minute });
    assert_eq!(TimeOfDay::parse("00:00"), time(0, 0));
    assert_eq!(TimeOfDay::parse("23:59"), time(23, 59));
    for wrong in ["24:00", "23:60", "3:10", "03:1", "0310", "+3:10", "03:+1", "03:10:00", "", ":"] {
        assert_eq!(TimeOfDay::parse(wrong), None, "{wrong}");
    }
    assert_eq!(TimeOfDay { hour: 3, minute: 7 }.to_string(), "03:07");
}

#[test]
fn an_interval_is_a_number_of_whole_seconds() {
    let every = |millis| Timetable::new(&When::Every(Duration::from_millis(millis)), None);
    assert_eq!(every(1000).unwrap().next(7), Some(8));
    for millis in [0, 1, 999, 1001] {
        assert_eq!(every(millis).unwrap_err(), "is no number of whole seconds");
    }
    let longest = Timetable::new(&When::Every(Duration::from_secs(u64::MAX)), None).unwrap();
    assert_eq!((longest.next(-1), longest.next(0)), (Some(0), Some(i64::MAX)));
    assert_eq!(every(1000).unwrap().next(i64::MAX), None);
}

#[test]
fn an_item_of_a_line_is_a_number_a_name_or_a_range() {
    for line in ["1-5/2 * * * *", "*/5 * * * *", "0 0 * jan-mar mon-fri", "0 0 1,3-4 * SUN"] {
        assert_eq!(wrong(line), None, "{line}");
    }
    for item in ["1-2-3", "5/2", "*/x", "*/", "1-", "-", "monday", "mo", "*-5", "a1b"] {
        let expected = format!("is no cron line: `{item}` is not of crontab(5)");
        assert_eq!(wrong(&format!("{item} * * * *")), Some(expected));
    }
    let padded = |length: usize| format!("{:length$}", "0 0 * * *");
    assert_eq!(wrong(&padded(MAX_LINE_BYTES)), None);
    let why = wrong(&padded(MAX_LINE_BYTES + 1));
    assert_eq!(why.as_deref(), Some("is longer than 256 bytes"));
}

#[test]
fn nicknames_are_times_of_the_day_but_for_the_hourly_one() {
    let now = 1_767_225_600;
    let notes = |line: &str| {
        let table = Timetable::new(&When::Cron(line.to_owned()), Some("Europe/Berlin")).unwrap();
        table.notes(now)
    };
    for hourly in ["@hourly", "@HOURLY"] {
        assert_eq!(
            notes(hourly),
            [
                "on 2026-03-29 it does not run from 02:00 to 03:00, which is skipped",
                "on 2026-10-25 it runs twice from 02:00 to 03:00, which occurs twice"
            ]
        );
    }
    assert!(notes("@daily").is_empty());
    assert!(notes("0 3 * * *").is_empty(), "the end of the gap is there, and occurs once");
    assert_eq!(notes("0 2 * * *").len(), 2);
    let every = Timetable::new(&When::Every(Duration::from_secs(60)), Some("Europe/Berlin"));
    assert!(every.unwrap().notes(now).is_empty());
}

#[test]
fn one_of_two_days_is_enough_unless_a_field_begins_with_a_wildcard() {
    let start = 1_767_225_600;
    // Days of 2026, from 0, on which lines run.
    let days = |line: &str| {
        let table = Timetable::new(&When::Cron(line.to_owned()), Some("UTC")).unwrap();
        let runs = std::iter::successors(table.next(start), |run| table.next(*run));
        runs.take(2).map(|run| (run - start) / 86_400).collect::<Vec<_>>()
    };
    assert_eq!(days("0 0 13 * fri"), [1, 8]);
    assert_eq!(days("0 0 */2 * mon"), [4, 18]);
    assert_eq!(days("0 0 13 * */5"), [43, 71]);
}

#[test]
fn a_time_that_no_calendar_has_is_never() {
    let table = Timetable::new(&When::Cron("@daily".to_owned()), Some("UTC")).unwrap();
    assert_eq!(table.in_words(i64::MAX), "never");
    assert_eq!(table.in_words(0), "1970-01-01 00:00 +00:00");
    assert_eq!(table.in_words(61), "1970-01-01 00:01:01 +00:00");
    assert_eq!(table.next(i64::MAX), None);
}
