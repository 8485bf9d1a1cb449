//! Text formats that several crates share.

pub mod access_log;
pub mod humanize;
pub mod look;
pub mod nginx_words;
pub mod wildcards;
