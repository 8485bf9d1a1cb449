//! Applications behind the server: a Node program, and servers that do what none should.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::guard::Guarded;
use crate::processes::Signal;
use crate::wait::DEADLINE;
use crate::{ports, project_root};

/// Where Debian's packages for Node lie.
const PACKAGES: &str = "/usr/share/nodejs:/usr/lib/nodejs";

/// A file of the Node programs that tests run.
pub fn program(name: &str) -> PathBuf {
    project_root().join("tests/node").join(name)
}

/// A Node program to be, which finds Debian's packages.
pub fn command(name: &str) -> Command {
    let mut command = Command::new("node");
    command.arg(program(name)).env("NODE_PATH", PACKAGES);
    command.stdin(Stdio::null());
    command
}

/// The application `app.js`, running; it ends when this is dropped.
#[derive(Debug)]
pub struct Node {
    process: Guarded,
    address: String,
}

impl Node {
    /// The application on a free port.
    pub fn start() -> Node {
        Node::at(&ports::free_address().to_string())
    }

    /// The application on a Unix socket that everybody may use.
    pub fn on_socket(path: &Path) -> Node {
        let node = Node::at(path.to_str().expect("paths of tests are text"));
        crate::server::set_mode(path, 0o666);
        node
    }

    fn at(address: &str) -> Node {
        let mut command = command("app.js");
        command.arg(address).stdout(Stdio::piped());
        let mut process = Guarded::spawn(&mut command, Signal::TERM);
        let output = process.child().stdout.take().expect("stdout is a pipe");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).expect("node says something");
        assert_eq!(line, "listening\n", "node has to be installed");
        Node { process, address: address.to_owned() }
    }

    /// It as `to` of `proxy`.
    pub fn url(&self) -> String {
        match self.address.starts_with('/') {
            true => format!("unix:{}", self.address),
            false => format!("http://{}", self.address),
        }
    }

    /// Its process.
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }
}

/// A server that answers by hand: each connection is handled by a function of the test's.
#[derive(Debug)]
pub struct ByHand {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    ending: Arc<AtomicBool>,
    /// Open connections by their number.
    open: Arc<Mutex<HashMap<usize, TcpStream>>>,
    thread: Option<JoinHandle<()>>,
}

impl ByHand {
    /// Handles every connection with `handle`, whose argument is the number of earlier connections.
    ///
    /// # Panics
    /// When it cannot listen.
    pub fn start(handle: impl Fn(TcpStream, usize) + Clone + Send + 'static) -> ByHand {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it listens");
        let accepted = Arc::new(AtomicUsize::new(0));
        let ending = Arc::new(AtomicBool::new(false));
        let open = Arc::new(Mutex::new(HashMap::<usize, TcpStream>::new()));
        let (count, over, all) = (accepted.clone(), ending.clone(), open.clone());
        let thread = std::thread::spawn(move || {
            let mut handlers: Vec<JoinHandle<()>> = Vec::new();
            for stream in listener.incoming().flatten() {
                if over.load(Ordering::SeqCst) {
                    break;
                }
                let _ = stream.set_read_timeout(Some(DEADLINE));
                let before = count.fetch_add(1, Ordering::SeqCst);
                let copy = stream.try_clone().expect("a socket can be duplicated");
                all.lock().expect("no thread panics").insert(before, copy);
                let (handle, all) = (handle.clone(), all.clone());
                handlers.retain(|handler| !handler.is_finished());
                handlers.push(std::thread::spawn(move || {
                    handle(stream, before);
                    if let Some(end) = all.lock().expect("no thread panics").remove(&before) {
                        let _ = end.shutdown(Shutdown::Both);
                    }
                }));
            }
            for handler in handlers {
                let _ = handler.join();
            }
        });
        ByHand { address, accepted, ending, open, thread: Some(thread) }
    }

    /// It as `to` of `proxy`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Connections that have come.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for ByHand {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::SeqCst);
        for (_, stream) in self.open.lock().expect("no thread panics").drain() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads a request's header; nothing at the end of the connection.
pub fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

/// Answers each request of a connection with these bytes, until `times` are answered.
pub fn answer(stream: &mut TcpStream, bytes: &[u8], times: usize) {
    for _ in 0..times {
        if read_head(stream).is_none() || stream.write_all(bytes).is_err() {
            return;
        }
    }
}
