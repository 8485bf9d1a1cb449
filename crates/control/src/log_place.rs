//! Where the error log goes, for `maitred logs`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The error log of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundLog {
    /// Where it goes.
    pub place: LogPlace,
    /// The process id of the supervisor.
    pub supervisor: i32,
}

/// Where an error log goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogPlace {
    /// The standard error output of the supervisor.
    Stderr,
    /// A file.
    File(PathBuf),
    /// The journal with this socket.
    Journal(PathBuf),
    /// A collector, in the words of the setting.
    Elsewhere(String),
}
