//! A FastCGI client that sends exactly the records of a test.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use maitred_fastcgi::{
    HEADER_LEN, Header, KEEP_CONN, ProtocolStatus, RecordType, RequestWriter, ResponseEvent,
    ResponseReader, record_header, write_stdin, write_stdin_end,
};

use crate::wait::DEADLINE;

/// The parameters of a request for a script below `root`, as far as php-fpm needs them, and further
/// ones that replace those of the same name.
pub fn params(root: &Path, target: &str, further: &[(&str, &str)]) -> Vec<(String, String)> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let root = root.display().to_string();
    let file = format!("{root}{path}");
    let usual = [
        ("SCRIPT_FILENAME", file.as_str()),
        ("QUERY_STRING", query),
        ("REQUEST_METHOD", "GET"),
        ("SCRIPT_NAME", path),
        ("REQUEST_URI", target),
        ("DOCUMENT_ROOT", &root),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("REMOTE_ADDR", "192.0.2.1"),
    ];
    let is_replaced = |name: &str| further.iter().any(|(other, _)| *other == name);
    let usual = usual.iter().filter(|(name, _)| !is_replaced(name));
    usual.chain(further).map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// A request's records up to its body.
pub fn head(id: u16, keep: bool, params: &[(String, String)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut request = RequestWriter::new(&mut out, id, keep);
    for (name, value) in params {
        let written = request.param(name.as_bytes(), value.as_bytes());
        written.expect("a test's parameters are short enough");
    }
    request.finish();
    out
}

/// A whole request: what asks for a script with a body.
pub fn request(id: u16, keep: bool, params: &[(String, String)], body: &[u8]) -> Vec<u8> {
    let mut out = head(id, keep, params);
    write_stdin(&mut out, id, body);
    write_stdin_end(&mut out, id);
    out
}

/// The record that begins a request in any role.
pub fn begin(id: u16, role: u8, keep: bool) -> Vec<u8> {
    let flags = if keep { KEEP_CONN } else { 0 };
    let mut out = record_header(RecordType::BeginRequest, id, 8).to_vec();
    out.extend_from_slice(&[0, role, flags, 0, 0, 0, 0, 0]);
    out
}

/// A record of any type.
pub fn record(kind: u8, id: u16, content: &[u8]) -> Vec<u8> {
    let header = Header {
        version: maitred_fastcgi::VERSION,
        kind,
        request_id: id,
        content_len: u16::try_from(content.len()).expect("a record's content is short"),
        padding_len: 0,
    };
    [&header.encode(), content].concat()
}

/// What came for one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// The CGI answer.
    pub stdout: String,
    /// Messages.
    pub stderr: String,
    /// How it ended.
    pub status: ProtocolStatus,
}

impl Answered {
    /// What follows the header.
    pub fn body(&self) -> &str {
        self.stdout.split_once("\r\n\r\n").map_or("", |(_, body)| body)
    }
}

/// One connection to a Unix socket, on which every read and write has a deadline.
#[derive(Debug)]
pub struct Wire {
    stream: UnixStream,
    unread: Vec<u8>,
}

impl Wire {
    /// Connects.
    ///
    /// # Panics
    /// Without a listener.
    pub fn connect(socket: &Path) -> Wire {
        let stream = UnixStream::connect(socket)
            .unwrap_or_else(|error| panic!("cannot connect to {}: {error}", socket.display()));
        let deadlines = stream
            .set_read_timeout(Some(DEADLINE))
            .and_then(|()| stream.set_write_timeout(Some(DEADLINE)));
        deadlines.expect("a socket has time limits");
        Wire { stream, unread: Vec::new() }
    }

    /// Sends bytes as they are.
    ///
    /// # Panics
    /// When the connection is closed.
    pub fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes)
            .unwrap_or_else(|error| panic!("{} bytes cannot be sent: {error}", bytes.len()));
    }

    /// As [`Wire::send`].
    ///
    /// # Errors
    /// When the connection is closed.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Reads the answer to request `id`. None when the connection ends before.
    ///
    /// # Panics
    /// When what comes is no answer.
    pub fn answer(&mut self, id: u16) -> Option<Answered> {
        let mut reader = ResponseReader::new(id);
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        loop {
            let unread = std::mem::take(&mut self.unread);
            let mut input = &unread[..];
            while let Some(event) = reader.next(&mut input).expect("an answer is made of records") {
                match event {
                    ResponseEvent::Stdout(bytes) => stdout.extend_from_slice(bytes),
                    ResponseEvent::Stderr(bytes) => stderr.extend_from_slice(bytes),
                    ResponseEvent::Report(_) | ResponseEvent::Hints(_) => {
                        panic!("neither report nor hints are for web servers")
                    }
                    ResponseEvent::End { protocol_status, .. } => {
                        self.unread = input.to_vec();
                        return Some(Answered {
                            stdout: String::from_utf8_lossy(&stdout).into_owned(),
                            stderr: String::from_utf8_lossy(&stderr).into_owned(),
                            status: protocol_status,
                        });
                    }
                }
            }
            if !self.read() {
                return None;
            }
        }
    }

    /// Sends a request and reads its answer.
    ///
    /// # Panics
    /// When there is none.
    pub fn ask(&mut self, id: u16, params: &[(String, String)], body: &[u8]) -> Answered {
        self.send(&request(id, true, params, body));
        self.answer(id).expect("the connection stays until the answer is complete")
    }

    /// Reads one record: its type, its request and its content.
    ///
    /// # Panics
    /// When the connection ends before.
    pub fn record(&mut self) -> (u8, u16, Vec<u8>) {
        loop {
            if let Some((header, rest)) = self.unread.split_first_chunk::<HEADER_LEN>() {
                let header = Header::decode(*header);
                let content = usize::from(header.content_len);
                if rest.len() >= content + usize::from(header.padding_len) {
                    let record = rest[..content].to_vec();
                    let used = HEADER_LEN + content + usize::from(header.padding_len);
                    self.unread.drain(..used);
                    return (header.kind, header.request_id, record);
                }
            }
            assert!(self.read(), "the connection ended within a record");
        }
    }

    /// Waits for the other side to close the connection, whatever it says before.
    ///
    /// # Panics
    /// When it does not.
    pub fn expect_closed(&mut self) {
        while self.read() {}
    }

    fn read(&mut self) -> bool {
        let mut bytes = [0; 64 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(count) => {
                self.unread.extend_from_slice(&bytes[..count]);
                count > 0
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => false,
            Err(error) => panic!("nothing came: {error}"),
        }
    }
}
