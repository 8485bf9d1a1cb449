//! Web servers that do not do as they should: what becomes of each connection is a test's own
//! affair.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use crate::wait::DEADLINE;

/// A server that hands each connection to a function, on a thread of its own.
#[derive(Debug)]
pub struct Odd {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    accepted: AtomicU64,
}

impl Odd {
    /// Listens, and has `serve` do what is to be done with each connection.
    pub fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Odd {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("a listener has an address");
        let shared = Arc::new(Shared::default());
        let (seen, serve) = (shared.clone(), Arc::new(serve));
        let accepting = std::thread::spawn(move || {
            let mut threads = Vec::new();
            while let Ok((stream, _)) = listener.accept() {
                if seen.stop.load(Ordering::SeqCst) {
                    break;
                }
                seen.accepted.fetch_add(1, Ordering::SeqCst);
                // Nothing waits for longer than a test may take.
                let _ = stream.set_read_timeout(Some(DEADLINE));
                let serve = serve.clone();
                threads.push(std::thread::spawn(move || serve(stream)));
            }
            for thread in threads {
                let _ = thread.join();
            }
        });
        Odd { address, shared, accepting: Some(accepting) }
    }

    /// Answers every request with what `answer` makes of its request line; then, unless it is to be
    /// closed, waits for the next.
    pub fn answering(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Odd {
        Odd::start(move |stream| {
            let mut reader = BufReader::new(&stream);
            while let Some(line) = next_request(&mut reader) {
                let answer = answer(&line);
                if (&stream).write_all(answer.as_bytes()).is_err()
                    || answer.contains("Connection: close")
                {
                    return;
                }
            }
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections it was given.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }
}

/// Reads a request without a body; its first line, or nothing at the end.
pub fn next_request(reader: &mut impl BufRead) -> Option<String> {
    let mut first = String::new();
    if reader.read_line(&mut first).ok()? == 0 {
        return None;
    }
    let mut line = String::new();
    while reader.read_line(&mut line).ok()? > 2 {
        line.clear();
    }
    Some(first.trim_end().to_owned())
}

/// A whole answer.
pub fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

impl Drop for Odd {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}
