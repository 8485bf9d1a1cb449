//! Honest clients beside those that mean harm: they ask for a file and a script, and must be
//! answered.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::http::{Connection, Request};

/// The longest time of an honest request during an attack; far more than it takes, and far less
/// than the attack.
const PROMPT: Duration = Duration::from_secs(15);

/// What they ask for, and what they are to get.
pub const PAGES: [(&str, &str); 2] = [("/hello.txt", "hello, file"), ("/hello.php", "hello")];

/// Honest clients, until their results are read.
#[derive(Debug)]
pub struct Honest {
    stop: Arc<AtomicBool>,
    answers: Arc<AtomicU32>,
    thread: JoinHandle<(u32, Duration)>,
}

/// What it leaves to others between two rounds of all pages.
const PAUSE: Duration = Duration::from_millis(20);

impl Honest {
    /// Asks for [`PAGES`] one after the other on a kept connection, again and again.
    pub fn ask(address: SocketAddr) -> Honest {
        let stop = Arc::new(AtomicBool::new(false));
        let answers = Arc::new(AtomicU32::new(0));
        let (stopped, answered) = (stop.clone(), answers.clone());
        let thread = std::thread::spawn(move || {
            let (mut count, mut slowest) = (0, Duration::ZERO);
            let mut client = Connection::open(address);
            while !stopped.load(Ordering::Relaxed) {
                for (path, expected) in PAGES {
                    let begun = Instant::now();
                    let response = client.ask(&Request::get(path)).expect("an honest answer");
                    assert_eq!(response.text(), expected);
                    slowest = slowest.max(begun.elapsed());
                    count += 1;
                    answered.store(count, Ordering::Relaxed);
                }
                std::thread::sleep(PAUSE);
            }
            (count, slowest)
        });
        Honest { stop, answers, thread }
    }

    /// How many answers they have had so far.
    pub fn answers(&self) -> u32 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Ends it, and insists that all were answered in time.
    ///
    /// # Panics
    /// When they were not.
    pub fn assert_well_served(self) {
        self.stop.store(true, Ordering::Relaxed);
        let (count, slowest) = self.thread.join().expect("honest clients are answered");
        assert!(count > 0 && slowest < PROMPT, "{count} answers, the slowest after {slowest:?}");
    }
}
