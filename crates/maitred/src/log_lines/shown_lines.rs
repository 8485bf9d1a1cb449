//! What is printed: the last lines first, then each that comes.

use std::collections::VecDeque;
use std::io::{self, BufWriter, Stdout, Write};
use std::process::Stdio;

use super::LogOutput;
use super::line_filter::LineFilter;
use crate::exit_code::complain;

/// Most last lines.
pub const MAX_LINES: i64 = 10_000;

/// Most bytes of the last lines.
const MAX_LAST_BYTES: usize = 16 << 20;

/// Prints lines that the filter shows.
#[derive(Debug)]
pub struct ShownLines {
    filter: LineFilter,
    most: usize,
    /// The last lines, until they are shown.
    last: Option<VecDeque<String>>,
    bytes: usize,
    stdout: BufWriter<Stdout>,
    is_closed: bool,
}

impl ShownLines {
    /// Shows at most this number of last lines.
    pub fn new(filter: LineFilter, lines: u32) -> ShownLines {
        ShownLines {
            filter,
            most: usize::try_from(lines).unwrap_or(usize::MAX),
            last: Some(VecDeque::new()),
            bytes: 0,
            stdout: BufWriter::new(io::stdout()),
            is_closed: false,
        }
    }

    fn print(&mut self, line: &str) {
        self.is_closed |= writeln!(self.stdout, "{line}").is_err();
    }
}

impl LogOutput for ShownLines {
    fn take(&mut self, line: &[u8]) {
        let line = plain(line);
        if !self.filter.shows(&line) {
            return;
        }
        match &mut self.last {
            Some(last) => {
                self.bytes += line.len();
                last.push_back(line);
                while last.len() > self.most || self.bytes > MAX_LAST_BYTES {
                    let Some(first) = last.pop_front() else { break };
                    self.bytes -= first.len();
                }
            }
            None => self.print(&line),
        }
    }

    /// Prints the last lines; from now on lines are printed as they come. Whether the output is
    /// still open.
    fn show_last(&mut self) -> bool {
        let last = self.last.take().unwrap_or_default();
        if last.is_empty() && self.most > 0 {
            complain(&"no line of the log matches; older ones may be in rotated files");
        }
        for line in last {
            self.print(&line);
        }
        self.flush()
    }

    /// Whether the output is still open.
    fn flush(&mut self) -> bool {
        self.is_closed |= self.stdout.flush().is_err();
        !self.is_closed
    }

    fn complaints(&self) -> Stdio {
        Stdio::inherit()
    }
}

/// A line that does nothing to a terminal.
pub fn plain(line: &[u8]) -> String {
    let line = String::from_utf8_lossy(line);
    let is_plain = |c: char| c == '\t' || !c.is_control();
    line.chars().map(|c| if is_plain(c) { c } else { '\u{fffd}' }).collect()
}
