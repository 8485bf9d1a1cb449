//! Access logs of pools with a FastCGI listener (`access.log`) and of sites: opened here, opened
//! again on SIGUSR1, and sent to the front, which writes them.
//!
//! The original standard error is available only at the start, because the error log replaces it. A
//! server in the foreground keeps it in case a later configuration names it. A server in the
//! background must close it, since the program that started it may wait for that.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};

use maitred_config::{Config, Pool, SiteLog};
use maitred_os::stderr;
use tracing::{error, info};

use crate::error::Error;
use crate::logging::log_files;
use crate::system::identity;

/// Names of standard error, which may be something that cannot be opened, such as a socket.
const STANDARD_ERROR: [&str; 3] = [KEPT, "/dev/fd/2", "/proc/self/fd/2"];

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
    pub fn at_start(config: &Config) -> Result<PoolAccessLogs, Error> {
        let mut logs = PoolAccessLogs::default();
        if keeps_standard_error(config) {
            let kept = stderr::another();
            let kept = kept.map_err(Error::system("standard error could not be kept"))?;
            logs.0.insert(KEPT.into(), kept.into());
        }
        let opened = PoolAccessLogs::open(config, &logs)?;
        logs.0.extend(opened.0);
        Ok(logs)
    }

    /// Opens those of a configuration that are not among `known`.
    ///
    /// # Errors
    /// The message of php-fpm about a log that cannot be opened (`fpm_log_open`).
    pub fn open(config: &Config, known: &PoolAccessLogs) -> Result<PoolAccessLogs, Error> {
        let mut opened = PoolAccessLogs::default();
        for pool in &config.pools {
            let Some(settings) = &pool.pool_access_log else {
                continue;
            };
            let path = &settings.path;
            if known.0.contains_key(path) || opened.0.contains_key(path) {
                continue;
            }
            let file = open_of(pool, path, config, known)?;
            opened.0.insert(path.clone(), file);
        }
        for path in of_sites(config) {
            if known.0.contains_key(path) || opened.0.contains_key(path) {
                continue;
            }
            opened.0.extend(open_of_site(path).map(|file| (path.clone(), file)));
        }
        Ok(opened)
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
    pub fn reopened(&self, config: &Config) -> (PoolAccessLogs, bool) {
        let mut is_well = true;
        let mut again = PoolAccessLogs::default();
        for pool in &config.pools {
            let path = pool.pool_access_log.as_ref().map(|log| &log.path);
            let is_done = |path: &PathBuf| again.0.contains_key(path) || is_standard_error(path);
            let Some(path) = path.filter(|path| !is_done(path)) else {
                continue;
            };
            match open_of(pool, path, config, self) {
                Ok(file) => {
                    again.0.insert(path.clone(), file);
                }
                Err(why) => {
                    error!(target: "fpm", "{why}");
                    is_well = false;
                }
            }
        }
        for path in of_sites(config) {
            if again.0.contains_key(path) {
                continue;
            }
            match log_files::open(path) {
                Ok(file) => {
                    info!("the access log {} was opened again", path.display());
                    again.0.insert(path.clone(), file);
                }
                Err(why) => {
                    let name = path.display();
                    error!("{}", log_files::not_reopened("access", &name, &why));
                    is_well = false;
                }
            }
        }
        (again, is_well)
    }
}

/// The files that sites log to; a file of several sites is listed several times.
fn of_sites(config: &Config) -> impl Iterator<Item = &PathBuf> {
    config.sites.iter().filter_map(|site| match &site.access_log {
        SiteLog::File(path) => Some(path),
        SiteLog::Server | SiteLog::Off => None,
    })
}

/// The log of a site; none if it cannot be opened, which is logged, and no reason not to serve it.
fn open_of_site(path: &Path) -> Option<File> {
    let opened = log_files::open(path);
    // A missing folder is a fault of the site, which is logged elsewhere.
    if let Err(why) = &opened
        && path.parent().is_some_and(Path::is_dir)
    {
        error!(
            "the access log {} of a site cannot be opened: {why}; correct access_log or the rights \
             of its folder, and reload; requests are not logged until then",
            path.display()
        );
    }
    opened.ok()
}

fn open_of(
    pool: &Pool,
    path: &Path,
    config: &Config,
    known: &PoolAccessLogs,
) -> Result<File, Error> {
    let kept = known.0.get(Path::new(KEPT));
    let opened = match (is_standard_error(path), kept) {
        (true, Some(kept)) => kept.try_clone(),
        (true, None) => stderr::another().map(File::from),
        (false, _) => {
            let identity = identity::of_pool(pool, config)?;
            log_files::open_of_listener(path, identity.as_ref())
        }
    };
    opened.map_err(|why| {
        let path = path.display();
        Error::Configuration(format!(
            "[pool {}] failed to open access log ({path}): {why}",
            pool.name
        ))
    })
}

fn keeps_standard_error(config: &Config) -> bool {
    config.fpm.as_ref().is_some_and(|fpm| !fpm.daemonize)
}

fn is_standard_error(path: &Path) -> bool {
    STANDARD_ERROR.iter().any(|name| path == Path::new(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use maitred_config::PoolAccessLog;

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
        let folder = tempfile::tempdir().unwrap();
        let both = config(folder.path(), &["a.log", "b.log", "a.log"]);
        let mut logs = PoolAccessLogs::open(&both, &PoolAccessLogs::default()).unwrap();
        assert_eq!(logs.descriptors().len(), 2);
        let one = config(folder.path(), &["b.log", "c.log"]);
        let opened = PoolAccessLogs::open(&one, &logs).unwrap();
        assert_eq!(opened.descriptors().len(), 1);
        logs.use_for(&one, opened);
        let paths: Vec<PathBuf> = logs.0.keys().cloned().collect();
        assert_eq!(paths, [folder.path().join("b.log"), folder.path().join("c.log")]);
    }

    #[test]
    fn a_log_that_cannot_be_had_is_told_in_php_fpms_words() {
        let folder = tempfile::tempdir().unwrap();
        let missing = config(&folder.path().join("missing"), &["a.log"]);
        let why = PoolAccessLogs::open(&missing, &PoolAccessLogs::default()).unwrap_err();
        let why = why.to_string();
        assert!(why.contains("[pool a.log] failed to open access log ("), "{why}");
    }

    #[test]
    fn standard_error_needs_not_be_opened() {
        let stderr = config(Path::new("/dev"), &["stderr"]);
        let logs = PoolAccessLogs::open(&stderr, &PoolAccessLogs::default()).unwrap();
        assert_eq!(logs.descriptors().len(), 1);
    }
}
