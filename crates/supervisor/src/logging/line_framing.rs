//! Splits a worker's output into messages as php-fpm does (`fpm_stdio.c`): one for each line, and
//! an unfinished line is complete when its request is. No I/O: bytes in, messages out.

/// What a worker writes at the end of a request: all output before it is complete.
pub const FLUSH: &[u8] = b"\0fscf\0";

/// Longest message in bytes; a longer one is split. The log may use several lines for one message.
const MESSAGE_BYTES: usize = 1 << 20;

/// The stream that a worker wrote to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A message of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The stream.
    pub stream: OutputStream,
    /// The text without the line end; not empty.
    pub text: Vec<u8>,
    /// It was incomplete when the worker ended.
    pub is_cut_off: bool,
}

/// The unfinished output of a worker.
#[derive(Debug)]
pub struct LineFramer {
    stream: OutputStream,
    /// The beginning of a message.
    text: Vec<u8>,
    /// For each stream, what may be the beginning of [`FLUSH`].
    held: [Vec<u8>; 2],
    messages: Vec<Message>,
}

impl Default for LineFramer {
    fn default() -> LineFramer {
        LineFramer {
            stream: OutputStream::Stderr,
            text: Vec::new(),
            held: [Vec::new(), Vec::new()],
            messages: Vec::new(),
        }
    }
}

impl OutputStream {
    /// Its name in the log.
    pub fn name(self) -> &'static str {
        match self {
            OutputStream::Stdout => "stdout",
            OutputStream::Stderr => "stderr",
        }
    }
}

impl LineFramer {
    /// Takes output of the worker.
    pub fn take(&mut self, stream: OutputStream, bytes: &[u8]) {
        if stream != self.stream {
            self.end(false);
            self.stream = stream;
        }
        let mut said = std::mem::take(&mut self.held[stream as usize]);
        said.extend_from_slice(bytes);
        let mut rest = &said[..];
        while let Some(found) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\0')) {
            self.add(&rest[..found]);
            rest = &rest[found..];
            if let Some(after) = rest.strip_prefix(b"\n").or(rest.strip_prefix(FLUSH)) {
                self.end(false);
                rest = after;
            } else if FLUSH.starts_with(rest) {
                self.held[stream as usize] = rest.to_vec();
                rest = &[];
            } else {
                self.add(&rest[..1]);
                rest = &rest[1..];
            }
        }
        self.add(rest);
    }

    /// The stream has ended.
    pub fn close(&mut self) {
        let held = std::mem::take(&mut self.held[self.stream as usize]);
        self.add(&held);
        self.end(true);
    }

    /// The message so far is complete.
    pub fn flush(&mut self) {
        self.end(false);
    }

    /// Bytes of the unfinished message.
    pub fn unfinished(&self) -> usize {
        self.text.len()
    }

    /// Takes the complete messages.
    pub fn messages(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.messages)
    }

    fn add(&mut self, text: &[u8]) {
        let mut rest = text;
        while self.text.len() + rest.len() > MESSAGE_BYTES {
            let (now, later) = rest.split_at(MESSAGE_BYTES - self.text.len());
            self.text.extend_from_slice(now);
            self.end(false);
            rest = later;
        }
        self.text.extend_from_slice(rest);
    }

    /// An empty line makes no message, as in php-fpm.
    fn end(&mut self, is_cut_off: bool) {
        let text = std::mem::take(&mut self.text);
        if !text.is_empty() {
            self.messages.push(Message { stream: self.stream, text, is_cut_off });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use OutputStream::{Stderr, Stdout};

    /// The messages, each with its stream and whether it was cut off.
    fn shown(speech: &mut LineFramer) -> Vec<String> {
        let messages = speech.messages().into_iter();
        let show = |message: Message| {
            let text = String::from_utf8(message.text).unwrap();
            let end = if message.is_cut_off { " (cut off)" } else { "" };
            format!("{}: {text}{end}", message.stream.name())
        };
        messages.map(show).collect()
    }

    #[test]
    fn each_line_is_a_message_and_the_last_is_complete_with_its_request() {
        let mut speech = LineFramer::default();
        speech.take(Stderr, b"msg 1\n\nmsg 2\nmsg");
        assert_eq!(shown(&mut speech), ["stderr: msg 1", "stderr: msg 2"]);
        speech.take(Stderr, b" 3\0fscf\0\0fscf\0");
        assert_eq!(shown(&mut speech), ["stderr: msg 3"]);
        speech.close();
        assert!(shown(&mut speech).is_empty());
    }

    #[test]
    fn what_is_said_elsewhere_ends_a_message() {
        let mut speech = LineFramer::default();
        speech.take(Stdout, b"out");
        speech.take(Stderr, b"error\n");
        assert_eq!(shown(&mut speech), ["stdout: out", "stderr: error"]);
    }

    #[test]
    fn a_message_that_never_ends_fills_no_memory() {
        let mut speech = LineFramer::default();
        speech.take(Stderr, &vec![b'x'; MESSAGE_BYTES]);
        assert!(speech.messages().is_empty());
        speech.take(Stderr, &vec![b'x'; 2 * MESSAGE_BYTES]);
        let lengths: Vec<usize> = speech.messages().iter().map(|one| one.text.len()).collect();
        assert_eq!(lengths, [MESSAGE_BYTES, MESSAGE_BYTES]);
    }

    #[test]
    fn the_mark_is_found_however_it_comes_and_nothing_else_is_taken_for_it() {
        for cut in 0..=FLUSH.len() {
            let mut speech = LineFramer::default();
            speech.take(Stderr, &[b"one", &FLUSH[..cut]].concat());
            speech.take(Stderr, &[&FLUSH[cut..], b"two\n"].concat());
            assert_eq!(shown(&mut speech), ["stderr: one", "stderr: two"], "{cut}");
        }
        let mut speech = LineFramer::default();
        speech.take(Stderr, b"\0fsc\0fscf\0\0fabc\n");
        assert_eq!(shown(&mut speech), ["stderr: \0fsc", "stderr: \0fabc"]);
    }

    #[test]
    fn the_last_words_say_that_they_were_cut_off() {
        let mut speech = LineFramer::default();
        speech.take(Stderr, b"half\0f");
        speech.close();
        assert_eq!(shown(&mut speech), ["stderr: half\0f (cut off)"]);
    }

    #[test]
    fn bytes_that_are_no_text_are_passed_on_as_they_are() {
        let mut speech = LineFramer::default();
        speech.take(Stdout, b"\xff\x1b\r\n");
        assert_eq!(speech.messages()[0].text, b"\xff\x1b\r");
    }
}
