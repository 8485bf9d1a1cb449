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
                if Instant::now() > deadline {
                    return Err(NoHeader::Missing);
                }
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_header_that_comes_piece_by_piece_is_late_after_the_same_time() {
        // What is written here is there at once, as simulated time requires.
        let (mut proxy, accepted) = UnixStream::pair().unwrap();
        for socket in [&proxy, &accepted] {
            socket.set_nonblocking(true).unwrap();
        }
        rustix::net::sockopt::set_socket_send_buffer_size(&proxy, 1 << 20).unwrap();
        // A piece for each look, and all of them shortly after the deadline.
        let piece = [0; 7];
        let looks = (PATIENCE + 25 * REST).as_millis() / REST.as_millis();
        let length = u16::try_from(piece.len() as u128 * looks).unwrap().to_be_bytes();
        proxy.write_all(&[b"\r\n\r\n\0\r\nQUIT\n\x21\x11", &length[..]].concat()).unwrap();
        let drips = tokio::spawn(async move {
            while proxy.write_all(&piece).is_ok() {
                tokio::time::sleep(REST).await;
            }
        });
        let refused = take_header(accepted.into()).await;
        assert!(matches!(refused, Err(NoHeader::Missing)), "{refused:?}");
        drips.abort();
    }
}
