//! Standard output and error of a pool's processes: one pipe per pool, read here and logged line by
//! line with the pool's name. The processes never hold a descriptor of the log, which a script
//! could truncate or forge.
//!
//! Both ends are non-blocking: a script that prints faster than the supervisor reads loses output
//! instead of waiting. The pipe of a pool that has used up its limit is not read until the next
//! period, so that it costs the supervisor nothing; lines that do not fit into the pipe are lost
//! without being counted.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use maitred_control::log_limit::{Admission, LogLimit};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::limits::Moment;

/// Longest line in bytes; a longer one is split.
const LINE_BYTES: usize = 4096;
/// Most bytes read at a time.
const TURN_BYTES: usize = 16 * 1024;

/// A pool's pipe.
#[derive(Debug)]
pub struct PoolOutput {
    reader: OwnedFd,
    writer: OwnedFd,
    /// Reading has failed: the pipe would be ready, and fail, without end.
    is_broken: bool,
    /// The beginning of an unfinished line.
    partial: Vec<u8>,
    limit: LogLimit,
}

impl PoolOutput {
    /// A new pipe.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn new() -> io::Result<PoolOutput> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(PoolOutput::over(reader, writer))
    }

    /// An existing pipe.
    pub fn over(reader: OwnedFd, writer: OwnedFd) -> PoolOutput {
        let (partial, limit) = (Vec::new(), LogLimit::default());
        PoolOutput { reader, writer, is_broken: false, partial, limit }
    }

    /// The descriptor numbers of the read end and the write end.
    pub fn descriptors(&self) -> (RawFd, RawFd) {
        (self.reader.as_raw_fd(), self.writer.as_raw_fd())
    }

    /// The end for the pool's processes.
    pub fn writer(&self) -> BorrowedFd<'_> {
        self.writer.as_fd()
    }

    /// The end to poll, unless the pool has used up its limit or broken its pipe.
    pub fn listening(&self, now: Moment) -> Option<BorrowedFd<'_>> {
        let is_read = !self.is_broken && self.deaf_until(now).is_none();
        is_read.then(|| self.reader.as_fd())
    }

    /// When the pipe is read again, if it is not read now.
    pub fn deaf_until(&self, now: Moment) -> Option<Moment> {
        self.limit.used_up_until(now)
    }

    /// When to act without output: to read again, or to log how many lines were dropped.
    pub fn deadline(&self, now: Moment) -> Option<Moment> {
        let told = self.limit.deadline();
        self.deaf_until(now).into_iter().chain(told).min()
    }

    /// New output as lines without their ends. An error ends the output: a program can put a page
    /// of a file into the pipe (splice(2)) that fails to be read each time.
    pub fn lines(&mut self, now: Moment) -> Vec<String> {
        if self.is_broken || self.deaf_until(now).is_some() {
            return Vec::new();
        }
        let mut bytes = vec![0; TURN_BYTES];
        match rustix::io::read(&self.reader, &mut bytes) {
            Ok(count) => {
                let lines = split(&mut self.partial, &bytes[..count]);
                self.within_limit(lines, now)
            }
            Err(Errno::AGAIN | Errno::INTR) => Vec::new(),
            Err(why) => {
                self.is_broken = true;
                vec![format!(
                    "its output cannot be read, and is no longer logged: {why}; find the program \
                     that splices a file into its standard output or error, then reload the server"
                )]
            }
        }
    }

    /// All remaining output including an unfinished line, for when the processes have ended.
    pub fn last_words(&mut self, now: Moment) -> Vec<String> {
        let mut lines = self.lines(now);
        let partial = std::mem::take(&mut self.partial);
        lines.extend(self.within_limit(sentence(&partial).into_iter().collect(), now));
        lines
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

    fn say(voice: &PoolOutput, text: &[u8]) {
        rustix::io::write(voice.writer(), text).expect("there is room");
    }

    #[test]
    fn lines_come_out_whole_however_they_were_written() {
        let mut voice = PoolOutput::new().expect("a pipe");
        say(&voice, b"one\ntw");
        assert_eq!(voice.lines(Moment::ZERO), ["one"]);
        say(&voice, b"o\r\n\n\x1b[31mthree");
        assert_eq!(voice.lines(Moment::ZERO), ["two"]);
        assert_eq!(voice.last_words(Moment::ZERO), ["?[31mthree"]);
        assert!(voice.last_words(Moment::ZERO).is_empty());
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let mut voice = PoolOutput::new().expect("a pipe");
        say(&voice, &[b'x'; LINE_BYTES + 1]);
        let lines = voice.last_words(Moment::ZERO);
        let lengths: Vec<usize> = lines.iter().map(String::len).collect();
        assert_eq!(lengths, [LINE_BYTES, 1]);
    }

    #[test]
    fn output_that_cannot_be_read_is_logged_once_and_not_polled_again() {
        let (_, writer) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        let unreadable = std::fs::File::open("/").expect("a folder");
        let mut output = PoolOutput::over(unreadable.into(), writer);
        assert!(output.listening(Moment::ZERO).is_some());
        let lines = output.lines(Moment::ZERO);
        assert!(lines.len() == 1 && lines[0].contains("cannot be read"), "{lines:?}");
        assert!(output.listening(Moment::ZERO).is_none());
        assert!(output.lines(Moment::ZERO).is_empty());
        assert!(output.last_words(Moment::ZERO).is_empty());
    }

    #[test]
    fn a_pool_that_says_too_much_is_not_listened_to_for_the_rest_of_the_second() {
        let mut voice = PoolOutput::new().expect("a pipe");
        let most = LINES_PER_PERIOD as usize;
        say(&voice, &b"x\n".repeat(most));
        assert_eq!(voice.lines(PERIOD).len(), most);
        say(&voice, b"more\n");
        assert!(voice.listening(PERIOD).is_none() && voice.lines(PERIOD).is_empty());
        let later = voice.deaf_until(PERIOD).expect("an end");
        assert!(voice.listening(later).is_some());
        assert_eq!(voice.lines(later), ["more"]);
    }

    #[test]
    fn no_more_lines_are_logged_than_may_be_however_short_they_are() {
        let mut voice = PoolOutput::new().expect("a pipe");
        let (most, beyond) = (LINES_PER_PERIOD as usize, 1000);
        say(&voice, &b"x\n".repeat(most + beyond));
        let lines = voice.lines(PERIOD);
        assert_eq!(lines.len(), most + 1);
        assert!(lines[most].contains("dropped and counted"), "{lines:?}");
        let told_at = voice.deadline(2 * PERIOD).expect("a count is due");
        let told = voice.dropped(told_at).expect("nothing was dropped since");
        assert!(told.contains("1000 lines"), "{told}");
        assert_eq!(voice.deadline(told_at), None);
    }
}
