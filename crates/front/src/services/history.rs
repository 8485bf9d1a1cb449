//! The last hour of the pools, in memory: what the dashboard shows over time. Taken only while
//! there is an admin listener, every ten seconds, from counters that exist anyway.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use maitred_config::Config;
use maitred_scoreboard::{Counter, Histogram, Reading, RequestOutcome};
use serde::Serialize;
use tokio::sync::Notify;

use crate::pool::Pool;
use crate::runtime::clock;
use crate::services::Shared;

/// The time between two samples.
pub const STEP: Duration = Duration::from_secs(10);

/// Samples of an hour.
const MAX_SAMPLES: usize = 360;

/// Pools with a history of their own: those that were the first to have requests. With the samples
/// of all, this is at most 10 MB.
const MAX_POOLS: usize = 128;

/// Pools whose counters are remembered from one moment to the next.
const MAX_TRACKS: usize = 4096;

/// Changes that are remembered: new generations of pools.
const MAX_CHANGES: usize = 50;

/// Upper bounds of script times, as powers of two in microseconds: 1 ms to 8 s. They are exact,
/// since they are bounds of the scoreboard's own buckets.
pub const POWERS: [u32; 12] = [10, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 23];

/// What happened between two samples, and the state at its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct HistorySample {
    /// The end, in milliseconds since 1970.
    pub at: u64,
    /// Requests that ended.
    pub requests: u64,
    /// Those of them that failed.
    pub failed: u64,
    /// Those of them that no worker ran.
    pub refused: u64,
    /// Requests in the queue.
    pub queued: u64,
    /// Busy workers.
    pub busy: u64,
    /// Private memory, in bytes, as it was last measured.
    pub memory: u64,
    /// Workers: that memory is theirs.
    pub workers: u64,
    /// Scripts that ended.
    pub scripts: u64,
    /// Their time in microseconds: in the queue without the last part, on a processor, waiting for
    /// one, blocked, in the queue while their worker was starting.
    pub parts: [u64; 5],
    /// The number of scripts in each bucket of [`POWERS`], and beyond.
    pub times: [u64; POWERS.len() + 1],
}

/// A pool that has another generation than before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PoolChange {
    /// When it was noticed, in milliseconds since 1970.
    pub at: u64,
    /// The pool.
    pub pool: String,
    /// Its generation.
    pub generation: u32,
    /// Whether it had none before.
    pub is_new: bool,
}

/// The last hour.
#[derive(Debug, Default)]
pub struct History {
    is_wanted: AtomicBool,
    wanted: Notify,
    tracks: Mutex<Tracks>,
}

#[derive(Debug, Default)]
struct Tracks {
    all: Track,
    pools: HashMap<Arc<str>, Track>,
    generations: HashMap<Arc<str>, u32>,
    changes: VecDeque<PoolChange>,
}

/// The samples of a pool, or of all together.
#[derive(Debug, Default)]
struct Track {
    before: Option<HistorySample>,
    samples: VecDeque<HistorySample>,
}

impl History {
    /// Takes samples from now on, or no longer.
    pub fn want(&self, is_wanted: bool) {
        self.is_wanted.store(is_wanted, Ordering::Relaxed);
        self.wanted.notify_one();
    }

    /// The samples of a pool, the oldest first.
    pub fn of_pool(&self, name: &str) -> Vec<HistorySample> {
        let tracks = self.lock();
        tracks.pools.get(name).map_or(Vec::new(), Track::read)
    }

    /// The samples of all pools together, the oldest first.
    pub fn of_all(&self) -> Vec<HistorySample> {
        self.lock().all.read()
    }

    /// The last samples of all pools together, and of this pool.
    pub fn last(&self, pool: Option<&str>) -> (Option<HistorySample>, Option<HistorySample>) {
        let tracks = self.lock();
        let of = pool.and_then(|name| tracks.pools.get(name)?.samples.back().copied());
        (tracks.all.samples.back().copied(), of)
    }

    /// The changes, the newest first.
    pub fn changes(&self) -> Vec<PoolChange> {
        self.lock().changes.iter().rev().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Tracks> {
        self.tracks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a sample of each pool.
    fn take(&self, pools: &[Arc<Pool>]) {
        let at = u64::try_from(clock::since_1970().as_millis()).unwrap_or(u64::MAX);
        let mut tracks = self.lock();
        let mut all = HistorySample { at, ..HistorySample::default() };
        for pool in pools {
            if let Some(generation) = pool.current_generation() {
                tracks.note_generation(&pool.name, generation, at);
            }
            let Some(metrics) = pool.metrics() else { continue };
            let totals = HistorySample { at, ..totals(&metrics.page().read()) };
            all = all.and(&totals);
            tracks.push(&pool.name, totals);
        }
        tracks.all.push(all);
        let is_there = |name: &Arc<str>| pools.iter().any(|pool| pool.name == *name);
        tracks.pools.retain(|name, _| is_there(name));
        tracks.generations.retain(|name, _| is_there(name));
    }
}

impl Tracks {
    fn push(&mut self, name: &Arc<str>, totals: HistorySample) {
        let stored = self.pools.values().filter(|track| !track.samples.is_empty()).count();
        if self.pools.len() < MAX_TRACKS || self.pools.contains_key(name) {
            self.pools.entry(name.clone()).or_default().follow(totals, stored < MAX_POOLS);
        }
    }

    fn note_generation(&mut self, name: &Arc<str>, generation: u32, at: u64) {
        let before = self.generations.insert(name.clone(), generation);
        if before == Some(generation) {
            return;
        }
        if self.changes.len() == MAX_CHANGES {
            self.changes.pop_front();
        }
        let (pool, is_new) = (name.to_string(), before.is_none());
        self.changes.push_back(PoolChange { at, pool, generation, is_new });
    }
}

impl Track {
    /// As [`Track::push`], from the first request on and if there is room.
    fn follow(&mut self, totals: HistorySample, has_room: bool) {
        let has_requests = self.before.is_some_and(|before| before.requests < totals.requests);
        if !self.samples.is_empty() || (has_requests && has_room) {
            self.push(totals);
        } else {
            self.before = Some(totals);
        }
    }

    /// Adds what has happened since the former totals. The first ones are where it starts.
    fn push(&mut self, totals: HistorySample) {
        if let Some(before) = self.before.replace(totals) {
            if self.samples.len() == MAX_SAMPLES {
                self.samples.pop_front();
            }
            self.samples.push_back(totals.since(&before));
        }
    }

    fn read(&self) -> Vec<HistorySample> {
        self.samples.iter().copied().collect()
    }
}

impl HistorySample {
    /// The counters since `before`; the state is that of `self`.
    fn since(&self, before: &HistorySample) -> HistorySample {
        // A pool that is no more takes its counters out of the sum of all.
        let less = |now: u64, before: u64| now.saturating_sub(before);
        let mut sample = HistorySample {
            requests: less(self.requests, before.requests),
            failed: less(self.failed, before.failed),
            refused: less(self.refused, before.refused),
            scripts: less(self.scripts, before.scripts),
            ..*self
        };
        for (now, before) in sample.parts.iter_mut().zip(before.parts) {
            *now = less(*now, before);
        }
        for (now, before) in sample.times.iter_mut().zip(before.times) {
            *now = less(*now, before);
        }
        sample
    }

    /// The sum of two pools.
    fn and(mut self, other: &HistorySample) -> HistorySample {
        for (sum, more) in [
            (&mut self.requests, other.requests),
            (&mut self.failed, other.failed),
            (&mut self.refused, other.refused),
            (&mut self.queued, other.queued),
            (&mut self.busy, other.busy),
            (&mut self.memory, other.memory),
            (&mut self.workers, other.workers),
            (&mut self.scripts, other.scripts),
        ] {
            *sum += more;
        }
        self.parts.iter_mut().zip(other.parts).for_each(|(sum, more)| *sum += more);
        self.times.iter_mut().zip(other.times).for_each(|(sum, more)| *sum += more);
        self
    }
}

/// The counters of a pool since its start.
fn totals(reading: &Reading) -> HistorySample {
    let of = |is: fn(RequestOutcome) -> bool| {
        let all = RequestOutcome::ALL.into_iter().zip(reading.outcomes);
        all.filter(|(outcome, _)| is(*outcome)).map(|(_, count)| count).sum()
    };
    let total = &reading.total;
    let micros = |times: &Histogram| u64::try_from(times.sum().as_micros()).unwrap_or(u64::MAX);
    let boot = reading.counters.count(Counter::BootWait);
    let [waits, cpu, core, blocked] =
        [&total.waits, &total.cpu, &total.core_waits, &total.blocked].map(micros);
    let mut times = [0; POWERS.len() + 1];
    let mut below = 0;
    for (bucket, power) in times.iter_mut().zip(POWERS) {
        let all = total.scripts.below_power(power);
        *bucket = all.saturating_sub(below);
        below = all;
    }
    times[POWERS.len()] = total.scripts.count().saturating_sub(below);
    HistorySample {
        at: 0,
        requests: reading.outcomes.iter().sum(),
        failed: of(RequestOutcome::is_failure),
        refused: of(RequestOutcome::is_rejection),
        queued: reading.queued,
        busy: reading.busy,
        memory: reading.private_bytes,
        workers: reading.seated,
        scripts: total.scripts.count(),
        parts: [waits.saturating_sub(boot), cpu, core, blocked, boot],
        times,
    }
}

/// Whether there is a listener with a dashboard.
pub fn can_be_seen(config: &Config) -> bool {
    config.admin.is_some() || config.admin_access.socket.is_some()
}

/// Takes samples as long as they are wanted.
pub async fn keep(shared: Arc<Shared>) {
    let history = &shared.history;
    loop {
        if !history.is_wanted.load(Ordering::Relaxed) {
            history.wanted.notified().await;
            continue;
        }
        history.take(&shared.pools.all());
        tokio::time::sleep(STEP).await;
    }
}

#[cfg(test)]
mod tests {
    use maitred_scoreboard::{Page, RequestTimes};

    use super::*;

    fn totals(requests: u64) -> HistorySample {
        HistorySample { requests, parts: [requests; 5], busy: 1, ..HistorySample::default() }
    }

    #[test]
    fn a_track_has_what_happened_between_two_moments_and_is_an_hour_long() {
        let mut track = Track::default();
        for requests in 0..1000 {
            track.push(totals(2 * requests));
        }
        let samples = track.read();
        assert_eq!(samples.len(), MAX_SAMPLES);
        assert!(samples.iter().all(|one| one.requests == 2 && one.parts == [2; 5]));
        track.push(totals(0));
        assert_eq!(track.read().last().map(|one| one.requests), Some(0));
    }

    #[test]
    fn the_start_of_a_worker_is_in_one_part_of_the_sample_that_has_its_wait() {
        const SECOND: Duration = Duration::from_secs(1);
        let page = Page::create("www", 1).unwrap();
        let mut track = Track::default();
        track.push(super::totals(&page.read()));
        for (waited, boot) in [(3 * SECOND, Duration::ZERO), (7 * SECOND, 5 * SECOND)] {
            let took = RequestTimes { waited, boot, ..RequestTimes::default() };
            page.thread(0).observe(&took, maitred_scoreboard::now());
            track.push(super::totals(&page.read()));
        }
        track.push(super::totals(&page.read()));
        let queues: Vec<_> = track.read().iter().map(|one| (one.parts[0], one.parts[4])).collect();
        assert_eq!(queues, [(3_000_000, 0), (2_000_000, 5_000_000), (0, 0)]);
    }

    #[test]
    fn a_flood_of_pools_and_of_reloads_is_bounded() {
        let mut tracks = Tracks::default();
        for number in 0..2 * MAX_POOLS {
            let name: Arc<str> = format!("pool{number}").into();
            tracks.push(&name, totals(1));
            tracks.push(&name, totals(2));
            tracks.note_generation(&name, 1, 0);
            tracks.note_generation(&name, 1, 0);
        }
        let stored = tracks.pools.values().filter(|track| !track.samples.is_empty());
        assert_eq!((stored.count(), tracks.changes.len()), (MAX_POOLS, MAX_CHANGES));
        let idle: Arc<str> = "idle".into();
        let mut tracks = Tracks::default();
        tracks.push(&idle, totals(7));
        tracks.push(&idle, totals(7));
        assert!(tracks.pools[&idle].read().is_empty(), "a pool without a request has no history");
        tracks.push(&idle, totals(9));
        assert_eq!(tracks.pools[&idle].read()[0].requests, 2, "its first requests count");
    }
}
