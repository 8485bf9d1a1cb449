//! A memory that workers reserve from: of the whole server, or of a pool's own control group.

use std::time::Duration;

use super::pool_memory::PoolMemory;
use crate::memory::{Capacity, Level, Pressure, Signs};
use crate::sources::Memory;

/// Memory is ample when less than this part of it is in use or reserved.
const FAR: f64 = 0.5;

/// Averaging time of the memory that is not the workers' own, in seconds.
const AVERAGED_SECONDS: f64 = 60.0;

/// The first samples have equal weights.
const FIRST_LOOKS: u32 = 100;

/// The part of the workers that remains when memory is short, and when it is out.
const SHORT: f64 = 0.9;
const OUT: f64 = 0.8;

/// Other pools' use of a memory, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Others {
    /// As far as it is known.
    pub(super) take: f64,
    /// And their reservations where it is not.
    pub(super) claim: f64,
}

/// A memory and its reservations.
#[derive(Debug, Default)]
pub(super) struct MemoryBudget {
    looked: Option<Duration>,
    looks: u32,
    pub(super) pressure: Pressure,
    /// The limit and the use, in bytes; `None`: it cannot be read.
    pub(super) memory: Option<Memory>,
    /// Reserved since the last sample, and reserved before and not in use yet, in bytes.
    pub(super) promised: f64,
    /// In use beside the workers, averaged over some seconds, in bytes.
    base: Option<f64>,
}

impl MemoryBudget {
    /// A sample: its workers use `own` bytes together, and those never measured reserve `promised`.
    pub(super) fn look(
        &mut self,
        now: Duration,
        memory: Option<Memory>,
        signs: &Signs,
        own: f64,
        promised: f64,
    ) {
        self.pressure.look(now, signs);
        self.memory = memory;
        self.looks = self.looks.saturating_add(1);
        self.promised = promised;
        let passed = now.saturating_sub(self.looked.unwrap_or(now));
        self.looked = Some(now);
        let Some(memory) = memory else {
            return;
        };
        let base = (memory.used - own).max(0.0);
        let weight = 1.0 - (-passed.as_secs_f64() / AVERAGED_SECONDS).exp();
        let weight =
            if self.looks < FIRST_LOOKS { weight.max(1.0 / f64::from(self.looks)) } else { weight };
        let before = self.base.unwrap_or(base);
        self.base = Some(before + weight * (base - before));
    }

    /// Memory that is neither used nor reserved, in bytes; none where memory is nearly full.
    pub(super) fn free(&self) -> Option<f64> {
        let Memory { limit, used, .. } = self.memory?;
        let free = Capacity { limit, base: used + self.promised, ..Capacity::default() };
        Some(if self.pressure.level() > Level::Calm { 0.0 } else { free.usable() })
    }

    /// The most that other pools take, in bytes: what is in use, without a pool's `own` and what is
    /// beside the workers of all pools.
    pub(super) fn used_by_others(&self, own: f64) -> f64 {
        let all = self.memory.map_or(f64::INFINITY, |memory| memory.used);
        (all - own - self.base.unwrap_or(0.0)).max(0.0)
    }

    /// The most workers of a pool that has `workers`, beside other pools'.
    pub(super) fn workers(&self, known: &PoolMemory, others: Others, workers: usize) -> usize {
        let part = |part: f64| ((workers as f64 * part) as usize).max(1);
        // If the memory is unknown, nothing is added.
        let (Some(memory), Some(base)) = (self.memory, self.base) else {
            return workers.max(1);
        };
        let free = Capacity {
            limit: memory.limit,
            base: memory.used + self.promised,
            ..Capacity::default()
        };
        let more = (free.usable() / known.worker()) as usize;
        let now = workers.saturating_add(more);
        // One worker remains in any case: none would be a pool that is down.
        let fits = known.fits_in(&memory, base, others.claim);
        // Running workers may stay as long as other pools only might need their memory, or until
        // their own memory is known, unless the current use is too much.
        let may_stay = if known.is_known() {
            known.fits_in(&memory, base, others.take)
        } else {
            known.fit_at_most_in(&memory, base)
        };
        let long = fits.max(workers.min(may_stay));
        // The past level removes no worker: otherwise a fifth would exit at each sample, for as
        // long as the level stays.
        let most = match (self.pressure.seen(), self.pressure.level()) {
            (Level::Out, _) => part(OUT),
            (Level::Short, _) => part(SHORT),
            (_, Level::Calm) => now,
            _ => workers,
        };
        most.min(long).max(1)
    }

    /// Whether memory is ample, so that the workers' memory need not be known soon.
    pub(super) fn is_far_from_the_limit(&self) -> bool {
        let is_far = |memory: &Memory| memory.used + self.promised <= FAR * memory.limit;
        self.pressure.level() == Level::Calm && self.memory.as_ref().is_some_and(is_far)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: f64 = 1e9;

    fn budget(used: f64, promised: f64) -> MemoryBudget {
        let memory = Memory { limit: 10.0 * GB, used, by_group: false };
        MemoryBudget { memory: Some(memory), promised, ..MemoryBudget::default() }
    }

    #[test]
    fn what_is_used_or_promised_is_not_free() {
        let free = |used, promised| budget(used, promised).free().unwrap();
        let most = free(2.0 * GB, 0.0);
        assert!((6.0 * GB..=8.0 * GB).contains(&most), "{most}");
        assert_eq!(free(2.0 * GB, 3.0 * GB), free(5.0 * GB, 0.0));
        assert_eq!(MemoryBudget::default().free(), None);
    }

    #[test]
    fn memory_is_far_from_its_limit_up_to_the_half() {
        assert!(budget(4.0 * GB, 1.0 * GB).is_far_from_the_limit());
        assert!(!budget(4.0 * GB, 1.1 * GB).is_far_from_the_limit());
        assert!(!MemoryBudget::default().is_far_from_the_limit());
    }
}
