//! WorkerRecord memory that workers are paid for out of: that of the whole server, or what a pool has to itself.

use std::time::Duration;

use super::pool_memory::PoolMemory;
use crate::memory::{Capacity, Level, Pressure, Signs};
use crate::sources::Memory;

/// Memory of which less than this part is in use or promised is far from being short.
const FAR: f64 = 0.5;

/// How long what is not the workers' own is averaged, in seconds.
const AVERAGED_SECONDS: f64 = 60.0;

/// Looks of which none counts for more than another.
const FIRST_LOOKS: u32 = 100;

/// The part of the workers that may go on when memory is short, and when it is out.
const SHORT: f64 = 0.9;
const OUT: f64 = 0.8;

/// What other pools' workers have of a memory, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Others {
    /// As far as it is known.
    pub(super) take: f64,
    /// And what those were promised of which it is not.
    pub(super) claim: f64,
}

/// A memory, and what of it is promised.
#[derive(Debug, Default)]
pub(super) struct MemoryBudget {
    looked: Option<Duration>,
    looks: u32,
    pub(super) pressure: Pressure,
    /// What may be in use, and what is, in bytes; nothing: it cannot be read.
    pub(super) memory: Option<Memory>,
    /// What was promised since the last look, and what was before and is not in use yet, in bytes.
    pub(super) promised: f64,
    /// What is in use and is no worker's own, on average over some seconds, in bytes.
    base: Option<f64>,
}

impl MemoryBudget {
    /// A look, when the workers that come out of it have so much together, in bytes, and those that were
    /// never measured are to have so much.
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
        let weight = if self.looks < FIRST_LOOKS {
            weight.max(1.0 / f64::from(self.looks))
        } else {
            weight
        };
        let before = self.base.unwrap_or(base);
        self.base = Some(before + weight * (base - before));
    }

    /// How many workers a pool may have that has `workers`, of which so much is known, beside other pools'.
    pub(super) fn workers(&self, known: &PoolMemory, others: Others, workers: usize) -> usize {
        let part = |part: f64| ((workers as f64 * part) as usize).max(1);
        // Where nobody knows what there is, nothing is added.
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
        // One serves whatever there is: none would be a pool that is down.
        let fits = known.fits_in(&memory, base, others.claim);
        // Those that are there may stay as long as others only might need what they have, or until it is
        // known what they take themselves, unless that is too much as it is.
        let may_stay = if known.is_known() {
            known.fits_in(&memory, base, others.take)
        } else {
            known.fit_at_most_in(&memory, base)
        };
        let long = fits.max(workers.min(may_stay));
        // Nobody goes for what was: a fifth would at each look, for as long as the level stays.
        let most = match (self.pressure.seen(), self.pressure.level()) {
            (Level::Out, _) => part(OUT),
            (Level::Short, _) => part(SHORT),
            (_, Level::Calm) => now,
            _ => workers,
        };
        most.min(long).max(1)
    }

    /// Whether there is so much that what workers take need not be known soon.
    pub(super) fn is_far_from_the_limit(&self) -> bool {
        let is_far = |memory: &Memory| memory.used + self.promised <= FAR * memory.limit;
        self.pressure.level() == Level::Calm && self.memory.as_ref().is_some_and(is_far)
    }
}
