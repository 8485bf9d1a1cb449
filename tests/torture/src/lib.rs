//! Torture: a whole server with real traffic of all kinds, while faults are injected at random.
//!
//! Invariants: a response is right, or an honest error; only requests fail that a fault excuses;
//! after each fault everything is served again; nothing leaks. The same seed injects the same
//! faults.

pub mod campaign;
pub mod faults;
pub mod footprint;
pub mod groups;
pub mod jobs;
pub mod kind;
pub mod ledger;
pub mod names;
pub mod namespace;
pub mod network;
pub mod nodes;
pub mod plan;
pub mod site;
pub mod trace_collector;
pub mod traffic;
pub mod upstream;
