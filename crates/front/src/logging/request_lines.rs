//! The log lines about one request, for the dashboard.

use std::sync::{Mutex, PoisonError};

/// Most lines that are collected of a request.
const MAX_LINES: usize = 16;

/// Longest line in bytes; longer ones are cut.
const MAX_LINE_BYTES: usize = 400;

/// The first log lines about a request; none where nothing shows them.
#[derive(Debug)]
pub struct RequestLines(Option<Mutex<Vec<String>>>);

impl RequestLines {
    /// No lines yet. Without `are_wanted` there never are any.
    pub fn new(are_wanted: bool) -> RequestLines {
        RequestLines(are_wanted.then(Mutex::default))
    }

    /// Adds a line, while there is room.
    pub fn add(&self, line: impl FnOnce() -> String) {
        let Some(lines) = &self.0 else { return };
        let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() < MAX_LINES {
            let line = line();
            let mut end = line.len().min(MAX_LINE_BYTES);
            while !line.is_char_boundary(end) {
                end -= 1;
            }
            lines.push(line.get(..end).unwrap_or_default().to_owned());
        }
    }

    /// Takes all lines.
    pub fn take(&self) -> Vec<String> {
        let Some(lines) = &self.0 else { return Vec::new() };
        std::mem::take(&mut lines.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_logs_much_is_cut_short() {
        let lines = RequestLines::new(true);
        for _ in 0..100 {
            lines.add(|| "\u{20ac}".repeat(1000));
        }
        let taken = lines.take();
        assert_eq!((taken.len(), taken[0].len()), (MAX_LINES, 399));
        assert!(lines.take().is_empty());
    }

    #[test]
    fn where_nothing_shows_lines_none_is_made() {
        let lines = RequestLines::new(false);
        lines.add(|| panic!("a line is made"));
        assert!(lines.take().is_empty());
    }
}
