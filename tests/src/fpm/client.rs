//! A FastCGI client that shows what came over the wire, and no more than that.
//!
//! Source: the FastCGI specification, version 1.0, sections 3.3 to 5.5.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use crate::wait::DEADLINE;

/// The protocol version in every record.
const VERSION: u8 = 1;

/// Record types (section 8).
const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;

/// The only role that web servers ask for.
const RESPONDER: u8 = 1;

/// The flag that keeps the connection.
const KEEP_CONN: u8 = 1;

/// The one request at a time.
const ID: u16 = 1;

/// The most bytes of a record's content that are sent at once.
const CONTENT: usize = 32 * 1024;

/// The parameters of a request, in the order in which they are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Params(Vec<(String, String)>);

impl Params {
    /// What nginx's `fastcgi.conf` sends for a request to a script below a document root.
    pub fn get(root: &str, target: &str) -> Self {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut params = Self(Vec::new());
        for (name, value) in [
            ("SCRIPT_FILENAME", format!("{root}{path}").as_str()),
            ("QUERY_STRING", query),
            ("REQUEST_METHOD", "GET"),
            ("CONTENT_TYPE", ""),
            ("CONTENT_LENGTH", ""),
            ("SCRIPT_NAME", path),
            ("REQUEST_URI", target),
            ("DOCUMENT_URI", path),
            ("DOCUMENT_ROOT", root),
            ("SERVER_PROTOCOL", "HTTP/1.1"),
            ("REQUEST_SCHEME", "http"),
            ("GATEWAY_INTERFACE", "CGI/1.1"),
            ("SERVER_SOFTWARE", "nginx/1.22.1"),
            ("REMOTE_ADDR", "127.0.0.1"),
            ("REMOTE_PORT", "54321"),
            ("SERVER_ADDR", "127.0.0.1"),
            ("SERVER_PORT", "80"),
            ("SERVER_NAME", "localhost"),
            ("REDIRECT_STATUS", "200"),
            ("HTTP_HOST", "localhost"),
        ] {
            params.set(name, value);
        }
        params
    }

    /// Sets one, in its place if it is there already.
    pub fn set(&mut self, name: &str, value: &str) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => value.clone_into(old),
            None => self.0.push((name.to_owned(), value.to_owned())),
        }
    }

    /// As [`Params::set`], for a chain of calls.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.set(name, value);
        self
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (name, value) in &self.0 {
            write_length(&mut bytes, name.len());
            write_length(&mut bytes, value.len());
            bytes.extend(name.bytes());
            bytes.extend(value.bytes());
        }
        bytes
    }
}

/// A length as section 3.4 has it: one byte up to 127, else four.
fn write_length(bytes: &mut Vec<u8>, length: usize) {
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => bytes.push(short),
        _ => bytes.extend((length as u32 | 0x8000_0000).to_be_bytes()),
    }
}

fn write_record(bytes: &mut Vec<u8>, kind: u8, content: &[u8]) {
    bytes.extend([VERSION, kind]);
    bytes.extend(ID.to_be_bytes());
    bytes.extend((content.len() as u16).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(content);
}

fn write_stream(bytes: &mut Vec<u8>, kind: u8, content: &[u8]) {
    for piece in content.chunks(CONTENT) {
        write_record(bytes, kind, piece);
    }
    write_record(bytes, kind, b"");
}

/// What a request was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The CGI answer: header, empty line, body.
    pub stdout: Vec<u8>,
    /// What was said besides.
    pub stderr: Vec<u8>,
    /// END_REQUEST's application status.
    pub app_status: u32,
    /// END_REQUEST's protocol status; 0 is "complete".
    pub protocol_status: u8,
}

impl Answer {
    /// The CGI answer as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// What follows the header.
    pub fn body(&self) -> String {
        let text = self.text();
        let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
        body.unwrap_or_default()
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{}\n(stderr: {:?}, status {}, {})",
            self.text(),
            String::from_utf8_lossy(&self.stderr),
            self.app_status,
            self.protocol_status
        )
    }
}

/// Where a pool listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listener {
    /// A Unix socket's path.
    Unix(PathBuf),
    /// An address.
    Tcp(SocketAddr),
}

impl Listener {
    /// Opens a connection on which every read and write has a deadline.
    ///
    /// # Panics
    /// Without a listener.
    pub fn connect(&self) -> Client {
        self.try_connect().unwrap_or_else(|error| panic!("cannot connect to {self:?}: {error}"))
    }

    /// As [`Listener::connect`].
    ///
    /// # Errors
    /// What the system says when the connection cannot be made.
    pub fn try_connect(&self) -> io::Result<Client> {
        let stream = match self {
            Listener::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(DEADLINE))?;
                stream.set_write_timeout(Some(DEADLINE))?;
                Stream::Unix(stream)
            }
            Listener::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, DEADLINE)?;
                stream.set_read_timeout(Some(DEADLINE))?;
                stream.set_write_timeout(Some(DEADLINE))?;
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
        };
        Ok(Client { stream })
    }

    /// One request on a connection of its own.
    ///
    /// # Errors
    /// When the connection ends before the answer does.
    pub fn ask(&self, params: &Params, body: &[u8]) -> io::Result<Answer> {
        let mut client = self.try_connect()?;
        client.begin(params, body, false)?;
        client.answer()
    }
}

#[derive(Debug)]
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// One connection to a pool.
#[derive(Debug)]
pub struct Client {
    stream: Stream,
}

impl Client {
    /// Sends bytes as they are.
    ///
    /// # Errors
    /// What the system says, e.g. that the connection is closed.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.stream {
            Stream::Unix(stream) => stream.write_all(bytes),
            Stream::Tcp(stream) => stream.write_all(bytes),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match &mut self.stream {
            Stream::Unix(stream) => stream.read(bytes),
            Stream::Tcp(stream) => stream.read(bytes),
        }
    }

    fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        match &mut self.stream {
            Stream::Unix(stream) => stream.read_exact(bytes),
            Stream::Tcp(stream) => stream.read_exact(bytes),
        }
    }

    /// Sends a whole request; `keep` asks for the connection to be kept.
    ///
    /// # Errors
    /// What the system says, e.g. that the connection is closed.
    pub fn begin(&mut self, params: &Params, body: &[u8], keep: bool) -> io::Result<()> {
        let mut bytes = Vec::new();
        let flags = if keep { KEEP_CONN } else { 0 };
        write_record(&mut bytes, BEGIN_REQUEST, &[0, RESPONDER, flags, 0, 0, 0, 0, 0]);
        write_stream(&mut bytes, PARAMS, &params.to_bytes());
        write_stream(&mut bytes, STDIN, body);
        self.send(&bytes)
    }

    /// Reads an answer to its END_REQUEST.
    ///
    /// # Errors
    /// When the connection ends before, or another record comes than an answer has.
    pub fn answer(&mut self) -> io::Result<Answer> {
        let mut answer =
            Answer { stdout: Vec::new(), stderr: Vec::new(), app_status: 0, protocol_status: 0 };
        loop {
            let (kind, content) = self.record()?;
            match (kind, content.as_slice()) {
                (STDOUT, content) => answer.stdout.extend(content),
                (STDERR, content) => answer.stderr.extend(content),
                (END_REQUEST, &[a, b, c, d, status, ..]) => {
                    answer.app_status = u32::from_be_bytes([a, b, c, d]);
                    answer.protocol_status = status;
                    return Ok(answer);
                }
                other => {
                    let text = format!("no record of an answer: {other:?}");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, text));
                }
            }
        }
    }

    /// Reads one record: its type and content.
    ///
    /// # Errors
    /// When the connection ends inside it.
    pub fn record(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut header = [0; 8];
        self.read_exact(&mut header)?;
        let [_, kind, _, _, high, low, padding, _] = header;
        let mut content = vec![0; usize::from(u16::from_be_bytes([high, low]))];
        self.read_exact(&mut content)?;
        let mut padded = vec![0; usize::from(padding)];
        self.read_exact(&mut padded)?;
        Ok((kind, content))
    }

    /// Whether the other side closes the connection without sending anything more.
    pub fn is_closed(&mut self) -> bool {
        match self.read(&mut [0; 1]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
    }
}
