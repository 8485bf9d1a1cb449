//! How a server read the bytes of a connection: the requests that a script behind it has seen, and
//! how it ended.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The header in which a script says what it has seen: method, target, host and body, in hex.
pub const SEEN: &str = "x-seen";
/// A server that says nothing for this long waits for more bytes.
const SILENCE: Duration = Duration::from_secs(4);
/// Most bytes of responses to one connection.
const MOST_BYTES: u64 = 1 << 20;

/// A request as a script has seen it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub method: String,
    /// Path and query.
    pub target: String,
    pub host: String,
    pub body: Vec<u8>,
}

/// A response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// To a request that a script has seen.
    Seen(Seen),
    /// Of the server itself, with this status.
    Status(u16),
    /// Bytes that are no response of HTTP/1.
    Bytes,
}

/// What a server made of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    pub steps: Vec<Step>,
    /// It waits for more; otherwise it has closed the connection.
    pub waits: bool,
}

impl Reading {
    /// Sends all, and reads the responses until the server closes the connection or waits.
    pub fn of(address: SocketAddr, bytes: &[u8]) -> Reading {
        let mut stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(SILENCE)).expect("a timeout can be set");
        // The server may have refused it before all of it is sent.
        let _ = stream.write_all(bytes);
        let (mut said, mut piece) = (Vec::new(), [0; 16 << 10]);
        let waits = loop {
            match stream.read(&mut piece) {
                Ok(0) => break false,
                Ok(count) => said.extend(&piece[..count]),
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => break true,
                    _ => break false,
                },
            }
            assert!(said.len() as u64 <= MOST_BYTES, "{address} does not stop");
        };
        Reading { steps: steps(&said), waits }
    }

    /// Whether a script has seen each request, and none was refused.
    pub fn is_taken(&self) -> bool {
        !self.waits && self.steps.iter().all(|step| matches!(step, Step::Seen(_)))
    }

    /// The requests that a script has seen.
    pub fn seen(&self) -> impl Iterator<Item = &Seen> {
        self.steps.iter().filter_map(|step| match step {
            Step::Seen(seen) => Some(seen),
            _ => None,
        })
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            match step {
                Step::Seen(seen) => {
                    let (Seen { method, target, host, .. }, body) = (seen, &seen.body);
                    write!(f, "`{method} {target} {host} \"{}\"` ", body.escape_ascii())?;
                }
                Step::Status(status) => write!(f, "{status} ")?,
                Step::Bytes => write!(f, "no response of HTTP/1 ")?,
            }
        }
        write!(f, "{}", if self.waits { "waits" } else { "closed" })
    }
}

/// The responses in these bytes. The interim ones are left out.
fn steps(mut bytes: &[u8]) -> Vec<Step> {
    let mut steps = Vec::new();
    while !bytes.is_empty() {
        let head = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let Some((end, status)) = head.zip(status(bytes)) else {
            steps.push(Step::Bytes);
            break;
        };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        bytes = &bytes[end + 4..];
        if status == 100 {
            continue;
        }
        steps.push(value(&head, SEEN).map_or(Step::Status(status), |value| seen(&value)));
        bytes = match value(&head, "content-length").and_then(|value| value.parse().ok()) {
            Some(length) => bytes.get(length..).unwrap_or_default(),
            None if value(&head, "transfer-encoding").is_some() => after_chunks(bytes),
            None => &[],
        };
    }
    steps
}

fn status(bytes: &[u8]) -> Option<u16> {
    let is_first = bytes.starts_with(b"HTTP/1.1 ") || bytes.starts_with(b"HTTP/1.0 ");
    let digits = is_first.then(|| bytes.get(9..12)).flatten()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The value of the first header of this name.
fn value(head: &str, name: &str) -> Option<String> {
    let mut fields = head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(field, _)| field.eq_ignore_ascii_case(name))?;
    Some(value.trim().to_owned())
}

fn after_chunks(bytes: &[u8]) -> &[u8] {
    let end = bytes.windows(5).position(|five| five == b"0\r\n\r\n");
    end.map_or(&[], |end| &bytes[end + 5..])
}

fn seen(value: &str) -> Step {
    let mut parts = value.split('.').map(unhex);
    let mut next = || parts.next().unwrap_or_default();
    let mut text = || String::from_utf8_lossy(&next()).into_owned();
    let (method, target, host) = (text(), text(), text());
    // Apache hands scripts the target as it was sent.
    let origin =
        target.split_once("://").and_then(|(_, rest)| rest.find('/').map(|at| &rest[at..]));
    let target = origin.map_or(target.clone(), str::to_owned);
    // Host names have no case, and HAProxy leaves out the default port (RFC 9110 §4.2.3).
    let host = host.to_lowercase();
    let host = host.strip_suffix(":80").unwrap_or(&host).to_owned();
    Step::Seen(Seen { method, target, host, body: next() })
}

/// As a script writes the value of [`SEEN`].
pub fn hex(parts: [&[u8]; 4]) -> String {
    let hex = |part: &[u8]| part.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    parts.map(hex).join(".")
}

fn unhex(text: &str) -> Vec<u8> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    text.as_bytes().chunks(2).filter_map(byte).collect()
}
