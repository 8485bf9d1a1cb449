//! The steps of an upgrade: a new program takes over in this process. See [`crate::upgrade`].

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd};

use maitred_config::{Config, Pool, Section};
use maitred_os::spawn::{self, Program};
use tracing::{error, info};

use super::Supervisor;
use crate::error::Error;
use crate::fronts::Front;
use crate::limits::STILL_ZYGOTES;
use crate::logging::exit_reports::log_exits;
use crate::peer::roomy_name;
use crate::processes::generation::{GenerationEvent, KillReason};
use crate::processes::plan::PoolPlan;
use crate::processes::pools::PoolId;
use crate::processes::running_pool::RunningPool;
use crate::system::faults::{Fault, Loss};
use crate::system::identity;
use crate::upgrade::handover::{HandoverState, Running};
use crate::upgrade::{TAKE_OVER, TRY_TAKE_OVER, UpgradeStep};

/// How many pools start PHP at an upgrade if all of them are at rest: a single one may be broken.
const TRIED_AT_REST: usize = 3;

impl Supervisor {
    /// Starts an upgrade, as soon as no reload is going on.
    pub(super) fn upgrade(&mut self) {
        let is_postponed = self.reloader.is_going_on();
        self.upgrader.postpone(is_postponed);
        if is_postponed {
            return info!("the upgrade begins when the reload is over");
        }
        if let Err(why) = self.try_program() {
            self.upgrader.refuse(&why);
        }
    }

    /// Starts the program at our path on trial: it reports whether it can read what we would hand
    /// over.
    fn try_program(&mut self) -> Result<(), String> {
        if !self.phase.is_serving() {
            return Err("the server is starting or ending".to_owned());
        }
        if !self.fronts.are_settled() {
            return Err("the front is being started; upgrade again when it serves".to_owned());
        }
        if self.upgrader.is_going_on() {
            return Err("another upgrade is going on".to_owned());
        }
        let state = handover(self).write()?;
        let mut arguments = self.plan.invocation.arguments.clone();
        arguments.push(TRY_TAKE_OVER.into());
        arguments.push(spawn::FIRST_INHERITED_FD.to_string().into());
        let arguments: Vec<_> = arguments.iter().map(OsString::as_os_str).collect();
        let program = &self.plan.invocation.program;
        // A program that may be php-fpm by its name has to get that name.
        let name = if self.plan.is_fpm() {
            program.clone().into_os_string()
        } else {
            roomy_name("maitred: upgrade")
        };
        let pid = spawn::start(&Program {
            path: program,
            name: &name,
            arguments: &arguments,
            environment: &self.plan.environment,
            inherit: &[state.as_fd()],
            output: None,
            group: None,
        });
        let pid = pid.map_err(|why| format!("{} cannot be run: {why}", program.display()))?;
        self.upgrader.start(pid, self.now());
        Ok(())
    }

    /// Does what is due for an upgrade.
    pub(super) fn keep_upgrade(&mut self) {
        let now = self.now();
        if !self.phase.is_serving() {
            self.upgrader.give_up();
            self.fronts.keep_both(now);
        }
        let ends_soon = self.upgrader.holds_still();
        self.purges.set_upgrading(ends_soon);
        if ends_soon {
            self.purges.finish(&mut self.fronts, now);
        }
        let waits_for = if ends_soon { self.upgrade_waits_for() } else { Vec::new() };
        match self.upgrader.due(&waits_for, now) {
            None => {}
            Some(UpgradeStep::Refuse(why)) => self.upgrader.refuse(&why),
            Some(UpgradeStep::KillZygotes) => self.kill_slow_zygotes(),
            Some(UpgradeStep::BecomeProgram) => self.become_program(),
            Some(UpgradeStep::JudgeTrials { late }) => self.judge_trials(late),
            Some(UpgradeStep::TakeBack(why)) => self.take_back(&why),
        }
        if ends_soon && !self.upgrader.holds_still() {
            self.hold_starts();
        }
        self.fronts.end_overdue(now);
    }

    /// What has to be over before the new program takes over.
    fn upgrade_waits_for(&self) -> Vec<String> {
        let has_purges = !(self.purges.are_done() && self.purge_log.is_gone());
        let has_output = !(self.held.is_empty() && self.pipe_reader.is_idle());
        let others = [
            (!self.fronts.are_settled(), "the front"),
            (has_purges, "purges"),
            (has_output, "output of pools that is being read"),
        ];
        let others = others.iter().filter(|(waits, _)| *waits).map(|(_, what)| (*what).to_owned());
        let pools = self.pools.iter().filter(|pool| !pool.is_still());
        others.chain(pools.map(|pool| format!("PHP of pool {}", pool.name()))).collect()
    }

    /// Kills the zygotes that an upgrade has waited for long enough: the new program starts one of
    /// its own for each pool.
    fn kill_slow_zygotes(&mut self) {
        let waited = STILL_ZYGOTES.as_secs();
        for id in self.pools.ids() {
            let pool = &self.pools[id];
            let what = if pool.state.starts_since().is_some() {
                "for whose start"
            } else if pool.state.zygote_is_up() && pool.zygote_is_behind() {
                "which does not take its orders and for which"
            } else {
                continue;
            };
            let name = pool.name();
            info!(
                "pool {name}: its zygote, {what} the upgrade has waited for {waited} s, is killed"
            );
            self.pool_event(id, GenerationEvent::ZygoteFailed(KillReason::DelaysUpgrade));
        }
    }

    /// Runs the new program in this process. Returns only if that failed.
    fn become_program(&mut self) {
        let lines = self.exit_reports.last_words(self.now());
        log_exits(&lines, self.plan.is_fpm());
        let level = self.plan.fpm_log_level();
        for running in &mut self.pools {
            running.flush_outputs(level);
            // The next program does not know the others, and the kernel would close them here.
            running.drop_outputs_without_worker(&[]);
            running.show_copy_counters(&self.scoreboards);
        }
        if let Some(certificates) = &mut self.plan.certificates {
            certificates.leave();
        }
        self.jobs.kill_probes();
        // The next program does not know these entries.
        self.slowlog_writers.keep(&self.plan.environment, true, self.now());
        self.lookups.give_up();
        self.end_memory_reader();
        self.pipe_reader.end();
        let state = handover(self);
        let why = match state.write() {
            Err(why) => why,
            Ok(file) => {
                let number = file.as_raw_fd();
                let program = &self.plan.invocation.program;
                let mut arguments = vec![program.clone().into_os_string()];
                arguments.extend(self.plan.invocation.arguments.iter().cloned());
                arguments.extend([TAKE_OVER.into(), number.to_string().into()]);
                info!("SIGUSR2: {} takes over", program.display());
                let kept =
                    state.keep_open(true).and_then(|()| spawn::keep_across_exec(number, true));
                let why = match kept {
                    Ok(()) => spawn::become_program(program, &arguments),
                    Err(why) => why,
                };
                let _ = state.keep_open(false);
                format!("{} cannot be run: {why}", program.display())
            }
        };
        self.upgrader.refuse(&why);
    }

    /// This is the new program: gives every pool a generation of its own PHP program.
    pub(super) fn start_trials(&mut self) {
        let now = self.now();
        self.upgrader.start_trials(now);
        // Before the first run, which may begin during the trials.
        self.jobs.remember_runs(&self.plan.config, self.plan.source.file());
        self.purges.prepare_second_front(&mut self.fronts, now);
        self.pools.keep_users(&mut self.plan.config);
        self.find_users(true);
        let config = self.plan.config.clone();
        // A pool at rest stays at rest, or a hundred of them would start PHP at once; but some pool
        // has to show that PHP starts at all.
        let running = config.pools.iter().filter(|pool| !self.pools.is_at_rest(&pool.name)).count();
        let mut tried = if running > 0 { TRIED_AT_REST } else { 0 };
        // A pool that does not run, or whose site has gone, is left to the checks of faults.
        let faults = self.plan.faults.clone();
        let is_left = |name: &str| faults.stops_with_site(name);
        for pool in config.pools.iter().filter(|pool| !is_left(&pool.name)) {
            if faults.stops_pool(&pool.name) && self.pools.current_of(&pool.name).is_none() {
                continue;
            }
            match self.plan_trial(pool, &config) {
                Ok(mut plan) => {
                    plan.settings.cache_size = self.pools.opcache_size(pool, &config);
                    let generation = self.pools.next_generation();
                    let line = self.fronts.line() + 1;
                    let workers = self.pools.workers_of(&pool.name);
                    self.pools.push(
                        if self.pools.is_at_rest(&pool.name) && tried >= TRIED_AT_REST {
                            RunningPool::at_rest(generation, line, plan)
                        } else {
                            RunningPool::on_trial(generation, line, plan, workers)
                        },
                    );
                    tried += 1;
                }
                Err(why) => {
                    let loss = Loss::Pool(pool.name.clone());
                    let section = Some(Section::Pool(pool.name.clone()));
                    let fault = Fault { section, loss, sentence: why.to_string() };
                    error!("{fault}");
                    self.plan.faults.add(fault);
                }
            }
        }
    }

    /// Plans a pool. One that serves goes on with its user while that cannot be looked up.
    fn plan_trial(&self, pool: &Pool, config: &Config) -> Result<PoolPlan, Error> {
        let user = identity::of_pool(pool, config).or_else(|_| {
            // Where users can be looked up again by now, the first error says nothing.
            let lost = self.pools.lost_user(pool);
            lost.map_or_else(|| identity::of_pool(pool, config), |user| Ok(Some(user)))
        })?;
        PoolPlan::make_as(user, pool, config, &self.plan.programs, self.plan.threads)
    }

    /// Looks up the users of the configuration in use, which are others from now on if `changes`.
    fn find_users(&mut self, changes: bool) {
        let in_use = self.plan.config.clone();
        self.pools.find_users(&in_use, &mut self.plan.config, changes);
    }

    /// Starts the new front once every generation on trial has a worker that is ready, or needs
    /// none.
    fn judge_trials(&mut self, late: bool) {
        let now = self.now();
        let line = self.fronts.line() + 1;
        // Generations of an upgrade that failed are of the same line, and may still be leaving.
        let new = self.pools.iter();
        let new: Vec<PoolId> = new
            .filter(|pool| pool.line == line && !pool.state.is_leaving())
            .map(RunningPool::id)
            .collect();
        let ready = |id: &PoolId| {
            let state = &self.pools[*id].state;
            let serves = state.wants_none() || state.seated().next().is_some();
            self.upgrader.has_failed(*id) || (!state.is_on_trial() && serves)
        };
        if !new.iter().all(ready) || self.purges.prepares_upgrade() {
            if late {
                let limit = crate::limits::TRIAL.as_secs();
                self.take_back(&format!("not every pool had a worker within {limit} s"));
            }
            return;
        }
        let starts = |id: &PoolId| !self.upgrader.has_failed(*id) && self.pools[*id].php.is_some();
        if !new.iter().any(starts) {
            let failed = self.upgrader.failed().first();
            let why = failed.map_or("no pool can be started", |(_, why)| why).to_owned();
            return self.take_back(&why);
        }
        for (_, why) in self.upgrader.failed() {
            error!(
                "the upgrade goes on without a pool, whose requests get a 503 until it is fixed: \
                 {why}"
            );
        }
        for id in new {
            self.pools.take_place(id);
        }
        self.fronts.replace_current();
        self.upgrader.open_front(now);
    }

    /// The new front accepts clients: the old one finishes its requests, and gives its workers up.
    pub(super) fn front_has_taken_over(&mut self) {
        self.upgrader.end();
        // Before the former generations leave, whose users may be others.
        let line = self.fronts.line();
        let to_other_users = self.pools.of_other_users(&self.plan.config);
        let stopped = self.pools.without_line(line);
        self.jobs.retire_pools(&(&to_other_users | &stopped), self.now());
        self.follow_jobs(|name| stopped.contains(name));
        let handed_over = self.fronts.hand_over(self.now());
        let draining = handed_over.filter(|(_, runs)| *runs).map(|(old, _)| old);
        for id in self.pools.ids() {
            let pool = &self.pools[id];
            // A copy leaves after few requests: without others, the old front could not finish.
            let is_needed = draining == Some(pool.line) && pool.is_copied();
            if is_needed && pool.is_current() {
                self.pool_event(id, GenerationEvent::LeaveWithFront);
            } else if pool.line != line && !pool.state.leaves_with_front() {
                // Copies of an earlier upgrade are made until the front of their line has ended.
                self.pool_event(id, GenerationEvent::Leave);
            }
        }
        if let Some((old, false)) = handed_over {
            self.dismiss_workers_of(old);
        }
        info!(
            "upgraded to {} {}; front {} accepts clients",
            env!("CARGO_PKG_NAME").trim_end_matches("-supervisor"),
            env!("CARGO_PKG_VERSION"),
            self.fronts.current().epoch
        );
    }

    /// The upgrade has failed: the old front and its generations stay.
    fn take_back(&mut self, why: &str) {
        self.upgrader.end();
        let given_up = self.fronts.take_back();
        let line = given_up.as_ref().map_or(self.fronts.line() + 1, |front| front.line);
        if let Some(Front { epoch, peer: Some(_), .. }) = given_up {
            self.scoreboards.clear_front(epoch);
        }
        for id in self.pools.ids() {
            if self.pools[id].line == line {
                self.pool_event(id, GenerationEvent::Leave);
            }
        }
        // The old front knows its pools by the users that they run as.
        self.find_users(false);
        self.dismiss_workers_of(line);
        self.end_purges_of(line);
        self.fpm.forget_program();
        error!(
            "the new program runs with the front and the workers of the one before: {why}; correct \
             that and upgrade again"
        );
    }

    /// Dismisses the workers that no front uses any more.
    pub(super) fn dismiss_workers_of(&mut self, line: u32) {
        for id in self.pools.ids() {
            if self.pools[id].line != line {
                continue;
            }
            // One that has left with its front makes no further copy.
            if self.pools[id].state.is_leaving() {
                self.pool_event(id, GenerationEvent::Leave);
            }
            let seated: Vec<_> = self.pools[id].state.seated().collect();
            for seated in seated {
                let worker = seated.worker;
                self.pool_event(id, GenerationEvent::Retired { worker });
            }
        }
    }
}

/// The state of the server, for the next program.
fn handover(server: &Supervisor) -> HandoverState {
    HandoverState::of(&Running {
        plan: &server.plan,
        pools: &server.pools,
        fronts: &server.fronts,
        cookies: &server.cookies,
        scoreboards: &server.scoreboards,
        jobs: &server.jobs,
        purge_log: server.purge_log.handover(server.purges.unsent()),
        systemd: server.systemd.notified(),
        reload_later: server.reloader.is_postponed(),
        stuck_lookups: server.lookups.stuck(),
        stuck_pipe_readers: server.pipe_reader.stuck(),
        now: server.now(),
    })
}
