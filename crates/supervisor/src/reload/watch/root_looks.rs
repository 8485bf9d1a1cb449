//! The looks for a folder that has gone. Its owner can move it away and back without end, and its
//! folders are read again each time: the pauses grow.

use std::time::Duration;

use crate::limits::Moment;

/// The first pause before a look.
const LOOK_FIRST: Duration = Duration::from_secs(1);

/// The longest. A folder that has been there for this long is looked for soon again.
const LOOK_LONGEST: Duration = Duration::from_secs(60);

/// When to look.
#[derive(Debug, Default)]
pub struct RootLooks {
    /// The last pause.
    pause: Option<Duration>,
    at: Option<Moment>,
    /// When the folder was found.
    found: Option<Moment>,
}

impl RootLooks {
    /// When to look next.
    pub fn deadline(&self) -> Option<Moment> {
        self.at
    }

    /// The folder has gone. True if that was not known.
    pub fn gone(&mut self, now: Moment) -> bool {
        if self.at.is_some() {
            return false;
        }
        if self.found.is_some_and(|found| now >= found + LOOK_LONGEST) {
            self.pause = None;
        }
        self.wait(now);
        true
    }

    /// Whether to look now.
    pub fn is_due(&self, now: Moment) -> bool {
        self.at.is_some_and(|at| at <= now)
    }

    /// A look has shown whether the folder is there.
    pub fn looked(&mut self, is_there: bool, now: Moment) {
        if is_there {
            (self.at, self.found) = (None, Some(now));
        } else {
            self.wait(now);
        }
    }

    fn wait(&mut self, now: Moment) {
        let pause = self.pause.map_or(LOOK_FIRST, |pause| (pause * 2).min(LOOK_LONGEST));
        (self.pause, self.at) = (Some(pause), Some(now + pause));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds until the look that is next.
    fn pause(looks: &RootLooks, now: Moment) -> u64 {
        (looks.deadline().unwrap() - now).as_secs()
    }

    #[test]
    fn a_folder_that_stays_away_is_looked_for_more_and_more_rarely() {
        let mut looks = RootLooks::default();
        let mut now = Duration::from_secs(100);
        assert!(looks.gone(now) && !looks.gone(now));
        let mut pauses = Vec::new();
        for _ in 0..8 {
            pauses.push(pause(&looks, now));
            now += Duration::from_secs(pauses[pauses.len() - 1]);
            assert!(looks.is_due(now));
            looks.looked(false, now);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    #[test]
    fn so_is_one_that_comes_and_goes_until_it_has_stayed() {
        let mut looks = RootLooks::default();
        let mut now = Duration::from_secs(100);
        let mut pauses = Vec::new();
        for stays in [1, 1, 1, 60, 1] {
            looks.gone(now);
            pauses.push(pause(&looks, now));
            now = looks.deadline().unwrap();
            looks.looked(true, now);
            assert_eq!(looks.deadline(), None);
            now += Duration::from_secs(stays);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 1]);
    }
}
