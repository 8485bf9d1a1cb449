//! Every interleaving of the steps whose order matters.
//!
//! The words are built once more here, with the atomics of loom, which cannot be in shared memory.
#![allow(clippy::unwrap_used)]

#[path = "../src/slot_words.rs"]
#[allow(dead_code)]
mod slot_words;

mod atomics {
    pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}

use loom::sync::Arc;
use loom::thread;

use atomics::Ordering;
use slot_words::{SleepWord, State, StateWord};

struct Seat {
    state: StateWord,
    sleep: SleepWord,
}

fn seat() -> Arc<Seat> {
    Arc::new(Seat { state: StateWord::default(), sleep: SleepWord::default() })
}

/// A futex wait: returns when the word has changed. A wake-up that is lost leaves it
/// unchanged for ever, and loom reports the endless loop.
fn wait_on(sleep: &SleepWord) {
    while sleep.word().load(Ordering::SeqCst) == 1 {
        thread::yield_now();
    }
}

#[test]
fn a_worker_going_to_sleep_never_misses_an_offer() {
    loom::model(|| {
        let shared = seat();
        let worker = {
            let seat = shared.clone();
            thread::spawn(move || {
                while !seat.state.claim(1) {
                    seat.sleep.announce();
                    if seat.state.get() != (State::Offered, 1) {
                        wait_on(&seat.sleep);
                    }
                    seat.sleep.awake();
                }
            })
        };
        shared.state.offer(1);
        shared.sleep.must_wake();
        worker.join().unwrap();
        assert_eq!(shared.state.get(), (State::Claimed, 1));
    });
}

#[test]
fn a_front_going_to_sleep_never_misses_an_answer() {
    loom::model(|| {
        let shared = seat();
        shared.state.offer(1);
        assert!(shared.state.claim(1));
        let front = {
            let seat = shared.clone();
            thread::spawn(move || {
                while seat.state.get() != (State::Done, 1) {
                    seat.sleep.announce();
                    if seat.state.get() != (State::Done, 1) {
                        wait_on(&seat.sleep);
                    }
                    seat.sleep.awake();
                }
            })
        };
        shared.state.finish(1);
        shared.sleep.must_wake();
        front.join().unwrap();
    });
}

#[test]
fn a_request_is_either_taken_back_or_claimed_and_never_both() {
    loom::model(|| {
        let shared = seat();
        shared.state.offer(1);
        let worker = {
            let seat = shared.clone();
            thread::spawn(move || seat.state.claim(1))
        };
        let taken_back = shared.state.take_back(1);
        let claimed = worker.join().unwrap();
        assert!(taken_back != claimed);
    });
}

#[test]
fn two_wakers_wake_a_sleeper_once() {
    loom::model(|| {
        let shared = seat();
        shared.sleep.announce();
        let other = {
            let seat = shared.clone();
            thread::spawn(move || seat.sleep.must_wake())
        };
        let mine = shared.sleep.must_wake();
        assert!(mine != other.join().unwrap());
    });
}
