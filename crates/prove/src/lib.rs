//! Compares two servers of the same sites, an old and a new one: what to request, what varies by
//! itself, what differs, and which rule on each side decides.
//!
//! All decisions are pure: [`frontier`] and [`secret_paths`] choose what to request, [`page_links`]
//! finds more, [`varying`] learns from two responses of the old server what varies by itself,
//! [`difference`] compares, [`accepted`] knows the differences that every site has, and
//! [`causes`] groups the rest. [`client`] sends requests, and [`run`] does the whole.

pub mod accepted;
pub mod causes;
pub mod client;
pub mod difference;
pub mod frontier;
pub mod page_links;
pub mod probe;
pub mod report_text;
pub mod run;
pub mod secret_paths;
pub mod varying;
