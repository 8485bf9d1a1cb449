//! The target of a log.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::model::collector::Collector;

/// The target of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogTarget {
    /// The standard error output of the supervisor.
    Stderr,
    /// A file, appended to; an absolute path.
    File(PathBuf),
    /// The system's log, by the settings of php-fpm.
    Syslog,
    /// A log collector.
    Collector(Collector),
}

impl std::fmt::Display for LogTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LogTarget::Stderr => f.write_str("stderr"),
            LogTarget::Syslog => f.write_str("syslog"),
            LogTarget::File(path) => path.display().fmt(f),
            LogTarget::Collector(collector) => collector.fmt(f),
        }
    }
}
