//! `include`: the files of a configuration, and their tables as one.

mod gather;
mod merged_table;

pub(crate) use gather::gather;
pub(crate) use merged_table::{Merged, merged};
