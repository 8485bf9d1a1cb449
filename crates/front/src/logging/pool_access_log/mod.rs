//! The access logs of pools' doors: a line for each request, as php-fpm writes it (`fpm_log.c`). Sites
//! that have a file of their own log to one of these, too.
//!
//! Lines of all threads are collected in the order in which the requests were answered, and written
//! together when a thread has a moment. In php-fpm's stead each is written before the web server
//! can see the end of its answer, since php-fpm does so (`fpm_log_write` comes before
//! `php_request_shutdown`, which sends the end), and what waits for an answer may look for its line
//! or end the server. php-fpm's fields end at 128 or 512 bytes, and its lines at 1024; ours have
//! room.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use maitred_config::Pool;
use maitred_config::fpm::access_format::{AccessFormat, Token};
use maitred_os::clock::format_local;

pub use crate::logging::pool_access_log_entry::Entry;

use crate::logging::repeated::RepeatedErrors;

/// Lines are written together up to this many bytes.
const BUFFER_BYTES: usize = 32 * 1024;

/// Longest line in bytes; what is longer is cut.
pub(crate) const LINE_BYTES: usize = 64 * 1024;

/// The form of `%t` and `%T` where none is given.
const COMMON_TIME: &str = "%d/%b/%Y:%H:%M:%S %z";

/// The files that doors log to, each once, whoever shares it.
#[derive(Debug, Default)]
pub struct DoorLogs(Mutex<BTreeMap<PathBuf, Arc<LogFile>>>);

/// A file that lines go to.
#[derive(Debug)]
pub struct LogFile {
    open: Mutex<Open>,
    /// There are lines that nobody has written.
    is_behind: AtomicBool,
}

#[derive(Debug)]
struct Open {
    file: File,
    lines: Vec<u8>,
}

/// A pool's access log.
#[derive(Debug)]
pub struct DoorLog {
    pub(crate) pool: String,
    pub(crate) format: AccessFormat,
    /// By the index of its token: the form of a time, and what it came to last.
    times: Vec<Option<Time>>,
    pub(crate) suppress_path: Vec<String>,
    /// The supervisor's process id.
    pub(crate) supervisor: u32,
    file: Arc<LogFile>,
    /// Its lines are not collected.
    at_once: bool,
    troubles: Arc<RepeatedErrors>,
}

#[derive(Debug)]
struct Time {
    form: CString,
    last: Mutex<(i64, Vec<u8>)>,
}

impl DoorLogs {
    /// The supervisor has opened a file, for the first time or again.
    pub fn opened(&self, path: PathBuf, file: OwnedFd) {
        let mut files = self.files();
        match files.get(&path) {
            Some(log) => log.lock().file = file.into(),
            None => {
                let open = Open {
                    file: file.into(),
                    lines: Vec::new(),
                };
                let log = LogFile {
                    open: Mutex::new(open),
                    is_behind: AtomicBool::new(false),
                };
                files.insert(path, Arc::new(log));
            }
        }
    }

    /// The log of a pool, if it has one and the supervisor has opened it.
    /// `at_once`: each line is written before its answer ends.
    pub fn of(
        &self,
        pool: &Pool,
        troubles: &Arc<RepeatedErrors>,
        at_once: bool,
    ) -> Option<Arc<DoorLog>> {
        let settings = pool.door_log.as_ref()?;
        let Some(file) = self.files().get(&settings.path).cloned() else {
            let path = settings.path.display();
            tracing::error!(
                "[pool {}] access log {path} did not come; there is none",
                pool.name
            );
            return None;
        };
        // It was checked with the configuration.
        let format = AccessFormat::parse(&settings.format).ok()?;
        let times = format.0.iter().map(Time::of).collect();
        Some(Arc::new(DoorLog {
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

    /// Forgets the files that nobody logs to any more.
    pub fn sweep(&self) {
        self.files().retain(|_, log| Arc::strong_count(log) > 1);
    }

    /// Writes what all threads have collected.
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

    /// Adds a line. It is written when a thread has a moment, or there are enough of them.
    pub fn add(&self, line: &[u8], troubles: &RepeatedErrors) {
        self.add_up_to(BUFFER_BYTES, line, troubles);
    }

    /// The same, where so many bytes of lines are enough.
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
        // A log that cannot be written must not stop the server it is about.
        if let Err(why) = self.file.write_all(&self.lines) {
            let count = memchr::memchr_iter(b'\n', &self.lines).count();
            troubles.lines_lost(count as u64, &why);
        }
        self.lines.clear();
        log.is_behind.store(false, Ordering::Release);
    }
}

impl DoorLog {
    /// A request has come, with these parameters, from a web server at this address or over a Unix
    /// socket.
    pub fn begin(self: &Arc<DoorLog>, params: &[u8], peer: Option<IpAddr>) -> Entry {
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

impl Time {
    fn of(token: &Token) -> Option<Time> {
        let (Token::Start(form) | Token::End(form)) = token else {
            return None;
        };
        let form = form.as_deref().unwrap_or(COMMON_TIME);
        Some(Time {
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
