//! FastCGI responses: reads records, and the CGI response in them. No I/O.

use maitred_fastcgi::cgi::HeadReader;
use maitred_fastcgi::{ProtocolStatus, ResponseEvent, ResponseReader};

use crate::marker::MarkerSearch;
use crate::request::FASTCGI_ID;
use crate::response::{Fault, ReadOptions, ReadResponse, ResponseSummary};

/// Reads one response after another.
#[derive(Debug)]
pub struct FastcgiReader {
    records: ResponseReader,
    head: HeadReader,
    response: Option<ResponseSummary>,
    search: MarkerSearch,
    cookies: bool,
    began: bool,
}

impl Default for FastcgiReader {
    fn default() -> Self {
        FastcgiReader {
            records: ResponseReader::new(FASTCGI_ID),
            head: HeadReader::default(),
            response: None,
            search: MarkerSearch::default(),
            cookies: false,
            began: false,
        }
    }
}

impl ReadResponse for FastcgiReader {
    fn begin(&mut self, options: ReadOptions<'_>) {
        let search = std::mem::take(&mut self.search);
        *self = FastcgiReader { cookies: options.cookies, search, ..FastcgiReader::default() };
        self.search.begin(options.marker);
    }

    fn has_begun(&self) -> bool {
        self.began
    }

    fn read(&mut self, mut input: &[u8]) -> Result<Option<ResponseSummary>, Fault> {
        self.began |= !input.is_empty();
        let broken = |_| "not FastCGI";
        while let Some(event) = self.records.next(&mut input).map_err(broken)? {
            match event {
                ResponseEvent::Stdout(bytes) => self.stdout(bytes)?,
                ResponseEvent::Stderr(_) | ResponseEvent::Report(_) | ResponseEvent::Hints(_) => {}
                ResponseEvent::End { protocol_status, .. } => {
                    return self.end(protocol_status, input.is_empty()).map(Some);
                }
            }
        }
        Ok(None)
    }

    fn ended(&mut self) -> Result<ResponseSummary, Fault> {
        Err(if self.began {
            "closed in the middle of the response"
        } else {
            "closed without a response"
        })
    }
}

impl FastcgiReader {
    fn stdout(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let body = match &self.response {
            Some(_) => bytes,
            None => {
                let read = self.head.read(bytes).map_err(|_| "an invalid CGI header")?;
                let Some((head, used)) = read else {
                    return Ok(());
                };
                let mut response =
                    ResponseSummary { status: head.status(), ..ResponseSummary::default() };
                for (name, value) in head.headers() {
                    let name = String::from_utf8_lossy(name);
                    response.take_header(&name, value, self.cookies);
                }
                self.response = Some(response);
                &bytes[used..]
            }
        };
        self.search.see(body);
        if let Some(response) = &mut self.response {
            response.body_bytes += body.len() as u64;
        }
        Ok(())
    }

    fn end(
        &mut self,
        status: ProtocolStatus,
        nothing_more: bool,
    ) -> Result<ResponseSummary, Fault> {
        if status != ProtocolStatus::RequestComplete {
            return Err("the FastCGI server rejected the request");
        }
        let response = self.response.take().ok_or("the end of a response without a CGI header")?;
        Ok(ResponseSummary {
            keep_alive: nothing_more,
            has_marker: self.search.found(),
            ..response
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
            if let Some(response) = reader.read(part)? {
                return Ok(Some(response));
            }
        }
        Ok(None)
    }

    #[test]
    fn a_scripts_answer_is_read_however_its_bytes_come() {
        let bytes =
            script(b"Status: 404 Not Found\r\nA: b\r\n\r\nhello", ProtocolStatus::RequestComplete);
        for part in 1..bytes.len() {
            let response = read(&bytes, part).expect("a response").expect("a whole one");
            assert_eq!((response.status, response.body_bytes, response.keep_alive), (404, 5, true));
        }
        assert_eq!(read(&bytes[..bytes.len() - 1], 7), Ok(None));
        let refused = script(b"\r\n\r\n", ProtocolStatus::Overloaded);
        assert!(read(&refused, 1_000).is_err());
        assert!(read(b"HTTP/1.1 200 OK\r\n\r\n", 1_000).is_err());
    }
}
