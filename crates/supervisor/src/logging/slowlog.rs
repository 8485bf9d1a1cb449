//! A pool's slow log: the file, and how php-fpm writes an entry (`fpm_php_trace.c`).

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};

use maitred_config::LogTarget;
use maitred_control::stack::{Frame, MAIN, Stack};
use maitred_os::clock::format_local;
use maitred_os::stderr;
use maitred_text::humanize::plural_with;

use crate::logging::log_files;
use crate::logging::running_time::RunningTime;

/// The data of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// Name of the pool.
    pub pool: String,
    /// The worker's process id.
    pub pid: i32,
    /// The script, as reported by its worker; the stack is more reliable.
    pub script: String,
    /// The request's id in the logs; empty if it has none.
    pub id: String,
    /// How it has spent its time so far, if that is known.
    pub running_time: Option<RunningTime>,
    /// Whether the time has no zone, as in php-fpm's log.
    pub is_fpm: bool,
}

impl Subject {
    /// A second since 1970 as an entry's time, in the machine's time zone.
    pub fn stamp(&self, second: i64) -> String {
        let format = match self.is_fpm {
            true => c"[%d-%b-%Y %H:%M:%S]",
            false => c"[%d-%b-%Y %H:%M:%S %z]",
        };
        String::from_utf8_lossy(&format_local(second, format)).into_owned()
    }
}

/// A slow log that the supervisor writes: nothing but root's settings decides where it leads. An
/// entry that cannot be written at once is lost.
#[derive(Debug)]
pub struct Slowlog {
    target: LogTarget,
    file: Option<File>,
    /// Entries lost since the last one that was written.
    lost: u64,
    /// Whether it was logged that entries are lost.
    said: bool,
}

impl Slowlog {
    /// The slow log at `target`, and a sentence for the log if it cannot be opened.
    pub fn new(target: LogTarget) -> (Slowlog, Option<String>) {
        let mut log = Slowlog { target, file: None, lost: 0, said: false };
        let problem = log.open().err().map(|why| log.trouble(&why));
        (log, problem)
    }

    /// Its path or collector.
    pub fn target(&self) -> &LogTarget {
        &self.target
    }

    /// Reopens the file after it was renamed.
    pub fn reopen(&mut self) -> Option<String> {
        self.file = None;
        self.open().err().map(|why| self.trouble(&why))
    }

    /// Adds an entry, or counts it as lost. Returns a sentence for the log when losing begins or
    /// ends.
    pub fn append(&mut self, entry: &str) -> Option<String> {
        match self.write(entry.as_bytes()) {
            Ok(()) => {
                let lost = std::mem::take(&mut self.lost);
                let said = std::mem::take(&mut self.said);
                said.then(|| {
                    let target = &self.target;
                    let lost = plural_with(lost, "entry", "were");
                    format!("the slow log {target} can be written again; {lost} lost")
                })
            }
            Err(why) => {
                self.lost += 1;
                // After any error the next entry opens the file again.
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
            self.file = Some(log_files::open(path)?);
        }
        Ok(())
    }

    /// Writes an entry in one piece, so that entries of several pools do not mix.
    fn write(&mut self, entry: &[u8]) -> io::Result<()> {
        self.open()?;
        let written = match &mut self.file {
            Some(file) => file.write(entry)?,
            // Lost entries are reported as soon as the log can be written again.
            None => return stderr::write_line(entry, |_| Vec::new()),
        };
        match written == entry.len() {
            true => Ok(()),
            false => Err(io::ErrorKind::StorageFull.into()),
        }
    }
}

/// An entry with its time, such as `[21-Nov-2026 20:00:00 +0100]`: the calls, the innermost first,
/// each with its location. The stack comes from a zygote, which is not trusted, so the text must
/// not be able to imitate an entry of another pool.
pub fn entry(subject: &Subject, stamp: &str, stack: Result<&Stack, &str>, depth: usize) -> String {
    let Subject { pool, pid, script, id, running_time, .. } = subject;
    let script =
        stack.ok().map(|stack| &stack.script).filter(|script| !script.is_empty()).unwrap_or(script);
    let script = plain(script);
    let mut entry = format!("\n{}  [pool {pool}] pid {pid}\nscript_filename = {script}\n", stamp);
    if !id.is_empty() {
        let _ = writeln!(entry, "request_id = {id}");
    }
    if let Some(running_time) = running_time {
        let RunningTime { cpu, core_wait, blocked } = running_time;
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

/// Text from another process on a single line. Its length is limited by the size of a message.
fn plain(text: &str) -> String {
    text.replace(char::is_control, " ")
}

fn write_frames(entry: &mut String, frames: &[Frame], depth: usize) {
    for (frame, call) in calls(frames, depth) {
        let _ = writeln!(entry, "[0x{:016x}] {}", frame.address, plain(&call));
    }
}

/// The `depth` innermost calls, each with its location: `function() file:line`. As in php-fpm, the
/// main script is left out unless it is the only entry.
pub fn calls(frames: &[Frame], depth: usize) -> impl Iterator<Item = (&Frame, String)> {
    let innermost = frames.iter().enumerate().take(depth);
    innermost.filter_map(move |(index, frame)| {
        let callers = match frame.call.as_str() {
            MAIN if index > 0 => return None,
            MAIN => frames,
            _ => &frames[index + 1..],
        };
        let place = callers.iter().find_map(|frame| Some((frame.file.as_deref()?, frame.line)));
        let (file, line) = place.unwrap_or(("unknown", 0));
        Some((frame, format!("{}() {file}:{line}", frame.call)))
    })
}

#[cfg(test)]
#[path = "slowlog_tests.rs"]
mod tests;
