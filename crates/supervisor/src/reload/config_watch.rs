//! The watch of the configuration file (`--watch`): a changed file reloads the server.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use crate::limits::Moment;

/// Time between two looks at the file. An editor that writes it in steps needs less.
const INTERVAL: Duration = Duration::from_millis(300);

/// The state of a file by which a change shows: inode, size in bytes, time of the last change in
/// seconds and nanoseconds.
type Mark = Option<(u64, u64, i64, i64)>;

/// The watch of a file.
#[derive(Debug, Default)]
pub struct ConfigWatch {
    /// The state that the server has, once it is known.
    used: Option<Mark>,
    /// The state at the last look.
    last: Mark,
    /// When to look next.
    due: Moment,
}

impl ConfigWatch {
    /// When to look next.
    pub fn deadline(&self, is_watched: bool) -> Option<Moment> {
        is_watched.then_some(self.due)
    }

    /// Looks at the file if that is due. Whether it has changed, and is complete: two looks have
    /// seen the same.
    pub fn has_changed(&mut self, file: &Path, now: Moment) -> bool {
        now >= self.due && self.is_other(mark(file), now)
    }

    fn is_other(&mut self, mark: Mark, now: Moment) -> bool {
        self.due = now + INTERVAL;
        let used = *self.used.get_or_insert(mark);
        let is_complete = mark.is_some() && self.last == mark;
        self.last = mark;
        let has_changed = is_complete && used != mark;
        if has_changed {
            self.used = Some(mark);
        }
        has_changed
    }
}

fn mark(file: &Path) -> Mark {
    let found = file.metadata().ok()?;
    Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Mark = Some((1, 10, 5, 0));
    const HALF: Mark = Some((1, 3, 6, 0));
    const NEW: Mark = Some((1, 12, 6, 1));

    #[test]
    fn a_changed_file_counts_once_and_only_when_it_is_complete() {
        let mut watch = ConfigWatch::default();
        let looks = [OLD, OLD, None, HALF, NEW, NEW, NEW, OLD, OLD];
        let found = looks.map(|mark| watch.is_other(mark, Moment::ZERO));
        assert_eq!(found, [false, false, false, false, false, true, false, false, true]);
    }

    #[test]
    fn the_file_is_looked_at_once_an_interval() {
        let mut watch = ConfigWatch::default();
        assert_eq!(watch.deadline(false), None);
        assert_eq!(watch.deadline(true), Some(Moment::ZERO));
        watch.has_changed(Path::new("/nonexistent"), INTERVAL);
        assert_eq!(watch.deadline(true), Some(2 * INTERVAL));
    }
}
