//! An HTTP/1.1 client that sends exactly the bytes of a test and keeps exactly the bytes of the
//! response (RFC 9112).

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use crate::wait::DEADLINE;

/// How many bytes are read from a socket at once.
const READ_SIZE: usize = 64 * 1024;

/// A request as it will be written: nothing is checked, escaped or added but what the methods here
/// add.
#[derive(Debug, Clone)]
pub struct Request {
    /// The method, e.g. `GET`.
    pub method: String,
    /// The request target, e.g. `/a.php?b=c`.
    pub target: String,
    /// The protocol version, e.g. `HTTP/1.1`.
    pub version: String,
    /// Names and values in the order they are sent; each character below U+0100 is one byte.
    pub headers: Vec<(String, String)>,
    /// The body; framing is written by [`Request::to_bytes`].
    pub body: Vec<u8>,
    /// The chunk size in bytes if the body is to be sent chunked, else it goes with Content-Length.
    pub chunk_size: Option<usize>,
}

impl Request {
    /// A request without headers or body.
    pub fn new(method: &str, target: &str) -> Self {
        Self {
            method: method.into(),
            target: target.into(),
            version: "HTTP/1.1".into(),
            headers: Vec::new(),
            body: Vec::new(),
            chunk_size: None,
        }
    }

    /// A GET request with a Host header.
    pub fn get(target: &str) -> Self {
        Self::new("GET", target).header("Host", "localhost")
    }

    /// A POST request with a Host header and a body.
    pub fn post(target: &str, content_type: &str, body: &[u8]) -> Self {
        Self::new("POST", target)
            .header("Host", "localhost")
            .header("Content-Type", content_type)
            .body(body)
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self
    }

    /// Sends the body in chunks of that many bytes.
    pub fn chunked(mut self, chunk_size: usize) -> Self {
        self.chunk_size = Some(chunk_size.max(1));
        self
    }

    fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name))
    }

    /// The bytes of the request. Content-Length or Transfer-Encoding is added where there is a body
    /// or the method is POST, PUT or PATCH, unless a header of that name is there already.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} {}\r\n", self.method, self.target, self.version);
        for (name, value) in &self.headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        let expects_body = matches!(self.method.as_str(), "POST" | "PUT" | "PATCH");
        if self.chunk_size.is_some() {
            head.push_str("Transfer-Encoding: chunked\r\n");
        } else if (expects_body || !self.body.is_empty()) && !self.has("Content-Length") {
            let _ = write!(head, "Content-Length: {}\r\n", self.body.len());
        }
        head.push_str("\r\n");
        let mut bytes = to_latin1(&head);
        match self.chunk_size {
            Some(size) => {
                for chunk in self.body.chunks(size) {
                    bytes.extend(format!("{:x}\r\n", chunk.len()).bytes());
                    bytes.extend(chunk);
                    bytes.extend(b"\r\n");
                }
                bytes.extend(b"0\r\n\r\n");
            }
            None => bytes.extend(&self.body),
        }
        bytes
    }
}

fn to_latin1(text: &str) -> Vec<u8> {
    let byte = |c: char| u8::try_from(u32::from(c)).expect("a head is written in Latin-1");
    text.chars().map(byte).collect()
}

fn from_latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| char::from(byte)).collect()
}

/// An answer as it came.
#[derive(Debug, Clone)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The whole status line.
    pub status_line: String,
    /// Names as sent and values without surrounding blanks, in order; each byte is one character.
    pub headers: Vec<(String, String)>,
    /// The body with its transfer coding taken off.
    pub body: Vec<u8>,
    /// The status codes of the interim answers (1xx) that came before.
    pub interim: Vec<u16>,
}

impl Response {
    /// The first header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let named = |(known, _): &&(String, String)| known.eq_ignore_ascii_case(name);
        self.headers.iter().find(named).map(|(_, value)| value.as_str())
    }

    /// All headers of that name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let named = self.headers.iter().filter(move |(known, _)| known.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body of an error page without its last line, which has the id of the request.
    pub fn text_without_id(&self) -> String {
        let text = self.text();
        let lines = text.split_inclusive('\n');
        lines.filter(|line| !line.starts_with("Request ")).collect()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("no JSON ({error}): {} {}", self.status, self.text()))
    }
}

/// One connection to a server.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    /// Opens a connection on which every read and write has a deadline.
    ///
    /// # Panics
    /// When the server does not accept it.
    pub fn open(address: SocketAddr) -> Self {
        Self::try_open(address)
            .unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"))
    }

    /// As [`Connection::open`].
    ///
    /// # Errors
    /// What the system says when the connection cannot be made.
    pub fn try_open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, DEADLINE)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.set_write_timeout(Some(DEADLINE))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::new() })
    }

    /// The socket itself.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// What the system says, e.g. that the server has closed the connection.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Writes a request and reads its answer. A server may refuse a body before all of it is
    /// written, so that a failed write still reads the answer.
    ///
    /// # Errors
    /// When the connection ends before the answer does, or the answer is not HTTP.
    pub fn ask(&mut self, request: &Request) -> io::Result<Response> {
        let written = self.send(&request.to_bytes());
        self.read_response(request.method == "HEAD").map_err(|error| written.err().unwrap_or(error))
    }

    /// No more will be sent.
    pub fn finish_sending(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut bytes = vec![0; READ_SIZE];
        let count = self.stream.read(&mut bytes)?;
        self.buffer.extend(&bytes[..count]);
        Ok(count)
    }

    fn fill_or_fail(&mut self, inside: &str) -> io::Result<()> {
        match self.fill()? {
            0 => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("the connection ended inside {inside}"),
            )),
            _ => Ok(()),
        }
    }

    /// Whether the server closes the connection without sending anything more, within the deadline.
    pub fn is_closed_by_server(&mut self) -> bool {
        self.buffer.is_empty()
            && match self.fill() {
                Ok(count) => count == 0,
                Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
            }
    }

    /// Everything until the server closes the connection.
    pub fn read_to_end(&mut self) -> Vec<u8> {
        while matches!(self.fill(), Ok(count) if count > 0) {}
        std::mem::take(&mut self.buffer)
    }

    /// Takes bytes up to and including `end` and returns what is before it.
    fn take_until(&mut self, end: &[u8], inside: &str) -> io::Result<Vec<u8>> {
        let mut searched = 0;
        loop {
            let found = self.buffer[searched..].windows(end.len()).position(|window| window == end);
            if let Some(position) = found {
                let before = searched + position;
                let mut taken = self.remove(before + end.len());
                taken.truncate(before);
                return Ok(taken);
            }
            searched = self.buffer.len().saturating_sub(end.len() - 1);
            self.fill_or_fail(inside)?;
        }
    }

    fn take(&mut self, count: usize, inside: &str) -> io::Result<Vec<u8>> {
        while self.buffer.len() < count {
            self.fill_or_fail(inside)?;
        }
        Ok(self.remove(count))
    }

    /// Without a look at each byte, which takes seconds for a gigabyte as it is built for tests.
    fn remove(&mut self, count: usize) -> Vec<u8> {
        let rest = self.buffer.split_off(count);
        std::mem::replace(&mut self.buffer, rest)
    }

    /// Reads up to and including `end`, and returns what is before it.
    ///
    /// # Errors
    /// When the connection ends before.
    pub fn read_until(&mut self, end: &[u8]) -> io::Result<Vec<u8>> {
        self.take_until(end, "what was waited for")
    }

    /// Reads that many bytes.
    ///
    /// # Errors
    /// When the connection ends before.
    pub fn read_bytes(&mut self, count: usize) -> io::Result<Vec<u8>> {
        self.take(count, "what was waited for")
    }

    /// Reads the header of an answer; interim answers are collected.
    ///
    /// # Errors
    /// When the connection ends before, or the header is not HTTP.
    pub fn read_head(&mut self) -> io::Result<Response> {
        let mut interim = Vec::new();
        loop {
            let head = self.take_until(b"\r\n\r\n", "a head")?;
            let mut response = parse_head(&from_latin1(&head)).ok_or_else(|| {
                let text = from_latin1(&head);
                io::Error::new(io::ErrorKind::InvalidData, format!("not a head: {text:?}"))
            })?;
            if (100..200).contains(&response.status) && response.status != 101 {
                interim.push(response.status);
            } else {
                response.interim = interim;
                return Ok(response);
            }
        }
    }

    /// Reads a whole answer (RFC 9112 section 6.3 says how long its body is); `to_head` if the
    /// request was HEAD.
    ///
    /// # Errors
    /// When the connection ends before the answer does, or the answer is not HTTP.
    pub fn read_response(&mut self, to_head: bool) -> io::Result<Response> {
        let mut response = self.read_head()?;
        if to_head || matches!(response.status, 204 | 304) {
            return Ok(response);
        }
        let chunked = response.header("Transfer-Encoding").is_some_and(|v| v.contains("chunked"));
        let length = response.header("Content-Length").and_then(|v| v.parse::<usize>().ok());
        response.body = match (chunked, length) {
            (true, _) => self.read_chunks()?,
            (false, Some(length)) => self.take(length, "a body")?,
            (false, None) => self.read_until_close()?,
        };
        Ok(response)
    }

    fn read_until_close(&mut self) -> io::Result<Vec<u8>> {
        while self.fill()? > 0 {}
        Ok(std::mem::take(&mut self.buffer))
    }

    fn read_chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let chunk = self.read_chunk()?;
            if chunk.is_empty() {
                return Ok(body);
            }
            body.extend(chunk);
        }
    }

    /// Reads one chunk of a chunked body; the last one is empty, and trailers after it are dropped.
    ///
    /// # Errors
    /// When the connection ends before, or the chunk is malformed.
    pub fn read_chunk(&mut self) -> io::Result<Vec<u8>> {
        let line = from_latin1(&self.take_until(b"\r\n", "a chunk's size")?);
        let digits = line.split(';').next().unwrap_or_default();
        let size = usize::from_str_radix(digits, 16).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidData, format!("not a chunk's size: {line:?}"))
        })?;
        if size == 0 {
            while !self.take_until(b"\r\n", "the trailers")?.is_empty() {}
            return Ok(Vec::new());
        }
        let chunk = self.take(size, "a chunk")?;
        match self.take(2, "a chunk's end")?.as_slice() {
            b"\r\n" => Ok(chunk),
            other => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a chunk ends with {other:?}"),
            )),
        }
    }
}

pub(crate) fn parse_head(head: &str) -> Option<Response> {
    let mut lines = head.split("\r\n");
    let status_line = lines.next()?.to_owned();
    let mut words = status_line.splitn(3, ' ');
    words.next().filter(|version| version.starts_with("HTTP/1."))?;
    let status = words.next().filter(|code| code.len() == 3)?.parse().ok()?;
    let mut headers = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(':')?;
        headers.push((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()));
    }
    Some(Response { status, status_line, headers, body: Vec::new(), interim: Vec::new() })
}

/// Sends one request on a connection of its own and reads the answer.
///
/// # Panics
/// When there is no whole answer.
pub fn ask(address: SocketAddr, request: &Request) -> Response {
    try_ask(address, request).unwrap_or_else(|error| {
        panic!("{} {} at {address} got no answer: {error}", request.method, request.target)
    })
}

/// As [`ask`].
///
/// # Errors
/// When there is no whole answer.
pub fn try_ask(address: SocketAddr, request: &Request) -> io::Result<Response> {
    Connection::try_open(address)?.ask(request)
}

/// A GET on a connection of its own.
///
/// # Panics
/// When there is no whole answer.
pub fn get(address: SocketAddr, target: &str) -> Response {
    ask(address, &Request::get(target).header("Connection", "close"))
}
