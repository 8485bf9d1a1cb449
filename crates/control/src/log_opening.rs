//! What the supervisor and a process that opens logs for it say: the order is an anonymous file
//! that the process inherits, its reports are messages, each with the descriptor of an open log.

use std::path::PathBuf;

use maitred_os::users::Identity;
use maitred_os::walk::Untrusted;
use serde::{Deserialize, Serialize};

/// Logs to open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogsToOpen {
    /// The groups that the supervisor does not trust.
    pub untrusted_groups: Untrusted,
    /// The logs.
    pub logs: Vec<LogToOpen>,
}

/// A log to open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogToOpen {
    /// The file.
    pub path: PathBuf,
    /// What logs to it.
    pub use_of: LogUse,
}

/// What logs to a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogUse {
    /// A site.
    Site,
    /// The FastCGI listener of a pool of this user; none: the user of the server.
    Listener(Option<Identity>),
}

/// A log was opened, or was not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogReport {
    /// Its place in the order.
    pub number: usize,
    /// Why it was not opened.
    pub refused: Option<String>,
}
