//! Log files, and what is written to them.

pub mod door_logs;
pub mod logs;
pub mod obituary;
pub mod output;
pub mod slowlog;
pub mod so_far;
pub mod speech;
pub mod troubles;
pub mod voice;
pub mod words;
