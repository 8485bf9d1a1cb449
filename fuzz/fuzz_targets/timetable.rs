//! Cron lines and times of the day: whatever is accepted runs later and later, within a bounded
//! search, also across changes of the clock.

#![no_main]

use libfuzzer_sys::fuzz_target;
use maitred_timetable::{TimeOfDay, Timetable, When};

/// 2026-03-28, a day before the clocks of Berlin change.
const START: i64 = 1_774_656_000;

/// Runs of each line that are looked at.
const RUNS: usize = 20;

const ZONES: [&str; 4] =
    ["Europe/Berlin", "Australia/Lord_Howe", "America/New_York", "Pacific/Apia"];

fn goes_forward(when: &When, zone: &str) {
    let Ok(table) = Timetable::new(when, Some(zone)) else { return };
    let mut at = START;
    for _ in 0..RUNS {
        let Some(next) = table.next(at) else { break };
        assert!(next > at, "{when:?} {zone}: {next} after {at}");
        assert_eq!(table.next(next - 1), Some(next), "{when:?} {zone}: no run is left out");
        at = next;
    }
    for note in table.notes(START) {
        assert!(note.starts_with("on "), "{note}");
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let zone = ZONES[usize::from(*first) % ZONES.len()];
    goes_forward(&When::Cron(text.to_owned()), zone);
    let times: Vec<TimeOfDay> = text.split(' ').filter_map(TimeOfDay::parse).collect();
    if !times.is_empty() {
        goes_forward(&When::At(times), zone);
    }
});
