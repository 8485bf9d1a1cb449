//! The reply to `maitred status`.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use maitred_control::admin::{
    Copies, MAX_RUNNING_SHOWN, Memory, PeakMemory, PoolStatus, Quantiles, Queue, RealpathCache,
    Running, ServerStatus, Size, Times, Workers,
};
use maitred_control::job_status::Beside;
use maitred_scoreboard::{
    Cause, Histogram, NOT_REWOUND, Reading, RequestHistograms, RequestOutcome,
};
use maitred_seat::{Boards, PoolState, WorkerState};
use maitred_sizing::beside::Reserve;
use maitred_text::humanize::shorten;

use crate::capacity::auto::{CapacityManager, cpu_max, memory_group, there_is_now};
use crate::capacity::private_memory::Measures;
use crate::logging::running_time::RunningTime;
use crate::processes::generation::Seated;
use crate::processes::pools::Pools;
use crate::processes::preloading::PreloadingPools;
use crate::processes::running_pool::RunningPool;
use crate::processes::scoreboards::Scoreboards;
use crate::processes::script_waits::{RUNS_LONG, wait_of};
use crate::system::cgroups::Groups;

use super::advice::{Resources, advice};
use super::status_draft::{DraftedStatus, Runner};

/// Longest name of a query parameter that is shown whole, in characters.
const MAX_PARAMETER_CHARS: usize = 32;

/// Thousandths of a core in one.
const THOUSANDTHS: f64 = 1000.0;

/// The state that a status reply shows.
#[derive(Debug)]
pub struct StatusSource<'a> {
    /// All generations.
    pub pools: &'a Pools,
    /// All scoreboards.
    pub scoreboards: &'a Scoreboards,
    /// The control groups of pools.
    pub groups: Option<&'a Groups>,
    /// The memory of processes, as it was measured last.
    pub measures: &'a Measures,
    /// The pools with `preload`.
    pub preloading: &'a PreloadingPools,
    /// What is left to commands and schedules.
    pub capacity: &'a CapacityManager,
}

impl StatusSource<'_> {
    /// Adds all pools, or only `pool`, to a status reply.
    ///
    /// # Errors
    /// One sentence, when there is no such pool.
    pub fn add_to(
        &self,
        mut status: ServerStatus,
        pool: Option<&str>,
    ) -> Result<DraftedStatus, String> {
        let names = self.pools.names();
        if let Some(pool) = pool
            && !names.contains(pool)
        {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            return Err(format!(
                "there is no pool `{}`; expected one of {}",
                plain(pool),
                names.join(", ")
            ));
        }
        let names = names.into_iter();
        let names = names.filter(|name| pool.is_none_or(|pool| pool == *name));
        let (pools, runners) = names.map(|name| self.pool_status(name)).unzip();
        status.pools = pools;
        Ok(DraftedStatus { status: Box::new(status), runners })
    }

    /// A pool, and the workers of the scripts that are shown of it.
    fn pool_status(&self, name: &str) -> (PoolStatus, Vec<Runner>) {
        let page = self.scoreboards.page(name);
        let reading = page.map(|page| page.read()).unwrap_or_default();
        let Some(current) = self.current(name) else {
            return (PoolStatus::default(), Vec::new());
        };
        let mut running = self.running(name);
        let scripts = running.len() as u64;
        running.truncate(MAX_RUNNING_SHOWN);
        let long = |script: &Running| script.seconds >= RUNS_LONG.as_secs_f64();
        for (script, _) in running.iter_mut().filter(|(script, _)| long(script)) {
            script.waits_for = wait_of(script.pid).map(|kind| kind.name().to_owned());
        }
        let (running, runners) = running.into_iter().unzip();
        let status = PoolStatus {
            name: name.to_owned(),
            pm: current.plan.settings.process_manager.clone(),
            php: current.php.clone(),
            workers: workers(&reading, current.plan.max_children()),
            queue: Queue {
                now: reading.queued,
                max: reading.max_queued,
                limit: current.plan.pool.request_queue_length.into(),
            },
            queue_wait: times(&reading, |times| &times.waits),
            script_time: times(&reading, |times| &times.scripts),
            cpu_time: times(&reading, |times| &times.cpu),
            core_wait_time: times(&reading, |times| &times.core_waits),
            blocked_time: times(&reading, |times| &times.blocked),
            counters: reading.counters,
            peak_memory: peak_memory(&reading.peak_memory),
            requests: reading.outcomes.iter().sum(),
            outcomes: outcomes(&reading, |_| true),
            refused: outcomes(&reading, RequestOutcome::is_rejection),
            failed: outcomes(&reading, RequestOutcome::is_failure),
            opcache: None,
            realpath_cache: realpath_cache(current),
            preloading: self.preloading.shown(name),
            size: reading.size.map(size),
            beside: self.capacity.reserve(name).map(beside),
            copies: copies(&reading),
            scripts,
            running,
            ..PoolStatus::default()
        };
        (status, runners)
    }

    /// Adds the memory of a pool's processes, and what follows from it, once they are measured.
    pub fn add_memory(&self, pool: &mut PoolStatus) {
        pool.memory = self.measures.of(&self.pools.pids_of(&pool.name));
        let page = self.scoreboards.page(&pool.name);
        let reading = page.map(|page| page.read()).unwrap_or_default();
        if let Some(current) = self.current(&pool.name) {
            pool.advice = self.advice(&reading, current, &pool.memory);
        }
    }

    /// A generation on trial is not yet the pool, and a leaving one no longer.
    fn current(&self, name: &str) -> Option<&RunningPool> {
        self.pools.current_of(name).or_else(|| self.pools.named(name).last())
    }

    /// How many workers there would be if they were not fixed.
    fn advice(&self, reading: &Reading, current: &RunningPool, memory: &Memory) -> Option<Size> {
        if reading.size.is_some() {
            return None;
        }
        let group = memory_group(self.groups, current.name());
        let (cores, available) = there_is_now(group.as_deref());
        let own = cpu_max(self.groups, current).map(|own| f64::from(own) / THOUSANDTHS);
        let resources = Resources {
            cores: own.map_or(cores, |own| own.min(cores)),
            memory: available,
            worker: memory.private_bytes as f64 / memory.processes.max(1) as f64,
            limit: current.plan.max_children(),
        };
        advice(reading, &resources)
    }

    /// The running scripts, as their workers report them, the longest-running first.
    fn running(&self, name: &str) -> Vec<(Running, Runner)> {
        let mut running: Vec<_> = self.pools.named(name).flat_map(running_in).collect();
        running.sort_by(|(a, _), (b, _)| b.seconds.total_cmp(&a.seconds));
        running
    }
}

/// A running request.
#[derive(Debug)]
pub struct RunningRequest {
    /// Its method.
    pub method: String,
    /// Its URI.
    pub uri: String,
    /// How long it has run.
    pub seconds: f64,
}

/// The running requests of all pools, the longest-running first, at most [`MAX_RUNNING_SHOWN`].
pub fn running_requests(pools: &Pools) -> Vec<RunningRequest> {
    let mut running: Vec<RunningRequest> = pools
        .iter()
        .flat_map(running_in)
        .map(|(Running { method, uri, seconds, .. }, _)| RunningRequest { method, uri, seconds })
        .collect();
    running.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    running.truncate(MAX_RUNNING_SHOWN);
    running
}

fn running_in(pool: &RunningPool) -> Vec<(Running, Runner)> {
    // Mapped only now: a pool's memory is large, and this is rarely needed.
    let Ok(boards) = Boards::map(&pool.plan.memory) else {
        return Vec::new();
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default();
    let running = pool.state.seated().filter_map(|seated| {
        let board = boards.seat(seated.worker.seat)?;
        let snapshot = PoolState::take(boards.pool(), std::iter::once(board), now);
        let process = snapshot.processes.into_iter().next()?;
        let runner = Runner {
            generation: pool.generation,
            worker: seated.worker,
            request: process.requests,
        };
        let running_time =
            || RunningTime::of(seated.pid, board, Duration::from_micros(process.duration));
        let running_time = process.running.then(running_time).flatten();
        process.running.then(|| {
            let mut running = shown(seated, process, running_time);
            running.client_left = boards.client_has_left(seated.worker.seat);
            (running, runner)
        })
    });
    running.collect()
}

/// That of the worker that uses most of it, of those that have finished a script.
fn realpath_cache(pool: &RunningPool) -> Option<RealpathCache> {
    let boards = Boards::map(&pool.plan.memory).ok()?;
    let seats = pool.state.seated().filter_map(|seated| boards.seat(seated.worker.seat));
    let reported = seats.filter(|board| board.memory_peak.load(Relaxed) > 0);
    let caches = reported.map(|board| RealpathCache {
        used_bytes: board.realpath_used.load(Relaxed),
        limit_bytes: board.realpath_limit.load(Relaxed),
    });
    caches.max_by_key(|cache| cache.used_bytes)
}

fn shown(seated: Seated, process: WorkerState, running_time: Option<RunningTime>) -> Running {
    let seconds = |part: fn(&RunningTime) -> Duration| {
        running_time.as_ref().map(part).map(|d| d.as_secs_f64())
    };
    Running {
        pid: seated.pid,
        seat: seated.worker.seat,
        seconds: process.duration as f64 / 1e6,
        method: plain(&process.method),
        uri: plain(&process.uri),
        query: parameter_names(&plain(&process.query)),
        script: plain(&process.script),
        client_left: false,
        cpu_seconds: seconds(|running_time| running_time.cpu),
        core_wait_seconds: seconds(|running_time| running_time.core_wait),
        blocked_seconds: seconds(|running_time| running_time.blocked),
        waits_for: None,
        stack: Vec::new(),
    }
}

/// A query with `…` in place of each value: values may be secrets. A parameter without a value is
/// shown if it is short enough for a name.
fn parameter_names(query: &str) -> String {
    let parameters = query.split('&').filter(|parameter| !parameter.is_empty());
    let names = parameters.map(|parameter| match parameter.split_once('=') {
        Some((name, _)) => format!("{}=…", shorten(name, MAX_PARAMETER_CHARS)),
        None if parameter.chars().count() <= MAX_PARAMETER_CHARS => parameter.to_owned(),
        None => "…".to_owned(),
    });
    names.collect::<Vec<_>>().join("&")
}

/// Text of a script or a client, without terminal control characters.
pub fn plain(text: &str) -> String {
    text.replace(|c: char| c.is_control(), "?")
}

fn workers(reading: &Reading, limit: u32) -> Workers {
    // The two are counted by two processes, and may differ for a moment.
    let busy = reading.busy.min(reading.seated);
    let exited = Cause::ALL
        .into_iter()
        .map(|cause| (cause.name().to_owned(), reading.ended[cause as usize]));
    Workers {
        busy,
        idle: reading.seated - busy,
        starting: reading.coming,
        limit: limit.into(),
        max_busy: reading.max_busy,
        exited: exited.collect(),
    }
}

fn size(size: maitred_scoreboard::Size) -> Size {
    let terms = size.terms().into_iter();
    let seconds = |micros: u64| micros as f64 / 1e6;
    Size {
        workers: size.workers,
        binding: size.binding_name().to_owned(),
        terms: terms.map(|(name, workers)| (name.to_owned(), workers)).collect(),
        cores: size.cores as f64 / THOUSANDTHS,
        cpu_seconds: size.cpu_micros.map(seconds),
        blocked_seconds: seconds(size.blocked_micros),
        hanging: size.hanging,
    }
}

fn beside(reserve: Reserve) -> Beside {
    Beside {
        used_cores: reserve.used_cores,
        cores: reserve.cores,
        memory_bytes: reserve.memory as u64,
        growth_bytes: reserve.growth as u64,
    }
}

fn copies(reading: &Reading) -> Option<Copies> {
    let copies = reading.copies.as_ref()?;
    let not_rewound = NOT_REWOUND.iter().zip(copies.counters.not_rewound);
    Some(Copies {
        generation: copies.generation,
        spare: reading.seated.saturating_sub(reading.busy),
        fork_time: quantiles(&copies.forks),
        rewound: copies.counters.rewound,
        not_rewound: not_rewound.map(|(reason, count)| ((*reason).to_owned(), count)).collect(),
        private_pages: copies.pages_each(),
    })
}

fn outcomes(
    reading: &Reading,
    which: impl Fn(RequestOutcome) -> bool,
) -> std::collections::BTreeMap<String, u64> {
    RequestOutcome::ALL
        .into_iter()
        .filter(|outcome| which(*outcome))
        .map(|outcome| {
            let count = reading.outcomes[outcome as usize];
            (outcome.metric_name().to_owned(), count)
        })
        .collect()
}

fn times(reading: &Reading, of: fn(&RequestHistograms) -> &Histogram) -> Times {
    Times { total: quantiles(of(&reading.total)), recent: quantiles(of(&reading.recent)) }
}

/// By a histogram of kilobytes.
fn peak_memory(kilobytes: &Histogram) -> PeakMemory {
    let bytes = |quantile| {
        let kilobytes = kilobytes.quantile(quantile)?.as_micros();
        u64::try_from(kilobytes * 1024).ok()
    };
    PeakMemory { p50_bytes: bytes(0.5), p99_bytes: bytes(0.99) }
}

fn quantiles(times: &Histogram) -> Quantiles {
    let seconds = |quantile| times.quantile(quantile).map(|time| time.as_secs_f64());
    Quantiles { count: times.count(), p50_seconds: seconds(0.5), p99_seconds: seconds(0.99) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_shown_with_its_names_and_without_its_values() {
        let long = "8f3a".repeat(16);
        for (query, shown) in [
            ("", ""),
            ("p=3", "p=…"),
            ("p=3&lang=de&&wc-ajax", "p=…&lang=…&wc-ajax"),
            ("=x&a==", "=…&a=…"),
            (long.as_str(), "…"),
        ] {
            assert_eq!(parameter_names(query), shown, "{query}");
        }
    }
}
