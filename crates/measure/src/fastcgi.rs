//! Answers in FastCGI: records in, what the script says out. No I/O.

use maitred_fastcgi::cgi::HeadReader;
use maitred_fastcgi::{AnswerEvent, AnswerReader, ProtocolStatus};

use crate::request::FASTCGI_ID;
use crate::response::{Fault, MarkerSearch, ReadOptions, ResponseSummary};

/// Reads one script's answer after the other.
#[derive(Debug)]
pub struct FastcgiReader {
    records: AnswerReader,
    head: HeadReader,
    answer: Option<ResponseSummary>,
    search: MarkerSearch,
    cookies: bool,
    began: bool,
}

impl Default for FastcgiReader {
    fn default() -> Self {
        FastcgiReader {
            records: AnswerReader::new(FASTCGI_ID),
            head: HeadReader::default(),
            answer: None,
            search: MarkerSearch::default(),
            cookies: false,
            began: false,
        }
    }
}

impl FastcgiReader {
    /// The next answer begins.
    pub fn begin(&mut self, options: ReadOptions<'_>) {
        let search = std::mem::take(&mut self.search);
        *self = FastcgiReader {
            cookies: options.cookies,
            search,
            ..FastcgiReader::default()
        };
        self.search.begin(options.marker);
    }

    /// Whether anything has come of it.
    pub fn has_begun(&self) -> bool {
        self.began
    }

    /// Reads what came. The answer, once it is whole.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(&mut self, mut input: &[u8]) -> Result<Option<ResponseSummary>, Fault> {
        self.began |= !input.is_empty();
        let broken = |_| "what is no FastCGI";
        while let Some(event) = self.records.next(&mut input).map_err(broken)? {
            match event {
                AnswerEvent::Stdout(bytes) => self.stdout(bytes)?,
                AnswerEvent::Stderr(_) | AnswerEvent::Report(_) | AnswerEvent::Hints(_) => {}
                AnswerEvent::End {
                    protocol_status, ..
                } => return self.end(protocol_status, input.is_empty()).map(Some),
            }
        }
        Ok(None)
    }

    /// The connection has ended before the answer.
    pub fn ended(&self) -> Fault {
        if self.began {
            "closed in the middle of the answer"
        } else {
            "closed without an answer"
        }
    }

    fn stdout(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let body = match &self.answer {
            Some(_) => bytes,
            None => {
                let read = self
                    .head
                    .read(bytes)
                    .map_err(|_| "a CGI head that is none")?;
                let Some((head, used)) = read else {
                    return Ok(());
                };
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let pair = |value: &[u8]| {
                    let pair = value.split(|byte| *byte == b';').next();
                    text(pair.unwrap_or_default())
                };
                self.answer = Some(ResponseSummary {
                    status: head.status(),
                    location: head.header("Location").map(text),
                    cookies: if self.cookies {
                        head.values("Set-Cookie").map(pair).collect()
                    } else {
                        Vec::new()
                    },
                    has_retry_after: head.header("Retry-After").is_some(),
                    ..ResponseSummary::default()
                });
                &bytes[used..]
            }
        };
        self.search.see(body);
        if let Some(answer) = &mut self.answer {
            answer.body_bytes += body.len() as u64;
        }
        Ok(())
    }

    fn end(
        &mut self,
        status: ProtocolStatus,
        nothing_more: bool,
    ) -> Result<ResponseSummary, Fault> {
        if status != ProtocolStatus::RequestComplete {
            return Err("the FastCGI server would not take the request");
        }
        let answer = self.answer.take().ok_or("an end without a CGI head")?;
        Ok(ResponseSummary {
            keep_alive: nothing_more,
            has_marker: self.search.found(),
            ..answer
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maitred_fastcgi::{write_end, write_stderr, write_stdout};

    fn script(output: &[u8], status: ProtocolStatus) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_stderr(&mut bytes, FASTCGI_ID, b"a notice");
        write_stdout(&mut bytes, FASTCGI_ID, output);
        write_end(&mut bytes, FASTCGI_ID, 0, status);
        bytes
    }

    fn read(bytes: &[u8], part: usize) -> Result<Option<ResponseSummary>, Fault> {
        let mut reader = FastcgiReader::default();
        reader.begin(ReadOptions::default());
        for part in bytes.chunks(part) {
            if let Some(answer) = reader.read(part)? {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    #[test]
    fn a_scripts_answer_is_read_however_its_bytes_come() {
        let bytes = script(
            b"Status: 404 Not Found\r\nA: b\r\n\r\nhello",
            ProtocolStatus::RequestComplete,
        );
        for part in 1..bytes.len() {
            let answer = read(&bytes, part).expect("an answer").expect("a whole one");
            assert_eq!(
                (answer.status, answer.body_bytes, answer.keep_alive),
                (404, 5, true)
            );
        }
        assert_eq!(read(&bytes[..bytes.len() - 1], 7), Ok(None));
        let refused = script(b"\r\n\r\n", ProtocolStatus::Overloaded);
        assert!(read(&refused, 1_000).is_err());
        assert!(read(b"HTTP/1.1 200 OK\r\n\r\n", 1_000).is_err());
    }
}
