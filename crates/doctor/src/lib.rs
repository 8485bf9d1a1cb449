//! What is wrong with a PHP server's settings on this machine: ours, or php-fpm with nginx or Apache.
//!
//! [`read`] collects [`facts`], and knows nothing of what is good or bad. [`checks`] looks at facts,
//! and touches nothing. What could not be found out is a fact, too, with its reason, so that no check
//! passes because nobody looked.

mod addresses;
pub mod checks;
pub mod facts;
pub mod finding;
mod ini_value;
pub mod manual;
mod quantile;
pub mod read;
pub mod report;
pub mod rules;

pub use read::{MemoryGroup, Options, Scope, read};
pub use report::Report;

/// Looks at the machine, and says what was found.
pub fn examine(options: &Options) -> Report {
    let facts = read(options);
    Report::of(&facts)
}
