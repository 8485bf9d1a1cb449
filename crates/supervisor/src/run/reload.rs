//! The steps of a reload: another configuration, or the same pools restarted, while the server
//! serves. See [`crate::reload`].

use std::collections::BTreeSet;
use std::os::fd::AsFd;

use maitred_config::Config;
use maitred_control::ToFront;
use maitred_os::shared;
use maitred_os::signals::Signal;
use tracing::{error, info, warn};

use super::Supervisor;
use super::folder_lookups::{TAKEN_OVER, log_refused};
use crate::capacity::spare_zygotes;
use crate::error::Error;
use crate::fpm;
use crate::fronts::cookies;
use crate::fronts::log_manager::{LogManager, reopen_error_log};
use crate::limits::{CONSENT, Moment, TRIAL};
use crate::listen::{self, KnownListeners};
use crate::peer::Peer;
use crate::plan::config_source::Invocation;
use crate::plan::examined_config::ExaminedConfig;
use crate::processes::generation::GenerationEvent;
use crate::processes::plan::PoolPlan;
use crate::processes::pools::PoolId;
use crate::processes::running_pool::RunningPool;
use crate::reload::pool_changes::{self, PoolChanges};
use crate::reload::{FrontReply, Reload, ReloadScope, Settling, Ticket, needs_restart};
use crate::system::cgroups::Groups;
use crate::system::deferred_close;
use crate::system::identity;
use crate::system::programs::Programs;
use crate::tls::certificates::Certificates;

impl Supervisor {
    /// Reloads as soon as no upgrade is going on.
    pub(super) fn reload_when_possible(&mut self) {
        let is_postponed = self.upgrader.is_going_on();
        self.reloader.postpone(is_postponed);
        if is_postponed {
            return info!("the reload begins when the upgrade is over");
        }
        info!("SIGHUP: reloading");
        self.reload_changes();
    }

    fn reload_changes(&mut self) {
        self.systemd.reloads(self.now());
        if let Err(why) = self.reload(ReloadScope::Changed) {
            log_refused(&why, &ReloadScope::Changed);
        }
    }

    /// Reloads when the configuration file has changed, if it is watched.
    pub(super) fn watch_configuration(&mut self) {
        let now = self.now();
        let is_busy = self.upgrader.is_going_on() || !self.phase.is_serving();
        let Some(file) = self.plan.source.watched_file().filter(|_| !is_busy) else {
            return;
        };
        if self.config_watch.has_changed(file, now) {
            info!("{} has changed: reloading", file.display());
            self.reload_changes();
        }
    }

    /// Starts a reload or an upgrade that had to wait for another one to be over.
    pub(super) fn start_postponed(&mut self) {
        if self.plan.is_fpm() {
            return self.start_postponed_as_fpm();
        }
        if self.upgrader.is_going_on() {
            return;
        }
        if self.reloader.is_postponed() {
            self.reload_when_possible();
        }
        if self.upgrader.is_postponed() && !self.reloader.is_going_on() {
            self.upgrade();
        }
    }

    /// Restarts every pool, as php-fpm's reload does, as soon as nothing else is going on. Requests
    /// that arrive meanwhile are one further reload, since the configuration may have changed.
    fn start_postponed_as_fpm(&mut self) {
        let is_free = !self.upgrader.is_going_on() && !self.reloader.is_going_on();
        if !self.reloader.is_postponed() || !is_free || !self.phase.is_serving() {
            return;
        }
        let Invocation { program, arguments, .. } = &self.plan.invocation;
        if self.fpm.announce_reload(program, arguments) {
            self.systemd.reloads(self.now());
        }
        if self.fpm.needs_upgrade(program) {
            // The reload follows even if this fails.
            info!("another program lies where ours lay; it takes over first");
            return self.upgrade();
        }
        self.reloader.postpone(false);
        self.fpm.reload_started();
        if let Err(why) = self.reload(ReloadScope::All) {
            log_refused(&why, &ReloadScope::All);
        }
    }

    /// Goes on with a reload whose configuration was examined.
    ///
    /// # Errors
    /// One sentence or more; nothing has been changed then.
    pub(super) fn reload_to(
        &mut self,
        mut examined: ExaminedConfig,
        scope: &ReloadScope,
        ticket: Ticket,
    ) -> Result<(), String> {
        let (mut findings, programs) = self.plan.findings(&mut examined);
        let ExaminedConfig { mut config, warnings, .. } = examined;
        let changes_users = *scope != ReloadScope::Mended;
        self.pools.keep_owners(&self.plan.config, &mut config, changes_users);
        self.pools.find_users(&self.plan.config, &mut config, changes_users);
        identity::distrust_groups(&config);
        let certificates = Certificates::of(&config, self.plan.certificates.as_ref());
        let certificates = certificates.map_err(|why| why.to_string())?;
        findings.faults.extend(certificates.iter().flat_map(Certificates::faults));
        let obstacles = findings.obstacles(&config, self.plan.invocation.strict);
        if !obstacles.is_empty() {
            return Err(Error::all(obstacles).to_string());
        }
        let faults = findings.faults;
        let runs = |name: &str| {
            self.pools.current_of(name).is_some() || !self.plan.faults.stops_pool(name)
        };
        let stays = pool_changes::keep_what_needs_a_restart(&self.plan.config, &mut config, runs);
        if !stays.is_empty() {
            warn!("{}", needs_restart(&stays));
        }
        let logs = self.plan.logs.open_for(&config, &self.plan.config)?;
        let configured: Vec<&str> = config.pools.iter().map(|pool| pool.name.as_str()).collect();
        let mut requested = scope.names(&config);
        requested.extend(self.reloader.unfinished(&configured));
        let mut changes =
            pool_changes::compare(&self.pools.compared(&config), &configured, &requested)?;
        changes.change_users(self.pools.of_other_users(&config));
        changes.stop(self.pools.without_owner(&config));
        let kept = changes.leave(|name| faults.stops_pool(name)).into_iter();
        let kept = kept.map(|name| (name, "it cannot be started now".to_owned())).collect();
        let known = KnownListeners {
            in_use: &self.plan.listeners,
            unaccepted: self.reloader.unaccepted_listeners(),
        };
        let mut listeners = listen::open_others(&config, known, self.plan.threads)
            .map_err(|why| why.to_string())?;
        let faults = self.plan.with_lost(faults, &mut listeners, &config)?;
        self.give_up_reload(TAKEN_OVER);
        let mut reload = Reload {
            listeners,
            logs,
            certificates,
            faults,
            warnings,
            kept,
            changes_users,
            lets_rest: *scope == ReloadScope::All,
            stays,
            ..Reload::new(ticket, config, changes, self.now())
        };
        self.plan.programs = programs;
        Groups::arrange_added(&mut self.plan.groups, &reload.config, &reload.changes.added);
        self.add_pools(&mut reload);
        if *scope != ReloadScope::Mended {
            let replaced = &reload.changes.restarted | &reload.changes.to_other_users;
            self.preloading.reloading(&replaced);
        }
        self.reloader.start(reload);
        self.send_configuration();
        self.retry_all_starts();
        Ok(())
    }

    /// Gives the current reload up.
    pub(super) fn give_up_reload(&mut self, why: &str) {
        let Some(reload) = self.reloader.take() else {
            return;
        };
        for id in self.pools.ids() {
            if !self.pools[id].introduced {
                self.pool_event(id, GenerationEvent::Leave);
            }
        }
        self.reloader.give_up(reload.ticket, why, self.plan.is_fpm());
    }

    /// Plans the next generation of a pool.
    pub(super) fn plan_pool(&mut self, name: &str, reload: &Reload) -> Result<PoolPlan, String> {
        let config = &reload.config;
        let pool = config.pool(name).ok_or_else(|| format!("pool `{name}` is not configured"))?;
        deferred_close::check(name)?;
        let scoreboard = self.scoreboards.add(name);
        scoreboard.map_err(|why| format!("its scoreboard cannot be made: {why}"))?;
        let plan = PoolPlan::make(pool, config, &self.plan.programs, self.plan.threads);
        let mut plan = plan.map_err(|why| why.to_string())?;
        let before = self.pools.current_of(name).filter(|_| !reload.changes_users);
        before.map_or(Ok(()), |before| plan.keeps_user_of(&before.plan))?;
        plan.has_user_of(pool)?;
        self.scoreboards.applications.add(name, plan.uid);
        plan.settings.cache_size = self.pools.opcache_size(pool, config);
        Ok(plan)
    }

    /// Sends the front the new configuration. A front that is being started gets it later, and
    /// cannot refuse it.
    fn send_configuration(&mut self) {
        let (Some(reload), Some(peer)) = (self.reloader.current(), self.fronts.peer()) else {
            return self.configuration_taken(None);
        };
        match reconfigure(peer, &reload.config, &reload.logs) {
            Ok(()) => self.reloader.configuration_sent(),
            Err(why) => self.configuration_taken(Some(why)),
        }
    }

    /// The front has replied to a configuration; `refused`: why it does not use it.
    pub(super) fn front_reconfigured(&mut self, refused: Option<String>) {
        let reply = self.reloader.front_replied(refused.is_none());
        if reply == FrontReply::Superseded {
            return;
        }
        let why = refused.clone().unwrap_or_default();
        self.configuration_taken(refused);
        match reply {
            FrontReply::Superseded | FrontReply::Final => {}
            FrontReply::Astray => self.restore_front(),
            FrontReply::Lost => self.kill_front(&format!("it refuses the former settings: {why}")),
        }
    }

    /// Sends the front the configuration in use: it has accepted that of a reload which was given
    /// up, and refused the one after it.
    fn restore_front(&mut self) {
        // One that is being started gets it anyway.
        let Some(peer) = self.fronts.peer() else {
            return;
        };
        match reconfigure(peer, &self.plan.config, &self.plan.logs) {
            Ok(()) => self.reloader.restoration_sent(self.started.elapsed()),
            Err(why) => self.kill_front(&why),
        }
    }

    /// The front uses the configuration, or has refused it, and why.
    pub(super) fn configuration_taken(&mut self, refused: Option<String>) {
        let Some(mut reload) = self.reloader.take_unaccepted() else {
            return;
        };
        if let Some(why) = refused {
            let (added, config) = (&reload.changes.added, &self.plan.config);
            // A reload that this one has taken over may have added others.
            let stays = |name: &str| config.pool(name).is_some() && !added.contains(name);
            for id in self.pools.current_unless(stays) {
                self.close_pool(id);
            }
            (self.plan.programs, _) = Programs::find(&self.plan.config);
            let why = format!("the reload is refused, all is as before: {why}");
            return self.reloader.finish(reload.ticket, Err(why));
        }
        self.change_users(&mut reload);
        // A pool that did not run has no jobs of its own.
        self.jobs.retire_pools(&reload.changes.added, self.now());
        self.use_configuration(&mut reload);
        self.end_jobs_of_former_users(&reload.changes);
        let PoolChanges { removed, stopped, .. } = &reload.changes;
        for id in self.pools.current_among(&(removed | stopped)) {
            self.close_pool(id);
        }
        reload.accepted = true;
        reload.since = self.now();
        self.start_reload_trials(&mut reload);
        self.reloader.start(reload);
    }

    /// Uses the configuration of a reload from now on.
    fn use_configuration(&mut self, reload: &mut Reload) {
        let error_log = self.plan.config.error_log != reload.config.error_log;
        let is_same_log = self.plan.config.access_log == reload.config.access_log;
        cookies::follow(&mut self.cookies, &self.plan.config, &reload.config);
        self.plan.config = reload.config.clone();
        self.plan.limit(&reload.config);
        reload.warnings.iter().for_each(|warning| warn!("{warning}"));
        self.follow_faults(reload.faults.clone());
        self.keep_groups();
        self.plan.follow_configuration();
        let now = self.now();
        self.systemd.follow(self.plan.config.fpm.as_ref(), now);
        self.phase.stop_within(super::stop_times(&reload.config));
        let is_kept = |name: &str| reload.kept.iter().any(|(kept, _)| kept == name);
        let PoolChanges { restarted, to_other_users, stopped, .. } = &reload.changes;
        let later = [restarted, to_other_users, stopped];
        self.follow_jobs(|name| later.iter().any(|pools| pools.contains(name)) || is_kept(name));
        let logs = std::mem::take(&mut reload.logs);
        self.plan.logs.switch_to(&reload.config, logs, is_same_log);
        if let Some(peer) = self.fronts.peer().filter(|_| !is_same_log) {
            // The former one may have been opened again since the front got this one.
            self.plan.logs.tell_access_log(peer);
        }
        if error_log {
            reopen_error_log(&self.plan.config, &mut self.fronts);
        }
        if self.plan.is_fpm() {
            listen::announce(&self.plan.listeners);
        }
        let before = self.plan.certificates.take();
        self.plan.certificates = reload.certificates.take();
        self.acme.changed(true);
        if let (Some(new), Some(peer)) = (&mut self.plan.certificates, self.fronts.peer()) {
            new.complain();
            if !before.is_some_and(|before| before.is_same_as(new)) {
                new.tell(peer);
            }
        }
        let opened = std::mem::take(&mut reload.listeners);
        let more: usize = opened.new.iter().map(|one| one.sockets.len()).sum();
        let descriptors = self.plan.descriptors_of_front(&self.pools);
        self.fronts.allow(descriptors.saturating_add(more));
        self.plan.switch_listeners(opened, self.fronts.peer());
    }

    /// Gives the pools that are to be restarted another generation beside the one that serves.
    fn start_reload_trials(&mut self, reload: &mut Reload) {
        for name in reload.changes.restarted.clone() {
            match self.plan_pool(&name, reload) {
                Ok(mut plan) => {
                    let list = self.preloading.take_list(&name);
                    if let Some(list) = list.filter(|_| reload.preloading.contains(&name)) {
                        plan.preload(list);
                    }
                    let generation = self.pools.next_generation();
                    let (line, workers) = (self.fronts.line(), self.pools.workers_of(&name));
                    self.pools.push(if reload.lets_rest && self.pools.is_at_rest(&name) {
                        RunningPool::at_rest(generation, line, plan)
                    } else {
                        RunningPool::on_trial(generation, line, plan, workers)
                    });
                }
                Err(why) => {
                    self.pools.larger_opcache_failed(&name, false);
                    reload.kept.push((name, why));
                }
            }
        }
    }

    pub(super) fn close_pool(&mut self, id: PoolId) {
        let running = &mut self.pools[id];
        if let Some(peer) = self.fronts.peer_of(running.line) {
            running.close_in(peer);
        }
        running.closed = true;
        self.pool_event(id, GenerationEvent::Leave);
    }

    /// A generation on trial has failed: the previous one continues to serve. One of a new program
    /// stays, as a pool that does not start: the previous one ends with its front.
    pub(super) fn trial_failed(&mut self, id: PoolId, why: &str) {
        let running = &mut self.pools[id];
        if running.introduced || running.state.is_leaving() {
            return;
        }
        let name = running.plan.settings.pool.clone();
        let is_of_reload = running.line == self.fronts.line() && !self.upgrader.has_failed(id);
        if !is_of_reload {
            let why =
                running.start_error.clone().unwrap_or_else(|| format!("pool `{name}`: {why}"));
            self.pools.larger_opcache_failed(&name, false);
            self.upgrader.trial_failed(id, why);
            return self.pool_event(id, GenerationEvent::Passed);
        }
        let why = running.start_error.take().unwrap_or_else(|| why.to_owned());
        let is_for_opcache = self.reloader.is_for_opcache(&name);
        self.pools.larger_opcache_failed(&name, is_for_opcache);
        self.pool_event(id, GenerationEvent::Leave);
        self.restarts.failed(&name, self.now());
        self.reloader.kept(&name, why);
    }

    /// A generation has passed its trial, or needs none: it serves from now on, and those before it
    /// leave.
    pub(super) fn introduce_generation(&mut self, id: PoolId) {
        self.pools.take_place(id);
        let descriptors = self.plan.descriptors_of_front(&self.pools);
        self.fronts.allow(descriptors);
        let running = &self.pools[id];
        if let Some(peer) = self.fronts.peer() {
            running.open_in(peer, &self.scoreboards, &self.pools);
        }
        let name = running.name().to_owned();
        for other in self.pools.current_before(id) {
            self.pool_event(other, GenerationEvent::Leave);
        }
        self.renew_jobs(&name);
        self.reloader.replaced(&name);
    }

    /// Does what is due for a reload.
    pub(super) fn keep_reload(&mut self) {
        let now = self.now();
        for id in self.pools.give_up_warming(now) {
            self.pool_event(id, GenerationEvent::Passed);
        }
        if self.reloader.front_is_silent(now) {
            // It is stuck, and may still use the configuration later.
            let why = format!("the front said nothing for {} s", CONSENT.as_secs());
            if let Some(peer) = self.fronts.peer() {
                error!("the front is killed: {why} about a configuration");
                peer.signal(Signal::SIGKILL);
            }
            self.configuration_taken(Some(why));
        }
        let (late, line) = (self.reloader.trial_is_over(now), self.fronts.line());
        for id in self.pools.ids() {
            let running = &self.pools[id];
            if !running.is_undecided(line) {
                continue;
            }
            if late {
                let why = format!("no worker was ready within {} s", TRIAL.as_secs());
                self.trial_failed(id, &why);
            } else if !running.state.is_on_trial() && running.state.wants_none() {
                self.introduce_generation(id);
            }
        }
        self.limit_workers();
        self.remove_ended();
        if self.pools.iter().any(|pool| pool.is_undecided(line)) {
            return;
        }
        let (moved, old_workers) = (self.pools.have_moved(), self.pools.leaving_workers());
        if let Some((mark, late)) = self.reloader.settle(moved, old_workers, now) {
            match self.fronts.peer().filter(|_| !late) {
                Some(peer) => peer.say(ToFront::Settle { mark }, &[]),
                None => self.settled(mark),
            }
        }
    }

    /// The front has followed all orders before this one. A reload is over then, if no old worker
    /// has ended since: the front sends no request to an old worker while a new one is ready.
    pub(super) fn settled(&mut self, mark: u64) {
        let old_workers = self.pools.leaving_workers();
        let Some(reload) = self.reloader.settled(Settling { mark, old_workers }) else {
            return;
        };
        let unchanged = self.pools.current().count();
        let unchanged = unchanged.saturating_sub(reload.replaced.len() + reload.kept.len());
        let outcome = reload.outcome(unchanged, old_workers);
        self.reloader.finish(reload.ticket, outcome);
        if self.plan.is_fpm() {
            fpm::log_ready_again();
        }
    }

    /// Tells every generation how many workers the others of its pool leave it.
    fn limit_workers(&mut self) {
        let now = self.now();
        let process_max = self.plan.config.fpm.as_ref().map_or(0, |fpm| fpm.process_max);
        let shares = self.fpm.share_process_max(&self.pools, process_max, now);
        for id in self.pools.ids() {
            if self.pools[id].state.is_leaving() {
                continue;
            }
            let share = shares.get(self.pools[id].name()).copied();
            let workers = if self.upgrader.holds_still() {
                0
            } else {
                self.pools.allowance(id, share.unwrap_or(u32::MAX))
            };
            if self.pools[id].allowed != workers {
                self.pools[id].allowed = workers;
                self.pool_event(id, GenerationEvent::Allowed { workers });
            }
        }
    }

    /// Removes generations of which nothing is left.
    fn remove_ended(&mut self) {
        let now = self.now();
        let mut has_gone = false;
        for id in self.pools.ids().into_iter().rev() {
            let running = &mut self.pools[id];
            let is_gone = running.state.is_gone() && running.zygote.is_none();
            if !is_gone || !running.is_drained(now) {
                continue;
            }
            let mut ended = self.pools.remove(id);
            ended.show_copy_counters(&self.scoreboards);
            ended.end_outputs(self.plan.fpm_log_level(), now);
            if self.pools.named(ended.name()).next().is_none() {
                self.scoreboards.forget(ended.name());
                has_gone = true;
            }
            let generation = ended.generation;
            if ended.introduced {
                self.fronts.tell(ended.line, ToFront::ForgetPool { generation });
            }
        }
        if has_gone {
            self.keep_groups();
        } else if let Some(groups) = &mut self.plan.groups {
            groups.try_again(now);
        }
    }

    /// Removes the control groups of pools that were removed.
    fn keep_groups(&mut self) {
        let Some(groups) = &mut self.plan.groups else { return };
        let configured = self.plan.config.pools.iter().map(|pool| pool.name.as_str());
        let running = self.pools.iter().map(RunningPool::name);
        let used: BTreeSet<&str> = configured.chain(running).collect();
        groups.keep(|name| used.contains(name));
    }

    /// When pools are to be restarted; nothing while something else comes first, whose end is an
    /// event: a check of faults may lead to a reload.
    pub(super) fn restarts_deadline(&self) -> Option<Moment> {
        let is_free = self.phase.is_serving() && !self.upgrader.is_going_on();
        let is_free = is_free && !self.reloader.is_going_on() && !self.lookups.are_made();
        self.restarts.deadline().filter(|_| is_free)
    }

    /// Restarts pools whose scripts have changed, whose OPcache is full, or whose memory was
    /// corrupted, by the configuration in use. Its file is not read: that it is complete only a
    /// reload says.
    pub(super) fn restart_outdated(&mut self) {
        let now = self.now();
        if !self.reloader.is_going_on() && !self.restarts.is_empty() {
            self.restarts.are_over(now);
        }
        if self.restarts_deadline().is_none() {
            return;
        }
        let due = self.restarts.take_due(&self.pools, now);
        if due.pools.is_empty() {
            return;
        }
        let changes = PoolChanges { restarted: due.pools, ..PoolChanges::default() };
        let ticket = self.reloader.next_ticket();
        let mut reload = Reload {
            outgrown: due.outgrown,
            preloading: due.preloading,
            // The front has this configuration.
            accepted: true,
            ..Reload::new(ticket, self.plan.config.clone(), changes, now)
        };
        self.start_reload_trials(&mut reload);
        self.reloader.start(reload);
    }

    /// Lets zygotes stay or rest that have no workers.
    pub(super) fn keep_spare_zygotes(&mut self) {
        if self.phase.is_start() || !self.phase.wants_workers() {
            return;
        }
        let level = self.capacity.level(&self.pools);
        let configured = self.plan.config.spare_zygotes;
        for id in spare_zygotes::keep(&mut self.pools, configured, level) {
            self.pool_event(id, GenerationEvent::Tick);
        }
    }
}

/// Sends a front a configuration and its log files.
fn reconfigure(peer: &mut Peer<ToFront>, config: &Config, logs: &LogManager) -> Result<(), String> {
    let file = serde_json::to_vec(config).map_err(std::io::Error::from);
    let file = file.and_then(|json| shared::file_with("maitred-configuration", &json));
    let file = file.map_err(|why| format!("the front cannot be sent the configuration: {why}"))?;
    let log = logs.access_log().map(AsFd::as_fd);
    let fds: Vec<_> = std::iter::once(file.as_fd()).chain(log).collect();
    logs.tell_pool_logs(peer);
    peer.say(ToFront::Reconfigure, &fds);
    Ok(())
}
