//! Whether a queue holds more than can be answered, and how fast it moves. Pure: moments in,
//! decisions out; whoever asks reads the clock, and only while something waits.
//!
//! A queue that empties again and again absorbs bursts, and is served in order. One that never
//! empties, and that some have to be lifo_time away from, makes everybody wait for as long as the last
//! one it answers can: whoever is answered has waited in vain for most of it. Where clients lose
//! patience first, that is for as long as they have any: many leave the queue, and of those that get a
//! worker many leave that. So from then on the newest request comes first ([`Overload::is_lifo`]), and those that have been passed by for
//! too long are told so ([`Overload::patience`]). That a queue stands is seen as controlled delay
//! sees it (CoDel, RFC 8289 §3), with bounds for workload that takes milliseconds: by the least time for
//! which its first has waited within an interval.
//!
//! A queue that stands and that nobody is lifo_time away from or leaves stays in order: its clients wait for their own answers
//! before they ask again, so it does not grow. So does one of which nobody gets a worker, since all
//! hang: whoever comes then is better told at once.

use std::time::{Duration, Instant};

/// A wait that is never taken for a standing queue, however short scripts are.
const LEAST_TARGET: Duration = Duration::from_millis(5);

/// The shortest interval in which the queue has to have been short once.
const LEAST_INTERVAL: Duration = Duration::from_millis(100);

/// An interval by the target: long enough for several scripts to end.
const INTERVAL_TARGETS: u32 = 10;

/// Intervals in a row that have to be calm before requests are answered in order again.
const CALM_INTERVALS: u32 = 2;

/// A queue loses too many if one leaves it for each so many that get a worker: a fifth of all.
const SERVED_BY_LEFT: u32 = 4;

/// How long a request may be passed by newer ones at least, if it may wait that long at all: a burst
/// is over by then, and a person has not yet given up.
const PATIENCE: Duration = Duration::from_secs(1);

/// How fast a queue moves is taken over this time at least,
const RATE_OVER: Duration = Duration::from_millis(250);

/// and over so many requests.
const RATE_OF: u32 = 16;

/// What a queue is measured by.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    /// How long a script takes, smoothed.
    pub script: Duration,
    /// How many workers there are.
    pub workers: usize,
}

impl Workload {
    /// A queue whose first never waits for less than this stands.
    fn target(&self) -> Duration {
        let workers = u32::try_from(self.workers.max(1)).unwrap_or(u32::MAX);
        let between = self.script.saturating_mul(2) / workers;
        between.max(self.script / 10).max(LEAST_TARGET)
    }

    /// How long a request is let be passed by newer ones that may wait for `timeout`.
    pub fn patience(&self, timeout: Duration) -> Duration {
        PATIENCE.min(timeout).max(self.target().saturating_mul(2))
    }

    fn interval(&self) -> Duration {
        let several = self.target().saturating_mul(INTERVAL_TARGETS);
        several.max(LEAST_INTERVAL)
    }
}

/// What is known of a queue's recent past.
#[derive(Debug, Default)]
pub struct Overload {
    lifo: bool,
    /// The interval that runs.
    since: Option<Instant>,
    /// The least time for which its first had waited, in this interval; none: nobody has looked.
    least: Option<Duration>,
    /// Somebody was lifo_time away in this interval,
    refused: bool,
    /// so many clients left, and so many got a worker.
    left: u32,
    served: u32,
    calm: u32,
    rate: DequeueRate,
}

/// What a look at the queue has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderChange {
    /// Nothing.
    Unchanged,
    /// From now on the newest comes first.
    Lifo,
    /// From now on requests are answered in order.
    Fifo,
}

impl Overload {
    /// Whether the newest request comes first.
    pub fn is_lifo(&self) -> bool {
        self.lifo
    }

    /// Nothing waits.
    pub fn note_empty(&mut self) {
        self.least = Some(Duration::ZERO);
        self.rate.since = None;
    }

    /// Somebody is lifo_time away for want of time or room.
    pub fn note_rejection(&mut self) {
        self.refused = true;
    }

    /// A client that waited has left.
    pub fn note_departure(&mut self) {
        self.left = self.left.saturating_add(1);
    }

    /// A request has left the queue for a worker.
    pub fn note_dequeue(&mut self) {
        self.served = self.served.saturating_add(1);
        self.rate.count = self.rate.count.saturating_add(1);
    }

    /// The longest-waiting request has waited for `oldest`.
    pub fn check(&mut self, now: Instant, oldest: Duration, workload: &Workload) -> OrderChange {
        self.rate.check(now);
        let since = *self.since.get_or_insert(now);
        let least = self.least.map_or(oldest, |least| least.min(oldest));
        self.least = Some(least);
        let lasted = now.saturating_duration_since(since);
        let interval = workload.interval();
        if lasted < interval {
            return OrderChange::Unchanged;
        }
        let fails_some = self.fails_some();
        (self.refused, self.left, self.served) = (false, 0, 0);
        (self.since, self.least) = (Some(now), None);
        if !self.lifo {
            if least > workload.target() && fails_some {
                (self.lifo, self.calm) = (true, 0);
                return OrderChange::Lifo;
            }
            return OrderChange::Unchanged;
        }
        if least >= workload.target() / 2 {
            self.calm = 0;
            return OrderChange::Unchanged;
        }
        // After a time in which nothing came there are several at once.
        let calm = lasted.as_nanos() / interval.as_nanos().max(1);
        self.calm = self
            .calm
            .saturating_add(u32::try_from(calm).unwrap_or(u32::MAX));
        if self.calm < CALM_INTERVALS {
            return OrderChange::Unchanged;
        }
        self.lifo = false;
        OrderChange::Fifo
    }

    /// Whether it moves in this interval, and some wait in vain.
    fn fails_some(&self) -> bool {
        let loses_many = self.left.saturating_mul(SERVED_BY_LEFT) >= self.served;
        self.served > 0 && (self.refused || loses_many)
    }

    /// How long `waiting` requests take to get a worker, as far as that can be known.
    pub fn wait_estimate(&self, waiting: usize, now: Instant) -> Option<Duration> {
        let per_second = self.rate.per_second(now)?;
        Duration::try_from_secs_f64(waiting as f64 / per_second).ok()
    }
}

/// How many requests a second leave a queue in which there are always some.
#[derive(Debug, Default)]
struct DequeueRate {
    since: Option<Instant>,
    count: u32,
    /// How many did in the stretch before, and how long that was.
    before: Option<(u32, Duration)>,
}

impl DequeueRate {
    fn check(&mut self, now: Instant) {
        let Some(since) = self.since else {
            // What was true of an earlier crowd need not be true of this one.
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
        // It may have come to a standstill. But where most scripts are short and a few long, it does
        // whenever long ones have all workers: so both stretches count together.
        let of_both = count.saturating_add(self.count).saturating_add(1);
        Some(before.min(f64::from(of_both) / (took + lasted).as_secs_f64()))
    }
}

#[cfg(test)]
mod tests;
