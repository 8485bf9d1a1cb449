//! Recent log lines about files of tenants: each is logged once in a while, and few of one owner.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most subjects of an owner that are logged in an interval.
const MAX_SUBJECTS: usize = 8;

/// What to log about a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogTurn {
    /// The subject.
    Subject,
    /// Its owner has more subjects than are logged.
    Excess,
    /// Nothing: it was logged recently.
    Nothing,
}

/// The subjects of recent lines, for all threads. A tenant makes as many paths and mistakes as it
/// likes; owners are those that the configuration names.
#[derive(Debug)]
pub struct LoggedPaths {
    every: Duration,
    owners: Mutex<BTreeMap<PathBuf, RecentLines>>,
}

/// The lines about one owner, and their times.
#[derive(Debug, Default)]
struct RecentLines {
    subjects: BTreeMap<Vec<u8>, Instant>,
    excess: Option<Instant>,
}

impl LoggedPaths {
    /// No line yet; `every` is the interval between two lines about a subject.
    pub const fn every(every: Duration) -> LoggedPaths {
        LoggedPaths { every, owners: Mutex::new(BTreeMap::new()) }
    }

    /// What to log about a subject of this owner; it counts as logged then.
    pub fn turn(&self, owner: &Path, subject: &[u8], now: Instant) -> LogTurn {
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < self.every;
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        if !owners.contains_key(owner) {
            // A reload may have removed others.
            owners.retain(|_, lines| lines.subjects.values().any(is_recent));
        }
        let lines = owners.entry(owner.to_path_buf()).or_default();
        lines.subjects.retain(|_, at| is_recent(at));
        if lines.subjects.contains_key(subject) {
            return LogTurn::Nothing;
        }
        if lines.subjects.len() < MAX_SUBJECTS {
            lines.subjects.insert(subject.to_vec(), now);
            return LogTurn::Subject;
        }
        if lines.excess.as_ref().is_some_and(is_recent) {
            return LogTurn::Nothing;
        }
        lines.excess = Some(now);
        LogTurn::Excess
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_with_any_number_of_paths_gets_a_few_lines_and_leaves_others_theirs() {
        let hour = Duration::from_secs(3600);
        let (logged, begun) = (LoggedPaths::every(hour), Instant::now());
        let [ours, other] = ["/srv/ours", "/srv/other"].map(Path::new);
        let lines = |now| {
            let turns =
                (0..3000).map(|number: i32| logged.turn(ours, number.to_string().as_bytes(), now));
            let turns: Vec<_> = turns.collect();
            [LogTurn::Subject, LogTurn::Excess]
                .map(|wanted| turns.iter().filter(|turn| **turn == wanted).count())
        };
        assert_eq!(logged.turn(other, b"link", begun), LogTurn::Subject);
        assert_eq!(lines(begun), [MAX_SUBJECTS, 1]);
        assert_eq!(lines(begun + hour / 2), [0, 0]);
        assert_eq!(logged.turn(other, b"link", begun + hour / 2), LogTurn::Nothing);
        assert_eq!(logged.turn(other, b"another", begun + hour / 2), LogTurn::Subject);
        assert_eq!(lines(begun + hour), [MAX_SUBJECTS, 1]);
    }
}
