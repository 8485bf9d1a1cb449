//! A pool's slow log: the file, and how php-fpm writes an entry (`fpm_php_trace.c`).

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};

use maitred_config::LogTarget;
use maitred_control::stack::{Frame, MAIN, Stack};
use maitred_os::clock::LocalTime;
use maitred_os::stderr;
use maitred_os::users::Identity;

use crate::logging::log_files;
use crate::logging::running_time::RunningTime;

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// What an entry is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// Name of the pool.
    pub pool: String,
    /// The worker's process id.
    pub pid: i32,
    /// The script, by the word of its worker; the stack knows better.
    pub script: String,
    /// The request's id in the logs; empty if it has none.
    pub id: String,
    /// Where its time went so far, if that is known.
    pub running_time: Option<RunningTime>,
}

/// A slow log. Nobody ever waits for it: an entry that cannot be written at once is lost.
#[derive(Debug)]
pub struct Slowlog {
    target: LogTarget,
    /// Whom the pool runs as.
    identity: Option<Identity>,
    file: Option<File>,
    /// Entries lost since the last one that was written.
    lost: u64,
    /// Whether it was said that entries are lost.
    said: bool,
}

impl Slowlog {
    /// The slow log at `target` of a pool that runs as `identity`, and a sentence for the log if it cannot be opened.
    pub fn new(target: LogTarget, identity: Option<Identity>) -> (Slowlog, Option<String>) {
        let mut log = Slowlog {
            target,
            identity,
            file: None,
            lost: 0,
            said: false,
        };
        let problem = log.open().err().map(|why| log.trouble(&why));
        (log, problem)
    }

    /// Where it is.
    pub fn target(&self) -> &LogTarget {
        &self.target
    }

    /// Begins the file anew that now has its name: the old one was moved away.
    pub fn reopen(&mut self) -> Option<String> {
        self.file = None;
        self.open().err().map(|why| self.trouble(&why))
    }

    /// Adds an entry, or loses it. Returns a sentence for the log when that begins or ends.
    pub fn append(&mut self, entry: &str) -> Option<String> {
        match self.write(entry.as_bytes()) {
            Ok(()) => {
                let lost = std::mem::take(&mut self.lost);
                let said = std::mem::take(&mut self.said);
                said.then(|| {
                    let target = &self.target;
                    format!("the slow log {target} can be written again; {lost} entries were lost")
                })
            }
            Err(why) => {
                self.lost += 1;
                // Whatever is wrong with it: the next entry tries a new beginning.
                self.file = None;
                (!self.said).then(|| self.trouble(&why))
            }
        }
    }

    fn trouble(&mut self, why: &io::Error) -> String {
        self.said = true;
        format!(
            "the slow log {} cannot be written: {why}; its entries are lost until it can",
            self.target
        )
    }

    fn open(&mut self) -> io::Result<()> {
        if let (LogTarget::File(path), None) = (&self.target, &self.file) {
            self.file = Some(log_files::open_of_pool(path, self.identity.as_ref())?);
        }
        Ok(())
    }

    /// Writes in one piece, so that the entries of several pools do not mix.
    fn write(&mut self, entry: &[u8]) -> io::Result<()> {
        self.open()?;
        let written = match &mut self.file {
            Some(file) => file.write(entry)?,
            // What was lost is told when it can be written again.
            None => return stderr::write_line(entry, |_| Vec::new()),
        };
        match written == entry.len() {
            true => Ok(()),
            false => Err(io::ErrorKind::StorageFull.into()),
        }
    }
}

/// An entry: the calls, the innermost first, each with the place it was called from. The stack is
/// the word of a zygote, which may lie, and cannot write an entry in the name of another pool.
pub fn entry(
    subject: &Subject,
    now: Option<LocalTime>,
    stack: Result<&Stack, &str>,
    depth: usize,
) -> String {
    let Subject {
        pool,
        pid,
        script,
        id,
        running_time,
    } = subject;
    let script = stack
        .ok()
        .map(|stack| &stack.script)
        .filter(|script| !script.is_empty())
        .unwrap_or(script);
    let script = plain(script);
    let mut entry = format!(
        "\n{}  [pool {pool}] pid {pid}\nscript_filename = {script}\n",
        stamp(now)
    );
    if !id.is_empty() {
        let _ = writeln!(entry, "request_id = {id}");
    }
    if let Some(running_time) = running_time {
        let RunningTime {
            cpu,
            core_wait,
            blocked,
        } = running_time;
        let seconds = [cpu, core_wait, blocked].map(|time| time.as_secs_f64());
        let [cpu, core_wait, blocked] = seconds;
        let _ = writeln!(
            entry,
            "cpu_time = {cpu:.3}\ncore_wait_time = {core_wait:.3}\nblocked_time = {blocked:.3}"
        );
    }
    let problem = match stack {
        Ok(stack) => {
            write_frames(&mut entry, &stack.frames, depth);
            let torn = "the script calls and returns faster than it can be looked at";
            (!stack.is_sound).then_some(torn)
        }
        Err(why) => Some(why),
    };
    if let Some(problem) = problem {
        let problem = plain(problem);
        let _ = writeln!(entry, "+++ dump failed: {problem}");
    }
    entry
}

/// A text of somebody else, all on one line. How long it may be, a message says.
fn plain(text: &str) -> String {
    text.replace(char::is_control, " ")
}

fn write_frames(entry: &mut String, frames: &[Frame], depth: usize) {
    for (frame, call) in calls(frames, depth) {
        let _ = writeln!(entry, "[0x{:016x}] {}", frame.address, plain(&call));
    }
}

/// The `depth` innermost calls, each with the place it was called from: `function() file:line`. As
/// php-fpm, nothing is said of the script itself, unless there is nothing else to be said.
pub fn calls(frames: &[Frame], depth: usize) -> impl Iterator<Item = (&Frame, String)> {
    let innermost = frames.iter().enumerate().take(depth);
    innermost.filter_map(move |(index, frame)| {
        let callers = match frame.call.as_str() {
            MAIN if index > 0 => return None,
            MAIN => frames,
            _ => &frames[index + 1..],
        };
        let place = callers
            .iter()
            .find_map(|frame| Some((frame.file.as_deref()?, frame.line)));
        let (file, line) = place.unwrap_or(("unknown", 0));
        Some((frame, format!("{}() {file}:{line}", frame.call)))
    })
}

/// `[21-Nov-2026 20:00:00]`
fn stamp(now: Option<LocalTime>) -> String {
    let Some(now) = now else {
        return "[-]".to_owned();
    };
    let month = MONTHS.get(now.month.saturating_sub(1) as usize);
    format!(
        "[{:02}-{}-{:04} {:02}:{:02}:{:02}]",
        now.day,
        month.unwrap_or(&"-"),
        now.year,
        now.hour,
        now.minute,
        now.second
    )
}

#[cfg(test)]
#[path = "slowlog_tests.rs"]
mod tests;
