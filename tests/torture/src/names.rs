//! The name server of a run: it knows one name, and can fall silent.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::namespace;

/// Each name of it leads to 127.0.0.1.
pub const NAME: &str = "upstream.torture";
/// How often it looks whether it is to end.
const LOOKS: Duration = Duration::from_millis(100);
/// Bytes of a query's header (RFC 1035 §4.1.1), and the longest query over UDP.
const HEADER_BYTES: usize = 12;
const QUERY_BYTES: usize = 512;
/// The type of addresses (RFC 1035 §3.2.2).
const A: [u8; 2] = [0, 1];

/// A running name server.
#[derive(Debug)]
pub struct Names {
    silent: Arc<AtomicBool>,
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Names {
    /// Starts it; none where the network is not the run's own.
    pub fn start() -> Option<Names> {
        let port = namespace::is_own().then_some(53)?;
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).ok()?;
        socket.set_read_timeout(Some(LOOKS)).ok()?;
        let (silent, ending) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
        let (is_silent, is_ending) = (Arc::clone(&silent), Arc::clone(&ending));
        let thread = std::thread::spawn(move || {
            let mut query = [0; QUERY_BYTES];
            while !is_ending.load(Ordering::Relaxed) {
                let Ok((length, client)) = socket.recv_from(&mut query) else { continue };
                let reply = reply(&query[..length]).filter(|_| !is_silent.load(Ordering::Relaxed));
                let _ = reply.map(|reply| socket.send_to(&reply, client));
            }
        });
        Some(Names { silent, ending, thread: Some(thread) })
    }

    /// Whether it leaves queries without a reply from now on.
    pub fn silence(&self, silent: bool) {
        self.silent.store(silent, Ordering::Relaxed);
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

/// The reply to a query with one question: an address, if the question is for one.
fn reply(query: &[u8]) -> Option<Vec<u8>> {
    let names = query.get(HEADER_BYTES..)?;
    let end = HEADER_BYTES + names.iter().position(|byte| *byte == 0)? + 1;
    let question = query.get(HEADER_BYTES..end + 4)?;
    let asks_address = question[question.len() - 4..][..2] == A;
    let mut reply = query[..2].to_vec();
    // A response without an error; one question, and one answer or none.
    reply.extend([0x81, 0x80, 0, 1, 0, u8::from(asks_address), 0, 0, 0, 0]);
    reply.extend(question);
    if asks_address {
        // The name of the question, of the Internet, not to be remembered, and its address.
        reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1]);
    }
    Some(reply)
}
