//! The worker's end of a seat link.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

use rustix::thread::futex;
use rustix::time::Timespec;

use crate::board::{PoolBoard, SeatBoard};
use crate::layout::{ANSWER_RING_BYTES, Layout, SLOTS_PER_SEAT, WISH_BYTES};
use crate::spent::Spent;
use crate::words::{CACHE_FULL, GOES_ON, SleepWord, State, WHOEVER_SLEEPS, is_newer, is_same};

/// Unseen bytes in the answer ring that are shown without being asked: half of it, so that the
/// front empties one half while the worker fills the other.
const SHOW_BYTES: u32 = (ANSWER_RING_BYTES / 2) as u32;

/// How far the first numbers of the wishes of two workers are apart, so that no late word on one is
/// taken for a word on another.
const WISHES_APART: u32 = 1 << 16;

/// How long a worker has to see that its seat belongs to a newer one before it believes so. What an
/// earlier worker has left in the seat's words may say the same, until the front opens the seat.
const SUCCEEDED_FOR: Duration = Duration::from_secs(1);

/// How often it looks meanwhile.
const DOUBTFUL_LOOKS: Duration = Duration::from_millis(5);

/// Whether anybody still wants the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Yes.
    Continue,
    /// No: the client has left, or the front that asked is no more.
    ClientGone,
}

/// The request in hand.
#[derive(Debug)]
struct InHand {
    slot: usize,
    epoch: u32,
    request_tail: u32,
    answer_head: u32,
    shown: u32,
    long_request: bool,
    gone: bool,
}

/// The word on which the worker in a seat sleeps, for a handler of signals: it stays mapped for as
/// long as the process lives.
///
/// # Errors
/// When the file is not a pool's, or the seat does not fit it.
pub fn sleep_word(file: impl AsFd, seat: u32) -> io::Result<&'static AtomicU32> {
    let layout: &'static Layout = Box::leak(Box::new(Layout::map(file, 1)?));
    if seat >= layout.seats() {
        return Err(no_such_seat());
    }
    Ok(layout.worker_sleep(seat).word())
}

fn no_such_seat() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "no such seat in this pool")
}

/// One worker in its seat.
#[derive(Debug)]
pub struct WorkerEnd {
    layout: Layout,
    events: Vec<OwnedFd>,
    seat: u32,
    incarnation: u32,
    next_slot: usize,
    in_hand: Option<InHand>,
    /// Number of the last wish.
    last_wish: u32,
    /// How often it has slept until there was a request.
    sleeps: u64,
}

impl WorkerEnd {
    /// The end for worker number `incarnation` of `seat`; `events` wake the front's threads.
    ///
    /// # Errors
    /// When the file is not a pool's, or the seat or the events do not fit it.
    pub fn new(
        file: impl AsFd,
        events: Vec<OwnedFd>,
        seat: u32,
        incarnation: u32,
    ) -> io::Result<WorkerEnd> {
        let threads = u32::try_from(events.len()).unwrap_or(u32::MAX);
        let layout = Layout::map(file, threads)?;
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
            last_wish: incarnation.wrapping_mul(WISHES_APART),
            sleeps: 0,
        })
    }

    /// Waits for a request and begins it. False when another worker has been given this seat: nobody
    /// knows of this one, and it has to end.
    #[must_use]
    pub fn claim(&mut self) -> bool {
        self.claim_unless(|| false)
    }

    /// As [`claim`](Self::claim), but returns false as soon as `leaves` says so. Whoever changes what
    /// that says must also set the seat's [`sleep_word`] to 0, or end the sleep with a signal after.
    pub fn claim_unless(&mut self, leaves: impl Fn() -> bool) -> bool {
        let succeeded = Cell::new(false);
        let mut succeeded_since = None;
        loop {
            if leaves() {
                return false;
            }
            if self.try_claim() {
                return true;
            }
            let slept = self.sleep_unless(|end| leaves() || end.is_to_wake_up(&succeeded));
            self.sleeps += u64::from(slept);
            if succeeded.get() {
                // What woke this one was meant for the other, and there may be more of them.
                let word = self.layout.worker_sleep(self.seat).word();
                let _ = futex::wake(word, futex::Flags::empty(), WHOEVER_SLEEPS);
                let since = *succeeded_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= SUCCEEDED_FOR {
                    return false;
                }
                succeeded.set(false);
                std::thread::sleep(DOUBTFUL_LOOKS);
            }
        }
    }

    /// How often this worker has slept until there was a request, since it came.
    pub fn sleeps(&self) -> u64 {
        self.sleeps
    }

    /// Whether it is offered a request, or has been `succeeded` by a newer worker. That happens to
    /// one whose announcement was lost on its way, with the zygote that made it.
    fn is_to_wake_up(&self, succeeded: &Cell<bool>) -> bool {
        (0..SLOTS_PER_SEAT).any(|slot| {
            let (state, whose) = self.layout.slot(self.seat, slot).state.get();
            let is_another = state != State::Free && is_newer(whose, self.incarnation);
            succeeded.set(succeeded.get() || is_another);
            is_another || state == State::Offered && is_same(whose, self.incarnation)
        })
    }

    /// Begins a request if one is offered now.
    pub fn try_claim(&mut self) -> bool {
        for _ in 0..SLOTS_PER_SEAT {
            let slot = self.next_slot;
            self.next_slot = (slot + 1) % SLOTS_PER_SEAT;
            let words = self.layout.slot(self.seat, slot);
            if words.state.claim(self.incarnation) {
                self.in_hand = Some(InHand {
                    slot,
                    epoch: words.front.epoch.load(Ordering::Relaxed),
                    request_tail: 0,
                    answer_head: 0,
                    shown: 0,
                    long_request: false,
                    gone: false,
                });
                return true;
            }
        }
        false
    }

    /// Appends what the front has sent of the request to `to`, waiting until there is something.
    /// Nothing is appended when nothing more will come: the client or the front has gone.
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
                    .slot(end.seat, end.slot_in_hand())
                    .front
                    .request_head
                    .load(Ordering::Acquire)
                    != head
                    || end.is_gone()
            });
        }
    }

    /// A front that has more of the body to send sleeps until there is room for it. One that has
    /// sent everything is not waiting for this, but cannot be told apart; it is rarely asleep
    /// and the event costs little.
    fn tell_front_of_room(&self) {
        let Some(hand) = &self.in_hand else { return };
        if hand.long_request {
            self.wake_front(hand.slot);
        }
    }

    /// Adds bytes to the answer. They are seen when [`WorkerEnd::show`] is called, at the end, or
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
            let ring = self.layout.answer_ring(self.seat, hand.slot);
            let tail = words.front.answer_tail.load(Ordering::Acquire);
            let used = ring
                .distance(tail, hand.answer_head)
                .unwrap_or(ring.capacity());
            let count = bytes.len().min(ring.capacity() - used);
            if count > 0 {
                ring.put(hand.answer_head, &bytes[..count]);
                hand.answer_head = hand.answer_head.wrapping_add(count as u32);
                bytes = &bytes[count..];
                if hand.answer_head.wrapping_sub(hand.shown) >= SHOW_BYTES {
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
                    .slot(end.seat, end.slot_in_hand())
                    .front
                    .answer_tail
                    .load(Ordering::Acquire)
                    != tail
                    || end.is_gone()
            });
        }
        self.verdict()
    }

    /// Shows the front everything that was written, and wakes it if it sleeps.
    pub fn show(&mut self) {
        let Some(hand) = &mut self.in_hand else {
            return;
        };
        if hand.shown == hand.answer_head {
            return;
        }
        hand.shown = hand.answer_head;
        let words = self.layout.slot(self.seat, hand.slot);
        words
            .worker
            .answer_head
            .store(hand.answer_head, Ordering::Release);
        let slot = hand.slot;
        self.wake_front(slot);
    }

    /// When the front gave the request in hand to this worker, in nanoseconds on the clock that never
    /// goes backwards; 0 if it does not say.
    pub fn lent_at(&self) -> u64 {
        let words = self.layout.slot(self.seat, self.slot_in_hand());
        words.front.lent_at.load(Ordering::Relaxed)
    }

    /// Tells the front what the request in hand has cost. It is seen with what is written next.
    pub fn tell_spent(&self, spent: &Spent) {
        if let Some(hand) = &self.in_hand {
            spent.write(&self.layout.slot(self.seat, hand.slot).worker.spent);
        }
    }

    /// Tells the front how long the script in hand took, in microseconds. It is seen with the end of the
    /// request.
    pub fn tell_took(&self, micros: u64) {
        if let Some(hand) = &self.in_hand {
            let words = self.layout.slot(self.seat, hand.slot);
            let micros = u32::try_from(micros).unwrap_or(u32::MAX).max(1);
            words.worker.took.store(micros, Ordering::Relaxed);
        }
    }

    /// Tells the front that the script goes on when its answer is complete. It is seen with what is
    /// written next.
    pub fn tell_it_goes_on(&self) {
        if let Some(hand) = &self.in_hand {
            let words = self.layout.slot(self.seat, hand.slot);
            words.worker.signs.fetch_or(GOES_ON, Ordering::Relaxed);
        }
    }

    /// Tells the front that OPcache is full. It is seen with the end of the request.
    pub fn tell_cache_is_full(&self) {
        if let Some(hand) = &self.in_hand {
            let words = self.layout.slot(self.seat, hand.slot);
            words.worker.signs.fetch_or(CACHE_FULL, Ordering::Relaxed);
        }
    }

    /// Has the front do something for the script that runs, and waits until it has: also when the
    /// client has gone, or has its whole answer. Returns what came of it; nothing if there is no front
    /// for as long as `patience`, or the wish is longer than [`WISH_BYTES`].
    pub fn wish(&mut self, wish: &[u8], patience: Duration) -> Option<u32> {
        if wish.len() > WISH_BYTES {
            return None;
        }
        let slot = self.in_hand.as_ref()?.slot;
        let deadline = Instant::now() + patience;
        // 0 is none.
        self.last_wish = self.last_wish.wrapping_add(1).max(1);
        let number = self.last_wish;
        self.layout.wish(self.seat).put(0, wish);
        let words = self.layout.slot(self.seat, slot);
        let length = wish.len() as u32;
        words.worker.wish_bytes.store(length, Ordering::Relaxed);
        words.worker.wish.store(number, Ordering::Release);
        self.wake_front(slot);
        let is_granted = |end: &WorkerEnd| {
            let words = end.layout.slot(end.seat, slot);
            words.front.granted.load(Ordering::Acquire) == number
        };
        while !is_granted(self) {
            let left = deadline.checked_duration_since(Instant::now())?;
            self.sleep_unless_until(is_granted, Some(left));
        }
        let words = self.layout.slot(self.seat, slot);
        Some(words.front.verdict.load(Ordering::Relaxed))
    }

    /// Ends the request in hand: everything is shown and the slot is done.
    pub fn finish(&mut self) {
        let Some(hand) = self.in_hand.take() else {
            return;
        };
        let words = self.layout.slot(self.seat, hand.slot);
        words
            .worker
            .answer_head
            .store(hand.answer_head, Ordering::Release);
        words.state.finish(self.incarnation);
        self.wake_front(hand.slot);
    }

    /// Whether anybody still wants the answer.
    pub fn verdict(&mut self) -> Verdict {
        let gone = self.is_gone();
        match &mut self.in_hand {
            Some(hand) => hand.gone |= gone,
            None => return Verdict::ClientGone,
        }
        if gone {
            Verdict::ClientGone
        } else {
            Verdict::Continue
        }
    }

    /// The number of its last wish.
    pub fn last_wish(&self) -> u32 {
        self.last_wish
    }

    /// Its wishes go on after `last`: for a worker that has forgotten those it had.
    pub fn wish_after(&mut self, last: u32) {
        self.last_wish = last;
    }

    /// Whether there is a request in hand.
    pub fn has_request(&self) -> bool {
        self.in_hand.is_some()
    }

    /// The pool's figures.
    pub fn pool_board(&self) -> &PoolBoard {
        self.layout.pool_board()
    }

    /// The figures of a seat of this pool.
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

    fn slot_in_hand(&self) -> usize {
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

    /// Wakes the front thread that waits for a slot's answer. Which one that is may change when a
    /// front is replaced: the new one says so before it looks, so it is read after all that the
    /// new one is to see has been written.
    fn wake_front(&self, slot: usize) {
        fence(Ordering::SeqCst);
        let words = self.layout.slot(self.seat, slot);
        let thread = words.front.thread.load(Ordering::Relaxed);
        let thread = thread.min(self.layout.threads() - 1);
        if self.layout.front_sleep(thread).must_wake() {
            // A full counter means that the front has been woken 2^64 times and not looked.
            let _ = rustix::io::write(&self.events[thread as usize], &1u64.to_ne_bytes());
        }
    }

    /// Sleeps until the front wakes this worker, unless there is something to do already. Whether it
    /// has slept and was woken.
    fn sleep_unless(&self, something_to_do: impl Fn(&WorkerEnd) -> bool) -> bool {
        self.sleep_unless_until(something_to_do, None)
    }

    /// The same, for no longer than `limit`.
    fn sleep_unless_until(
        &self,
        something_to_do: impl Fn(&WorkerEnd) -> bool,
        limit: Option<Duration>,
    ) -> bool {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let sleep: &SleepWord = self.layout.worker_sleep(self.seat);
        sleep.announce();
        // A signal or a changed word ends the wait; the caller looks again in either case.
        let slept = !something_to_do(self)
            && futex::wait(sleep.word(), futex::Flags::empty(), 1, limit.as_ref()).is_ok();
        sleep.awake();
        slept
    }
}
