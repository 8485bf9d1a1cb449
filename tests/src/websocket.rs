//! A WebSocket client's side, byte by byte: the handshake, and text frames (RFC 6455).

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use crate::http::{Connection, Request, Response};

/// The handshake of RFC 6455 §1.3.
pub fn handshake(path: &str) -> Request {
    Request::get(path)
        .header("Connection", "keep-alive, Upgrade")
        .header("Upgrade", "websocket")
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
}

/// What a server answers the key of [`handshake`] with.
pub const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// A connection that has changed its protocol.
#[derive(Debug)]
pub struct Socket(TcpStream);

impl Socket {
    /// Sends a handshake and reads the answer; after 101 the connection goes on as it is.
    ///
    /// # Panics
    /// When there is no answer.
    pub fn open(address: SocketAddr, path: &str) -> (Response, Socket) {
        let mut connection = Connection::open(address);
        connection.send(&handshake(path).to_bytes()).expect("the server takes a handshake");
        let stream = connection.stream().try_clone().expect("a socket can be duplicated");
        (read_head(&stream), Socket(stream))
    }

    /// Sends bytes.
    ///
    /// # Panics
    /// When the connection is broken.
    pub fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("the connection is there");
    }

    /// Reads exactly this number of bytes, as text.
    ///
    /// # Panics
    /// When they do not come.
    pub fn read(&mut self, count: usize) -> String {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).expect("bytes come");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Reads until the other side is over.
    ///
    /// # Errors
    /// When that does not happen.
    pub fn read_to_end(&mut self) -> io::Result<String> {
        let mut text = String::new();
        self.0.read_to_string(&mut text).map(|_| text)
    }

    /// Says that nothing more will be sent.
    pub fn finish_sending(&self) {
        let _ = self.0.shutdown(Shutdown::Write);
    }

    /// Sends a short text, masked as a client has to, and reads what comes back for it.
    ///
    /// # Panics
    /// When another frame than a short text comes.
    pub fn exchange(&mut self, text: &str) -> String {
        let length = u8::try_from(text.len()).ok().filter(|length| *length < 126);
        let length = length.expect("a short text");
        let mask = [1, 2, 3, 4];
        let mut frame = vec![0x81, 0x80 | length];
        frame.extend(mask);
        frame.extend(text.bytes().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        self.send(&frame);
        let mut head = [0; 2];
        self.0.read_exact(&mut head).expect("a frame comes");
        assert_eq!(head[0], 0x81, "a text");
        self.read(usize::from(head[1]))
    }
}

/// Reads no byte beyond the header.
fn read_head(mut stream: &TcpStream) -> Response {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a head comes");
        head.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&head);
    crate::http::parse_head(text.trim_end()).expect("a head")
}
