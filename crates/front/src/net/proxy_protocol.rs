//! The PROXY protocol (versions 1 and 2, haproxy.org/download/2.9/doc/proxy-protocol.txt): the
//! client's address, sent by a proxy before the client's first byte.

use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use maitred_rules::proxy_header::ConnectionStart;
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
        match ConnectionStart::of(bytes) {
            ConnectionStart::Header(length, client) => {
                take(&socket, length)?;
                return Ok((socket.into_inner(), client));
            }
            ConnectionStart::Part if bytes.len() < MAX_HEADER_BYTES && !bytes.is_empty() => {
                // The peeked part keeps the socket readable.
                if bytes.len() == seen && Instant::now() > deadline {
                    return Err(NoHeader::Missing);
                }
                seen = bytes.len();
                tokio::time::sleep(REST).await;
            }
            ConnectionStart::Unknown => return Err(NoHeader::Unknown),
            ConnectionStart::Part | ConnectionStart::Other => return Err(NoHeader::Missing),
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
