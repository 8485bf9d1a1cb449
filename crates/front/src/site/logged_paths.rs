//! Paths that were logged recently, so that each is logged once in a while.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most paths that are remembered; with more, some are logged more often.
const MAX_LOGGED: usize = 1024;

/// The time of the last line about each path, for all threads.
#[derive(Debug)]
pub struct LoggedPaths {
    every: Duration,
    last: Mutex<BTreeMap<PathBuf, Instant>>,
}

impl LoggedPaths {
    /// No path yet; `every` is the interval between two lines about one.
    pub const fn every(every: Duration) -> LoggedPaths {
        LoggedPaths { every, last: Mutex::new(BTreeMap::new()) }
    }

    /// Whether a line about the path is due; it counts as logged then.
    pub fn is_due(&self, path: &Path, now: Instant) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = last.get(path)
            && now.saturating_duration_since(*last) < self.every
        {
            return false;
        }
        if last.len() >= MAX_LOGGED {
            last.clear();
        }
        last.insert(path.to_path_buf(), now);
        true
    }
}
