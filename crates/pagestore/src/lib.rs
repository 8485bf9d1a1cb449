//! The store of cached responses (pages).
//!
//! [`store::Store`] is the interface. It has a memory tier ([`memory`]) in front of a disk tier
//! ([`disk`]). A lookup checks memory first, then the file named after the key, so after a restart
//! the files of the previous process are used at once, without reading them all first. Large bodies
//! in memory are backed by memfds ([`body`]), from which the kernel sends them. Pages that clients
//! read without a place in memory are limited for each site ([`detached`]). Purges are a separate
//! table ([`purges`]) that is checked on every lookup, for both tiers; each is recorded in the
//! journal ([`journal`]) by a thread for that, before it counts as done.
//!
//! The store is thread-safe. Functions that access the disk block, and say so.

pub mod body;
pub mod detached;
mod dir_lock;
pub mod disk;
mod gate;
pub mod index;
pub mod journal;
pub mod memory;
pub mod object;
mod purge_queue;
pub mod purges;
mod shared_reads;
mod site_marks;
pub mod store;
pub mod uses;

pub use body::Body;
pub use object::{Object, Subject};
pub use site_marks::SiteMarks;
pub use store::{Limits, Lookup, PageKeys, Store};
