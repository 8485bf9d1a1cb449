//! The current number of workers of a pool, and the limit that decides it.

use std::time::Duration;

use crate::cost::{Cost, Spent};
use crate::demand::{Demand, WAITING_SHARE};
use crate::downstream::{Guard, PoolSample};
use crate::kinds::Kinds;
use crate::knee::{Pace, knee};
use crate::terms::{Binding, Limits, Load, Machine, Sizing, Terms};

/// Cost of a request until enough have ended: a quarter of it is work, as in the rule of thumb of
/// four workers per processor.
const UNKNOWN_CPU_SHARE: f64 = 0.25;

/// Acceptable waiting time of a request, as a part of the time of a slow one.
const PATIENCE: f64 = 0.1;

/// Growth of the acceptable waiting time with the ratio of slow requests to the average.
const PATIENCE_GROWS: f64 = 2.0;

/// If slow requests take no more than this times the average, all take about the same; from the
/// second factor on they differ.
const ALIKE: f64 = 1.25;
const DIFFERENT: f64 = 1.75;

/// A knee between this part of its old value and as much more counts as the same.
const STAYS: f64 = 0.9;

/// A share of work, or a number of processors, that differs by less than this part does not change
/// the knee.
const SAME: f64 = 0.01;

/// A share of work below this part of its old value applies at once, and a smaller drop does if
/// work scatters more than exponential times.
const MUCH_LESS: f64 = 0.25;

/// And it applies again below this part of the value applied then.
const LESS_AGAIN: f64 = 0.8;

/// Scatter of work up to which all requests wait alike for a processor. Beyond it, short requests
/// are better off among many workers than in a queue, all of them at 1 more.
const SCATTER_ALIKE: f64 = 1.25;

/// The part by which more workers share the processors for each 1 of scatter above that of
/// exponential times: short requests should not wait behind long ones.
const FOR_SCATTER: f64 = 0.5;

/// More scatter makes no difference.
const SCATTER_MOST: f64 = 4.0;

/// Most requests that may wait before the pool grows for it, as a credit earned by those that did
/// not wait.
const WAITS_SAVED: f64 = 20.0;

/// A request that finds this many times as many in flight as there are workers makes the pool grow
/// at once.
const CROWD: usize = 2;

/// In a smaller pool no request waits for another.
const SMALL: usize = 4;

/// One of this many workers exits per second, and at least one.
const GOES: usize = 20;

/// A request that has waited this many times as long as one takes hangs, if times differ much, and
/// if all take about as long.
const PARKS_AFTER: f64 = 8.0;
const PARKS_SOONEST: f64 = 3.0;

/// And in between, one that has waited this many times as long as a slow one takes.
const PARKS_AFTER_SLOW: f64 = 3.0;

/// A shorter wait is never a hang, however short requests are, in seconds.
const PARKS_SECONDS: f64 = 0.03;

/// Nor is a shorter wait while the time of requests is unknown, in seconds.
const PARKS_UNKNOWN_SECONDS: f64 = 0.1;

/// While it is unknown, requests of a kind that hangs are believed to take up to this, in seconds:
/// most pages take less, and most dead services take longer than the limit found by that, which is
/// at most three times as long.
const BELIEVED_UNKNOWN_SECONDS: f64 = 2.0;

/// At most one of this many workers is reserved from requests that hang.
const KEPT: usize = 4;

/// This many waiting requests per worker indicate a pool that is stuck.
const STUCK: f64 = 0.25;

/// A pool can use this many times as many processors as it does on average, or requests pile up.
const MORE_THAN_BUSY: f64 = 1.2;

/// Processors busy to less than this part are idle.
const IDLE: f64 = 0.5;

/// Requests that wait for a processor this many times as long as they work find all of them busy.
const WAITS_FOR_CORES: f64 = 0.25;

/// Consecutive samples that show all of that until it is believed: in a single one, a half-busy
/// pool has done less than usual and requests wait by chance.
const DOUBT_LOOKS: u32 = 3;

/// Consecutive samples without a waiting request until half of the doubt is dropped.
const CALM_LOOKS: u32 = 60;

/// Most workers, as a factor of those the processors seem to need.
const DOUBT_MOST: usize = 64;

/// More than this many times the processors cannot be busy.
const ABSURD: f64 = 1.5;

/// Processors busy to this part make requests wait for them.
const NEARLY_FULL: f64 = 0.7;

/// Weight of a sample in the average of busy processors.
const FOLLOWS: f64 = 0.1;

/// Processors busy to this part are full.
const FULL: f64 = 0.9;

/// The size of a pool, from samples of it.
#[derive(Debug)]
pub struct Controller {
    limits: Limits,
    machine: Machine,
    demand: Demand,
    cost: Cost,
    guard: Guard,
    /// Workers needed now: up at once, down slowly.
    level: usize,
    /// Requests that may still wait before the pool grows.
    saved: f64,
    parked: usize,
    /// Some kind hangs while others get responses.
    others_answer: bool,
    /// Requests waited at the last sample.
    waits: bool,
    /// This many workers keep the processors busy.
    knee: usize,
    /// The processors and the share of work of the last computation of the knee, which is
    /// expensive, and its result.
    full: (f64, f64, usize),
    /// The factor by which more workers are allowed, since processors were idle while requests
    /// waited for them.
    doubt: usize,
    /// Consecutive samples that show so, and without a waiting request.
    doubted: u32,
    calm: u32,
    /// Throughput by the number of workers; `None`: requests are unknown.
    pace: Pace,
    /// Average of busy processors.
    busy_cores: f64,
    /// The share of work that applied at once.
    believed: f64,
    done: u64,
    looked: Duration,
}

impl Controller {
    /// A new pool.
    pub fn new(limits: Limits, machine: Machine) -> Controller {
        Controller {
            limits,
            machine,
            demand: Demand::default(),
            cost: Cost::default(),
            guard: Guard::default(),
            level: limits.floor,
            saved: 0.0,
            parked: 0,
            others_answer: false,
            waits: false,
            knee: knee(machine.cores, UNKNOWN_CPU_SHARE),
            full: (0.0, 0.0, 0),
            pace: Pace::default(),
            busy_cores: 0.0,
            doubt: 1,
            doubted: 0,
            calm: 0,
            believed: 1.0,
            done: 0,
            looked: Duration::ZERO,
        }
    }

    /// New limits, by a reload: what was learned stays.
    pub fn limit(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// New limits of processors and memory.
    pub fn see(&mut self, machine: Machine) {
        self.machine = machine;
    }

    /// A request has arrived; it is part of `load`.
    pub fn arrived(&mut self, load: Load) {
        self.parked = load.parked;
        let in_hand = load.busy + load.waiting;
        let enough = self.enough_for(in_hand, load.parked);
        // A backlog while workers are starting does not show how many are enough.
        if load.ready >= self.sizing().workers {
            self.demand.arrived(enough.min(CROWD * load.ready));
        }
        self.saved = (self.saved + WAITING_SHARE).min(WAITS_SAVED);
        if enough <= self.level {
            return;
        }
        // A few may wait: a pool that grows for each burst is larger than necessary. In a small one
        // the wait would be long.
        if self.level >= SMALL && in_hand <= CROWD * self.level && self.saved >= 1.0 {
            self.saved -= 1.0;
            return;
        }
        self.level = enough;
    }

    /// Some request has waited too long: the pool grows.
    pub fn crowded(&mut self, load: Load) {
        self.parked = load.parked;
        let enough = self.enough_for(load.busy + load.waiting, load.parked);
        self.level = self.level.max(enough);
    }

    /// Whether some kind of requests hangs while others get responses, before each sample: then no
    /// worker is taken from the others for a trial.
    pub fn see_kinds(&mut self, kinds: &Kinds) {
        self.others_answer = kinds.others_answer();
    }

    /// A request of this kind has ended; `kinds` records it.
    pub fn ended(&mut self, kinds: &mut Kinds, kind: u64, spent: Spent) {
        let hung = spent.blocked.as_secs_f64() > self.parks_after();
        let most = kinds.counts_at_most(kind).filter(|_| hung);
        let most = most.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        kinds.ended(kind, hung);
        let blocked = spent.blocked.min(most.unwrap_or(Duration::MAX));
        self.finished(Spent { blocked, ..spent });
    }

    /// A request has ended.
    pub fn finished(&mut self, spent: Spent) {
        self.done += 1;
        // Hanging requests are excluded from the knee meanwhile (`parked`) and later.
        let hangs = Duration::try_from_secs_f64(self.parks_after());
        let blocked = spent.blocked.min(hangs.unwrap_or(Duration::MAX));
        self.cost.add(Spent { blocked, ..spent });
        let share = self.cost.recent_cpu_share();
        let much_less = MUCH_LESS / self.cost.cpu_scatter().max(1.0) * self.cost.cpu_share();
        if self.cost.is_blind() || share >= LESS_AGAIN * self.believed || share >= much_less {
            return;
        }
        // Requests that waited behind work wait for something else now, and need workers at once.
        self.believed = share;
        self.knee = self.knee.max(knee(self.machine.cores, share));
        self.pace = Pace::new(self.machine.cores, share);
    }

    /// Samples the pool about once a second while it has more workers than at rest, and lets some
    /// exit if they were not needed for long.
    pub fn look(&mut self, now: Duration, load: Load) {
        self.demand.look(now);
        self.parked = load.parked;
        self.waits = load.waiting > 0;
        self.cost.look();
        self.turn_knee();
        if load.waiting > 0 {
            self.crowded(load);
        }
        // One worker is worth keeping for the next request, however rare requests are.
        let one = usize::from(self.demand.has_come());
        let keep = self.demand.keep().max(self.limits.floor).max(one);
        if self.level > keep && load.busy + load.waiting < self.level {
            let go = (self.level / GOES).max(1);
            self.level = keep.max(self.level - go);
        }
        let time = now.saturating_sub(self.looked).as_secs_f64();
        let busy_cores = self.done as f64 * self.cost.cpu() / time.max(f64::MIN_POSITIVE);
        self.busy_cores += FOLLOWS * (busy_cores - self.busy_cores);
        let most = 2.0 * ABSURD * self.machine.cores;
        self.busy_cores = self.busy_cores.clamp(0.0, most);
        self.doubt_knee(busy_cores, load);
        let workers = self.sizing().workers;
        let is_stuck = !self.others_answer
            && load.waiting as f64 >= STUCK * workers as f64
            && load.busy >= workers
            && self.cost.is_known()
            && busy_cores < FULL * self.machine.cores;
        let alone = self.done as f64 / time.max(f64::MIN_POSITIVE) * self.cost.alone();
        let seen = PoolSample { workers, done: self.done, is_stuck, alone };
        self.guard.look(now, &seen);
        self.done = 0;
        self.looked = now;
    }

    /// Workers that are enough for `in_hand` requests, of which `parked` hang and keep theirs.
    fn enough_for(&self, in_hand: usize, parked: usize) -> usize {
        let (others, patience) = (in_hand.saturating_sub(parked), self.patience());
        let each = (others as f64 / (1.0 + patience)).ceil() as usize;
        let few = match self.cost.is_known() {
            true if self.doubt == 1 => self.pace.enough(others, patience),
            _ => each,
        };
        let scatter = (self.cost.cpu_scatter() - SCATTER_ALIKE).clamp(0.0, 1.0);
        let few = few.max(self.pace.keeps_busy(MORE_THAN_BUSY * self.busy_cores).min(each));
        let enough = few as f64 + scatter * each.saturating_sub(few) as f64;
        parked.saturating_add(enough.ceil() as usize)
    }

    /// Acceptable waiting time, as a part of the time of a request: not noticeable compared with
    /// slow requests. Zero if all wait about as long for other things than a processor: those that
    /// start together end together, and a request without a worker waits a whole turn.
    fn patience(&self) -> f64 {
        if !self.cost.is_known() {
            return PATIENCE;
        }
        let slow = self.cost.slow_part();
        let differs = ((slow - ALIKE) / (DIFFERENT - ALIKE)).clamp(0.0, 1.0);
        PATIENCE * slow.powf(PATIENCE_GROWS) * differs.max(self.cost.cpu_share())
    }

    /// The share of work in a request.
    fn share(&self) -> f64 {
        let cores = self.machine.cores;
        match self.cost.is_blind() {
            // More than there is: the workers' processor times are wrong.
            _ if self.busy_cores > ABSURD * cores => UNKNOWN_CPU_SHARE,
            // If waiting for a processor is not reported, it counts as other waiting unless
            // processors are nearly full.
            true if self.busy_cores > NEARLY_FULL * cores => self.cost.cpu_share_alone(),
            _ => self.cost.cpu_share(),
        }
    }

    /// Follows the cost of requests, if it changes the result.
    fn turn_knee(&mut self) {
        if !self.cost.is_known() {
            return;
        }
        let share = self.share();
        let full = self.full(share) as f64;
        let scatter = (self.cost.cpu_scatter() - 1.0).clamp(0.0, SCATTER_MOST);
        let next = full * (1.0 + FOR_SCATTER * scatter);
        let (low, high) = (STAYS * self.knee as f64, self.knee as f64 / STAYS);
        if self.believed < 1.0 || self.pace.is_unknown() || next < low || next > high {
            self.knee = next.ceil() as usize;
            self.pace = Pace::new(self.machine.cores, share);
        }
        self.believed = 1.0;
    }

    /// This many workers keep the processors full at such a share of work.
    fn full(&mut self, share: f64) -> usize {
        let (cores, before, _) = self.full;
        let is_same = |now: f64, before: f64| (now - before).abs() <= SAME * before;
        if !is_same(self.machine.cores, cores) || !is_same(share, before) {
            self.full = (self.machine.cores, share, knee(self.machine.cores, share));
        }
        self.full.2
    }

    /// If requests wait, the processors allow no more workers, and yet they are idle, the workers'
    /// processor times cannot be true.
    fn doubt_knee(&mut self, busy_cores: f64, load: Load) {
        let cores = self.machine.cores;
        let waits_for_others = self.waits_for_others();
        if busy_cores >= FULL * cores || waits_for_others {
            self.doubt = 1;
        }
        let is_odd = load.waiting > 0
            && load.busy >= self.sizing().workers
            && self.sizing().binding == Binding::Cpu
            && busy_cores < IDLE * cores
            && !waits_for_others;
        self.doubted = if is_odd { self.doubted + 1 } else { 0 };
        self.calm = if load.waiting == 0 { self.calm + 1 } else { 0 };
        if self.doubted >= DOUBT_LOOKS {
            self.doubted = 0;
            self.doubt = (self.doubt * 2).min(DOUBT_MOST);
        }
        if self.calm >= CALM_LOOKS {
            self.calm = 0;
            self.doubt = (self.doubt / 2).max(1);
        }
    }

    /// Whether other processes may have the processors: those are busy, too.
    fn waits_for_others(&self) -> bool {
        self.cost.ready() >= WAITS_FOR_CORES * self.cost.cpu()
    }

    /// The target number of workers.
    pub fn sizing(&self) -> Sizing {
        let terms = Terms {
            demand: self.level,
            // A worker that hangs uses no processor.
            cpu: self.knee.saturating_mul(self.doubt).saturating_add(self.parked),
            memory: self.machine.memory,
            downstream: self.guard.limit(),
            user: self.limits.cap,
        };
        let (least, binding) = match terms.least() {
            // More would be wanted if processors were free.
            (least, Binding::Demand) if self.waits && terms.cpu == least => (least, Binding::Cpu),
            other => other,
        };
        let floor = self.limits.floor.min(self.limits.cap);
        Sizing { workers: least.max(floor), binding, terms }
    }

    /// The time of waiting for other things than a processor after which a request hangs, in
    /// seconds, as far as is known.
    pub fn parks_after(&self) -> f64 {
        if !self.cost.is_known() {
            return PARKS_UNKNOWN_SECONDS;
        }
        let slow = PARKS_AFTER_SLOW * self.cost.slow_part();
        let times = slow.clamp(PARKS_SOONEST, PARKS_AFTER);
        (times * self.cost.whole()).max(PARKS_SECONDS)
    }

    /// The most that requests of a kind may have waited, in seconds, if it hangs from now on (for
    /// [`Kinds::look`]).
    pub fn believes_up_to(&self) -> f64 {
        if self.cost.is_known() {
            self.parks_after()
        } else {
            // That is a guess, and a value capped at a guess would never be found to be larger.
            BELIEVED_UNKNOWN_SECONDS
        }
    }

    /// Most workers for requests of kinds that mostly hang: the others keep as many as keep the
    /// processors busy, at most a part of all and at least one. `None`: nothing to reserve, or the
    /// time of requests is unknown.
    pub fn most_that_hang(&self) -> Option<usize> {
        let all = self.machine.memory.unwrap_or(usize::MAX);
        let downstream = self.guard.limit().unwrap_or(usize::MAX);
        let all = all.min(downstream).max(self.limits.floor);
        let all = all.min(self.limits.cap);
        let busy = self.knee.saturating_mul(self.doubt);
        let kept = busy.min(all / KEPT).max(1);
        (all > 1 && self.cost.is_known()).then(|| all - kept)
    }

    /// Current processors and memory.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Cost of requests.
    pub fn cost(&self) -> &Cost {
        &self.cost
    }
}

#[cfg(test)]
mod tests;
