//! Settings of php-fpm's `[global]` section without a counterpart in `maitred.toml`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::confinement::CoreSize;

/// php-fpm's global settings without a field in [`crate::Config`]. If present, the server behaves
/// like php-fpm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fpm {
    /// The configuration file, for the process title.
    pub file: PathBuf,
    /// The pid file of the supervisor.
    pub pid: Option<PathBuf>,
    /// The lowest level that is logged.
    pub log_level: Level,
    /// Longest line of the log, in bytes; longer ones are wrapped.
    pub log_limit: usize,
    /// Whether each log line is written with one call.
    pub log_buffering: bool,
    /// The ident of syslog messages.
    pub syslog_ident: String,
    /// The facility of syslog messages, as in `syslog.h` (`LOG_DAEMON` is 24).
    pub syslog_facility: i32,
    /// Number of workers killed by SIGSEGV or SIGBUS within the interval that causes a reload; 0 is
    /// never.
    pub emergency_restart_threshold: u32,
    /// The interval of `emergency_restart_threshold`; zero is never.
    pub emergency_restart_interval: Duration,
    /// Maximum number of workers of all pools together; 0: unlimited.
    pub process_max: u32,
    /// The nice value of the supervisor.
    pub process_priority: Option<i32>,
    /// Open files of the supervisor.
    pub rlimit_files: Option<u64>,
    /// Core size of the supervisor.
    pub rlimit_core: Option<CoreSize>,
    /// The supervisor goes to the background.
    pub daemonize: bool,
    /// Interval of status notifications to systemd; zero is never.
    pub systemd_interval: Duration,
    /// Pools may run as root (`--allow-to-run-as-root`).
    pub allow_root: bool,
    /// Log lines go to standard error though it is no terminal (`--force-stderr`).
    pub force_stderr: bool,
    /// Messages of php-fpm's workers about the configuration at their start, by pool: logged like
    /// worker output, once the server is ready to handle connections.
    pub said_when_ready: BTreeMap<String, Vec<(Level, String)>>,
}

/// A log level of php-fpm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Everything.
    Debug,
    /// Normal events.
    Notice,
    /// Possible problems.
    Warning,
    /// Failures.
    Error,
    /// Failures that need action at once.
    Alert,
}

impl Level {
    /// Its name in log lines.
    pub fn name(self) -> &'static str {
        match self {
            Level::Debug => "DEBUG",
            Level::Notice => "NOTICE",
            Level::Warning => "WARNING",
            Level::Error => "ERROR",
            Level::Alert => "ALERT",
        }
    }
}
