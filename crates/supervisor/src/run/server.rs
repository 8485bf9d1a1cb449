//! Applying what was decided for the whole server: its start, its stop, its signals.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::path::Path;

use maitred_config::Config;
use maitred_control::ToFront;
use maitred_control::admin::MAX_RUNNING_SHOWN;
use maitred_os::signals::{self, Signal};
use tracing::{error, info, warn};

use super::Supervisor;
use super::phase::{NextStop, ServerAction, ServerEvent};
use crate::admin::status::{self, RunningRequest};
use crate::capacity::auto::CapacityContext;
use crate::fpm::{self, ReopenedLog, SignalAction, process_control_timeout};
use crate::fronts::log_manager::reopen_error_log;
use crate::limits::FIRST_FILL;
use crate::logging::address_lines::{self, Facts};
use crate::logging::exit_reports::log_exits;
use crate::logging::text::some_workers;
use crate::processes::adopt;
use crate::processes::generation::GenerationEvent;
use crate::processes::pools::Pools;
use crate::processes::running_pool::RunningPool;
use crate::system::identity;
use crate::systemd::ServerStats;
use crate::tls::acme::{AcmeContext, AcmeTask};
use crate::tls::certificates::Certificates;

/// What a development server says after its addresses.
const DEVELOPMENT: &str = "development server: errors of PHP are in the page and here, changed \
                           scripts are seen at once; Ctrl-C stops it";

/// Longest part of a URI in a line about a stop, in characters.
const URI_CHARS: usize = 80;

/// Document roots named in the log line about the addresses.
const ROOTS_SHOWN: usize = 8;

impl Supervisor {
    /// Notifies the whole server of an event, and applies its action.
    pub(super) fn server_event(&mut self, event: ServerEvent) {
        let stopped = "the server was asked to stop before the reload was done";
        match self.phase.on(event, self.now()) {
            None => {}
            Some(ServerAction::Announce) => self.announce(),
            Some(ServerAction::ReportSlowStart) => {
                let limit = FIRST_FILL.as_secs();
                self.plan
                    .log_failure(&format!("not every pool was full of workers after {limit} s"));
                self.signal_all(Signal::SIGKILL);
            }
            Some(ServerAction::PrepareStop) => {
                self.systemd.stops(self.now());
                self.give_up_reload(stopped);
                self.fronts.tell_all(&ToFront::PrepareStop, &[]);
            }
            Some(ServerAction::Drain) => {
                self.systemd.stops(self.now());
                self.plan.close_listeners();
                self.give_up_reload(stopped);
                self.fronts.tell_all(&ToFront::Drain, &[]);
                self.retire_jobs();
                self.check_drained();
            }
            Some(ServerAction::CutOff) => {
                let limit = fpm::patience(&self.plan.config).as_secs_f64();
                warn!(
                    "{} still run after process_control_timeout = {limit} s; they are ended",
                    if self.fronts.are_drained() { "commands" } else { "requests" }
                );
                self.signal_all(Signal::SIGTERM);
            }
            Some(ServerAction::Terminate) => {
                self.systemd.stops(self.now());
                self.plan.close_listeners();
                self.give_up_reload(stopped);
                self.retire_jobs();
                self.signal_all(Signal::SIGTERM);
            }
            Some(ServerAction::AskAllToLeave) => {
                self.systemd.stops(self.now());
                self.signal_all(Signal::SIGTERM);
            }
            Some(ServerAction::KillAll) => {
                self.systemd.stops(self.now());
                self.signal_all(Signal::SIGKILL);
            }
        }
    }

    /// Acts on a signal.
    pub(super) fn obey(&mut self, signal: Signal) {
        if self.plan.is_fpm() {
            match fpm::obey(signal) {
                Some(SignalAction::Terminate) => self.server_event(ServerEvent::Terminate),
                Some(SignalAction::Finish) => self.server_event(ServerEvent::Finish),
                Some(SignalAction::ReopenLogs) => self.reopen_logs(),
                Some(SignalAction::Reload) => self.reloader.postpone(true),
                None => {}
            }
            return;
        }
        match signal {
            Signal::SIGTERM | Signal::SIGINT | Signal::SIGQUIT => self.stop_by(signal),
            Signal::SIGHUP => self.reload_when_possible(),
            Signal::SIGUSR2 => {
                info!("SIGUSR2: upgrading");
                self.upgrade();
            }
            Signal::SIGUSR1 => self.reopen_logs(),
            // These are all of `SIGNALS`.
            _ => {}
        }
    }

    /// Acts on a signal that stops the server.
    fn stop_by(&mut self, signal: Signal) {
        let next = self.phase.next_stop(self.now());
        let delay = self.plan.config.stop_delay;
        let is_delayed = self.phase.is_serving() && signal != Signal::SIGINT && !delay.is_zero();
        match next {
            NextStop::AtOnce => info!("{signal}: stopping at once"),
            NextStop::Graceful if is_delayed => info!(
                "{signal}: stopping; clients are served for stop_delay = {} s more, which {signal} \
                 again ends",
                delay.as_secs_f64()
            ),
            NextStop::Graceful | NextStop::EndDelay => {
                info!("{signal}: stopping{}", self.running_in_words(signal));
            }
        }
        self.server_event(match signal {
            Signal::SIGINT => ServerEvent::Interrupted,
            _ => ServerEvent::StopSignaled,
        });
    }

    /// The end of a line about a stop: the requests that run, and how to end them.
    fn running_in_words(&self, signal: Signal) -> String {
        let is_development = self.plan.config.development.is_some();
        let again = match signal {
            Signal::SIGINT if is_development => "Ctrl-C",
            signal => signal.as_str(),
        };
        let running = status::running_requests(&self.pools);
        match running.as_slice() {
            [] => String::new(),
            running => format!("; {}; {again} again ends it", running_in_words(running)),
        }
    }

    /// Reopens every log file.
    fn reopen_logs(&mut self) {
        let (config, logs, fronts) = (&self.plan.config, &mut self.plan.logs, &mut self.fronts);
        let is_well = reopen_error_log(config, fronts);
        if config.fpm.is_some() {
            fpm::log_reopened(ReopenedLog::Error, is_well);
            let has_access_log = |pool: &RunningPool| pool.plan.pool.pool_access_log.is_some();
            if self.pools.iter().any(has_access_log) {
                let is_well = logs.reopen_pool_logs(config, fronts);
                fpm::log_reopened(ReopenedLog::Access, is_well);
            }
        } else {
            logs.reopen_access_log(config, fronts);
            logs.reopen_pool_logs(config, fronts);
        }
        self.pools.reopen_slowlogs();
    }

    /// Logs an error. Before the server serves, that ends it.
    pub(super) fn fail(&mut self, sentence: &str) {
        if self.phase.is_start() {
            self.plan.log_failure(sentence);
        } else {
            error!("{sentence}");
        }
        self.server_event(ServerEvent::StartFailed);
    }

    /// The server serves.
    fn announce(&mut self) {
        if let Some(shared) = identity::shared_with_front(&self.plan.config) {
            warn!("{shared}");
        }
        if let Some(fpm) = &self.plan.config.fpm {
            fpm::log_ready();
            for running in &mut self.pools {
                let seated: Vec<i32> = running.state.seated().map(|one| one.pid).collect();
                for pid in seated {
                    fpm::log_for_started_worker(fpm, running, pid);
                }
            }
            self.keep_systemd();
        } else {
            let is_development = self.plan.config.development.is_some();
            let (roots, pools) = (roots(&self.plan.config), facts(&self.pools));
            let facts = Facts { roots: &roots, pools: &pools, is_development };
            for listener in &self.plan.listeners {
                let (clients, address) = (&listener.clients, &listener.address);
                self.plan.terminal.tell(&address_lines::line(clients, address, &facts));
            }
            if is_development {
                self.plan.terminal.tell(DEVELOPMENT);
            }
            if let Some(open) = identity::admin_is_open(&self.plan.config) {
                warn!("{open}");
            }
        }
        let mut listeners = self.plan.listeners.iter();
        let url = listeners.find_map(|one| address_lines::url(&one.clients, &one.address));
        self.plan.invocation.host.serves(url.as_deref());
        self.follow_jobs(|_| false);
    }

    /// Ends old workers after `process_control_timeout`, as php-fpm does.
    pub(super) fn end_old_workers(&mut self) {
        let limit = self.plan.config.process_control_timeout;
        if !self.plan.is_fpm() || limit.is_zero() {
            return;
        }
        let now = self.now();
        for (id, worker) in process_control_timeout::overdue(&mut self.pools, limit, now) {
            self.pool_event(id, GenerationEvent::TerminateWorker { worker });
        }
    }

    /// Sends a signal to every child: our processes, and orphans that became our children. Those
    /// that read pipes are ended last.
    pub(super) fn signal_all(&self, signal: Signal) {
        let mut children: BTreeSet<i32> = adopt::children().into_iter().collect();
        for pid in self.pipe_reader.pids() {
            children.remove(&pid);
        }
        for pid in &children {
            // Ours until we reap it. A process that has ended needs no signal.
            if let Ok(pidfd) = signals::pidfd(*pid) {
                let _ = signals::send_to(pidfd.as_fd(), signal);
            }
        }
        // The kernel's list may lack some while others end (proc(5)).
        for (_, peer) in self.fronts.iter().filter(|(_, peer)| !children.contains(&peer.pid())) {
            peer.signal(signal);
        }
        self.pools.iter().for_each(|running| running.signal_all_but(&children, signal));
    }

    /// Logs exits and recurring errors that are due.
    pub(super) fn log_errors(&mut self) {
        let now = self.now();
        let lines = self.exit_reports.due(now);
        log_exits(&lines, self.plan.is_fpm());
        for running in &mut self.pools {
            running.log_errors(now);
        }
        for (generation, target) in self.traces.overdue(now) {
            if let Some(id) = self.pools.find(generation) {
                self.use_stack(id, target, Err("the pool's zygote did not answer"));
            }
        }
        self.pools.end_slow_episodes(now);
    }

    /// Has entries of slow logs written whose paths tenants control.
    pub(super) fn keep_slowlogs(&mut self) {
        self.pools.create_slowlogs(&mut self.slowlog_writers);
        let (hurry, now) = (!self.phase.wants_workers(), self.now());
        self.slowlog_writers.keep(&self.plan.environment, hurry, now);
    }

    /// Notifies systemd.
    pub(super) fn keep_systemd(&mut self) {
        if !self.phase.is_serving() {
            return self.systemd.resend(self.now());
        }
        let is_settled = !self.reloader.is_going_on() && !self.upgrader.is_going_on();
        let stats = || ServerStats::of(&self.scoreboards, &self.pools);
        self.systemd.keep(is_settled, stats, self.started.elapsed());
    }

    /// Checks the files of certificates when that is due.
    pub(super) fn keep_certificates(&mut self) {
        let now = self.now();
        let (config, wants_front) = (&self.plan.config, self.phase.wants_front());
        let certificates = self.plan.certificates.as_mut();
        let due = |one: &&mut Certificates| wants_front && one.deadline() <= now;
        let (Some(certificates), Some(tls)) = (certificates.filter(due), &config.tls) else {
            return;
        };
        let is_new = certificates.check_files(config, tls, now);
        self.plan.faults.set_certificates(certificates.faults());
        self.acme.changed(false);
        if let Some(peer) = self.fronts.peer().filter(|_| is_new) {
            certificates.tell(peer);
        }
    }

    /// Checks processors and memory when that is due.
    pub(super) fn keep_capacity(&mut self) {
        let now = self.now();
        let due = self.capacity.deadline(&self.pools);
        if !self.phase.wants_workers() || due.is_none_or(|due| due > now) {
            return;
        }
        self.capacity.keep(&mut CapacityContext {
            pools: &mut self.pools,
            scoreboards: &self.scoreboards,
            fronts: &mut self.fronts,
            groups: self.plan.groups.as_ref(),
            jobs: self.jobs.to_size(&self.plan.config),
            reads: &mut self.memory_reader.reads,
            now,
        });
    }

    /// The orders of certificates, and what they need.
    pub(super) fn acme(&mut self) -> AcmeTask<'_> {
        let now = self.now();
        AcmeTask {
            manager: &mut self.acme,
            context: AcmeContext {
                config: &self.plan.config,
                certificates: &mut self.plan.certificates,
                fronts: &mut self.fronts,
                environment: &self.plan.environment,
                identity: self.plan.front_identity.as_ref(),
                is_serving: self.phase.is_serving() && !self.upgrader.is_going_on(),
                now,
            },
        }
    }
}

/// Running requests in one clause: their number, and the longest.
fn running_in_words(running: &[RunningRequest]) -> String {
    let Some(first) = running.first() else {
        return "no request runs".to_owned();
    };
    let RunningRequest { method, uri, seconds } = first;
    let uri: String = uri.chars().take(URI_CHARS).collect();
    match running.len() {
        1 => format!("1 request runs ({method} {uri}, {seconds:.0} s)"),
        MAX_RUNNING_SHOWN.. => {
            format!(
                "at least {MAX_RUNNING_SHOWN} requests run (longest {method} {uri}, {seconds:.0} s)"
            )
        }
        more => format!("{more} requests run (longest {method} {uri}, {seconds:.0} s)"),
    }
}

/// The document roots of a configuration, as a list.
fn roots(config: &Config) -> String {
    let roots = config.sites.iter().map(|site| site.root.as_path());
    let roots: BTreeSet<&Path> = roots.collect();
    let shown = roots.iter().take(ROOTS_SHOWN);
    let mut shown: Vec<String> = shown.map(|root| root.display().to_string()).collect();
    if let more @ 1.. = roots.len() - shown.len() {
        shown.push(format!("{more} more"));
    }
    shown.join(", ")
}

/// The number of workers, and the PHP versions.
fn facts(pools: &Pools) -> String {
    let (auto, others): (Vec<_>, Vec<_>) = pools.iter().partition(|pool| pool.finds_its_size());
    let workers = others.iter().map(|pool| pool.state.seated().count()).sum();
    let most = auto.iter().map(|pool| pool.plan.max_children() as usize);
    let versions = pools.iter().filter_map(|pool| pool.php.as_ref());
    let versions: BTreeSet<&String> = versions.collect();
    let mut facts = some_workers(workers, most.sum());
    for version in versions {
        facts.push_str(&format!(", PHP {version}"));
    }
    facts
}
