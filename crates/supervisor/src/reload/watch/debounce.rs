//! Debouncing of saved files: a boot starts after a pause.

use std::path::PathBuf;
use std::time::Duration;

use crate::limits::Moment;

/// A pause of this length means that all files of a change are saved.
const PAUSE: Duration = Duration::from_millis(100);

/// Longest wait for such a pause.
const LONGEST: Duration = Duration::from_secs(1);

/// Saved files without a restart yet.
#[derive(Debug, Default)]
pub struct Debounce(Option<SavedFiles>);

#[derive(Debug)]
struct SavedFiles {
    /// One of the files.
    file: PathBuf,
    first: Moment,
    last: Moment,
}

impl Debounce {
    /// A file was saved.
    pub fn note(&mut self, file: PathBuf, now: Moment) {
        let first = self.0.as_ref().map_or(now, |saved| saved.first);
        let last = now;
        self.0 = Some(SavedFiles { file, first, last });
    }

    /// When a restart is due.
    pub fn deadline(&self) -> Option<Moment> {
        let saved = self.0.as_ref()?;
        Some((saved.last + PAUSE).min(saved.first + LONGEST))
    }

    /// Takes one of the saved files, and when the first of them was saved, if a restart is due.
    pub fn take_due(&mut self, now: Moment) -> Option<(PathBuf, Moment)> {
        self.deadline().filter(|due| *due <= now)?;
        self.0.take().map(|saved| (saved.file, saved.first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Moment = Duration::from_secs(100);

    #[test]
    fn what_is_saved_together_is_one_change() {
        let mut changes = Debounce::default();
        assert_eq!((changes.deadline(), changes.take_due(START)), (None, None));
        changes.note("a.php".into(), START);
        changes.note("b.php".into(), START + PAUSE / 2);
        assert_eq!(changes.take_due(START + PAUSE), None);
        let due = START + PAUSE / 2 + PAUSE;
        assert_eq!(changes.deadline(), Some(due));
        assert_eq!(changes.take_due(due), Some(("b.php".into(), START)));
        assert_eq!(changes.take_due(due + LONGEST), None);
    }

    #[test]
    fn who_never_pauses_is_not_waited_for() {
        let mut changes = Debounce::default();
        let mut now = START;
        while changes.take_due(now).is_none() {
            changes.note("a.php".into(), now);
            now += PAUSE / 2;
            assert!(now <= START + LONGEST + PAUSE);
        }
        assert!(now >= START + LONGEST);
    }
}
