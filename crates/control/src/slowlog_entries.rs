//! What the supervisor has a process write to a slow log whose path a tenant controls.

use std::path::PathBuf;

use maitred_os::users::Identity;
use serde::{Deserialize, Serialize};

/// Entries for a slow log, in an anonymous file that the process inherits. Its exit code is 0 when
/// all of them are written, and the number of the system's error (`errno`) otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowlogEntries {
    /// The user of the pool, whose rights the process has.
    pub identity: Identity,
    /// The log.
    pub path: PathBuf,
    /// Permission bits of a new file.
    pub mode: u32,
    /// The entries; empty: the file is created, and nothing else.
    pub entries: String,
}
