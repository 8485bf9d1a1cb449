//! What an administrator is to know of a pool's queue: that it stands, that `max_children` is
//! reached, that requests are refused. Each is said once when it begins and then with numbers,
//! however many requests it is about. While nothing waits, nobody looks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use maitred_config::ProcessManager;
use maitred_control::episode::{Account, LogThrottle, News};
use tokio::sync::Notify;

use crate::logging::log_limit::ScriptLog;
use crate::logging::repeated::{CALM, LOOK_EVERY, seconds, tense};
use crate::pool::Pool;
use crate::pool::auto::Auto;

/// A request that has waited longer than this says that the queue stands.
const STANDING: Duration = Duration::from_secs(2);

/// Most different scripts that a line names.
const NAMED_SCRIPTS: usize = 3;

/// Why a request got no worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// As many waited as may.
    QueueFull,
    /// It had waited as long as it may.
    TooLong,
    /// The pool has no workers and will not get any.
    NoPool,
    /// Those before it took longer than it may wait.
    Hopeless,
    /// Newer ones had passed it for too long.
    Passed,
    /// There was no worker in the time its client gave it.
    Deadline,
}

/// All causes, in the order of their numbers.
const ALL_CAUSES: [Refused; 6] = [
    Refused::QueueFull,
    Refused::TooLong,
    Refused::NoPool,
    Refused::Hopeless,
    Refused::Passed,
    Refused::Deadline,
];
const CAUSES: usize = ALL_CAUSES.len();

/// What happens in a pool between two looks.
#[derive(Debug, Default)]
pub struct SaturationLog {
    /// Requests that found every worker there may be busy, ever.
    met_limit: AtomicU64,
    /// Requests refused, ever, by cause.
    refused: [AtomicU64; CAUSES],
    /// The first request that was refused since the last look, in words.
    first: Mutex<Option<String>>,
    /// Whether the one who looks was told to.
    told: AtomicBool,
    stirred: Arc<Notify>,
    /// What its scripts may have logged.
    pub log: ScriptLog,
    /// The lines are php-fpm's, as far as it has any.
    is_fpm: bool,
}

impl SaturationLog {
    /// Nothing has happened yet.
    pub fn new(is_fpm: bool) -> SaturationLog {
        let stirred = Arc::new(Notify::new());
        SaturationLog {
            is_fpm,
            log: ScriptLog::telling(stirred.clone()),
            stirred,
            ..SaturationLog::default()
        }
    }

    /// A request waits; `at_limit`: and there is no room for a further worker.
    pub(crate) fn waits(&self, at_limit: bool) {
        if at_limit {
            self.met_limit.fetch_add(1, Ordering::Relaxed);
        }
        self.stir();
    }

    /// A request was refused; `words` say which and why.
    pub fn refused(&self, why: Refused, words: impl FnOnce() -> String) {
        self.refused[why as usize].fetch_add(1, Ordering::Relaxed);
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(words);
        drop(first);
        self.stir();
    }

    /// Whoever looks is to notice that there is nothing left to look at.
    pub(crate) fn pool_is_gone(&self) {
        self.stirred.notify_one();
    }

    fn stir(&self) {
        if !self.told.swap(true, Ordering::AcqRel) {
            self.stirred.notify_one();
        }
    }
}

/// A pool at one moment; counters count from its beginning.
#[derive(Debug, Clone, Default)]
struct QueueSample {
    waiting: usize,
    longest: Duration,
    busy: usize,
    /// Whether there is no room for a further worker while requests wait.
    at_limit: bool,
    met_limit: u64,
    refused: [u64; CAUSES],
    first_refused: Option<String>,
    /// How often newer requests have begun to come before older ones.
    lifo_starts: u64,
    is_lifo: bool,
    /// Requests that wait for others which hang, and how many workers those may have.
    held_back: usize,
    may_hang: usize,
}

/// The numbers behind waiting.
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

/// The numbers behind refusals.
#[derive(Debug, Clone, Default)]
struct RejectionCounts([u64; CAUSES]);

/// What was seen so far, and is being said. Pure: sample and time in, words out.
#[derive(Debug)]
struct SaturationState {
    is_fpm: bool,
    pm: ProcessManager,
    limit: usize,
    queue_length: u32,
    queue_timeout: Duration,
    last: QueueSample,
    at_limit: LogThrottle<WaitStats>,
    standing: LogThrottle<WaitStats>,
    refused: LogThrottle<RejectionCounts>,
    lifo: LogThrottle<()>,
    /// The most that were held back at once.
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
            standing: LogThrottle::new(CALM),
            refused: LogThrottle::new(CALM),
            lifo: LogThrottle::new(CALM),
            held_back: LogThrottle::new(CALM),
        }
    }

    /// The pool's settings, which a reload may change, and how many workers it may have.
    fn learn(&mut self, pool: &maitred_config::Pool, most: usize) {
        self.pm = pool.pm;
        self.limit = most;
        self.queue_length = pool.request_queue_length;
        self.queue_timeout = pool.request_queue_timeout;
    }

    fn is_quiet(&self) -> bool {
        let all_over = self.at_limit.is_quiet() && self.standing.is_quiet();
        let none_refused = self.refused.is_quiet() && self.lifo.is_quiet();
        let none_held = self.held_back.is_quiet() && self.last.held_back == 0;
        all_over && none_refused && none_held && self.last.waiting == 0
    }

    /// What is to be said; `running` says what the busy workers run.
    fn look(
        &mut self,
        sample: QueueSample,
        running: impl Fn() -> String,
        now: Duration,
    ) -> Vec<String> {
        let limit = self.look_at_limit(&sample, now);
        let held_back = self.look_at_held_back(&sample, &running, now);
        let standing = self.look_at_waits(&sample, running, now);
        let turned = self.look_at_order(&sample, now);
        let refused = self.look_at_refusals(&sample, now);
        self.last = sample;
        let all = [limit, held_back, standing, turned, refused];
        all.into_iter().flatten().collect()
    }

    fn look_at_limit(&mut self, sample: &QueueSample, now: Duration) -> Option<String> {
        let limit = self.limit;
        let new = sample.met_limit - self.last.met_limit;
        // To a static pool it is no limit that it grows to.
        if self.pm != ProcessManager::Static && (new > 0 || sample.at_limit) {
            let times = self.at_limit.happened(now, |waits| waits.add(new, sample));
            if times == 1 && self.is_fpm {
                return Some(self.limit_as_fpm());
            }
            if times == 1 {
                return Some(format!(
                    "all max_children = {limit} workers are busy; raise it if the machine has \
                     room for more, requests wait until then"
                ));
            }
        }
        let news = self.at_limit.due(now).filter(|_| !self.is_fpm)?;
        let (verb, account) = tense(news);
        let (lasted, WaitStats { requests, .. }) = (seconds(account.lasted), &account.total);
        Some(format!(
            "max_children = {limit} {verb} reached for {lasted}: {requests} requests had to wait; {}",
            at_most(&account.total)
        ))
    }

    /// The limit as php-fpm tells it, once for each time it is reached (`fpm_process_ctl.c`).
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

    fn look_at_waits(
        &mut self,
        sample: &QueueSample,
        running: impl FnOnce() -> String,
        now: Duration,
    ) -> Option<String> {
        if sample.longest >= STANDING {
            let times = self.standing.happened(now, |waits| waits.add(0, sample));
            if times == 1 {
                let (waiting, longest) = (sample.waiting, seconds(sample.longest));
                let (busy, limit) = (sample.busy, self.limit);
                // That one mostly has fewer, and not because they lack.
                let workers = match self.pm {
                    ProcessManager::Auto => format!("{busy} workers (auto, up to {limit})"),
                    _ => format!("{busy} of {limit} workers"),
                };
                return Some(format!(
                    "the queue stands: {waiting} requests wait, the longest for {longest}; \
                     {workers} are busy: {}",
                    running()
                ));
            }
        }
        Some(match self.standing.due(now)? {
            News::GoesOn(Account { lasted, total, .. }) => format!(
                "the queue has been standing for {}; {}",
                seconds(lasted),
                at_most(&total)
            ),
            News::Over(Account { lasted, total, .. }) => {
                let lasted = seconds(lasted + STANDING);
                format!("the queue stood for {lasted}; {}", at_most(&total))
            }
        })
    }

    fn look_at_held_back(
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
                    "requests hang, and {held_back} that ask for the same wait until some of those \
                     have ended: all of them may have {may_hang} workers, the rest is for others; \
                     the busy ones run {}",
                    running()
                ));
            }
        }
        let (verb, Account { lasted, total, .. }) = tense(self.held_back.due(now)?);
        let lasted = seconds(lasted);
        Some(format!(
            "waiting for others that hang {verb} the lot of at most {total} requests at once for {lasted}"
        ))
    }

    fn look_at_order(&mut self, sample: &QueueSample, now: Duration) -> Option<String> {
        if sample.lifo_starts > self.last.lifo_starts || sample.is_lifo && sample.waiting > 0 {
            let times = self.lifo.happened(now, |()| ());
            if times == 1 {
                return Some(
                    "more requests come than can be answered: the newest are answered first, and \
                     those that they pass for too long are refused"
                        .to_owned(),
                );
            }
        }
        let (verb, Account { lasted, .. }) = tense(self.lifo.due(now)?);
        let lasted = seconds(lasted);
        Some(format!(
            "newest first {verb} the order of the queue for {lasted}, because more requests came \
             than could be answered"
        ))
    }

    fn look_at_refusals(&mut self, sample: &QueueSample, now: Duration) -> Option<String> {
        let new: [u64; CAUSES] =
            std::array::from_fn(|cause| sample.refused[cause] - self.last.refused[cause]);
        if new.iter().any(|count| *count > 0) {
            let times = self.refused.happened(now, |RejectionCounts(all)| {
                for (sum, new) in all.iter_mut().zip(new) {
                    *sum += new;
                }
            });
            if times == 1 {
                let first = sample.first_refused.as_deref().unwrap_or_default();
                return Some(format!("{first}; further refusals are counted"));
            }
        }
        let (verb, Account { lasted, total, .. }) = tense(self.refused.due(now)?);
        let all: u64 = total.0.iter().sum();
        let (length, timeout) = (self.queue_length, self.queue_timeout.as_secs_f64());
        let words = |cause: Refused| match cause {
            Refused::QueueFull => format!("found a queue of request_queue_length = {length}"),
            Refused::TooLong => format!("waited for request_queue_timeout = {timeout} s in vain"),
            Refused::NoPool => "found no pool".to_owned(),
            Refused::Hopeless => format!("would have waited for more than these {timeout} s"),
            Refused::Passed => "were passed by newer ones".to_owned(),
            Refused::Deadline => "had no worker before a deadline of their own".to_owned(),
        };
        let by_cause = ALL_CAUSES.into_iter().zip(total.0);
        let told: Vec<String> = by_cause
            .filter(|(_, count)| *count > 0)
            .map(|(cause, count)| format!("{count} {}", words(cause)))
            .collect();
        Some(format!(
            "503 {verb} the answer to {all} requests in {}: {}",
            seconds(lasted),
            told.join(", ")
        ))
    }
}

fn at_most(waits: &WaitStats) -> String {
    let (most, longest) = (waits.most, seconds(waits.longest));
    format!("at most {most} were seen waiting at once, the longest for {longest}")
}

/// Scripts and how many workers run each, the most frequent first.
fn count_scripts(scripts: Vec<String>) -> String {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for script in scripts {
        *counts.entry(script).or_default() += 1;
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let others: usize = counts.iter().skip(NAMED_SCRIPTS).map(|(_, n)| n).sum();
    let named = counts.iter().take(NAMED_SCRIPTS);
    let mut named: Vec<String> = named.map(|(name, n)| format!("{n} × {name}")).collect();
    if others > 0 {
        named.push(format!("{others} × others"));
    }
    named.join(", ")
}

impl Pool {
    fn sample(&self) -> (QueueSample, usize) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let state = self.lock();
        let (queue, waiting) = (&state.queue, state.queue.waiting());
        let (busy, open, most) = (queue.busy(), queue.open_seats(), queue.max_open());
        let oldest = queue.waiting.longest();
        let (lifo_starts, is_lifo) = (queue.waiting.lifo_starts(), queue.waiting.is_lifo());
        let held_back = state.held_back.len();
        let auto = state.growth.auto.as_ref();
        let may_hang = auto.and_then(Auto::most_that_hang).unwrap_or(most);
        drop(state);
        let first = &self.saturation.first;
        let sample = QueueSample {
            waiting,
            longest: oldest.map_or(Duration::ZERO, |since| since.elapsed()),
            busy,
            at_limit: waiting > 0 && open >= most,
            met_limit: count(&self.saturation.met_limit),
            refused: std::array::from_fn(|cause| count(&self.saturation.refused[cause])),
            lifo_starts,
            is_lifo,
            held_back,
            may_hang,
            first_refused: first.lock().unwrap_or_else(PoisonError::into_inner).take(),
        };
        (sample, most)
    }

    /// What the pool's busy workers run, by their own word.
    fn running(&self) -> String {
        let generations = self.lock().generations.clone();
        let mut scripts = Vec::new();
        for generation in generations {
            let link = generation.link();
            let runs = |seat: &u32| link.seat_board(*seat).running.load(Ordering::Relaxed) != 0;
            let busy = (0..link.seats()).filter(runs);
            scripts.extend(busy.map(|seat| generation.script_in(seat)));
        }
        count_scripts(scripts)
    }

    fn tell(&self, seen: &mut SaturationState, now: Duration) {
        // Whoever comes after this line is seen now, or has us look once more.
        self.saturation.told.store(false, Ordering::Release);
        let (sample, most) = self.sample();
        seen.learn(&self.settings(), most);
        let lines = seen.look(sample, || self.running(), now);
        for line in lines.into_iter().chain(self.saturation.log.due()) {
            match self.saturation.is_fpm {
                true => tracing::warn!("[pool {}] {line}", self.name),
                false => tracing::warn!("pool {}: {line}", self.name),
            }
        }
    }
}

/// Looks after a pool whenever something waits in it, until all is well, and for as long as the
/// pool exists.
pub async fn watch(pool: Weak<Pool>) {
    let started = Instant::now();
    let watch = |pool: Arc<Pool>| {
        let watch = &pool.saturation;
        (watch.stirred.clone(), watch.log.clone(), watch.is_fpm)
    };
    let Some((stirred, log, is_fpm)) = pool.upgrade().map(watch) else {
        return;
    };
    let mut seen = SaturationState::new(is_fpm);
    loop {
        if seen.is_quiet() && log.is_quiet() {
            stirred.notified().await;
        }
        let Some(pool) = pool.upgrade() else { return };
        pool.tell(&mut seen, started.elapsed());
        drop(pool);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests;
