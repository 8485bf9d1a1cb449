//! Clients, each in a thread, that check every response.

mod cached;
mod curl;
mod dashboards;
mod htaccess;
mod pages;
mod proxied;
mod slow_reader;
mod transfers;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use maitred_tests::http::{Connection, Request, Response};

use crate::kind::Kind;
use crate::ledger::{Ended, Ledger, Outcome};
use crate::site::Site;

/// Violations that are printed; more are counted only.
const VIOLATIONS_MAX: u64 = 20;
/// The pause of a client between two requests.
const PAUSE: Duration = Duration::from_millis(4);

/// A client. It sends one request a round.
pub trait Client: Send {
    /// Its kind.
    fn kind(&self) -> Kind;

    /// Sends a request.
    ///
    /// # Errors
    /// A sentence, if the response is wrong.
    fn round(&mut self) -> Result<Outcome, String>;
}

/// What all clients share.
#[derive(Debug)]
pub struct Shared {
    started: Instant,
    stop: AtomicBool,
    ledger: Mutex<Ledger>,
    violations: AtomicU64,
}

impl Shared {
    /// The time of the run.
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// The outcomes.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("no client panics")
    }

    /// Notes what must not be.
    pub fn violation(&self, text: &str) {
        if self.violations.fetch_add(1, Ordering::Relaxed) < VIOLATIONS_MAX {
            println!("torture: VIOLATION at {:.3} s: {text}", self.now().as_secs_f64());
        }
    }

    /// Violations so far.
    pub fn violations(&self) -> u64 {
        self.violations.load(Ordering::Relaxed)
    }
}

/// The running clients.
#[derive(Debug)]
pub struct Traffic {
    /// What they share.
    pub shared: Arc<Shared>,
    kinds: Vec<Kind>,
    threads: Vec<JoinHandle<()>>,
}

impl Traffic {
    /// Starts all clients, of the server at `address` and of the other node.
    pub fn start(site: &Arc<Site>, address: SocketAddr, other: SocketAddr) -> Traffic {
        let clients = clients(site, address, other);
        let shared = Arc::new(Shared {
            started: Instant::now(),
            stop: AtomicBool::new(false),
            ledger: Mutex::default(),
            violations: AtomicU64::new(0),
        });
        let mut kinds: Vec<Kind> = clients.iter().map(|client| client.kind()).collect();
        kinds.dedup();
        let threads = clients
            .into_iter()
            .map(|client| {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || run(client, &shared))
            })
            .collect();
        Traffic { shared, kinds, threads }
    }

    /// How many clients there are. Each has at most one connection.
    pub fn connections(&self) -> u64 {
        self.threads.len() as u64
    }

    /// Kinds of traffic.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// Ends the clients after their current requests.
    pub fn stop(self) -> Arc<Shared> {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            if thread.join().is_err() {
                self.shared.violation("a client panicked");
            }
        }
        self.shared
    }
}

fn clients(site: &Arc<Site>, address: SocketAddr, other: SocketAddr) -> Vec<Box<dyn Client>> {
    let mut clients: Vec<Box<dyn Client>> = Vec::new();
    clients.extend(pages::clients(address));
    clients.extend(transfers::clients(address));
    clients.extend(slow_reader::clients(address));
    clients.extend(cached::clients(site, address, other));
    clients.extend(htaccess::clients(site, address));
    clients.extend(proxied::clients(address));
    clients.extend(curl::clients(site));
    clients.extend(dashboards::clients(site.admin));
    clients
}

fn run(mut client: Box<dyn Client>, shared: &Shared) {
    let kind = client.kind();
    while !shared.stop.load(Ordering::Relaxed) {
        let began = shared.now();
        let result = client.round().and_then(|outcome| {
            let request = Ended { kind, began, ended: shared.now(), outcome };
            shared.ledger().record(&request)
        });
        if let Err(violation) = result {
            shared.violation(&violation);
        }
        std::thread::sleep(PAUSE);
    }
}

/// An HTTP/1.1 client that keeps its connection.
#[derive(Debug)]
pub struct Persistent {
    address: SocketAddr,
    open: Option<Connection>,
}

/// A response, or the reason why there is none.
pub enum Reply {
    /// A whole response.
    Whole(Response),
    /// None.
    None(Outcome),
}

impl Persistent {
    /// A client of this server.
    pub fn new(address: SocketAddr) -> Persistent {
        Persistent { address, open: None }
    }

    /// Sends a request and reads the response.
    ///
    /// # Errors
    /// A sentence, if none came within the deadline, or what came is no HTTP.
    pub fn ask(&mut self, request: &Request) -> Result<Reply, String> {
        let opened = self.open.take().map_or_else(|| Connection::try_open(self.address), Ok);
        let Ok(mut connection) = opened else { return Ok(Reply::None(Outcome::Unconnected)) };
        match connection.ask(request) {
            Ok(response) => {
                let closing = response.header("Connection").is_some_and(|value| value == "close");
                self.open = (!closing).then_some(connection);
                Ok(Reply::Whole(response))
            }
            Err(error) => failure(&error, &request.target).map(Reply::None),
        }
    }
}

/// The outcome of a connection that failed with this error.
///
/// # Errors
/// A sentence, if nothing came within the deadline, or what came is no HTTP.
pub fn failure(error: &io::Error, target: &str) -> Result<Outcome, String> {
    use io::ErrorKind::{InvalidData, TimedOut, WouldBlock};
    match error.kind() {
        TimedOut | WouldBlock => Err(format!("{target}: no response within the deadline")),
        InvalidData => Err(format!("{target}: {error}")),
        _ => Ok(Outcome::Cut),
    }
}

/// Judges a reply by its status and body.
///
/// # Errors
/// A sentence, if the response is neither right nor an honest error.
pub fn judge(reply: &Reply, target: &str, status: u16, body: &[u8]) -> Result<Outcome, String> {
    match reply {
        Reply::None(outcome) => Ok(*outcome),
        Reply::Whole(response) if response.status == status && response.body == body => {
            Ok(Outcome::Right)
        }
        Reply::Whole(response) => honest_error(response, target),
    }
}

/// An honest error, if a response is one.
///
/// # Errors
/// A sentence, if it is none.
pub fn honest_error(response: &Response, target: &str) -> Result<Outcome, String> {
    if (500..600).contains(&response.status) {
        return Ok(Outcome::Refused(response.status));
    }
    let start: String = response.text().chars().take(80).collect();
    let (status, length) = (response.status, response.body.len());
    Err(format!("{target}: wrong response {status}, {length} bytes: {start:?}"))
}
