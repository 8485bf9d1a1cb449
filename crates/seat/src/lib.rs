//! The seat link: carries a request from the front to a worker and the response back, through
//! shared memory, without a system call while both are awake.
//!
//! Each pool has one shared file, created and sealed by the supervisor ([`create`]). Each seat in
//! it has a few slots; a slot holds one request at a time and consists of its words
//! ([`slot_words`]), a request ring (front → worker) and a response ring (worker → front). Both
//! rings carry FastCGI records. All slots but one are for queued requests, so that a busy worker
//! finds the next one without sleeping; the front can take them back until the worker claims them.
//!
//! ```text
//! FREE ──offer (front)──▶ OFFERED ──claim (worker)──▶ CLAIMED ──finish (worker)──▶ DONE
//!   ▲                        │                                                      │
//!   ╰──── take back (front) ─╯◀───────────────────── release (front) ───────────────╯
//! ```
//!
//! Trust is one-way. The front keeps its own copy of every counter it writes, validates every
//! counter it reads, and copies bytes out before they are parsed: a worker can corrupt its own
//! responses and nothing else.
#![allow(unsafe_code)]

pub mod board;
mod boards;
mod front;
mod layout;
mod pool_state;
mod ring;
mod slot_words;
mod spent;
mod worker;

/// The atomics of [`slot_words`], in whose place a test has those of loom.
mod atomics {
    pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}

pub use {
    boards::Boards,
    front::{Asleep, AssignedSlot, Broken, FrontEnd, SlotProgress, SlotState},
    layout::{
        ANSWER_RING_BYTES, CALL_BYTES, MAX_THREADS, REQUEST_RING_BYTES, SLOTS_PER_SEAT, create,
    },
    pool_state::{PoolState, WorkerState},
    slot_words::{MAX_INCARNATION, is_newer, next_incarnation},
    spent::Spent,
    worker::{PoolMap, Verdict, WorkerEnd},
};

#[cfg(test)]
mod tests {
    mod boards_and_signs;
    mod corrupted;
    mod figures;
    mod hostile;
    mod layout_parts;
    mod link;
    mod spent;
}
