//! The log files of the server: opened, reopened on SIGUSR1, and sent to the fronts, which have
//! given up the right to open them.

use std::fs::File;
use std::os::fd::AsFd;

use maitred_config::{Config, LogTarget};
use maitred_control::ToFront;
use tracing::{error, info};

use crate::error::Error;
use crate::fronts::Fronts;
use crate::logging::log_files::{self, not_reopened};
use crate::logging::log_openers::LogOpeners;
use crate::logging::pool_access_logs::PoolAccessLogs;
use crate::peer::Peer;

/// Opened log files.
#[derive(Debug, Default)]
pub struct LogManager {
    /// The access log, if it is a file.
    access_log: Option<File>,
    /// The access logs of pools and sites.
    pool_logs: PoolAccessLogs,
    /// The processes that open logs.
    openers: LogOpeners,
}

impl LogManager {
    /// Opens the log files of the configuration that the server is started with. Processes that
    /// open logs get this environment.
    ///
    /// # Errors
    /// The first file that cannot be opened.
    pub fn at_start(
        config: &Config,
        environment: Vec<(String, String)>,
    ) -> Result<LogManager, Error> {
        let mut openers = LogOpeners::new(environment, Vec::new());
        Ok(LogManager {
            access_log: log_files::open_access_log(config)?,
            pool_logs: PoolAccessLogs::at_start(config, &mut openers)?,
            openers,
        })
    }

    /// Log files that the previous program had open. Without the access log (an earlier version did
    /// not hand it over), it is opened here; a failure is no reason to stop the server.
    pub fn inherited(
        access_log: Option<File>,
        pool_logs: PoolAccessLogs,
        openers: LogOpeners,
        config: &Config,
    ) -> LogManager {
        let open = || {
            let opened = log_files::open_access_log(config);
            opened.unwrap_or_else(|why| {
                error!("{why}");
                None
            })
        };
        LogManager { access_log: access_log.or_else(open), pool_logs, openers }
    }

    /// The processes that open logs.
    pub fn openers(&self) -> &LogOpeners {
        &self.openers
    }

    /// A process has ended. False: it is none that opens logs and was late.
    pub fn process_ended(&mut self, pid: i32) -> bool {
        self.openers.process_ended(pid)
    }

    /// The access log, if it is a file.
    pub fn access_log(&self) -> Option<&File> {
        self.access_log.as_ref()
    }

    /// The access logs of pools and sites.
    pub fn pool_logs(&self) -> &PoolAccessLogs {
        &self.pool_logs
    }

    /// Opens the log files of a new configuration, as far as they differ from those of `before`.
    /// The error log is only checked.
    ///
    /// # Errors
    /// The first file that cannot be opened.
    pub fn open_for(&mut self, config: &Config, before: &Config) -> Result<LogManager, String> {
        if let LogTarget::File(path) = &config.error_log {
            log_files::open_error_log(path, config).map_err(|why| {
                format!("the error log {} cannot be opened: {why}", path.display())
            })?;
        }
        let access_log = match &self.access_log {
            Some(file) if config.access_log == before.access_log => {
                Some(file.try_clone().map_err(|why| why.to_string())?)
            }
            _ => log_files::open_access_log(config).map_err(|why| why.to_string())?,
        };
        let pool_logs = PoolAccessLogs::open(config, &self.pool_logs, &mut self.openers);
        let pool_logs = pool_logs.map_err(|why| why.to_string())?;
        Ok(LogManager { access_log, pool_logs, openers: LogOpeners::default() })
    }

    /// Uses the files that were opened for this configuration, and closes those it does not use.
    /// `is_same_log`: its access log is that of the configuration before, and may have been opened
    /// again since.
    pub fn switch_to(&mut self, config: &Config, opened: LogManager, is_same_log: bool) {
        if !is_same_log || self.access_log.is_none() {
            self.access_log = opened.access_log;
        }
        self.pool_logs.use_for(config, opened.pool_logs);
    }

    /// Sends a front all log files.
    pub fn introduce_to(&self, peer: &mut Peer<ToFront>) {
        self.tell_access_log(peer);
        self.tell_pool_logs(peer);
    }

    /// Sends a front the access log, if it is a file.
    pub fn tell_access_log(&self, peer: &mut Peer<ToFront>) {
        if let Some(log) = &self.access_log {
            peer.say(ToFront::SetAccessLog, &[log.as_fd()]);
        }
    }

    /// Sends a front the access logs of pools and sites.
    pub fn tell_pool_logs(&self, peer: &mut Peer<ToFront>) {
        for (path, file) in self.pool_logs.iter() {
            let order = ToFront::SetPoolAccessLog { path: path.clone() };
            peer.say(order, &[file.as_fd()]);
        }
    }

    /// Reopens the access log. If that fails, lines go where they went before.
    pub fn reopen_access_log(&mut self, config: &Config, fronts: &mut Fronts) {
        let Some(LogTarget::File(path)) = &config.access_log else {
            return;
        };
        let name = path.display();
        match log_files::open(path) {
            Ok(file) => {
                info!("the access log {name} was opened again");
                fronts.tell_all(&ToFront::SetAccessLog, &[file.as_fd()]);
                self.access_log = Some(file);
            }
            Err(why) => error!("{}", not_reopened("access", &name, &why)),
        }
    }

    /// Reopens the access logs of pools and sites. False if one cannot be opened: its lines go
    /// where they went before.
    pub fn reopen_pool_logs(&mut self, config: &Config, fronts: &mut Fronts) -> bool {
        let (again, is_well) = self.pool_logs.reopened(config, &mut self.openers);
        for (path, file) in again.iter() {
            let order = ToFront::SetPoolAccessLog { path: path.clone() };
            fronts.tell_all(&order, &[file.as_fd()]);
        }
        self.pool_logs.extend(again);
        is_well
    }
}

/// Reopens the error log. False if it cannot be opened: lines go where they went before.
pub fn reopen_error_log(config: &Config, fronts: &mut Fronts) -> bool {
    let LogTarget::File(path) = &config.error_log else {
        return true;
    };
    let name = path.display();
    let opened = log_files::open_error_log(path, config);
    let reopened = opened.and_then(|file| {
        rustix::stdio::dup2_stderr(&file)?;
        Ok(file)
    });
    match reopened {
        Ok(file) => {
            info!("the error log {name} was opened again");
            fronts.tell_all(&ToFront::SetErrorLog, &[file.as_fd()]);
            true
        }
        Err(why) => {
            error!("{}", not_reopened("error", &name, &why));
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use super::*;
    use crate::fronts::Front;

    fn logging_to(path: &Path) -> Config {
        Config { access_log: Some(LogTarget::File(path.to_owned())), ..Config::default() }
    }

    fn is_open(logs: &LogManager, path: &Path) -> bool {
        let file = logs.access_log().unwrap().metadata().unwrap();
        file.ino() == path.metadata().unwrap().ino()
    }

    #[test]
    fn an_access_log_that_is_opened_again_during_a_reload_stays_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let config = logging_to(&path);
        let mut fronts = Fronts::new(Front::new(1, 1), Vec::new());
        let mut logs = LogManager::at_start(&config, Vec::new()).unwrap();
        let opened = logs.open_for(&config, &config).unwrap();
        std::fs::rename(&path, folder.path().join("access.log.1")).unwrap();
        logs.reopen_access_log(&config, &mut fronts);
        logs.switch_to(&config, opened, true);
        assert!(is_open(&logs, &path));

        let other = folder.path().join("other.log");
        let opened = logs.open_for(&logging_to(&other), &config).unwrap();
        logs.switch_to(&logging_to(&other), opened, false);
        assert!(is_open(&logs, &other));
    }
}
