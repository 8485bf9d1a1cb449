//! How long cached pages may be served while other nodes may purge them.

use std::sync::atomic::{AtomicU64, Ordering};

use maitred_os::clock::since_boot_millis;

/// The lease of the purge log: when it ends, in milliseconds since the machine's start.
#[derive(Debug)]
pub struct PurgeLease(AtomicU64);

impl PurgeLease {
    /// No end without other nodes, and none yet with them.
    pub fn new(has_nodes: bool) -> PurgeLease {
        PurgeLease(AtomicU64::new(if has_nodes { 0 } else { u64::MAX }))
    }

    /// Sets its end.
    pub fn set(&self, until: u64) {
        self.0.store(until, Ordering::Release);
    }

    /// Whether cached pages may be served now.
    pub fn holds(&self) -> bool {
        match self.0.load(Ordering::Acquire) {
            u64::MAX => true,
            until => since_boot_millis() < until,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_other_nodes_it_has_no_end_and_with_them_no_beginning() {
        assert!(PurgeLease::new(false).holds());
        let lease = PurgeLease::new(true);
        assert!(!lease.holds());
        lease.set(since_boot_millis() + 60_000);
        assert!(lease.holds());
        lease.set(since_boot_millis());
        assert!(!lease.holds());
    }
}
