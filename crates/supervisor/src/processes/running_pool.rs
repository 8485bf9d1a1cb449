//! A running generation of a pool: its state, its zygote and its workers.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use maitred_config::Mode;
use maitred_control::{Generation, PhpInfo, WorkerId};
use maitred_os::clock::monotonic_nanos;
use maitred_os::signals::{self, Signal};
use maitred_scoreboard::CopyCounters;
use maitred_seat::Boards;

use crate::limits::{Moment, ZYGOTE_LINGER};
use crate::logging::exit_reports::WorkerLabel;
use crate::logging::repeated_errors::RepeatedErrors;
use crate::logging::worker_output::WorkerOutputs;
use crate::processes::generation::GenerationState;
use crate::processes::opcache_size::OpcacheGrowth;
use crate::processes::opcache_warming::OpcacheWarming;
use crate::processes::php_files::PhpFiles;
use crate::processes::plan::PoolPlan;
use crate::processes::protocol_errors::ProtocolErrors;
use crate::processes::script_children::EndedScript;
use crate::processes::slow_scripts::SlowScripts;
use crate::processes::zygote::Zygote;

/// A generation of a pool: what is decided about it, and its processes.
#[derive(Debug)]
pub struct RunningPool {
    /// Its number.
    pub generation: Generation,
    /// The line of fronts that uses it.
    pub line: u32,
    /// The front knows it.
    pub introduced: bool,
    /// Its pool is not configured any more.
    pub closed: bool,
    /// How many workers the other generations of its pool leave to it, as it was last notified.
    pub allowed: u32,
    /// How many workers its pool had when it took over.
    pub replaces: u32,
    /// Why its zygote did not start, if that was logged.
    pub start_error: Option<String>,
    /// The files that decide whether its PHP starts, as they were at its last failed start but the
    /// first.
    pub php_files: Option<PhpFiles>,
    /// That its next start has to wait was logged.
    pub wait_logged: bool,
    /// It could not be started. A server that starts as php-fpm starts without it.
    pub failed: bool,
    /// Ended workers whose successor php-fpm would log.
    pub to_be_replaced: u32,
    /// When its workers are ended, if it leaves and their time is limited.
    pub leave_by: Option<Moment>,
    /// The state of filling its OPcache, while that is going on.
    pub warming: Option<OpcacheWarming>,
    /// Its settings, and what it shares with the front.
    pub plan: PoolPlan,
    /// Its seats and its zygote's life.
    pub state: GenerationState,
    /// Its zygote.
    pub zygote: Option<Zygote>,
    /// Its PHP version, once a zygote has reported it.
    pub php: Option<String>,
    /// What the front has to know of its PHP.
    pub php_info: PhpInfo,
    /// The pidfds of its workers, by process id.
    pub workers: HashMap<i32, OwnedFd>,
    /// The output pipes of its workers, if their output is caught.
    pub outputs: WorkerOutputs,
    /// Its slow scripts, and their log.
    pub slow_scripts: SlowScripts,
    /// Errors of its processes that recur.
    pub errors: RepeatedErrors,
    /// Its workers as the pool's scoreboard shows them: those in seats, those that are starting.
    pub shown: (u64, u64),
    /// The counters of its copies, as far as they are on the scoreboard.
    pub copies_shown: CopyCounters,
    /// Its full OPcache.
    pub opcache_growth: OpcacheGrowth,
    /// How many classes its PHP has preloaded.
    pub preloaded_classes: u32,
    /// Its workers that broke the rules of the seat link.
    pub protocol_errors: ProtocolErrors,
}

impl RunningPool {
    /// A generation without processes, which is used from the start.
    pub fn new(generation: Generation, line: u32, plan: PoolPlan) -> RunningPool {
        let state = GenerationState::new(plan.settings.seats, plan.growth());
        RunningPool {
            generation,
            line,
            introduced: true,
            closed: false,
            allowed: u32::MAX,
            replaces: 0,
            start_error: None,
            php_files: None,
            wait_logged: false,
            failed: false,
            to_be_replaced: 0,
            leave_by: None,
            warming: None,
            state: match plan.settings.snapshot.is_some() {
                true => state.booting(plan.boots_within()).booting_in_zygote(),
                false => state.booting(plan.boots_within()),
            },
            slow_scripts: SlowScripts::new(&plan.pool, plan.settings.identity.as_ref()),
            plan,
            zygote: None,
            php: None,
            php_info: PhpInfo::default(),
            workers: HashMap::new(),
            outputs: WorkerOutputs::new(),
            errors: RepeatedErrors::default(),
            shown: (0, 0),
            copies_shown: CopyCounters::default(),
            opcache_growth: OpcacheGrowth::default(),
            preloaded_classes: 0,
            protocol_errors: ProtocolErrors::default(),
        }
    }

    /// A generation without processes, which is used once it has shown that it works. It starts
    /// with as many `workers` as the generation before it has, within its limits.
    pub fn on_trial(
        generation: Generation,
        line: u32,
        plan: PoolPlan,
        workers: u32,
    ) -> RunningPool {
        let state = GenerationState::on_trial(plan.settings.seats, plan.growth());
        let mut state = state.booting(plan.boots_within());
        state.expect(workers);
        RunningPool { introduced: false, state, ..RunningPool::new(generation, line, plan) }
    }

    /// A generation without processes that needs none: the first request starts its PHP.
    pub fn at_rest(generation: Generation, line: u32, plan: PoolPlan) -> RunningPool {
        let mut running = RunningPool::new(generation, line, plan);
        running.introduced = false;
        running.state.rest();
        running
    }

    /// Whether its zygote boots an application, which may fail for reasons of its own.
    pub fn boots(&self) -> bool {
        self.plan.settings.snapshot.is_some()
    }

    /// Whether its workers run a script that is booted once.
    pub fn is_booted(&self) -> bool {
        self.boots() || self.plan.settings.worker_script.is_some()
    }

    /// Whether no process is being forked for it.
    pub fn is_still(&self) -> bool {
        let is_reaped = self.zygote.as_ref().is_some_and(|zygote| zygote.reaped.is_some());
        self.state.is_still() && !is_reaped && !self.zygote_is_behind()
    }

    /// Whether orders to its zygote are queued.
    pub fn zygote_is_behind(&self) -> bool {
        self.zygote.as_ref().is_some_and(|zygote| zygote.peer.is_behind())
    }

    /// Whether its pool's requests go to it.
    pub fn is_current(&self) -> bool {
        self.introduced && !self.state.is_leaving()
    }

    /// Whether its workers are copies of a booted application, which end after few requests.
    pub fn is_copied(&self) -> bool {
        self.plan.pool.mode == Mode::Snapshot
    }

    /// Whether it is on trial, for a front of this line.
    pub fn is_undecided(&self, line: u32) -> bool {
        self.line == line && !self.introduced && !self.state.is_leaving()
    }

    /// Whether it has neither workers nor a zygote.
    pub fn is_at_rest(&self) -> bool {
        self.zygote.is_none() && self.state.workers() == 0
    }

    /// Its processes: its workers, and its zygote.
    pub fn pids(&self) -> impl Iterator<Item = i32> {
        let zygote = self.zygote.as_ref().filter(|zygote| zygote.reaped.is_none());
        let zygote = zygote.map(|zygote| zygote.peer.pid());
        self.workers.keys().copied().chain(zygote)
    }

    /// Its processes, and those that were announced as its workers.
    pub fn known_pids(&self) -> impl Iterator<Item = i32> {
        self.pids().chain(self.state.pids())
    }

    /// The name of a worker in a report.
    pub fn label(&self, worker: WorkerId) -> WorkerLabel {
        WorkerLabel { pool: self.name().to_owned(), generation: self.generation, worker }
    }

    /// Whether this worker has started a request since it became our child, by its board.
    pub fn has_served(&self, pid: i32, now: Moment) -> bool {
        let mut seated = self.state.seated();
        let Some(seated) = seated.find(|seated| seated.pid == pid) else {
            return false;
        };
        // Mapped only now: a pool's memory is large, and workers rarely fail.
        let Ok(boards) = Boards::map(&self.plan.memory) else {
            return false;
        };
        let (born, board) = (self.state.born(pid), boards.seat(seated.worker.seat));
        // A predecessor may have left its own there.
        let since = board.map_or(0, |board| board.request_since.load(Ordering::Relaxed));
        let ago = Duration::from_nanos(monotonic_nanos().saturating_sub(since));
        since > 0 && born.is_some_and(|born| ago <= now.saturating_sub(born))
    }

    /// The script that a worker was running at its end, by its board.
    pub fn ended_script(&self, pid: i32) -> Option<EndedScript> {
        let seat = self.state.seat_of(pid)?;
        let boards = Boards::map(&self.plan.memory).ok()?;
        let board = boards.seat(seat)?;
        // The front may have emptied the seat already: it writes 0.
        let whose = board.pid.load(Ordering::Relaxed);
        let is_its = whose == 0 || u32::try_from(pid) == Ok(whose);
        let now = Duration::from_nanos(monotonic_nanos());
        let since = board.runs_since(now).filter(|_| is_its)?;
        Some(EndedScript { worker: pid, uid: self.plan.uid, since })
    }

    /// Sends a signal to a worker, if it still runs.
    pub fn signal_worker(&self, pid: i32, signal: Signal) {
        if let Some(pidfd) = self.workers.get(&pid) {
            // A failure means that it has ended.
            let _ = signals::send_to(pidfd.as_fd(), signal);
        }
    }

    /// Sends a signal to the zygote, if it runs.
    pub fn signal_zygote(&self, signal: Signal) {
        if let Some(zygote) = &self.zygote {
            zygote.peer.signal(signal);
        }
    }

    /// Sends a signal to its processes but these.
    pub fn signal_all_but(&self, others: &BTreeSet<i32>, signal: Signal) {
        let workers = self.workers.keys().filter(|pid| !others.contains(pid));
        workers.for_each(|pid| self.signal_worker(*pid, signal));
        let zygote = self.zygote.as_ref().map(|zygote| zygote.peer.pid());
        if zygote.is_some_and(|pid| !others.contains(&pid)) {
            self.signal_zygote(signal);
        }
    }

    /// Whether the zygote is over: it was reaped, and no process can report in its stead any more,
    /// since its channel is closed or has been open for too long. The last announcement of its last
    /// intermediate process has been received by then.
    pub fn zygote_is_over(&self, now: Moment) -> bool {
        self.zygote.as_ref().is_some_and(|zygote| {
            let is_silent = |reaped| zygote.peer.is_closed() || now >= reaped + ZYGOTE_LINGER;
            zygote.reaped.is_some_and(is_silent)
        })
    }

    /// Whether a process that its dead zygote announced may still become our child: the kernel
    /// closes the channel of an ending intermediate process before it gives its child to us.
    pub fn expects_children(&self, now: Moment) -> bool {
        let reaped = self.zygote.as_ref().and_then(|zygote| zygote.reaped);
        let lingers = reaped.is_some_and(|reaped| now < reaped + ZYGOTE_LINGER);
        lingers && !self.state.announced().is_empty()
    }
}
