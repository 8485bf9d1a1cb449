//! The access logs of FastCGI listeners: a line for each request, as php-fpm writes it
//! (`fpm_log.c`). Sites with a file of their own log to one of these, too.
//!
//! Lines of all threads are collected in the order of the responses, and written together when a
//! thread goes to sleep. In php-fpm's place each is written before the web server can see the end
//! of its response, as php-fpm does (`fpm_log_write` comes before `php_request_shutdown`, which
//! sends the end): a client that waits for the response may look for its line or stop the server.
//! php-fpm cuts values at 128 or 512 bytes, and lines at 1024; maitred does not.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use maitred_config::Pool;
use maitred_config::fpm::access_format::{AccessFormat, Token};
use maitred_os::clock::format_local;

pub use crate::logging::pool_access_log_entry::Entry;

use crate::logging::line_file::{LineFile, LostLines};
use crate::logging::repeated::RepeatedErrors;

/// Bytes of lines that are written together.
const BUFFER_BYTES: usize = 32 * 1024;

/// Longest line in bytes; longer ones are cut.
pub(crate) const LINE_BYTES: usize = 64 * 1024;

/// The format of `%t` and `%T` without one.
const COMMON_TIME: &str = "%d/%b/%Y:%H:%M:%S %z";

/// The files of access logs, each once.
#[derive(Debug, Default)]
pub struct PoolAccessLogs(Mutex<BTreeMap<PathBuf, Arc<LogFile>>>);

/// A log file.
#[derive(Debug)]
pub struct LogFile {
    open: Mutex<Open>,
    /// It has unwritten lines.
    is_behind: AtomicBool,
}

#[derive(Debug)]
struct Open {
    file: LineFile,
    lines: Vec<u8>,
}

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
            Some(log) => log.lock().file = File::from(file).into(),
            None => {
                let open = Open { file: File::from(file).into(), lines: Vec::new() };
                let log = LogFile { open: Mutex::new(open), is_behind: AtomicBool::new(false) };
                files.insert(path, Arc::new(log));
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

    /// Closes files that no listener or site logs to.
    pub fn sweep(&self) {
        self.files().retain(|_, log| Arc::strong_count(log) > 1);
    }

    /// Writes the collected lines of all threads.
    pub fn flush(&self, troubles: &RepeatedErrors) {
        for log in self.files().values() {
            if log.is_behind.load(Ordering::Acquire) {
                log.lock().flush(log, troubles);
            }
        }
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Arc<LogFile>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogFile {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line. It is written when a thread goes to sleep, or when there are enough lines.
    pub fn add(&self, line: &[u8], troubles: &RepeatedErrors) {
        self.add_up_to(BUFFER_BYTES, line, troubles);
    }

    /// The same, with `most` bytes as enough.
    fn add_up_to(&self, most: usize, line: &[u8], troubles: &RepeatedErrors) {
        let mut open = self.lock();
        open.lines.extend_from_slice(line);
        self.is_behind.store(true, Ordering::Release);
        if open.lines.len() >= most {
            open.flush(self, troubles);
        }
    }
}

impl Open {
    fn flush(&mut self, log: &LogFile, troubles: &RepeatedErrors) {
        // A log that cannot be written must not stop the server.
        if let Err(LostLines { count, why }) = self.file.write(&self.lines) {
            troubles.lines_lost(count, &why);
        }
        self.lines.clear();
        log.is_behind.store(false, Ordering::Release);
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
        let most = if self.at_once { 0 } else { BUFFER_BYTES };
        self.file.add_up_to(most, line, &self.troubles);
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
