//! How many workers a pool is to have now, and why not more.

use std::time::Duration;

use crate::cost::{Cost, Spent};
use crate::demand::{Demand, WAITING_SHARE};
use crate::downstream::{Guard, Seen};
use crate::knee::{Pace, knee};

/// What a request is taken to be until enough have ended: a quarter of it work, as in the rule of
/// thumb of four workers a processor.
const UNKNOWN_CPU_SHARE: f64 = 0.25;

/// What a request may wait, as a part of what a slow one takes.
const PATIENCE: f64 = 0.1;

/// How what may be waited grows with how much longer than the average slow requests take.
const PATIENCE_GROWS: f64 = 2.0;

/// A knee between this part of what it was and as much more is the same.
const STAYS: f64 = 0.9;

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

/// A request that has run for so many times as long as one takes hangs.
const PARKS_AFTER: f64 = 8.0;

/// One that has run for less than this, in seconds, does not, however short they are.
const PARKS_SECONDS: f64 = 0.1;

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

/// What the user has said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Fewest workers.
    pub floor: usize,
    /// Most workers (`max_children`).
    pub cap: usize,
}

/// What the pool's processes may use now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// Processors, in parts where a quota gives parts.
    pub cores: f64,
    /// Workers there is memory for; nothing: as many as there may be.
    pub memory: Option<usize>,
}

/// What is in the pool's hands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Workers that serve, with a request or without.
    pub ready: usize,
    /// Workers that run a request.
    pub busy: usize,
    /// Requests that wait for one.
    pub waiting: usize,
    /// Of the workers those that have run theirs for much longer than one takes
    /// ([`Controller::parks_after`]).
    pub parked: usize,
}

/// What decides. What binds is the smallest; of two that are the same the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// No more are needed.
    Demand,
    /// The processors are full.
    Cpu,
    /// Memory is.
    Memory,
    /// All wait for the same thing.
    Downstream,
    /// `max_children`.
    User,
}

impl Binding {
    /// Its name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Binding::Demand => "demand",
            Binding::Cpu => "cpu",
            Binding::Memory => "memory",
            Binding::Downstream => "downstream",
            Binding::User => "user",
        }
    }
}

/// How many workers each part allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// As many are needed.
    pub demand: usize,
    /// As many keep the processors busy.
    pub cpu: usize,
    /// There is memory for as many; nothing: it is no limit.
    pub memory: Option<usize>,
    /// As many do something; nothing: no such limit was found.
    pub downstream: Option<usize>,
    /// As many may be.
    pub user: usize,
}

impl Terms {
    /// One of them; nothing: it is no limit.
    pub fn of(&self, binding: Binding) -> Option<usize> {
        match binding {
            Binding::Demand => Some(self.demand),
            Binding::Cpu => Some(self.cpu),
            Binding::Memory => self.memory,
            Binding::Downstream => self.downstream,
            Binding::User => Some(self.user),
        }
    }

    /// The number they make, and which of them it is.
    pub fn least(&self) -> (usize, Binding) {
        let all = [
            (self.demand, Binding::Demand),
            (self.cpu, Binding::Cpu),
            (self.memory.unwrap_or(usize::MAX), Binding::Memory),
            (self.downstream.unwrap_or(usize::MAX), Binding::Downstream),
            (self.user, Binding::User),
        ];
        let least = all.into_iter().min_by_key(|(workers, _)| *workers);
        least.unwrap_or((self.user, Binding::User))
    }
}

impl std::fmt::Display for Terms {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let or_none = |term: Option<usize>| term.map_or("-".to_owned(), |term| term.to_string());
        write!(
            out,
            "demand {}, cpu {}, memory {}, downstream {}, max_children {}",
            self.demand,
            self.cpu,
            or_none(self.memory),
            or_none(self.downstream),
            self.user
        )
    }
}

/// The outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizing {
    /// As many workers are to be there.
    pub workers: usize,
    /// Why not more.
    pub binding: Binding,
    /// What it was made of.
    pub terms: Terms,
}

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
    /// Requests waited at the last look.
    waits: bool,
    /// As many workers keep the processors busy.
    knee: usize,
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
            waits: false,
            knee: knee(machine.cores, UNKNOWN_CPU_SHARE),
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
        let enough = self.enough_for(load.busy + load.waiting, load.parked);
        self.level = self.level.max(enough);
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
        let keep = self.demand.keep().max(self.limits.floor);
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
        let is_stuck = load.waiting as f64 >= STUCK * workers as f64
            && load.busy >= workers
            && self.cost.is_known()
            && busy_cores < FULL * self.machine.cores;
        let alone = self.done as f64 / time.max(f64::MIN_POSITIVE) * self.cost.alone();
        let seen = Seen {
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
    /// beside what the slow ones take.
    fn patience(&self) -> f64 {
        match self.cost.is_known() {
            true => PATIENCE * self.cost.slow_part().powf(PATIENCE_GROWS),
            false => PATIENCE,
        }
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
        let full = knee(self.machine.cores, share) as f64;
        let scatter = (self.cost.cpu_scatter() - 1.0).clamp(0.0, SCATTER_MOST);
        let next = full * (1.0 + FOR_SCATTER * scatter);
        let (low, high) = (STAYS * self.knee as f64, self.knee as f64 / STAYS);
        if self.believed < 1.0 || self.pace.is_unknown() || next < low || next > high {
            self.knee = next.ceil() as usize;
            self.pace = Pace::new(self.machine.cores, share);
        }
        self.believed = 1.0;
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

    /// After how many seconds of running a request hangs, as far as anybody can tell.
    pub fn parks_after(&self) -> f64 {
        match self.cost.is_known() {
            true => (PARKS_AFTER * self.cost.whole()).max(PARKS_SECONDS),
            false => PARKS_SECONDS,
        }
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FOUR: Machine = Machine {
        cores: 4.0,
        memory: None,
    };

    fn pool(cap: usize) -> Controller {
        Controller::new(Limits { floor: 1, cap }, FOUR)
    }

    fn load(ready: usize, busy: usize, waiting: usize) -> Load {
        Load {
            ready,
            busy,
            waiting,
            parked: 0,
        }
    }

    fn spent(cpu_ms: u64, blocked_ms: u64) -> Spent {
        Spent {
            cpu: Duration::from_millis(cpu_ms),
            ready: Some(Duration::ZERO),
            blocked: Duration::from_millis(blocked_ms),
        }
    }

    #[test]
    fn the_request_that_finds_nobody_idle_gets_a_worker_at_once() {
        let mut pool = pool(50);
        assert_eq!(pool.sizing().workers, 1);
        for waiting in 1..=5 {
            pool.arrived(load(1, 1, waiting));
        }
        assert_eq!(pool.sizing().workers, 6);
        assert_eq!(pool.sizing().binding, Binding::Demand);
    }

    #[test]
    fn a_hundred_requests_that_work_get_as_many_workers_as_there_are_processors() {
        let mut pool = pool(50);
        (0..100).for_each(|_| pool.finished(spent(20, 0)));
        pool.look(Duration::from_secs(1), load(1, 1, 100));
        pool.arrived(load(1, 1, 100));
        assert_eq!(
            (pool.sizing().workers, pool.sizing().binding),
            (4, Binding::Cpu)
        );
    }

    #[test]
    fn idle_processors_are_believed_when_they_are_seen_again_and_again_and_forgotten_later() {
        let mut pool = pool(50);
        (0..100).for_each(|_| pool.finished(spent(20, 0)));
        (0..4).for_each(|_| pool.arrived(load(1, 1, 100)));
        let looks = |pool: &mut Controller, seconds: std::ops::Range<u64>, waiting| {
            let each = |second| {
                pool.look(Duration::from_secs(second), load(4, 4, waiting));
                pool.sizing().terms.cpu
            };
            seconds.map(each).collect::<Vec<_>>()
        };
        // A crowd by chance in a pool that is half busy, now and then.
        assert_eq!(looks(&mut pool, 10..12, 5), [4, 4]);
        assert_eq!(looks(&mut pool, 12..13, 0), [4]);
        assert_eq!(looks(&mut pool, 13..16, 5), [4, 4, 8]);
        let calm = looks(&mut pool, 16..80, 0);
        assert_eq!((calm[0], calm[63]), (8, 4));
    }

    #[test]
    fn what_hangs_leaves_its_processor_to_others() {
        let mut pool = pool(50);
        (0..100).for_each(|_| pool.finished(spent(20, 0)));
        let hangs = Load {
            parked: 7,
            ..load(11, 11, 100)
        };
        pool.arrived(hangs);
        pool.look(Duration::from_secs(1), hangs);
        assert_eq!(pool.sizing().workers, 11);
    }

    #[test]
    fn other_limits_and_another_machine_leave_what_was_learned() {
        let mut pool = pool(50);
        pool.arrived(load(1, 1, 20));
        let before = pool.sizing().workers;
        pool.limit(Limits { floor: 1, cap: 10 });
        assert_eq!(
            (pool.sizing().workers, pool.sizing().binding),
            (10, Binding::User)
        );
        pool.see(Machine {
            memory: Some(3),
            ..FOUR
        });
        assert_eq!(
            (pool.sizing().workers, pool.sizing().binding),
            (3, Binding::Memory)
        );
        pool.see(FOUR);
        pool.limit(Limits { floor: 1, cap: 50 });
        assert_eq!(pool.sizing().workers, before);
    }

    #[test]
    fn a_quiet_pool_gives_its_workers_up_when_five_minutes_are_over() {
        let mut pool = pool(50);
        pool.look(Duration::ZERO, load(1, 0, 0));
        for busy in 1..=20 {
            pool.arrived(load(20, busy, 0));
        }
        let at = |pool: &mut Controller, second| {
            pool.look(Duration::from_secs(second), load(20, 0, 0));
            pool.sizing().workers
        };
        assert_eq!(
            at(&mut pool, 200),
            18,
            "19 are met with a short wait, one is not"
        );
        (301..340).for_each(|second| assert!(at(&mut pool, second) <= 18));
        assert_eq!(at(&mut pool, 340), 1);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Arrive(Load),
        Finish(Spent),
        Look(u64, Load),
        See(Machine),
    }

    fn any_load() -> impl Strategy<Value = Load> {
        (0..5000_usize, 0..5000_usize, 0..5000_usize, 0..5000_usize).prop_map(
            |(ready, busy, waiting, parked)| Load {
                ready,
                busy,
                waiting,
                parked,
            },
        )
    }

    fn step() -> impl Strategy<Value = Step> {
        let time = || (0..u64::MAX / 2).prop_map(Duration::from_nanos);
        let spent = (time(), time(), time()).prop_map(|(cpu, ready, blocked)| Spent {
            cpu,
            ready: Some(ready),
            blocked,
        });
        let machine = (0.01..512.0_f64, proptest::option::of(0..1000_usize))
            .prop_map(|(cores, memory)| Machine { cores, memory });
        prop_oneof![
            4 => any_load().prop_map(Step::Arrive),
            4 => spent.prop_map(Step::Finish),
            2 => (any::<u64>(), any_load()).prop_map(|(at, load)| Step::Look(at, load)),
            1 => machine.prop_map(Step::See),
        ]
    }

    proptest! {
        /// Clocks that jump, times that cannot be, memory that comes and goes.
        #[test]
        fn whatever_is_measured_a_pool_keeps_to_its_limits(
            steps in proptest::collection::vec(step(), 1..100),
            cap in 1..2000_usize,
        ) {
            let mut pool = pool(cap);
            let mut room = None;
            for step in steps {
                match step {
                    Step::Arrive(load) => pool.arrived(load),
                    Step::Finish(spent) => pool.finished(spent),
                    Step::Look(at, load) => pool.look(Duration::from_secs(at), load),
                    Step::See(machine) => {
                        room = machine.memory;
                        pool.see(machine);
                    }
                }
                let sizing = pool.sizing();
                prop_assert!((1..=cap).contains(&sizing.workers));
                prop_assert!(room.is_none_or(|room| sizing.workers <= room.max(1)));
            }
        }
    }
}
