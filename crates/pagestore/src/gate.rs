//! Who is on the way through the store, and who waits until nothing is.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// Between two looks whether anything is on its way.
const AGAIN: Duration = Duration::from_millis(1);

/// How long a writer waits that has something else to do.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 5000 });

/// The lock of the store. A writer that waits in the lock itself has readers wait as well: all
/// serving threads, for one that waits for the disk.
#[derive(Debug, Default)]
pub struct Gate(RwLock<()>);

impl Gate {
    /// For the time of a lookup, or of an insertion.
    pub fn pass(&self) -> RwLockReadGuard<'_, ()> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nothing is on its way. None if that takes too long.
    pub fn try_alone(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        let begun = Instant::now();
        loop {
            match self.0.try_write() {
                Ok(alone) => return Some(alone),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if begun.elapsed() >= PATIENCE => return None,
                Err(TryLockError::WouldBlock) => thread::sleep(AGAIN),
            }
        }
    }

    /// The same for as long as it takes.
    pub fn alone(&self) -> RwLockWriteGuard<'_, ()> {
        loop {
            if let Some(alone) = self.try_alone() {
                return alone;
            }
            thread::sleep(AGAIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_waits_for_one_that_waits_to_be_alone() {
        let gate = Gate::default();
        let on_its_way = gate.pass();
        thread::scope(|scope| {
            let alone = scope.spawn(|| drop(gate.alone()));
            for _ in 0..10 {
                drop(gate.pass());
                thread::sleep(AGAIN);
            }
            assert!(!alone.is_finished());
            drop(on_its_way);
            alone.join().expect("it is alone");
        });
        assert!(gate.try_alone().is_some());
    }
}
