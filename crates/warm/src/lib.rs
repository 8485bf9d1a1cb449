//! Fills a page cache: asks for addresses at a bounded rate, over a bounded number of connections,
//! and says of each what the cache has done with it.
//!
//! [`sitemap`] and [`verdict`] read what servers say, without I/O; [`client`] asks; [`run`] is the
//! whole.

pub mod client;
pub mod run;
pub mod sitemap;
pub mod verdict;

/// A text and a line's end are no part of an address.
pub(crate) fn trimmed(text: &str) -> Option<&str> {
    Some(text.trim()).filter(|text| !text.is_empty())
}
