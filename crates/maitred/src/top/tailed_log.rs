//! The logs that `maitred top` follows: a thread for each server reads as `maitred logs` does, and
//! leaves the last lines.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use maitred_control::admin::{Reply, Request};
use maitred_text::humanize::shorten;

use crate::client::{Client, UNEXPECTED};
use crate::log_lines::{LogOutput, plain, read_log};

/// Most lines of a server.
const MAX_LINES: usize = 1000;

/// Most bytes of the lines of a server.
const MAX_BYTES: usize = 1 << 20;

/// Longest line, in characters; the rest of a longer one is left out.
const MAX_CHARS: usize = 2000;

/// Time after which a log that could not be read is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// The end of the log of a server.
#[derive(Debug, Clone, Default)]
pub struct LogEnd {
    /// The last lines, the oldest first.
    pub lines: VecDeque<String>,
    /// Why it cannot be read.
    pub problem: Option<String>,
    /// Bytes of the lines.
    pub bytes: usize,
}

impl LogEnd {
    fn push(&mut self, line: String) {
        self.bytes += line.len();
        self.lines.push_back(line);
        while self.lines.len() > MAX_LINES || self.bytes > MAX_BYTES {
            let Some(first) = self.lines.pop_front() else { return };
            self.bytes -= first.len();
        }
    }
}

/// The log of a server that is followed.
#[derive(Debug, Clone)]
pub struct TailedLog(Arc<Mutex<LogEnd>>);

impl TailedLog {
    /// Follows the log of the server with this admin socket until the program ends.
    pub fn follow(socket: PathBuf) -> TailedLog {
        let log = TailedLog(Arc::default());
        let output = log.clone();
        let follow = move || {
            loop {
                let ended = read(&socket, output.clone());
                let problem = ended.err().unwrap_or_else(|| "its log has ended".to_owned());
                // What is there is read once more.
                *output.lock() = LogEnd { problem: Some(problem), ..LogEnd::default() };
                std::thread::sleep(RETRY);
            }
        };
        if let Err(why) = std::thread::Builder::new().spawn(follow) {
            log.lock().problem = Some(format!("there is no thread to follow it: {why}"));
        }
        log
    }

    /// What is there.
    pub fn read(&self) -> LogEnd {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, LogEnd> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(socket: &Path, output: TailedLog) -> Result<(), String> {
    match Client::connect(Some(socket))?.ask(&Request::FindLog)? {
        Reply::Log(found) => read_log(found, output, true),
        Reply::Refused { why } => Err(why),
        _ => Err(UNEXPECTED.to_owned()),
    }
}

impl LogOutput for TailedLog {
    fn take(&mut self, line: &[u8]) {
        let line = plain(line).replace('\t', "    ");
        let mut log = self.lock();
        log.problem = None;
        log.push(shorten(&line, MAX_CHARS));
    }

    fn show_last(&mut self) -> bool {
        self.lock().problem = None;
        true
    }

    fn flush(&mut self) -> bool {
        true
    }

    fn complaints(&self) -> Stdio {
        // They would be written across the picture.
        Stdio::null()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_log_are_bounded_in_number_and_size() {
        let mut log = TailedLog(Arc::default());
        for number in 0..2 * MAX_LINES {
            log.take(format!("{number}\t\x1b[2J").as_bytes());
        }
        let end = log.read();
        assert_eq!((end.lines.len(), end.lines[0].as_str()), (MAX_LINES, "1000    \u{fffd}[2J"));
        for _ in 0..2 * MAX_LINES {
            log.take("\u{20ac}".repeat(10 * MAX_CHARS).as_bytes());
        }
        let end = log.read();
        assert!(end.lines.iter().map(String::len).sum::<usize>() <= MAX_BYTES);
        assert!(end.lines.iter().all(|line| line.chars().count() == MAX_CHARS));
    }
}
