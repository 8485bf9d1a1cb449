//! The seat link: how a request gets from the front to a worker and its answer back, through
//! memory that both have mapped, without a system call as long as both are awake.
//!
//! Each pool has one shared file, made and sealed by the supervisor ([`create`]). Each seat in it
//! has a few slots; a slot holds one request at a time and consists of its words ([`words`]), a
//! request ring (front → worker) and an answer ring (worker → front). Both rings carry FastCGI
//! records. All slots but one are for requests not yet begun, so that a busy worker finds its next
//! one without sleeping; they can be taken back until the worker claims them.
//!
//! ```text
//! FREE ──offer (front)──▶ OFFERED ──claim (worker)──▶ CLAIMED ──finish (worker)──▶ DONE
//!   ▲                        │                                                      │
//!   ╰──── take back (front) ─╯◀───────────────────── release (front) ───────────────╯
//! ```
//!
//! Trust runs one way. The front keeps its own copy of every counter it writes, checks every
//! counter it reads, and copies bytes out before anybody parses them: a worker can spoil its own
//! answers and nothing else.
#![allow(unsafe_code)]

// Under loom only the words are built: loom's atomics cannot lie in shared memory.
#[cfg(not(loom))]
pub mod board;
#[cfg(not(loom))]
mod boards;
#[cfg(not(loom))]
mod front;
#[cfg(not(loom))]
mod layout;
#[cfg(not(loom))]
mod ring;
#[cfg(not(loom))]
mod snapshot;
#[cfg(not(loom))]
mod spent;
#[cfg_attr(loom, allow(dead_code))]
mod words;
#[cfg(not(loom))]
mod worker;

#[cfg(not(loom))]
pub use {
    boards::Boards,
    front::{Asleep, Began, Broken, FrontEnd, Lent, SlotState},
    layout::{
        ANSWER_RING_BYTES, MAX_THREADS, REQUEST_RING_BYTES, SLOTS_PER_SEAT, WISH_BYTES, create,
    },
    snapshot::{Process, Snapshot},
    spent::Spent,
    words::{MAX_INCARNATION, is_newer, next_incarnation},
    worker::{Verdict, WorkerEnd, sleep_word},
};

#[cfg(test)]
mod tests {
    #[cfg(not(loom))]
    mod corrupted;
    #[cfg(not(loom))]
    mod figures;
    #[cfg(not(loom))]
    mod hostile;
    #[cfg(loom)]
    mod interleavings;
    #[cfg(not(loom))]
    mod link;
    #[cfg(not(loom))]
    mod spent;
}
