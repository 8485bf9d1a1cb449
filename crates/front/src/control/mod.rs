//! Start-up, and the supervisor's commands.

pub(crate) mod commands;
pub(crate) mod descriptors;
pub(crate) mod run;
