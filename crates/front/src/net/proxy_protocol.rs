//! The PROXY protocol (versions 1 and 2, haproxy.org/download/2.9/doc/proxy-protocol.txt): the
//! client's address, sent by a proxy before the client's first byte.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use ppp::{HeaderResult, PartialResult, v1, v2};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, timeout_at};

use crate::net::readable::readable;

/// Timeout for the header.
const PATIENCE: Duration = Duration::from_secs(5);
/// Largest header in bytes: its addresses, and the TLS data of a proxy.
const MAX_HEADER_BYTES: usize = 4096;
/// Pause before the rest of a header is read. A proxy sends it in one piece (§2), so this is rare.
const REST: Duration = Duration::from_millis(10);

/// The kind of the first bytes of a connection.
#[derive(Debug, PartialEq, Eq)]
enum Begins {
    /// A header of this length with the client's address; none: the connection is the proxy's own
    /// (`LOCAL`).
    Header(usize, Option<SocketAddr>),
    /// The header of a proxy that does not know its client's address.
    Unknown,
    /// An incomplete header.
    Part,
    /// No header.
    Other,
}

/// The reason why a connection without a valid PROXY header is closed.
#[derive(Debug)]
pub enum NoHeader {
    /// The header is missing or late.
    Missing,
    /// The proxy does not know its client's address: `UNKNOWN`, or a family that is not IP. The
    /// connection carries a client's bytes all the same, so it does not count as the proxy's own.
    Unknown,
}

impl NoHeader {
    /// The reason, for the log.
    pub fn words(&self) -> &'static str {
        match self {
            NoHeader::Missing => "it did not start with the PROXY protocol",
            NoHeader::Unknown => "the PROXY protocol does not name the client's address",
        }
    }
}

impl<E: Into<io::Error>> From<E> for NoHeader {
    fn from(_: E) -> NoHeader {
        NoHeader::Missing
    }
}

/// Reads the header of a connection that was just accepted, and returns the client's address: none
/// if the connection is the proxy's own (`LOCAL`).
///
/// # Errors
/// When the header is missing or late, or the client is unknown.
pub async fn take_header(socket: OwnedFd) -> Result<(OwnedFd, Option<SocketAddr>), NoHeader> {
    let socket = readable(socket)?;
    let deadline = Instant::now() + PATIENCE;
    let mut seen = 0;
    loop {
        let mut ready = timeout_at(deadline, socket.readable()).await??;
        let mut buffer = [MaybeUninit::uninit(); MAX_HEADER_BYTES];
        let bytes = match rustix::net::recv(socket.get_ref(), &mut buffer, RecvFlags::PEEK) {
            Ok(((bytes, _), _)) => bytes,
            Err(Errno::AGAIN | Errno::INTR) => {
                ready.clear_ready();
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let bytes = &*bytes;
        match begins(bytes) {
            Begins::Header(length, client) => {
                take(&socket, length)?;
                return Ok((socket.into_inner(), client));
            }
            Begins::Part if bytes.len() < MAX_HEADER_BYTES && !bytes.is_empty() => {
                // The peeked part keeps the socket readable.
                if bytes.len() == seen && Instant::now() > deadline {
                    return Err(NoHeader::Missing);
                }
                seen = bytes.len();
                tokio::time::sleep(REST).await;
            }
            Begins::Unknown => return Err(NoHeader::Unknown),
            Begins::Part | Begins::Other => return Err(NoHeader::Missing),
        }
    }
}

/// Reads bytes that have been peeked.
fn take(socket: &AsyncFd<OwnedFd>, mut length: usize) -> io::Result<()> {
    while length > 0 {
        let mut buffer = [MaybeUninit::uninit(); MAX_HEADER_BYTES];
        let ((bytes, _), _) =
            rustix::net::recv(socket.get_ref(), &mut buffer[..length], RecvFlags::empty())?;
        length -= bytes.len().max(1);
    }
    Ok(())
}

fn begins(bytes: &[u8]) -> Begins {
    let header = HeaderResult::parse(bytes);
    if header.is_incomplete() {
        return Begins::Part;
    }
    match header {
        HeaderResult::V1(Ok(header)) => {
            let length = header.header.len();
            match &header.addresses {
                v1::Addresses::Tcp4(way) => of(length, way.source_address, way.source_port),
                v1::Addresses::Tcp6(way) => of(length, way.source_address, way.source_port),
                v1::Addresses::Unknown => Begins::Unknown,
            }
        }
        HeaderResult::V2(Ok(header)) => {
            let length = header.as_bytes().len();
            match (header.command, &header.addresses) {
                (v2::Command::Local, _) => Begins::Header(length, None),
                (_, v2::Addresses::IPv4(way)) => of(length, way.source_address, way.source_port),
                (_, v2::Addresses::IPv6(way)) => of(length, way.source_address, way.source_port),
                (_, v2::Addresses::Unspecified | v2::Addresses::Unix(_)) => Begins::Unknown,
            }
        }
        HeaderResult::V1(Err(_)) | HeaderResult::V2(Err(_)) => Begins::Other,
    }
}

fn of(length: usize, address: impl Into<IpAddr>, port: u16) -> Begins {
    Begins::Header(length, Some(SocketAddr::new(address.into(), port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_of_either_version_names_the_client() {
        let text = b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 80\r\nGET / HTTP/1.1\r\n";
        let client = "192.0.2.1:4711".parse().ok();
        assert_eq!(begins(text), Begins::Header(39, client));
        let text = b"PROXY TCP6 2001:db8::1 ::1 4711 80\r\n";
        assert_eq!(begins(text), Begins::Header(36, "[2001:db8::1]:4711".parse().ok()));
        assert_eq!(begins(b"PROXY UNKNOWN\r\nGET"), Begins::Unknown);
        let mut binary = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
        binary.extend_from_slice(&[192, 0, 2, 1, 10, 0, 0, 1, 0x12, 0x67, 0, 80]);
        binary.extend_from_slice(b"GET / HTTP/1.1\r\n");
        assert_eq!(begins(&binary), Begins::Header(28, client));
        binary[12] = 0x20;
        assert_eq!(begins(&binary), Begins::Header(28, None), "LOCAL is the proxy itself");
        let unspecified = b"\r\n\r\n\0\r\nQUIT\n\x21\x00\0\0GET / HTTP/1.1\r\n";
        assert_eq!(begins(unspecified), Begins::Unknown);
    }

    #[test]
    fn a_part_may_become_a_header_and_anything_else_may_not() {
        for part in [&b"PROXY TC"[..], b"PROXY TCP4 192.0.2.1 10.0", b"\r\n\r\n\0\r\nQUIT\n\x21"] {
            assert_eq!(begins(part), Begins::Part, "{part:?}");
        }
        for other in [&b"GET / HTTP/1.1\r\n"[..], b"PROXY TCP5 a b c d\r\n", b"\x16\x03\x01\x02\0"]
        {
            assert_eq!(begins(other), Begins::Other, "{other:?}");
        }
    }
}
