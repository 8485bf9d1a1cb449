//! The log lines about one request, for the dashboard.

use std::sync::{Mutex, PoisonError};

/// Most lines that are collected of a request.
const MAX_LINES: usize = 16;

/// Longest line in bytes; longer ones are cut.
const MAX_LINE_BYTES: usize = 400;

/// The first log lines about a request.
#[derive(Debug, Default)]
pub struct RequestLines(Mutex<Vec<String>>);

impl RequestLines {
    /// Adds a line, while there is room.
    pub fn add(&self, line: &str) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() < MAX_LINES {
            let mut end = line.len().min(MAX_LINE_BYTES);
            while !line.is_char_boundary(end) {
                end -= 1;
            }
            lines.push(line.get(..end).unwrap_or_default().to_owned());
        }
    }

    /// Takes all lines.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_logs_much_is_cut_short() {
        let lines = RequestLines::default();
        for _ in 0..100 {
            lines.add(&"\u{20ac}".repeat(1000));
        }
        let taken = lines.take();
        assert_eq!((taken.len(), taken[0].len()), (MAX_LINES, 399));
        assert!(lines.take().is_empty());
    }
}
