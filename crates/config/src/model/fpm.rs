//! Settings of php-fpm's `[global]` section without a counterpart in `maitred.toml`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::confinement::CoreSize;

/// What php-fpm's configuration says of the whole server that [`crate::Config`] has no place for.
/// Its presence there means: behave as php-fpm does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fpm {
    /// The configuration file, as the title of the process shows it.
    pub file: PathBuf,
    /// The file to which the supervisor's process id is written.
    pub pid: Option<PathBuf>,
    /// How much is logged.
    pub log_level: Level,
    /// Longest line of the log, in bytes; longer ones are wrapped.
    pub log_limit: usize,
    /// Each line of the log is one write.
    pub log_buffering: bool,
    /// The name that messages to syslog carry.
    pub syslog_ident: String,
    /// The facility of messages to syslog, as `syslog.h` numbers it (`LOG_DAEMON` is 24).
    pub syslog_facility: i32,
    /// So many workers dead by SIGSEGV or SIGBUS within the interval begin a reload; 0 is never.
    pub emergency_restart_threshold: u32,
    /// The interval of `emergency_restart_threshold`; zero is never.
    pub emergency_restart_interval: Duration,
    /// Most workers of all pools together; 0 is without limit.
    pub process_max: u32,
    /// The nice value of the supervisor.
    pub process_priority: Option<i32>,
    /// Open files of the supervisor.
    pub rlimit_files: Option<u64>,
    /// Core size of the supervisor.
    pub rlimit_core: Option<CoreSize>,
    /// The supervisor goes to the background.
    pub daemonize: bool,
    /// How often systemd is told how the server is; zero is never.
    pub systemd_interval: Duration,
    /// Pools may run as root (`--allow-to-run-as-root`).
    pub allow_root: bool,
    /// Log lines go to standard error though it is no terminal (`--force-stderr`).
    pub force_stderr: bool,
    /// What php-fpm's workers say of the configuration when they start, by the name of their pool:
    /// it is logged where what they say is, once the server is ready to handle connections.
    pub said_when_ready: BTreeMap<String, Vec<(Level, String)>>,
}

/// How important a message is, as php-fpm's `log_level` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Everything.
    Debug,
    /// What is to be known.
    Notice,
    /// What may become a fault.
    Warning,
    /// What failed.
    Error,
    /// What needs somebody at once.
    Alert,
}

impl Level {
    /// As a line of the log names it.
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
