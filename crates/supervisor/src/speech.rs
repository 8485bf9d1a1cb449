//! What a worker says, made into the lines of the log as php-fpm makes them (`fpm_stdio.c`,
//! `zlog.c`): a line for each line, wrapped where it gets too long, and a message without an end
//! complete when its request is. Pure: bytes in, lines out.

/// What a worker writes at the end of a request: all it has said is complete.
pub const FLUSH: &[u8] = b"\0fscf\0";

/// Shortest piece of a message that a line has room for, in bytes, whatever is written around it.
const LEAST_ROOM_BYTES: usize = 64;

/// What ends the last message of a worker that had not completed it.
const CLOSED: &str = ", pipe is closed";

/// Where a worker has said something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// On standard output.
    Stdout,
    /// On standard error.
    Stderr,
}

/// How lines look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Form {
    /// Most bytes of a line, its end included (`log_limit`).
    pub limit: usize,
    /// What lines begin with, between time and message: pool and worker. None: a line is the
    /// message alone.
    pub decoration: Option<Decoration>,
}

/// What is written around a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoration {
    /// Bytes of time and level before all else.
    pub stamp_bytes: usize,
    /// Name of the pool.
    pub pool: String,
    /// Process id of the worker.
    pub pid: i32,
}

/// What a worker has begun to say.
#[derive(Debug)]
pub struct Speech {
    form: Form,
    source: Source,
    /// The message as far as it has come and is on no line yet.
    message: Vec<u8>,
    /// By source: what may be the beginning of [`FLUSH`].
    held: [Vec<u8>; 2],
}

impl Speech {
    /// Nothing was said yet.
    pub fn new(form: Form) -> Speech {
        Speech {
            form,
            source: Source::Stderr,
            message: Vec::new(),
            held: [Vec::new(), Vec::new()],
        }
    }

    /// Takes what was said, and returns the lines that are complete by it, without time and level.
    pub fn say(&mut self, source: Source, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        if source != self.source {
            self.end(&mut lines);
            self.source = source;
        }
        let mut said = std::mem::take(&mut self.held[source as usize]);
        said.extend_from_slice(bytes);
        let mut rest = &said[..];
        while let Some(found) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\0')) {
            let (text, from) = rest.split_at(found);
            self.add(text, &mut lines);
            rest = from;
            if rest[0] == b'\n' {
                self.end(&mut lines);
                rest = &rest[1..];
            } else if let Some(after) = rest.strip_prefix(FLUSH) {
                self.end(&mut lines);
                rest = after;
            } else if FLUSH.starts_with(rest) {
                self.held[source as usize] = rest.to_vec();
                rest = &[];
            } else {
                self.add(&rest[..1], &mut lines);
                rest = &rest[1..];
            }
        }
        self.add(rest, &mut lines);
        lines
    }

    /// Nothing more will be said: returns what is left.
    pub fn close(&mut self) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        let held = std::mem::take(&mut self.held[self.source as usize]);
        self.add(&held, &mut lines);
        let message = std::mem::take(&mut self.message);
        if message.is_empty() {
            return lines;
        }
        let mut line = self.line(&message);
        if self.form.decoration.is_some() {
            if self.room() < message.len() + CLOSED.len() {
                lines.push(std::mem::replace(&mut line, self.before()));
            }
            line.extend_from_slice(CLOSED.as_bytes());
        }
        lines.push(line);
        lines
    }

    fn add(&mut self, text: &[u8], lines: &mut Vec<Vec<u8>>) {
        let mut rest = text;
        let room = self.room();
        while self.message.len() + rest.len() > room {
            let (now, later) = rest.split_at(room.saturating_sub(self.message.len()));
            self.message.extend_from_slice(now);
            self.end(lines);
            rest = later;
        }
        self.message.extend_from_slice(rest);
    }

    fn end(&mut self, lines: &mut Vec<Vec<u8>>) {
        let message = std::mem::take(&mut self.message);
        if !message.is_empty() {
            lines.push(self.line(&message));
        }
    }

    /// Bytes of a message that one line takes.
    fn room(&self) -> usize {
        let around = self.form.decoration.as_ref().map_or(0, |decoration| {
            decoration.stamp_bytes + self.before().len() + 2
        });
        // One byte is for the line's end.
        let room = self.form.limit.saturating_sub(around + 1);
        room.max(LEAST_ROOM_BYTES)
    }

    fn before(&self) -> Vec<u8> {
        let Some(Decoration { pool, pid, .. }) = &self.form.decoration else {
            return Vec::new();
        };
        let source = match self.source {
            Source::Stdout => "stdout",
            Source::Stderr => "stderr",
        };
        format!("[pool {pool}] child {pid} said into {source}: ").into_bytes()
    }

    fn line(&self, message: &[u8]) -> Vec<u8> {
        let mut line = self.before();
        let quote = self.form.decoration.as_ref().map(|_| b'"');
        line.extend(quote);
        line.extend_from_slice(message);
        line.extend(quote);
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Source::{Stderr, Stdout};

    /// Bytes of `[21-Nov-2026 20:00:00] WARNING: `.
    const STAMP: usize = 32;

    fn plain(limit: usize) -> Speech {
        Speech::new(Form {
            limit,
            decoration: None,
        })
    }

    fn decorated(limit: usize) -> Speech {
        Speech::new(Form {
            limit,
            decoration: Some(Decoration {
                stamp_bytes: STAMP,
                pool: "www".to_owned(),
                pid: 12,
            }),
        })
    }

    fn texts(lines: Vec<Vec<u8>>) -> Vec<String> {
        let text = |line: Vec<u8>| String::from_utf8(line).unwrap();
        lines.into_iter().map(text).collect()
    }

    #[test]
    fn each_line_is_one_and_the_last_is_complete_with_its_request() {
        let mut speech = decorated(1024);
        let lines = texts(speech.say(Stderr, b"msg 1\n\nmsg 2\nmsg"));
        assert_eq!(
            lines,
            [
                "[pool www] child 12 said into stderr: \"msg 1\"",
                "[pool www] child 12 said into stderr: \"msg 2\"",
            ]
        );
        let lines = texts(speech.say(Stderr, b" 3\0fscf\0\0fscf\0"));
        assert_eq!(lines, ["[pool www] child 12 said into stderr: \"msg 3\""]);
        assert!(speech.close().is_empty());
    }

    #[test]
    fn what_is_said_elsewhere_ends_a_message() {
        let mut speech = decorated(1024);
        assert!(speech.say(Stdout, b"out").is_empty());
        let lines = texts(speech.say(Stderr, b"error\n"));
        assert_eq!(
            lines,
            [
                "[pool www] child 12 said into stdout: \"out\"",
                "[pool www] child 12 said into stderr: \"error\"",
            ]
        );
    }

    #[test]
    fn long_messages_are_wrapped_at_the_limit_as_php_fpm_does() {
        let mut speech = decorated(1050);
        let lines = speech.say(Stderr, &[&[b'a'; 2900][..], b"\n"].concat());
        let lengths: Vec<usize> = lines.iter().map(|line| STAMP + line.len() + 1).collect();
        assert_eq!(lengths[..2], [1050, 1050]);
        let said: usize = lines.iter().map(|line| line.len() - 40).sum();
        assert_eq!(said, 2900);
        let mut speech = plain(1024);
        assert!(speech.say(Stderr, &[b'a'; 100]).is_empty());
        let lines = speech.say(Stderr, &[&[b'b'; 2500][..], b"\n"].concat());
        let lengths: Vec<usize> = lines.iter().map(Vec::len).collect();
        assert_eq!(lengths, [1023, 1023, 554]);
    }

    #[test]
    fn a_line_that_just_fits_stays_whole() {
        let mut speech = plain(1024);
        assert!(speech.say(Stderr, &[b'a'; 1023]).is_empty());
        assert_eq!(speech.say(Stderr, b"\n").len(), 1);
    }

    #[test]
    fn the_mark_is_found_however_it_comes_and_nothing_else_is_taken_for_it() {
        for cut in 0..=FLUSH.len() {
            let mut speech = plain(1024);
            let mut lines = speech.say(Stderr, &[b"one", &FLUSH[..cut]].concat());
            lines.extend(speech.say(Stderr, &[&FLUSH[cut..], b"two"].concat()));
            lines.extend(speech.close());
            assert_eq!(texts(lines), ["one", "two"], "cut at {cut}");
        }
        let mut speech = plain(1024);
        let lines = texts(speech.say(Stderr, b"\0fsc\0fscf\0\0fabc\n"));
        assert_eq!(lines, ["\0fsc", "\0fabc"]);
    }

    #[test]
    fn the_last_words_say_that_the_pipe_is_closed() {
        let mut speech = decorated(1024);
        assert!(speech.say(Stderr, b"half\0f").is_empty());
        assert_eq!(
            texts(speech.close()),
            ["[pool www] child 12 said into stderr: \"half\0f\", pipe is closed"]
        );
        let mut speech = decorated(512);
        assert!(speech.say(Stderr, &[b'x'; 430]).is_empty());
        let lines = texts(speech.close());
        assert!(lines[0].ends_with("x\""), "{lines:?}");
        assert_eq!(
            lines[1],
            "[pool www] child 12 said into stderr: , pipe is closed"
        );
    }

    #[test]
    fn bytes_that_are_no_text_are_passed_on_as_they_are() {
        let mut speech = plain(1024);
        assert_eq!(speech.say(Stdout, b"\xff\x1b\r\n"), [b"\xff\x1b\r"]);
    }
}
