//! php-fpm's own configuration: `php-fpm.conf` and its pool files, read into the same settings as
//! `maitred.toml`.
//!
//! [`load`] does what php-fpm does before it starts: it reads the files (`lexer`, `grammar`,
//! `reader`), keeps what they say (`draft`, `entries`), checks it (`check`) and makes a
//! [`Config`] of it (`settle`, `address`).

mod accounts;
mod address;
mod check;
mod constants;
mod draft;
mod dump;
mod entries;
mod grammar;
mod lexer;
mod log;
mod paths;
mod reader;
mod settle;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::config::Config;
use crate::model::confinement::CoreSize;
use log::{Log, Refused};

pub use crate::model::access_format;
pub use grammar::{Statement, read_line};

/// php-fpm's command line, as far as its configuration is concerned.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The configuration file (`-y`).
    pub file: PathBuf,
    /// The folder that relative paths start from (`-p`).
    pub prefix: Option<PathBuf>,
    /// The pid file (`-g`); `pid` in the configuration goes before it.
    pub pid: Option<PathBuf>,
    /// Pools may run as root (`-R`).
    pub allow_root: bool,
    /// Log lines go to standard error though it is no terminal (`-O`).
    pub force_stderr: bool,
    /// Whether it goes to the background (`-D`, `-F`), whatever the configuration says.
    pub daemonize: Option<bool>,
    /// Whether this process is root's. Otherwise `user`, `group`, `chroot` and `process.priority`
    /// have no effect.
    pub is_root: bool,
    /// The php.ini or its folder (`-c`).
    pub php_ini: Option<PathBuf>,
    /// No php.ini is read (`-n`).
    pub no_php_ini: bool,
    /// Entries of php.ini (`-d`).
    pub defines: Vec<(String, String)>,
    /// The configuration is only tested (`-t`).
    pub test: bool,
    /// What `${NAME}`, `env[NAME] = $NAME` and `clear_env = no` take the values of variables from;
    /// none: this process's own environment.
    pub environment: Option<BTreeMap<String, String>>,
}

/// A configuration, and what there is to say about it.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The configuration; its `fpm` is set.
    pub config: Config,
    /// Lines for the log, in their order.
    pub messages: Vec<(Level, String)>,
    /// The configuration as `-tt` prints it: lines of level [`Level::Notice`], before the one that
    /// says `configuration file FILE test is successful`.
    pub dump: Vec<String>,
}

/// A configuration is refused.
#[derive(Debug, Clone)]
pub struct Failed {
    /// Lines for the log, in their order; among them why it is refused, at [`Level::Error`] or
    /// [`Level::Alert`]. php-fpm's last line, `FPM initialization failed`, is not among them.
    pub messages: Vec<(Level, String)>,
    /// How much is logged, if the files said so before they failed.
    pub log_level: Level,
}

/// Reads php-fpm's configuration. As php-fpm does, it makes the logs that do not exist yet. `php_ini`
/// tells an entry of php.ini, if there is one of a name: for `${NAME}`, it goes before the environment
/// (`zend_ini_get_var`).
///
/// # Errors
/// What php-fpm refuses, in its words, and beyond that: a Unix socket whose folder is missing or
/// whose path is too long, two pools that listen on one address however it is written, and text
/// that is not UTF-8.
pub fn load(options: &Options, php_ini: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, Failed> {
    let mut log = Log::default();
    let mut level = check::DEFAULT_LEVEL;
    match read(options, php_ini, &mut level, &mut log) {
        Ok((config, dump)) => Ok(Loaded {
            config,
            messages: log.0,
            dump,
        }),
        Err(Refused) => Err(Failed {
            messages: log.0,
            log_level: level,
        }),
    }
}

fn read(
    options: &Options,
    php_ini: &dyn Fn(&str) -> Option<String>,
    level: &mut Level,
    log: &mut Log,
) -> Result<(Config, Vec<String>), Refused> {
    let mut options = options.clone();
    if let Some(prefix) = &mut options.prefix {
        if !prefix.is_dir() {
            return Err(log.error(format!(
                "the global prefix '{}' does not exist or is not a directory",
                prefix.display()
            )));
        }
        *prefix = std::path::absolute(&prefix).unwrap_or_else(|_| prefix.clone());
    }
    let path_of_file = options.file.clone();
    let Some(file) = path_of_file.to_str() else {
        let file = options.file.display();
        return Err(log.error(format!(
            "the name of the configuration file '{file}' is not UTF-8; rename it"
        )));
    };
    let variable = |name: &str| php_ini(name).or_else(|| options.variable(name));
    let mut reader = reader::Reader::new(log, options.prefix_text(), &variable);
    reader.draft.globals.pid = options
        .pid
        .as_deref()
        .map(|pid| pid.to_string_lossy().into_owned());
    if let Err(Refused) = reader.read_file(file) {
        return Err(log.error(format!("failed to load configuration file '{file}'")));
    }
    let mut draft = reader.draft;
    *level = draft.globals.log_level.unwrap_or(*level);
    if let Err(Refused) = check::check(&mut draft, &options, log) {
        return Err(log.error("failed to post process the configuration"));
    }
    let config = settle::settle(&draft, &options, log)?;
    Ok((config, dump::dump(&draft)))
}

impl Options {
    fn prefix_text(&self) -> Option<&str> {
        self.prefix.as_deref().and_then(|prefix| prefix.to_str())
    }

    fn variable(&self, name: &str) -> Option<String> {
        match &self.environment {
            Some(all) => all.get(name).cloned(),
            None => std::env::var(name).ok(),
        }
    }

    /// All variables in their order, but those that are not UTF-8, which no pool can be told.
    fn variables(&self) -> Vec<(String, String)> {
        let text = |text: OsString| text.into_string().ok();
        match &self.environment {
            Some(all) => all.clone().into_iter().collect(),
            None => std::env::vars_os()
                .filter_map(|(name, value)| Some((text(name)?, text(value)?)))
                .collect(),
        }
    }
}

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
