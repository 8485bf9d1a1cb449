//! How many workers each pool may have: processors, memory, `process.max`.

pub mod process_max;
pub mod room;
pub mod spare;
