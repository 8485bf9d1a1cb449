use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::*;

struct Bench {
    front: Arc<FrontEnd>,
    file: OwnedFd,
    event: OwnedFd,
}

fn bench() -> Bench {
    let file = create("test", 2, 1).unwrap();
    let front = Arc::new(FrontEnd::take_over(&file, 1, 1).unwrap());
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
    Bench { front, file, event }
}

impl Bench {
    fn worker(&self, incarnation: u32) -> WorkerEnd {
        let event = self.event.try_clone().unwrap();
        WorkerEnd::new(&self.file, vec![event], 0, incarnation).unwrap()
    }

    /// Waits for the worker the way the front does: announce, look, sleep.
    fn wait_for(&self, assigned: &mut AssignedSlot, into: &mut Vec<u8>) -> SlotProgress {
        loop {
            let asleep = self.front.announce_sleep(0);
            let began = self.front.progress(assigned).unwrap();
            let count = self.front.drain(assigned, usize::MAX, into).unwrap();
            if count == 0 && began != SlotProgress::Done {
                let mut poll =
                    [rustix::event::PollFd::new(&self.event, rustix::event::PollFlags::IN)];
                rustix::event::poll(&mut poll, None).unwrap();
                let _ = rustix::io::read(&self.event, &mut [0; 8]);
                continue;
            }
            self.front.awake(0, asleep);
            return began;
        }
    }
}

#[test]
fn a_request_goes_over_and_its_answer_comes_back() {
    let bench = bench();
    let mut worker = bench.worker(1);
    let thread = std::thread::spawn(move || {
        assert!(worker.claim());
        let mut request = Vec::new();
        worker.read(&mut request);
        assert_eq!(worker.write(b"you said "), Verdict::Continue);
        assert_eq!(worker.write(&request), Verdict::Continue);
        worker.finish();
    });
    let (mut assigned, sent) = bench.front.offer(0, 0, 1, 0, b"hello");
    bench.front.wake(0);
    assert_eq!(sent, 5);
    let mut response = Vec::new();
    while bench.wait_for(&mut assigned, &mut response) != SlotProgress::Done {}
    assert_eq!(response, b"you said hello");
    bench.front.release(assigned);
    thread.join().unwrap();
}

#[test]
fn bodies_of_any_size_stream_through_in_both_directions() {
    let bench = bench();
    let mut worker = bench.worker(1);
    const BYTES: usize = 5_000_000;
    let thread = std::thread::spawn(move || {
        assert!(worker.claim());
        let (mut seen, mut piece) = (0, Vec::new());
        while seen < BYTES {
            piece.clear();
            worker.read(&mut piece);
            assert!(!piece.is_empty());
            seen += piece.len();
            assert_eq!(worker.write(&piece), Verdict::Continue);
        }
        worker.finish();
    });
    let body: Vec<u8> = (0..BYTES).map(|i| (i % 251) as u8).collect();
    let (mut assigned, mut sent) = bench.front.offer(0, 1, 1, 0, &body);
    bench.front.wake(0);
    let mut response = Vec::new();
    loop {
        sent += bench.front.feed(&mut assigned, &body[sent..]).unwrap();
        if bench.wait_for(&mut assigned, &mut response) == SlotProgress::Done {
            bench.front.drain(&mut assigned, usize::MAX, &mut response).unwrap();
            break;
        }
    }
    assert!(response == body);
    thread.join().unwrap();
}

#[test]
fn a_request_can_be_taken_back_until_it_is_claimed() {
    let bench = bench();
    let mut worker = bench.worker(1);
    let (assigned, _) = bench.front.offer(0, 0, 1, 0, b"one");
    assert!(bench.front.take_back(&assigned));
    assert!(!worker.try_claim());
    let (assigned, _) = bench.front.offer(0, 0, 1, 0, b"two");
    assert!(worker.try_claim());
    assert!(!bench.front.take_back(&assigned));
}

#[test]
fn a_worker_that_is_rewound_takes_requests_in_the_order_of_their_slots_as_before() {
    let bench = bench();
    let mut worker = bench.worker(1);
    let (first, _) = bench.front.offer(0, 0, 1, 0, b"first");
    let (second, _) = bench.front.offer(0, 1, 1, 0, b"second");
    assert!(worker.try_claim());
    worker.finish();
    bench.front.release(first);
    bench.front.offer(0, 0, 1, 0, b"third");
    let mut rewound = bench.worker(1);
    rewound.set_next_slot(worker.next_slot());
    assert!(rewound.try_claim());
    assert_eq!(bench.front.progress(&second), Ok(SlotProgress::Running), "it came first");
}

#[test]
fn a_worker_whose_seat_is_anothers_leaves_and_keeps_no_wake_up_from_that_one() {
    let bench = bench();
    let word = PoolMap::map(&bench.file, 1).unwrap().sleep_word(0).unwrap();
    let sleeps = || {
        while word.load(std::sync::atomic::Ordering::SeqCst) != 1 {
            std::thread::yield_now();
        }
    };
    let mut unknown = bench.worker(1);
    let unknown = std::thread::spawn(move || unknown.claim());
    sleeps();
    let mut known = bench.worker(2);
    let known = std::thread::spawn(move || known.claim());
    sleeps();
    bench.front.offer(0, 0, 2, 0, b"for the second");
    bench.front.wake(0);
    assert!(known.join().unwrap());
    // The other was woken in its place, or sleeps until one is.
    bench.front.offer(0, 1, 2, 0, b"one more");
    word.store(1, std::sync::atomic::Ordering::SeqCst);
    bench.front.wake(0);
    assert!(!unknown.join().unwrap());
}

#[test]
fn a_new_worker_does_not_take_what_was_offered_to_its_predecessor() {
    let bench = bench();
    let (assigned, _) = bench.front.offer(0, 0, 1, 0, b"for the first");
    let mut second = bench.worker(2);
    assert!(!second.try_claim());
    assert!(bench.front.take_back(&assigned));
}

#[test]
fn a_response_of_a_disconnected_client_stops_at_the_next_write() {
    let bench = bench();
    let mut worker = bench.worker(1);
    let (assigned, _) = bench.front.offer(0, 0, 1, 0, b"x");
    assert!(worker.claim());
    assert_eq!(worker.write(b"a"), Verdict::Continue);
    bench.front.leave(&assigned);
    assert_eq!(worker.write(b"b"), Verdict::ClientGone);
}

#[test]
fn a_worker_that_waits_for_a_dead_front_is_freed_by_the_next_one() {
    let bench = bench();
    let mut worker = bench.worker(1);
    let (assigned, _) = bench.front.offer(0, 0, 1, 0, b"x");
    bench.front.offer(0, 1, 1, 0, b"never begun");
    let thread = std::thread::spawn(move || {
        assert!(worker.claim());
        let full = vec![0; 2 * ANSWER_RING_BYTES];
        let verdict = worker.write(&full);
        worker.finish();
        (verdict, worker.try_claim())
    });
    // The first front dies here without taking anything.
    while bench.front.progress(&assigned) != Ok(SlotProgress::Running) {
        std::thread::yield_now();
    }
    let next = FrontEnd::take_over(&bench.file, 1, 2).unwrap();
    let left = next.adopt(0, 1, 0);
    assert_eq!(left.len(), 1);
    assert_eq!(thread.join().unwrap(), (Verdict::ClientGone, false));
    assert_eq!(next.progress(&left[0]), Ok(SlotProgress::Done));
}

#[test]
fn counters_that_no_worker_of_ours_writes_are_noticed() {
    let bench = bench();
    let (mut assigned, _) = bench.front.offer(0, 0, 1, 0, b"x");
    let hostile = crate::layout::Layout::map(&bench.file, 1).unwrap();
    let words = hostile.slot(0, 0);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    words.worker.response_head.store(ANSWER_RING_BYTES as u32 + 1, relaxed);
    assert_eq!(bench.front.drain(&mut assigned, usize::MAX, &mut Vec::new()), Err(Broken));
    words.worker.request_tail.store(2, relaxed);
    assert_eq!(bench.front.feed(&mut assigned, b"y"), Err(Broken));
    words.state.reset();
    assert_eq!(bench.front.progress(&assigned), Err(Broken));
    words.state.finish(2);
    assert_eq!(bench.front.progress(&assigned), Err(Broken));
}

#[test]
fn a_file_that_is_no_pool_is_refused() {
    let file = maitred_os::shared::create_sealed("no pool", 1 << 20).unwrap();
    assert!(FrontEnd::take_over(&file, 1, 1).is_err());
}

#[test]
fn a_worker_amid_a_long_answer_outlives_the_front() {
    let bench = bench();
    let mut worker = bench.worker(1);
    let (mut assigned, _) = bench.front.offer(0, 0, 1, 0, b"");
    assert!(worker.claim());
    let mut taken = Vec::new();
    for _ in 0..3 {
        assert_eq!(worker.write(&vec![0; ANSWER_RING_BYTES]), Verdict::Continue);
        bench.front.drain(&mut assigned, usize::MAX, &mut taken).unwrap();
    }
    let next = FrontEnd::take_over(&bench.file, 1, 2).unwrap();
    let mut left = next.adopt(0, 1, 0).pop().unwrap();
    worker.finish();
    assert_eq!(next.drain(&mut left, usize::MAX, &mut taken), Ok(0));
    assert_eq!(next.progress(&left), Ok(SlotProgress::Done));
}

/// Whether a thread of this process sleeps in the kernel (`proc_pid_stat(5)`).
fn sleeps(thread: rustix::thread::Pid) -> bool {
    let stat = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    let stat = std::fs::read_to_string(stat).unwrap();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
}

#[test]
fn a_worker_whose_front_was_killed_when_it_was_about_to_wake_it_is_woken_by_the_next() {
    let bench = bench();
    let mut worker = bench.worker(1);
    let (say, hear) = std::sync::mpsc::channel();
    let (say_claimed, claimed) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        say.send(rustix::thread::gettid()).unwrap();
        let _ = say_claimed.send(worker.claim());
    });
    let thread = hear.recv().unwrap();
    let layout = crate::layout::Layout::map(&bench.file, 1).unwrap();
    let sleep = layout.worker_sleep(0);
    // The front takes the word and dies: the sleeper is not woken.
    while !(sleeps(thread) && sleep.must_wake()) {
        std::thread::yield_now();
    }
    let next = FrontEnd::take_over(&bench.file, 1, 2).unwrap();
    assert_eq!(next.adopt(0, 1, 0).len(), 0);
    next.offer(0, 0, 1, 0, b"hello");
    next.wake(0);
    let claimed = claimed.recv_timeout(std::time::Duration::from_secs(20));
    assert_eq!(claimed, Ok(true));
}

#[test]
fn a_slot_that_a_successor_has_is_not_released_by_its_predecessor() {
    let bench = bench();
    let mut first = bench.worker(1);
    let (assigned, _) = bench.front.offer(0, 0, 1, 0, b"");
    assert!(first.try_claim());
    first.finish();
    let mut second = bench.worker(2);
    bench.front.offer(0, 0, 2, 0, b"");
    bench.front.release(assigned);
    assert!(second.try_claim());
}

#[test]
fn an_abandoned_seat_takes_no_memory_and_its_next_worker_is_served() {
    let bench = bench();
    let blocks = || rustix::fs::fstat(&bench.file).unwrap().st_blocks;
    let fresh = blocks();
    let mut first = bench.worker(1);
    bench.front.adopt(0, 1, 0);
    let (assigned, _) = bench.front.offer(0, 0, 1, 0, &[b'x'; 64 * 1024]);
    assert!(first.try_claim());
    first.finish();
    bench.front.release(assigned);
    let used = blocks();
    bench.front.abandon(0);
    assert!(used - blocks() >= 2 * 64, "{fresh}, {used}, then {}", blocks());
    assert!(blocks() - fresh <= 4 * 8, "{fresh}, {used}, then {}", blocks());
    let mut second = bench.worker(2);
    assert!(!second.try_claim());
    bench.front.offer(0, 0, 2, 0, b"hello");
    assert!(second.try_claim());
}

/// Takes a worker call as the front does, and replies to it.
fn hear(bench: &Bench, assigned: &mut AssignedSlot, verdict: u32) -> Vec<u8> {
    loop {
        if let Some((number, call)) = bench.front.take_call(assigned) {
            bench.front.reply(assigned.seat(), assigned.slot(), number, verdict);
            return call;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_script_waits_until_its_wish_is_heard_to_its_end_also_when_its_client_has_gone() {
    let bench = bench();
    let mut worker = bench.worker(1);
    let patience = std::time::Duration::from_secs(60);
    let (mut assigned, _) = bench.front.offer(0, 0, 1, 0, b"hello");
    let thread = std::thread::spawn(move || {
        assert!(worker.claim());
        let verdicts = [b"one", b"two"].map(|call| worker.call(call, patience));
        worker.finish();
        (worker, verdicts)
    });
    assert_eq!(hear(&bench, &mut assigned, 7), b"one");
    bench.front.leave(&assigned);
    assert_eq!(hear(&bench, &mut assigned, 8), b"two");
    let (mut worker, verdicts) = thread.join().unwrap();
    assert_eq!(verdicts, [Some(7), Some(8)]);
    assert_eq!(bench.front.take_call(&mut assigned), None, "nothing is heard twice");
    let soon = std::time::Duration::from_millis(1);
    assert_eq!(worker.call(b"three", soon), None, "no request is current");
}

#[test]
fn a_call_without_a_front_times_out_and_one_that_is_too_long_is_not_sent() {
    let bench = bench();
    let mut worker = bench.worker(1);
    let (mut assigned, _) = bench.front.offer(0, 0, 1, 0, b"hello");
    assert!(worker.claim());
    let soon = std::time::Duration::from_millis(1);
    assert_eq!(worker.call(b"one", soon), None);
    assert_eq!(worker.call(&vec![0; CALL_BYTES + 1], soon), None);
    let (late, _) = bench.front.take_call(&mut assigned).unwrap();
    bench.front.reply(0, 0, late, 7);
    let patience = std::time::Duration::from_millis(1);
    assert_eq!(worker.call(b"two", patience), None, "that was about another");
    assert_eq!(bench.front.take_call(&mut assigned).unwrap().1, b"two");
}

#[test]
fn a_worker_calls_with_as_many_bytes_as_a_call_has() {
    let bench = bench();
    let mut worker = bench.worker(1);
    let (mut assigned, _) = bench.front.offer(0, 0, 1, 0, b"hello");
    assert!(worker.claim());
    let call = vec![b'x'; CALL_BYTES];
    assert_eq!(worker.call(&call, std::time::Duration::from_millis(1)), None);
    assert_eq!(bench.front.take_call(&mut assigned).unwrap().1, call);
}

#[test]
fn a_client_that_has_left_stays_away() {
    let bench = bench();
    let mut worker = bench.worker(1);
    bench.front.offer(0, 0, 1, 0, b"hello");
    assert!(worker.claim());
    let layout = crate::layout::Layout::map(&bench.file, 1).unwrap();
    layout.set_epoch(2);
    assert_eq!(worker.verdict(), Verdict::ClientGone);
    layout.set_epoch(1);
    assert_eq!(worker.verdict(), Verdict::ClientGone);
    assert_eq!(worker.write(b"late"), Verdict::ClientGone);
}

/// Lets a worker do something in a thread of its own, and waits until it sleeps. Returns what ends
/// with the thread.
fn asleep<T: Send + 'static>(
    act: impl FnOnce() -> T + Send + 'static,
) -> std::thread::JoinHandle<T> {
    let (say, hear) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        say.send(rustix::thread::gettid()).unwrap();
        act()
    });
    let id = hear.recv().unwrap();
    let is_asleep = || (0..20).all(|_| sleeps(id) && !thread.is_finished());
    while !is_asleep() {
        std::thread::yield_now();
    }
    thread
}

#[test]
fn a_worker_sleeps_while_there_is_nothing_to_do() {
    let bench = bench();
    let word = PoolMap::map(&bench.file, 1).unwrap().sleep_word(0).unwrap();
    let announced = || word.load(std::sync::atomic::Ordering::SeqCst) == 1;
    let mut worker = bench.worker(1);
    let (done, _) = bench.front.offer(0, 0, 1, 0, b"done");
    assert!(worker.claim());
    worker.finish();
    // Its last request is not released yet: that is nothing to do.
    let thread = asleep(move || (worker.claim(), worker));
    assert!(announced());
    let (mut assigned, _) = bench.front.offer(0, 1, 1, 0, b"more");
    bench.front.wake(0);
    let (claimed, mut worker) = thread.join().unwrap();
    assert!(claimed && worker.sleeps() > 0 && worker.assigned_at() > 0);
    bench.front.release(done);
    // Nor is there while the ring is full, or the body has not arrived.
    let thread = asleep(move || (worker.write(&vec![0; 2 * ANSWER_RING_BYTES]), worker));
    let mut taken = Vec::new();
    while taken.len() < 2 * ANSWER_RING_BYTES {
        bench.front.drain(&mut assigned, usize::MAX, &mut taken).unwrap();
    }
    let (verdict, mut worker) = thread.join().unwrap();
    assert_eq!(verdict, Verdict::Continue);
    worker.read(&mut Vec::new());
    let thread = asleep(move || {
        let mut body = Vec::new();
        worker.read(&mut body);
        body
    });
    assert_eq!(bench.front.feed(&mut assigned, b"body"), Ok(4));
    assert_eq!(thread.join().unwrap(), b"body");
}

#[test]
fn neither_end_is_woken_for_nothing() {
    let bench = bench();
    let word = PoolMap::map(&bench.file, 1).unwrap().sleep_word(0).unwrap();
    let set = |asleep| word.store(asleep, std::sync::atomic::Ordering::SeqCst);
    let is_woken = || word.load(std::sync::atomic::Ordering::SeqCst) == 0;
    let has_event = || rustix::io::read(&bench.event, &mut [0; 8]).is_ok();
    let mut worker = bench.worker(1);
    let (mut assigned, _) = bench.front.offer(0, 0, 1, 0, b"");
    assert!(worker.claim());
    let asleep = bench.front.announce_sleep(0);
    worker.write(b"a short response");
    worker.show();
    assert!(has_event(), "the front sleeps");
    worker.write(b".");
    worker.show();
    assert!(!has_event(), "it has been woken");
    let again = bench.front.announce_sleep(0);
    bench.front.awake(0, asleep);
    bench.front.awake(0, again);
    worker.write(b", and more of it");
    worker.show();
    assert!(!has_event(), "the front is awake");
    set(1);
    let mut taken = Vec::new();
    bench.front.drain(&mut assigned, usize::MAX, &mut taken).unwrap();
    assert_eq!((taken.as_slice(), is_woken()), (&b"a short response., and more of it"[..], false));
    assert_eq!(bench.front.feed(&mut assigned, b""), Ok(0));
    assert!(!is_woken(), "there is nothing to read");
    assert_eq!(bench.front.feed(&mut assigned, b"body"), Ok(4));
    assert!(is_woken());
    // A worker that has filled half a ring may wait for room.
    worker.write(&vec![0; ANSWER_RING_BYTES / 2]);
    set(1);
    bench.front.drain(&mut assigned, usize::MAX, &mut taken).unwrap();
    assert!(is_woken());
}

#[test]
fn a_front_that_waits_for_room_is_woken_when_its_worker_has_read_a_long_body() {
    let bench = bench();
    let mut worker = bench.worker(1);
    let has_event = || rustix::io::read(&bench.event, &mut [0; 8]).is_ok();
    for (bytes, is_woken) in [(REQUEST_RING_BYTES / 2, false), (REQUEST_RING_BYTES, true)] {
        let (assigned, sent) = bench.front.offer(0, 0, 1, 0, &vec![0; bytes]);
        assert!(sent == bytes && worker.claim());
        assert_eq!(bench.front.room(&assigned), Ok(REQUEST_RING_BYTES - bytes));
        let asleep = bench.front.announce_sleep(0);
        worker.read(&mut Vec::new());
        assert_eq!(has_event(), is_woken, "{bytes} bytes");
        assert_eq!(bench.front.room(&assigned), Ok(REQUEST_RING_BYTES));
        bench.front.awake(0, asleep);
        worker.finish();
        bench.front.release(assigned);
    }
}
