//! The process that passes purges of cached pages from node to node, over a stream of Redis or
//! Valkey. It alone waits for that server: neither the front nor the supervisor does. It runs as the
//! front's user and is sandboxed as the front is (docs/decisions/0018-purges-everywhere.md).

mod entry;
mod member;

/// A time of this machine, or a duration, in milliseconds.
pub type Millis = u64;
