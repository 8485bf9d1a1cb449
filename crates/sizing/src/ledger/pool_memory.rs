//! The memory of a pool's workers.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use crate::memory::{Capacity, reserve};
use crate::sources::Memory;

/// Assumed memory of an unknown worker, in bytes: PHP's own `memory_limit`.
pub const UNKNOWN_WORKER_BYTES: f64 = 128.0 * 1024.0 * 1024.0;

/// Measurements, and ended requests, after which the average, the scatter and the maximum are
/// known: many measurements of a few requests are not enough.
const ENOUGH: usize = 40;
const ENOUGH_REQUESTS: u64 = 200;

/// Measurements that are kept, and the recent ones whose average counts if it is larger.
const REMEMBERED: usize = 400;
const RECENT: usize = 100;

/// Of this many requests without an exception, this number divided by theirs may be ones (the rule
/// of three: with 95 % confidence, for any distribution).
const RULE_OF_THREE: f64 = 3.0;

/// Workers of a pool whose pages are counted at a sample: new ones, and others before and after the
/// pool's memory is known.
const NEW_AT_ONCE: usize = 4;
const OLD_AT_FIRST: usize = 8;
const OLD_AT_ONCE: usize = 1;

/// A worker has grown if it uses this many times its initial memory, and this many bytes more.
const GROWN: f64 = 2.0;
const GROWN_BYTES: f64 = 16.0 * 1024.0 * 1024.0;

/// Requests after which a worker has its initial memory, and up to which it is young: memory that a
/// young one keeps, any successor needs as soon.
const BEGUN_REQUESTS: u64 = 10;
const YOUNG_REQUESTS: u64 = 50;

/// A worker that was chosen for replacement and is still there is not chosen again for this long:
/// it may run a script for minutes, and others have grown, too. Then it is, since the order may be
/// lost.
const CHOSEN_AGAIN_AFTER: Duration = Duration::from_secs(600);

/// The memory of a worker, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WorkerMemory {
    /// Its own now, with that of programs its script runs.
    pub own: f64,
    /// Its peak, with the largest program it is known to have run; `None`: unknown.
    pub most: Option<f64>,
    /// Requests it has started; `None`: unknown.
    pub served: Option<u64>,
}

/// A worker that has grown, and its memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Grown {
    /// Its process id.
    pub worker: i32,
    /// Its initial memory, or that of a young one of its pool, if larger.
    pub began_with: f64,
    /// Its memory at two consecutive measurements.
    pub has: f64,
}

/// A measurement to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueMeasurement {
    /// Its process id.
    pub worker: i32,
    /// Its pages are to be counted. Otherwise the change of its resident memory is enough.
    pub exactly: bool,
}

/// Measurements per sample, of all pools together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Counted pages: the kernel walks all of them.
    pub exactly: usize,
    /// Others.
    pub roughly: usize,
}

/// Bounds of what a pool uses and reserves, in bytes: its workers report their own peaks, and
/// memory that several of their programs share counts for each of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PoolCap {
    /// A part of the server's memory: the most that is reserved on the workers' word alone.
    pub(super) share: f64,
    /// The limit of the pool's own control group.
    pub(super) limit: f64,
    /// The memory in use in that group.
    pub(super) used: f64,
}

impl PoolCap {
    /// No cap, for memory that is the pool's own.
    pub(super) const NONE: PoolCap =
        PoolCap { share: f64::INFINITY, limit: f64::INFINITY, used: f64::INFINITY };

    /// The cap of reservations for this number of unknown workers: what those usually take is not
    /// in doubt.
    fn of(self, workers: usize) -> f64 {
        self.share.max(workers as f64 * UNKNOWN_WORKER_BYTES).min(self.limit)
    }
}

/// The memory of a pool's workers.
#[derive(Debug, Default)]
pub struct PoolMemory {
    /// Running workers, and starting ones.
    pub workers: usize,
    coming: usize,
    /// Measured workers; the last one is at the end.
    measured: VecDeque<WorkerRecord>,
    /// The peak of workers that exited before the pool's memory was known, in bytes.
    left: f64,
    /// Memory of workers at all but their first measurement, in bytes; the last at the end.
    had: VecDeque<f64>,
    /// On average, in bytes.
    pub mean: f64,
    /// Variance.
    pub variance: f64,
    /// The highest known peak, and the estimate for one more worker, in bytes.
    pub most: f64,
    worker: f64,
    /// Ended requests at the first sample, and since then.
    began_at: Option<u64>,
    requests: u64,
}

#[derive(Debug, Clone, Copy)]
struct WorkerRecord {
    worker: i32,
    has: WorkerMemory,
    /// Its memory at the first measurement after it began to serve, in bytes.
    began_with: Option<f64>,
    /// The smaller of its last two measurements, in bytes, and the largest of that while it was
    /// young: the short peak of a request is in neither.
    keeps: f64,
    kept_young: f64,
    /// The sample at which its pages were counted.
    counted_at: u32,
    /// When it was chosen for replacement, if ever.
    replaced_at: Option<Duration>,
}

impl PoolMemory {
    /// Whether workers were measured often enough.
    pub fn is_known(&self) -> bool {
        self.had.len() >= ENOUGH && self.requests >= ENOUGH_REQUESTS
    }

    /// The number of ended requests, since counting began.
    pub fn served(&mut self, requests: u64) {
        let began_at = *self.began_at.get_or_insert(requests);
        self.requests = requests.saturating_sub(began_at);
    }

    /// The workers to measure, within the budget.
    pub fn due(&mut self, workers: &[i32], budget: &mut Budget) -> Vec<DueMeasurement> {
        (self.workers, self.coming) = (workers.len(), 0);
        let present: HashSet<i32> = workers.iter().copied().collect();
        let has_left = |one: &&WorkerRecord| !present.contains(&one.worker);
        let reported = self.measured.iter().filter(has_left).filter_map(|one| one.has.most);
        self.left = reported.fold(self.left, f64::max);
        self.measured.retain(|one| present.contains(&one.worker));
        let seen: HashSet<i32> = self.measured.iter().map(|one| one.worker).collect();
        let new = workers.iter().copied().filter(|one| !seen.contains(one));
        let mut exactly: Vec<i32> = new.take(NEW_AT_ONCE.min(budget.exactly)).collect();
        budget.exactly -= exactly.len();
        let mut old: Vec<&WorkerRecord> = self.measured.iter().collect();
        old.sort_by_key(|one| one.counted_at);
        let at_once = if self.is_known() { OLD_AT_ONCE } else { OLD_AT_FIRST };
        let old = old.into_iter().take(at_once.min(budget.exactly));
        let old: Vec<i32> = old.map(|one| one.worker).collect();
        budget.exactly -= old.len();
        let others = self.measured.iter().map(|one| one.worker);
        let others = others.filter(|one| !old.contains(one));
        let roughly: Vec<i32> = others.take(budget.roughly).collect();
        budget.roughly -= roughly.len();
        exactly.extend(old);
        let due = |exactly| move |worker| DueMeasurement { worker, exactly };
        let exactly = exactly.into_iter().map(due(true));
        exactly.chain(roughly.into_iter().map(due(false))).collect()
    }

    /// Whether some measured worker may be young, and its lasting memory is not known.
    pub fn may_have_young(&self) -> bool {
        let may_be_young = |one: &WorkerRecord| {
            let served = one.has.served;
            one.kept_young == 0.0 && served.is_none_or(|served| served <= YOUNG_REQUESTS)
        };
        self.measured.iter().any(may_be_young)
    }

    /// A worker was measured as due, at the sample of this number.
    pub fn measured(&mut self, due: DueMeasurement, has: WorkerMemory, look: u32) {
        let place = self.measured.iter();
        let place = place.clone().position(|one| one.worker == due.worker);
        let before = place.and_then(|place| self.measured.remove(place));
        let counted_before = before.map_or(look, |one| one.counted_at);
        let keeps = before.map_or(0.0, |one| one.has.own.min(has.own));
        // The last report may be old, and it has grown since.
        let is_young = has.served.is_some_and(|served| served <= YOUNG_REQUESTS);
        let kept_young = before.map_or(0.0, |one| one.kept_young);
        // At first its seat may still report the previous worker's requests.
        let reported = has.served.filter(|_| before.is_some());
        let has_begun = reported.is_some_and(|served| served >= BEGUN_REQUESTS);
        let began_with = before.and_then(|one| one.began_with);
        self.measured.push_back(WorkerRecord {
            worker: due.worker,
            has: WorkerMemory {
                most: has.most.or(before.and_then(|one| one.has.most)),
                // The count only grows.
                served: reported.or(before.and_then(|one| one.has.served)),
                ..has
            },
            began_with: began_with.or(has_begun.then_some(has.own)),
            keeps,
            kept_young: if is_young { kept_young.max(keeps) } else { kept_young },
            counted_at: if due.exactly { look } else { counted_before },
            replaced_at: before.and_then(|one| one.replaced_at),
        });
        // A young worker's memory is not representative.
        if before.is_some() {
            self.add(has.own);
        }
    }

    fn add(&mut self, bytes: f64) {
        self.had.push_back(bytes);
        if self.had.len() > REMEMBERED {
            self.had.pop_front();
        }
    }

    /// All due workers were measured: updates the estimates.
    pub fn settle(&mut self) {
        let average = |of: &mut dyn Iterator<Item = f64>, count: usize| {
            of.sum::<f64>() / count.clamp(1, self.had.len().max(1)) as f64
        };
        let mean = average(&mut self.had.iter().copied(), REMEMBERED);
        let squares = self.had.iter().map(|had| (had - mean).powi(2));
        self.variance = average(&mut squares.into_iter(), REMEMBERED);
        let recent = self.had.iter().rev().take(RECENT).copied();
        self.mean = mean.max(average(&mut recent.into_iter(), RECENT));
        let reported = self.measured.iter().filter_map(|one| one.has.most);
        let all = self.had.iter().copied().chain(reported);
        let left = if self.is_known() { 0.0 } else { self.left };
        self.most = all.fold(left, f64::max);
        self.worker = if self.is_known() { self.mean.max(1.0) } else { self.guess() };
    }

    /// While few were measured: the more requests stayed below a peak, the more it counts.
    fn guess(&self) -> f64 {
        let reports = self.measured.iter().any(|one| one.has.most.is_some());
        let evidence = if reports { self.requests } else { self.had.len() as u64 };
        let exceptions = (RULE_OF_THREE / evidence as f64).min(1.0);
        self.most + (UNKNOWN_WORKER_BYTES - self.most).max(0.0) * exceptions
    }

    /// The estimate for one more worker, in bytes.
    pub fn worker(&self) -> f64 {
        if self.worker > 0.0 { self.worker } else { UNKNOWN_WORKER_BYTES }
    }

    /// Workers that fit into memory whatever their requests happen to take at a time, beside `base`
    /// and the use or reservations of other pools; without scatter as long as it is unknown.
    pub fn fits_in(&self, memory: &Memory, base: f64, others: f64) -> usize {
        let room = Capacity {
            limit: memory.limit,
            base: base + others,
            worker: self.worker(),
            ..Capacity::default()
        };
        let room = if self.is_known() {
            Capacity { deviation: self.variance.sqrt(), most: self.most, ..room }
        } else {
            room
        };
        room.workers().unwrap_or(usize::MAX)
    }

    /// Workers that fit if each takes the highest peak.
    pub fn fit_at_most_in(&self, memory: &Memory, base: f64) -> usize {
        let room = Capacity { limit: memory.limit, base, worker: self.most, ..Capacity::default() };
        room.workers().unwrap_or(usize::MAX)
    }

    /// A worker is to be replaced because it has grown.
    pub fn replaces(&mut self, worker: i32, now: Duration) {
        let chosen = self.measured.iter_mut().find(|one| one.worker == worker);
        if let Some(chosen) = chosen {
            chosen.replaced_at = Some(now);
        }
    }

    /// The worker that has grown most, of those not chosen recently. `None`: none has grown so that
    /// another in its place would use much less, or it is unknown yet.
    pub fn outgrown(&self, now: Duration) -> Option<Grown> {
        let young = self.measured.iter().map(|one| one.kept_young);
        let young = young.fold(0.0, f64::max);
        let may_be_chosen = |one: &&WorkerRecord| {
            let since = one.replaced_at.map(|at| now.saturating_sub(at));
            since.is_none_or(|since| since >= CHOSEN_AGAIN_AFTER)
        };
        let all = self.measured.iter().filter(may_be_chosen);
        let all = all.filter_map(|one| {
            Some(Grown {
                worker: one.worker,
                began_with: one.began_with?.max(young),
                has: one.keeps,
            })
        });
        let grown = all.filter(|one| {
            let least = (GROWN * one.began_with).max(one.began_with + GROWN_BYTES);
            one.has >= least
        });
        let most = grown.max_by(|one, other| one.has.total_cmp(&other.has));
        most.filter(|_| self.is_known())
    }

    /// Workers never measured.
    fn unmeasured(&self) -> usize {
        self.workers.saturating_sub(self.measured.len())
    }

    /// Reservations of those and of starting ones, in bytes.
    pub(super) fn is_to_have(&self, cap: PoolCap) -> f64 {
        let workers = self.unmeasured() + self.coming;
        let all = workers as f64 * self.worker();
        if self.is_known() { all } else { all.min(cap.of(workers)) }
    }

    /// The use of all workers now, in bytes: unmeasured ones count as the average.
    pub(super) fn own(&self, cap: PoolCap) -> f64 {
        let sum: f64 = self.measured.iter().map(|one| one.has.own).sum();
        let count = self.measured.len().max(1) as f64;
        (sum + sum / count * self.unmeasured() as f64).min(cap.used)
    }

    /// The use of its workers together, in bytes: the average, and a reserve.
    pub(super) fn takes(&self, cap: PoolCap) -> f64 {
        let workers = self.workers as f64;
        let most = workers * (self.most - self.mean);
        let beyond = reserve(workers * self.variance).min(most.max(0.0));
        let takes = workers * self.mean + beyond;
        takes.min(self.own(cap) + cap.share).min(cap.limit)
    }

    /// More workers are starting.
    pub fn promise(&mut self, workers: usize) {
        self.coming = self.coming.saturating_add(workers);
    }

    /// What other pools leave to its workers, in bytes: their use, or their reservations while that
    /// is unknown. A pool always has its only worker, and most such pools are idle.
    pub(super) fn claims(&self, cap: PoolCap) -> f64 {
        let workers = self.workers.saturating_add(self.coming);
        let promised =
            if self.is_known() || workers <= 1 { 0.0 } else { workers as f64 * self.worker() };
        promised.min(cap.of(workers)).max(self.takes(cap))
    }
}
