//! A generation of a pool: its zygote, its workers, and the decisions about them.

pub mod adopt;
pub mod backoff;
pub mod breaches;
pub mod cache;
pub mod copies;
pub mod growth;
pub mod life;
pub mod outgrown;
pub mod pool;
pub mod reason;
pub mod running;
pub mod scores;
pub mod slow;
pub mod traces;
pub mod warm;
