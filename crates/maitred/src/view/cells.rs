//! Parts of lines and cells of tables.

use std::collections::BTreeMap;

use maitred_control::admin::Quantiles;
use maitred_text::humanize::{compact_count, compact_time, shorten};

/// The counts above 0 with their names.
pub fn counts(counts: &BTreeMap<String, u64>) -> String {
    let some = counts.iter().filter(|(_, count)| **count > 0);
    let some: Vec<String> = some.map(|(name, count)| format!("{count} {name}")).collect();
    if some.is_empty() {
        return "none".to_owned();
    }
    some.join(", ")
}

/// The sum of the counts whose name `is_counted`.
pub fn sum(counts: &BTreeMap<String, u64>, is_counted: impl Fn(&str) -> bool) -> u64 {
    let counted = counts.iter().filter(|(name, _)| is_counted(name));
    counted.fold(0, |sum, (_, count)| sum.saturating_add(*count))
}

/// The median and the 99th percentile.
pub fn p50_p99(times: &Quantiles) -> String {
    match (times.p50_seconds, times.p99_seconds) {
        (Some(p50), Some(p99)) => format!("{}/{}", compact_time(p50), compact_time(p99)),
        _ => "-".to_owned(),
    }
}

/// A number with a limit: `3/64`.
pub fn of_limit(number: u64, limit: u64) -> String {
    format!("{}/{}", compact_count(number, 3), compact_count(limit, 3))
}

/// Lines that fit into these columns.
pub fn fitting(lines: Vec<String>, columns: usize) -> Vec<String> {
    lines.iter().map(|line| shorten(line, columns)).collect()
}
