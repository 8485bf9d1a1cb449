//! How many workers a pool is to have now, and why not more.

use std::time::Duration;

use crate::cost::{Cost, Spent};
use crate::demand::{Demand, WAITING_SHARE};
use crate::downstream::{Guard, PoolSample};
use crate::kinds::Kinds;
use crate::knee::{Pace, knee};
use crate::terms::{Binding, Limits, Load, Machine, Sizing, Terms};

/// What a request is taken to be until enough have ended: a quarter of it work, as in the rule of
/// thumb of four workers a processor.
const UNKNOWN_CPU_SHARE: f64 = 0.25;

/// What a request may wait, as a part of what a slow one takes.
const PATIENCE: f64 = 0.1;

/// How what may be waited grows with how much longer than the average slow requests take.
const PATIENCE_GROWS: f64 = 2.0;

/// Where slow requests take no more than this times the average, all take about the same; from so many times
/// on they differ.
const ALIKE: f64 = 1.25;
const DIFFERENT: f64 = 1.75;

/// A knee between this part of what it was and as much more is the same.
const STAYS: f64 = 0.9;

/// A share of work, or a number of processors, that differs by less than this part makes no other knee.
const SAME: f64 = 0.01;

/// A share of work that is less than this part of what it was is believed at once, and less by as much as
/// work scatters more than exponential times.
const MUCH_LESS: f64 = 0.25;

/// And believed again when it is less than this part of what was believed then.
const LESS_AGAIN: f64 = 0.8;

/// Scatter of work up to which all wait alike for a processor, wherever they wait. Beyond it, short
/// requests have it better among many workers than in a queue, all of them where it is 1 more.
const SCATTER_ALIKE: f64 = 1.25;

/// By what part more workers share the processors for each 1 that the scatter of work is above that of
/// exponential times: short requests are not to wait behind long ones.
const FOR_SCATTER: f64 = 0.5;

/// Beyond this much it makes no difference.
const SCATTER_MOST: f64 = 4.0;

/// Most requests that may wait before the pool grows for it, as a count saved up by those that did
/// not wait.
const WAITS_SAVED: f64 = 20.0;

/// A request that finds so many times as many in hand as there are workers has the pool grow at once.
const CROWD: usize = 2;

/// In a pool of fewer workers than this none waits for the others.
const SMALL: usize = 4;

/// One of so many workers goes in a second, and one at least.
const GOES: usize = 20;

/// A request that has waited for so many times as long as one takes hangs, where they differ much, and where
/// all take about as long.
const PARKS_AFTER: f64 = 8.0;
const PARKS_SOONEST: f64 = 3.0;

/// And in between, one that has waited for so many times as long as a slow one takes.
const PARKS_AFTER_SLOW: f64 = 3.0;

/// One that has waited for less than this, in seconds, does not, however short they are.
const PARKS_SECONDS: f64 = 0.03;

/// Nor one that has waited for less than this, in seconds, while it is not known what they take.
const PARKS_UNKNOWN_SECONDS: f64 = 0.1;

/// And while nobody knows, what requests of a kind that hangs take is believed up to this, in seconds: most pages
/// take less, and most of what is dead takes longer than what is found by that, three times as long at most.
const BELIEVED_UNKNOWN_SECONDS: f64 = 2.0;

/// One of so many workers that there may be is kept from requests that hang, at most.
const KEPT: usize = 4;

/// Requests that wait say that a pool is stuck when there are so many for each worker.
const STUCK: f64 = 0.25;

/// A pool can keep so many times as many processors busy as it does on average, or requests pile up.
const MORE_THAN_BUSY: f64 = 1.2;

/// Processors that are busy to less than this part are idle.
const IDLE: f64 = 0.5;

/// Requests that wait for a processor for so many times as long as they work find all of them busy.
const WAITS_FOR_CORES: f64 = 0.25;

/// Looks in a row that find all of that, until it is believed: at one alone a pool that is half busy has
/// done less than usual, and requests wait by chance.
const DOUBT_LOOKS: u32 = 3;

/// Looks in a row that find nobody waiting, until half of the doubt goes.
const CALM_LOOKS: u32 = 60;

/// Most times as many workers as processors seem to need.
const DOUBT_MOST: usize = 64;

/// Processors of which so many times as many are busy as there are cannot be.
const ABSURD: f64 = 1.5;

/// Processors that are busy to this part have requests wait for them.
const NEARLY_FULL: f64 = 0.7;

/// How fast what processors are busy on average follows what they are busy with each look.
const FOLLOWS: f64 = 0.1;

/// Processors that are busy to this part are full.
const FULL: f64 = 0.9;

/// A pool's size, from what is seen of it.
#[derive(Debug)]
pub struct Controller {
    limits: Limits,
    machine: Machine,
    demand: Demand,
    cost: Cost,
    guard: Guard,
    /// Workers that are needed now: up at once, down calmly.
    level: usize,
    /// Requests that may still wait before the pool grows.
    saved: f64,
    parked: usize,
    /// Some kind hangs while others answer.
    others_answer: bool,
    /// Requests waited at the last look.
    waits: bool,
    /// As many workers keep the processors busy.
    knee: usize,
    /// The processors and the share of work that it was worked out for last, which takes long, and what
    /// came of it.
    full: (f64, f64, usize),
    /// By how many times as many workers as that there may be, since processors were idle while requests
    /// waited for them.
    doubt: usize,
    /// Looks in a row that say so, and that find nobody waiting.
    doubted: u32,
    calm: u32,
    /// What numbers of workers get done; nothing: nothing is known of requests.
    pace: Pace,
    /// Processors that are busy on average.
    busy_cores: f64,
    /// The share of work that was believed at once.
    believed: f64,
    done: u64,
    looked: Duration,
}

impl Controller {
    /// A pool nothing is known of.
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

    /// Other limits, by a reload: what was learned stays.
    pub fn limit(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// The processes may use more now, or less.
    pub fn see(&mut self, machine: Machine) {
        self.machine = machine;
    }

    /// A request has come; it is part of `load`.
    pub fn arrived(&mut self, load: Load) {
        self.parked = load.parked;
        let in_hand = load.busy + load.waiting;
        let enough = self.enough_for(in_hand, load.parked);
        // What piles up while workers are on their way says nothing about how many are enough.
        if load.ready >= self.sizing().workers {
            self.demand.arrived(enough.min(CROWD * load.ready));
        }
        self.saved = (self.saved + WAITING_SHARE).min(WAITS_SAVED);
        if enough <= self.level {
            return;
        }
        // Now and then one may wait: a pool that grows for each burst is larger than it need be. In a
        // small one it would wait for long.
        if self.level >= SMALL && in_hand <= CROWD * self.level && self.saved >= 1.0 {
            self.saved -= 1.0;
            return;
        }
        self.level = enough;
    }

    /// Some request has waited for longer than it may: the pool grows.
    pub fn crowded(&mut self, load: Load) {
        self.parked = load.parked;
        let enough = self.enough_for(load.busy + load.waiting, load.parked);
        self.level = self.level.max(enough);
    }

    /// Whether some kind of requests hangs while others answer, before each look: none of the workers that these
    /// have left is taken from them then to try something.
    pub fn see_kinds(&mut self, kinds: &Kinds) {
        self.others_answer = kinds.others_answer();
    }

    /// A request of this kind has ended, and `kinds` is to know it.
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
        // What hangs is left out of the knee while it does (`parked`): it must not be in it later.
        let hangs = Duration::try_from_secs_f64(self.parks_after());
        let blocked = spent.blocked.min(hangs.unwrap_or(Duration::MAX));
        self.cost.add(Spent { blocked, ..spent });
        let share = self.cost.recent_cpu_share();
        let much_less = MUCH_LESS / self.cost.cpu_scatter().max(1.0) * self.cost.cpu_share();
        if self.cost.is_blind() || share >= LESS_AGAIN * self.believed || share >= much_less {
            return;
        }
        // What waited behind work waits for something else now: it needs workers at once.
        self.believed = share;
        self.knee = self.knee.max(knee(self.machine.cores, share));
        self.pace = Pace::new(self.machine.cores, share);
    }

    /// Looks back, about once a second while the pool has more workers than it rests with, and lets
    /// some go if they were not needed for long.
    pub fn look(&mut self, now: Duration, load: Load) {
        self.demand.look(now);
        self.parked = load.parked;
        self.waits = load.waiting > 0;
        self.cost.look();
        self.turn_knee();
        if load.waiting > 0 {
            self.crowded(load);
        }
        // However seldom it is asked, one worker is worth keeping for who asks next.
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
        let seen = PoolSample {
            workers,
            done: self.done,
            is_stuck,
            alone,
        };
        self.guard.look(now, &seen);
        self.done = 0;
        self.looked = now;
    }

    /// How many workers are enough for `in_hand` requests of which `parked` hang: those keep theirs.
    fn enough_for(&self, in_hand: usize, parked: usize) -> usize {
        let (others, patience) = (in_hand.saturating_sub(parked), self.patience());
        let each = (others as f64 / (1.0 + patience)).ceil() as usize;
        let few = match self.cost.is_known() {
            true if self.doubt == 1 => self.pace.enough(others, patience),
            _ => each,
        };
        let scatter = (self.cost.cpu_scatter() - SCATTER_ALIKE).clamp(0.0, 1.0);
        let few = few.max(
            self.pace
                .keeps_busy(MORE_THAN_BUSY * self.busy_cores)
                .min(each),
        );
        let enough = few as f64 + scatter * each.saturating_sub(few) as f64;
        parked.saturating_add(enough.ceil() as usize)
    }

    /// What a request may wait, as a part of the time that one takes: less than anybody notices
    /// beside what the slow ones take. Nothing where all wait about as long for other things than a processor:
    /// those that began together end together, and who finds no worker waits for a whole turn.
    fn patience(&self) -> f64 {
        if !self.cost.is_known() {
            return PATIENCE;
        }
        let slow = self.cost.slow_part();
        let differs = ((slow - ALIKE) / (DIFFERENT - ALIKE)).clamp(0.0, 1.0);
        PATIENCE * slow.powf(PATIENCE_GROWS) * differs.max(self.cost.cpu_share())
    }

    /// The share of requests that is work.
    fn share(&self) -> f64 {
        let cores = self.machine.cores;
        match self.cost.is_blind() {
            // More than there is: what workers tell of their processor time is nonsense.
            _ if self.busy_cores > ABSURD * cores => UNKNOWN_CPU_SHARE,
            // Where nobody tells waiting for a processor, it is taken for other waiting unless processors
            // are nearly full.
            true if self.busy_cores > NEARLY_FULL * cores => self.cost.cpu_share_alone(),
            _ => self.cost.cpu_share(),
        }
    }

    /// Follows what requests cost, if that makes a difference.
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

    /// As many workers keep the processors full where so much is work.
    fn full(&mut self, share: f64) -> usize {
        let (cores, before, _) = self.full;
        let is_same = |now: f64, before: f64| (now - before).abs() <= SAME * before;
        if !is_same(self.machine.cores, cores) || !is_same(share, before) {
            self.full = (self.machine.cores, share, knee(self.machine.cores, share));
        }
        self.full.2
    }

    /// Where requests wait, no more workers come for the processors' sake, and those are idle, what workers
    /// tell of their work cannot be true.
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

    /// Whether others may have the processors: those are busy, too.
    fn waits_for_others(&self) -> bool {
        self.cost.ready() >= WAITS_FOR_CORES * self.cost.cpu()
    }

    /// How many workers there are to be.
    pub fn sizing(&self) -> Sizing {
        let terms = Terms {
            demand: self.level,
            // A worker that hangs uses no processor.
            cpu: self
                .knee
                .saturating_mul(self.doubt)
                .saturating_add(self.parked),
            memory: self.machine.memory,
            downstream: self.guard.limit(),
            user: self.limits.cap,
        };
        let (least, binding) = match terms.least() {
            // More would be wanted if processors had time for them.
            (least, Binding::Demand) if self.waits && terms.cpu == least => (least, Binding::Cpu),
            other => other,
        };
        let floor = self.limits.floor.min(self.limits.cap);
        Sizing {
            workers: least.max(floor),
            binding,
            terms,
        }
    }

    /// After how many seconds of waiting for other things than a processor a request hangs, as far as anybody can tell.
    pub fn parks_after(&self) -> f64 {
        if !self.cost.is_known() {
            return PARKS_UNKNOWN_SECONDS;
        }
        let slow = PARKS_AFTER_SLOW * self.cost.slow_part();
        let times = slow.clamp(PARKS_SOONEST, PARKS_AFTER);
        (times * self.cost.whole()).max(PARKS_SECONDS)
    }

    /// What requests of a kind may have waited at most, in seconds, if it turns out that they hang from now on
    /// (for [`Kinds::look`]).
    pub fn believes_up_to(&self) -> f64 {
        if self.cost.is_known() {
            self.parks_after()
        } else {
            // That is a guess, and what is cut to a guess would never be found to be more.
            BELIEVED_UNKNOWN_SECONDS
        }
    }

    /// Most workers of requests of such kinds as hang for the most part: of all that there may be as many are kept for
    /// others as keep the processors busy, a part of all at most and one at least. Nothing: there is
    /// none to keep, or nobody knows yet what requests take.
    pub fn most_that_hang(&self) -> Option<usize> {
        let all = self.machine.memory.unwrap_or(usize::MAX);
        let downstream = self.guard.limit().unwrap_or(usize::MAX);
        let all = all.min(downstream).max(self.limits.floor);
        let all = all.min(self.limits.cap);
        let busy = self.knee.saturating_mul(self.doubt);
        let kept = busy.min(all / KEPT).max(1);
        (all > 1 && self.cost.is_known()).then(|| all - kept)
    }

    /// What the processes may use now.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// What requests cost.
    pub fn cost(&self) -> &Cost {
        &self.cost
    }
}

#[cfg(test)]
mod tests;
