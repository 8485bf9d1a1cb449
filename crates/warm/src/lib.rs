//! Fills a page cache: requests pages at a limited rate, over a limited number of connections, and
//! reports what the cache has done with each.
//!
//! [`sitemap`] and [`verdict`] parse what servers send, without I/O; [`client`] sends requests;
//! `collect` reads sitemaps; [`run`] does the whole.

pub mod client;
mod collect;
pub mod run;
pub mod sitemap;
pub mod verdict;

/// Whitespace and line ends are no part of a URL.
pub(crate) fn trimmed(text: &str) -> Option<&str> {
    Some(text.trim()).filter(|text| !text.is_empty())
}
