//! All of the control flow: wait for something to happen, decide what it means, apply it.
//!
//! The decisions are in [`phase`] and [`crate::processes::generation`], which know no clock and no
//! process; the components keep the rest of the state. This file is what happens in between, and in
//! which order; the files beside it apply what was decided, each for one topic.

mod added_pools;
mod children;
mod commands;
mod folder_lookups;
mod front_liveness;
mod fronts;
mod jobs;
mod memory;
mod mended_faults;
pub mod phase;
mod pipes;
mod pools;
mod purge_log;
mod reload;
mod retries;
mod server;
mod upgrade;
mod wait;

use std::time::{Duration, Instant};

use maitred_config::Config;
use maitred_control::FromFront;
use maitred_os::fork;
use maitred_os::signals::{Signal, SignalEvents};
use tracing::error;

use crate::admin::Admin;
use crate::capacity::auto::CapacityManager;
use crate::capacity::boot_order;
use crate::capacity::memory_reader::MemoryReader;
use crate::fpm::{self, FpmLogState};
use crate::fronts::Fronts;
use crate::fronts::cookies::CookieNames;
use crate::fronts::front_stats::FrontStats;
use crate::fronts::purge_log::{PurgeLogBefore, PurgeLogManager};
use crate::fronts::purges::PurgeCoordinator;
use crate::jobs::Jobs;
use crate::limits::{FIRST_FILL, MESSAGES_PER_TURN, Moment, REAPED_PER_TURN, SIGNALS_PER_TURN};
use crate::logging::exit_reports::ExitReports;
use crate::plan::Plan;
use crate::plan::folder_lookups::{Lookups, StuckLookup};
use crate::processes::adopt;
use crate::processes::generation::GenerationEvent;
use crate::processes::pipe_reader::{PipeReader, StuckPipeReader};
use crate::processes::pools::{Pools, StartState};
use crate::processes::preloading::PreloadingPools;
use crate::processes::profiles::Profiles;
use crate::processes::scoreboards::Scoreboards;
use crate::processes::script_children::ScriptChildren;
use crate::processes::script_waits::ScriptWaits;
use crate::processes::slow_scripts::TraceTarget;
use crate::processes::slowlog_writers::SlowlogWriters;
use crate::processes::traces::Traces;
use crate::processes::zygote::Heard;
use crate::reload::Reloader;
use crate::reload::config_watch::ConfigWatch;
use crate::reload::restart_requests::RestartRequests;
use crate::reload::watch::Watches;
use crate::systemd::Systemd;
use crate::tls::acme::AcmeManager;
use crate::upgrade::Upgrader;
use children::ChildEnd;
use mended_faults::FaultChecks;
use phase::{Phase, ServerEvent, StopTimes};
use wait::Ready;

/// The signals that the supervisor acts on. They are taken over before anything is started.
pub const SIGNALS: [Signal; 7] = [
    Signal::SIGCHLD,
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// The supervisor and everything it owns.
#[derive(Debug)]
pub struct Supervisor {
    started: Instant,
    signals: SignalEvents,
    /// Ended children may be left to reap without a further SIGCHLD.
    reaps_on: bool,
    plan: Plan,
    phase: Phase,
    pools: Pools,
    fronts: Fronts,
    reloader: Reloader,
    lookups: Lookups,
    restarts: RestartRequests,
    watches: Watches,
    preloading: PreloadingPools,
    profiles: Profiles,
    config_watch: ConfigWatch,
    upgrader: Upgrader,
    cookies: CookieNames,
    exit_reports: ExitReports,
    /// Used only by a server that was started as php-fpm.
    fpm: FpmLogState,
    traces: Traces<TraceTarget>,
    acme: AcmeManager,
    front_stats: FrontStats,
    admin: Admin,
    purges: PurgeCoordinator,
    purge_log: PurgeLogManager,
    scoreboards: Scoreboards,
    capacity: CapacityManager,
    memory_reader: MemoryReader,
    slowlog_writers: SlowlogWriters,
    pipe_reader: PipeReader,
    /// Children that were reaped in this turn, whose ends do not count yet.
    reaped: Vec<ChildEnd>,
    /// Children that have ended, whose output is still being read.
    held: Vec<ChildEnd>,
    script_children: ScriptChildren,
    script_waits: ScriptWaits,
    jobs: Jobs,
    systemd: Systemd,
    fault_checks: FaultChecks,
    /// When the files of pools whose PHP does not start were last checked.
    php_files_checked: Moment,
    /// Processors of this machine.
    cores: usize,
}

/// What a supervisor is made of.
#[derive(Debug)]
pub struct Parts {
    /// The plan.
    pub plan: Plan,
    /// The generations of its pools.
    pub pools: Pools,
    /// The fronts.
    pub fronts: Fronts,
    /// The signals, taken over.
    pub signals: SignalEvents,
    /// The admin socket.
    pub admin: Admin,
    /// The scoreboards of all pools.
    pub scoreboards: Scoreboards,
    /// Commands and schedules.
    pub jobs: Jobs,
}

/// State of the previous program that the new one resumes.
#[derive(Debug)]
pub struct Resumed {
    /// Time since the first start of the server.
    pub elapsed: Duration,
    /// What systemd knows.
    pub systemd: crate::systemd::SystemdState,
    /// Cookies that sites have set.
    pub cookies: CookieNames,
    /// A reload waits for the upgrade.
    pub reload_later: bool,
    /// Purges between nodes.
    pub purge_log: PurgeLogBefore,
    /// The processes that look names up and were late.
    pub stuck_lookups: Vec<StuckLookup>,
    /// The processes that read pipes and wait for locks.
    pub stuck_pipe_readers: Vec<StuckPipeReader>,
}

impl Supervisor {
    /// A supervisor that has not started anything yet.
    pub fn new(parts: Parts) -> Supervisor {
        let plan = parts.plan;
        Supervisor {
            started: Instant::now(),
            signals: parts.signals,
            reaps_on: false,
            phase: Phase::new(Moment::ZERO, stop_times(&plan.config)),
            pools: parts.pools,
            fronts: parts.fronts,
            reloader: Reloader::default(),
            lookups: Lookups::default(),
            restarts: RestartRequests::default(),
            watches: Watches::default(),
            preloading: PreloadingPools::default(),
            profiles: Profiles::default(),
            config_watch: ConfigWatch::default(),
            upgrader: Upgrader::default(),
            cookies: CookieNames::new(),
            exit_reports: ExitReports::default(),
            fpm: FpmLogState::new(&plan.invocation.program),
            traces: Traces::default(),
            acme: AcmeManager::default(),
            front_stats: FrontStats::default(),
            admin: parts.admin,
            purges: PurgeCoordinator::new(plan.config.purge_log.as_ref()),
            purge_log: PurgeLogManager::default(),
            scoreboards: parts.scoreboards,
            capacity: CapacityManager::default(),
            memory_reader: MemoryReader::default(),
            slowlog_writers: SlowlogWriters::default(),
            pipe_reader: PipeReader::default(),
            reaped: Vec::new(),
            held: Vec::new(),
            script_children: ScriptChildren::default(),
            script_waits: ScriptWaits::default(),
            jobs: parts.jobs,
            systemd: Systemd::found(plan.config.fpm.as_ref()),
            fault_checks: FaultChecks::default(),
            php_files_checked: Moment::ZERO,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            plan,
        }
    }

    /// The supervisor of a server that the previous program has left running. Its upgrade
    /// continues.
    pub fn resumed(parts: Parts, state: Resumed) -> Supervisor {
        let now = Instant::now();
        let mut supervisor = Supervisor {
            started: now.checked_sub(state.elapsed).unwrap_or(now),
            phase: Phase::serving(stop_times(&parts.plan.config)),
            // The previous program may have been notified of some and not have reaped them.
            reaps_on: true,
            cookies: state.cookies,
            purge_log: PurgeLogManager::resumed(state.purge_log),
            lookups: Lookups::new(state.stuck_lookups),
            pipe_reader: PipeReader::new(state.stuck_pipe_readers),
            ..Supervisor::new(parts)
        };
        supervisor.systemd.go_on(state.systemd, supervisor.now());
        supervisor.reloader.postpone(state.reload_later);
        supervisor.fpm.resume(state.reload_later);
        supervisor.start_trials();
        supervisor
    }

    /// Runs the server to its end and returns its exit code.
    ///
    /// The order within a turn matters. A worker is announced before it can be reaped, so the
    /// reports of zygotes are received after dead children were reaped and before their deaths
    /// count: no death is ever that of a process that is not known yet.
    pub fn run(mut self) -> i32 {
        self.keep_time();
        self.keep_memory_reader();
        while self.phase.exit_code().is_none() {
            let ready = wait::wait(&self);
            // A worker's output is logged before its end.
            self.hear_pipe_reader(ready.pipe_reader);
            self.order_pipes(&ready.pipes);
            self.take_signals(&ready);
            self.hear_zygotes(&ready, !self.reaped.is_empty());
            self.hear_fronts(&ready);
            self.pools.log_dropped(self.now());
            if ready.alarm {
                self.jobs.take_alarm();
            }
            if ready.acme {
                self.acme().receive();
            }
            if ready.shared_certificates {
                self.acme().receive_shared();
            }
            if ready.purge_log {
                self.hear_purge_log();
            }
            if ready.memory {
                self.hear_memory_reader();
            }
            if ready.watches {
                self.watches.read(self.now());
            }
            self.release_held();
            for end in std::mem::take(&mut self.reaped) {
                self.collect(end);
            }
            self.end_script_children();
            self.end_zygotes();
            self.keep_time();
            self.serve_admin(ready.admin);
            self.keep_memory_reader();
            self.keep_pipe_reader();
        }
        if adopt::any_child() {
            let left = adopt::children();
            error!("processes {left:?} do not end, though they were killed; they are left behind");
        }
        let (level, now) = (self.plan.fpm_log_level(), self.now());
        for running in &mut self.pools {
            running.end_outputs(level, now);
        }
        if self.plan.is_fpm() && self.phase.exit_code() == Some(phase::EXIT_STOPPED) {
            fpm::log_goodbye();
        }
        self.phase.exit_code().unwrap_or(phase::EXIT_FAILED)
    }

    fn now(&self) -> Moment {
        self.started.elapsed()
    }

    /// Acts on signals, and reaps the children that have ended.
    fn take_signals(&mut self, ready: &Ready) {
        if self.reaps_on {
            self.reaps_on = self.reap();
        }
        let most = if ready.signals { SIGNALS_PER_TURN } else { 0 };
        for _ in 0..most {
            match self.signals.take() {
                Ok(Some((Signal::SIGCHLD, _))) => self.reaps_on = self.reap(),
                Ok(Some((signal, _))) => self.obey(signal),
                Ok(None) => return,
                Err(why) => return error!("signals cannot be read: {why}"),
            }
        }
    }

    /// Reaps ended children, at most [`REAPED_PER_TURN`] in a turn. Whether some may be left.
    fn reap(&mut self) -> bool {
        while self.reaped.len() < REAPED_PER_TURN {
            let Ok(Some(ended)) = fork::reap() else {
                return false;
            };
            let now = self.now();
            self.script_children.reaped(ended.pid);
            self.reaped.push(ChildEnd::of(ended, &mut self.jobs, &mut self.pools, now));
        }
        true
    }

    /// Receives the reports of zygotes, of each as many as its pipe holds.
    fn hear_zygotes(&mut self, ready: &Ready, all: bool) {
        let ids = self.pools.ids().into_iter();
        for id in ids.filter(|id| all || ready.zygotes.contains(id)) {
            if let Some(zygote) = &mut self.pools[id].zygote {
                zygote.begin_turn();
            }
            while let Some(zygote) = &mut self.pools[id].zygote {
                match zygote.hear() {
                    Heard::Report(report) => self.zygote_reported(id, report),
                    Heard::Unrequested => self.zygote_broke_rules(id),
                    Heard::Nothing => break,
                }
            }
        }
    }

    fn hear_fronts(&mut self, ready: &Ready) {
        for &line in &ready.fronts {
            for _ in 0..MESSAGES_PER_TURN {
                let Some(peer) = self.fronts.peer_of(line) else {
                    break;
                };
                peer.flush();
                let Some(report) = peer.hear::<FromFront>() else {
                    break;
                };
                self.front_reported(line, report);
            }
        }
    }

    fn end_zygotes(&mut self) {
        let now = self.now();
        for id in self.pools.ids() {
            if !self.pools[id].zygote_is_over(now) {
                continue;
            }
            for pid in self.pools[id].state.announced() {
                self.check_child(id, pid);
            }
            if self.pools[id].expects_children(now) {
                continue;
            }
            self.pools[id].zygote = None;
            self.pool_event(id, GenerationEvent::ZygoteEnded);
            let held = self.held.iter().filter(|held| held.is_of(id, held.ended.pid));
            let held: Vec<i32> = held.map(|held| held.ended.pid).collect();
            self.pools[id].drop_outputs_without_worker(&held);
        }
    }

    /// Holds the starts of zygotes back but those whose turn it is; all, while an upgrade waits for
    /// them.
    fn hold_starts(&mut self) {
        let now = self.now();
        match self.upgrader.holds_still() {
            true => boot_order::hold_all(&mut self.pools),
            false => boot_order::hold_starts(&mut self.pools, self.cores, now),
        }
    }

    /// Does what is due because time has passed.
    fn keep_time(&mut self) {
        if self.phase.wants_workers() {
            self.hold_starts();
            for id in self.pools.ids() {
                self.pool_event(id, GenerationEvent::Tick);
            }
        }
        if self.phase.is_start() {
            // A script that boots slowly, or not at all, does not delay the other pools.
            match self.pools.start_state(self.now() >= FIRST_FILL) {
                StartState::Starting => {}
                StartState::Full => self.server_event(ServerEvent::PoolsFull),
                StartState::Failed => self.fail("no pool can be started"),
            }
        }
        self.keep_spare_zygotes();
        // An upgrade that is refused allows workers again, which the reload passes on to the pools.
        self.keep_upgrade();
        self.keep_lookups();
        self.watch_configuration();
        self.keep_reload();
        // What waits for the end of a reload comes before the next automatic restart: a pool that
        // has one after the other would postpone it for ever.
        self.start_postponed();
        self.keep_faults();
        let now = self.now();
        self.watches.keep(&self.pools, &mut self.restarts, now);
        self.preloading.keep(&mut self.pools, now);
        self.restart_outdated();
        self.end_old_workers();
        self.keep_front();
        self.keep_capacity();
        self.script_waits.keep(&self.pools, &self.scoreboards, now);
        self.keep_certificates();
        self.retry_after_changes();
        self.acme().keep();
        self.keep_jobs();
        self.purges.finish(&mut self.fronts, now);
        self.keep_slowlogs();
        self.keep_purge_log();
        self.server_event(ServerEvent::Tick);
        if self.phase.kills() {
            // The children of a killed process become ours.
            self.signal_all(Signal::SIGKILL);
        }
        if !self.phase.wants_workers() && self.all_have_ended() {
            self.server_event(ServerEvent::NobodyLeft);
        }
        self.log_errors();
        self.keep_systemd();
    }
}

/// How long a stop takes at most.
fn stop_times(config: &Config) -> StopTimes {
    StopTimes { delay: config.stop_delay, drain: fpm::patience(config) }
}
