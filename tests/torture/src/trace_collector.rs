//! The collector of the server's traces: it takes them, or is away, slow or broken for a while.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use maitred_tests::node::{ByHand, read_head};
use serde_json::Value;

/// How long a slow collector takes for an export.
const SLOW: Duration = Duration::from_millis(700);

/// What a broken collector responds with, in turn.
const BROKEN: [&str; 7] = [
    "HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 429 Later\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{\"partialSuccess\":{\"",
    "HTTP/1.1 200 OK\r\nContent-Length: 39\r\n\r\n{\"partialSuccess\":{\"rejectedSpans\":\"-7\"}}",
    "HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n{",
    "220 mail.example ESMTP\r\n",
    "",
];

/// What the collector does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum CollectorState {
    /// It takes all exports.
    Well,
    /// It closes each connection.
    Away,
    /// It responds late.
    Slow,
    /// It responds with errors, with what is no HTTP, and with parts of responses.
    Broken,
}

/// Exports so far.
#[derive(Debug, Default)]
struct Counts {
    state: AtomicU8,
    taken: AtomicU64,
    wrong: AtomicU64,
    all: AtomicU64,
}

/// A running collector.
#[derive(Debug)]
pub struct TraceCollector {
    server: ByHand,
    counts: Arc<Counts>,
}

impl TraceCollector {
    /// Starts one that takes everything.
    pub fn start() -> TraceCollector {
        let counts = Arc::new(Counts::default());
        let of_server = Arc::clone(&counts);
        let server = ByHand::start(move |stream, _| serve(stream, &of_server));
        TraceCollector { server, counts }
    }

    /// Its address as `endpoint` of `[traces]`.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// What it does from now on.
    pub fn be(&self, state: CollectorState) {
        self.counts.state.store(state as u8, Ordering::SeqCst);
    }

    /// The number of exports that were taken, each with spans.
    ///
    /// # Errors
    /// A sentence, if there was none, or one was no export.
    pub fn check(&self) -> Result<u64, String> {
        let read = |count: &AtomicU64| count.load(Ordering::SeqCst);
        match (read(&self.counts.taken), read(&self.counts.wrong)) {
            (0, 0) => Err("no spans were exported".to_owned()),
            (taken, 0) => Ok(taken),
            (_, wrong) => Err(format!("{wrong} exports are no JSON with spans")),
        }
    }
}

fn serve(mut stream: TcpStream, counts: &Counts) {
    let is = |state: CollectorState| counts.state.load(Ordering::SeqCst) == state as u8;
    while let Some(head) = read_head(&mut stream) {
        let length = head.to_ascii_lowercase();
        let length = length.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length = length.and_then(|length| length.trim().parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        if is(CollectorState::Away) || stream.read_exact(&mut body).is_err() {
            return;
        }
        let number = counts.all.fetch_add(1, Ordering::SeqCst);
        if is(CollectorState::Broken) {
            let response = BROKEN[number as usize % BROKEN.len()];
            let _ = stream.write_all(response.as_bytes());
            return;
        }
        if is(CollectorState::Slow) {
            std::thread::sleep(SLOW);
        }
        let count = if has_spans(&body) { &counts.taken } else { &counts.wrong };
        count.fetch_add(1, Ordering::SeqCst);
        if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").is_err() {
            return;
        }
    }
}

fn has_spans(body: &[u8]) -> bool {
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    let spans = json.pointer("/resourceSpans/0/scopeSpans/0/spans");
    spans.and_then(Value::as_array).is_some_and(|spans| !spans.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_without_spans_is_found() {
        let export = "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{}]}]}]}";
        assert!(has_spans(export.as_bytes()));
        for wrong in ["", "{}", &export.replace("{}", ""), &export[1..]] {
            assert!(!has_spans(wrong.as_bytes()), "{wrong}");
        }
        let collector = TraceCollector::start();
        assert!(collector.check().is_err());
    }
}
