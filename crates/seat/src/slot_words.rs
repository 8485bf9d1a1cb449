//! The words that both ends of a seat link read and write, and the operations whose order matters.
//! `tests/interleavings.rs` has this file with the atomics of loom, which tests every interleaving.

use crate::atomics::{AtomicU32, AtomicU64, Ordering, fence};

const FREE: u32 = 0;
const OFFERED: u32 = 1;
const CLAIMED: u32 = 2;
const DONE: u32 = 3;
const STATE_BITS: u32 = 2;

/// Highest incarnation of a worker that fits into a state word. [`next_incarnation`] wraps to 1
/// after it.
pub const MAX_INCARNATION: u32 = u32::MAX >> STATE_BITS;

/// The incarnation after this one. 0 is none.
pub fn next_incarnation(incarnation: u32) -> u32 {
    match incarnation & MAX_INCARNATION {
        MAX_INCARNATION => 1,
        other => other + 1,
    }
}

/// Whether two numbers are the same incarnation, also if one of them comes from a state word.
pub fn is_same(one: u32, other: u32) -> bool {
    (one ^ other) & MAX_INCARNATION == 0
}

/// Whether incarnation `other` is newer than `own`. Numbers wrap around: the newer one is less than
/// half the range ahead (RFC 1982).
pub fn is_newer(other: u32, own: u32) -> bool {
    let ahead = other.wrapping_sub(own) & MAX_INCARNATION;
    (1..=MAX_INCARNATION / 2).contains(&ahead)
}

/// The state of a slot. Offers and claims contain the incarnation of their worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Empty.
    Free,
    /// A request that is not started.
    Offered,
    /// A request that the worker is running.
    Claimed,
    /// The worker is done with it; its response may still be in the ring.
    Done,
}

fn pack(state: u32, incarnation: u32) -> u32 {
    (incarnation & MAX_INCARNATION) << STATE_BITS | state
}

/// A slot's state: the one word that both ends change.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct StateWord(AtomicU32);

impl StateWord {
    /// The state and the incarnation. Sees all writes before the state was set.
    pub fn get(&self) -> (State, u32) {
        let word = self.0.load(Ordering::Acquire);
        let state = match word & ((1 << STATE_BITS) - 1) {
            OFFERED => State::Offered,
            CLAIMED => State::Claimed,
            DONE => State::Done,
            _ => State::Free,
        };
        (state, word >> STATE_BITS)
    }

    /// Front: the request is written and the worker may start it.
    pub fn offer(&self, incarnation: u32) {
        self.0.store(pack(OFFERED, incarnation), Ordering::Release);
    }

    /// Front: takes the request back. False when the worker has already claimed it.
    pub fn take_back(&self, incarnation: u32) -> bool {
        self.change(pack(OFFERED, incarnation), FREE)
    }

    /// Worker: claims a request offered to it. False when there is none, or it was taken back.
    pub fn claim(&self, incarnation: u32) -> bool {
        let offered = pack(OFFERED, incarnation);
        self.0.load(Ordering::Relaxed) == offered
            && self.change(offered, pack(CLAIMED, incarnation))
    }

    /// Worker: the response is complete and nothing more will be written.
    pub fn finish(&self, incarnation: u32) {
        self.0.store(pack(DONE, incarnation), Ordering::Release);
    }

    /// Front: the response has been read and the slot may be reused.
    pub fn release(&self, incarnation: u32) {
        self.change(pack(DONE, incarnation), FREE);
    }

    /// Front: clears the state of an earlier worker.
    pub fn reset(&self) {
        self.0.store(FREE, Ordering::Release);
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// More sleepers than one word can have (futex(2) takes a signed number).
pub const ALL_SLEEPERS: u32 = i32::MAX as u32;

/// Whether the owner sleeps and must be woken. Only the owner goes to sleep; any process may wake
/// it.
///
/// No wake-up is lost, because the sleeper announces its sleep and *then* checks for work, and the
/// waker stores the work and *then* checks for sleepers, with a full fence between the two on
/// either side.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct SleepWord(AtomicU32);

impl SleepWord {
    /// Owner: announces its sleep. It must check for work once more before it sleeps.
    pub fn announce(&self) {
        self.0.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Owner: it is awake again, or did not go to sleep.
    pub fn awake(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Any process, after storing work: whether the caller has to wake the owner. True for one of
    /// several callers.
    pub fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) == 1 && self.0.swap(0, Ordering::AcqRel) == 1
    }

    /// The futex word.
    pub fn word(&self) -> &AtomicU32 {
        &self.0
    }
}

/// Words that the front writes and the worker reads, in their own cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct FrontWords {
    /// Bytes written to the request ring since the offer.
    pub request_head: AtomicU32,
    /// Bytes read from the response ring since the offer.
    pub response_tail: AtomicU32,
    /// Front thread that waits for the response.
    pub thread: AtomicU32,
    /// The front that made the offer.
    pub epoch: AtomicU32,
    /// Not 0: the request is abandoned.
    pub gone: AtomicU32,
    /// Number of the last worker call that has a reply.
    pub replied: AtomicU32,
    /// The reply.
    pub verdict: AtomicU32,
    /// When the offer was made, in nanoseconds of the monotonic clock; 0: not reported by the
    /// front.
    pub assigned_at: AtomicU64,
}

/// The script continues after its response. Written before the end of the response is published.
pub const GOES_ON: u32 = 1;
/// OPcache is full. Written before the request ends.
pub const CACHE_FULL: u32 = 2;

/// Words that the worker writes and the front reads, in their own cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct WorkerWords {
    /// Published bytes in the response ring since the offer.
    pub response_head: AtomicU32,
    /// Bytes read from the request ring since the offer.
    pub request_tail: AtomicU32,
    /// Number of the last worker call, whose reply the script waits for. 0: none since the offer.
    pub call: AtomicU32,
    /// Its length in bytes.
    pub call_bytes: AtomicU32,
    /// Flags ([`GOES_ON`], [`CACHE_FULL`]).
    pub signs: AtomicU32,
    /// The script's duration in microseconds; 0: not reported. Written before the request ends.
    pub took: AtomicU32,
    /// The cost of the request.
    pub spent: SpentWords,
}

/// The cost of a request until its response was complete. Written before the end of the response is
/// published; for a script that continued, written once more with the total before its end.
#[derive(Debug)]
#[repr(C)]
pub struct SpentWords {
    /// Time that the worker spent on it, in microseconds; 0: not reported.
    pub held: AtomicU64,
    /// Processor time of the worker, in microseconds.
    pub cpu: AtomicU64,
    /// Time that it waited for a processor, in microseconds plus one; 0: unknown.
    pub core_wait: AtomicU64,
    /// Processor time of children that it has waited for, in microseconds.
    pub children: AtomicU64,
    /// Peak memory of the script, in bytes.
    pub peak_memory: AtomicU64,
}

impl SlotWords {
    /// Frees the slot and clears all its words.
    pub fn clear(&self) {
        let FrontWords {
            request_head,
            response_tail,
            thread,
            epoch,
            gone,
            replied,
            verdict,
            assigned_at,
        } = &self.front;
        let WorkerWords { response_head, request_tail, call, call_bytes, signs, took, spent } =
            &self.worker;
        let all = [
            request_head,
            response_tail,
            thread,
            epoch,
            gone,
            replied,
            verdict,
            response_head,
            request_tail,
            call,
            call_bytes,
            signs,
            took,
        ];
        for word in all {
            word.store(0, Ordering::Relaxed);
        }
        assigned_at.store(0, Ordering::Relaxed);
        spent.clear();
        self.state.reset();
    }
}

impl SpentWords {
    fn clear(&self) {
        let SpentWords { held, cpu, core_wait, children, peak_memory } = self;
        for word in [held, cpu, core_wait, children, peak_memory] {
            word.store(0, Ordering::Relaxed);
        }
    }
}

/// All words of a slot. All zero is a free slot.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct SlotWords {
    /// The state.
    pub state: StateWord,
    /// The front's words.
    pub front: FrontWords,
    /// The worker's words.
    pub worker: WorkerWords,
}
