//! php-fpm's command line options about its configuration.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// php-fpm's command line options about its configuration.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The configuration file (`-y`).
    pub file: PathBuf,
    /// The base of relative paths (`-p`).
    pub prefix: Option<PathBuf>,
    /// The pid file (`-g`); `pid` in the configuration takes precedence.
    pub pid: Option<PathBuf>,
    /// Pools may run as root (`-R`).
    pub allow_root: bool,
    /// Log lines go to standard error though it is no terminal (`-O`).
    pub force_stderr: bool,
    /// Whether the process daemonizes (`-D`, `-F`); takes precedence over the configuration.
    pub daemonize: Option<bool>,
    /// Whether this process runs as root. Otherwise `user`, `group`, `chroot` and
    /// `process.priority` have no effect.
    pub is_root: bool,
    /// The php.ini or its directory (`-c`).
    pub php_ini: Option<PathBuf>,
    /// No php.ini is read (`-n`).
    pub no_php_ini: bool,
    /// Entries of php.ini (`-d`).
    pub defines: Vec<(String, String)>,
    /// The configuration is only tested (`-t`).
    pub test: bool,
    /// The environment for `${NAME}`, `env[NAME] = $NAME` and `clear_env = no`; none: this
    /// process's own.
    pub environment: Option<BTreeMap<String, String>>,
}

impl Options {
    pub(super) fn prefix_text(&self) -> Option<&str> {
        self.prefix.as_deref().and_then(|prefix| prefix.to_str())
    }

    pub(super) fn variable(&self, name: &str) -> Option<String> {
        match &self.environment {
            Some(all) => all.get(name).cloned(),
            None => std::env::var(name).ok(),
        }
    }

    /// All variables in their order, except those that are not UTF-8.
    pub(super) fn variables(&self) -> Vec<(String, String)> {
        let text = |text: OsString| text.into_string().ok();
        match &self.environment {
            Some(all) => all.clone().into_iter().collect(),
            None => std::env::vars_os()
                .filter_map(|(name, value)| Some((text(name)?, text(value)?)))
                .collect(),
        }
    }
}
