//! A worker that writes random words over all of the memory it shares with the front harms its own
//! pool, for a moment, and no other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use maitred_tests::Target;
use maitred_tests::http::{self, Request};
use maitred_tests::server::{Server, Setup, document_root, is_root};
use maitred_tests::spoilt::PoolMemory;
use maitred_tests::wait;
use tempfile::TempDir;

/// This number of responses in a row shows that a pool serves again.
const IN_A_ROW: usize = 20;

/// Pool `www` for the host `a`, and pool `b` for the host `b`.
fn two_pools(pool: &str) -> (Server, TempDir) {
    let root = document_root(&[("index.php", "<?php echo 'hello';")]);
    let second = format!("[[sites]]\nroot = {:?}\nhosts = [\"b\"]\npool = \"b\"", root.path());
    let server = Setup::new(root.path())
        .hosts(&["a"])
        .pool(pool)
        .pool("\n[pools.b]\npm = \"static\"\nmax_children = 2")
        .site(&second)
        .start();
    (server, root)
}

fn answer(server: &Server, host: &str) -> Result<(), String> {
    let request = Request::new("GET", "/").header("Host", host);
    let answer = http::try_ask(server.address(), &request).map_err(|error| error.to_string())?;
    match (answer.status, answer.text().as_str()) {
        (200, "hello") => Ok(()),
        (status, text) => Err(format!("{status}: {text}")),
    }
}

fn serves_again(server: &Server, host: &str) {
    let mut in_a_row = 0;
    wait::until_true("the pool to serve again", || {
        in_a_row = match answer(server, host) {
            Ok(()) => in_a_row + 1,
            Err(_) => 0,
        };
        in_a_row == IN_A_ROW
    });
}

/// Asks pool `b` all the time; what went wrong when it is ended.
struct Neighbour {
    goes_on: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<String>>>,
}

impl Neighbour {
    fn start(server: &Arc<Server>) -> Neighbour {
        let goes_on = Arc::new(AtomicBool::new(true));
        let (told, server) = (goes_on.clone(), server.clone());
        let thread = std::thread::spawn(move || {
            let mut wrong = Vec::new();
            while told.load(Ordering::Relaxed) {
                wrong.extend(answer(&server, "b").err());
            }
            wrong
        });
        Neighbour { goes_on, thread: Some(thread) }
    }

    fn end(mut self) -> Vec<String> {
        self.goes_on.store(false, Ordering::Relaxed);
        self.thread.take().expect("it ends once").join().expect("it does not panic")
    }
}

/// A test that fails leaves no thread behind that holds the server.
impl Drop for Neighbour {
    fn drop(&mut self) {
        self.goes_on.store(false, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn a_pool_serves_again_after_its_memory_was_written_over_and_no_other_notices() {
    if !is_root() {
        return eprintln!("skipped: only root can open a pool's memory");
    }
    let (server, _root) = two_pools("");
    let server = Arc::new(server);
    assert_eq!(answer(&server, "a"), Ok(()));
    let front = server.front();
    let neighbour = Neighbour::start(&server);
    for seed in 1..=3 {
        for memory in PoolMemory::of(&server.supervisor(), "www") {
            memory.spoil(seed);
        }
        serves_again(&server, "a");
    }
    assert_eq!(neighbour.end(), Vec::<String>::new());
    assert_eq!(server.front(), front, "the front is the same");
}

#[test]
fn a_pool_whose_memory_is_written_to_without_end_gets_other_memory() {
    if !is_root() {
        return eprintln!("skipped: only root can open a pool's memory");
    }
    let (server, _root) = two_pools("request_terminate_timeout = \"2s\"");
    let server = Arc::new(server);
    assert_eq!(answer(&server, "a"), Ok(()));
    let mark = server.log().mark();
    let mut first = PoolMemory::of(&server.supervisor(), "www");
    assert_eq!(first.len(), 1, "{first:?}");
    let neighbour = Neighbour::start(&server);
    // As a process would that a script has left behind: it has the memory as long as it lives.
    let number = first[0].number;
    let spoiler = first.remove(0).keep_spoiling();
    // Only a request shows that the rules are broken, and between two writes some are served.
    wait::until_true("workers to break the rules", || {
        let _ = answer(&server, "a");
        let broken = "pool `www`: 3 workers have broken the rules of the seat link";
        server.log().since(mark).iter().any(|line| line.contains(broken))
    });
    serves_again(&server, "a");
    let other = |memory: &PoolMemory| memory.number != number;
    wait::until_true("other memory", || {
        PoolMemory::of(&server.supervisor(), "www").iter().any(other)
    });
    drop(spoiler);
    assert_eq!(neighbour.end(), Vec::<String>::new());
}
