//! The upstream of `proxy`: it sends the target back as the page, and each WebSocket message.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use maitred_tests::node::{ByHand, read_head};
use maitred_tests::websocket::ACCEPT;

/// Bytes that are read of a message at once.
const READ_BYTES: usize = 4_096;

/// A running upstream.
#[derive(Debug)]
pub struct Upstream {
    server: ByHand,
    away: Arc<AtomicBool>,
}

impl Upstream {
    /// Starts one.
    pub fn start() -> Upstream {
        let away = Arc::new(AtomicBool::new(false));
        let is_away = Arc::clone(&away);
        let server = ByHand::start(move |stream, _| serve(stream, &is_away));
        Upstream { server, away }
    }

    /// Its address as `to` of `proxy`.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Whether it closes each connection without a response from now on.
    pub fn refuse(&self, away: bool) {
        self.away.store(away, Ordering::SeqCst);
    }
}

/// Serves a connection until it ends.
fn serve(mut stream: TcpStream, away: &AtomicBool) {
    while let Some(head) = read_head(&mut stream) {
        let target = head.split(' ').nth(1).unwrap_or_default();
        if away.load(Ordering::SeqCst) {
            return;
        }
        if head.to_ascii_lowercase().contains("upgrade: websocket") {
            let response = format!(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Accept: {ACCEPT}\r\n\r\n"
            );
            if stream.write_all(response.as_bytes()).is_ok() {
                echo(stream, away);
            }
            return;
        }
        // The name is looked up for each connection.
        let is_last = target.starts_with("/named/");
        let connection = if is_last { "close" } else { "keep-alive" };
        let response = format!(
            "HTTP/1.1 200 OK\r\nConnection: {connection}\r\nContent-Length: {}\r\n\r\n{target}",
            target.len()
        );
        if is_last {
            let _ = stream.write_all(response.as_bytes());
            return;
        }
        if stream.write_all(response.as_bytes()).is_err() {
            return;
        }
    }
}

fn echo(mut stream: TcpStream, away: &AtomicBool) {
    let mut bytes = [0; READ_BYTES];
    while let Ok(count @ 1..) = stream.read(&mut bytes) {
        if away.load(Ordering::SeqCst) || stream.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}
