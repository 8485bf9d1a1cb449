//! The uses of a disk that run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The uses that run.
#[derive(Debug, Default, Clone)]
pub struct RunningUses(Arc<Mutex<UsesByAge>>);

/// The oldest first.
#[derive(Debug, Default)]
struct UsesByAge {
    next: u64,
    begun: BTreeMap<u64, Instant>,
}

/// One of them, until it ends.
#[derive(Debug)]
pub struct RunningUse {
    number: u64,
    all: RunningUses,
}

impl RunningUses {
    /// Begins a use.
    pub fn begin(&self) -> RunningUse {
        let mut uses = self.lock();
        let number = uses.next;
        uses.next += 1;
        uses.begun.insert(number, Instant::now());
        RunningUse { number, all: self.clone() }
    }

    /// Whether one of them has run for this long.
    pub fn has_older(&self, age: Duration) -> bool {
        let uses = self.lock();
        uses.begun.values().next().is_some_and(|begun| begun.elapsed() >= age)
    }

    fn lock(&self) -> MutexGuard<'_, UsesByAge> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RunningUse {
    fn drop(&mut self) {
        self.all.lock().begun.remove(&self.number);
    }
}
