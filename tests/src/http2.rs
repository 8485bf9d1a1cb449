//! A client of HTTP/2 that sends exactly the frames of a test (RFC 9113), for what no honest
//! client does. Headers are sent uncompressed; of what comes, bodies are kept and headers are not
//! read: where a header matters, ask with [`curl`].

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use crate::wait::DEADLINE;

/// How a client begins (§3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Kinds of frames (§6).
pub const DATA: u8 = 0;
/// See [`DATA`].
pub const HEADERS: u8 = 1;
/// See [`DATA`].
pub const RST_STREAM: u8 = 3;
/// See [`DATA`].
pub const SETTINGS: u8 = 4;
/// See [`DATA`].
pub const PING: u8 = 6;
/// See [`DATA`].
pub const GOAWAY: u8 = 7;
/// See [`DATA`].
pub const WINDOW_UPDATE: u8 = 8;
/// See [`DATA`].
pub const CONTINUATION: u8 = 9;

/// The flag of DATA and HEADERS that nothing follows on their stream.
pub const END_STREAM: u8 = 1;
/// The flag of SETTINGS and PING that answer one.
pub const ACK: u8 = 1;
/// The flag of HEADERS and CONTINUATION that all headers have been sent.
pub const END_HEADERS: u8 = 4;

/// The setting of a stream's initial window (§6.5.2).
pub const INITIAL_WINDOW_SIZE: u16 = 4;

/// Why a stream or a connection ends (§7).
pub const NO_ERROR: u32 = 0;
/// See [`NO_ERROR`].
pub const PROTOCOL_ERROR: u32 = 1;
/// See [`NO_ERROR`].
pub const ENHANCE_YOUR_CALM: u32 = 11;

/// A frame as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its kind.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its stream; 0 for the connection.
    pub stream: u32,
    /// What it holds.
    pub payload: Vec<u8>,
}

impl Frame {
    /// The error code of RST_STREAM or GOAWAY.
    pub fn error_code(&self) -> Option<u32> {
        let at = match self.kind {
            RST_STREAM => 0,
            GOAWAY => 4,
            _ => return None,
        };
        let code = self.payload.get(at..at + 4)?;
        Some(u32::from_be_bytes(code.try_into().expect("four bytes")))
    }
}

/// The bytes of a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame is short");
    let mut bytes = length.to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Headers as HPACK writes those that are not to be remembered (RFC 7541 §6.2.2).
pub fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        text(&mut bytes, name);
        text(&mut bytes, value);
    }
    bytes
}

/// A text without Huffman's code (RFC 7541 §5.2).
fn text(bytes: &mut Vec<u8>, text: &str) {
    integer(bytes, 0, 7, text.len());
    bytes.extend(text.as_bytes());
}

/// A number that begins in the last `bits` of a byte (RFC 7541 §5.1).
pub fn integer(bytes: &mut Vec<u8>, first: u8, bits: u8, mut number: usize) {
    let most = (1 << bits) - 1;
    if number < most {
        bytes.push(first | number as u8);
        return;
    }
    bytes.push(first | most as u8);
    number -= most;
    while number >= 128 {
        bytes.push((number % 128) as u8 | 128);
        number /= 128;
    }
    bytes.push(number as u8);
}

/// The headers of a GET.
pub fn get(path: &str) -> Vec<u8> {
    fields(&[(":method", "GET"), (":scheme", "http"), (":path", path), (":authority", "localhost")])
}

/// What a frame of settings holds.
fn payload(settings: &[(u16, u32)]) -> Vec<u8> {
    let bytes = settings.iter().flat_map(|(setting, value)| {
        let (setting, value) = (setting.to_be_bytes(), value.to_be_bytes());
        setting.into_iter().chain(value)
    });
    bytes.collect()
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// What has come of the answers' bodies, by stream.
    bodies: HashMap<u32, Vec<u8>>,
    /// How streams ended: by which kind of frame.
    ended: HashMap<u32, u8>,
}

impl Connection {
    /// Opens a connection and begins, with these settings.
    ///
    /// # Panics
    /// When the server does not accept it.
    pub fn open(address: SocketAddr, settings: &[(u16, u32)]) -> Self {
        Self::open_after(address, b"", settings)
    }

    /// The same, after what a proxy says of its client with the PROXY protocol.
    ///
    /// # Panics
    /// As [`Connection::open`].
    pub fn open_after(address: SocketAddr, header: &[u8], settings: &[(u16, u32)]) -> Self {
        let stream = TcpStream::connect_timeout(&address, DEADLINE)
            .unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"));
        stream
            .set_read_timeout(Some(DEADLINE))
            .and_then(|()| stream.set_write_timeout(Some(DEADLINE)))
            .and_then(|()| stream.set_nodelay(true))
            .expect("a socket's options can be set");
        let mut connection =
            Self { stream, buffer: Vec::new(), bodies: HashMap::new(), ended: HashMap::new() };
        let settings = frame(SETTINGS, 0, 0, &payload(settings));
        let begin = [header, PREFACE, &settings].concat();
        connection.send(&begin).expect("the server takes a preface");
        connection
    }

    /// A connection that a client has opened, and begun with; these are the server's settings.
    ///
    /// # Panics
    /// When the client does not begin as it should.
    pub fn accepted(mut stream: TcpStream, settings: &[(u16, u32)]) -> Self {
        let mut preface = [0; PREFACE.len()];
        stream.read_exact(&mut preface).expect("a preface");
        assert_eq!(preface, PREFACE);
        let payload = payload(settings);
        stream.write_all(&frame(SETTINGS, 0, 0, &payload)).expect("the client takes settings");
        Self { stream, buffer: Vec::new(), bodies: HashMap::new(), ended: HashMap::new() }
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

    /// Asks for a path on a stream.
    ///
    /// # Panics
    /// When the server has closed the connection.
    pub fn ask(&mut self, stream: u32, path: &str) {
        self.ask_with(stream, &get(path), END_STREAM);
    }

    /// Asks with these headers on a stream; `flags` says whether a body follows.
    ///
    /// # Panics
    /// When the server has closed the connection.
    pub fn ask_with(&mut self, stream: u32, fields: &[u8], flags: u8) {
        let request = frame(HEADERS, flags | END_HEADERS, stream, fields);
        self.send(&request).expect("the server takes a request");
    }

    /// The next frame; nothing when the server has closed the connection. Settings are agreed to.
    ///
    /// # Errors
    /// When none comes in time.
    pub fn next_frame(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.take_frame() {
                if frame.kind == SETTINGS && frame.flags & ACK == 0 {
                    // A server that does not read any more need not be told.
                    let _ = self.send(&self::frame(SETTINGS, ACK, 0, &[]));
                }
                if frame.kind == DATA {
                    let body = self.bodies.entry(frame.stream).or_default();
                    body.extend(&frame.payload);
                }
                let ends = matches!(frame.kind, DATA | HEADERS) && frame.flags & END_STREAM != 0;
                if ends || frame.kind == RST_STREAM {
                    self.ended.entry(frame.stream).or_insert(frame.kind);
                }
                return Ok(Some(frame));
            }
            let mut bytes = [0; 16 * 1024];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Ok(None),
                Ok(count) => self.buffer.extend(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    fn take_frame(&mut self) -> Option<Frame> {
        let head = self.buffer.get(..9)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        let payload = self.buffer.get(9..9 + length)?.to_vec();
        self.buffer.drain(..9 + length);
        Some(Frame { kind, flags, stream, payload })
    }

    /// Waits for a frame; nothing when the server closes the connection without one.
    ///
    /// # Panics
    /// When neither happens in time.
    pub fn wait_for(&mut self, what: &str, wanted: impl Fn(&Frame) -> bool) -> Option<Frame> {
        loop {
            match self.next_frame() {
                Ok(Some(frame)) if wanted(&frame) => return Some(frame),
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(error) => panic!("waited in vain for {what}: {error}"),
            }
        }
    }

    /// The body of the answer on a stream, which must come to its end.
    ///
    /// # Panics
    /// When it does not.
    pub fn body(&mut self, stream: u32) -> Vec<u8> {
        while !self.ended.contains_key(&stream) {
            match self.next_frame() {
                Ok(Some(_)) => {}
                other => panic!("stream {stream} has no end: {other:?}"),
            }
        }
        assert!(self.ended.remove(&stream) != Some(RST_STREAM), "stream {stream} is reset");
        self.bodies.remove(&stream).unwrap_or_default()
    }

    /// As [`Connection::body`], as text.
    ///
    /// # Panics
    /// As [`Connection::body`].
    pub fn text(&mut self, stream: u32) -> String {
        String::from_utf8_lossy(&self.body(stream)).into_owned()
    }

    /// The error code that the server ends the connection with; nothing when it just closes it.
    ///
    /// # Panics
    /// When it does not.
    pub fn goaway(&mut self) -> Option<u32> {
        self.wait_for("the end of a connection", |frame| frame.kind == GOAWAY)
            .and_then(|frame| frame.error_code())
    }
}

/// What curl says: what `arguments` have it write to standard output.
///
/// # Panics
/// When it fails.
pub fn curl(arguments: &[&str]) -> String {
    curl_with(arguments, &[])
}

/// As [`curl`], with something on its standard input.
///
/// # Panics
/// When it fails.
pub fn curl_with(arguments: &[&str], input: &[u8]) -> String {
    let mut child = Command::new("curl")
        .args(["--silent", "--show-error", "--http2-prior-knowledge"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("curl is installed");
    let mut stdin = child.stdin.take().expect("stdin is a pipe");
    let input = input.to_vec();
    // It may be answered before it has read everything.
    let feeder = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("curl can be waited for");
    feeder.join().expect("feeding curl does not panic");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "curl {arguments:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
