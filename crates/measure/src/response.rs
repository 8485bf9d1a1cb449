//! Reads HTTP/1.1 responses. No I/O.

use std::mem::MaybeUninit;

use httparse::{ParserConfig, Status};

use crate::marker::{Marker, MarkerSearch};

/// The longest response header, in bytes; longer ones are an error.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Most headers of a response.
const MAX_HEADERS: usize = 128;

/// The longest line of a chunk's size, including extensions, in bytes.
const MAX_CHUNK_LINE: usize = 1024;

/// Most cookies of one response.
const MAX_COOKIES: usize = 50;

/// What is wrong with a response, as a message.
pub type Fault = &'static str;

/// A response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResponseSummary {
    /// Its status.
    pub status: u16,
    /// Whether the connection can carry another request.
    pub keep_alive: bool,
    /// The length of the body, without framing.
    pub body_bytes: u64,
    /// Whether the body contains the marker; true without a marker.
    pub has_marker: bool,
    /// The target of a redirect.
    pub location: Option<String>,
    /// Cookies that were set (`name=value`), if they are wanted.
    pub cookies: Vec<String>,
    /// Whether there is a `Retry-After` header (RFC 9110, 10.2.3).
    pub has_retry_after: bool,
}

impl ResponseSummary {
    /// Takes what it needs of a header; cookies only if they are wanted.
    pub fn take_header(&mut self, name: &str, value: &[u8], cookies: bool) {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if is("location") && (300..400).contains(&self.status) {
            self.location = Some(String::from_utf8_lossy(value).into_owned());
        } else if is("retry-after") {
            self.has_retry_after = true;
        } else if cookies && is("set-cookie") && self.cookies.len() < MAX_COOKIES {
            let pair = value.split(|byte| *byte == b';').next();
            let pair = String::from_utf8_lossy(pair.unwrap_or_default());
            self.cookies.push(pair.trim().to_owned());
        }
    }
}

/// Reads one response after another, in one of the protocols. No I/O.
pub trait ReadResponse: std::fmt::Debug {
    /// Starts with the next response.
    fn begin(&mut self, options: ReadOptions<'_>);

    /// Whether any byte of the response was received.
    fn has_begun(&self) -> bool;

    /// Reads received bytes. Returns the response once it is complete.
    ///
    /// # Errors
    /// What is wrong with the response.
    fn read(&mut self, input: &[u8]) -> Result<Option<ResponseSummary>, Fault>;

    /// The connection was closed. Returns the response, if it ends with the connection.
    ///
    /// # Errors
    /// What is missing.
    fn ended(&mut self) -> Result<ResponseSummary, Fault>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ParseState {
    #[default]
    Head,
    /// The number of bytes of the body that follow.
    Length(u64),
    /// A chunk size follows.
    ChunkLine,
    /// The number of bytes of the chunk that follow.
    Chunk(u64),
    /// The line end after a chunk follows.
    ChunkEnd,
    /// Trailers after the last chunk, until an empty line.
    Trailers,
    /// The body ends with the connection.
    UntilClose,
    Whole,
}

/// How the next response is read.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadOptions<'a> {
    /// It is the response to HEAD, so it has no body.
    pub head: bool,
    /// The marker that its body has to contain.
    pub marker: Option<&'a Marker>,
    /// Whether its cookies are wanted.
    pub cookies: bool,
}

/// Reads one response after another (RFC 9112).
#[derive(Debug, Default)]
pub struct Http1Reader {
    state: ParseState,
    /// An incomplete header or line.
    stash: Vec<u8>,
    head: bool,
    cookies: bool,
    began: bool,
    response: ResponseSummary,
    search: MarkerSearch,
}

impl ReadResponse for Http1Reader {
    fn begin(&mut self, options: ReadOptions<'_>) {
        self.state = ParseState::Head;
        self.stash.clear();
        self.head = options.head;
        self.cookies = options.cookies;
        self.began = false;
        self.search.begin(options.marker);
    }

    fn has_begun(&self) -> bool {
        self.began
    }

    fn read(&mut self, mut input: &[u8]) -> Result<Option<ResponseSummary>, Fault> {
        self.began |= !input.is_empty();
        loop {
            let used = self.step(input)?;
            if self.state == ParseState::Whole {
                // Bytes after the response belong to no request.
                self.response.keep_alive &= used == input.len();
                return Ok(Some(self.finish()));
            }
            match used {
                0 => return Ok(None),
                used => input = &input[used..],
            }
        }
    }

    fn ended(&mut self) -> Result<ResponseSummary, Fault> {
        match self.state {
            ParseState::UntilClose => Ok(self.finish()),
            ParseState::Head if !self.began => Err("closed without a response"),
            ParseState::Head => Err("closed in the middle of the response header"),
            _ => Err("closed in the middle of the response body"),
        }
    }
}

impl Http1Reader {
    fn finish(&mut self) -> ResponseSummary {
        self.response.has_marker = self.search.found();
        std::mem::take(&mut self.response)
    }

    /// Consumes a part of `input`. Returns its length; 0 means that more bytes are needed.
    fn step(&mut self, input: &[u8]) -> Result<usize, Fault> {
        match self.state {
            ParseState::Head => self.head(input),
            ParseState::Length(left) => {
                let part = self.body(input, left);
                self.state = match left - part as u64 {
                    0 => ParseState::Whole,
                    left => ParseState::Length(left),
                };
                Ok(part)
            }
            ParseState::UntilClose => Ok(self.body(input, u64::MAX)),
            ParseState::Chunk(left) => {
                let part = self.body(input, left);
                self.state = match left - part as u64 {
                    0 => ParseState::ChunkEnd,
                    left => ParseState::Chunk(left),
                };
                Ok(part)
            }
            ParseState::ChunkLine | ParseState::ChunkEnd | ParseState::Trailers => self.line(input),
            ParseState::Whole => Ok(0),
        }
    }

    fn body(&mut self, input: &[u8], most: u64) -> usize {
        let part = usize::try_from(most).map_or(input.len(), |most| most.min(input.len()));
        self.response.body_bytes += part as u64;
        self.search.see(&input[..part]);
        part
    }

    fn head(&mut self, input: &[u8]) -> Result<usize, Fault> {
        if self.stash.is_empty() {
            // Most headers arrive in one piece, and need not be copied.
            if let Some(length) = self.parse(input)? {
                return Ok(length);
            }
            if input.len() > MAX_HEAD_BYTES {
                return Err("a header longer than 64 KiB");
            }
            self.stash.extend_from_slice(input);
            return Ok(0);
        }
        if input.is_empty() {
            return Ok(0);
        }
        let before = self.stash.len();
        self.stash.extend_from_slice(input);
        let stash = std::mem::take(&mut self.stash);
        match self.parse(&stash)? {
            Some(length) => Ok(length.saturating_sub(before)),
            None if stash.len() > MAX_HEAD_BYTES => Err("a header longer than 64 KiB"),
            None => {
                self.stash = stash;
                Ok(0)
            }
        }
    }

    /// The length of the header, if it is complete.
    fn parse(&mut self, input: &[u8]) -> Result<Option<usize>, Fault> {
        if input.is_empty() {
            return Ok(None);
        }
        let mut fields = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut []);
        let parsed = ParserConfig::default().parse_response_with_uninit_headers(
            &mut response,
            input,
            &mut fields,
        );
        let length = match parsed {
            Ok(Status::Complete(length)) => length,
            Ok(Status::Partial) => return Ok(None),
            Err(httparse::Error::TooManyHeaders) => return Err("more than 128 headers"),
            Err(_) => return Err("not an HTTP/1.1 response"),
        };
        let status = response.code.unwrap_or(0);
        if (100..200).contains(&status) && status != 101 {
            // An interim response; the final one follows (RFC 9110, 15.2).
            self.stash.clear();
            return Ok(Some(length));
        }
        self.take_head(status, response.version, response.headers)?;
        Ok(Some(length))
    }

    fn take_head(
        &mut self,
        status: u16,
        version: Option<u8>,
        headers: &[httparse::Header<'_>],
    ) -> Result<(), Fault> {
        let mut length = None;
        let mut chunked = false;
        let response = &mut self.response;
        *response = ResponseSummary {
            status,
            keep_alive: version == Some(1),
            ..ResponseSummary::default()
        };
        for header in headers {
            let is = |name: &str| header.name.eq_ignore_ascii_case(name);
            match header.name.len() {
                14 if is("content-length") => {
                    let found = length_of(header.value)?;
                    if length.is_some_and(|before| before != found) {
                        return Err("two different Content-Lengths");
                    }
                    length = Some(found);
                }
                17 if is("transfer-encoding") => {
                    // The last encoding determines the framing (RFC 9112, 6.1).
                    let last = header.value.rsplit(|byte| *byte == b',').next();
                    chunked =
                        last.is_some_and(|last| last.trim_ascii().eq_ignore_ascii_case(b"chunked"));
                }
                10 if is("connection") => {
                    let mut words = header.value.split(|byte| *byte == b',');
                    if words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"close")) {
                        response.keep_alive = false;
                    } else if header.value.eq_ignore_ascii_case(b"keep-alive") {
                        response.keep_alive = true;
                    }
                }
                _ => response.take_header(header.name, header.value, self.cookies),
            }
        }
        self.state = match length {
            _ if self.head || matches!(status, 204 | 304) => ParseState::Whole,
            _ if status == 101 => return Err("an unexpected 101 (Switching Protocols)"),
            _ if chunked => ParseState::ChunkLine,
            Some(0) => ParseState::Whole,
            Some(length) => ParseState::Length(length),
            None => ParseState::UntilClose,
        };
        if self.state == ParseState::UntilClose {
            self.response.keep_alive = false;
        }
        Ok(())
    }

    /// A line of the chunked encoding (RFC 9112, 7.1).
    fn line(&mut self, input: &[u8]) -> Result<usize, Fault> {
        let end = memchr::memchr(b'\n', input);
        let used = end.map_or(input.len(), |end| end + 1);
        if self.stash.len() + used > MAX_CHUNK_LINE {
            return Err("a chunk's line longer than 1 KiB");
        }
        if end.is_none() {
            self.stash.extend_from_slice(input);
            return Ok(used);
        }
        let stashed = !self.stash.is_empty();
        if stashed {
            self.stash.extend_from_slice(&input[..used]);
        }
        let line = if stashed { &self.stash } else { &input[..used] };
        self.state = next_line(self.state, line.trim_ascii_end())?;
        self.stash.clear();
        Ok(used)
    }
}

fn next_line(state: ParseState, line: &[u8]) -> Result<ParseState, Fault> {
    match state {
        ParseState::ChunkEnd if line.is_empty() => Ok(ParseState::ChunkLine),
        ParseState::ChunkEnd => Err("a chunk longer than its size"),
        ParseState::Trailers if line.is_empty() => Ok(ParseState::Whole),
        ParseState::Trailers => Ok(ParseState::Trailers),
        _ => match chunk_length(line) {
            Some(0) => Ok(ParseState::Trailers),
            Some(length) => Ok(ParseState::Chunk(length)),
            None => Err("a chunk without a length"),
        },
    }
}

fn chunk_length(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next()?.trim_ascii();
    let digits = std::str::from_utf8(digits).ok()?;
    if digits.starts_with('+') {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}

fn length_of(value: &[u8]) -> Result<u64, Fault> {
    let digits = std::str::from_utf8(value).ok();
    let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let length = digits.and_then(|digits| digits.parse().ok());
    length.ok_or("a Content-Length that is not a number")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the bytes in parts of every size; all results have to be equal.
    fn read(bytes: &[u8], options: ReadOptions<'_>) -> Result<Option<ResponseSummary>, Fault> {
        let mut results = (1..=bytes.len()).map(|size| {
            let mut reader = Http1Reader::default();
            reader.begin(options);
            for part in bytes.chunks(size) {
                if let Some(response) = reader.read(part)? {
                    return Ok(Some(response));
                }
            }
            Ok(None)
        });
        let first = results.next().expect("some bytes");
        for other in results {
            let keeps = |result: &Result<Option<ResponseSummary>, Fault>| {
                result.clone().map(|found| found.map(|found| (found.status, found.body_bytes)))
            };
            assert_eq!(keeps(&first), keeps(&other));
        }
        first
    }

    fn whole(text: &str) -> ResponseSummary {
        read(text.as_bytes(), ReadOptions::default()).expect("a response").expect("a whole one")
    }

    #[test]
    fn a_body_ends_where_its_framing_says() {
        let response = whole("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!((response.status, response.body_bytes, response.keep_alive), (200, 5, true));
        let response = whole(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n\
             a\r\n0123456789\r\n0\r\nA: b\r\n\r\n",
        );
        assert_eq!((response.status, response.body_bytes, response.keep_alive), (200, 15, true));
        assert_eq!(whole("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n").body_bytes, 0);
        let options = ReadOptions { head: true, ..ReadOptions::default() };
        let head = read(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", options);
        assert_eq!(head.map(|found| found.map(|found| found.body_bytes)), Ok(Some(0)));
    }

    #[test]
    fn an_answer_without_a_length_ends_with_the_connection() {
        let mut reader = Http1Reader::default();
        reader.begin(ReadOptions::default());
        assert_eq!(reader.read(b"HTTP/1.1 200 OK\r\n\r\nhel"), Ok(None));
        assert_eq!(reader.read(b"lo"), Ok(None));
        let response = reader.ended().expect("a response");
        assert_eq!((response.body_bytes, response.keep_alive), (5, false));
    }

    #[test]
    fn half_an_answer_is_none() {
        for (bytes, why) in [
            ("", "closed without a response"),
            ("HTTP/1.1 200 O", "closed in the middle of the response header"),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
                "closed in the middle of the response body",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
                "closed in the middle of the response body",
            ),
        ] {
            let mut reader = Http1Reader::default();
            reader.begin(ReadOptions::default());
            assert_eq!(reader.read(bytes.as_bytes()), Ok(None));
            assert_eq!(reader.ended(), Err(why));
        }
    }

    #[test]
    fn what_is_no_answer_is_said() {
        for (bytes, why) in [
            ("SSH-2.0-OpenSSH_9.2\r\n", "not an HTTP/1.1 response"),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
                "two different Content-Lengths",
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
                "a Content-Length that is not a number",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
                "a chunk without a length",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
                "a chunk longer than its size",
            ),
        ] {
            assert_eq!(read(bytes.as_bytes(), ReadOptions::default()), Err(why), "{bytes}");
        }
    }

    #[test]
    fn endless_headers_are_cut_off() {
        let mut reader = Http1Reader::default();
        reader.begin(ReadOptions::default());
        let mut said = reader.read(b"HTTP/1.1 200 OK\r\nA: ");
        for _ in 0..100 {
            if said != Ok(None) {
                break;
            }
            said = reader.read(&[b'a'; 1_024]);
        }
        assert_eq!(said, Err("a header longer than 64 KiB"));
    }

    #[test]
    fn interim_answers_and_cookies_and_redirects_are_understood() {
        let options = ReadOptions { cookies: true, ..ReadOptions::default() };
        let bytes = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 302 Found\r\n\
            Set-Cookie: a=1; Path=/\r\nSet-Cookie: b=2\r\nLocation: /next\r\n\
            Connection: close\r\nContent-Length: 0\r\n\r\n";
        let response = read(bytes, options).expect("a response").expect("a whole one");
        assert_eq!(response.cookies, ["a=1", "b=2"]);
        assert_eq!(response.location.as_deref(), Some("/next"));
        assert!(!response.keep_alive);
    }

    #[test]
    fn what_comes_unasked_ends_the_connection() {
        let mut reader = Http1Reader::default();
        reader.begin(ReadOptions::default());
        let response = reader.read(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK");
        assert!(!response.expect("a response").expect("a whole one").keep_alive);
    }
}
