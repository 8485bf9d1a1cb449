//! Starting the fronts, and acting on their reports and ends.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::Path;

use maitred_control::{FromFront, Overrun, ToFront, WorkerId};
use maitred_os::fork::HowEnded;
use maitred_os::shared;
use maitred_os::signals::Signal;
use maitred_os::spawn::Program;
use tracing::{error, info, warn};

use super::Supervisor;
use super::phase::ServerEvent;
use crate::fpm;
use crate::fronts::EndedFront;
use crate::fronts::cookies::{self, SeenCookies};
use crate::fronts::liveness::Liveness;
use crate::fronts::purges::PagesDropped;
use crate::limits::{FRONT_START, NEW_SERVER};
use crate::logging::text::one_line;
use crate::peer::{Peer, THIS_PROGRAM, roomy_name};
use crate::plan::FRONT_ROLE;
use crate::processes::generation::GenerationEvent;
use crate::processes::life::Step;
use crate::processes::pools::PoolId;
use crate::processes::protocol_errors::{BREACHES_MAX, BREACHES_WITHIN};
use crate::processes::slow_scripts::SlowScript;

impl Supervisor {
    /// Starts the front, or kills it if it does not start in time.
    pub(super) fn keep_front(&mut self) {
        if !self.phase.wants_front() {
            return;
        }
        let now = self.now();
        match self.fronts.current_mut().life.due(now) {
            Some(Step::Start) => self.start_front(),
            Some(Step::Kill) => self
                .kill_front(&format!("it accepted no clients within {} s", FRONT_START.as_secs())),
            None => {}
        }
        self.keep_front_alive();
    }

    fn start_front(&mut self) {
        let epoch = self.fronts.number_current();
        self.scoreboards.clear_front(epoch);
        let configuration = serde_json::to_vec(&self.plan.config).map_err(std::io::Error::from);
        let configuration =
            configuration.and_then(|json| shared::file_with("maitred-configuration", &json));
        let started = configuration.and_then(|file| {
            let peer = Peer::start(&Program {
                path: Path::new(THIS_PROGRAM),
                name: &roomy_name("maitred: front"),
                arguments: &[OsStr::new(FRONT_ROLE)],
                environment: &self.plan.environment,
                inherit: &[],
                output: None,
                group: None,
            })?;
            Ok((peer, file))
        });
        match started {
            Ok((mut peer, file)) => {
                let order = ToFront::Configure {
                    epoch,
                    threads: self.plan.threads,
                    identity: self.plan.front_identity.clone(),
                    // The first front may wait longer than that for an application that boots.
                    is_new_server: self.phase.is_start() || self.now() < NEW_SERVER,
                };
                peer.say(order, &[file.as_fd()]);
                let purges = self.purges.orders_for_new_front(&self.fronts);
                for order in purges.into_iter().chain(cookies::orders(&self.cookies)) {
                    peer.say(order, &[]);
                }
                if self.plan.config.purge_log.is_some() {
                    let until = self.purge_log.lease();
                    peer.say(ToFront::SetPurgeLease { until }, &[]);
                    if let Some(state) = self.purge_log.state().cloned() {
                        peer.say(ToFront::ShowPurgeLog { state }, &[]);
                    }
                }
                introduce_all(self, &mut peer);
                if self.phase.is_delayed() {
                    peer.say(ToFront::PrepareStop, &[]);
                }
                self.fronts.current_mut().peer = Some(peer);
            }
            Err(why) => {
                self.fail(&format!("the front could not be started: {why}"));
                let now = self.now();
                self.fronts.current_mut().life.ended(now);
            }
        }
    }

    pub(super) fn kill_front(&mut self, why: &str) {
        if let Some(peer) = self.fronts.peer() {
            peer.signal(Signal::SIGKILL);
        }
        self.fail(&format!("the front is killed: {why}"));
    }

    /// Acts on a report of a front.
    pub(super) fn front_reported(&mut self, line: u32, report: FromFront) {
        let (is_current, now) = (line == self.fronts.line(), self.now());
        match report {
            FromFront::Listening if is_current => self.front_listens(),
            FromFront::Alive => self.front_is_alive(line),
            FromFront::StackReported { thread, calls } => {
                self.take_front_stack(line, thread, calls);
            }
            FromFront::Settled { mark } if is_current => self.settled(mark),
            FromFront::StatsWritten if is_current => self.front_stats.written(),
            FromFront::Reconfigured { refused } if is_current => {
                self.front_reconfigured(refused.map(|why| one_line(&why)));
            }
            FromFront::Listening
            | FromFront::Settled { .. }
            | FromFront::StatsWritten
            | FromFront::Reconfigured { .. } => {}
            FromFront::AcmeProofsSet { mark } => self.acme.proofs_set(mark),
            FromFront::Purged { mark, outcome } => {
                self.purges.purged(line, mark, outcome);
                self.purges.finish(&mut self.fronts, now);
            }
            FromFront::PagesDropped { dropped, mark, awaits_nodes, by_method } => {
                let report = PagesDropped { line, mark, dropped, awaits_nodes, by_method };
                self.purges.dropped(report, &mut self.fronts, now);
            }
            FromFront::CookiesSeen { site_key, names } => {
                let seen = SeenCookies { line, site_key, names };
                let config = &self.plan.config;
                cookies::seen(&mut self.cookies, config, &mut self.fronts, seen);
            }
            FromFront::NodeFigures { figures } => self.purge_log.announce(&figures),
            FromFront::MetricsRequested => {
                self.pools.query_opcaches(&self.scoreboards, now);
                self.measure_memory();
                self.script_waits.watch(now);
                let failures = self.acme.failures(now);
                self.fronts.tell(line, ToFront::ShowCertificateFailures { failures });
                let jobs = self.jobs.shown(now);
                self.fronts.tell(line, ToFront::ShowJobs { jobs });
            }
            FromFront::Drained => {
                self.fronts.drained(line);
                self.check_drained();
            }
            report => self.front_reported_of_pool(line, report),
        }
    }

    /// Acts on a report about a generation, unless that is gone or of another line: a front that
    /// was replaced decides nothing for its successor.
    fn front_reported_of_pool(&mut self, line: u32, report: FromFront) {
        let generation = report.generation();
        let id = generation.and_then(|generation| self.pools.find(generation));
        let Some(id) = id.filter(|id| self.pools[*id].line == line) else {
            return;
        };
        match report {
            FromFront::WorkerFailed { worker, why, broke_rules: true, .. } => {
                self.end_rule_breaker(id, worker, &why);
            }
            FromFront::WorkerFailed { worker, why, overrun, is_logged, .. } => {
                let is_unlogged = !is_logged && !self.plan.is_fpm();
                if is_unlogged {
                    let (pool, why) = (self.pools[id].name(), one_line(&why));
                    warn!("pool {pool} seat {}: its worker is ended: {why}", worker.seat);
                }
                self.end_failed_worker(id, worker, &why, overrun.as_ref());
            }
            FromFront::ScriptDied { worker, script, .. } => {
                let (label, now) = (self.pools[id].label(worker), self.now());
                self.exit_reports.ran(label, one_line(&script), now);
            }
            FromFront::WorkersNeeded { workers, .. } => {
                self.pool_event(id, GenerationEvent::Wanted { workers });
            }
            FromFront::PoolIdle { .. } => self.pool_event(id, GenerationEvent::Idle),
            FromFront::SeatRetired { worker, .. } => {
                self.pool_event(id, GenerationEvent::Retired { worker });
            }
            FromFront::SeatWorn { worker, why, .. } => {
                self.scoreboards.wears(&self.pools[id], worker, why);
                self.pools[id].to_be_replaced += 1;
                self.pool_event(id, GenerationEvent::Worn { worker });
            }
            FromFront::SlowScriptFound { worker, request, overrun, id: request_id, .. } => {
                let slow = SlowScript { id: request_id, worker, request, overrun };
                self.script_is_slow(id, &slow);
            }
            FromFront::OpcacheFilled { .. } => self.pools[id].opcache_filled(),
            FromFront::OpenFailed { .. } => {
                self.fronts.introduce_again(id, &self.pools, &self.scoreboards);
            }
            _ => {}
        }
    }

    /// The front reported a worker that has to be ended.
    fn end_failed_worker(
        &mut self,
        id: PoolId,
        worker: WorkerId,
        why: &str,
        overrun: Option<&Overrun>,
    ) {
        let running = &mut self.pools[id];
        if !self.plan.is_fpm() {
            return self.pool_event(id, GenerationEvent::EndWorker { worker });
        }
        let Some(pid) = running.state.pid_of(worker) else {
            return;
        };
        fpm::log_terminated(running.name(), pid, why, overrun);
        // Its successor may start before it is dead.
        running.to_be_replaced += 1;
        self.pool_event(id, GenerationEvent::TerminateWorker { worker });
    }

    /// A worker has broken the rules of the seat link: it is ended. After several of them, its pool
    /// is restarted.
    fn end_rule_breaker(&mut self, id: PoolId, worker: WorkerId, why: &str) {
        let now = self.now();
        let running = &mut self.pools[id];
        let pool = running.plan.settings.pool.clone();
        if running.protocol_errors.note(worker, now) && running.is_current() {
            warn!(
                "pool `{pool}`: {BREACHES_MAX} workers have broken the rules of the seat link \
                 within {} s; something that its scripts run writes to the memory of all of them, \
                 so the pool is started again, with other memory",
                BREACHES_WITHIN.as_secs()
            );
            self.restarts.want_fresh(&pool);
        }
        if !running.state.serves(worker) {
            return;
        }
        warn!("pool {pool} seat {}: its worker is ended: {}", worker.seat, one_line(why));
        if self.plan.is_fpm() {
            running.to_be_replaced += 1;
        }
        self.pool_event(id, GenerationEvent::EndWorker { worker });
    }

    /// Notifies the server when no front has a request in flight any more, and no command runs.
    pub(super) fn check_drained(&mut self) {
        if self.fronts.are_drained() && self.jobs.are_gone() {
            self.server_event(ServerEvent::Drained);
        }
    }

    fn front_listens(&mut self) {
        let now = self.now();
        let front = self.fronts.current_mut();
        if front.life.ready(now).is_err() {
            front.life.give_up();
            return self.kill_front("it said twice that it listens");
        }
        front.liveness = Some(Liveness::new(now));
        if self.upgrader.opens_front() {
            return self.front_has_taken_over();
        }
        if !self.phase.is_start() {
            info!("front {} accepts clients", self.fronts.current().epoch);
        }
        self.log_hung_stacks();
        self.server_event(ServerEvent::Listening);
    }

    /// A front has ended. The workers of an earlier line are not used any more, then.
    pub(super) fn front_ended(&mut self, line: u32, how: HowEnded) {
        let ended = self.fronts.ended(line, self.now());
        if ended == EndedFront::Current && self.reloader.front_ended() {
            let why = "the front ended while it took the configuration over".to_owned();
            self.configuration_taken(Some(why));
        }
        if let Some(epoch) = ended.epoch(self.fronts.current().epoch) {
            self.scoreboards.clear_front(epoch);
        }
        match ended {
            EndedFront::Current => {
                self.end_purges_of(line);
                if self.phase.wants_front() {
                    self.fail(&format!("the front {how}"));
                }
                for id in self.pools.ids() {
                    if self.pools[id].line == line {
                        self.pool_event(id, GenerationEvent::Wanted { workers: 0 });
                    }
                }
            }
            EndedFront::Replaced { .. } => {
                error!("the front {how}; the one that was to take over is being started");
                return self.end_purges_of(line);
            }
            EndedFront::Draining { epoch, drained } => {
                if !drained {
                    error!("front {epoch} {how}; its requests in flight are lost");
                }
                self.dismiss_workers_of(line);
                self.end_purges_of(line);
            }
            EndedFront::Unknown => {}
        }
        self.check_drained();
    }

    /// The front of a line has ended, and carries out no purge any more.
    pub(super) fn end_purges_of(&mut self, line: u32) {
        let (is_alone, now) = (!self.upgrader.is_going_on(), self.now());
        self.purges.front_ended(line, is_alone, &mut self.fronts, now);
    }
}

/// Sends a new front everything: certificates, logs, pools and their workers, and then the
/// listeners, since it accepts clients from one as soon as it has it.
fn introduce_all(server: &Supervisor, peer: &mut Peer<ToFront>) {
    peer.allow(server.plan.descriptors_of_front(&server.pools));
    if let Some(certificates) = &server.plan.certificates {
        certificates.tell(peer);
    }
    if let Some(proofs) = server.acme.proofs() {
        peer.say(proofs, &[]);
    }
    server.plan.logs.introduce_to(peer);
    let line = server.fronts.line();
    let pools = server.pools.iter();
    for running in pools.filter(|pool| pool.introduced && pool.line == line) {
        running.open_in(peer, &server.scoreboards, &server.pools);
        running.open_seats_in(peer);
        if running.closed {
            running.close_in(peer);
        }
    }
    for listener in &server.plan.listeners {
        listener.tell(peer);
    }
    peer.say(ToFront::Begin, &[]);
}
