//! The log limit of the scripts of a pool, or of an upstream FastCGI server: their messages, and
//! the lines about their failed requests. The limit is [`maitred_control::log_limit`]'s.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use maitred_control::log_limit::{Admission, LogLimit};
use tokio::sync::Notify;

/// The log limit of a pool or an upstream server, shared by all threads and sites.
#[derive(Debug, Clone, Default)]
pub struct ScriptLog {
    limit: Arc<Mutex<LogLimit>>,
    /// Notified when the first line is dropped.
    stirred: Arc<Notify>,
}

impl ScriptLog {
    /// This limit; `stirred` is notified when the first line is dropped.
    pub fn telling(stirred: Arc<Notify>) -> ScriptLog {
        ScriptLog { stirred, ..ScriptLog::default() }
    }

    /// Whether a line of this many bytes is logged. `about` announces the first dropped line.
    pub fn admits(&self, about: &dyn Display, bytes: usize) -> bool {
        let admission = self.lock().admit(bytes, maitred_scoreboard::now());
        if let Admission::Exceeded(sentence) = &admission {
            tracing::warn!("{about}: {sentence}");
            self.stirred.notify_one();
        }
        admission == Admission::Logged
    }

    /// The summary of dropped lines that is due; it counts as logged.
    pub fn due(&self) -> Option<String> {
        self.lock().due(maitred_scoreboard::now())
    }

    /// Whether all dropped lines have been reported.
    pub fn is_quiet(&self) -> bool {
        self.lock().is_quiet()
    }

    fn lock(&self) -> MutexGuard<'_, LogLimit> {
        self.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The limits of upstream servers, by name; never removed.
#[derive(Debug, Default)]
pub struct UpstreamLogs(Mutex<BTreeMap<String, ScriptLog>>);

impl UpstreamLogs {
    /// The limit of this server.
    pub fn of(&self, name: String) -> ScriptLog {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(name).or_default().clone()
    }
}
