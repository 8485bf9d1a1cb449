//! Static files: their metadata, and the responses to requests for them.
//!
//! No function here writes to a connection. [`response`] decides; the connection sends.

pub(crate) mod entry;
pub(crate) mod ranges;
pub(crate) mod resident;
pub(crate) mod response;

#[cfg(test)]
mod tests;

pub use crate::site::files::entry::{FileBody, FilePlace, StaticFile, load};
pub use crate::site::files::resident::{Residency, residency};
pub use crate::site::files::response::{Conditions, response};
