//! Detects an overloaded queue, and estimates its waiting time. Pure: times in, decisions out; the
//! caller reads the clock, and only while a request waits.
//!
//! A queue that empties again and again absorbs bursts, and is served in order (FIFO). One that
//! never empties, and from which some requests are rejected, delays every request by the longest
//! wait that it accepts: most of that wait is in vain. Where clients give up first, the delay is
//! their patience: many leave the queue, and many of those that get a worker leave that. So from
//! then on the newest request is served first (LIFO, [`Overload::is_lifo`]), and requests that
//! newer ones have overtaken for too long are shed ([`Workload::patience`]). A standing queue is
//! detected as by controlled delay (CoDel, RFC 8289 §3), with bounds for work that takes
//! milliseconds: by the minimum of its oldest request's wait within an interval.
//!
//! A standing queue without rejections and departures stays in order: its clients wait for their
//! responses before they send the next request, so it does not grow. So does a queue from which no
//! request gets a worker because all hang: there a rejection on arrival is better.

use std::time::{Duration, Instant};

/// A wait that never counts as a standing queue, however short scripts are.
const MIN_TARGET: Duration = Duration::from_millis(5);

/// The shortest interval in which the queue has to be short once.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Length of an interval in targets: several scripts end within it.
const INTERVAL_TARGETS: u32 = 10;

/// Consecutive calm intervals before requests are served in order again.
const CALM_INTERVALS: u32 = 2;

/// The queue loses too many clients if one leaves for this many that get a worker: a fifth of all.
const SERVED_PER_DEPARTURE: u32 = 4;

/// The shortest time before an overtaken request is shed, if its timeout is not shorter: a burst is
/// over by then, and a person has not yet given up.
const PATIENCE: Duration = Duration::from_secs(1);

/// The dequeue rate is measured over at least this time,
const RATE_OVER: Duration = Duration::from_millis(250);

/// and this many requests.
const RATE_OF: u32 = 16;

/// The work of a pool.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    /// The average script time.
    pub script: Duration,
    /// Number of workers.
    pub workers: usize,
}

impl Workload {
    /// A queue whose oldest request never waits for less than this is a standing one.
    fn target(&self) -> Duration {
        let workers = u32::try_from(self.workers.max(1)).unwrap_or(u32::MAX);
        let between = self.script.saturating_mul(2) / workers;
        between.max(self.script / 10).max(MIN_TARGET)
    }

    /// The time after which an overtaken request with this `timeout` is shed.
    pub fn patience(&self, timeout: Duration) -> Duration {
        PATIENCE.min(timeout).max(self.target().saturating_mul(2))
    }

    fn interval(&self) -> Duration {
        let several = self.target().saturating_mul(INTERVAL_TARGETS);
        several.max(MIN_INTERVAL)
    }
}

/// The recent history of a queue.
#[derive(Debug, Default)]
pub struct Overload {
    lifo: bool,
    /// Start of the current interval.
    since: Option<Instant>,
    /// The minimum of the oldest request's wait in this interval; none: no check yet.
    min_wait: Option<Duration>,
    /// A request was rejected in this interval.
    has_rejected: bool,
    /// Clients that left in this interval, and requests that got a worker.
    left: u32,
    served: u32,
    calm: u32,
    rate: DequeueRate,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderChange {
    /// The order stays.
    Unchanged,
    /// From now on LIFO: the newest request is served first.
    Lifo,
    /// From now on FIFO: requests are served in order.
    Fifo,
}

impl Overload {
    /// Whether the newest request is served first.
    pub fn is_lifo(&self) -> bool {
        self.lifo
    }

    /// Records that no request waits.
    pub fn note_empty(&mut self) {
        self.min_wait = Some(Duration::ZERO);
        self.rate.since = None;
    }

    /// Records a request that was rejected for lack of time or space.
    pub fn note_rejection(&mut self) {
        self.has_rejected = true;
    }

    /// Records that the client of a waiting request has left.
    pub fn note_departure(&mut self) {
        self.left = self.left.saturating_add(1);
    }

    /// Records that a waiting request was assigned to a worker.
    pub fn note_dequeue(&mut self) {
        self.served = self.served.saturating_add(1);
        self.rate.count = self.rate.count.saturating_add(1);
    }

    /// Updates the detection; the oldest request has waited for `oldest`.
    pub fn check(&mut self, now: Instant, oldest: Duration, workload: &Workload) -> OrderChange {
        self.rate.check(now);
        let since = *self.since.get_or_insert(now);
        let min_wait = self.min_wait.map_or(oldest, |wait| wait.min(oldest));
        self.min_wait = Some(min_wait);
        let lasted = now.saturating_duration_since(since);
        let interval = workload.interval();
        if lasted < interval {
            return OrderChange::Unchanged;
        }
        let fails_some = self.fails_some();
        (self.has_rejected, self.left, self.served) = (false, 0, 0);
        (self.since, self.min_wait) = (Some(now), None);
        if !self.lifo {
            if min_wait > workload.target() && fails_some {
                (self.lifo, self.calm) = (true, 0);
                return OrderChange::Lifo;
            }
            return OrderChange::Unchanged;
        }
        if min_wait >= workload.target() / 2 {
            self.calm = 0;
            return OrderChange::Unchanged;
        }
        // After a time without checks there are several calm intervals at once.
        let calm = lasted.as_nanos() / interval.as_nanos().max(1);
        self.calm = self.calm.saturating_add(u32::try_from(calm).unwrap_or(u32::MAX));
        if self.calm < CALM_INTERVALS {
            return OrderChange::Unchanged;
        }
        self.lifo = false;
        OrderChange::Fifo
    }

    /// Whether requests got workers in this interval, and others waited in vain.
    fn fails_some(&self) -> bool {
        let loses_many = self.left.saturating_mul(SERVED_PER_DEPARTURE) >= self.served;
        self.served > 0 && (self.has_rejected || loses_many)
    }

    /// The estimated time until `waiting` requests have a worker; none: unknown.
    pub fn wait_estimate(&self, waiting: usize, now: Instant) -> Option<Duration> {
        let per_second = self.rate.per_second(now)?;
        Duration::try_from_secs_f64(waiting as f64 / per_second).ok()
    }
}

/// The rate at which requests leave a queue that is never empty.
#[derive(Debug, Default)]
struct DequeueRate {
    since: Option<Instant>,
    count: u32,
    /// Count and length of the previous period.
    before: Option<(u32, Duration)>,
}

impl DequeueRate {
    fn check(&mut self, now: Instant) {
        let Some(since) = self.since else {
            // The rate of an earlier queue need not be that of this one.
            (self.since, self.count, self.before) = (Some(now), 0, None);
            return;
        };
        let lasted = now.saturating_duration_since(since);
        if self.count >= RATE_OF && lasted >= RATE_OVER {
            self.before = Some((self.count, lasted));
            (self.since, self.count) = (Some(now), 0);
        }
    }

    fn per_second(&self, now: Instant) -> Option<f64> {
        let ((count, took), since) = (self.before?, self.since?);
        let lasted = now.saturating_duration_since(since);
        let before = f64::from(count) / took.as_secs_f64();
        if lasted < RATE_OVER {
            return Some(before);
        }
        // The queue may be stalled. But where most scripts are short and a few long, it stalls
        // whenever long ones have all workers: so both periods count together.
        let of_both = count.saturating_add(self.count).saturating_add(1);
        Some(before.min(f64::from(of_both) / (took + lasted).as_secs_f64()))
    }
}

#[cfg(test)]
mod tests;
