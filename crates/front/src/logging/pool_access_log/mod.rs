//! The access logs of FastCGI listeners: a line for each request, as php-fpm writes it
//! (`fpm_log.c`). Sites with a file of their own log to one of these, too.
//!
//! Lines of all threads are collected in the order of the responses, and written together by the
//! thread of the file. In php-fpm's place each is written before the web server can see the end
//! of its response, as php-fpm does (`fpm_log_write` comes before `php_request_shutdown`, which
//! sends the end): a client that waits for the response may look for its line or stop the server.
//! php-fpm cuts values at 128 or 512 bytes, and lines at 1024; maitred does not.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use maitred_config::Pool;
use maitred_config::fpm::access_format::{AccessFormat, Token};
use maitred_os::clock::format_local;

pub use crate::logging::pool_access_log_entry::Entry;

use crate::logging::queued_file::{QueuedBytes, QueuedFile};
use crate::logging::repeated::RepeatedErrors;

/// Longest line in bytes; longer ones are cut.
pub(crate) const LINE_BYTES: usize = 64 * 1024;

/// The format of `%t` and `%T` without one.
const COMMON_TIME: &str = "%d/%b/%Y:%H:%M:%S %z";

/// How long a front that ends waits for the last lines of all files.
const FINISH: Duration = Duration::from_secs(1);

/// The files of access logs, each once.
#[derive(Debug, Default)]
pub struct PoolAccessLogs {
    files: Mutex<BTreeMap<PathBuf, Arc<LogFile>>>,
    queued: Arc<QueuedBytes>,
}

/// A log file. Each user of it has a reference; its thread has one to the queue alone.
#[derive(Debug)]
pub struct LogFile(Arc<QueuedFile>);

/// A pool's access log.
#[derive(Debug)]
pub struct PoolAccessLog {
    pub(crate) pool: String,
    pub(crate) format: AccessFormat,
    /// By the index of its token: the format of a time, and its last value.
    times: Vec<Option<StrftimeFormat>>,
    pub(crate) suppress_path: Vec<String>,
    /// The supervisor's process id.
    pub(crate) supervisor: u32,
    file: Arc<LogFile>,
    /// Its lines are not collected.
    at_once: bool,
    troubles: Arc<RepeatedErrors>,
}

#[derive(Debug)]
struct StrftimeFormat {
    form: CString,
    last: Mutex<(i64, Vec<u8>)>,
}

impl PoolAccessLogs {
    /// Takes a file that the supervisor has opened, for the first time or again.
    pub fn opened(&self, path: PathBuf, file: OwnedFd) {
        let mut files = self.files();
        match files.get(&path) {
            Some(log) => log.0.reopened(file),
            None => {
                let queue = QueuedFile::new(path.clone(), file, self.queued.clone());
                files.insert(path, Arc::new(LogFile(Arc::new(queue))));
            }
        }
    }

    /// The log of a pool, if it has one and the supervisor has opened it. `at_once`: each line is
    /// written before its response ends.
    pub fn of(
        &self,
        pool: &Pool,
        troubles: &Arc<RepeatedErrors>,
        at_once: bool,
    ) -> Option<Arc<PoolAccessLog>> {
        let settings = pool.pool_access_log.as_ref()?;
        let Some(file) = self.files().get(&settings.path).cloned() else {
            let path = settings.path.display();
            tracing::error!("[pool {}] access log {path} did not come; there is none", pool.name);
            return None;
        };
        // It was checked with the configuration.
        let format = AccessFormat::parse(&settings.format).ok()?;
        let times = format.0.iter().map(StrftimeFormat::of).collect();
        Some(Arc::new(PoolAccessLog {
            pool: pool.name.clone(),
            times,
            format,
            suppress_path: settings.suppress_path.clone(),
            supervisor: std::os::unix::process::parent_id(),
            file,
            at_once,
            troubles: troubles.clone(),
        }))
    }

    /// The file of this path, if the supervisor has opened it.
    pub fn file(&self, path: &Path) -> Option<Arc<LogFile>> {
        self.files().get(path).cloned()
    }

    /// Closes files that no listener or site logs to, after their last lines.
    pub fn sweep(&self, troubles: &Arc<RepeatedErrors>) {
        self.files().retain(|_, log| {
            let is_used = Arc::strong_count(log) > 1;
            if !is_used {
                log.0.flush(troubles);
            }
            is_used
        });
    }

    /// Has the collected lines of all threads written.
    pub fn flush(&self, troubles: &Arc<RepeatedErrors>) {
        for log in self.files().values() {
            log.0.flush(troubles);
        }
    }

    /// Waits until all lines are written, for [`FINISH`] at most.
    pub fn finish(&self, troubles: &Arc<RepeatedErrors>) {
        self.flush(troubles);
        let logs: Vec<Arc<LogFile>> = self.files().values().cloned().collect();
        let until = Instant::now() + FINISH;
        for log in logs {
            log.0.finish(until.saturating_duration_since(Instant::now()), troubles);
        }
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Arc<LogFile>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogFile {
    /// Adds a line. It is written when a thread goes to sleep, or when there are enough lines.
    pub fn add(&self, line: &[u8], troubles: &Arc<RepeatedErrors>) {
        self.0.add(line, troubles);
    }
}

impl PoolAccessLog {
    /// Starts the entry of a request with these parameters, from a web server at this address or
    /// over a Unix socket.
    pub fn begin(self: &Arc<PoolAccessLog>, params: &[u8], peer: Option<IpAddr>) -> Entry {
        Entry::new(self.clone(), params, peer)
    }

    pub(crate) fn time(&self, index: usize, second: i64) -> Vec<u8> {
        let time = self.times.get(index).and_then(Option::as_ref);
        time.map_or_else(Vec::new, |time| time.at(second))
    }

    pub(crate) fn add(&self, line: &[u8]) {
        match self.at_once {
            true => self.file.0.add_now(line, &self.troubles),
            false => self.file.0.add(line, &self.troubles),
        }
    }
}

impl StrftimeFormat {
    fn of(token: &Token) -> Option<StrftimeFormat> {
        let (Token::Start(form) | Token::End(form)) = token else {
            return None;
        };
        let form = form.as_deref().unwrap_or(COMMON_TIME);
        Some(StrftimeFormat {
            form: CString::new(form).unwrap_or_default(),
            last: Mutex::default(),
        })
    }

    fn at(&self, second: i64) -> Vec<u8> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.0 != second || last.1.is_empty() {
            *last = (second, format_local(second, &self.form));
        }
        last.1.clone()
    }
}
