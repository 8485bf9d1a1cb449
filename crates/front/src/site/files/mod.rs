//! Static files: what is known of one, and the answers it gives.
//!
//! Nothing here writes HTTP bytes to a connection. [`answer`] decides; the connection sends.

pub(crate) mod entry;
pub(crate) mod piece;
pub(crate) mod ranges;
pub(crate) mod resident;
pub(crate) mod response;

#[cfg(test)]
mod tests;

pub use crate::site::files::entry::{Body, Entry, load, read_all};
pub use crate::site::files::piece::read_piece;
pub use crate::site::files::resident::{Residency, residency};
pub use crate::site::files::response::{Conditions, answer};
