//! The admin address that Octane's commands ask: Caddy's requests to show, reload and stop.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use maitred_control::admin::{Reply, Request};
use serde_json::json;

use super::admin_request::{AdminOrder, AdminRequest, parse};
use super::server_child::ServedApplication;
use crate::client::{Client, UNEXPECTED};

/// Most connections at a time; further ones are closed.
const MAX_CONNECTIONS: usize = 8;

/// Longest head of a request, in bytes.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// Longest body of a request, in bytes: Octane returns the configuration that it got.
const MAX_BODY_BYTES: u64 = 1 << 20;

/// Longest time for a whole request, and longest wait for a client that reads its response.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest wait for a reload or the end of the server: Octane itself waits for 30 s.
const ORDER_TIMEOUT: Duration = Duration::from_secs(25);

/// Wait after a failed `accept`.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What the admin address knows of the server.
#[derive(Debug)]
pub struct AdminServer {
    /// Its own host and port.
    pub address: (String, u16),
    /// The admin socket of the server.
    pub socket: PathBuf,
    /// The pools to reload.
    pub pools: Vec<String>,
    /// FrankenPHP's configuration, as JSON.
    pub config: String,
    /// The server itself.
    pub served: Arc<ServedApplication>,
    /// Connections that are being served.
    pub open: AtomicUsize,
}

/// Listens at an address, of a host with several the first one of IPv4.
///
/// # Errors
/// One sentence, if the address is in use or does not exist.
pub fn listen(address: &(String, u16)) -> Result<TcpListener, String> {
    let (host, port) = address;
    let failed = |why: io::Error| {
        format!(
            "the admin address {host}:{port} cannot be listened on: {why}; name another port \
                 with --admin-port"
        )
    };
    let mut found: Vec<_> = (host.as_str(), *port).to_socket_addrs().map_err(failed)?.collect();
    found.sort_by_key(|one| one.is_ipv6());
    TcpListener::bind(found.as_slice()).map_err(failed)
}

impl AdminServer {
    /// Serves connections until the process ends.
    pub fn run(self: &Arc<AdminServer>, listener: &TcpListener) {
        loop {
            let Ok((stream, _)) = listener.accept() else {
                std::thread::sleep(ACCEPT_PAUSE);
                continue;
            };
            if self.open.fetch_add(1, Ordering::SeqCst) >= MAX_CONNECTIONS {
                self.open.fetch_sub(1, Ordering::SeqCst);
                continue;
            }
            let deadline = Instant::now() + CLIENT_TIMEOUT;
            let server = self.clone();
            let started = std::thread::Builder::new().name("admin".to_owned()).spawn(move || {
                // A client that disconnects has no use for the response.
                let _ = server.serve(stream, deadline);
                server.open.fetch_sub(1, Ordering::SeqCst);
            });
            if started.is_err() {
                self.open.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }

    fn serve(&self, mut stream: TcpStream, deadline: Instant) -> io::Result<()> {
        stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
        let request = request(&mut stream, &self.address, deadline)?;
        let (status, body) = self.carry_out(request.order);
        let reason = if status == 200 { "OK" } else { "Error" };
        let length = body.len();
        let response = format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        stream.write_all(response.as_bytes())
    }

    fn carry_out(&self, order: AdminOrder) -> (u16, String) {
        let done = match order {
            AdminOrder::Refused(status, why) => return (status, error(&why)),
            AdminOrder::Show => self.ask(&Request::Status { pool: None }),
            AdminOrder::Reload => self.ask(&Request::Reload { pools: self.pools.clone() }),
            AdminOrder::Stop => match self.served.stop_within(ORDER_TIMEOUT) {
                true => return (200, String::new()),
                false => Err(format!(
                    "scripts still run after {} s; the server stops when they have ended",
                    ORDER_TIMEOUT.as_secs()
                )),
            },
        };
        match done {
            Ok(Reply::Status(_)) => (200, self.config.clone()),
            Ok(Reply::Reloaded { .. }) => (200, String::new()),
            Ok(Reply::Refused { why }) | Err(why) => (500, error(&why)),
            Ok(_) => (500, error(UNEXPECTED)),
        }
    }

    fn ask(&self, request: &Request) -> Result<Reply, String> {
        Client::connect(Some(&self.socket))?.ask_within(request, ORDER_TIMEOUT)
    }
}

fn error(why: &str) -> String {
    json!({ "error": why }).to_string()
}

/// Reads a request with its body, which Octane sends and nothing here needs.
fn request(
    stream: &mut TcpStream,
    address: &(String, u16),
    deadline: Instant,
) -> io::Result<AdminRequest> {
    let mut head = Vec::new();
    let mut chunk = [0; 4096];
    let end = loop {
        if let Some(at) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        match read_before(deadline, stream, &mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ if head.len() > MAX_HEAD_BYTES => return Err(io::ErrorKind::InvalidData.into()),
            count => head.extend_from_slice(chunk.get(..count).unwrap_or_default()),
        }
    };
    let (host, port) = address;
    let request = parse(head.get(..end).unwrap_or_default(), host, *port);
    let mut rest = request.body.saturating_sub((head.len() - end) as u64);
    if rest > MAX_BODY_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    while rest > 0 {
        match read_before(deadline, stream, &mut chunk)? {
            0 => break,
            count => rest = rest.saturating_sub(count as u64),
        }
    }
    Ok(request)
}

/// Reads what comes before the deadline: a client that sends byte by byte has no more time.
fn read_before(deadline: Instant, stream: &mut TcpStream, chunk: &mut [u8]) -> io::Result<usize> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    stream.set_read_timeout(Some(left))?;
    stream.read(chunk)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of a client that sends this, and then a byte every few milliseconds.
    fn of_slow_client(start: &'static [u8]) -> io::Result<AdminRequest> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let sender = std::thread::spawn(move || {
            let _ = client.write_all(start);
            while client.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let deadline = Instant::now() + Duration::from_millis(300);
        let read = request(&mut stream, &("localhost".to_owned(), 2019), deadline);
        drop(stream);
        sender.join().unwrap();
        read
    }

    #[test]
    fn a_client_that_sends_byte_by_byte_has_no_more_time_than_others() {
        let head = b"GET / HTTP/1.1\r\nHost: localhost:2019\r\nX-Long: ";
        let body = b"GET / HTTP/1.1\r\nHost: localhost:2019\r\nContent-Length: 100000\r\n\r\n";
        for start in [head.as_slice(), body] {
            let why = of_slow_client(start).unwrap_err().kind();
            let expected = [io::ErrorKind::TimedOut, io::ErrorKind::WouldBlock];
            assert!(expected.contains(&why), "{why}");
        }
    }
}
