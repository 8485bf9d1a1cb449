//! Load: threads that ask for one page over and over on kept-alive connections and count what they
//! get. Each request carries a number that the page must give back, so that an answer that reaches
//! the wrong request is noticed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use crate::http::{Connection, Request};
use crate::wait;

/// What a load got.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// How often each status code came.
    pub answers: BTreeMap<u16, u64>,
    /// How many requests were sent on a connection that then ended without a whole answer.
    pub broken: u64,
    /// How many connections could not be made.
    pub unconnected: u64,
    /// How many answers with status 200 were another request's.
    pub mixed_up: u64,
}

impl Tally {
    /// How many answers had status 200.
    pub fn ok(&self) -> u64 {
        self.answers.get(&200).copied().unwrap_or(0)
    }

    /// How many requests did not get status 200, for whatever reason.
    pub fn failed(&self) -> u64 {
        let others = self.answers.iter().filter(|(status, _)| **status != 200);
        others.map(|(_, count)| count).sum::<u64>() + self.broken + self.unconnected
    }

    fn add(&mut self, other: &Self) {
        for (status, count) in &other.answers {
            *self.answers.entry(*status).or_default() += count;
        }
        self.broken += other.broken;
        self.unconnected += other.unconnected;
        self.mixed_up += other.mixed_up;
    }
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    ok: AtomicU64,
}

/// The page that a load asks for.
pub const ECHO_PAGE: (&str, &str) = ("echo.php", "<?php echo $_GET['id'];");

/// A running load.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Tally>>,
}

impl Load {
    /// Starts `connections` threads that GET [`ECHO_PAGE`] until stopped.
    pub fn start(address: SocketAddr, connections: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let threads = (0..connections)
            .map(|thread| {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || run(address, thread, &shared))
            })
            .collect();
        Self { shared, threads }
    }

    /// Waits until `more` further requests have been answered with status 200.
    pub fn wait_for_ok(&self, more: u64) {
        let goal = self.shared.ok.load(Ordering::Relaxed) + more;
        wait::until_true("the load to be answered", || {
            self.shared.ok.load(Ordering::Relaxed) >= goal
        });
    }

    /// Ends the load after the requests now under way.
    pub fn stop(self) -> Tally {
        self.shared.stop.store(true, Ordering::Relaxed);
        let mut total = Tally::default();
        for thread in self.threads {
            total.add(&thread.join().expect("a load thread does not panic"));
        }
        total
    }
}

fn run(address: SocketAddr, thread: usize, shared: &Shared) -> Tally {
    let mut tally = Tally::default();
    let mut kept: Option<Connection> = None;
    for number in 0.. {
        if shared.stop.load(Ordering::Relaxed) {
            break;
        }
        let Ok(mut connection) = kept.take().map_or_else(|| Connection::try_open(address), Ok)
        else {
            tally.unconnected += 1;
            continue;
        };
        let id = format!("{thread}-{number}");
        match connection.ask(&Request::get(&format!("/{}?id={id}", ECHO_PAGE.0))) {
            Ok(response) => {
                *tally.answers.entry(response.status).or_default() += 1;
                if response.status == 200 {
                    tally.mixed_up += u64::from(response.body != id.as_bytes());
                    shared.ok.fetch_add(1, Ordering::Relaxed);
                }
                let closing = response.header("Connection").is_some_and(|v| v == "close");
                kept = (!closing).then_some(connection);
            }
            Err(_) => tally.broken += 1,
        }
    }
    tally
}
