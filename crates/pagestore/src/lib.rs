//! Where kept pages are.
//!
//! [`store::Store`] is what others use. It has a memory tier ([`memory`]) in front of a disk tier
//! ([`disk`]): a page is looked for in the one and then by its name in the other, so a server that
//! has just been started finds what the one before has kept, without reading it all first. Large bodies
//! in memory are files of their own ([`body`]), from which the kernel can send them. What was
//! purged is a table of its own ([`purges`]) that every page is held against, wherever it is; it is
//! written down ([`journal`]) before a purge returns.
//!
//! All of it may be used from several threads. What touches the disk blocks; what does, says so.

pub mod body;
pub mod disk;
mod folder;
pub mod index;
pub mod journal;
pub mod memory;
pub mod object;
pub mod purges;
pub mod store;
pub mod uses;

pub use body::Body;
pub use object::{Object, Subject};
pub use store::{Limits, Looked, Place, Store};
