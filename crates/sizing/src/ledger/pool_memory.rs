//! What is known of the memory that a pool's workers take.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use crate::memory::{Capacity, reserve};
use crate::sources::Memory;

/// What a worker is taken to need, in bytes, of which nothing is known: PHP's own `memory_limit`.
pub const UNKNOWN_WORKER_BYTES: f64 = 128.0 * 1024.0 * 1024.0;

/// Measures that say what workers take, how it scatters, and what one takes at most, if so many requests have
/// ended: many measures of a few requests say little.
const ENOUGH: usize = 40;
const ENOUGH_REQUESTS: u64 = 200;

/// Measures that are remembered, and those of them that say what workers take now, if that is more.
const REMEMBERED: usize = 400;
const RECENT: usize = 100;

/// Of so many requests of which none was an exception, this many divided by their number may be ones
/// (the rule of three: with 95 % confidence, for any distribution).
const RULE_OF_THREE: f64 = 3.0;

/// Workers of a pool whose pages are counted at a look: of those whose never were, and of the others before
/// and after it is known what they take.
const NEW_AT_ONCE: usize = 4;
const OLD_AT_FIRST: usize = 8;
const OLD_AT_ONCE: usize = 1;

/// A worker has grown that has so many times as much as it began with, and so many bytes more.
const GROWN: f64 = 2.0;
const GROWN_BYTES: f64 = 16.0 * 1024.0 * 1024.0;

/// Requests after which a worker has what it begins with, and up to which it is young: what keeps being there
/// of one that is, any successor has as soon.
const BEGUN_REQUESTS: u64 = 10;
const YOUNG_REQUESTS: u64 = 50;

/// A worker that was to leave its place and is still there is not chosen again for so long: it may run a script
/// for minutes, and others have grown, too. Then it is, since who was told so may have gone.
const CHOSEN_AGAIN_AFTER: Duration = Duration::from_secs(600);

/// What a worker has, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WorkerMemory {
    /// For itself now, with what programs have that its script runs.
    pub own: f64,
    /// At most since it came, with the largest program that it is known to have run; nothing: nobody tells.
    pub most: Option<f64>,
    /// Requests that it has begun; nothing: nobody tells.
    pub served: Option<u64>,
}

/// A worker that has grown, and what it has, in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Grown {
    /// Its process id.
    pub worker: i32,
    /// What it had when it had begun to serve, or a young one of its pool has, if that is more.
    pub began_with: f64,
    /// What it has had at two measures in a row.
    pub has: f64,
}

/// How a worker is to be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueMeasurement {
    /// Its process id.
    pub worker: i32,
    /// Its pages are to be counted. Otherwise it is enough to see by how much what is resident has
    /// changed since.
    pub exactly: bool,
}

/// How many workers are measured at one look, of all pools together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Whose pages are counted: the kernel walks through all of them.
    pub exactly: usize,
    /// Others.
    pub roughly: usize,
}

/// What is known of a pool's workers.
#[derive(Debug, Default)]
pub struct PoolMemory {
    /// How many there are, and how many are on their way.
    pub workers: usize,
    coming: usize,
    /// Those that were measured; who was so last is at the end.
    measured: VecDeque<WorkerRecord>,
    /// What one has had at most of those that have left before it was known what workers take, in bytes.
    left: f64,
    /// What workers had that were not measured for the first time, in bytes; the last at the end.
    had: VecDeque<f64>,
    /// On average, in bytes.
    pub mean: f64,
    /// And by how much that scatters.
    pub variance: f64,
    /// What one has had at most, as far as it is known, and what one more takes, in bytes.
    pub most: f64,
    worker: f64,
    /// Requests that had ended when it was looked for the first time, and since then.
    began_at: Option<u64>,
    requests: u64,
}

#[derive(Debug, Clone, Copy)]
struct WorkerRecord {
    worker: i32,
    has: WorkerMemory,
    /// What it had when it was measured for the first time after it had begun to serve, in bytes.
    began_with: Option<f64>,
    /// The less of its last two measures, in bytes, and the most of that while it was young: what one request
    /// takes for a moment is in neither.
    keeps: f64,
    kept_young: f64,
    /// At which look its pages were counted.
    counted_at: u32,
    /// When it was to leave its place for having grown, if ever.
    replaced_at: Option<Duration>,
}

impl PoolMemory {
    /// Whether workers were measured often enough.
    pub fn is_known(&self) -> bool {
        self.had.len() >= ENOUGH && self.requests >= ENOUGH_REQUESTS
    }

    /// So many requests have ended since somebody counts.
    pub fn served(&mut self, requests: u64) {
        let began_at = *self.began_at.get_or_insert(requests);
        self.requests = requests.saturating_sub(began_at);
    }

    /// Which of these workers are to be measured, within the budget.
    pub fn due(&mut self, workers: &[i32], budget: &mut Budget) -> Vec<DueMeasurement> {
        (self.workers, self.coming) = (workers.len(), 0);
        let present: HashSet<i32> = workers.iter().copied().collect();
        let has_left = |one: &&WorkerRecord| !present.contains(&one.worker);
        let told = self
            .measured
            .iter()
            .filter(has_left)
            .filter_map(|one| one.has.most);
        self.left = told.fold(self.left, f64::max);
        self.measured.retain(|one| present.contains(&one.worker));
        let seen: HashSet<i32> = self.measured.iter().map(|one| one.worker).collect();
        let new = workers.iter().copied().filter(|one| !seen.contains(one));
        let mut exactly: Vec<i32> = new.take(NEW_AT_ONCE.min(budget.exactly)).collect();
        budget.exactly -= exactly.len();
        let mut old: Vec<&WorkerRecord> = self.measured.iter().collect();
        old.sort_by_key(|one| one.counted_at);
        let at_once = if self.is_known() {
            OLD_AT_ONCE
        } else {
            OLD_AT_FIRST
        };
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

    /// Whether some worker that was measured may be young, and what it keeps then is not known.
    pub fn may_have_young(&self) -> bool {
        let may_be_young = |one: &WorkerRecord| {
            let served = one.has.served;
            one.kept_young == 0.0 && served.is_none_or(|served| served <= YOUNG_REQUESTS)
        };
        self.measured.iter().any(may_be_young)
    }

    /// A worker was measured as it was due, at a look of this number.
    pub fn measured(&mut self, due: DueMeasurement, has: WorkerMemory, look: u32) {
        let place = self.measured.iter();
        let place = place.clone().position(|one| one.worker == due.worker);
        let before = place.and_then(|place| self.measured.remove(place));
        let counted_before = before.map_or(look, |one| one.counted_at);
        let keeps = before.map_or(0.0, |one| one.has.own.min(has.own));
        // What was told last may be long ago, and it has grown since.
        let is_young = has.served.is_some_and(|served| served <= YOUNG_REQUESTS);
        let kept_young = before.map_or(0.0, |one| one.kept_young);
        // At first its seat may still tell of the one that sat there before.
        let told = has.served.filter(|_| before.is_some());
        let has_begun = told.is_some_and(|served| served >= BEGUN_REQUESTS);
        let began_with = before.and_then(|one| one.began_with);
        self.measured.push_back(WorkerRecord {
            worker: due.worker,
            has: WorkerMemory {
                most: has.most.or(before.and_then(|one| one.has.most)),
                // They only become more.
                served: told.or(before.and_then(|one| one.has.served)),
                ..has
            },
            began_with: began_with.or(has_begun.then_some(has.own)),
            keeps,
            kept_young: if is_young {
                kept_young.max(keeps)
            } else {
                kept_young
            },
            counted_at: if due.exactly { look } else { counted_before },
            replaced_at: before.and_then(|one| one.replaced_at),
        });
        // When it is young it has little, and says nothing of what it will have.
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

    /// All that was due was measured: what follows from it.
    pub fn settle(&mut self) {
        let average = |of: &mut dyn Iterator<Item = f64>, count: usize| {
            of.sum::<f64>() / count.clamp(1, self.had.len().max(1)) as f64
        };
        let mean = average(&mut self.had.iter().copied(), REMEMBERED);
        let squares = self.had.iter().map(|had| (had - mean).powi(2));
        self.variance = average(&mut squares.into_iter(), REMEMBERED);
        let recent = self.had.iter().rev().take(RECENT).copied();
        self.mean = mean.max(average(&mut recent.into_iter(), RECENT));
        let told = self.measured.iter().filter_map(|one| one.has.most);
        let all = self.had.iter().copied().chain(told);
        let left = if self.is_known() { 0.0 } else { self.left };
        self.most = all.fold(left, f64::max);
        self.worker = if self.is_known() {
            self.mean.max(1.0)
        } else {
            self.guess()
        };
    }

    /// As long as few were measured: the more requests have taken no more than some number, the more that
    /// is believed.
    fn guess(&self) -> f64 {
        let tells = self.measured.iter().any(|one| one.has.most.is_some());
        let evidence = if tells {
            self.requests
        } else {
            self.had.len() as u64
        };
        let exceptions = (RULE_OF_THREE / evidence as f64).min(1.0);
        self.most + (UNKNOWN_WORKER_BYTES - self.most).max(0.0) * exceptions
    }

    /// What one more worker takes, in bytes.
    pub fn worker(&self) -> f64 {
        if self.worker > 0.0 {
            self.worker
        } else {
            UNKNOWN_WORKER_BYTES
        }
    }

    /// For how many workers there is room whatever their requests happen to take at a time, beside what is
    /// no worker's own and what other pools' workers take or have been promised; without what scatters as
    /// long as nobody knows what they take.
    pub fn fits_in(&self, memory: &Memory, base: f64, others: f64) -> usize {
        let room = Capacity {
            limit: memory.limit,
            base: base + others,
            worker: self.worker(),
            ..Capacity::default()
        };
        let room = if self.is_known() {
            Capacity {
                deviation: self.variance.sqrt(),
                most: self.most,
                ..room
            }
        } else {
            room
        };
        room.workers().unwrap_or(usize::MAX)
    }

    /// For how many there is room if each takes what one has had at most.
    pub fn fit_at_most_in(&self, memory: &Memory, base: f64) -> usize {
        let room = Capacity {
            limit: memory.limit,
            base,
            worker: self.most,
            ..Capacity::default()
        };
        room.workers().unwrap_or(usize::MAX)
    }

    /// A worker is to leave its place to another, for having grown.
    pub fn replaces(&mut self, worker: i32, now: Duration) {
        let chosen = self.measured.iter_mut().find(|one| one.worker == worker);
        if let Some(chosen) = chosen {
            chosen.replaced_at = Some(now);
        }
    }

    /// The worker that has grown most, of those that were not chosen a while ago; nothing: none has grown so that
    /// another in its place would have much less, or nobody knows yet.
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

    /// How many were never measured.
    fn unmeasured(&self) -> usize {
        self.workers.saturating_sub(self.measured.len())
    }

    /// What those are to have and those that are on their way, in bytes.
    pub fn is_to_have(&self) -> f64 {
        (self.unmeasured() + self.coming) as f64 * self.worker()
    }

    /// What all have now, in bytes: those that were not measured are taken for the average of the others.
    pub fn own(&self) -> f64 {
        let sum: f64 = self.measured.iter().map(|one| one.has.own).sum();
        let count = self.measured.len().max(1) as f64;
        sum + sum / count * self.unmeasured() as f64
    }

    /// What its workers take, all of them together, in bytes: on average, and beyond that.
    pub fn takes(&self) -> f64 {
        let workers = self.workers as f64;
        let most = workers * (self.most - self.mean);
        let beyond = reserve(workers * self.variance).min(most.max(0.0));
        workers * self.mean + beyond
    }

    /// So many more workers are on their way.
    pub fn promise(&mut self, workers: usize) {
        self.coming = self.coming.saturating_add(workers);
    }

    /// What other pools leave to its workers, in bytes: what they take, or as long as nobody knows that, what
    /// they were promised. A pool's only worker it has in any case, and most such pools rest.
    pub fn claims(&self) -> f64 {
        let workers = self.workers.saturating_add(self.coming);
        let promised = if self.is_known() || workers <= 1 {
            0.0
        } else {
            workers as f64 * self.worker()
        };
        promised.max(self.takes())
    }
}
