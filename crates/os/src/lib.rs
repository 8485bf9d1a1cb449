//! Operating-system calls that no safe library offers whole: forking, starting programs with chosen
//! descriptors and users, signals as events, shared memory, process titles.
//!
//! This is one of the three crates that may contain `unsafe`; every block names its invariant.
#![allow(unsafe_code)]

pub mod capabilities;
pub mod cgroup;
pub mod channel;
pub mod clock;
pub mod collector;
pub mod cpu;
pub mod descriptors;
pub mod environment;
pub mod folder_lookups;
pub mod fork;
pub mod forked_task;
pub mod guarded;
pub mod heap;
pub mod holes;
pub mod keyring;
pub mod limits;
pub mod own_files;
pub mod packets;
pub mod preemption;
pub mod proc;
pub mod process_memory;
pub mod rewind;
pub mod roots;
pub mod schedstat;
pub mod sealed;
pub mod seccomp;
pub mod shared;
pub mod signals;
pub mod sigterm;
pub mod sockets;
pub mod spawn;
pub mod stderr;
pub mod thread_stack;
pub mod timed_child;
pub mod title;
pub mod users;
pub mod walk;
