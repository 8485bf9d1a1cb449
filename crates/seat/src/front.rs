//! The front's end of a seat link.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Instant;

use maitred_os::clock::monotonic_nanos;
use rustix::thread::futex;

use crate::board::{PoolBoard, SeatBoard};
use crate::layout::{Layout, SLOTS_PER_SEAT};
pub use crate::slot_words::State as SlotState;
use crate::slot_words::{CACHE_FULL, GOES_ON, is_same};
use crate::spent::Spent;

/// Most sleepers that are woken at once. A seat has one worker, but its scripts may have any number
/// of threads wait for the same word.
const MAX_WOKEN: u32 = 16;

/// The front's state of a slot that is assigned to a worker: counters that the front must not read
/// back from memory which the worker can write.
#[derive(Debug)]
pub struct AssignedSlot {
    seat: u32,
    slot: usize,
    incarnation: u32,
    request_head: u32,
    response_tail: u32,
    long_response: bool,
    at: Instant,
    /// An earlier front has assigned it, and `at` is when this one took it over.
    is_adopted: bool,
    /// Number of the last worker call that was taken.
    call: u32,
}

impl AssignedSlot {
    fn new(
        seat: u32,
        slot: usize,
        incarnation: u32,
        request_head: u32,
        at: Instant,
    ) -> AssignedSlot {
        AssignedSlot {
            seat,
            slot,
            incarnation,
            request_head,
            response_tail: 0,
            long_response: false,
            at,
            is_adopted: false,
            call: 0,
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

    /// The worker it is assigned to.
    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// When it was assigned.
    pub fn at(&self) -> Instant {
        self.at
    }
}

/// The progress of a worker with an assigned request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotProgress {
    /// Not started.
    NotStarted,
    /// It runs the script.
    Running,
    /// Done: the response is complete.
    Done,
}

/// The worker wrote invalid state. It must be terminated and nothing from it trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken;

/// Proof that a front thread has announced its sleep; it checks for responses once more and then
/// sleeps, or calls [`FrontEnd::awake`].
#[derive(Debug)]
pub struct Asleep;

/// The front's end of one pool's link. Methods may be called from any thread; each [`AssignedSlot`]
/// has one owner at a time.
#[derive(Debug)]
pub struct FrontEnd {
    layout: Layout,
    epoch: u32,
    /// A point in time, and the workers' clock at it.
    moment: (Instant, u64),
}

impl FrontEnd {
    /// Takes over a pool's link for front number `epoch`: requests of earlier fronts are abandoned.
    ///
    /// # Errors
    /// When the file is not a pool's.
    pub fn take_over(file: impl AsFd, threads: u32, epoch: u32) -> io::Result<FrontEnd> {
        let layout = Layout::map(file, threads)?;
        layout.set_epoch(epoch);
        Ok(FrontEnd { layout, epoch, moment: (Instant::now(), monotonic_nanos()) })
    }

    /// Number of seats.
    pub fn seats(&self) -> u32 {
        self.layout.seats()
    }

    /// Number of the front that owns the link.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Number of front threads.
    pub fn threads(&self) -> u32 {
        self.layout.threads()
    }

    /// Resets a seat for its current worker, and returns the slots in which that worker still runs
    /// a request. `thread` waits for their end; the responses are dropped; a slot is free when
    /// [`FrontEnd::progress`] says so.
    ///
    /// A worker can write to the whole file, so every word on which this seat depends is rewritten,
    /// and the new worker starts without any state of its predecessor.
    pub fn adopt(&self, seat: u32, incarnation: u32, thread: u32) -> Vec<AssignedSlot> {
        self.restore();
        let mut running = Vec::new();
        for slot in 0..SLOTS_PER_SEAT {
            let words = self.layout.slot(seat, slot);
            // What it has not begun, the caller offers again.
            words.state.take_back(incarnation);
            let (state, whose) = words.state.get();
            let is_its = is_same(whose, incarnation);
            if is_its && matches!(state, SlotState::Claimed | SlotState::Done) {
                words.front.thread.store(thread, Ordering::SeqCst);
                words.front.gone.store(1, Ordering::Release);
                let mut assigned = AssignedSlot::new(seat, slot, incarnation, 0, Instant::now());
                assigned.is_adopted = true;
                // Bytes so far were for another front.
                assigned.response_tail = words.worker.response_head.load(Ordering::Acquire);
                // As far as is known, its pending worker call has not been handled.
                assigned.call = words.front.replied.load(Ordering::Relaxed);
                running.push(assigned);
            } else {
                words.clear();
            }
        }
        self.wake_unconditionally(seat);
        running
    }

    /// Clears a seat whose worker has died: its stale state must not mislead a process that starts
    /// before [`FrontEnd::adopt`].
    pub fn vacate(&self, seat: u32) {
        self.restore();
        for slot in 0..SLOTS_PER_SEAT {
            self.layout.slot(seat, slot).clear();
        }
    }

    /// As [`FrontEnd::vacate`], for a worker that no other follows for now: the memory of the slots
    /// is given back. A worker that starts meanwhile finds them free.
    pub fn abandon(&self, seat: u32) {
        if self.layout.discard_slots(seat).is_err() {
            self.vacate(seat);
        }
    }

    /// Confirms which front owns the link: a worker that reads another number treats its client as
    /// disconnected.
    pub fn restore(&self) {
        if self.layout.epoch() != self.epoch {
            self.layout.set_epoch(self.epoch);
        }
    }

    /// Assigns a free slot to a worker with the first bytes of a request, which must include its
    /// complete header. Returns how many bytes fit. `thread` waits for the response. The caller
    /// then calls [`FrontEnd::wake`], which may cost a system call, outside any lock.
    pub fn offer(
        &self,
        seat: u32,
        slot: usize,
        incarnation: u32,
        thread: u32,
        request: &[u8],
    ) -> (AssignedSlot, usize) {
        let words = self.layout.slot(seat, slot);
        let ring = self.layout.request_ring(seat, slot);
        let count = request.len().min(ring.capacity());
        ring.put(0, &request[..count]);
        let head = count as u32;
        words.worker.response_head.store(0, Ordering::Relaxed);
        words.worker.request_tail.store(0, Ordering::Relaxed);
        words.worker.spent.held.store(0, Ordering::Relaxed);
        words.worker.call.store(0, Ordering::Relaxed);
        words.worker.signs.store(0, Ordering::Relaxed);
        words.worker.took.store(0, Ordering::Relaxed);
        words.front.replied.store(0, Ordering::Relaxed);
        words.front.request_head.store(head, Ordering::Relaxed);
        words.front.response_tail.store(0, Ordering::Relaxed);
        words.front.thread.store(thread, Ordering::Relaxed);
        words.front.epoch.store(self.epoch, Ordering::Relaxed);
        words.front.gone.store(0, Ordering::Relaxed);
        let now = Instant::now();
        words.front.assigned_at.store(self.nanos(now), Ordering::Relaxed);
        words.state.offer(incarnation);
        (AssignedSlot::new(seat, slot, incarnation, head, now), count)
    }

    /// A point in time on the workers' clock.
    fn nanos(&self, moment: Instant) -> u64 {
        let passed = moment.saturating_duration_since(self.moment.0).as_nanos();
        self.moment.1.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }

    /// The cost of a request as reported by its worker, once the end of its response has been read;
    /// `None` if not reported.
    pub fn spent(&self, assigned: &AssignedSlot) -> Option<Spent> {
        let spent = Spent::read(&self.layout.slot(assigned.seat, assigned.slot).worker.spent)?;
        let seen = (!assigned.is_adopted).then(|| assigned.at().elapsed());
        Some(seen.map_or(spent, |seen| spent.within(seen)))
    }

    /// The script's duration in microseconds as reported by its worker, once the request is done;
    /// `None` if not reported, and `u32::MAX` for more.
    pub fn took(&self, assigned: &AssignedSlot) -> Option<u32> {
        let words = self.layout.slot(assigned.seat, assigned.slot);
        let micros = words.worker.took.load(Ordering::Relaxed);
        Some(micros).filter(|micros| *micros > 0)
    }

    /// Whether the script continues after its response, once the end of the response has been read.
    /// The cost of the rest is known when it is done.
    pub fn goes_on(&self, assigned: &AssignedSlot) -> bool {
        let words = self.layout.slot(assigned.seat, assigned.slot);
        words.worker.signs.load(Ordering::Relaxed) & GOES_ON != 0
    }

    /// Whether the worker reports a full OPcache, once the request is done.
    pub fn finds_cache_full(&self, assigned: &AssignedSlot) -> bool {
        let words = self.layout.slot(assigned.seat, assigned.slot);
        words.worker.signs.load(Ordering::Relaxed) & CACHE_FULL != 0
    }

    /// Takes back a request that the worker has not started; then the slot is free. False when it
    /// has started.
    pub fn take_back(&self, assigned: &AssignedSlot) -> bool {
        self.layout.slot(assigned.seat, assigned.slot).state.take_back(assigned.incarnation)
    }

    /// The progress of the worker.
    ///
    /// # Errors
    /// When the slot's state is invalid.
    pub fn progress(&self, assigned: &AssignedSlot) -> Result<SlotProgress, Broken> {
        let (state, whose) = self.layout.slot(assigned.seat, assigned.slot).state.get();
        if !is_same(whose, assigned.incarnation) {
            return Err(Broken);
        }
        match state {
            SlotState::Offered => Ok(SlotProgress::NotStarted),
            SlotState::Claimed => Ok(SlotProgress::Running),
            SlotState::Done => Ok(SlotProgress::Done),
            SlotState::Free => Err(Broken),
        }
    }

    /// Sends more of the request; returns how many bytes fit.
    pub fn feed(&self, assigned: &mut AssignedSlot, bytes: &[u8]) -> Result<usize, Broken> {
        let words = self.layout.slot(assigned.seat, assigned.slot);
        let ring = self.layout.request_ring(assigned.seat, assigned.slot);
        let tail = words.worker.request_tail.load(Ordering::Acquire);
        let used = ring.distance(tail, assigned.request_head).ok_or(Broken)?;
        let count = bytes.len().min(ring.capacity() - used);
        if count > 0 {
            ring.put(assigned.request_head, &bytes[..count]);
            assigned.request_head = assigned.request_head.wrapping_add(count as u32);
            words.front.request_head.store(assigned.request_head, Ordering::Release);
            self.wake(assigned.seat);
        }
        Ok(count)
    }

    /// Free space for more bytes of the request.
    ///
    /// # Errors
    /// When the worker claims to have read more than was sent.
    pub fn room(&self, assigned: &AssignedSlot) -> Result<usize, Broken> {
        let tail = self
            .layout
            .slot(assigned.seat, assigned.slot)
            .worker
            .request_tail
            .load(Ordering::Acquire);
        let ring = self.layout.request_ring(assigned.seat, assigned.slot);
        Ok(ring.capacity() - ring.distance(tail, assigned.request_head).ok_or(Broken)?)
    }

    /// Whether the response ring has new bytes.
    pub fn has_response(&self, assigned: &AssignedSlot) -> bool {
        let words = self.layout.slot(assigned.seat, assigned.slot);
        words.worker.response_head.load(Ordering::Acquire) != assigned.response_tail
    }

    /// Appends up to `limit` bytes of the response to `to` and returns how many.
    ///
    /// # Errors
    /// When the worker claims to have written more than the ring holds.
    pub fn drain(
        &self,
        assigned: &mut AssignedSlot,
        limit: usize,
        to: &mut Vec<u8>,
    ) -> Result<usize, Broken> {
        let words = self.layout.slot(assigned.seat, assigned.slot);
        let ring = self.layout.response_ring(assigned.seat, assigned.slot);
        let head = words.worker.response_head.load(Ordering::Acquire);
        let count = ring.distance(assigned.response_tail, head).ok_or(Broken)?.min(limit);
        if count > 0 {
            ring.take(assigned.response_tail, count, to);
            assigned.response_tail = assigned.response_tail.wrapping_add(count as u32);
            words.front.response_tail.store(assigned.response_tail, Ordering::Release);
            // Only a worker that fills the ring waits for free space.
            assigned.long_response |= assigned.response_tail as usize >= ring.capacity() / 2;
            if assigned.long_response {
                self.wake(assigned.seat);
            }
        }
        Ok(count)
    }

    /// Takes the script's worker call and its number. The worker waits for [`FrontEnd::reply`].
    pub fn take_call(&self, assigned: &mut AssignedSlot) -> Option<(u32, Vec<u8>)> {
        let words = self.layout.slot(assigned.seat, assigned.slot);
        let number = words.worker.call.load(Ordering::Acquire);
        if number == assigned.call {
            return None;
        }
        assigned.call = number;
        let length = words.worker.call_bytes.load(Ordering::Relaxed) as usize;
        let ring = self.layout.call_buffer(assigned.seat);
        let mut bytes = Vec::new();
        ring.take(0, length.min(ring.capacity()), &mut bytes);
        Some((number, bytes))
    }

    /// Replies to a worker call; `verdict` is the result. A script that no longer waits for this
    /// call ignores it.
    pub fn reply(&self, seat: u32, slot: usize, call: u32, verdict: u32) {
        let words = self.layout.slot(seat, slot);
        words.front.verdict.store(verdict, Ordering::Relaxed);
        words.front.replied.store(call, Ordering::Release);
        self.wake(seat);
    }

    /// Abandons the request: the worker notices at its next write.
    pub fn leave(&self, assigned: &AssignedSlot) {
        self.layout.slot(assigned.seat, assigned.slot).front.gone.store(1, Ordering::Release);
        self.wake(assigned.seat);
    }

    /// Releases a slot whose request is done. A slot that belongs to the worker's successor by now
    /// is left alone.
    pub fn release(&self, assigned: AssignedSlot) {
        let words = self.layout.slot(assigned.seat, assigned.slot);
        words.state.release(assigned.incarnation);
    }

    /// Announces that `thread` is about to sleep. It must check for responses once more before it
    /// does.
    pub fn announce_sleep(&self, thread: u32) -> Asleep {
        self.layout.front_sleep(thread).announce();
        Asleep
    }

    /// Announces that `thread` is awake: workers need not wake it.
    pub fn awake(&self, thread: u32, _asleep: Asleep) {
        self.layout.front_sleep(thread).awake();
    }

    /// The pool's board.
    pub fn board(&self) -> &PoolBoard {
        self.layout.pool_board()
    }

    /// A seat's board, unverified.
    pub fn seat_board(&self, seat: u32) -> &SeatBoard {
        self.layout.seat_board(seat)
    }

    /// Wakes a seat's worker even if its word says that it is awake: a front that was killed
    /// between clearing the word and waking the worker leaves it so, and workers can write to the
    /// word.
    pub fn wake_unconditionally(&self, seat: u32) {
        let sleep = self.layout.worker_sleep(seat);
        sleep.awake();
        let _ = futex::wake(sleep.word(), futex::Flags::empty(), MAX_WOKEN);
    }

    /// Wakes a seat's worker if it sleeps.
    pub fn wake(&self, seat: u32) {
        let sleep = self.layout.worker_sleep(seat);
        if sleep.must_wake() {
            // It is no error if there is no sleeper.
            let _ = futex::wake(sleep.word(), futex::Flags::empty(), 1);
        }
    }
}
