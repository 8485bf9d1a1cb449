//! The capacity of pools with `pm = auto`: processors, and memory for workers. The files are read
//! here; the crate `sizing` ([`MemoryLedger`]) decides.
//!
//! They are read once a second while such a pool grows or shrinks or memory is nearly full, more
//! often until the memory of workers is known, and rarely otherwise. A check costs about the same
//! however many pools and workers there are ([`BUDGET`]), and less where memory is plentiful. It
//! begins with orders to count the pages of some workers ([`MemoryReads`]), and ends when they are
//! counted, or after [`COUNTS_WAIT`].

mod batches;
mod memory_log;
mod worker_counters;
mod worker_memory;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use maitred_config::ProcessManager;
use maitred_control::{Generation, ToFront};
use maitred_os::proc;
use maitred_scoreboard::Page;
use maitred_sizing::beside::Reserve;
use maitred_sizing::ledger::{Budget, MemoryLedger};
use maitred_sizing::memory::Level;
use maitred_sizing::sources::{self, Counters, Files, Memory};
use tracing::{info, warn};

use self::batches::Batches;
pub use self::batches::SizedJob;
use self::memory_log::{MemoryLog, MemoryLogLine};
use self::worker_counters::{CounterSource, WorkerCounters, with_reported};
use self::worker_memory::{MeasuredWorker, WorkerMeasures, WorkerToMeasure};
use crate::capacity::memory_reads::{MemoryReading, MemoryReads};
use crate::fronts::Fronts;
use crate::limits::Moment;
use crate::processes::pools::Pools;
use crate::processes::running_pool::RunningPool;
use crate::processes::scoreboards::Scoreboards;
use crate::system::cgroups::Groups;

/// Interval of checks while a pool grows or shrinks, and until the memory of workers is known.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOK_SOON: Duration = Duration::from_millis(100);

/// Workers measured in one check: by their private pages, and by cheaper counters.
const BUDGET: Budget = Budget { exactly: 16, roughly: 128 };

/// The same where memory is plentiful: counting the pages of one worker takes 60 to 360 µs.
const CALM_BUDGET: Budget = Budget { exactly: 4, roughly: 32 };

/// How long a check waits for counts of pages. Those that come later are for the next one.
const COUNTS_WAIT: Duration = Duration::from_millis(50);

/// Interval while some pool has more than one worker, and while none has.
const STEADY_LOOK_EVERY: Duration = Duration::from_secs(2);
const CALM_LOOK_EVERY: Duration = Duration::from_secs(30);

/// How long a pool counts as growing or shrinking after its last change.
const STIRRED_FOR: Duration = Duration::from_secs(10);

/// Part of the memory limit from which memory counts as nearly full.
const NEARLY_FULL: f64 = 0.75;

/// Most of the memory that is left to what the jobs of all pools may grow to: one tenant's would
/// otherwise keep those of others small.
const MOST_FOR_GROWTH: f64 = 0.25;

const MEGABYTE: f64 = 1024.0 * 1024.0;

/// The capacity for all pools that find their size.
#[derive(Debug, Default)]
pub struct CapacityManager {
    due: Option<Moment>,
    /// When the check that has begun ends, without the counts that have not come by then.
    ends_at: Option<Moment>,
    /// When a worker was last started or ended, or memory lacked for one.
    changed_at: Moment,
    counters: Counters,
    /// Thousandths of a processor.
    cores: u32,
    memory: Option<Memory>,
    /// Memory of pools whose control groups have a limit.
    apart: BTreeMap<String, Memory>,
    rooms: MemoryLedger,
    counted: WorkerMeasures,
    /// The pool that the next check starts with.
    next: usize,
    /// By pool, the last capacity sent to the front.
    sent: BTreeMap<String, SentCapacity>,
    memory_log: MemoryLog,
    batches: Batches,
    /// It was logged that the memory cannot be read.
    is_unreadable_logged: bool,
}

/// The capacity of a pool as a front knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SentCapacity {
    epoch: u32,
    generation: Generation,
    cores: u32,
    workers: Option<u32>,
}

/// A pool that finds its size: its workers, and the number of finished requests.
struct SizedPool<'a> {
    name: String,
    workers: Vec<i32>,
    /// Workers that are starting.
    coming: usize,
    requests: u64,
    /// Generations whose workers count requests and the memory of programs they have run.
    counters: Vec<&'a dyn CounterSource>,
    /// The folder of its control group, if that may limit its memory.
    group: Option<PathBuf>,
}

/// What a check looks at.
struct CheckedPools<'a> {
    /// Those that find their size.
    sized: &'a [SizedPool<'a>],
    jobs: &'a [SizedJob],
    /// The folders of all pools' control groups that may limit their memory.
    groups: &'a [PathBuf],
}

/// Joins the generations of each pool: while one is on trial, both have workers, and measurements
/// are stored by the name of the pool.
fn joined<'a>(generations: impl Iterator<Item = SizedPool<'a>>) -> Vec<SizedPool<'a>> {
    let (mut all, mut places) = (Vec::<SizedPool>::new(), HashMap::new());
    for seen in generations {
        match places.entry(seen.name.clone()) {
            Entry::Vacant(place) => {
                place.insert(all.len());
                all.push(seen);
            }
            Entry::Occupied(place) => {
                let pool = &mut all[*place.get()];
                pool.workers.extend(seen.workers);
                pool.coming += seen.coming;
                pool.counters.extend(seen.counters);
            }
        }
    }
    all
}

/// The files of this machine.
struct Machine;

impl Files for Machine {
    fn read(&self, path: &str) -> Option<String> {
        proc::text(path).ok()
    }
}

/// The present processors and memory for a pool whose control group in this folder may limit its
/// memory.
pub fn there_is_now(group: Option<&Path>) -> (f64, Option<Memory>) {
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = sources::cores(&Machine, allowed).count;
    let apart = group.and_then(|folder| sources::memory_of_group(&Machine, folder.to_str()?));
    let memory = Memory::tightest(sources::memory(&Machine).into_iter().chain(apart));
    (cores, memory)
}

impl CapacityManager {
    /// Checks the machine, after some workers were measured.
    fn look(&mut self, now: Moment, files: &dyn Files, checked: &CheckedPools) {
        let CheckedPools { sized: pools, jobs, groups } = *checked;
        let memory_of = |folder: &Path| sources::memory_of_group(files, folder.to_str()?);
        let counters = Counters::read(files);
        let signs = counters.signs(&self.counters, files);
        let signs = signs.beside(groups.iter().filter_map(|folder| memory_of(folder)));
        self.counters = counters;
        let allowed = std::thread::available_parallelism().map_or(1, usize::from);
        let cores = sources::cores(files, allowed).count;
        self.batches.look(now, cores, jobs);
        self.cores = ((cores - self.batches.all().cores) * 1000.0) as u32;
        self.memory = sources::memory(files);
        let limited = pools.iter().filter_map(|pool| Some((pool, pool.group.as_ref()?)));
        let apart =
            limited.filter_map(|(pool, group)| Some((pool.name.clone(), memory_of(group)?)));
        self.apart = apart.collect();
        let growths = self.batches.growths(&self.apart);
        let most = self.memory.map_or(0.0, |memory| memory.limit * MOST_FOR_GROWTH);
        self.rooms.leave(growths.values().sum::<f64>().min(most), growths);
        let names: HashSet<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
        self.sent.retain(|name, _| names.contains(name.as_str()));
        self.rooms.look_apart(now, &self.apart);
        self.rooms.look(now, self.memory, &signs, &names);
    }

    /// Begins to measure some workers of each pool, within the budget; the next check continues
    /// from there.
    fn measure(
        &mut self,
        files: &dyn Files,
        pools: &[SizedPool],
        reads: &mut MemoryReads,
        now: Moment,
    ) {
        let mut left = match self.rooms.are_far_from_the_limit() {
            true => CALM_BUDGET,
            false => BUDGET,
        };
        let (seen, first) = (pools.len(), self.next);
        for turn in 0..seen {
            let pool = &pools[(first + turn) % seen];
            let (name, workers) = (&pool.name, &pool.workers);
            let all_due = self.rooms.due(name, workers, pool.requests, &mut left);
            self.rooms.are_coming(&pool.name, pool.coming);
            // Young workers are read even so; they are not young for long.
            let asks =
                all_due.iter().any(|due| due.exactly) || self.rooms.may_have_young(&pool.name);
            let reporting = pool.counters.iter().filter(|_| asks);
            let reported: HashMap<i32, WorkerCounters> =
                reporting.flat_map(|pool| pool.reported_by_workers()).collect();
            for due in all_due {
                let reported = reported.get(&due.worker).copied();
                let of = WorkerToMeasure { pool: pool.name.clone(), due, reported };
                if let Some(measured) = self.counted.begin(files, of, reads, now) {
                    self.take(&measured);
                }
            }
            if left.exactly > 0 && left.roughly > 0 {
                self.next = (first + turn + 1) % seen;
            }
        }
        // A pool that takes all of the budget leaves the next check to others.
        if seen > 0 && self.next == first {
            self.next = (first + 1) % seen;
        }
        let present = pools.iter().flat_map(|pool| pool.workers.iter().copied());
        self.counted.keep(&present.collect());
    }

    /// A worker was measured.
    fn take(&mut self, measured: &MeasuredWorker) {
        // No worker can have had more than there is, whatever it reports.
        let limit = self.memory.map_or(0.0, |memory| memory.limit);
        let WorkerToMeasure { pool, due, reported } = &measured.of;
        self.rooms.measured(pool, *due, with_reported(measured.has, *reported, limit));
    }

    /// The pages of a process were counted, or could not be.
    fn take_reading(&mut self, files: &dyn Files, reading: &MemoryReading) {
        for measured in self.counted.read(files, reading) {
            self.take(&measured);
        }
        self.batches.read(files, reading);
    }

    /// The pages of processes were counted, or could not be. A check that waits for no others ends.
    pub fn read(&mut self, readings: &[MemoryReading]) {
        readings.iter().for_each(|reading| self.take_reading(&Machine, reading));
        if !self.are_awaited() {
            self.ends_at = self.ends_at.map(|_| Moment::ZERO);
        }
    }

    fn are_awaited(&self) -> bool {
        self.counted.are_awaited() || self.batches.are_awaited()
    }

    fn workers(&self, pool: &str, workers: u32) -> u32 {
        let room = self.rooms.workers(pool, workers as usize);
        u32::try_from(room).unwrap_or(u32::MAX)
    }

    /// The memory pressure at the last check; calm if no pool finds its size, since nothing is
    /// checked then.
    pub fn level(&self, pools: &Pools) -> Level {
        let checked = self.deadline(pools);
        checked.map_or(Level::Calm, |_| self.memory_log.level())
    }

    /// How long until the next check; `most` is the number of workers of the largest pool.
    fn wait(&self, now: Moment, most: u32) -> Duration {
        let is_stirred = now < self.changed_at + STIRRED_FOR;
        let is_full = |memory: &Memory| memory.used >= NEARLY_FULL * memory.limit;
        let mut memories = self.memory.iter().chain(self.apart.values());
        let is_pressed = self.rooms.level() > Level::Calm || memories.any(is_full);
        let is_stirred = is_stirred && !self.rooms.are_far_from_the_limit();
        match (is_stirred, is_stirred || is_pressed, most) {
            (true, _, _) if !self.rooms.are_known() => LOOK_SOON,
            (_, true, _) => LOOK_EVERY,
            (_, false, 0..=1) => CALM_LOOK_EVERY,
            (_, false, _) => STEADY_LOOK_EVERY,
        }
    }

    fn log(&mut self, now: Moment) {
        if !self.rooms.is_readable() && !std::mem::replace(&mut self.is_unreadable_logged, true) {
            warn!(
                "neither /proc/meminfo nor a control group says how much memory there is; pools \
                 with pm = \"auto\" get no more workers than they have, set max_children and \
                 pm = \"dynamic\" instead"
            );
        }
        let used = self.memory.map_or(0.0, |memory| memory.used / memory.limit);
        let used = (used * 100.0).round();
        let lines = self.memory_log.look(now, self.rooms.level(), used);
        lines.into_iter().for_each(MemoryLogLine::log);
    }
}

/// What the sizes of pools depend on.
#[derive(Debug)]
pub struct CapacityContext<'a> {
    /// All generations.
    pub pools: &'a mut Pools,
    /// All scoreboards.
    pub scoreboards: &'a Scoreboards,
    /// All fronts.
    pub fronts: &'a mut Fronts,
    /// The control groups of pools.
    pub groups: Option<&'a Groups>,
    /// The commands, and the schedules that run.
    pub jobs: Vec<SizedJob>,
    /// What counts the pages of processes.
    pub reads: &'a mut MemoryReads,
    /// The time.
    pub now: Moment,
}

impl CapacityManager {
    /// Processes of a command for which memory is free beyond those that run, by the most that one
    /// has had; none if that is not known.
    pub fn more_processes(&self, pool: &str, name: &str) -> Option<u32> {
        let peak = self.batches.peak(pool, name).filter(|peak| *peak > 0.0)?;
        Some((self.rooms.free(pool)? / peak) as u32)
    }

    /// What is left to the commands and schedules of a pool; none if nothing was measured.
    pub fn reserve(&self, pool: &str) -> Option<Reserve> {
        Some(self.batches.of(pool)).filter(|reserve| *reserve != Reserve::default())
    }

    /// When the machine has to be checked again, or the check that has begun ends, if a pool finds
    /// its size.
    pub fn deadline(&self, pools: &Pools) -> Option<Moment> {
        let any = pools.iter().any(RunningPool::finds_its_size);
        any.then(|| self.ends_at.or(self.due).unwrap_or(Moment::ZERO))
    }

    /// Begins or ends a check of processors and memory, and sends the front what has changed.
    pub fn keep(&mut self, context: &mut CapacityContext<'_>) {
        let now = context.now;
        let pools = context.pools.iter().filter(|pool| pool.finds_its_size());
        let pools = pools.map(|pool| {
            let page = context.scoreboards.page(pool.name());
            SizedPool {
                name: pool.name().to_owned(),
                workers: pool.workers.keys().copied().collect(),
                coming: (pool.state.workers() as usize).saturating_sub(pool.workers.len()),
                requests: page.map_or(0, Page::answered),
                counters: vec![pool],
                group: memory_group(context.groups, pool.name()),
            }
        });
        let pools = joined(pools);
        if self.ends_at.is_none() {
            self.measure(&Machine, &pools, context.reads, now);
            self.batches.begin(&Machine, &context.jobs, context.reads, now);
            if self.are_awaited() {
                self.ends_at = Some(now + COUNTS_WAIT);
                return;
            }
        }
        self.ends_at = None;
        let groups = context.groups.into_iter().flat_map(Groups::memory_folders);
        let groups: Vec<PathBuf> = groups.map(Path::to_owned).collect();
        let checked = CheckedPools { sized: &pools, jobs: &context.jobs, groups: &groups };
        self.look(now, &Machine, &checked);
        self.log(now);
        let most = pools.iter().map(|pool| pool.workers.len()).max();
        let most = u32::try_from(most.unwrap_or(0)).unwrap_or(u32::MAX);
        drop(pools);
        for running in context.pools.iter_mut() {
            if self.limit(running) && running.state.lacks_room() {
                self.changed_at = now;
            }
            let cpu_max = cpu_max(context.groups, running);
            self.tell_capacity(running, cpu_max, context.fronts);
        }
        self.replace_grown(context);
        self.due = Some(now + self.wait(now, most));
    }

    /// Where memory is nearly full, has the worker that has grown most replaced.
    fn replace_grown(&mut self, context: &mut CapacityContext<'_>) {
        let Some((pool, grown)) = self.rooms.outgrown() else {
            return;
        };
        let (pool, pid, line) = (pool.to_owned(), grown.worker, context.fronts.line());
        let found = context.pools.iter_mut().find_map(|running| {
            let is_current = running.is_current() && running.line == line;
            if !is_current || running.name() != pool {
                return None;
            }
            let worker = running.state.seated().find(|worker| worker.pid == pid)?;
            Some((running, worker))
        });
        let Some(((running, worker), peer)) = found.zip(context.fronts.peer()) else {
            return;
        };
        if running.errors.grown_replaced(context.now) {
            info!(
                "pool {pool}: worker {pid} has grown from {:.0} to {:.0} MiB, and memory is nearly \
                 full: another takes its place",
                grown.began_with / MEGABYTE,
                grown.has / MEGABYTE
            );
        }
        let order =
            ToFront::ReplaceWorker { generation: running.generation, worker: worker.worker };
        peer.say(order, &[]);
        self.rooms.replaces(&pool, pid);
    }

    /// Has a pool that finds its size keep to the present capacity. True if it is such a pool.
    pub fn limit(&self, running: &mut RunningPool) -> bool {
        if !running.finds_its_size() {
            return false;
        }
        let capacity = self.workers(running.name(), running.state.workers());
        running.state.give_room(capacity);
        true
    }

    /// A pool that finds its size had `before` workers: memory is reserved for new ones.
    pub fn workers_changed(&mut self, running: &RunningPool, before: u32, now: Moment) {
        let workers = running.state.workers();
        if workers == before {
            return;
        }
        let more = workers.saturating_sub(before) as usize;
        self.rooms.promise(running.name(), more);
        self.changed_at = now;
        let soon = if self.rooms.are_far_from_the_limit() { STEADY_LOOK_EVERY } else { LOOK_SOON };
        self.due = self.due.map(|due| due.min(now + soon));
    }

    /// The processors for a pool whose control group may limit them, in thousandths.
    fn cores_within(&self, cpu_max: Option<u32>) -> u32 {
        cpu_max.map_or(self.cores, |own| own.min(self.cores))
    }

    fn tell_capacity(&mut self, running: &RunningPool, cpu_max: Option<u32>, fronts: &mut Fronts) {
        let (line, epoch) = (fronts.line(), fronts.current().epoch);
        if !running.is_current() || running.line != line || !running.finds_its_size() {
            return;
        }
        let name = running.name();
        let capacity = self.workers(name, running.state.workers());
        let workers = (capacity < running.plan.max_children()).then_some(capacity);
        let (generation, cores) = (running.generation, self.cores_within(cpu_max));
        let Some(peer) = fronts.peer() else {
            return;
        };
        let reported = SentCapacity { epoch, generation, cores, workers };
        if self.sent.insert(name.to_owned(), reported) != Some(reported) {
            let order = ToFront::SetCapacity { generation, cores, workers };
            peer.say(order, &[]);
        }
    }
}

/// The processor time that a pool's control group allows, in thousandths of a core.
pub fn cpu_max(groups: Option<&Groups>, running: &RunningPool) -> Option<u32> {
    groups?.cpu_max(&running.plan.pool)
}

/// The folder of a pool's control group, if that may limit its memory.
pub fn memory_group(groups: Option<&Groups>, pool: &str) -> Option<PathBuf> {
    Some(groups?.memory_folder(pool)?.to_owned())
}

impl RunningPool {
    /// Whether it finds its number of workers.
    pub fn finds_its_size(&self) -> bool {
        self.plan.pool.pm == ProcessManager::Auto && !self.state.is_leaving()
    }
}

#[cfg(test)]
mod tests;
