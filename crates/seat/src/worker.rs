//! The worker's end of a seat link.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::Timespec;

use crate::board::{PoolBoard, SeatBoard};
use crate::boards::Boards;
use crate::layout::{ANSWER_RING_BYTES, CALL_BYTES, Layout, SLOTS_PER_SEAT};
use crate::slot_words::{ALL_SLEEPERS, CACHE_FULL, GOES_ON, SleepWord, State, is_newer, is_same};
use crate::spent::Spent;

/// Bytes in the response ring that are published without an explicit call: half of it, so that the
/// front drains one half while the worker fills the other.
const SHOW_BYTES: u32 = (ANSWER_RING_BYTES / 2) as u32;

/// Distance between the first worker call numbers of two workers, so that a late reply to one is
/// not taken for a reply to another.
const CALLS_APART: u32 = 1 << 16;

/// How long a worker must see its seat assigned to a newer one before it believes so. An earlier
/// worker's stale words may say the same, until the front opens the seat.
const SUCCEEDED_FOR: Duration = Duration::from_secs(1);

/// Interval of the checks meanwhile.
const DOUBTFUL_LOOKS: Duration = Duration::from_millis(5);

/// Whether the client still waits for the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Yes.
    Continue,
    /// No: the client has disconnected, or the front that sent the request has exited.
    ClientGone,
}

/// The running request.
#[derive(Debug)]
struct RunningRequest {
    slot: usize,
    epoch: u32,
    request_tail: u32,
    response_head: u32,
    shown: u32,
    long_request: bool,
    gone: bool,
}

/// A pool's memory in its zygote. Workers inherit the mapping, so that no code of the pool has a
/// descriptor of the file: with one it could write to the file, allocate it or make holes in it,
/// and the front would wait for the lock of the file, or for the end of a hole.
#[derive(Debug)]
pub struct PoolMap(Layout);

impl PoolMap {
    /// Maps a pool's file, for workers whose front has `threads` threads.
    ///
    /// # Errors
    /// When the file is not a pool's, or the address space is full.
    pub fn map(file: impl AsFd, threads: u32) -> io::Result<PoolMap> {
        Ok(PoolMap(Layout::map(file, threads)?))
    }

    /// The pool's boards.
    pub fn boards(&self) -> Boards {
        Boards::over(self.0.clone())
    }

    /// The futex word on which the worker of a seat sleeps, for a signal handler: it stays mapped
    /// as long as the process lives.
    ///
    /// # Errors
    /// When the seat does not exist.
    pub fn sleep_word(&self, seat: u32) -> io::Result<&'static AtomicU32> {
        let layout: &'static Layout = Box::leak(Box::new(self.0.clone()));
        if seat >= layout.seats() {
            return Err(no_such_seat());
        }
        Ok(layout.worker_sleep(seat).word())
    }

    /// The end for worker number `incarnation` of `seat`; `events` wake the front's threads.
    ///
    /// # Errors
    /// When the seat does not exist.
    pub fn worker_end(
        &self,
        events: Vec<OwnedFd>,
        seat: u32,
        incarnation: u32,
    ) -> io::Result<WorkerEnd> {
        WorkerEnd::over(self.0.clone(), events, seat, incarnation)
    }
}

fn no_such_seat() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "no such seat in this pool")
}

/// The worker of a seat.
#[derive(Debug)]
pub struct WorkerEnd {
    layout: Layout,
    events: Vec<OwnedFd>,
    seat: u32,
    incarnation: u32,
    next_slot: usize,
    in_hand: Option<RunningRequest>,
    /// Number of the last worker call.
    last_call: u32,
    /// How often it has slept waiting for a request.
    sleeps: u64,
    /// An event could not be written: a script has closed its descriptor.
    is_cut_off: Cell<bool>,
    /// The event that was due at the end of the last request, and was not written, since the front
    /// was awake.
    unproven: Cell<Option<usize>>,
}

impl WorkerEnd {
    /// The end for worker number `incarnation` of `seat`; `events` wake the front's threads.
    ///
    /// # Errors
    /// When the file is not a pool's, or the seat does not exist.
    pub fn new(
        file: impl AsFd,
        events: Vec<OwnedFd>,
        seat: u32,
        incarnation: u32,
    ) -> io::Result<WorkerEnd> {
        let threads = u32::try_from(events.len()).unwrap_or(u32::MAX);
        WorkerEnd::over(Layout::map(file, threads)?, events, seat, incarnation)
    }

    fn over(
        layout: Layout,
        events: Vec<OwnedFd>,
        seat: u32,
        incarnation: u32,
    ) -> io::Result<WorkerEnd> {
        if seat >= layout.seats() {
            return Err(no_such_seat());
        }
        layout.worker_sleep(seat).awake();
        Ok(WorkerEnd {
            layout,
            events,
            seat,
            incarnation,
            next_slot: 0,
            in_hand: None,
            last_call: incarnation.wrapping_mul(CALLS_APART),
            sleeps: 0,
            is_cut_off: Cell::new(false),
            unproven: Cell::new(None),
        })
    }

    /// Waits for a request and claims it. False when the worker has to exit: its seat has been
    /// assigned to another worker, or it [is cut off](Self::is_cut_off).
    #[must_use]
    pub fn claim(&mut self) -> bool {
        self.claim_unless(|| false)
    }

    /// As [`claim`](Self::claim), but returns false as soon as `leaves` returns true. A change of
    /// its result must be followed by setting the seat's [`sleep_word`] to 0, or by a signal that
    /// ends the sleep.
    pub fn claim_unless(&mut self, leaves: impl Fn() -> bool) -> bool {
        let succeeded = Cell::new(false);
        let mut succeeded_since = None;
        loop {
            if leaves() || self.is_cut_off() {
                return false;
            }
            if self.try_claim() {
                return true;
            }
            let slept = self.sleep_unless(|end| leaves() || end.should_wake(&succeeded));
            self.sleeps += u64::from(slept);
            if succeeded.get() {
                // The wake-up was meant for the other worker, and there may be more of them.
                let word = self.layout.worker_sleep(self.seat).word();
                let _ = futex::wake(word, futex::Flags::empty(), ALL_SLEEPERS);
                let since = *succeeded_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= SUCCEEDED_FOR {
                    return false;
                }
                succeeded.set(false);
                std::thread::sleep(DOUBTFUL_LOOKS);
            }
        }
    }

    /// How often this worker has slept waiting for a request.
    pub fn sleeps(&self) -> u64 {
        self.sleeps
    }

    /// Whether a request is offered to it, or it has been `succeeded` by a newer worker. The latter
    /// happens to a worker whose announcement was lost with its zygote.
    fn should_wake(&self, succeeded: &Cell<bool>) -> bool {
        (0..SLOTS_PER_SEAT).any(|slot| {
            let (state, whose) = self.layout.slot(self.seat, slot).state.get();
            let is_another = state != State::Free && is_newer(whose, self.incarnation);
            succeeded.set(succeeded.get() || is_another);
            is_another || state == State::Offered && is_same(whose, self.incarnation)
        })
    }

    /// Claims a request if one is offered now; none if the worker [is cut off](Self::is_cut_off).
    pub fn try_claim(&mut self) -> bool {
        self.prove_event();
        if self.is_cut_off() {
            return false;
        }
        for _ in 0..SLOTS_PER_SEAT {
            let slot = self.next_slot;
            self.next_slot = (slot + 1) % SLOTS_PER_SEAT;
            let words = self.layout.slot(self.seat, slot);
            if words.state.claim(self.incarnation) {
                self.in_hand = Some(RunningRequest {
                    slot,
                    epoch: words.front.epoch.load(Ordering::Relaxed),
                    request_tail: 0,
                    response_head: 0,
                    shown: 0,
                    long_request: false,
                    gone: false,
                });
                return true;
            }
        }
        false
    }

    /// Appends the next part of the request to `to`, and waits until there is one. Appends nothing
    /// when the client has disconnected or the front has exited.
    pub fn read(&mut self, to: &mut Vec<u8>) {
        loop {
            let Some(hand) = &mut self.in_hand else {
                return;
            };
            let words = self.layout.slot(self.seat, hand.slot);
            let ring = self.layout.request_ring(self.seat, hand.slot);
            let head = words.front.request_head.load(Ordering::Acquire);
            match ring.distance(hand.request_tail, head) {
                Some(0) => {}
                None => return,
                Some(count) => {
                    ring.take(hand.request_tail, count, to);
                    hand.request_tail = head;
                    hand.long_request |= head as usize > ring.capacity() / 2;
                    words.worker.request_tail.store(head, Ordering::Release);
                    self.tell_front_of_room();
                    return;
                }
            }
            if self.verdict() == Verdict::ClientGone {
                return;
            }
            self.sleep_unless(|end| {
                end.layout
                    .slot(end.seat, end.running_slot())
                    .front
                    .request_head
                    .load(Ordering::Acquire)
                    != head
                    || end.is_gone()
            });
        }
    }

    /// A front with more of the body to send sleeps until there is free space. One that has sent
    /// everything cannot be distinguished; it is rarely asleep and the event costs little.
    fn tell_front_of_room(&self) {
        let Some(hand) = &self.in_hand else { return };
        if hand.long_request {
            self.wake_front(hand.slot);
        }
    }

    /// Appends bytes to the response. They are published by [`WorkerEnd::show`], at the end, or
    /// when there are many. Waits while the ring is full.
    pub fn write(&mut self, mut bytes: &[u8]) -> Verdict {
        while !bytes.is_empty() {
            let Some(hand) = &mut self.in_hand else {
                return Verdict::ClientGone;
            };
            if hand.gone {
                return Verdict::ClientGone;
            }
            let words = self.layout.slot(self.seat, hand.slot);
            let ring = self.layout.response_ring(self.seat, hand.slot);
            let tail = words.front.response_tail.load(Ordering::Acquire);
            let used = ring.distance(tail, hand.response_head).unwrap_or(ring.capacity());
            let count = bytes.len().min(ring.capacity() - used);
            if count > 0 {
                ring.put(hand.response_head, &bytes[..count]);
                hand.response_head = hand.response_head.wrapping_add(count as u32);
                bytes = &bytes[count..];
                if hand.response_head.wrapping_sub(hand.shown) >= SHOW_BYTES {
                    self.show();
                }
                continue;
            }
            self.show();
            if self.verdict() == Verdict::ClientGone {
                return Verdict::ClientGone;
            }
            self.sleep_unless(|end| {
                end.layout
                    .slot(end.seat, end.running_slot())
                    .front
                    .response_tail
                    .load(Ordering::Acquire)
                    != tail
                    || end.is_gone()
            });
        }
        self.verdict()
    }

    /// Publishes all written bytes, and wakes the front if it sleeps.
    pub fn show(&mut self) {
        let Some(hand) = &mut self.in_hand else {
            return;
        };
        if hand.shown == hand.response_head {
            return;
        }
        hand.shown = hand.response_head;
        let words = self.layout.slot(self.seat, hand.slot);
        words.worker.response_head.store(hand.response_head, Ordering::Release);
        let slot = hand.slot;
        self.wake_front(slot);
    }

    /// When the front assigned the running request to this worker, in nanoseconds of the monotonic
    /// clock; 0 if unknown.
    pub fn assigned_at(&self) -> u64 {
        let words = self.layout.slot(self.seat, self.running_slot());
        words.front.assigned_at.load(Ordering::Relaxed)
    }

    /// Reports the cost of the running request. It is published with the next bytes.
    pub fn report_spent(&self, spent: &Spent) {
        if let Some(hand) = &self.in_hand {
            spent.write(&self.layout.slot(self.seat, hand.slot).worker.spent);
        }
    }

    /// Reports the running script's duration in microseconds. It is published with the end of the
    /// request.
    pub fn report_duration(&self, micros: u64) {
        if let Some(hand) = &self.in_hand {
            let words = self.layout.slot(self.seat, hand.slot);
            let micros = u32::try_from(micros).unwrap_or(u32::MAX).max(1);
            words.worker.took.store(micros, Ordering::Relaxed);
        }
    }

    /// Reports that the script continues after its response. It is published with the next bytes.
    pub fn report_continuation(&self) {
        if let Some(hand) = &self.in_hand {
            let words = self.layout.slot(self.seat, hand.slot);
            words.worker.signs.fetch_or(GOES_ON, Ordering::Relaxed);
        }
    }

    /// Reports that OPcache is full. It is published with the end of the request.
    pub fn report_cache_full(&self) {
        if let Some(hand) = &self.in_hand {
            let words = self.layout.slot(self.seat, hand.slot);
            words.worker.signs.fetch_or(CACHE_FULL, Ordering::Relaxed);
        }
    }

    /// Sends a worker call for the running script to the front, and waits for the reply: also when
    /// the client has disconnected, or has its complete response. Returns the reply; `None` if
    /// there is no front within `patience`, or the call is longer than [`CALL_BYTES`].
    pub fn call(&mut self, call: &[u8], patience: Duration) -> Option<u32> {
        if call.len() > CALL_BYTES {
            return None;
        }
        let slot = self.in_hand.as_ref()?.slot;
        let deadline = Instant::now() + patience;
        // 0 means none.
        self.last_call = self.last_call.wrapping_add(1).max(1);
        let number = self.last_call;
        self.layout.call_buffer(self.seat).put(0, call);
        let words = self.layout.slot(self.seat, slot);
        let length = call.len() as u32;
        words.worker.call_bytes.store(length, Ordering::Relaxed);
        words.worker.call.store(number, Ordering::Release);
        self.wake_front(slot);
        let is_replied = |end: &WorkerEnd| {
            let words = end.layout.slot(end.seat, slot);
            words.front.replied.load(Ordering::Acquire) == number
        };
        while !is_replied(self) {
            let left = deadline.checked_duration_since(Instant::now())?;
            self.sleep_unless_until(is_replied, Some(left));
        }
        let words = self.layout.slot(self.seat, slot);
        Some(words.front.verdict.load(Ordering::Relaxed))
    }

    /// Ends the running request: everything is published and the slot is done.
    pub fn finish(&mut self) {
        let Some(hand) = self.in_hand.take() else {
            return;
        };
        let words = self.layout.slot(self.seat, hand.slot);
        words.worker.response_head.store(hand.response_head, Ordering::Release);
        words.state.finish(self.incarnation);
        self.wake_front(hand.slot);
    }

    /// Finds out whether the front can still be notified, if the last request has ended without
    /// that. The response is on its way by now.
    fn prove_event(&self) {
        let Some(thread) = self.unproven.take() else { return };
        // An event refuses fewer than eight bytes (eventfd(2)); a file of a script, in the place of
        // a closed one, gets none.
        if rustix::io::write(&self.events[thread], &[]) != Err(Errno::INVAL) {
            self.is_cut_off.set(true);
        }
    }

    /// Whether the client still waits for the response.
    pub fn verdict(&mut self) -> Verdict {
        let gone = self.is_gone();
        match &mut self.in_hand {
            Some(hand) => hand.gone |= gone,
            None => return Verdict::ClientGone,
        }
        if gone { Verdict::ClientGone } else { Verdict::Continue }
    }

    /// The number of its last worker call.
    pub fn last_call(&self) -> u32 {
        self.last_call
    }

    /// Continues the numbers of worker calls after `last`: for a worker that has been rewound.
    pub fn set_last_call(&mut self, last: u32) {
        self.last_call = last;
    }

    /// The slot in which it looks for the next request first.
    pub fn next_slot(&self) -> usize {
        self.next_slot
    }

    /// Looks there first: for a worker that has been rewound. From the first slot again, a later
    /// request in it would overtake one in another.
    pub fn set_next_slot(&mut self, slot: usize) {
        self.next_slot = slot % SLOTS_PER_SEAT;
    }

    /// Whether the front could not be notified, since a script has closed the worker's descriptors.
    /// The front then finds a response only when it polls.
    pub fn is_cut_off(&self) -> bool {
        self.is_cut_off.get()
    }

    /// Whether a request is running.
    pub fn has_request(&self) -> bool {
        self.in_hand.is_some()
    }

    /// The pool's board.
    pub fn pool_board(&self) -> &PoolBoard {
        self.layout.pool_board()
    }

    /// The board of a seat of this pool.
    pub fn seat_board(&self, seat: u32) -> &SeatBoard {
        self.layout.seat_board(seat)
    }

    /// This worker's seat.
    pub fn seat(&self) -> u32 {
        self.seat
    }

    /// Number of seats in the pool.
    pub fn seats(&self) -> u32 {
        self.layout.seats()
    }

    fn running_slot(&self) -> usize {
        self.in_hand.as_ref().map_or(0, |hand| hand.slot)
    }

    fn is_gone(&self) -> bool {
        self.in_hand.as_ref().is_none_or(|hand| {
            let front = &self.layout.slot(self.seat, hand.slot).front;
            hand.gone
                || front.gone.load(Ordering::Acquire) != 0
                || self.layout.epoch() != hand.epoch
        })
    }

    /// Wakes the front thread that waits for a slot's response. It may change when a front is
    /// replaced: the new one stores its thread before it reads the response, so the thread is read
    /// after all writes for it.
    fn wake_front(&self, slot: usize) {
        fence(Ordering::SeqCst);
        let words = self.layout.slot(self.seat, slot);
        let thread = words.front.thread.load(Ordering::Relaxed);
        let thread = thread.min(self.layout.threads() - 1);
        let must_wake = self.layout.front_sleep(thread).must_wake();
        self.unproven.set((!must_wake).then_some(thread as usize));
        if must_wake {
            let event = &self.events[thread as usize];
            match rustix::io::write(event, &1u64.to_ne_bytes()) {
                // A full counter means 2^64 wake-ups that the front has not read.
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => self.is_cut_off.set(true),
            }
        }
    }

    /// Sleeps until the front wakes this worker, unless there is work already. Returns whether it
    /// has slept and was woken.
    fn sleep_unless(&self, something_to_do: impl Fn(&WorkerEnd) -> bool) -> bool {
        self.sleep_unless_until(something_to_do, None)
    }

    /// The same with a timeout.
    fn sleep_unless_until(
        &self,
        something_to_do: impl Fn(&WorkerEnd) -> bool,
        limit: Option<Duration>,
    ) -> bool {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let sleep: &SleepWord = self.layout.worker_sleep(self.seat);
        sleep.announce();
        // A signal or a changed word ends the wait; the caller checks again in either case.
        let slept = !something_to_do(self)
            && futex::wait(sleep.word(), futex::Flags::empty(), 1, limit.as_ref()).is_ok();
        sleep.awake();
        slept
    }
}
