//! HTTP/1.1 answers: bytes in, what they say out. No I/O.

use std::mem::MaybeUninit;
use std::sync::Arc;

use httparse::{ParserConfig, Status};
use memchr::memmem::Finder;

/// Longest head of an answer in bytes; a server that says more is cut off.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Most header fields of an answer.
const MAX_FIELDS: usize = 128;

/// Longest line that says how long a chunk is, its extensions included, in bytes.
const MAX_CHUNK_LINE: usize = 1024;

/// Most cookies that are taken from one answer.
pub const MAX_COOKIES: usize = 50;

/// What is wrong with an answer, in words.
pub type Fault = &'static str;

/// An answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResponseSummary {
    /// Its status.
    pub status: u16,
    /// Whether the connection can carry another request.
    pub keep_alive: bool,
    /// How long its body was, without framing.
    pub body_bytes: u64,
    /// Whether the body holds what was looked for; true if nothing was.
    pub has_marker: bool,
    /// Where a redirect leads.
    pub location: Option<String>,
    /// Cookies that were set (`name=value`), if they were options for.
    pub cookies: Vec<String>,
    /// Whether it says when to come again (`Retry-After`; RFC 9110, 10.2.3).
    pub has_retry_after: bool,
}

/// A text that a body has to hold.
#[derive(Debug, Clone)]
pub struct Marker(Arc<Finder<'static>>);

impl Marker {
    /// The text to look for.
    pub fn new(text: &str) -> Marker {
        Marker(Arc::new(Finder::new(text.as_bytes()).into_owned()))
    }
}

/// Looks for a marker in a body that comes in parts.
#[derive(Debug, Default)]
pub struct MarkerSearch {
    marker: Option<Marker>,
    /// The end of what came, which may be the marker's beginning.
    tail: Vec<u8>,
    found: bool,
}

impl MarkerSearch {
    /// Begins anew.
    pub fn begin(&mut self, marker: Option<&Marker>) {
        self.found = marker.is_none();
        self.tail.clear();
        self.marker = marker.cloned();
    }

    /// The next part of the body.
    pub fn see(&mut self, part: &[u8]) {
        let Some(Marker(finder)) = self.marker.as_ref().filter(|_| !self.found) else {
            return;
        };
        let keep = finder.needle().len().saturating_sub(1);
        self.tail.extend_from_slice(&part[..part.len().min(keep)]);
        self.found = finder.find(&self.tail).is_some() || finder.find(part).is_some();
        if part.len() >= keep {
            self.tail.clear();
            self.tail.extend_from_slice(&part[part.len() - keep..]);
        } else {
            let surplus = self.tail.len().saturating_sub(keep);
            self.tail.drain(..surplus);
        }
    }

    /// Whether it has come, or nothing was looked for.
    pub fn found(&self) -> bool {
        self.found
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ParseState {
    #[default]
    Head,
    /// So many bytes of the body are to come.
    Length(u64),
    /// A chunk's length is to come.
    ChunkLine,
    /// So many bytes of the chunk are to come.
    Chunk(u64),
    /// The end of a chunk's line is to come.
    ChunkEnd,
    /// Lines after the last chunk, up to an empty one.
    Trailers,
    /// The body ends with the connection.
    UntilClose,
    Whole,
}

/// What is options of the next answer.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadOptions<'a> {
    /// It answers HEAD, so it has no body.
    pub head: bool,
    /// What its body has to hold.
    pub marker: Option<&'a Marker>,
    /// Whether its cookies are wanted.
    pub cookies: bool,
}

/// Reads one answer after the other (RFC 9112).
#[derive(Debug, Default)]
pub struct Http1Reader {
    state: ParseState,
    /// What came of a head or a line that is not whole yet.
    stash: Vec<u8>,
    head: bool,
    cookies: bool,
    began: bool,
    answer: ResponseSummary,
    search: MarkerSearch,
}

impl Http1Reader {
    /// The next answer begins.
    pub fn begin(&mut self, options: ReadOptions<'_>) {
        self.state = ParseState::Head;
        self.stash.clear();
        self.head = options.head;
        self.cookies = options.cookies;
        self.began = false;
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
        loop {
            let used = self.step(input)?;
            if self.state == ParseState::Whole {
                // What comes unasked belongs to nothing.
                self.answer.keep_alive &= used == input.len();
                return Ok(Some(self.finish()));
            }
            match used {
                0 => return Ok(None),
                used => input = &input[used..],
            }
        }
    }

    /// The connection has ended. The answer, if that is its end.
    ///
    /// # Errors
    /// What is missing.
    pub fn ended(&mut self) -> Result<ResponseSummary, Fault> {
        match self.state {
            ParseState::UntilClose => Ok(self.finish()),
            ParseState::Head if !self.began => Err("closed without an answer"),
            ParseState::Head => Err("closed in the middle of the answer's head"),
            _ => Err("closed in the middle of the answer's body"),
        }
    }

    fn finish(&mut self) -> ResponseSummary {
        self.answer.has_marker = self.search.found();
        std::mem::take(&mut self.answer)
    }

    /// How many bytes of `input` are done with; 0 means that more has to come.
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
        self.answer.body_bytes += part as u64;
        self.search.see(&input[..part]);
        part
    }

    fn head(&mut self, input: &[u8]) -> Result<usize, Fault> {
        if self.stash.is_empty() {
            // Most heads come whole, and need not be copied.
            if let Some(length) = self.parse(input)? {
                return Ok(length);
            }
            if input.len() > MAX_HEAD_BYTES {
                return Err("a head longer than 64 KiB");
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
            None if stash.len() > MAX_HEAD_BYTES => Err("a head longer than 64 KiB"),
            None => {
                self.stash = stash;
                Ok(0)
            }
        }
    }

    /// The length of the head, if it is whole.
    fn parse(&mut self, input: &[u8]) -> Result<Option<usize>, Fault> {
        if input.is_empty() {
            return Ok(None);
        }
        let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
        let mut response = httparse::Response::new(&mut []);
        let parsed = ParserConfig::default().parse_response_with_uninit_headers(
            &mut response,
            input,
            &mut fields,
        );
        let length = match parsed {
            Ok(Status::Complete(length)) => length,
            Ok(Status::Partial) => return Ok(None),
            Err(httparse::Error::TooManyHeaders) => return Err("more than 128 header fields"),
            Err(_) => return Err("no HTTP/1.1 answer"),
        };
        let status = response.code.unwrap_or(0);
        if (100..200).contains(&status) && status != 101 {
            // An interim answer: the one that counts is still to come (RFC 9110, 15.2).
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
        fields: &[httparse::Header<'_>],
    ) -> Result<(), Fault> {
        let mut length = None;
        let mut chunked = false;
        let answer = &mut self.answer;
        *answer = ResponseSummary {
            status,
            keep_alive: version == Some(1),
            ..ResponseSummary::default()
        };
        for field in fields {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            match field.name.len() {
                14 if is("content-length") => {
                    let said = length_of(field.value)?;
                    if length.is_some_and(|before| before != said) {
                        return Err("two different Content-Lengths");
                    }
                    length = Some(said);
                }
                17 if is("transfer-encoding") => {
                    // The last encoding frames the body (RFC 9112, 6.1).
                    let last = field.value.rsplit(|byte| *byte == b',').next();
                    chunked =
                        last.is_some_and(|last| last.trim_ascii().eq_ignore_ascii_case(b"chunked"));
                }
                10 if is("connection") => {
                    let mut words = field.value.split(|byte| *byte == b',');
                    if words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"close")) {
                        answer.keep_alive = false;
                    } else if field.value.eq_ignore_ascii_case(b"keep-alive") {
                        answer.keep_alive = true;
                    }
                }
                8 if is("location") && (300..400).contains(&status) => {
                    answer.location = Some(String::from_utf8_lossy(field.value).into_owned());
                }
                11 if is("retry-after") => answer.has_retry_after = true,
                10 if self.cookies && is("set-cookie") && answer.cookies.len() < MAX_COOKIES => {
                    let pair = field.value.split(|byte| *byte == b';').next();
                    let pair = String::from_utf8_lossy(pair.unwrap_or_default());
                    answer.cookies.push(pair.trim().to_owned());
                }
                _ => {}
            }
        }
        self.state = match length {
            _ if self.head || matches!(status, 204 | 304) => ParseState::Whole,
            _ if status == 101 => return Err("101, which nobody asked for"),
            _ if chunked => ParseState::ChunkLine,
            Some(0) => ParseState::Whole,
            Some(length) => ParseState::Length(length),
            None => ParseState::UntilClose,
        };
        if self.state == ParseState::UntilClose {
            self.answer.keep_alive = false;
        }
        Ok(())
    }

    /// A line of the framing of chunks (RFC 9112, 7.1).
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
        ParseState::ChunkEnd => Err("a chunk longer than it says"),
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
    length.ok_or("a Content-Length that is no number")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the bytes in parts of every size: all must come to the same.
    fn read(bytes: &[u8], options: ReadOptions<'_>) -> Result<Option<ResponseSummary>, Fault> {
        let mut results = (1..=bytes.len()).map(|size| {
            let mut reader = Http1Reader::default();
            reader.begin(options);
            for part in bytes.chunks(size) {
                if let Some(answer) = reader.read(part)? {
                    return Ok(Some(answer));
                }
            }
            Ok(None)
        });
        let first = results.next().expect("some bytes");
        for other in results {
            let keeps = |result: &Result<Option<ResponseSummary>, Fault>| {
                result
                    .clone()
                    .map(|found| found.map(|found| (found.status, found.body_bytes)))
            };
            assert_eq!(keeps(&first), keeps(&other));
        }
        first
    }

    fn whole(text: &str) -> ResponseSummary {
        read(text.as_bytes(), ReadOptions::default())
            .expect("an answer")
            .expect("a whole one")
    }

    #[test]
    fn a_body_ends_where_its_framing_says() {
        let answer = whole("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!(
            (answer.status, answer.body_bytes, answer.keep_alive),
            (200, 5, true)
        );
        let answer = whole(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n\
             a\r\n0123456789\r\n0\r\nA: b\r\n\r\n",
        );
        assert_eq!(
            (answer.status, answer.body_bytes, answer.keep_alive),
            (200, 15, true)
        );
        assert_eq!(
            whole("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n").body_bytes,
            0
        );
        let options = ReadOptions {
            head: true,
            ..ReadOptions::default()
        };
        let head = read(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", options);
        assert_eq!(
            head.map(|found| found.map(|found| found.body_bytes)),
            Ok(Some(0))
        );
    }

    #[test]
    fn an_answer_without_a_length_ends_with_the_connection() {
        let mut reader = Http1Reader::default();
        reader.begin(ReadOptions::default());
        assert_eq!(reader.read(b"HTTP/1.1 200 OK\r\n\r\nhel"), Ok(None));
        assert_eq!(reader.read(b"lo"), Ok(None));
        let answer = reader.ended().expect("an answer");
        assert_eq!((answer.body_bytes, answer.keep_alive), (5, false));
    }

    #[test]
    fn half_an_answer_is_none() {
        for (bytes, why) in [
            ("", "closed without an answer"),
            (
                "HTTP/1.1 200 O",
                "closed in the middle of the answer's head",
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
                "closed in the middle of the answer's body",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
                "closed in the middle of the answer's body",
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
            ("SSH-2.0-OpenSSH_9.2\r\n", "no HTTP/1.1 answer"),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
                "two different Content-Lengths",
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
                "a Content-Length that is no number",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
                "a chunk without a length",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
                "a chunk longer than it says",
            ),
        ] {
            assert_eq!(
                read(bytes.as_bytes(), ReadOptions::default()),
                Err(why),
                "{bytes}"
            );
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
        assert_eq!(said, Err("a head longer than 64 KiB"));
    }

    #[test]
    fn interim_answers_and_cookies_and_redirects_are_understood() {
        let options = ReadOptions {
            cookies: true,
            ..ReadOptions::default()
        };
        let bytes = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 302 Found\r\n\
            Set-Cookie: a=1; Path=/\r\nSet-Cookie: b=2\r\nLocation: /next\r\n\
            Connection: close\r\nContent-Length: 0\r\n\r\n";
        let answer = read(bytes, options)
            .expect("an answer")
            .expect("a whole one");
        assert_eq!(answer.cookies, ["a=1", "b=2"]);
        assert_eq!(answer.location.as_deref(), Some("/next"));
        assert!(!answer.keep_alive);
    }

    #[test]
    fn a_marker_is_found_wherever_the_parts_meet() {
        let marker = Marker::new("needle");
        for size in 1..20 {
            let mut search = MarkerSearch::default();
            search.begin(Some(&marker));
            b"some hay, a nneedle, hay"
                .chunks(size)
                .for_each(|part| search.see(part));
            assert!(search.found(), "{size}");
            search.begin(Some(&marker));
            b"some hay, a needl, needl e"
                .chunks(size)
                .for_each(|part| search.see(part));
            assert!(!search.found(), "{size}");
        }
    }

    #[test]
    fn what_comes_unasked_ends_the_connection() {
        let mut reader = Http1Reader::default();
        reader.begin(ReadOptions::default());
        let answer = reader.read(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK");
        assert!(!answer.expect("an answer").expect("a whole one").keep_alive);
    }
}
