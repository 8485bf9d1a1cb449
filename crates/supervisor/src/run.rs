//! All of the control flow: wait for something to happen, decide what it means, apply it.
//!
//! The decisions are in [`crate::run::phase`] and [`crate::processes::generation`], which know no clock and no process;
//! carrying them out is in `apply.rs`. This file is what happens in between, and in which order.

pub mod apply;
pub mod front;
pub mod phase;
pub mod wait;

use std::time::{Duration, Instant};

use maitred_control::{FromFront, FromZygote, Generation, PhpInfo, WorkerId};
use maitred_os::fork::{self, Ended};
use maitred_os::signals::{Signal, SignalEvents};
use tracing::{debug, error, info, warn};

use crate::admin::Admin;
use crate::capacity::auto::CapacityManager;
use crate::fpm::emergency_restart::CrashCounter;
use crate::fpm::{self, FpmLogState};
use crate::fronts::cookies::CookieNames;
use crate::fronts::front_stats::FrontStats;
use crate::fronts::purges::PurgeCoordinator;
use crate::limits::{MESSAGES_PER_TURN, Moment, REAPED_PER_TURN, SIGNALS_PER_TURN, ZYGOTE_LINGER};
use crate::logging::exit_reports::ExitReports;
use crate::logging::text::{one_line, version_in};
use crate::plan::Plan;
use crate::processes::adopt;
use crate::processes::generation::{self, KillReason};
use crate::processes::plan::PoolPlan;
use crate::processes::pools::{PoolId, Pools};
use crate::processes::running_pool::{DrainingFront, Front, RunningPool};
use crate::processes::scoreboards::Scoreboards;
use crate::processes::slow_scripts::TraceTarget;
use crate::processes::traces::{TRACES_MAX, Traces};
use crate::reload::Reloader;
use crate::reload::restart_requests::RestartRequests;
use crate::reload::watch::Watches;
use crate::run::phase::Phase;
use crate::run::wait::Ready;
use crate::systemd::Systemd;
use crate::tls::acme::AcmeManager;
use crate::upgrade::Upgrade;

/// What the supervisor is told by signals. They are taken over before anything is started.
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
    pub started: Instant,
    pub signals: SignalEvents,
    /// Ended children may be left to reap without a further SIGCHLD.
    pub reaps_on: bool,
    pub plan: Plan,
    pub phase: Phase,
    pub pools: Pools,
    pub reloads: Reloader,
    pub renewals: RestartRequests,
    pub watches: Watches,
    pub front: Front,
    pub old_fronts: Vec<DrainingFront>,
    pub upgrade: Option<Upgrade>,
    /// A reload was asked for when none could begin.
    pub reload_later: bool,
    /// Cookies that sites have set.
    pub cookies: CookieNames,
    /// SIGUSR2 came during a reload.
    pub upgrade_later: bool,
    pub obituaries: ExitReports,
    /// What only a server that was started as php-fpm keeps in mind.
    pub tidings: FpmLogState,
    pub emergency: CrashCounter,
    pub traces: Traces<TraceTarget>,
    pub acme: AcmeManager,
    pub front_figures: FrontStats,
    pub admin: Admin,
    pub purges: PurgeCoordinator,
    pub scores: Scoreboards,
    pub room: CapacityManager,
    pub systemd: Systemd,
}

impl Supervisor {
    /// A supervisor that has not started anything yet.
    pub fn new(
        plan: Plan,
        pools: Vec<PoolPlan>,
        signals: SignalEvents,
        admin: Admin,
        scores: Scoreboards,
    ) -> Supervisor {
        Supervisor {
            started: Instant::now(),
            signals,
            reaps_on: false,
            phase: Phase::new(Moment::ZERO, fpm::patience(&plan.config)),
            reloads: Reloader::default(),
            renewals: RestartRequests::default(),
            watches: Watches::default(),
            pools: Pools::new(pools),
            front: Front::new(1, 0),
            old_fronts: Vec::new(),
            upgrade: None,
            reload_later: false,
            cookies: CookieNames::new(),
            upgrade_later: false,
            obituaries: ExitReports::default(),
            tidings: FpmLogState::new(&plan),
            emergency: CrashCounter::default(),
            traces: Traces::default(),
            acme: AcmeManager::default(),
            front_figures: FrontStats::default(),
            admin,
            purges: PurgeCoordinator::default(),
            scores,
            room: CapacityManager::default(),
            systemd: Systemd::found(plan.config.fpm.as_ref()),
            plan,
        }
    }

    /// The supervisor of a server that the program before us has left running.
    pub fn resumed(
        plan: Plan,
        state: (Duration, Generation),
        (front, old_fronts): (Front, Vec<DrainingFront>),
        pools: Vec<RunningPool>,
        signals: SignalEvents,
        (admin, scores): (Admin, Scoreboards),
    ) -> Supervisor {
        let (elapsed, last_generation) = state;
        let now = Instant::now();
        Supervisor {
            started: now.checked_sub(elapsed).unwrap_or(now),
            phase: Phase::serving(fpm::patience(&plan.config)),
            front,
            old_fronts,
            pools: Pools::inherited(pools, last_generation),
            // The program before us may have been told of some and not have come to them.
            reaps_on: true,
            ..Supervisor::new(plan, Vec::new(), signals, admin, scores)
        }
    }

    /// Runs the server to its end and returns its exit code.
    ///
    /// The order within a turn matters. A worker is announced before anybody can collect it, so
    /// what zygotes say is heard after the dead were collected and before their deaths count:
    /// no death is ever that of a process we have not heard of.
    pub fn run(mut self) -> i32 {
        self.keep_time();
        while self.phase.exit_code().is_none() {
            let ready = self.wait();
            // What a worker says before its request is answered is logged before what the answer
            // leads to.
            self.hear_outputs(&ready);
            let ended = self.take_signals(&ready);
            self.hear_zygotes(&ready, !ended.is_empty());
            self.hear_front(&ready);
            self.hear_voices(&ready);
            self.hear_acme(ready.acme);
            if ready.watches {
                self.hear_watches();
            }
            for ended in ended {
                self.collect(ended);
            }
            self.end_zygotes();
            self.keep_time();
            self.serve_admin(ready.admin);
        }
        if adopt::any_child() {
            let left = adopt::children();
            error!("processes {left:?} do not end, though they were killed; they are left behind");
        }
        self.end_outputs();
        for id in self.pools.ids() {
            let words = self.pools[id].plan.voice.last_words(self.started.elapsed());
            self.repeat(id, words);
        }
        self.say_goodbye();
        self.phase.exit_code().unwrap_or(phase::EXIT_FAILED)
    }

    fn hear_voices(&mut self, ready: &Ready) {
        for id in self.pools.ids() {
            let now = self.started.elapsed();
            let voice = &mut self.pools[id].plan.voice;
            let mut lines = Vec::new();
            if ready.voices.contains(&id) {
                lines = voice.lines(now);
            }
            lines.extend(voice.dropped(now));
            self.repeat(id, lines);
        }
    }

    /// Logs what a pool's processes have printed.
    fn repeat(&self, id: PoolId, lines: Vec<String>) {
        for line in lines {
            warn!("pool {}: {line}", self.name(id));
        }
    }

    pub fn now(&self) -> Moment {
        self.started.elapsed()
    }

    /// Acts on signals, and collects the children that have ended.
    fn take_signals(&mut self, ready: &Ready) -> Vec<Ended> {
        let mut ended = Vec::new();
        if std::mem::take(&mut self.reaps_on) {
            self.reap(&mut ended);
        }
        let most = if ready.signals { SIGNALS_PER_TURN } else { 0 };
        for _ in 0..most {
            match self.signals.take() {
                Ok(Some((Signal::SIGCHLD, _))) => self.reap(&mut ended),
                Ok(Some((signal, _))) if self.is_fpm() => self.obey_as_fpm(signal),
                Ok(Some((signal @ (Signal::SIGTERM | Signal::SIGINT | Signal::SIGQUIT), _))) => {
                    let how = match self.phase.would_stop_at_once(self.now()) {
                        true => "stopping at once",
                        false => "stopping",
                    };
                    info!("{signal}: {how}");
                    self.phase_event(phase::ServerEvent::StopSignaled);
                }
                Ok(Some((Signal::SIGHUP, _))) => {
                    self.reload_when_possible();
                }
                Ok(Some((Signal::SIGUSR2, _))) => {
                    info!("SIGUSR2: upgrading");
                    self.upgrade();
                }
                Ok(Some((Signal::SIGUSR1, _))) => self.reopen_logs(),
                // No other comes: these are all of `SIGNALS`.
                Ok(Some(_)) => {}
                Ok(None) => return ended,
                Err(why) => {
                    error!("signals cannot be read: {why}");
                    return ended;
                }
            }
        }
        ended
    }

    /// Collects children that have ended, up to what a turn takes; the rest waits for the next one.
    fn reap(&mut self, ended: &mut Vec<Ended>) {
        while ended.len() < REAPED_PER_TURN {
            let Ok(Some(child)) = fork::reap() else {
                return;
            };
            ended.push(child);
        }
        self.reaps_on = true;
    }

    fn hear_zygotes(&mut self, ready: &Ready, all: bool) {
        for id in self.pools.ids() {
            if all || ready.zygotes.contains(&id) {
                self.hear_zygote(id);
            }
        }
    }

    /// Hears all that a zygote which keeps to the rules can have said: two reports for each seat, one
    /// for each stack, one of its start and one of its OPcache. No announcement stays behind the death
    /// it has to come before.
    fn hear_zygote(&mut self, id: PoolId) {
        let reports = self.pools[id].plan.settings.seats as usize * 2 + TRACES_MAX + 2;
        for _ in 0..reports {
            let Some(zygote) = &mut self.pools[id].zygote else {
                return;
            };
            zygote.peer.flush();
            let Some(report) = zygote.peer.hear::<FromZygote>() else {
                return;
            };
            self.zygote_said(id, report);
        }
    }

    fn zygote_said(&mut self, id: PoolId, report: FromZygote) {
        match report {
            FromZygote::Started {
                php,
                fixed,
                exposed,
                by_path_info,
            } => {
                let php = version_in(&php);
                let manner = PhpInfo {
                    powered_by: exposed.then(|| format!("PHP/{php}")),
                    by_path_info,
                };
                self.zygote_started(id, &php, fixed, manner);
            }
            FromZygote::StartFailed { why } => {
                let (pool, why) = (self.name(id), one_line(&why));
                let sentence = format!("PHP could not start for pool `{pool}`: {why}");
                self.pool_fails(id, sentence);
                self.pool_event(
                    id,
                    generation::GenerationEvent::ZygoteFailed(KillReason::StartFailed),
                );
            }
            FromZygote::SeatFilled { worker, pid, took } => {
                self.copy_forked(id, took);
                let taken = self.is_known_elsewhere(id, pid);
                self.output_is_of(id, worker, pid);
                let event = match taken {
                    true => generation::GenerationEvent::ZygoteFailed(KillReason::BrokeRules),
                    false => generation::GenerationEvent::Announced { worker, pid },
                };
                self.pool_event(id, event);
            }
            FromZygote::Booted { worker } => {
                self.pool_event(id, generation::GenerationEvent::Booted { worker });
            }
            FromZygote::Traced { trace, stack } => self.traced(id, trace, &stack),
            FromZygote::ForkFailed { worker, why } => self.fork_failed(id, worker, &one_line(&why)),
            FromZygote::OpcacheReported { figures } => self.cache_told(id, figures),
            FromZygote::ScriptsListed { count } => self.scripts_listed(id, count),
            FromZygote::Warmed { compiled } => self.warmed(id, compiled),
        }
    }

    fn fork_failed(&mut self, id: PoolId, worker: WorkerId, why: &str) {
        let pool = self.name(id);
        let sentence = format!(
            "pool {pool} seat {}: no worker could be made: {why}",
            worker.seat
        );
        let now = self.now();
        match self.pools[id].troubles.fork_failed(now) {
            true => warn!("{sentence}; it is tried again"),
            false => debug!("{sentence}"),
        }
        self.scores.fork_failed(self.name(id));
        self.pools[id].outputs.remove(&worker);
        self.pool_event(id, generation::GenerationEvent::ForkFailed { worker });
    }

    fn hear_front(&mut self, ready: &Ready) {
        let lines: Vec<u32> = self.fronts().map(|(line, _)| line).collect();
        let spoke = lines.into_iter().zip(&ready.fronts);
        for line in spoke.filter_map(|(line, spoke)| spoke.then_some(line)) {
            for _ in 0..MESSAGES_PER_TURN {
                let Some(peer) = self.peer_of_line(line) else {
                    break;
                };
                peer.flush();
                let Some(report) = peer.hear::<FromFront>() else {
                    break;
                };
                self.front_said(line, report);
            }
        }
    }

    /// A child has ended: the front, a zygote, a worker, or a stray we were given.
    fn collect(&mut self, ended: Ended) {
        let Ended { pid, how, .. } = ended;
        let front = self.fronts().find(|(_, peer)| peer.pid() == pid);
        if let Some(line) = front.map(|(line, _)| line) {
            return self.front_ended(line, how);
        }
        if self.tried(pid, how) || self.acme_ended(pid, how) {
            return;
        }
        let now = self.now();
        for id in self.pools.ids() {
            let running = &mut self.pools[id];
            let zygote = running
                .zygote
                .as_mut()
                .filter(|zygote| zygote.peer.pid() == pid);
            if let Some(zygote) = zygote {
                zygote.reaped = Some(now);
                return self.zygote_reaped(id, how);
            }
            if running.pool.knows(pid) {
                running.workers.remove(&pid);
                self.end_output(id, pid);
                self.tell_end(id, ended);
                let stopping = !self.phase.wants_workers();
                let pool = &self.pools[id].plan.settings.pool;
                let cause = self.scores.ended(pool, pid, how, stopping);
                self.pool_event(id, generation::GenerationEvent::Ended { pid, how });
                self.see_whether_outdated(id, how);
                return self.after_end(id, cause, how);
            }
        }
    }

    /// A zygote is gone for its pool once it was reaped and nobody can speak for it any more: its
    /// channel is closed, or has been open for too long. What its last intermediate process
    /// announced has been heard by then, and the worker has become our child.
    fn end_zygotes(&mut self) {
        for id in self.pools.ids() {
            let now = self.now();
            let over = self.pools[id].zygote.as_ref().is_some_and(|zygote| {
                zygote
                    .reaped
                    .is_some_and(|reaped| zygote.peer.is_closed() || now >= reaped + ZYGOTE_LINGER)
            });
            if over {
                for pid in self.pools[id].pool.announced() {
                    self.look(id, pid);
                }
                self.pools[id].zygote = None;
                // Nobody will fork those any more.
                let outputs = &mut self.pools[id].outputs;
                outputs.retain(|_, output| output.is_known());
                self.pool_event(id, generation::GenerationEvent::ZygoteEnded);
            }
        }
    }

    /// Does what is due because time went by.
    fn keep_time(&mut self) {
        if self.phase.wants_workers() {
            for id in self.pools.ids() {
                self.pool_event(id, generation::GenerationEvent::Tick);
            }
        }
        if self.phase.is_start() {
            self.see_whether_full();
        }
        self.keep_spare_zygotes();
        // An upgrade that is refused allows workers again, which the other says.
        self.keep_upgrade();
        self.do_what_waited();
        self.keep_reload();
        self.keep_watches();
        self.renew_outdated();
        self.hurry_leaving();
        self.keep_front();
        self.keep_room();
        self.keep_certificates();
        self.keep_acme();
        self.end_purges();
        self.phase_event(phase::ServerEvent::Tick);
        if self.phase.kills() {
            // Whom a killed process leaves behind becomes our child.
            self.signal_everybody(Signal::SIGKILL);
        }
        if !self.phase.wants_workers() && !adopt::any_child() {
            self.phase_event(phase::ServerEvent::NobodyLeft);
        }
        self.tell_troubles();
        self.tell_systemd();
    }
}
