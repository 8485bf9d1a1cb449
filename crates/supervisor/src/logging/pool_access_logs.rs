//! Access logs of pools with a FastCGI listener (`access.log`) and of sites: opened here, opened
//! again on SIGUSR1, and sent to the front, which writes them.
//!
//! The original standard error is available only at the start, because the error log replaces it. A
//! server in the foreground keeps it in case a later configuration names it. A server in the
//! background must close it, since the program that started it may wait for that.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use maitred_config::{Config, Pool, SiteLog};
use maitred_control::log_opening::{LogToOpen, LogUse};
use maitred_os::stderr;
use tracing::{error, info};

use crate::error::Error;
use crate::limits::{LOG_OPEN_TIMEOUT, LOG_OPEN_TIMEOUT_AT_START};
use crate::logging::log_files::{self, is_standard_error};
use crate::logging::log_openers::LogOpeners;
use crate::system::identity;

/// The name under which standard error is kept.
const KEPT: &str = "/dev/stderr";

/// The files, by path; several pools may share one.
#[derive(Debug, Default)]
pub struct PoolAccessLogs(BTreeMap<PathBuf, File>);

impl PoolAccessLogs {
    /// Opens those of the initial configuration.
    ///
    /// # Errors
    /// As [`PoolAccessLogs::open`].
    pub fn at_start(config: &Config, openers: &mut LogOpeners) -> Result<PoolAccessLogs, Error> {
        let mut logs = PoolAccessLogs::default();
        if keeps_standard_error(config) {
            let kept = stderr::another();
            let kept = kept.map_err(Error::system("standard error could not be kept"))?;
            logs.0.insert(KEPT.into(), kept.into());
        }
        let opened = logs.open_others(config, openers, LOG_OPEN_TIMEOUT_AT_START)?;
        logs.0.extend(opened.0);
        Ok(logs)
    }

    /// Opens those of a configuration that are not among `known`.
    ///
    /// # Errors
    /// The message of php-fpm about a log that cannot be opened (`fpm_log_open`), if the server was
    /// started as php-fpm.
    pub fn open(
        config: &Config,
        known: &PoolAccessLogs,
        openers: &mut LogOpeners,
    ) -> Result<PoolAccessLogs, Error> {
        known.open_others(config, openers, LOG_OPEN_TIMEOUT)
    }

    fn open_others(
        &self,
        config: &Config,
        openers: &mut LogOpeners,
        limit: Duration,
    ) -> Result<PoolAccessLogs, Error> {
        let mut wanted = logs_of(config);
        wanted.retain(|log| !self.0.contains_key(log.path));
        let mut opened = PoolAccessLogs::default();
        let outcomes = self.open_all(&wanted, config, openers, limit);
        for (log, outcome) in wanted.iter().zip(outcomes) {
            let file = match (log.pool, outcome) {
                (_, Ok(file)) => file,
                (Some(pool), Err(why)) if config.fpm.is_some() => {
                    return Err(log.error_of_pool(pool, &why));
                }
                (pool, Err(why)) => {
                    log.log_error(if pool.is_some() { "FastCGI listener" } else { "site" }, &why);
                    continue;
                }
            };
            opened.0.insert(log.path.clone(), file);
        }
        Ok(opened)
    }

    /// Opens logs, those that may wait for a tenant by processes of their own, and returns the
    /// outcomes in their order.
    fn open_all(
        &self,
        wanted: &[ConfiguredLog<'_>],
        config: &Config,
        openers: &mut LogOpeners,
        limit: Duration,
    ) -> Vec<io::Result<File>> {
        let (mut late, mut waiting) = (Vec::new(), Vec::new());
        let mut outcomes = Vec::new();
        for (place, log) in wanted.iter().enumerate() {
            outcomes.push(match self.open_at_once(log, config) {
                Ok(Attempt::Opened(file)) => Ok(file),
                Ok(Attempt::MayWait(log)) => {
                    late.push(place);
                    waiting.push(log);
                    Err(io::ErrorKind::WouldBlock.into())
                }
                Err(why) => Err(why),
            });
        }
        for (place, outcome) in late.into_iter().zip(openers.open(&waiting, limit)) {
            outcomes[place] = outcome.map_err(io::Error::other);
        }
        outcomes
    }

    fn open_at_once(&self, log: &ConfiguredLog<'_>, config: &Config) -> io::Result<Attempt> {
        let use_of = match log.pool {
            None => LogUse::Site,
            Some(_) if is_standard_error(log.path) => {
                let kept = self.0.get(Path::new(KEPT));
                let file = kept.map_or_else(|| stderr::another().map(File::from), File::try_clone);
                return file.map(Attempt::Opened);
            }
            Some(pool) => {
                let identity = identity::of_pool(pool, config);
                LogUse::Listener(identity.map_err(|why| io::Error::other(why.to_string()))?)
            }
        };
        let log = LogToOpen { path: log.path.clone(), use_of };
        let opened = log_files::open_log_at_once(&log)?;
        Ok(opened.map_or(Attempt::MayWait(log), Attempt::Opened))
    }

    /// Restores those that the program before an upgrade had open.
    pub fn inherited(files: impl IntoIterator<Item = (PathBuf, File)>) -> PoolAccessLogs {
        PoolAccessLogs(files.into_iter().collect())
    }

    /// Each with its descriptor number.
    pub fn descriptors(&self) -> Vec<(PathBuf, RawFd)> {
        let all = self.0.iter();
        all.map(|(path, file)| (path.clone(), file.as_raw_fd())).collect()
    }

    /// Adds the files opened for a configuration, and closes those that it does not use.
    pub fn use_for(&mut self, config: &Config, opened: PoolAccessLogs) {
        self.0.extend(opened.0);
        let used = |path: &PathBuf| {
            let mut logs = config.pools.iter().filter_map(|pool| pool.pool_access_log.as_ref());
            logs.any(|log| log.path == *path) || of_sites(config).any(|log| log == path)
        };
        let is_kept = |path: &Path| keeps_standard_error(config) && path == Path::new(KEPT);
        self.0.retain(|path, _| is_kept(path) || used(path));
    }

    /// All of them, by path.
    pub fn iter(&self) -> impl Iterator<Item = (&PathBuf, &File)> {
        self.0.iter()
    }

    /// Replaces the files of the same paths.
    pub fn extend(&mut self, again: PoolAccessLogs) {
        self.0.extend(again.0);
    }

    /// Opens all of them again after a rotation. False when one cannot be opened.
    pub fn reopened(&self, config: &Config, openers: &mut LogOpeners) -> (PoolAccessLogs, bool) {
        let mut is_well = true;
        let mut again = PoolAccessLogs::default();
        let mut wanted = logs_of(config);
        wanted.retain(|log| log.pool.is_none() || !is_standard_error(log.path));
        let outcomes = self.open_all(&wanted, config, openers, LOG_OPEN_TIMEOUT);
        for (log, outcome) in wanted.iter().zip(outcomes) {
            let name = log.path.display();
            match (log.pool, outcome) {
                (pool, Ok(file)) => {
                    if pool.is_none() {
                        info!("the access log {name} was opened again");
                    }
                    again.0.insert(log.path.clone(), file);
                    continue;
                }
                (Some(pool), Err(why)) => {
                    error!(target: "fpm", "{}", log.error_of_pool(pool, &why));
                }
                (None, Err(why)) => error!("{}", log_files::not_reopened("access", &name, &why)),
            }
            is_well = false;
        }
        (again, is_well)
    }
}

/// A log of a configuration.
#[derive(Debug)]
struct ConfiguredLog<'a> {
    path: &'a PathBuf,
    /// The pool whose listener logs to it; none: a site does.
    pool: Option<&'a Pool>,
}

/// What came of opening a log at once.
#[derive(Debug)]
enum Attempt {
    Opened(File),
    /// That may wait for a tenant.
    MayWait(LogToOpen),
}

impl ConfiguredLog<'_> {
    fn error_of_pool(&self, pool: &Pool, why: &io::Error) -> Error {
        let path = self.path.display();
        Error::Configuration(format!(
            "[pool {}] failed to open access log ({path}): {why}",
            pool.name
        ))
    }

    /// The log of a site or a listener cannot be opened, which is no reason not to serve it.
    fn log_error(&self, of: &str, why: &io::Error) {
        // A missing folder is a fault of the site or pool, which is logged elsewhere.
        if matches!(why.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
            return;
        }
        error!(
            "the access log {} of a {of} cannot be opened: {why}; correct access_log or the rights \
             of its folder, and reload; requests are not logged until then",
            self.path.display()
        );
    }
}

/// The logs of a configuration, each once.
fn logs_of(config: &Config) -> Vec<ConfiguredLog<'_>> {
    let pools = config.pools.iter().filter_map(|pool| {
        let path = &pool.pool_access_log.as_ref()?.path;
        Some(ConfiguredLog { path, pool: Some(pool) })
    });
    let sites = of_sites(config).map(|path| ConfiguredLog { path, pool: None });
    let mut seen = BTreeSet::new();
    pools.chain(sites).filter(|log| seen.insert(log.path)).collect()
}

/// The files that sites log to; a file of several sites is listed several times.
fn of_sites(config: &Config) -> impl Iterator<Item = &PathBuf> {
    config.sites.iter().filter_map(|site| match &site.access_log {
        SiteLog::File(path) => Some(path),
        SiteLog::Server | SiteLog::Off => None,
    })
}

fn keeps_standard_error(config: &Config) -> bool {
    config.fpm.as_ref().is_some_and(|fpm| !fpm.daemonize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use maitred_config::PoolAccessLog;

    fn open(config: &Config, known: &PoolAccessLogs) -> Result<PoolAccessLogs, Error> {
        PoolAccessLogs::open(config, known, &mut LogOpeners::default())
    }

    fn config(folder: &Path, names: &[&str]) -> Config {
        let pool = |name: &&str| Pool {
            pool_access_log: Some(PoolAccessLog {
                path: folder.join(name),
                format: "%s".to_owned(),
                suppress_path: Vec::new(),
            }),
            ..Pool::named(name)
        };
        Config { pools: names.iter().map(pool).collect(), ..Config::default() }
    }

    #[test]
    fn a_file_is_opened_once_and_kept_as_long_as_a_pool_uses_it() {
        // Only its owner can list it, so the files are opened here.
        let mode = Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().permissions(mode).tempdir().unwrap();
        let both = config(folder.path(), &["a.log", "b.log", "a.log"]);
        let mut logs = open(&both, &PoolAccessLogs::default()).unwrap();
        assert_eq!(logs.descriptors().len(), 2);
        let one = config(folder.path(), &["b.log", "c.log"]);
        let opened = open(&one, &logs).unwrap();
        assert_eq!(opened.descriptors().len(), 1);
        logs.use_for(&one, opened);
        let paths: Vec<PathBuf> = logs.0.keys().cloned().collect();
        assert_eq!(paths, [folder.path().join("b.log"), folder.path().join("c.log")]);
    }

    #[test]
    fn a_log_that_cannot_be_opened_is_left_out() {
        let mode = Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().permissions(mode).tempdir().unwrap();
        let mut both = config(folder.path(), &["a.log", "b.log"]);
        let missing = folder.path().join("missing/a.log");
        both.pools[0].pool_access_log.as_mut().unwrap().path = missing;
        let opened = open(&both, &PoolAccessLogs::default()).unwrap();
        let paths: Vec<PathBuf> = opened.0.keys().cloned().collect();
        assert_eq!(paths, [folder.path().join("b.log")]);
    }

    #[test]
    fn standard_error_needs_not_be_opened() {
        let stderr = config(Path::new("/dev"), &["stderr"]);
        let logs = open(&stderr, &PoolAccessLogs::default()).unwrap();
        assert_eq!(logs.descriptors().len(), 1);
    }
}
