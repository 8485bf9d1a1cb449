//! Log lines about a saturated pool: `max_children` is reached, the queue is stalled, requests are
//! rejected. Each is logged once when it starts, and then summarised, however many requests it
//! concerns. While no request waits, nothing is checked.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use maitred_config::ProcessManager;
use maitred_control::episode::{Account, LogThrottle, News};
use maitred_scoreboard::RequestOutcome;
use maitred_text::humanize::{plural, plural_with};
use tokio::sync::Notify;

use crate::logging::log_limit::ScriptLog;
use crate::logging::repeated::{CALM, LOOK_EVERY, seconds, tense};
use crate::pool::Pool;
use crate::pool::auto::AutoSize;

/// Waiting time of a request after which the queue counts as stalled.
const STALLED: Duration = Duration::from_secs(2);

/// Most different scripts in one line.
const NAMED_SCRIPTS: usize = 3;

/// Number of outcomes, some of which are rejections.
const OUTCOMES: usize = RequestOutcome::ALL.len();

/// The events of a pool between two checks.
#[derive(Debug, Default)]
pub struct SaturationLog {
    /// Requests that found all workers busy and no further one allowed, in total.
    met_limit: AtomicU64,
    /// Rejected requests in total, by outcome.
    rejected: [AtomicU64; OUTCOMES],
    /// The log line of the first request rejected since the last check.
    first: Mutex<Option<String>>,
    /// The task is awake already.
    is_awake: AtomicBool,
    /// Wakes the task.
    dirty: Arc<Notify>,
    /// The limit of log lines from its scripts.
    pub log: ScriptLog,
    /// The lines are php-fpm's, as far as it has any.
    is_fpm: bool,
}

impl SaturationLog {
    /// The log of a new pool.
    pub fn new(is_fpm: bool) -> SaturationLog {
        let dirty = Arc::new(Notify::new());
        SaturationLog {
            is_fpm,
            log: ScriptLog::telling(dirty.clone()),
            dirty,
            ..SaturationLog::default()
        }
    }

    /// A request waits; `at_limit`: no further worker is allowed.
    pub(crate) fn waits(&self, at_limit: bool) {
        if at_limit {
            self.met_limit.fetch_add(1, Ordering::Relaxed);
        }
        self.wake();
    }

    /// Records a rejected request; `line` is its log line.
    pub fn rejected(&self, why: RequestOutcome, line: impl FnOnce() -> String) {
        self.rejected[why as usize].fetch_add(1, Ordering::Relaxed);
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(line);
        drop(first);
        self.wake();
    }

    /// Wakes the task so that it ends with its pool.
    pub(crate) fn pool_is_gone(&self) {
        self.dirty.notify_one();
    }

    fn wake(&self) {
        if !self.is_awake.swap(true, Ordering::AcqRel) {
            self.dirty.notify_one();
        }
    }
}

/// A pool at one time; the counters are totals.
#[derive(Debug, Clone, Default)]
struct QueueSample {
    waiting: usize,
    longest: Duration,
    busy: usize,
    /// Requests wait and no further worker is allowed.
    at_limit: bool,
    met_limit: u64,
    rejected: [u64; OUTCOMES],
    first_rejected: Option<String>,
    /// How often LIFO mode has started.
    lifo_starts: u64,
    is_lifo: bool,
    /// Held-back requests, and the limit of workers for their kinds.
    held_back: usize,
    may_hang: usize,
}

/// Statistics about waiting.
#[derive(Debug, Clone, Default)]
struct WaitStats {
    requests: u64,
    most: usize,
    longest: Duration,
}

impl WaitStats {
    fn add(&mut self, requests: u64, sample: &QueueSample) {
        self.requests += requests;
        self.most = self.most.max(sample.waiting);
        self.longest = self.longest.max(sample.longest);
    }
}

/// Rejected requests by outcome.
#[derive(Debug, Clone, Default)]
struct RejectionCounts([u64; OUTCOMES]);

/// The conditions that are being logged. Pure: sample and time in, lines out.
#[derive(Debug)]
struct SaturationState {
    is_fpm: bool,
    pm: ProcessManager,
    limit: usize,
    queue_length: u32,
    queue_timeout: Duration,
    last: QueueSample,
    at_limit: LogThrottle<WaitStats>,
    stalled: LogThrottle<WaitStats>,
    rejected: LogThrottle<RejectionCounts>,
    lifo: LogThrottle<()>,
    /// Most requests that were held back at once.
    held_back: LogThrottle<usize>,
}

impl SaturationState {
    fn new(is_fpm: bool) -> SaturationState {
        SaturationState {
            is_fpm,
            pm: ProcessManager::Static,
            limit: 0,
            queue_length: 0,
            queue_timeout: Duration::ZERO,
            last: QueueSample::default(),
            at_limit: LogThrottle::new(CALM),
            stalled: LogThrottle::new(CALM),
            rejected: LogThrottle::new(CALM),
            lifo: LogThrottle::new(CALM),
            held_back: LogThrottle::new(CALM),
        }
    }

    /// Updates the pool's settings, which a reload may change, and its limit of workers.
    fn configure(&mut self, pool: &maitred_config::Pool, limit: usize) {
        self.pm = pool.pm;
        self.limit = limit;
        self.queue_length = pool.request_queue_length;
        self.queue_timeout = pool.request_queue_timeout;
    }

    fn is_quiet(&self) -> bool {
        self.at_limit.is_quiet()
            && self.stalled.is_quiet()
            && self.rejected.is_quiet()
            && self.lifo.is_quiet()
            && self.held_back.is_quiet()
            && self.last.held_back == 0
            && self.last.waiting == 0
    }

    /// The lines to log; `running` lists the scripts of the busy workers.
    fn check(
        &mut self,
        sample: QueueSample,
        running: impl Fn() -> String,
        now: Duration,
    ) -> Vec<String> {
        let lines = [
            self.check_limit(&sample, now),
            self.check_held_back(&sample, &running, now),
            self.check_stall(&sample, running, now),
            self.check_order(&sample, now),
            self.check_rejections(&sample, now),
        ];
        self.last = sample;
        lines.into_iter().flatten().collect()
    }

    fn check_limit(&mut self, sample: &QueueSample, now: Duration) -> Option<String> {
        let limit = self.limit;
        let new = sample.met_limit - self.last.met_limit;
        // A static pool is always at its limit.
        if self.pm != ProcessManager::Static && (new > 0 || sample.at_limit) {
            let times = self.at_limit.happened(now, |waits| waits.add(new, sample));
            if times == 1 && self.is_fpm {
                return Some(self.limit_as_fpm());
            }
            if times == 1 {
                return Some(format!(
                    "all max_children = {limit} workers are busy and requests wait; raise it if \
                     the machine has capacity for more"
                ));
            }
        }
        let news = self.at_limit.due(now).filter(|_| !self.is_fpm)?;
        let (verb, Account { lasted, total, .. }) = tense(news);
        Some(format!(
            "max_children = {limit} {verb} reached for {}: {} waited; {}",
            seconds(lasted),
            plural(total.requests, "request"),
            at_most(&total)
        ))
    }

    /// The limit in php-fpm's words, once each time it is reached (`fpm_process_ctl.c`).
    fn limit_as_fpm(&self) -> String {
        let setting = match self.pm {
            ProcessManager::Ondemand => "max_children",
            ProcessManager::Dynamic | ProcessManager::Static | ProcessManager::Auto => {
                "pm.max_children"
            }
        };
        let limit = self.limit;
        format!("server reached {setting} setting ({limit}), consider raising it")
    }

    fn check_stall(
        &mut self,
        sample: &QueueSample,
        running: impl FnOnce() -> String,
        now: Duration,
    ) -> Option<String> {
        if sample.longest >= STALLED {
            let times = self.stalled.happened(now, |waits| waits.add(0, sample));
            if times == 1 {
                let (busy, limit) = (sample.busy, self.limit);
                // `pm = auto` mostly has fewer workers than its limit on purpose.
                let workers = match self.pm {
                    ProcessManager::Auto => {
                        let are = if busy == 1 { "is" } else { "are" };
                        format!("{} (auto, up to {limit}) {are}", plural(busy as u64, "worker"))
                    }
                    _ if limit == 1 => "the only worker is".to_owned(),
                    _ => format!("{busy} of {limit} workers are"),
                };
                return Some(format!(
                    "requests are not moving: {}, the longest for {}; {workers} busy: {}",
                    plural_with(sample.waiting as u64, "request", "wait"),
                    seconds(sample.longest),
                    running()
                ));
            }
        }
        let (verb, Account { lasted, total, .. }) = match self.stalled.due(now)? {
            News::GoesOn(account) => ("have not been moving", account),
            News::Over(account) => ("were not moving", account),
        };
        Some(format!("requests {verb} for {}; {}", seconds(lasted + STALLED), at_most(&total)))
    }

    fn check_held_back(
        &mut self,
        sample: &QueueSample,
        running: impl FnOnce() -> String,
        now: Duration,
    ) -> Option<String> {
        let (held_back, may_hang) = (sample.held_back, sample.may_hang);
        if held_back > 0 {
            let most = |most: &mut usize| *most = held_back.max(*most);
            if self.held_back.happened(now, most) == 1 {
                return Some(format!(
                    "requests hang, and {held_back} of the same kind {} held back: hanging kinds \
                     may have {}, the rest is for others; the busy workers run {}",
                    if held_back == 1 { "is" } else { "are" },
                    plural(may_hang as u64, "worker"),
                    running()
                ));
            }
        }
        let (verb, Account { lasted, total, .. }) = tense_plural(self.held_back.due(now)?);
        let lasted = seconds(lasted);
        Some(format!(
            "requests of hanging kinds {verb} held back for {lasted}, at most {total} at once"
        ))
    }

    fn check_order(&mut self, sample: &QueueSample, now: Duration) -> Option<String> {
        let has_started = sample.lifo_starts > self.last.lifo_starts;
        if has_started || sample.is_lifo && sample.waiting > 0 {
            let times = self.lifo.happened(now, |()| ());
            if times == 1 {
                return Some(
                    "overload: the newest requests are served first, and those that wait for too \
                     long are rejected"
                        .to_owned(),
                );
            }
        }
        let (came, were, Account { lasted, .. }) = match self.lifo.due(now)? {
            News::GoesOn(account) => ("have come than can", "are", account),
            News::Over(account) => ("came than could", "were", account),
        };
        let lasted = seconds(lasted);
        Some(format!(
            "overload: for {lasted}, more requests {came} be served; the newest {were} served first"
        ))
    }

    fn check_rejections(&mut self, sample: &QueueSample, now: Duration) -> Option<String> {
        let new: [u64; OUTCOMES] =
            std::array::from_fn(|cause| sample.rejected[cause] - self.last.rejected[cause]);
        if new.iter().any(|count| *count > 0) {
            let times = self.rejected.happened(now, |RejectionCounts(all)| {
                for (sum, new) in all.iter_mut().zip(new) {
                    *sum += new;
                }
            });
            if times == 1 {
                let first = sample.first_rejected.as_deref().unwrap_or_default();
                return Some(format!("{first}; further rejections are counted"));
            }
        }
        let (verb, Account { lasted, total, .. }) = tense(self.rejected.due(now)?);
        let by_cause = RequestOutcome::ALL.into_iter().zip(total.0);
        let counts: Vec<String> = by_cause
            .filter(|(_, count)| *count > 0)
            .map(|(cause, count)| format!("{count} {}", cause.metric_name()))
            .collect();
        Some(format!(
            "503 {verb} the status of {} in {}: {} (request_queue_length = {}, \
             request_queue_timeout = {} s)",
            plural(total.0.iter().sum::<u64>(), "request"),
            seconds(lasted),
            counts.join(", "),
            self.queue_length,
            self.queue_timeout.as_secs_f64()
        ))
    }
}

/// [`tense`] in the plural.
fn tense_plural<T>(news: News<T>) -> (&'static str, Account<T>) {
    match news {
        News::GoesOn(account) => ("have been", account),
        News::Over(account) => ("were", account),
    }
}

fn at_most(waits: &WaitStats) -> String {
    let (most, longest) = (waits.most, seconds(waits.longest));
    format!("at most {most} waited at once, the longest for {longest}")
}

/// Scripts and the number of workers that run each, the most frequent first; a single one without
/// its number.
fn count_scripts(scripts: Vec<String>) -> String {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for script in scripts {
        *counts.entry(script).or_default() += 1;
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let others: usize = counts.iter().skip(NAMED_SCRIPTS).map(|(_, n)| n).sum();
    if let [(only, _)] = &counts[..] {
        return only.clone();
    }
    let named = counts.iter().take(NAMED_SCRIPTS);
    let mut named: Vec<String> = named.map(|(name, n)| format!("{n} × {name}")).collect();
    if others > 0 {
        named.push(format!("{others} × others"));
    }
    named.join(", ")
}

impl Pool {
    /// A sample, and the limit of workers.
    fn sample(&self) -> (QueueSample, usize) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let log = &self.saturation;
        let state = self.lock();
        let queue = &state.queue;
        let (waiting, open, limit) = (queue.waiting(), queue.open_seats(), queue.max_open());
        let auto = state.growth.auto.as_ref();
        let mut sample = QueueSample {
            waiting,
            longest: Duration::ZERO,
            busy: queue.busy(),
            at_limit: waiting > 0 && open >= limit,
            met_limit: count(&log.met_limit),
            rejected: std::array::from_fn(|cause| count(&log.rejected[cause])),
            first_rejected: None,
            lifo_starts: queue.waiting.lifo_starts(),
            is_lifo: queue.waiting.is_lifo(),
            held_back: state.held_back.len(),
            may_hang: auto.and_then(AutoSize::most_that_hang).unwrap_or(limit),
        };
        let oldest = queue.waiting.longest();
        drop(state);
        sample.longest = oldest.map_or(Duration::ZERO, |since| since.elapsed());
        let mut first = log.first.lock().unwrap_or_else(PoisonError::into_inner);
        sample.first_rejected = first.take();
        (sample, limit)
    }

    /// The scripts of the busy workers, from their own boards.
    fn running(&self) -> String {
        let state = self.lock();
        let scripts = state.queue.all_seats().filter_map(|(seat, _)| {
            let generation = state.generation(seat.generation)?;
            let board = generation.link().seat_board(seat.number);
            let runs = board.running.load(Ordering::Relaxed) != 0;
            runs.then(|| generation.script_in(seat.number))
        });
        count_scripts(scripts.collect())
    }

    fn log_saturation(&self, state: &mut SaturationState, now: Duration) {
        // An event after this line is in the sample, or wakes the task again.
        self.saturation.is_awake.store(false, Ordering::Release);
        let (sample, limit) = self.sample();
        state.configure(&self.settings(), limit);
        let lines = state.check(sample, || self.running(), now);
        for line in lines.into_iter().chain(self.saturation.log.due()) {
            if self.saturation.is_fpm {
                tracing::warn!("[pool {}] {line}", self.name);
            } else {
                tracing::warn!("pool {}: {line}", self.name);
            }
        }
    }
}

/// The task that logs the saturation of a pool, while the pool exists.
pub async fn watch(pool: Weak<Pool>) {
    let started = Instant::now();
    let parts = |pool: Arc<Pool>| {
        let saturation = &pool.saturation;
        let dirty = saturation.dirty.clone();
        (dirty, saturation.log.clone(), saturation.is_fpm)
    };
    let Some((dirty, log, is_fpm)) = pool.upgrade().map(parts) else {
        return;
    };
    let mut state = SaturationState::new(is_fpm);
    loop {
        if state.is_quiet() && log.is_quiet() {
            dirty.notified().await;
        }
        let Some(pool) = pool.upgrade() else { return };
        pool.log_saturation(&mut state, started.elapsed());
        drop(pool);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests;
