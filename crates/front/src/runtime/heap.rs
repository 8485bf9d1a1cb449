//! Returns memory to the system: the C library holds on to the memory that a flood of requests has
//! used.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use maitred_os::heap;
use maitred_os::proc::Statm;

/// Interval of the check.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Time after which memory that could not be returned is tried again: what kept it may be freed.
const TRY_AGAIN_EVERY: Duration = Duration::from_secs(15);
/// Least number of bytes to return.
const WORTH_BYTES: u64 = 8 * 1024 * 1024;
/// Bytes of a page in `statm`; with larger pages, memory is returned later.
const PAGE_BYTES: u64 = 4096;
/// Largest size of `statm` in bytes.
const STATM_BYTES: usize = 256;

/// The heap of this process.
#[derive(Debug)]
pub struct Heap {
    /// `/proc/self/statm`, which cannot be opened after the front has given up its privileges.
    statm: Option<File>,
    began: Instant,
    checks: Mutex<Checks>,
    /// Bytes at the start.
    floor: u64,
    /// Free bytes that could not be returned.
    waste: AtomicU64,
}

/// The times of checks, since the start.
#[derive(Debug)]
struct Checks {
    next: Duration,
    /// The next that includes the memory that could not be returned.
    next_full: Duration,
}

impl Checks {
    /// Whether a check is due, and whether it is a full one.
    fn due(&mut self, now: Duration) -> Option<bool> {
        if now < self.next {
            return None;
        }
        self.next = now + LOOK_EVERY;
        let is_full = now >= self.next_full;
        if is_full {
            self.next_full = now + TRY_AGAIN_EVERY;
        }
        Some(is_full)
    }
}

impl Heap {
    /// The heap of a process that has just started.
    pub fn new() -> Heap {
        let statm = File::open("/proc/self/statm").ok();
        let floor = statm.as_ref().and_then(own_bytes).unwrap_or(0);
        Heap {
            statm,
            began: Instant::now(),
            checks: Mutex::new(Checks { next: LOOK_EVERY, next_full: TRY_AGAIN_EVERY }),
            floor,
            waste: AtomicU64::new(0),
        }
    }

    /// Checks the heap, if a check is due. May be called by any thread at any time.
    pub fn look(self: &Arc<Self>) {
        let now = self.began.elapsed();
        // Another thread is checking.
        let Ok(mut checks) = self.checks.try_lock() else {
            return;
        };
        let Some(is_full) = checks.due(now) else {
            return;
        };
        if is_full {
            self.waste.store(0, Ordering::Relaxed);
        }
        let Some(own) = self.statm.as_ref().and_then(own_bytes) else {
            return;
        };
        if has_grown(own, self.floor) {
            let heap = self.clone();
            tokio::task::spawn_blocking(move || heap.give_back(own));
        }
    }

    fn give_back(&self, own: u64) {
        let free = own.saturating_sub(heap::in_use());
        let waste = self.waste.fetch_min(free, Ordering::Relaxed);
        if !is_worth_it(free, waste) {
            return;
        }
        heap::give_back();
        if let Some(after) = self.statm.as_ref().and_then(own_bytes) {
            let waste = after.saturating_sub(heap::in_use());
            self.waste.store(waste, Ordering::Relaxed);
            let (before, after) = (own >> 20, after >> 20);
            tracing::debug!("the front returned memory: from {before} MiB to {after} MiB");
        }
    }
}

/// Whether a process has grown enough for a check of its free memory to pay.
fn has_grown(own: u64, floor: u64) -> bool {
    own > floor.saturating_add(WORTH_BYTES)
}

/// Whether enough is free beyond the part that cannot be returned.
fn is_worth_it(free: u64, waste: u64) -> bool {
    free > waste.saturating_add(WORTH_BYTES)
}

/// Private bytes of a process, by its `statm`.
fn own_bytes(statm: &File) -> Option<u64> {
    let mut bytes = [0; STATM_BYTES];
    let count = statm.read_at(&mut bytes, 0).ok()?;
    let statm = Statm::parse(std::str::from_utf8(&bytes[..count]).ok()?)?;
    Some(statm.anonymous * PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_when_it_is_much_and_not_in_use() {
        let (floor, much) = (10 << 20, (10 << 20) + WORTH_BYTES + 1);
        assert!(!has_grown(floor, floor) && !has_grown(much - 1, floor));
        assert!(has_grown(much, floor));
        assert!(is_worth_it(much, floor) && !is_worth_it(much, much));
        assert!(!is_worth_it(0, 0) && !is_worth_it(WORTH_BYTES, 0));
    }

    #[test]
    fn memory_that_could_not_be_returned_is_tried_again_later() {
        let mut checks = Checks { next: LOOK_EVERY, next_full: TRY_AGAIN_EVERY };
        let mut full = Vec::new();
        for second in 0..60 {
            match checks.due(Duration::from_secs(second)) {
                Some(true) => full.push(second),
                Some(false) => assert_eq!(second % LOOK_EVERY.as_secs(), 0),
                None => {}
            }
        }
        assert_eq!(full, [15, 30, 45]);
    }

    #[test]
    fn a_process_knows_what_memory_it_has_for_itself() {
        let statm = File::open("/proc/self/statm").unwrap();
        let bytes = vec![1_u8; 64 << 20];
        let own = own_bytes(&statm).unwrap();
        assert!(own >= bytes.len() as u64, "{own}");
        drop(bytes);
    }
}
