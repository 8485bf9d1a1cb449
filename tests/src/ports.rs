//! Free TCP ports below the kernel's ephemeral range, so that no outgoing connection of a test can
//! take one in between.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self, UnixListener};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// The first port tried.
const FIRST_PORT: u32 = 12_000;

/// How many ports there are to try; the kernel's ephemeral range starts at 32768 by default.
const PORT_COUNT: u32 = 20_000;

/// The state LISTEN in the `st` column of /proc/net/tcp (include/net/tcp_states.h).
const TCP_LISTEN: &str = "0A";
/// The state TIME_WAIT there: nothing is kept but the numbers.
const TCP_TIME_WAIT: &str = "06";

/// A loopback address with a port without a listener.
///
/// # Panics
/// When every port is taken.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(97);
    for _ in 0..PORT_COUNT {
        let step = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = FIRST_PORT + step % PORT_COUNT;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port as u16));
        if claim(port).is_ok() && TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("all {PORT_COUNT} ports from {FIRST_PORT} on are taken");
}

/// Claims a port among all testbeds of the machine until this process ends: another run of these
/// tests cannot bind the same abstract socket (unix(7)).
fn claim(port: u32) -> io::Result<()> {
    static CLAIMS: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    let name = net::SocketAddr::from_abstract_name(format!("maitred-tests-port-{port}"))?;
    let claim = UnixListener::bind_addr(&name)?;
    CLAIMS.lock().expect("no thread panics").push(claim);
    Ok(())
}

/// Whether some process listens on the IPv4 port of `address`.
pub fn is_listening(address: SocketAddr) -> bool {
    states(address).iter().any(|state| state == TCP_LISTEN)
}

/// Whether no process listens any more on the IPv4 port of `address`, after a server has ended. The
/// port is taken for a moment, so that this is for a port that no server is about to take.
pub fn is_free_again(address: SocketAddr) -> bool {
    // The kernel goes through the buckets of all connections for each look at its table: 4 ms of a
    // processor. Connections of the server that has ended may hold the port without a listener.
    TcpListener::bind(address).is_ok() || !is_listening(address)
}

/// How many connections to the IPv4 port of `address` the kernel keeps something for on the
/// server's side, whether a process still has them or not.
pub fn connections(address: SocketAddr) -> usize {
    let states = states(address);
    let kept = states.iter().filter(|state| *state != TCP_LISTEN && *state != TCP_TIME_WAIT);
    kept.count()
}

/// How many connections to the IPv4 port of `address` are made and wait to be accepted.
pub fn unaccepted(address: SocketAddr) -> u64 {
    let sockets = sockets(address).into_iter();
    let listeners = sockets.filter(|(state, _)| state == TCP_LISTEN);
    listeners.map(|(_, waiting)| waiting).sum()
}

/// The states of all sockets at the IPv4 port of `address`.
fn states(address: SocketAddr) -> Vec<String> {
    let sockets = sockets(address).into_iter();
    sockets.map(|(state, _)| state).collect()
}

/// State and length of the receive queue of all sockets at this IPv4 address and port, or at the
/// port on all addresses. What waits at one that listens is connections (Linux,
/// net/ipv4/tcp_ipv4.c, `get_tcp4_sock`).
fn sockets(address: SocketAddr) -> Vec<(String, u64)> {
    let table = fs::read_to_string("/proc/net/tcp").expect("/proc/net/tcp can be read");
    let wanted = format!(":{:04X}", address.port());
    let own = match address.ip() {
        IpAddr::V4(ip) => format!("{:08X}:", u32::from_ne_bytes(ip.octets())),
        IpAddr::V6(_) => String::new(),
    };
    let is_own = |local: &str| local.starts_with(&own) || local.starts_with("00000000:");
    // `SL: LOCAL:PORT REMOTE:PORT ST TX_QUEUE:RX_QUEUE …`, of which all but SL have a fixed width:
    // as built for tests, to look for blanks in thousands of lines takes longer than to read them.
    let sockets = table.lines().skip(1).filter_map(|line| {
        let line = line.get(line.bytes().position(|byte| byte == b':')? + 2..)?;
        let (local, state, waiting) = (line.get(..13)?, line.get(28..30)?, line.get(40..48)?);
        let waiting = u64::from_str_radix(waiting, 16).ok()?;
        (local.ends_with(&wanted) && is_own(local)).then(|| (state.to_owned(), waiting))
    });
    sockets.collect()
}
