//! The cost of a request: how a worker's time was spent.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::slot_words::SpentWords;

/// Upper bound for untrusted times, in microseconds: 51 days.
const MAX_MICROS: u64 = 1 << 42;

/// Most of a worker's own time between two requests, which counts as that of the second.
const BETWEEN_REQUESTS: Duration = Duration::from_secs(1);

/// The processors that this process may use.
fn processors() -> u32 {
    static COUNT: OnceLock<u32> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        u32::try_from(count).unwrap_or(u32::MAX)
    })
}

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

    /// What is possible within the time for which the front has seen the request run. A worker can
    /// report anything.
    pub(crate) fn within(self, seen: Duration) -> Spent {
        let held = seen + BETWEEN_REQUESTS;
        let most = held.saturating_mul(processors());
        Spent {
            held: self.held.min(held),
            cpu: self.cpu.min(most),
            core_wait: self.core_wait.map(|waited| waited.min(most)),
            children: self.children.min(most),
            ..self
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
