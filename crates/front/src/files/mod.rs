//! Static files: what is known of one, and the answers it gives.
//!
//! Nothing here writes HTTP bytes to a connection. [`answer`] decides; the connection sends.

mod answer;
mod entry;
mod piece;
mod ranges;
mod resident;
#[cfg(test)]
mod tests;

pub use answer::{Answer, AnswerBody, Conditions, Part, answer};
pub use entry::{Body, Entry, Identity, Loaded, SMALL_FILE, load, read_all};
pub use piece::read_piece;
pub use ranges::{MOST_PARTS, Slice};
pub use resident::{Residency, residency};
