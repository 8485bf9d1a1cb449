//! How much of what a pool may use here its requests need: one number to scale on.
//!
//! An autoscaler multiplies the number of nodes by this number and divides it by its target, so the
//! number has to be proportional to the load, also beyond 1, and steady while the load is. That
//! rules out queue lengths and the number of workers. It is the offered load as a part of the
//! nearest limit: busy processors of all processors, or busy workers of those that memory and
//! `max_children` allow, both times the requests that have arrived for each that has begun. It is
//! an average over a minute, or over a quarter of one if that differs beyond chance.
//!
//! **A common bottleneck.** If all requests wait for the same database, its limit makes workers
//! busy, and more nodes would only wait as well. Then requests of the same kind wait longer for
//! other things than before. So a worker's wait counts up to [`TOLERATED`] times what its kind
//! waited before, and requests that no worker has begun count less. What a kind waited before is
//! remembered for [`BELIEVED`].

use std::collections::HashMap;
use std::time::Duration;

use crate::cost::Spent;

/// A part of the remembered time, and the number of parts.
const PART: Duration = Duration::from_secs(5);
const PARTS: u64 = 12;

/// Parts of the recent past: 10 to 15 seconds.
const RECENT: u64 = 3;

/// A change within the recent past counts beyond this many standard deviations of chance.
const CHANCE: f64 = 3.0;

/// Variance of the work that arrives in a time, as a factor of that of constant requests: their
/// times scatter like exponential ones.
const SCATTER: f64 = 2.0;

/// Least time that a rate is computed for.
const LEAST: Duration = PART;

/// More arrivals for each begun request are not distinguished.
const PRESSURE_MOST: f64 = 10.0;

/// Waits for other things of up to this many times as long as before are normal, and from the
/// second factor on more workers would only wait as well.
const TOLERATED: f64 = 1.25;
const BOUND: f64 = 1.75;

/// Requests of a kind, and the time, after which their average wait is known.
const BATCH: f64 = 50.0;
const BATCH_TIME: Duration = Duration::from_secs(10);

/// Standard errors of an average that may be chance.
const ERRORS: f64 = 2.0;

/// A wait that grows by less than double in this time is no sign of a common bottleneck.
const DRIFTS: Duration = Duration::from_secs(3600);

/// How long the wait of a kind before it grew is remembered.
const BELIEVED: Duration = Duration::from_secs(6 * 3600);

/// Kinds that are distinguished. Others count as they are.
const KINDS: usize = 64;

/// Buckets of queue times: four for each power of two, from a millisecond on.
const BUCKETS: usize = 64;
const BUCKETS_PER_POWER: f64 = 4.0;
const FIRST_BUCKET: f64 = 0.001;

/// The percentile of queue times.
const PERCENT: f64 = 0.95;

/// What a pool may use here.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PoolCapacity {
    /// Processors.
    pub cores: f64,
    /// Workers that fit into memory; `None`: no limit.
    pub memory: Option<usize>,
    /// `max_children`.
    pub max_children: usize,
}

/// The limit that is nearest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nearest {
    /// Processors.
    Cpu,
    /// Memory for workers.
    Memory,
    /// `max_children`.
    MaxChildren,
}

impl Nearest {
    /// Its name in metrics and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Nearest::Cpu => "cpu",
            Nearest::Memory => "memory",
            Nearest::MaxChildren => "max_children",
        }
    }
}

/// The load of a pool.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Saturation {
    /// What its requests need as a part of the nearest limit; 1 is all of it.
    pub value: f64,
    /// That limit.
    pub nearest: Nearest,
    /// Processors that its requests need.
    pub cores: f64,
    /// Workers that its requests need.
    pub workers: f64,
    /// Requests wait longer for other things than before: for something that all nodes share.
    pub waits_downstream: bool,
    /// 95 of a hundred requests of the last 15 seconds have waited less for a worker.
    pub queue_wait: Duration,
}

/// Measures the load of a pool. Times are those of one clock that never goes backwards.
#[derive(Debug, Default)]
pub struct Meter {
    /// Empty before the first request.
    parts: Vec<WindowPart>,
    began: Duration,
    busy: usize,
    busy_since: Duration,
    kinds: HashMap<u64, Usual>,
}

#[derive(Debug, Clone)]
struct WindowPart {
    number: u64,
    arrived: f64,
    begun: f64,
    /// Seconds of workers with a request.
    busy: f64,
    cpu: f64,
    ready: f64,
    blocked: f64,
    /// What `blocked` would be if each request had waited as long as its kind usually does.
    usual: f64,
    waits: [u32; BUCKETS],
}

impl WindowPart {
    fn new(number: u64) -> WindowPart {
        let zero = 0.0;
        WindowPart {
            number,
            arrived: zero,
            begun: zero,
            busy: zero,
            cpu: zero,
            ready: zero,
            blocked: zero,
            usual: zero,
            waits: [0; BUCKETS],
        }
    }
}

/// The usual wait of a kind of requests for other things than a processor.
#[derive(Debug, Default)]
struct Usual {
    /// In seconds; none: not known yet.
    blocked: Option<f64>,
    /// When it was last true.
    at: Duration,
    /// Requests since then, and the sums of their waits and of the squares of those.
    count: f64,
    sum: f64,
    squares: f64,
    since: Duration,
}

impl Usual {
    fn add(&mut self, now: Duration, blocked: f64) {
        if self.count == 0.0 {
            self.since = now;
        }
        self.count += 1.0;
        self.sum += blocked;
        self.squares += blocked * blocked;
        if self.count < BATCH || now.saturating_sub(self.since) < BATCH_TIME {
            return;
        }
        let mean = self.sum / self.count;
        let variance = (self.squares / self.count - mean * mean).max(0.0);
        let error = ERRORS * (variance / self.count).sqrt();
        (self.count, self.sum, self.squares) = (0.0, 0.0, 0.0);
        let passed = now.saturating_sub(self.at);
        let drift = (passed.as_secs_f64() / DRIFTS.as_secs_f64()).min(1.0).exp2();
        match self.blocked {
            Some(usual) if mean - error > TOLERATED * usual && passed < BELIEVED => return,
            Some(usual) if mean - error <= TOLERATED * usual => {
                self.blocked = Some((usual * drift).min(mean + error));
            }
            _ => self.blocked = Some(mean + error),
        }
        self.at = now;
    }
}

/// Sums over a time.
#[derive(Debug, Default, Clone, Copy)]
struct Window {
    seconds: f64,
    arrived: f64,
    begun: f64,
    busy: f64,
    cpu: f64,
    ready: f64,
    blocked: f64,
    usual: f64,
}

/// The needs of requests.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Needs {
    cores: f64,
    workers: f64,
    stretch: f64,
}

impl Window {
    fn needs(&self) -> Needs {
        // Without samples nothing is known of it.
        let stretch = if self.usual > 0.0 { self.blocked / self.usual } else { 1.0 };
        let free = ((BOUND - stretch) / (BOUND - TOLERATED)).clamp(0.0, 1.0);
        let pressure = ((self.arrived + 1.0) / (self.begun + 1.0)).clamp(1.0, PRESSURE_MOST);
        let pressure = 1.0 + free * (pressure - 1.0);
        let whole = self.cpu + self.ready + self.blocked;
        let blocked = self.blocked / (stretch / TOLERATED).max(1.0);
        // Waits for a processor are a matter of processors, not of workers.
        let alone = if whole > 0.0 { (self.cpu + blocked) / whole } else { 1.0 };
        let seconds = self.seconds.max(LEAST.as_secs_f64());
        Needs {
            cores: self.cpu / seconds * pressure,
            workers: self.busy / seconds * alone * pressure,
            stretch,
        }
    }

    /// A long average, confined to what this time may have measured by chance.
    fn confine(&self, long: f64, here: f64) -> f64 {
        let chance = CHANCE * (SCATTER / self.arrived.max(1.0)).sqrt();
        long.clamp(here * (1.0 - chance).max(0.0), here * (1.0 + chance))
    }
}

impl Meter {
    /// A request has arrived, whatever becomes of it.
    pub fn arrived(&mut self, now: Duration) {
        self.part(now).arrived += 1.0;
    }

    /// A request has got a worker after it waited for this time.
    pub fn begun(&mut self, now: Duration, waited: Duration) {
        let bucket = bucket(waited);
        let part = self.part(now);
        part.begun += 1.0;
        part.waits[bucket] = part.waits[bucket].saturating_add(1);
    }

    /// The number of workers with a request from now on.
    pub fn busy(&mut self, now: Duration, busy: usize) {
        if busy == self.busy || self.parts.is_empty() && busy == 0 {
            return;
        }
        self.count_busy(now);
        self.busy = busy;
    }

    /// The number of workers with a request that it was last given.
    pub fn busy_workers(&self) -> usize {
        self.busy
    }

    /// A request of this kind has ended.
    pub fn ended(&mut self, now: Duration, kind: u64, spent: Spent) {
        let blocked = spent.blocked.as_secs_f64();
        let is_new = !self.kinds.contains_key(&kind);
        let usual = match is_new && self.kinds.len() >= KINDS {
            true => None,
            false => {
                let usual = self.kinds.entry(kind).or_default();
                usual.add(now, blocked);
                usual.blocked
            }
        };
        let (cpu, ready) = (spent.cpu.as_secs_f64(), spent.ready.unwrap_or_default().as_secs_f64());
        let held = spent.ready.unwrap_or_default().saturating_add(spent.blocked);
        let held = held.saturating_add(spent.cpu);
        // A long request has had its processor time over all of its time, and not at its end.
        self.spread(now, held, |part, share| {
            part.cpu += share * cpu;
            part.ready += share * ready;
            part.blocked += share * blocked;
            part.usual += share * usual.unwrap_or(blocked);
        });
    }

    /// Forgets how long requests usually wait: their code has changed.
    pub fn relearn(&mut self) {
        self.kinds.clear();
    }

    /// The load now.
    pub fn read(&mut self, now: Duration, capacity: &PoolCapacity) -> Saturation {
        self.count_busy(now);
        let (all, recent) = (self.window(now, PARTS), self.window(now, RECENT));
        let (slow, fast) = (all.needs(), recent.needs());
        let cores = recent.confine(slow.cores, fast.cores);
        let workers = recent.confine(slow.workers, fast.workers);
        let (room, nearest) = match capacity.memory {
            Some(memory) if memory < capacity.max_children => (memory, Nearest::Memory),
            _ => (capacity.max_children, Nearest::MaxChildren),
        };
        let by_cpu = cores / capacity.cores.max(f64::MIN_POSITIVE);
        let by_workers = workers / room.max(1) as f64;
        let (value, nearest) = match by_cpu >= by_workers {
            true => (by_cpu, Nearest::Cpu),
            false => (by_workers, nearest),
        };
        let queue_wait = self.queue_wait(now);
        let waits_downstream = fast.stretch > TOLERATED;
        Saturation { value, nearest, cores, workers, waits_downstream, queue_wait }
    }

    fn part(&mut self, now: Duration) -> &mut WindowPart {
        let number = number(now);
        if self.parts.is_empty() {
            self.began = now;
            self.busy_since = now;
            self.parts = (0..PARTS).map(WindowPart::new).collect();
        }
        let part = &mut self.parts[(number % PARTS) as usize];
        if part.number != number {
            *part = WindowPart::new(number);
        }
        part
    }

    /// Adds to the parts that the time before `now` lies in, to each its share.
    fn spread(&mut self, now: Duration, time: Duration, mut add: impl FnMut(&mut WindowPart, f64)) {
        let (last, seconds) = (number(now), time.as_secs_f64());
        let mut end = now;
        for _ in 0..PARTS {
            let begin = PART * u32::try_from(number(end).min(last)).unwrap_or(u32::MAX);
            let begin = if begin == end { end.saturating_sub(PART) } else { begin };
            let from = begin.max(now.saturating_sub(time));
            let share = match seconds > 0.0 {
                true => (end - from).as_secs_f64() / seconds,
                false => 1.0,
            };
            let at = (begin + PART / 2).min(now);
            add(self.part(at), share);
            if from > begin || begin.is_zero() || from == now.saturating_sub(time) {
                break;
            }
            end = begin;
        }
    }

    fn count_busy(&mut self, now: Duration) {
        if self.parts.is_empty() {
            self.part(now);
        }
        let since = std::mem::replace(&mut self.busy_since, now);
        let (time, busy) = (now.saturating_sub(since), self.busy as f64);
        if busy > 0.0 && !time.is_zero() {
            let seconds = time.as_secs_f64();
            self.spread(now, time, |part, share| part.busy += share * seconds * busy);
        }
    }

    fn window(&self, now: Duration, parts: u64) -> Window {
        let last = number(now);
        let begin = PART * u32::try_from((last + 1).saturating_sub(parts)).unwrap_or(u32::MAX);
        let mut sum = Window {
            seconds: now.saturating_sub(begin.max(self.began)).as_secs_f64(),
            ..Window::default()
        };
        for part in self.recent(last, parts) {
            sum.arrived += part.arrived;
            sum.begun += part.begun;
            sum.busy += part.busy;
            sum.cpu += part.cpu;
            sum.ready += part.ready;
            sum.blocked += part.blocked;
            sum.usual += part.usual;
        }
        sum
    }

    fn recent(&self, last: u64, parts: u64) -> impl Iterator<Item = &WindowPart> {
        let is_recent = move |part: &&WindowPart| part.number <= last && part.number + parts > last;
        self.parts.iter().filter(is_recent)
    }

    fn queue_wait(&self, now: Duration) -> Duration {
        let mut waits = [0_u64; BUCKETS];
        for part in self.recent(number(now), RECENT) {
            waits.iter_mut().zip(part.waits).for_each(|(sum, count)| *sum += u64::from(count));
        }
        let all: u64 = waits.iter().sum();
        let mut left = (all as f64 * PERCENT) as u64;
        for (bucket, count) in waits.into_iter().enumerate() {
            if left < count {
                return upper_bound(bucket);
            }
            left -= count;
        }
        Duration::ZERO
    }
}

fn number(now: Duration) -> u64 {
    now.as_secs() / PART.as_secs()
}

fn bucket(waited: Duration) -> usize {
    let powers = (waited.as_secs_f64() / FIRST_BUCKET).max(f64::MIN_POSITIVE).log2();
    let place = (powers * BUCKETS_PER_POWER).floor() + 1.0;
    (place.max(0.0) as usize).min(BUCKETS - 1)
}

/// A wait of less than a millisecond is none.
fn upper_bound(bucket: usize) -> Duration {
    if bucket == 0 {
        return Duration::ZERO;
    }
    Duration::from_secs_f64(FIRST_BUCKET * (bucket as f64 / BUCKETS_PER_POWER).exp2())
}

#[cfg(test)]
mod tests;
