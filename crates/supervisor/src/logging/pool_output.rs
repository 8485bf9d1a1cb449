//! Standard output and error of a pool's processes: one pipe per pool, whose lines are logged with
//! the pool's name. The processes never hold a descriptor of the log, which a script could truncate
//! or forge. Another process reads the pipe ([`crate::logging::tenant_pipe`]).
//!
//! Both ends are non-blocking: a script that prints faster than the supervisor reads loses output
//! instead of waiting. The pipe of a pool that has used up its limit is not read until the next
//! period, so that it costs the supervisor nothing; lines that do not fit into the pipe are lost
//! without being counted.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use maitred_control::log_limit::Admission;
use rustix::fs::OFlags;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::limits::Moment;
use crate::logging::shared_limit::SharedLimit;
use crate::logging::tenant_pipe::{PipeRead, ReadOutcome, TenantPipe};

/// Longest line in bytes; a longer one is split.
const LINE_BYTES: usize = 4096;

/// A pool's pipe.
#[derive(Debug)]
pub struct PoolOutput {
    reader: TenantPipe,
    writer: TenantPipe,
    /// The beginning of an unfinished line.
    partial: Vec<u8>,
    limit: SharedLimit,
}

impl PoolOutput {
    /// A new pipe for this pool.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn new(pool: &str) -> io::Result<PoolOutput> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(PoolOutput::over(reader, writer, pool))
    }

    /// An existing pipe of this pool.
    pub fn over(reader: OwnedFd, writer: OwnedFd, pool: &str) -> PoolOutput {
        let (reader, writer) = (TenantPipe::new(reader, pool), TenantPipe::new(writer, pool));
        PoolOutput { reader, writer, partial: Vec::new(), limit: SharedLimit::default() }
    }

    /// Has a limit that other pipes have as well.
    pub fn share(&mut self, limit: &SharedLimit) {
        self.limit = limit.clone();
    }

    /// The descriptor numbers of the read end and the write end.
    pub fn descriptors(&self) -> (RawFd, RawFd) {
        (self.reader.as_raw_fd(), self.writer.as_raw_fd())
    }

    /// The end for the pool's processes.
    pub fn writer(&self) -> BorrowedFd<'_> {
        self.writer.as_fd()
    }

    /// The number of its pipe.
    pub fn number(&self) -> u64 {
        self.reader.number()
    }

    /// The end to poll, unless it is being read, is over, or the pool has used up its limit.
    pub fn listening(&self, now: Moment) -> Option<BorrowedFd<'_>> {
        // The rest of a process that has ended is little, and lines beyond the limit are counted.
        self.reader.listening().filter(|_| self.is_ending() || self.deaf_until(now).is_none())
    }

    /// It is to be read.
    pub fn order(&mut self) -> PipeRead {
        self.reader.order()
    }

    /// Whether nothing is left to be read, now that its processes have ended.
    pub fn is_drained(&mut self, now: Moment) -> bool {
        self.reader.is_drained(now)
    }

    /// Whether its process has ended.
    pub fn is_ending(&self) -> bool {
        self.reader.deadline().is_some()
    }

    /// When the pipe is read again, if it is not read now.
    pub fn deaf_until(&self, now: Moment) -> Option<Moment> {
        self.limit.used_up_until(now)
    }

    /// When to act without output: to read again, or to log how many lines were dropped.
    pub fn deadline(&self, now: Moment) -> Option<Moment> {
        let limit_due = self.limit.deadline();
        self.deaf_until(now).into_iter().chain(limit_due).chain(self.reader.deadline()).min()
    }

    /// It was read: its lines without their ends. An error ends the output: a program can put a
    /// page of a file into the pipe (splice(2)) that fails to be read each time.
    pub fn take(&mut self, outcome: &ReadOutcome, now: Moment) -> Vec<String> {
        self.reader.was_read(outcome);
        match outcome {
            ReadOutcome::Nothing | ReadOutcome::End => Vec::new(),
            ReadOutcome::Bytes(bytes) => {
                let lines = split(&mut self.partial, bytes);
                self.within_limit(lines, now)
            }
            ReadOutcome::Failed(why) => {
                // Its processes lose output from now on, and do not wait for a reader.
                let _ = rustix::fs::fcntl_setfl(&self.writer, OFlags::NONBLOCK);
                vec![format!(
                    "its output cannot be read ({why}) and is no longer logged until its reload"
                )]
            }
        }
    }

    /// The unfinished line, for when the processes have ended.
    pub fn last_words(&mut self, now: Moment) -> Vec<String> {
        let partial = std::mem::take(&mut self.partial);
        self.within_limit(sentence(&partial).into_iter().collect(), now)
    }

    /// The log line about dropped lines, if one is due.
    pub fn dropped(&mut self, now: Moment) -> Option<String> {
        self.limit.due(now)
    }

    fn within_limit(&mut self, lines: Vec<String>, now: Moment) -> Vec<String> {
        let admitted =
            lines.into_iter().filter_map(|line| match self.limit.admit(line.len(), now) {
                Admission::Logged => Some(line),
                Admission::Dropped => None,
                Admission::Exceeded(sentence) => Some(sentence),
            });
        admitted.collect()
    }
}

/// Appends `bytes` to the unfinished line, and keeps the new unfinished rest.
fn split(partial: &mut Vec<u8>, bytes: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
        partial.extend_from_slice(piece);
        if piece.ends_with(b"\n") || partial.len() >= LINE_BYTES {
            lines.extend(partial.chunks(LINE_BYTES).filter_map(sentence));
            partial.clear();
        }
    }
    lines
}

fn sentence(line: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end();
    (!text.is_empty()).then(|| text.replace(char::is_control, "?"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use maitred_control::log_limit::{LINES_PER_PERIOD, PERIOD};

    /// Writes to the pipe and has it read as far as one read goes.
    fn said(output: &mut PoolOutput, text: &[u8], now: Moment) -> Vec<String> {
        rustix::io::write(output.writer(), text).expect("there is room");
        read(output, now)
    }

    fn read(output: &mut PoolOutput, now: Moment) -> Vec<String> {
        let mut bytes = vec![0; 16 * 1024];
        let read = output.order();
        let count = rustix::io::read(&read.pipe, &mut bytes).expect("it is there");
        bytes.truncate(count);
        output.take(&ReadOutcome::Bytes(bytes), now)
    }

    #[test]
    fn lines_come_out_whole_however_they_were_written() {
        let mut output = PoolOutput::new("www").expect("a pipe");
        assert_eq!(said(&mut output, b"one\ntw", Moment::ZERO), ["one"]);
        assert_eq!(said(&mut output, b"o\r\n\n\x1b[31mthree", Moment::ZERO), ["two"]);
        assert_eq!(output.last_words(Moment::ZERO), ["?[31mthree"]);
        assert!(output.last_words(Moment::ZERO).is_empty());
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let mut output = PoolOutput::new("www").expect("a pipe");
        let mut lines = said(&mut output, &[b'x'; LINE_BYTES + 1], Moment::ZERO);
        lines.extend(output.last_words(Moment::ZERO));
        let lengths: Vec<usize> = lines.iter().map(String::len).collect();
        assert_eq!(lengths, [LINE_BYTES, 1]);
    }

    #[test]
    fn output_that_cannot_be_read_is_logged_once_and_not_polled_again() {
        let mut output = PoolOutput::new("www").expect("a pipe");
        rustix::io::write(output.writer(), b"x").expect("there is room");
        assert!(output.listening(Moment::ZERO).is_some() && !output.is_drained(Moment::ZERO));
        let _read = output.order();
        let lines = output.take(&ReadOutcome::Failed("it is broken".to_owned()), Moment::ZERO);
        assert!(lines.len() == 1 && lines[0].contains("it is broken"), "{lines:?}");
        assert!(output.listening(Moment::ZERO).is_none() && output.is_drained(Moment::ZERO));
    }

    #[test]
    fn a_pool_that_says_too_much_is_not_listened_to_for_the_rest_of_the_second() {
        let mut output = PoolOutput::new("www").expect("a pipe");
        let most = LINES_PER_PERIOD as usize;
        assert_eq!(said(&mut output, &b"x\n".repeat(most), PERIOD).len(), most);
        rustix::io::write(output.writer(), b"more\n").expect("there is room");
        assert!(output.listening(PERIOD).is_none());
        let later = output.deaf_until(PERIOD).expect("an end");
        assert!(output.listening(later).is_some());
        assert_eq!(read(&mut output, later), ["more"]);
    }

    #[test]
    fn no_more_lines_are_logged_than_may_be_however_short_they_are() {
        let mut output = PoolOutput::new("www").expect("a pipe");
        let (most, beyond) = (LINES_PER_PERIOD as usize, 1000);
        let lines = said(&mut output, &b"x\n".repeat(most + beyond), PERIOD);
        assert_eq!(lines.len(), most + 1);
        assert!(lines[most].contains("dropped and counted"), "{lines:?}");
        let logged_at = output.deadline(2 * PERIOD).expect("a count is due");
        let logged = output.dropped(logged_at).expect("nothing was dropped since");
        assert!(logged.contains("1000 lines"), "{logged}");
        assert_eq!(output.deadline(logged_at), None);
    }
}
