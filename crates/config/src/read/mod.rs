//! From the text of `maitred.toml` to the values of its settings.

pub mod directive;
pub mod directives;
pub mod drafts;
pub mod foreign;
mod foreign_names;
pub mod listen;
pub mod pool_defaults;
pub mod syntax;
pub mod units;
pub mod value;
