//! Applying what was decided for a pool, and acting on the reports of its zygote and the ends of
//! its processes.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;

use maitred_control::stack::Stack;
use maitred_control::{FromZygote, PhpInfo, ToFront, ToZygote, WorkerId, shows_memory_peak};
use maitred_os::fork::{Ended, HowEnded};
use maitred_os::signals::Signal;
use maitred_os::spawn::Program;
use maitred_scoreboard::Cause;
use maitred_scoreboard::Counter;
use tracing::{debug, error, info, warn};

use super::Supervisor;
use crate::capacity::auto::{memory_group, there_is_now};
use crate::fpm::{self, WorkerEnd};
use crate::logging::text::{one_line, version_in};
use crate::peer::{Peer, roomy_name};
use crate::processes::generation::{
    BootState, GenerationAction, GenerationEvent, KillReason, has_failed,
};
use crate::processes::opcache_size::largest_opcache;
use crate::processes::plan::ZYGOTE_ROLE;
use crate::processes::pools::PoolId;
use crate::processes::running_pool::RunningPool;
use crate::processes::script_children::EndedProcesses;
use crate::processes::slow_scripts::{SlowScript, TraceTarget, slow_stack};
use crate::processes::zygote::Zygote;
use crate::reload::restart_requests::SaveNotice;
use crate::system::programs::is_version;
use crate::system::{deferred_close, private_folders};

impl Supervisor {
    /// Notifies a generation of an event, and applies its actions.
    pub(super) fn pool_event(&mut self, id: PoolId, event: GenerationEvent) {
        let now = self.now();
        let running = &mut self.pools[id];
        let is_auto = self.capacity.limit(running);
        let before = running.state.workers();
        let is_end = matches!(event, GenerationEvent::ZygoteEnded);
        let actions = running.state.on(event, now);
        if is_end {
            running.log_wait(now);
        }
        if is_auto {
            self.capacity.workers_changed(running, before, now);
        }
        if self.plan.is_fpm() && self.phase.is_serving() {
            let page = self.scoreboards.page(running.name());
            let busy = || page.map_or(0, |page| page.read().busy);
            self.fpm.log_growth(running, &actions, busy, now);
        }
        for action in actions {
            self.apply(id, action);
        }
        self.scoreboards.show_workers(&mut self.pools[id]);
    }

    /// Applies one action. While the server ends, nothing is started any more.
    fn apply(&mut self, id: PoolId, action: GenerationAction) {
        if !self.phase.wants_workers() {
            return;
        }
        match action {
            GenerationAction::StartZygote => self.start_zygote(id),
            GenerationAction::KillZygote(reason) => self.kill_zygote(id, reason),
            GenerationAction::DismissZygote => self.pools[id].signal_zygote(Signal::SIGTERM),
            GenerationAction::Fill { worker } => self.pools[id].order_worker(worker),
            GenerationAction::CheckChild { pid } => self.check_child(id, pid),
            GenerationAction::Open { worker, pid } => self.open_seat(id, worker, pid),
            GenerationAction::KillWorker { pid } => {
                self.scoreboards.end_worker(
                    &self.pools[id],
                    pid,
                    Cause::Terminated,
                    Signal::SIGKILL,
                );
            }
            GenerationAction::TerminateWorker { pid } => {
                self.scoreboards.end_worker(
                    &self.pools[id],
                    pid,
                    Cause::Terminated,
                    Signal::SIGTERM,
                );
            }
            GenerationAction::DismissWorker { pid } => {
                let is_leaving = self.pools[id].state.is_leaving();
                let cause = if is_leaving { Cause::Reload } else { Cause::Idle };
                self.scoreboards.end_worker(&self.pools[id], pid, cause, Signal::SIGTERM);
            }
            GenerationAction::ReportStuck { seat, pid } => error!(
                "pool {} seat {seat}: worker {pid} does not end, though it was killed; it hangs in \
                 the kernel (a dead network disk?) or is being traced, and keeps its seat until it \
                 has gone",
                self.pools[id].name()
            ),
            GenerationAction::Report { worker, pid, how, boot, retry } => {
                let label = self.pools[id].label(worker);
                let how = self.pools[id].describe_end(how, boot);
                self.exit_reports.died(label, pid, how, retry, self.now());
                if boot != BootState::Done {
                    self.trial_failed(id, "its script does not boot");
                }
            }
        }
    }

    /// Has the front send requests to a worker that is ready.
    fn open_seat(&mut self, id: PoolId, worker: WorkerId, pid: i32) {
        let line = self.pools[id].line;
        if !self.pools[id].introduced && line == self.fronts.line() {
            self.introduce_generation(id);
        }
        let running = &mut self.pools[id];
        if let Some(fpm) = &self.plan.config.fpm {
            fpm::log_start(running, pid);
            if self.phase.is_serving() {
                fpm::log_for_started_worker(fpm, running, pid);
            }
        }
        running.show_copied_generation(&self.scoreboards);
        self.scoreboards.count(running.name(), Counter::WorkersStarted);
        let peer = self.fronts.peer_of(line).filter(|_| running.introduced);
        if let (Some(pidfd), Some(peer)) = (running.workers.get(&pid), peer) {
            let order = ToFront::OpenSeat { generation: running.generation, worker, pid };
            peer.say(order, &[pidfd.as_fd()]);
        }
    }

    fn start_zygote(&mut self, id: PoolId) {
        self.pools[id].note_php_files();
        let (plan, groups) = (&self.pools[id].plan, self.plan.groups.as_ref());
        let pool = &plan.settings.pool;
        let program = Program {
            path: &plan.program,
            name: &roomy_name(&format!("maitred-php: zygote pool {pool}")),
            arguments: &[OsStr::new(ZYGOTE_ROLE)],
            environment: &self.plan.environment,
            inherit: &[],
            output: Some(plan.output.writer()),
            group: groups.and_then(|groups| groups.entrance(pool)),
        };
        let is_free = deferred_close::check(pool).map_err(io::Error::other);
        let started = is_free.and_then(|()| Peer::start_of_pool(&program, pool));
        match started {
            Ok(mut peer) => {
                peer.allow(plan.descriptors_of_zygote());
                let code = self.plan.programs.direct_calls_of(&plan.program);
                let code = code.filter(|_| plan.configured.direct_calls);
                let mut settings = plan.settings.clone();
                settings.direct_calls = code.is_some();
                settings.preload = plan.preload.is_some();
                let counts = self.scoreboards.applications.of(pool, plan.uid);
                settings.counts = counts.is_some();
                private_folders::provide(&mut settings);
                let list = plan.preload.as_ref().map(AsFd::as_fd);
                let more = counts.into_iter().chain(list).chain(code);
                let fds: Vec<_> = plan.shared().into_iter().chain(more).collect();
                peer.say(ToZygote::Configure(Box::new(settings)), &fds);
                self.pools[id].zygote = Some(Zygote::new(peer));
            }
            Err(why) => {
                let program = plan.program.display();
                let sentence = format!("{program} could not be started: {why}");
                self.start_failed(id, sentence);
                self.trial_failed(id, "its zygote could not be started");
                self.pool_event(id, GenerationEvent::ZygoteEnded);
            }
        }
    }

    fn kill_zygote(&mut self, id: PoolId, reason: KillReason) {
        self.pools[id].signal_zygote(Signal::SIGKILL);
        // They are logged elsewhere, if at all.
        let is_logged = !matches!(
            reason,
            KillReason::StartFailed | KillReason::NotNeeded | KillReason::DelaysUpgrade
        );
        if is_logged {
            let pool = self.pools[id].name();
            let sentence = format!("the zygote of pool `{pool}` is killed: {reason}");
            self.start_failed(id, sentence);
        }
        self.trial_failed(id, &reason.to_string());
    }

    /// Acts on a report of a zygote.
    pub(super) fn zygote_reported(&mut self, id: PoolId, report: FromZygote) {
        let now = self.now();
        match report {
            FromZygote::Started { php, built, fixed, exposed, by_path_info, preloaded } => {
                self.pools[id].preloads_classes(preloaded);
                let php = version_in(&php);
                let is_known = self.pools.iter().any(|pool| pool.php.as_deref() == Some(&*php));
                if let Some(built) = built.filter(|_| !is_known) {
                    let built = one_line(&built);
                    info!(
                        "PHP {php} runs; its program is built with PHP {built}, whose ABI it has"
                    );
                }
                let info = PhpInfo {
                    powered_by: exposed.then(|| format!("PHP/{php}")),
                    by_path_info,
                    shows_memory_peak: shows_memory_peak(&php),
                };
                self.zygote_started(id, &php, fixed, info);
            }
            FromZygote::StartFailed { why } => {
                let (pool, why) = (self.pools[id].name(), one_line(&why));
                let sentence = format!("PHP could not start for pool `{pool}`: {why}");
                self.start_failed(id, sentence);
                self.pool_event(id, GenerationEvent::ZygoteFailed(KillReason::StartFailed));
            }
            FromZygote::SeatFilled { worker, pid, took } => {
                self.pools[id].count_fork(&self.scoreboards, took);
                self.worker_announced(id, worker, pid);
            }
            FromZygote::Booted { worker } => {
                self.pool_event(id, GenerationEvent::Booted { worker });
            }
            FromZygote::Profiled { profile, samples } => {
                let generation = self.pools[id].generation;
                self.profiles.profiled(generation, profile, samples);
            }
            FromZygote::Traced { trace, stack } => {
                let generation = self.pools[id].generation;
                // A stack that arrives too late is not waited for any more.
                if let Some(target) = self.traces.answered(generation, trace) {
                    let stack = stack.as_ref().map_err(String::as_str);
                    self.use_stack(id, target, stack);
                }
            }
            FromZygote::ForkFailed { worker, why } => {
                let running = &mut self.pools[id];
                running.fork_failed(worker, &one_line(&why), now);
                self.scoreboards.count(running.name(), Counter::ForksFailed);
                self.pool_event(id, GenerationEvent::ForkFailed { worker });
            }
            FromZygote::OpcacheReported { figures } => {
                let running = &mut self.pools[id];
                if let Some(figures) = &figures {
                    self.preloading.opcache_reported(running, figures, now);
                }
                if let Some(figures) = running.opcache_reported(figures, &self.scoreboards, now) {
                    let group = memory_group(self.plan.groups.as_ref(), running.name());
                    let (_, memory) = there_is_now(group.as_deref());
                    let memory = memory.map(|memory| memory.limit);
                    let most = largest_opcache(&running.plan.pool, memory);
                    if running.grow_opcache(&figures, most) {
                        self.restarts.want_larger(running.name());
                    }
                }
            }
            FromZygote::PreloadableListed { count } => {
                if self.preloading.listed(&self.pools[id], count) {
                    self.restarts.want_preloaded(self.pools[id].name());
                }
            }
            FromZygote::PreloadedFileChanged { file } => {
                let running = &self.pools[id];
                // One on trial as well: it is restarted when it serves.
                let pool = running.name();
                let is_to_serve = running.preloads() && !running.state.is_leaving();
                if is_to_serve && self.restarts.want_saved(pool, now) != SaveNotice::Known {
                    let file = one_line(&file);
                    info!("pool {pool}: {file} of a preloaded class was saved");
                }
            }
            FromZygote::ScriptsListed { count } => self.pools.scripts_listed(id, count, now),
            FromZygote::Warmed { compiled } => {
                if self.pools[id].opcache_warmed(compiled) {
                    self.pool_event(id, GenerationEvent::Passed);
                }
            }
        }
    }

    /// A zygote reports that PHP runs. Checks whether it is a usable version.
    fn zygote_started(&mut self, id: PoolId, php: &str, fixed: bool, info: PhpInfo) {
        let running = &self.pools[id];
        let (pool, php) = (running.name(), one_line(php));
        let wanted = running.plan.php.as_ref();
        if let Some(wanted) = wanted.filter(|wanted| !is_version(&php, wanted)) {
            let sentence = format!(
                "pool `{pool}` asks for PHP {wanted}, and {} runs PHP {php}; correct `php`, or \
                 build maitred against the other version",
                running.plan.program.display()
            );
            self.start_failed(id, sentence);
            return self.pool_event(id, GenerationEvent::ZygoteFailed(KillReason::StartFailed));
        }
        if !fixed {
            let lacks = format!(
                "pool `{pool}` runs PHP {php}, which lacks the security fixes of October 2026; \
                 update it to 8.2.35, 8.3.36, 8.4.27, 8.5.12 or newer"
            );
            if self.plan.config.require_fixed_php {
                self.start_failed(id, format!("{lacks}, or set require_fixed_php = false"));
                return self.pool_event(id, GenerationEvent::ZygoteFailed(KillReason::StartFailed));
            }
            if running.php.as_ref() != Some(&php) {
                warn!("{lacks}");
            }
        }
        self.pools[id].php_info = info;
        self.pools[id].php = Some(php);
        self.fronts.tell_php_info(id, &self.pools);
        self.pools[id].failed = false;
        self.pools[id].start_error = None;
        self.pools[id].wait_logged = false;
        self.pool_event(id, GenerationEvent::ZygoteStarted);
        if self.pools[id].state.is_on_trial() && !self.pools.warm_opcache(id, self.now()) {
            self.pool_event(id, GenerationEvent::Passed);
        }
    }

    /// A script runs for longer than `request_slowlog_timeout`: logs it, and requests its stack.
    pub(super) fn script_is_slow(&mut self, id: PoolId, slow: &SlowScript) {
        let now = self.now();
        let running = &mut self.pools[id];
        // The stack of a worker that has ended is gone, and its end is logged.
        let Some(pid) = running.state.pid_of(slow.worker) else {
            return;
        };
        if self.plan.is_fpm() {
            fpm::log_slow_script(running.name(), pid, &slow.overrun);
        } else {
            running.log_slow_script(pid, slow, now);
        }
        let subject = running.slowlog_subject(pid, slow, self.plan.is_fpm());
        let traced = running.trace_slow_script(subject, slow, &mut self.traces, now);
        if let Some((target, why)) = traced {
            self.use_stack(id, target, Err(why));
        }
    }

    /// A stack has arrived, or there is none, and why.
    pub(super) fn use_stack(
        &mut self,
        id: PoolId,
        target: TraceTarget,
        stack: Result<&Stack, &str>,
    ) {
        match target {
            TraceTarget::SlowScript(subject) => {
                self.pools[id].write_slowlog(&subject, stack, &mut self.slowlog_writers);
                // As the front remembers them.
                let config = &self.plan.config;
                if config.admin.is_some() || config.admin_access.socket.is_some() {
                    let (line, stack) = (self.fronts.line(), slow_stack(&subject, stack));
                    self.fronts.tell(line, ToFront::ShowSlowStack { stack });
                }
            }
            TraceTarget::Shown(position) => self.admin.take_stack(position, stack.ok()),
        }
    }

    /// A worker has ended.
    pub(super) fn worker_ended(&mut self, id: PoolId, ended: Ended) {
        let Ended { pid, how, .. } = ended;
        let now = self.now();
        let stopping = !self.phase.wants_workers();
        let running = &mut self.pools[id];
        if self.plan.is_fpm() {
            let end = WorkerEnd {
                ended,
                cause: self.scoreboards.cause(pid),
                is_quiet: stopping,
                is_start: self.phase.is_start(),
                now,
            };
            fpm::log_end(running, &end);
        }
        let cause = self.scoreboards.ended(running.name(), pid, how, stopping);
        let served = has_failed(how) && running.has_served(pid, now);
        let script = running.ended_script(pid).filter(|_| has_failed(how) && !stopping);
        self.pool_event(id, GenerationEvent::Ended { pid, how, served });
        if let Some(script) = script {
            let pool = self.pools[id].name();
            self.script_children.end_those_of(script, Some(pool), now);
        }
        let running = &self.pools[id];
        let current = self.pools.current_of(running.name());
        let user = |pool: &RunningPool| pool.plan.configured.runs_as;
        let has_its_user = current.is_some_and(|current| user(current) == user(running));
        self.restarts.worker_ended(running, how, has_its_user);
        if self.preloading.worker_ended(&self.pools[id], how) {
            self.restarts.want_without_preloading(self.pools[id].name());
        }
        // What else php-fpm does.
        let (HowEnded::Signaled(signal), true) = (how, self.plan.is_fpm()) else {
            return;
        };
        if let Some(workers) = fpm::workers_after_kill(&self.pools[id], cause, signal) {
            self.pool_event(id, GenerationEvent::Wanted { workers });
        }
        let fpm = self.plan.config.fpm.as_ref();
        if let Some(fpm) = fpm.filter(|_| self.phase.is_serving())
            && self.fpm.worker_crashed(fpm, signal, now)
        {
            self.reloader.postpone(true);
        }
    }

    /// Ends the processes that scripts have started which were terminated, or have crashed.
    pub(super) fn end_script_children(&mut self) {
        let now = self.now();
        let (fronts, pools, jobs) = (&self.fronts, &self.pools, &self.jobs);
        let ours = || {
            let fronts = fronts.iter().map(|(_, peer)| peer.pid());
            let of_pools = pools.iter().flat_map(RunningPool::known_pids);
            fronts.chain(of_pools).chain(jobs.pids()).collect()
        };
        for EndedProcesses { pool, worker, count } in self.script_children.look(ours, now) {
            // What a command has left is no news.
            let Some(pool) = pool else { continue };
            let what =
                if count == 1 { "a process".to_owned() } else { format!("{count} processes") };
            info!(
                "pool {pool}: the script of worker {worker} was ended with {what} that it had \
                 started"
            );
        }
    }

    /// A zygote has ended.
    pub(super) fn zygote_reaped(&mut self, id: PoolId, how: HowEnded) {
        if self.pools[id].state.zygote_leaves() {
            // It was dismissed.
            return;
        }
        if self.phase.wants_workers() {
            let running = &self.pools[id];
            let has_workers = running.state.seated().next().is_some();
            let rest = if has_workers { "; its workers go on serving" } else { "" };
            let sentence = format!("the zygote of pool `{}` {how}{rest}", running.name());
            // Why PHP did not start is logged already.
            if has_workers || running.start_error.is_none() {
                self.zygote_failed(id, &sentence);
            }
        }
        self.trial_failed(id, &format!("its zygote {how}"));
    }

    /// Logs why a pool does not start, and keeps that for its reload.
    fn start_failed(&mut self, id: PoolId, sentence: String) {
        self.zygote_failed(id, &sentence);
        let running = &mut self.pools[id];
        running.start_error = Some(sentence);
        let (line, generation) = (running.line, running.generation);
        if running.introduced {
            self.fronts.tell(line, ToFront::SuspendPool { generation });
        }
    }

    /// Logs why a zygote failed; once the server serves, at a bounded rate.
    fn zygote_failed(&mut self, id: PoolId, sentence: &str) {
        let now = self.now();
        let (is_start, is_fpm) = (self.phase.is_start(), self.plan.is_fpm());
        let is_alone = self.pools.names().len() == 1 || self.plan.invocation.strict;
        let running = &mut self.pools[id];
        if is_start && (is_fpm || running.boots() || !is_alone) {
            // The other pools have done nothing wrong, and php-fpm starts them. What an application
            // lacks at its boot, such as its database, may come later.
            running.failed = true;
            if is_fpm || running.errors.zygote_failed(now) {
                self.plan.log_failure(sentence);
            }
        } else if is_start || running.errors.zygote_failed(now) {
            self.fail(sentence);
        } else {
            debug!("{sentence}");
        }
    }
}
