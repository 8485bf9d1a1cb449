//! Problems in the settings of a PHP server on this machine: maitred, or php-fpm with nginx or
//! Apache.
//!
//! [`read`] collects [`facts`] without judging them. [`checks`] judges facts without reading
//! anything. An unknown fact is a fact too, with its reason, so that no check passes because data
//! is missing.

mod addresses;
pub mod checks;
pub mod facts;
pub mod finding;
pub mod html;
mod ini_value;
pub mod manual;
pub mod opcache_shortage;
mod quantile;
pub mod read;
pub mod report;
pub mod rules;

pub use read::{MemoryGroup, Options, Scope, read};
pub use report::Report;

/// Examines the machine.
pub fn examine(options: &Options) -> Report {
    let facts = read(options);
    Report::of(&facts)
}
