//! What one worker has written over all of the shared file does not reach the next one, and
//! incarnations stay apart where their numbers begin again.

use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::time::Duration;

use proptest::prelude::*;

use crate::layout::Layout;
use crate::*;

/// No test waits longer for what has to come.
const PATIENCE: Duration = Duration::from_secs(20);

fn worker(file: &OwnedFd, incarnation: u32) -> WorkerEnd {
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
    WorkerEnd::new(file, vec![event], 0, incarnation).unwrap()
}

/// One request through slot 0 of seat 0 and back.
fn serve(front: &FrontEnd, worker: &mut WorkerEnd, incarnation: u32) {
    let (mut assigned, sent) = front.offer(0, 0, incarnation, 0, b"hello");
    assert_eq!(sent, 5);
    assert!(worker.try_claim());
    let mut request = Vec::new();
    worker.read(&mut request);
    assert_eq!(request, b"hello");
    assert_eq!(worker.write(b"welcome"), Verdict::Continue);
    assert_eq!(front.progress(&assigned), Ok(SlotProgress::Running));
    worker.finish();
    let mut response = Vec::new();
    assert_eq!(front.drain(&mut assigned, usize::MAX, &mut response), Ok(7));
    assert_eq!(response, b"welcome");
    assert_eq!(front.progress(&assigned), Ok(SlotProgress::Done));
    assert_eq!(front.spent(&assigned), None, "nothing of an earlier request");
    front.release(assigned);
}

fn spoil(layout: &Layout, words: &[(bool, usize, u32)]) {
    for &(in_header, at, value) in words {
        if in_header { layout.spoil_header(at, value) } else { layout.spoil_slot(at, value) }
    }
}

proptest! {
    #[test]
    fn a_new_worker_serves_whatever_was_written_before_it(
        words in proptest::collection::vec(
            (any::<bool>(), 0..1024usize, prop_oneof![any::<u32>(), 0..8u32]), 1..200),
        is_vacated in any::<bool>(),
    ) {
        let file = create("corrupted", 1, 1).unwrap();
        let layout = Layout::map(&file, 1).unwrap();
        let front = FrontEnd::take_over(&file, 1, 1).unwrap();
        serve(&front, &mut worker(&file, 1), 1);
        spoil(&layout, &words);
        if is_vacated {
            front.vacate(0);
        }
        let mut next = worker(&file, 2);
        // What looks as if the next one had begun it is waited for as after another front; here
        // no worker runs it, so that seat has to be given to one more.
        let mut incarnation = 2;
        if !front.adopt(0, incarnation, 0).is_empty() {
            incarnation = 3;
            next = worker(&file, incarnation);
            prop_assert!(front.adopt(0, incarnation, 0).is_empty());
        }
        serve(&front, &mut next, incarnation);
    }
}

#[test]
fn incarnations_are_told_apart_where_their_numbers_begin_again() {
    let file = create("wrap", 1, 1).unwrap();
    let front = FrontEnd::take_over(&file, 1, 1).unwrap();
    let mut incarnation = MAX_INCARNATION - 3;
    for _ in 0..8 {
        let next = next_incarnation(incarnation);
        assert!(is_newer(next, incarnation) && !is_newer(incarnation, next));
        assert!(next != 0 && next <= MAX_INCARNATION);
        // Whose numbers go on beyond that says the same.
        for number in [next, next | (MAX_INCARNATION + 1)] {
            assert!(front.adopt(0, number, 0).is_empty());
            serve(&front, &mut worker(&file, number), number);
        }
        // What is for the newer one is not for the older.
        let (assigned, _) = front.offer(0, 0, next, 0, b"");
        assert!(!worker(&file, incarnation).try_claim());
        assert!(front.take_back(&assigned));
        incarnation = next;
    }
    assert!(!is_newer(5, 5) && !is_newer(MAX_INCARNATION + 1 + 5, 5));
}

/// What a worker says that waits for its first request on a thread of its own.
fn claims(file: &OwnedFd, incarnation: u32) -> mpsc::Receiver<bool> {
    let (say, hear) = mpsc::channel();
    let mut worker = worker(file, incarnation);
    std::thread::spawn(move || say.send(worker.claim()));
    hear
}

#[test]
fn a_worker_whose_seat_is_anothers_leaves_also_where_numbers_begin_again() {
    for (old, new) in [(1, 2), (MAX_INCARNATION, 1)] {
        let file = create("succeeded", 1, 1).unwrap();
        let front = FrontEnd::take_over(&file, 1, 1).unwrap();
        front.offer(0, 0, new, 0, b"");
        assert_eq!(claims(&file, old).recv_timeout(PATIENCE), Ok(false));
    }
}

#[test]
fn what_a_dead_worker_has_left_sends_no_new_one_away() {
    let file = create("left", 1, 1).unwrap();
    let front = FrontEnd::take_over(&file, 1, 1).unwrap();
    // An offer to one who will never come.
    front.offer(0, 3, 77, 0, b"");
    let claimed = claims(&file, 2);
    front.adopt(0, 2, 0);
    front.offer(0, 0, 2, 0, b"hello");
    front.wake(0);
    assert_eq!(claimed.recv_timeout(PATIENCE), Ok(true));
}
