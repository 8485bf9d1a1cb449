//! The time of requests, by its parts.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::histogram::{self, Histogram};

/// The times of a request, as far as they are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestTimes {
    /// Time in the queue.
    pub waited: Duration,
    /// The part of it in which its worker was starting.
    pub boot: Duration,
    /// Run time of its script, if a worker took it. The next three are parts of it.
    pub script: Option<Duration>,
    /// CPU time.
    pub cpu: Option<Duration>,
    /// Time runnable without a CPU.
    pub core_wait: Option<Duration>,
    /// Time blocked on anything else.
    pub blocked: Option<Duration>,
    /// CPU time of child processes of its script.
    pub children: Duration,
    /// Peak PHP memory of its script, in bytes; 0: unknown.
    pub peak_memory: u64,
}

/// Histograms of the times of requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestHistograms {
    /// Time in the queue.
    pub waits: Histogram,
    /// Run time of scripts.
    pub scripts: Histogram,
    /// CPU time.
    pub cpu: Histogram,
    /// Time runnable without a CPU.
    pub core_waits: Histogram,
    /// Time blocked on anything else.
    pub blocked: Histogram,
}

/// How many histograms there are.
const TIMES: usize = 5;

/// Words of all histograms.
pub(crate) const TIMES_WORDS: usize = TIMES * histogram::WORDS;

impl RequestTimes {
    /// Adds the times to histograms in shared memory.
    pub(crate) fn add(&self, words: &[AtomicU64]) {
        let times: [Option<Duration>; TIMES] =
            [Some(self.waited), self.script, self.cpu, self.core_wait, self.blocked];
        for (words, time) in words.chunks_exact(histogram::WORDS).zip(times) {
            if let Some(time) = time {
                histogram::add(words, time);
            }
        }
    }
}

impl RequestHistograms {
    /// Adds histograms in shared memory.
    pub(crate) fn read(&mut self, words: &[AtomicU64]) {
        let histograms: [&mut Histogram; TIMES] = [
            &mut self.waits,
            &mut self.scripts,
            &mut self.cpu,
            &mut self.core_waits,
            &mut self.blocked,
        ];
        for (words, histogram) in words.chunks_exact(histogram::WORDS).zip(histograms) {
            histogram.read(words);
        }
    }
}
