//! The front processes, and the state that they share through the supervisor.

pub mod cookies;
pub mod front_stats;
pub mod purges;
