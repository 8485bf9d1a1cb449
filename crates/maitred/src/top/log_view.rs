//! The lines of the tab `logs`: those of all servers by time, filtered, and wrapped to the screen.

use std::collections::VecDeque;
use std::path::Path;

use maitred_text::humanize::shorten;

use crate::top::tailed_log::LogEnd;

/// Most rows of the screen that a line takes.
const MAX_ROWS: usize = 4;

/// Before each further row of a line.
const INDENT: &str = "    ";

/// Narrowest screen that lines are wrapped to, in columns.
const MIN_COLUMNS: usize = 20;

/// Bytes at the start of a line that are its time, to the second.
const TIME_BYTES: usize = 19;

/// A line of the log with those that belong to it.
struct Record<'a> {
    lines: Vec<&'a str>,
}

impl Record<'_> {
    /// Its time as text; empty if it has none. Those of a machine are in one form.
    fn time(&self) -> &str {
        let first = self.lines.first().copied().unwrap_or_default();
        let time = first.get(..TIME_BYTES).unwrap_or_default();
        if time.starts_with(|c: char| c.is_ascii_digit()) { time } else { "" }
    }
}

/// The rows of all logs together. `names` are those of the servers, which stand before each line if
/// there are several.
pub fn rows(logs: &[&LogEnd], names: &[String], filter: &str, columns: usize) -> Vec<String> {
    let mut rows = Vec::new();
    let filter = filter.to_lowercase();
    let mut all: Vec<VecDeque<Record<'_>>> = logs.iter().map(|log| records(log, &filter)).collect();
    let is_single = logs.len() == 1;
    let mark = |server: usize| match names.get(server) {
        Some(name) if !is_single => format!("{name}: "),
        _ => String::new(),
    };
    while let Some(server) = oldest(&all) {
        let Some(record) = all[server].pop_front() else { break };
        for line in record.lines {
            wrap(&format!("{}{line}", mark(server)), columns, &mut rows);
        }
    }
    for (server, log) in logs.iter().enumerate() {
        if let Some(problem) = &log.problem {
            wrap(&format!("{}{problem}", mark(server)), columns, &mut rows);
        }
    }
    rows
}

/// The log whose next record is the oldest; records without a time come first. The order within a
/// log stays.
fn oldest(all: &[VecDeque<Record<'_>>]) -> Option<usize> {
    let next = all.iter().enumerate().filter_map(|(server, log)| Some((log.front()?, server)));
    next.min_by(|(a, _), (b, _)| a.time().cmp(b.time())).map(|(_, server)| server)
}

/// The records in which the filter occurs. The further lines of a record are indented.
fn records<'a>(log: &'a LogEnd, filter: &str) -> VecDeque<Record<'a>> {
    let mut all: VecDeque<Record<'_>> = VecDeque::new();
    for line in &log.lines {
        match all.back_mut() {
            Some(record) if line.starts_with(' ') => record.lines.push(line),
            _ => all.push_back(Record { lines: vec![line] }),
        }
    }
    let has = |line: &&str| line.to_lowercase().contains(filter);
    all.retain(|record| filter.is_empty() || record.lines.iter().any(has));
    all
}

fn wrap(line: &str, columns: usize, rows: &mut Vec<String>) {
    let columns = columns.max(MIN_COLUMNS);
    let mut rest = line;
    for row in 1..=MAX_ROWS {
        let indent = if row == 1 { "" } else { INDENT };
        let room = columns - indent.len();
        let end = rest.char_indices().nth(room).map(|(at, _)| at).filter(|_| row < MAX_ROWS);
        let (now, later) = rest.split_at(end.unwrap_or(rest.len()));
        rows.push(shorten(&format!("{indent}{now}"), columns));
        rest = later;
        if rest.is_empty() {
            return;
        }
    }
}

/// The shortest ends of these paths that differ.
pub fn short_names(paths: &[&Path]) -> Vec<String> {
    let parts = |path: &Path| -> Vec<String> {
        let parts = path.iter().filter(|part| *part != "/");
        parts.map(|part| part.to_string_lossy().into_owned()).collect()
    };
    let longest = paths.iter().map(|path| parts(path).len()).max().unwrap_or(0);
    let end = |path: &Path, most: usize| {
        let all = parts(path);
        all[all.len().saturating_sub(most)..].join("/")
    };
    let ends = |most: usize| -> Vec<String> { paths.iter().map(|path| end(path, most)).collect() };
    let differ = |names: &Vec<String>| {
        let mut sorted = names.clone();
        sorted.sort();
        sorted.windows(2).all(|two| two[0] != two[1])
    };
    (1..longest).map(ends).find(differ).unwrap_or_else(|| ends(longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: &[&str]) -> LogEnd {
        LogEnd { lines: lines.iter().map(|line| (*line).to_owned()).collect(), ..LogEnd::default() }
    }

    const ONE: [&str; 3] = [
        "2026-11-24T01:21:26+01:00 ERROR pool shop: PHP Fatal error",
        "    #0 {main}",
        "2026-11-24T01:21:30+01:00  INFO pool www: reloaded",
    ];

    #[test]
    fn records_of_several_servers_are_in_the_order_of_their_times_and_have_a_name() {
        let names = ["a".to_owned(), "b".to_owned()];
        let other = log(&["  the rest of a record", "2026-11-24T01:21:28+01:00  WARN slow"]);
        let problem = LogEnd { problem: Some("no".to_owned()), ..other };
        assert_eq!(
            rows(&[&log(&ONE), &problem], &names, "", 80),
            [
                "b:   the rest of a record",
                "a: 2026-11-24T01:21:26+01:00 ERROR pool shop: PHP Fatal error",
                "a:     #0 {main}",
                "b: 2026-11-24T01:21:28+01:00  WARN slow",
                "a: 2026-11-24T01:21:30+01:00  INFO pool www: reloaded",
                "b: no",
            ]
        );
        assert_eq!(rows(&[&log(&ONE)], &names[..1], "", 80), ONE);
    }

    #[test]
    fn a_filter_leaves_whole_records() {
        let shown = |filter: &str| rows(&[&log(&ONE)], &[], filter, 80);
        assert_eq!(shown("SHOP"), ONE[..2]);
        assert_eq!(shown("{main}"), ONE[..2]);
        assert_eq!(shown("pool www"), ONE[2..]);
        assert_eq!(shown("other"), Vec::<String>::new());
    }

    #[test]
    fn a_long_line_is_wrapped_and_cut_and_no_row_is_wider_than_the_screen() {
        let long = "\u{20ac}".repeat(500);
        let all = rows(&[&log(&[&long])], &[], "", 40);
        let widths: Vec<usize> = all.iter().map(|row| row.chars().count()).collect();
        assert_eq!(widths, [40; MAX_ROWS]);
        assert!(all[3].starts_with("    \u{20ac}") && all[3].ends_with('…'), "{}", all[3]);
        assert_eq!(rows(&[&log(&["x"])], &[], "", 0), ["x"]);
    }

    #[test]
    fn names_of_servers_are_as_short_as_they_can_be() {
        let short = |paths: &[&str]| {
            let paths: Vec<&Path> = paths.iter().map(Path::new).collect();
            short_names(&paths)
        };
        assert_eq!(short(&["/run/a.sock", "/run/b.sock"]), ["a.sock", "b.sock"]);
        let nested = ["/srv/a/admin.sock", "/srv/b/admin.sock"];
        assert_eq!(short(&nested), ["a/admin.sock", "b/admin.sock"]);
        assert_eq!(short(&["/run/a.sock"]), ["a.sock"]);
        assert_eq!(short(&["/same", "/same"]), ["same", "same"]);
    }
}
