//! Where the time of a request went that a worker had.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::words::SpentWords;

/// Longest time that is believed, in microseconds: 51 days. What comes from a worker is its word.
const MAX_MICROS: u64 = 1 << 42;

/// What a request has cost its worker, from when it was given to it until its answer was complete, or,
/// once a script has ended that went on, until then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// How long the worker had it.
    pub held: Duration,
    /// Processor time of the worker, with what it does between two requests. More than `held` where
    /// PHP has several threads.
    pub cpu: Duration,
    /// How long it was ready to run and had no processor; nothing where the kernel does not tell.
    pub core_wait: Option<Duration>,
    /// Processor time of children that it has collected.
    pub children: Duration,
    /// The most memory that the script had, in bytes.
    pub peak_memory: u64,
}

impl Spent {
    /// How long it waited for something else than a processor: a database, a disk, a child, another
    /// server, or its own `sleep()`.
    pub fn blocked(&self) -> Option<Duration> {
        let waited = self.core_wait?;
        Some(self.held.saturating_sub(self.cpu).saturating_sub(waited))
    }

    /// What it has cost in all, if it went on and that has cost `more`.
    pub fn and(self, more: Spent) -> Spent {
        let core_wait = self.core_wait.zip(more.core_wait);
        Spent {
            held: self.held + more.held,
            cpu: self.cpu + more.cpu,
            core_wait: core_wait.map(|(before, after)| before + after),
            children: self.children + more.children,
            peak_memory: self.peak_memory.max(more.peak_memory),
        }
    }

    pub(crate) fn write(&self, words: &SpentWords) {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let waited = self
            .core_wait
            .map_or(0, |time| micros(time).saturating_add(1));
        words.cpu.store(micros(self.cpu), Relaxed);
        words.core_wait.store(waited, Relaxed);
        words.children.store(micros(self.children), Relaxed);
        words.peak_memory.store(self.peak_memory, Relaxed);
        words.held.store(micros(self.held).max(1), Relaxed);
    }

    pub(crate) fn read(words: &SpentWords) -> Option<Spent> {
        let time = |micros: u64| Duration::from_micros(micros.min(MAX_MICROS));
        let held = words.held.load(Relaxed);
        let waited = words.core_wait.load(Relaxed).checked_sub(1);
        (held > 0).then(|| Spent {
            held: time(held),
            cpu: time(words.cpu.load(Relaxed)),
            core_wait: waited.map(time),
            children: time(words.children.load(Relaxed)),
            peak_memory: words.peak_memory.load(Relaxed),
        })
    }
}
