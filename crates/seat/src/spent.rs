//! The cost of a request: how a worker's time was spent.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::slot_words::SpentWords;

/// Upper bound for untrusted times, in microseconds: 51 days.
const MAX_MICROS: u64 = 1 << 42;

/// The cost of a request to its worker, from its assignment until its response was complete; for a
/// script that continued after its response, until its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Time that the worker spent on it.
    pub held: Duration,
    /// Processor time of the worker, including its work between two requests. Exceeds `held` if PHP
    /// has several threads.
    pub cpu: Duration,
    /// Time that it was runnable without a processor; `None` where the kernel does not report it.
    pub core_wait: Option<Duration>,
    /// Processor time of children that it has waited for.
    pub children: Duration,
    /// Peak memory of the script, in bytes.
    pub peak_memory: u64,
}

impl Spent {
    /// Time that it waited for something other than a processor: a database, a disk, a child,
    /// another server, or its own `sleep()`.
    pub fn blocked(&self) -> Option<Duration> {
        let waited = self.core_wait?;
        Some(self.held.saturating_sub(self.cpu).saturating_sub(waited))
    }

    /// The total cost, if the script continued at a cost of `more`.
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
        let waited = self.core_wait.map_or(0, |time| micros(time).saturating_add(1));
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
