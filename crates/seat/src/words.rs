//! The words that both ends of a seat link read and write, and the few steps on them whose order
//! matters. Everything here also runs under loom, which tries every interleaving.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

const FREE: u32 = 0;
const OFFERED: u32 = 1;
const CLAIMED: u32 = 2;
const DONE: u32 = 3;
const STATE_BITS: u32 = 2;

/// Highest incarnation of a worker: a state word has no room for more. [`next_incarnation`] goes on
/// with 1 after it.
pub const MAX_INCARNATION: u32 = u32::MAX >> STATE_BITS;

/// The incarnation after this one. 0 is none.
pub fn next_incarnation(incarnation: u32) -> u32 {
    match incarnation & MAX_INCARNATION {
        MAX_INCARNATION => 1,
        other => other + 1,
    }
}

/// Whether two numbers name the same incarnation, also where one of them comes from a state word.
pub fn is_same(one: u32, other: u32) -> bool {
    (one ^ other) & MAX_INCARNATION == 0
}

/// Whether incarnation `other` came after `own`. Numbers wrap around: of two, the later one is less
/// than half of all numbers ahead (RFC 1982).
pub fn is_newer(other: u32, own: u32) -> bool {
    let ahead = other.wrapping_sub(own) & MAX_INCARNATION;
    (1..=MAX_INCARNATION / 2).contains(&ahead)
}

/// What a slot's state word says. Offers and claims name the worker (incarnation) they are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Nothing in it.
    Free,
    /// A request that nobody has begun.
    Offered,
    /// A request that the worker is running.
    Claimed,
    /// The worker is through with it; its answer may still lie in the ring.
    Done,
}

fn pack(state: u32, incarnation: u32) -> u32 {
    (incarnation & MAX_INCARNATION) << STATE_BITS | state
}

/// A slot's state: the one word that both ends change.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct StateWord(AtomicU32);

impl StateWord {
    #[cfg(loom)]
    pub fn new() -> StateWord {
        StateWord(AtomicU32::new(0))
    }

    /// The state and whom it is about. Sees everything written before the state was set.
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

    /// Front: the slot's request is written and the worker may begin it.
    pub fn offer(&self, incarnation: u32) {
        self.0.store(pack(OFFERED, incarnation), Ordering::Release);
    }

    /// Front: the request is needed elsewhere. False when the worker was first.
    pub fn take_back(&self, incarnation: u32) -> bool {
        self.change(pack(OFFERED, incarnation), FREE)
    }

    /// Worker: begins what is offered to it. False when there is nothing, or not any more.
    pub fn claim(&self, incarnation: u32) -> bool {
        let offered = pack(OFFERED, incarnation);
        self.0.load(Ordering::Relaxed) == offered
            && self.change(offered, pack(CLAIMED, incarnation))
    }

    /// Worker: the answer is complete and nothing more will be written.
    pub fn finish(&self, incarnation: u32) {
        self.0.store(pack(DONE, incarnation), Ordering::Release);
    }

    /// Front: the answer has been taken and the slot may be used again.
    pub fn release(&self, incarnation: u32) {
        self.change(pack(DONE, incarnation), FREE);
    }

    /// Front: whatever an earlier worker left here is void.
    pub fn reset(&self) {
        self.0.store(FREE, Ordering::Release);
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.0
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}

/// More than can sleep on one word (futex(2) takes a signed number).
#[cfg(not(loom))]
pub const WHOEVER_SLEEPS: u32 = i32::MAX as u32;

/// Whether somebody sleeps and must be woken. One owner goes to sleep, anybody may wake it.
///
/// The rule that loses no wake-up: the sleeper says that it sleeps, and *then* looks for work; the
/// waker leaves work, and *then* looks for sleepers; a full fence between the two on either side.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct SleepWord(AtomicU32);

impl SleepWord {
    #[cfg(loom)]
    pub fn new() -> SleepWord {
        SleepWord(AtomicU32::new(0))
    }

    /// Owner: says that it is about to sleep. It must look for work once more before it does.
    pub fn announce(&self) {
        self.0.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Owner: it is awake again, or never went to sleep.
    pub fn awake(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Anybody, after leaving work: whether it falls to the caller to wake the owner. Of several
    /// callers one is told so.
    pub fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) == 1 && self.0.swap(0, Ordering::AcqRel) == 1
    }

    /// Whether the owner still counts as asleep.
    #[cfg(loom)]
    pub fn is_announced(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 1
    }

    /// The word itself, to wait on.
    #[cfg(not(loom))]
    pub fn word(&self) -> &AtomicU32 {
        &self.0
    }
}

/// What the front writes and the worker reads, in a cache line of its own.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct FrontWords {
    /// Bytes put into the request ring since the offer.
    pub request_head: AtomicU32,
    /// Bytes taken out of the answer ring since the offer.
    pub answer_tail: AtomicU32,
    /// Front thread that waits for the answer.
    pub thread: AtomicU32,
    /// Front that made the offer.
    pub epoch: AtomicU32,
    /// Not 0: nobody wants the answer any more.
    pub gone: AtomicU32,
    /// Number of the last wish that was heard to its end.
    pub granted: AtomicU32,
    /// What came of it.
    pub verdict: AtomicU32,
    /// When the offer was made, in nanoseconds on the clock that never goes backwards; 0: by a front
    /// that does not say.
    pub lent_at: AtomicU64,
}

/// The script goes on when its answer is complete. Written before the end of the answer can be seen.
pub const GOES_ON: u32 = 1;
/// OPcache is full. Written before the request ends.
pub const CACHE_FULL: u32 = 2;

/// What the worker writes and the front reads, in a cache line of its own.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct WorkerWords {
    /// Bytes put into the answer ring since the offer, and meant to be seen.
    pub answer_head: AtomicU32,
    /// Bytes taken out of the request ring since the offer.
    pub request_tail: AtomicU32,
    /// Number of the last wish: something that the front is to do for the script, which waits for
    /// it. 0: there has been none since the offer.
    pub wish: AtomicU32,
    /// How long it is, in bytes.
    pub wish_bytes: AtomicU32,
    /// What there is to know beside ([`GOES_ON`], [`CACHE_FULL`]).
    pub signs: AtomicU32,
    /// How long the script took, in microseconds; 0: nothing is said. Written before the request ends.
    pub took: AtomicU32,
    /// What the request has cost.
    pub spent: SpentWords,
}

/// What a request has cost its worker until its answer was complete. Written before the end of the
/// answer can be seen, and once more before the end of a script that has gone on: what all of it has cost.
#[derive(Debug)]
#[repr(C)]
pub struct SpentWords {
    /// How long the worker had it, in microseconds; 0: nothing is said.
    pub held: AtomicU64,
    /// Processor time of the worker, in microseconds.
    pub cpu: AtomicU64,
    /// How long it waited for a processor, in microseconds, and one more; 0: that is not known.
    pub core_wait: AtomicU64,
    /// Processor time of children that it has collected, in microseconds.
    pub children: AtomicU64,
    /// The most memory that the script had, in bytes.
    pub peak_memory: AtomicU64,
}

#[cfg(not(loom))]
impl SlotWords {
    /// Makes it a free slot in which nothing is left of what anybody has written.
    pub fn clear(&self) {
        let FrontWords {
            request_head,
            answer_tail,
            thread,
            epoch,
            gone,
            granted,
            verdict,
            lent_at,
        } = &self.front;
        let WorkerWords {
            answer_head,
            request_tail,
            wish,
            wish_bytes,
            signs,
            took,
            spent,
        } = &self.worker;
        let all = [
            request_head,
            answer_tail,
            thread,
            epoch,
            gone,
            granted,
            verdict,
            answer_head,
            request_tail,
            wish,
            wish_bytes,
            signs,
            took,
        ];
        for word in all {
            word.store(0, Ordering::Relaxed);
        }
        lent_at.store(0, Ordering::Relaxed);
        spent.clear();
        self.state.reset();
    }
}

#[cfg(not(loom))]
impl SpentWords {
    fn clear(&self) {
        let SpentWords {
            held,
            cpu,
            core_wait,
            children,
            peak_memory,
        } = self;
        for word in [held, cpu, core_wait, children, peak_memory] {
            word.store(0, Ordering::Relaxed);
        }
    }
}

/// All words of a slot. All zero is a free slot.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct SlotWords {
    /// Who may do what.
    pub state: StateWord,
    /// The front's.
    pub front: FrontWords,
    /// The worker's.
    pub worker: WorkerWords,
}
