//! What `maitred status` is told.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use maitred_control::admin::{
    Copies, MAX_RUNNING_SHOWN, PeakMemory, PoolStatus, Quantiles, Queue, Running, ServerStatus,
    Size, Times, Workers,
};
use maitred_scoreboard::{Cause, Outcome, Reading, STAYED_FOR};
use maitred_seat::{Boards, Process, Snapshot};

use crate::capacity::auto::there_is_now;
use crate::logging::running_time::RunningTime;
use crate::processes::generation::Seated;
use crate::processes::running_pool::RunningPool;
use crate::run::Supervisor;

use super::advice::{Resources, advice};
use super::status_draft::{Runner, StatusDraft};

impl Supervisor {
    /// The state of the server, of all its pools or only of `pool`, for which stacks of scripts
    /// and figures of OPcache may still come.
    ///
    /// # Errors
    /// One sentence, when there is no such pool.
    pub(super) fn draft_status(&mut self, pool: Option<&str>) -> Result<StatusDraft, String> {
        if let Some(pool) = pool
            && self.generations(pool).next().is_none()
        {
            let names = self.names();
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            return Err(format!(
                "there is no pool `{}`; expected one of {}",
                plain(pool),
                names.join(", ")
            ));
        }
        self.look_at_caches();
        self.look_at_front();
        self.measure();
        let names = self.names().into_iter();
        let names = names.filter(|name| pool.is_none_or(|pool| pool == *name));
        let (pools, scripts) = names.map(|name| self.pool_status(name)).unzip();
        let listeners = self.plan.listeners.iter();
        let status = ServerStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            phase: self.phase.name().to_owned(),
            uptime_seconds: self.now().as_secs_f64(),
            listen: listeners
                .map(|listener| listener.address.to_string())
                .collect(),
            front_epoch: self.front.epoch,
            front_pid: self.front.peer.as_ref().map(crate::peer::Peer::pid),
            pools,
            page_cache: None,
            proxies: Vec::new(),
            certificates: self.acme.status(self.now()),
        };
        Ok(self.ask_stacks(status, scripts))
    }

    /// Measures the memory of all pools' processes, and shows it on their scoreboards.
    pub fn measure(&mut self) {
        for id in self.pools.ids() {
            self.show_copies(id);
        }
        let now = self.now();
        let all: Vec<i32> = self
            .names()
            .iter()
            .flat_map(|name| self.pids(name))
            .collect();
        self.admin.measures.measure(&all, now);
        for name in self.names() {
            let memory = self.admin.measures.of(&self.pids(name));
            if let Some(page) = self.scores.page(name) {
                let (private, shared) = (memory.private_bytes, memory.shared_bytes);
                page.workers().measured(private, shared);
            }
        }
    }

    /// The pools by name, each once.
    fn names(&self) -> BTreeSet<&str> {
        let names = self
            .pools
            .iter()
            .map(|pool| pool.plan.settings.pool.as_str());
        names.collect()
    }

    /// The generations of a pool, the oldest first.
    fn generations(&self, name: &str) -> impl Iterator<Item = &RunningPool> {
        let is_one = move |pool: &&RunningPool| pool.plan.settings.pool == name;
        self.pools.iter().filter(is_one)
    }

    /// The processes of a pool: its workers, and its zygotes.
    fn pids(&self, name: &str) -> Vec<i32> {
        let of_one = |running: &RunningPool| {
            let zygote = running
                .zygote
                .as_ref()
                .filter(|zygote| zygote.reaped.is_none());
            let workers = running.workers.keys().copied();
            let pids = workers.chain(zygote.map(|zygote| zygote.peer.pid()));
            pids.collect::<Vec<i32>>()
        };
        self.generations(name).flat_map(of_one).collect()
    }

    /// A pool, and who runs each of the scripts that are shown of it.
    fn pool_status(&self, name: &str) -> (PoolStatus, Vec<Runner>) {
        let page = self.scores.page(name);
        let reading = page.map(|page| page.read()).unwrap_or_default();
        // What is on trial is not yet the pool, and what is leaving is so no more.
        let current = self
            .generations(name)
            .filter(|pool| pool.is_current())
            .last();
        let Some(current) = current.or_else(|| self.generations(name).last()) else {
            return (PoolStatus::default(), Vec::new());
        };
        let (running, runners) = self.running(name).into_iter().unzip();
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
            queue_wait: times(&reading.waits, &reading.recent_waits),
            script_time: times(&reading.scripts, &reading.recent_scripts),
            cpu_time: times(&reading.cpu, &reading.recent_cpu),
            core_wait_time: times(&reading.core_waits, &reading.recent_core_waits),
            blocked_time: times(&reading.blocked, &reading.recent_blocked),
            children_cpu_seconds: reading.children.as_secs_f64(),
            peak_memory: peak_memory(&reading.peak_memory),
            requests: reading.outcomes.iter().sum(),
            outcomes: outcomes(&reading, |_| true),
            refusals: outcomes(&reading, Outcome::is_refusal),
            memory: self.admin.measures.of(&self.pids(name)),
            opcache: None,
            size: reading.size.map(size),
            copies: copies(&reading),
            advice: self.advice(name, &reading, current),
            running,
        };
        (status, runners)
    }

    /// How many workers there would be if they were not fixed.
    fn advice(&self, name: &str, reading: &Reading, current: &RunningPool) -> Option<Size> {
        if reading.size.is_some() {
            return None;
        }
        let memory = self.admin.measures.of(&self.pids(name));
        let group = self.plan.memory_group(name);
        let (cores, there_is) = there_is_now(group.as_deref());
        let means = Resources {
            cores,
            memory: there_is,
            worker: memory.private_bytes as f64 / memory.processes.max(1) as f64,
            limit: current.plan.max_children(),
        };
        advice(reading, &means)
    }

    /// The scripts that run, by the word of their workers, the longest-running first.
    fn running(&self, name: &str) -> Vec<(Running, Runner)> {
        let mut running: Vec<_> = self.generations(name).flat_map(running_in).collect();
        running.sort_by(|(a, _), (b, _)| b.seconds.total_cmp(&a.seconds));
        running.truncate(MAX_RUNNING_SHOWN);
        running
    }
}

fn running_in(pool: &RunningPool) -> Vec<(Running, Runner)> {
    // Mapped for the moment only: a pool's memory is large, and this is rarely asked for.
    let Ok(boards) = Boards::map(&pool.plan.memory) else {
        return Vec::new();
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default();
    let running = pool.pool.seated().filter_map(|seated| {
        let board = boards.seat(seated.worker.seat)?;
        let snapshot = Snapshot::take(boards.pool(), std::iter::once(board), now);
        let process = snapshot.processes.into_iter().next()?;
        let runner = Runner {
            generation: pool.generation,
            worker: seated.worker,
            request: process.requests,
        };
        let so_far = || RunningTime::of(seated.pid, board, Duration::from_micros(process.duration));
        let so_far = process.running.then(so_far).flatten();
        process
            .running
            .then(|| (shown(seated, process, so_far), runner))
    });
    running.collect()
}

fn shown(seated: Seated, process: Process, so_far: Option<RunningTime>) -> Running {
    let seconds =
        |part: fn(&RunningTime) -> Duration| so_far.as_ref().map(part).map(|d| d.as_secs_f64());
    Running {
        pid: seated.pid,
        seat: seated.worker.seat,
        seconds: process.duration as f64 / 1e6,
        method: plain(&process.method),
        uri: plain(&process.uri),
        script: plain(&process.script),
        cpu_seconds: seconds(|so_far| so_far.cpu),
        core_wait_seconds: seconds(|so_far| so_far.core_wait),
        blocked_seconds: seconds(|so_far| so_far.blocked),
        stack: Vec::new(),
    }
}

/// What a script or a client wrote, without anything that a terminal could obey.
pub(super) fn plain(text: &str) -> String {
    text.replace(|c: char| c.is_control(), "?")
}

fn workers(reading: &Reading, limit: u32) -> Workers {
    // The two are counted by two processes, and may be some moments apart.
    let busy = reading.busy.min(reading.seated);
    let ended = Cause::ALL
        .into_iter()
        .map(|cause| (cause.name().to_owned(), reading.ended[cause as usize]));
    Workers {
        busy,
        idle: reading.seated - busy,
        starting: reading.coming,
        limit: limit.into(),
        max_busy: reading.max_busy,
        limit_reached: reading.limit_reached,
        spawned: reading.spawned,
        ended: ended.collect(),
    }
}

fn size(size: maitred_scoreboard::Size) -> Size {
    let terms = size.terms().into_iter();
    let seconds = |micros: u64| micros as f64 / 1e6;
    Size {
        workers: size.workers,
        binding: size.binding_name().to_owned(),
        terms: terms
            .map(|(name, workers)| (name.to_owned(), workers))
            .collect(),
        cores: size.cores as f64 / 1000.0,
        cpu_seconds: size.cpu_micros.map(seconds),
        blocked_seconds: seconds(size.blocked_micros),
        hanging: size.hanging,
    }
}

fn copies(reading: &Reading) -> Option<Copies> {
    let copies = reading.copies.as_ref()?;
    let stayed = STAYED_FOR.iter().zip(copies.stayed);
    Some(Copies {
        generation: copies.generation,
        spare: reading.seated.saturating_sub(reading.busy),
        fork_time: quantiles(&copies.forks),
        went_back: copies.went_back,
        stayed: stayed
            .map(|(reason, count)| ((*reason).to_owned(), count))
            .collect(),
        pages: copies.pages_each(),
    })
}

fn outcomes(
    reading: &Reading,
    which: impl Fn(Outcome) -> bool,
) -> std::collections::BTreeMap<String, u64> {
    Outcome::ALL
        .into_iter()
        .filter(|outcome| which(*outcome))
        .map(|outcome| {
            let count = reading.outcomes[outcome as usize];
            (outcome.name().to_owned(), count)
        })
        .collect()
}

fn times(total: &maitred_scoreboard::Times, recent: &maitred_scoreboard::Times) -> Times {
    Times {
        total: quantiles(total),
        recent: quantiles(recent),
    }
}

/// By a histogram of kilobytes.
fn peak_memory(kilobytes: &maitred_scoreboard::Times) -> PeakMemory {
    let bytes = |quantile| {
        let kilobytes = kilobytes.quantile(quantile)?.as_micros();
        u64::try_from(kilobytes * 1024).ok()
    };
    PeakMemory {
        p50_bytes: bytes(0.5),
        p99_bytes: bytes(0.99),
    }
}

fn quantiles(times: &maitred_scoreboard::Times) -> Quantiles {
    let seconds = |quantile| times.quantile(quantile).map(|time| time.as_secs_f64());
    Quantiles {
        count: times.count(),
        p50_seconds: seconds(0.5),
        p99_seconds: seconds(0.99),
    }
}
