//! The front's end of a seat link.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Instant;

use maitred_os::clock::monotonic_nanos;
use rustix::thread::futex;

use crate::board::{PoolBoard, SeatBoard};
use crate::layout::{Layout, SLOTS_PER_SEAT};
use crate::spent::Spent;
pub use crate::words::State as SlotState;
use crate::words::{CACHE_FULL, GOES_ON, WHOEVER_SLEEPS, is_same};

/// What a slot that is lent to a worker needs kept on the front's side: the counters that the
/// front must not read back from memory which the worker can write.
#[derive(Debug)]
pub struct Lent {
    seat: u32,
    slot: usize,
    incarnation: u32,
    request_head: u32,
    answer_tail: u32,
    long_answer: bool,
    at: Instant,
    /// Number of the last wish that was taken.
    wish: u32,
}

impl Lent {
    fn new(seat: u32, slot: usize, incarnation: u32, request_head: u32, at: Instant) -> Lent {
        Lent {
            seat,
            slot,
            incarnation,
            request_head,
            answer_tail: 0,
            long_answer: false,
            at,
            wish: 0,
        }
    }

    /// The seat.
    pub fn seat(&self) -> u32 {
        self.seat
    }

    /// The slot within the seat.
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// The worker it was lent to.
    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// When it was lent.
    pub fn at(&self) -> Instant {
        self.at
    }
}

/// How far a worker is with what it was lent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Began {
    /// It has not begun.
    NotYet,
    /// It runs the script.
    Running,
    /// It is through; the answer is complete.
    Done,
}

/// The worker wrote what no worker of ours writes. It must be ended and nothing of it believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken;

/// Proof that a front thread has said it is about to sleep; it looks for answers once more and
/// then sleeps, or calls [`FrontEnd::awake`].
#[derive(Debug)]
pub struct Asleep;

/// The front's end of one pool's link. Methods may be called from any thread; each [`Lent`] has
/// one owner at a time.
#[derive(Debug)]
pub struct FrontEnd {
    layout: Layout,
    epoch: u32,
    /// A moment, and what workers read on their clock then.
    moment: (Instant, u64),
}

impl FrontEnd {
    /// Takes a pool's link over for front number `epoch`: what earlier fronts asked for is not
    /// wanted any more.
    ///
    /// # Errors
    /// When the file is not a pool's.
    pub fn take_over(file: impl AsFd, threads: u32, epoch: u32) -> io::Result<FrontEnd> {
        let layout = Layout::map(file, threads)?;
        layout.set_epoch(epoch);
        Ok(FrontEnd {
            layout,
            epoch,
            moment: (Instant::now(), monotonic_nanos()),
        })
    }

    /// Number of seats.
    pub fn seats(&self) -> u32 {
        self.layout.seats()
    }

    /// Number of the front that has the link.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Number of front threads the link was made for.
    pub fn threads(&self) -> u32 {
        self.layout.threads()
    }

    /// Cleans a seat of what an earlier front or an earlier worker left in it, and says which
    /// slot the worker that sits there now still runs something in. `thread` waits for its end;
    /// the answer is thrown away;
    /// the slot is free when [`FrontEnd::progress`] says so.
    ///
    /// A worker can write to all of the file, so every word on which this seat depends is written
    /// again, and the new worker begins with none of what its predecessor has left.
    pub fn adopt(&self, seat: u32, incarnation: u32, thread: u32) -> Vec<Lent> {
        self.restore();
        let mut running = Vec::new();
        for slot in 0..SLOTS_PER_SEAT {
            let words = self.layout.slot(seat, slot);
            let (state, whose) = words.state.get();
            if is_same(whose, incarnation) && state == SlotState::Offered {
                words.state.take_back(incarnation);
            }
            let (state, whose) = words.state.get();
            let is_its = is_same(whose, incarnation);
            if is_its && matches!(state, SlotState::Claimed | SlotState::Done) {
                words.front.thread.store(thread, Ordering::SeqCst);
                words.front.gone.store(1, Ordering::Release);
                let mut lent = Lent::new(seat, slot, incarnation, 0, Instant::now());
                // What has been said so far was said to another front.
                lent.answer_tail = words.worker.answer_head.load(Ordering::Acquire);
                // What it waits for has not been done, as far as is known.
                lent.wish = words.front.granted.load(Ordering::Relaxed);
                running.push(lent);
            } else {
                words.clear();
            }
        }
        self.wake_whatever_was_said(seat);
        running
    }

    /// Empties a seat whose worker is dead: what it has left must mislead no process that comes before
    /// [`FrontEnd::adopt`].
    pub fn vacate(&self, seat: u32) {
        self.restore();
        for slot in 0..SLOTS_PER_SEAT {
            self.layout.slot(seat, slot).clear();
        }
    }

    /// Says once more which front the link has: every worker that reads another number takes its
    /// client for gone.
    pub fn restore(&self) {
        if self.layout.epoch() != self.epoch {
            self.layout.set_epoch(self.epoch);
        }
    }

    /// Lends a free slot to a worker with the first bytes of a request; all of its head must be
    /// among them. Returns how many bytes found room. `thread` waits for the answer. The caller
    /// then calls [`FrontEnd::wake`], which may cost a system call, outside any lock.
    pub fn offer(
        &self,
        seat: u32,
        slot: usize,
        incarnation: u32,
        thread: u32,
        request: &[u8],
    ) -> (Lent, usize) {
        let words = self.layout.slot(seat, slot);
        let ring = self.layout.request_ring(seat, slot);
        let count = request.len().min(ring.capacity());
        ring.put(0, &request[..count]);
        let head = count as u32;
        words.worker.answer_head.store(0, Ordering::Relaxed);
        words.worker.request_tail.store(0, Ordering::Relaxed);
        words.worker.spent.held.store(0, Ordering::Relaxed);
        words.worker.wish.store(0, Ordering::Relaxed);
        words.worker.signs.store(0, Ordering::Relaxed);
        words.worker.took.store(0, Ordering::Relaxed);
        words.front.granted.store(0, Ordering::Relaxed);
        words.front.request_head.store(head, Ordering::Relaxed);
        words.front.answer_tail.store(0, Ordering::Relaxed);
        words.front.thread.store(thread, Ordering::Relaxed);
        words.front.epoch.store(self.epoch, Ordering::Relaxed);
        words.front.gone.store(0, Ordering::Relaxed);
        let now = Instant::now();
        words
            .front
            .lent_at
            .store(self.nanos(now), Ordering::Relaxed);
        words.state.offer(incarnation);
        (Lent::new(seat, slot, incarnation, head, now), count)
    }

    /// A moment as workers read it on their clock.
    fn nanos(&self, moment: Instant) -> u64 {
        let passed = moment.saturating_duration_since(self.moment.0).as_nanos();
        self.moment
            .1
            .saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }

    /// What a request has cost, by the word of its worker, once the end of its answer has been seen;
    /// nothing if the worker does not say.
    pub fn spent(&self, lent: &Lent) -> Option<Spent> {
        Spent::read(&self.layout.slot(lent.seat, lent.slot).worker.spent)
    }

    /// How long the script took, in microseconds, by the word of its worker, once the request is done;
    /// nothing if the worker does not say, and `u32::MAX` for what is more.
    pub fn took(&self, lent: &Lent) -> Option<u32> {
        let words = self.layout.slot(lent.seat, lent.slot);
        let micros = words.worker.took.load(Ordering::Relaxed);
        Some(micros).filter(|micros| *micros > 0)
    }

    /// Whether the script goes on though its answer is complete, once the end of the answer has been
    /// seen. What it then costs is known when it is done.
    pub fn goes_on(&self, lent: &Lent) -> bool {
        let words = self.layout.slot(lent.seat, lent.slot);
        words.worker.signs.load(Ordering::Relaxed) & GOES_ON != 0
    }

    /// Whether OPcache is full, by the word of its worker, once the request is done.
    pub fn finds_cache_full(&self, lent: &Lent) -> bool {
        let words = self.layout.slot(lent.seat, lent.slot);
        words.worker.signs.load(Ordering::Relaxed) & CACHE_FULL != 0
    }

    /// Takes a request back that the worker has not begun; then the slot is free. False when it
    /// has begun.
    pub fn take_back(&self, lent: &Lent) -> bool {
        self.layout
            .slot(lent.seat, lent.slot)
            .state
            .take_back(lent.incarnation)
    }

    /// How far the worker is.
    ///
    /// # Errors
    /// When the slot is in a state that no worker of ours leaves it in.
    pub fn progress(&self, lent: &Lent) -> Result<Began, Broken> {
        let (state, whose) = self.layout.slot(lent.seat, lent.slot).state.get();
        if !is_same(whose, lent.incarnation) {
            return Err(Broken);
        }
        match state {
            SlotState::Offered => Ok(Began::NotYet),
            SlotState::Claimed => Ok(Began::Running),
            SlotState::Done => Ok(Began::Done),
            SlotState::Free => Err(Broken),
        }
    }

    /// Sends more of the request; returns how many bytes found room.
    pub fn feed(&self, lent: &mut Lent, bytes: &[u8]) -> Result<usize, Broken> {
        let words = self.layout.slot(lent.seat, lent.slot);
        let ring = self.layout.request_ring(lent.seat, lent.slot);
        let tail = words.worker.request_tail.load(Ordering::Acquire);
        let used = ring.distance(tail, lent.request_head).ok_or(Broken)?;
        let count = bytes.len().min(ring.capacity() - used);
        if count > 0 {
            ring.put(lent.request_head, &bytes[..count]);
            lent.request_head = lent.request_head.wrapping_add(count as u32);
            words
                .front
                .request_head
                .store(lent.request_head, Ordering::Release);
            self.wake(lent.seat);
        }
        Ok(count)
    }

    /// How many more bytes of the request would find room now.
    ///
    /// # Errors
    /// When the worker claims to have read more than was sent.
    pub fn room(&self, lent: &Lent) -> Result<usize, Broken> {
        let tail = self
            .layout
            .slot(lent.seat, lent.slot)
            .worker
            .request_tail
            .load(Ordering::Acquire);
        let ring = self.layout.request_ring(lent.seat, lent.slot);
        Ok(ring.capacity() - ring.distance(tail, lent.request_head).ok_or(Broken)?)
    }

    /// Whether the answer ring holds something new.
    pub fn has_answer(&self, lent: &Lent) -> bool {
        let words = self.layout.slot(lent.seat, lent.slot);
        words.worker.answer_head.load(Ordering::Acquire) != lent.answer_tail
    }

    /// Appends up to `limit` bytes of the answer to `to` and returns how many.
    ///
    /// # Errors
    /// When the worker claims to have written more than the ring holds.
    pub fn drain(&self, lent: &mut Lent, limit: usize, to: &mut Vec<u8>) -> Result<usize, Broken> {
        let words = self.layout.slot(lent.seat, lent.slot);
        let ring = self.layout.answer_ring(lent.seat, lent.slot);
        let head = words.worker.answer_head.load(Ordering::Acquire);
        let count = ring
            .distance(lent.answer_tail, head)
            .ok_or(Broken)?
            .min(limit);
        if count > 0 {
            ring.take(lent.answer_tail, count, to);
            lent.answer_tail = lent.answer_tail.wrapping_add(count as u32);
            words
                .front
                .answer_tail
                .store(lent.answer_tail, Ordering::Release);
            // Only a worker that fills the ring waits for room in it.
            lent.long_answer |= lent.answer_tail as usize >= ring.capacity() / 2;
            if lent.long_answer {
                self.wake(lent.seat);
            }
        }
        Ok(count)
    }

    /// Takes what the script wishes the front to do for it, with the wish's number. It waits for
    /// [`FrontEnd::grant`].
    pub fn wish(&self, lent: &mut Lent) -> Option<(u32, Vec<u8>)> {
        let words = self.layout.slot(lent.seat, lent.slot);
        let number = words.worker.wish.load(Ordering::Acquire);
        if number == lent.wish {
            return None;
        }
        lent.wish = number;
        let length = words.worker.wish_bytes.load(Ordering::Relaxed) as usize;
        let ring = self.layout.wish(lent.seat);
        let mut bytes = Vec::new();
        ring.take(0, length.min(ring.capacity()), &mut bytes);
        Some((number, bytes))
    }

    /// A wish has been heard to its end; `verdict` says what came of it. A script that does not wait
    /// for this one any more takes no notice.
    pub fn grant(&self, seat: u32, slot: usize, wish: u32, verdict: u32) {
        let words = self.layout.slot(seat, slot);
        words.front.verdict.store(verdict, Ordering::Relaxed);
        words.front.granted.store(wish, Ordering::Release);
        self.wake(seat);
    }

    /// Nobody wants the answer any more: the worker is told at its next write.
    pub fn leave(&self, lent: &Lent) {
        self.layout
            .slot(lent.seat, lent.slot)
            .front
            .gone
            .store(1, Ordering::Release);
        self.wake(lent.seat);
    }

    /// Gives a slot back that the worker is through with. One that meanwhile belongs to the
    /// worker's successor is left alone.
    pub fn release(&self, lent: Lent) {
        let words = self.layout.slot(lent.seat, lent.slot);
        words.state.release(lent.incarnation);
    }

    /// Says that `thread` is about to sleep. It must look for answers once more before it does.
    pub fn announce_sleep(&self, thread: u32) -> Asleep {
        self.layout.front_sleep(thread).announce();
        Asleep
    }

    /// Says that `thread` is awake: workers need not wake it.
    pub fn awake(&self, thread: u32, _asleep: Asleep) {
        self.layout.front_sleep(thread).awake();
    }

    /// The pool's figures.
    pub fn board(&self) -> &PoolBoard {
        self.layout.pool_board()
    }

    /// A seat's figures. What they say is the worker's word.
    pub fn seat_board(&self, seat: u32) -> &SeatBoard {
        self.layout.seat_board(seat)
    }

    /// Wakes a seat's worker also if its word says that it is awake: a front that was killed when it was about to wake
    /// it has taken the word back and done no more, and workers can write to the word.
    pub fn wake_whatever_was_said(&self, seat: u32) {
        let sleep = self.layout.worker_sleep(seat);
        sleep.awake();
        let _ = futex::wake(sleep.word(), futex::Flags::empty(), WHOEVER_SLEEPS);
    }

    /// Wakes a seat's worker if it sleeps.
    pub fn wake(&self, seat: u32) {
        let sleep = self.layout.worker_sleep(seat);
        if sleep.must_wake() {
            // Waking nobody is no error.
            let _ = futex::wake(sleep.word(), futex::Flags::empty(), 1);
        }
    }
}
