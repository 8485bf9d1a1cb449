//! A small web server with one thread. It answers everything with `hello`, prints where it listens
//! (on its argument, or a port of its own),
//! and for every line `stand MILLISECONDS` on its standard input stands still for so long, after
//! which it prints how many seconds it was. It ends with its standard input.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// How many may wait to be accepted.
const BACKLOG: i32 = 4_096;

const LISTENER: u64 = u64::MAX;
const INPUT: u64 = u64::MAX - 1;

/// A connection, and how much of the end of a header has come.
struct Client {
    stream: TcpStream,
    matched: usize,
}

impl Client {
    /// Answers what has come; false when the connection is over.
    fn serve(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => {
                    for byte in &buffer[..count] {
                        self.matched = match (byte, self.matched) {
                            (b'\r', 0 | 2) | (b'\n', 1 | 3) => self.matched + 1,
                            (b'\r', _) => 1,
                            _ => 0,
                        };
                        if self.matched == 4 {
                            self.matched = 0;
                            if self.stream.write_all(ANSWER).is_err() {
                                return false;
                            }
                        }
                    }
                    if count < buffer.len() {
                        return true;
                    }
                }
                Err(why) if why.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
    }
}

/// False at the end of the input.
fn obey() -> bool {
    let mut line = String::new();
    if io::stdin().read_line(&mut line).unwrap_or(0) == 0 {
        return false;
    }
    let millis = line.trim().strip_prefix("stand ");
    let millis = millis.and_then(|millis| millis.parse().ok());
    let began = Instant::now();
    std::thread::sleep(Duration::from_millis(millis.expect("stand MILLISECONDS")));
    println!("{}", began.elapsed().as_secs_f64());
    true
}

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0"))?;
    // A connection while it stands still must not be refused.
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    println!("{}", listener.local_addr()?);
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&poll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    epoll::add(&poll, io::stdin(), EventData::new_u64(INPUT), EventFlags::IN)?;
    let mut clients: HashMap<u64, Client> = HashMap::new();
    let mut events = Vec::with_capacity(256);
    loop {
        events.clear();
        epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None)?;
        for event in &events {
            match event.data.u64() {
                INPUT => {
                    if !obey() {
                        return Ok(());
                    }
                }
                LISTENER => {
                    while let Ok((stream, _)) = listener.accept() {
                        stream.set_nonblocking(true)?;
                        stream.set_nodelay(true)?;
                        let key = stream.as_raw_fd() as u64;
                        epoll::add(&poll, &stream, EventData::new_u64(key), EventFlags::IN)?;
                        clients.insert(key, Client { stream, matched: 0 });
                    }
                }
                key => {
                    if clients.get_mut(&key).is_some_and(|client| !client.serve()) {
                        clients.remove(&key);
                    }
                }
            }
        }
    }
}
