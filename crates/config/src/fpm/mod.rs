//! php-fpm's own configuration: `php-fpm.conf` and its pool files, read into the same settings as
//! `maitred.toml`.
//!
//! [`load`] does what php-fpm does before its start: it reads the files (`lexer`, `grammar`,
//! `reader`) into drafts (`draft`, `entries`), checks them (`check`) and turns them into a
//! [`Config`] (`settle`, `address`).

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
mod options;
mod paths;
mod reader;
mod settle;

use crate::model::config::Config;
use log::{Log, Refused};

pub use crate::model::access_format;
pub use crate::model::fpm::{Fpm, Level};
pub use grammar::{Statement, read_line};
pub use options::Options;

/// A configuration and the messages about it.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The configuration; its `fpm` is set.
    pub config: Config,
    /// Lines for the log, in their order.
    pub messages: Vec<(Level, String)>,
    /// The configuration as `-tt` prints it: lines of level [`Level::Notice`], before the line
    /// `configuration file FILE test is successful`.
    pub dump: Vec<String>,
}

/// A configuration is refused.
#[derive(Debug, Clone)]
pub struct Failed {
    /// Lines for the log, in their order; among them the reason, at [`Level::Error`] or
    /// [`Level::Alert`]. php-fpm's last line, `FPM initialization failed`, is not among them.
    pub messages: Vec<(Level, String)>,
    /// The log level, if the files set it before they failed.
    pub log_level: Level,
}

/// Reads php-fpm's configuration. As php-fpm does, it creates missing log files. `php_ini` looks up
/// an entry of php.ini: for `${NAME}`, it takes precedence over the environment
/// (`zend_ini_get_var`).
///
/// # Errors
/// php-fpm's errors, in its words, and beyond that: a Unix socket whose directory is missing or
/// whose path is too long, two pools with one address regardless of its spelling, and text that is
/// not UTF-8.
pub fn load(options: &Options, php_ini: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, Failed> {
    let mut log = Log::default();
    let mut level = entries::DEFAULT_LEVEL;
    match read(options, php_ini, &mut level, &mut log) {
        Ok((config, dump)) => Ok(Loaded { config, messages: log.0, dump }),
        Err(Refused) => Err(Failed { messages: log.0, log_level: level }),
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
    reader.draft.globals.pid = options.pid.as_deref().map(|pid| pid.to_string_lossy().into_owned());
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
