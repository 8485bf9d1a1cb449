//! What the scripts of a pool wait for.

use crate::word_record::record;

/// Fewest looks from which the waits of a pool are known.
const ENOUGH: u64 = 8;

/// What a blocked script waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitKind {
    /// A file system: the disk, or that of another machine.
    Disk,
    /// A socket: a database, another server.
    Network,
    /// A lock of a file, such as that of a session.
    FileLock,
    /// A time: `sleep()`, `usleep()`.
    Sleep,
    /// A program that it has started.
    Program,
    /// Anything else but the disk, or the kernel does not say what.
    Other,
}

record! {
    /// How often scripts that were blocked were found to wait for what, within the last seconds.
    pub struct WaitCounts {
        /// [`WaitKind::Disk`].
        pub disk: u64,
        /// [`WaitKind::Network`].
        pub network: u64,
        /// [`WaitKind::FileLock`].
        pub file_lock: u64,
        /// [`WaitKind::Sleep`].
        pub sleep: u64,
        /// [`WaitKind::Program`].
        pub program: u64,
        /// [`WaitKind::Other`].
        pub other: u64,
    }
}

impl WaitKind {
    /// All of them.
    pub const ALL: [WaitKind; 6] = [
        WaitKind::Disk,
        WaitKind::Network,
        WaitKind::FileLock,
        WaitKind::Sleep,
        WaitKind::Program,
        WaitKind::Other,
    ];

    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            WaitKind::Disk => "disk",
            WaitKind::Network => "network",
            WaitKind::FileLock => "file_lock",
            WaitKind::Sleep => "sleep",
            WaitKind::Program => "program",
            WaitKind::Other => "other",
        }
    }
}

impl WaitCounts {
    /// Counts a script that waits for this.
    pub fn add(&mut self, kind: WaitKind) {
        let count = match kind {
            WaitKind::Disk => &mut self.disk,
            WaitKind::Network => &mut self.network,
            WaitKind::FileLock => &mut self.file_lock,
            WaitKind::Sleep => &mut self.sleep,
            WaitKind::Program => &mut self.program,
            WaitKind::Other => &mut self.other,
        };
        *count = count.saturating_add(1);
    }

    /// Both together.
    pub fn and(self, other: WaitCounts) -> WaitCounts {
        let (mut words, others) = (self.to_words(), other.to_words());
        for (word, more) in words.iter_mut().zip(others) {
            *word = word.saturating_add(more);
        }
        WaitCounts::from_words(words)
    }

    /// How often a script was found to wait for this.
    pub fn of(&self, kind: WaitKind) -> u64 {
        match kind {
            WaitKind::Disk => self.disk,
            WaitKind::Network => self.network,
            WaitKind::FileLock => self.file_lock,
            WaitKind::Sleep => self.sleep,
            WaitKind::Program => self.program,
            WaitKind::Other => self.other,
        }
    }

    /// How often a script was found to be blocked.
    pub fn all(&self) -> u64 {
        self.to_words().into_iter().fold(0, u64::saturating_add)
    }

    /// What at least half of the blocked scripts were found to wait for; `None`: there is no such
    /// thing, or too few were found so far.
    pub fn main(&self) -> Option<WaitKind> {
        let all = self.all();
        let is_main = |kind: &WaitKind| self.of(*kind) >= all.div_ceil(2);
        WaitKind::ALL.into_iter().find(is_main).filter(|_| all >= ENOUGH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_half_of_the_scripts_wait_for_is_named_once_enough_were_found() {
        for kind in WaitKind::ALL {
            let mut counts = WaitCounts::default();
            (1..ENOUGH).for_each(|_| counts.add(kind));
            assert_eq!(counts.main(), None, "too few");
            counts.add(kind);
            assert_eq!((counts.main(), counts.of(kind)), (Some(kind), ENOUGH));
            let twice = counts.and(counts);
            assert_eq!((twice.all(), twice.of(kind)), (2 * ENOUGH, 2 * ENOUGH));
        }
        let mixed = WaitCounts { disk: 4, network: 4, other: 1, ..WaitCounts::default() };
        assert_eq!(mixed.main(), None);
        let mostly = WaitCounts { disk: 5, network: 4, other: 1, ..WaitCounts::default() };
        assert_eq!(mostly.main(), Some(WaitKind::Disk));
        let absurd = WaitCounts { disk: u64::MAX, network: u64::MAX, ..WaitCounts::default() };
        assert_eq!((absurd.all(), absurd.main()), (u64::MAX, Some(WaitKind::Disk)));
    }
}
