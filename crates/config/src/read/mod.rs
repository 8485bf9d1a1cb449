//! From the text of `maitred.toml` to values: what each setting takes.

pub mod directive;
pub mod directives;
pub mod drafts;
pub mod listen;
pub mod position;
pub mod syntax;
pub mod units;
pub mod value;
