//! Reload: another configuration, or the same pools anew, while everything goes on.
//!
//! ```text
//!   asked ──▶ read, checked ──▶ told to the front ──▶ each changed pool on trial ──▶ done
//!                │ refused            │ refused                 │ failed
//!                ▼                    ▼                         ▼
//!           all is as before     all is as before     that pool keeps its generation
//! ```
//!
//! A generation on trial has a zygote of its own, and no worker. When PHP runs there and its first
//! worker is ready, the front is told, and from then on every worker of it takes the place of one
//! of the generation before ([`Supervisor::share_out`]).

mod outcome;
pub mod pool_changes;
mod restart;
pub mod restart_requests;
pub mod watch;
mod worker_limits;

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;

use maitred_config::Config;
use maitred_config::Listening;
use maitred_control::{Generation, ToFront};
use maitred_os::shared;
use maitred_os::signals::Signal;
use std::os::fd::AsFd;
use tracing::{error, info, warn};

use crate::fpm;
use crate::fronts::cookies;
use crate::limits::{CONSENT, MOVE_OVER, Moment, TRIAL};
use crate::listen::{self, Listener, OpenedListeners};
use crate::logging::pool_access_logs::PoolAccessLogs;
use crate::processes::generation;
use crate::processes::plan::PoolPlan;
use crate::processes::pools::PoolId;
use crate::processes::running_pool::RunningPool;
use crate::reload::pool_changes::{ComparedPool, PoolChanges};
use crate::run::Supervisor;
use crate::tls::certificates::Certificates;

/// Most outcomes kept for those who ask what became of their reload.
const MAX_OUTCOMES: usize = 64;

/// Number of a reload, from 1.
pub type Ticket = u64;

/// What became of a reload: a sentence about what was done, or about what was not.
pub type Outcome = Result<String, String>;

/// The reload that is going on, and what became of those before.
#[derive(Debug, Default)]
pub struct Reloader {
    last: Ticket,
    now: Option<Reload>,
    /// Configurations the front has been sent and has not answered for.
    unanswered: u32,
    outcomes: VecDeque<(Ticket, Outcome)>,
}

/// Which pools a reload gives a new generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReloadScope {
    /// Those that have changed.
    Changed,
    /// Those of these names, too.
    Named(Vec<String>),
    /// All of them, as php-fpm does. One at rest stays so: its first request starts PHP.
    All,
}

#[derive(Debug)]
struct Reload {
    ticket: Ticket,
    config: Config,
    /// Where clients are to be listened for, those included that were there before.
    opened: OpenedListeners,
    /// The access log, if it is a file.
    access_log: Option<File>,
    /// The access logs of doors that were not open before.
    door_logs: PoolAccessLogs,
    /// The certificates and keys of TLS.
    certificates: Option<Certificates>,
    changes: PoolChanges,
    /// Pools that are anew for a larger OPcache and nothing else.
    outgrown: BTreeSet<String>,
    /// Pools at rest need not show that their PHP starts.
    lets_rest: bool,
    /// The front has taken the configuration over.
    accepted: bool,
    since: Moment,
    /// When the old workers are not waited for any longer, once that is all there is to wait for.
    moving_until: Option<Moment>,
    /// The front was asked whether it has followed all orders, when there were so many workers.
    asked: Option<(u64, usize)>,
    replaced: Vec<String>,
    /// Pools that keep what they had, and why.
    kept: Vec<(String, String)>,
    /// Settings that were changed and stay as they were until a restart.
    stays: Vec<&'static str>,
}

impl Reloader {
    /// What became of a reload; nothing: it is going on, or long forgotten.
    pub fn outcome(&self, ticket: Ticket) -> Option<&Outcome> {
        let mut outcomes = self.outcomes.iter();
        Some(&outcomes.find(|(known, _)| *known == ticket)?.1)
    }

    fn finish(&mut self, ticket: Ticket, outcome: Outcome) {
        if self.outcomes.len() >= MAX_OUTCOMES {
            self.outcomes.pop_front();
        }
        self.outcomes.push_back((ticket, outcome));
    }

    /// Whether one is going on.
    pub fn is_going_on(&self) -> bool {
        self.now.is_some()
    }

    /// When a trial has taken too long.
    pub fn deadline(&self) -> Option<Moment> {
        let reload = self.now.as_ref()?;
        if !reload.accepted {
            return Some(reload.since + CONSENT);
        }
        Some(reload.moving_until.unwrap_or(reload.since + TRIAL))
    }
}

impl Supervisor {
    /// Begins a reload: the configuration is read again, and pools that have changed, and those that
    /// `anew` names, get a new generation. A reload that is going on is taken into this one.
    ///
    /// # Errors
    /// One sentence or more; nothing has been changed then.
    pub fn reload(&mut self, anew: &ReloadScope) -> Result<Ticket, String> {
        if !self.phase.is_serving() {
            return Err("the server is starting or ending, and cannot be reloaded now".to_owned());
        }
        if self.upgrade.is_some() {
            return Err("an upgrade is going on; reload when it is over".to_owned());
        }
        let mut config = self.plan.source.load()?;
        let (mistakes, programs) = crate::examine(&config, self.plan.source.file());
        let mut mistakes = mistakes.into_iter().map(|why| why.to_string());
        if let Some(first) = mistakes.next() {
            return Err(mistakes.fold(first, |all, why| format!("{all}\n{why}")));
        }
        let stays = pool_changes::keep_what_needs_a_restart(&self.plan.config, &mut config);
        if !stays.is_empty() {
            warn!("{}", outcome::needs_restart(&stays));
        }
        if let Some(why) = config.site_outside_of_chroot() {
            return Err(format!("a chroot that has changed needs a restart: {why}"));
        }
        let access_log = self.logs_of(&config)?;
        let door_logs = PoolAccessLogs::open(&config, &self.plan.door_logs);
        let door_logs = door_logs.map_err(|why| why.to_string())?;
        let certificates = Certificates::of(&config, self.plan.certificates.as_ref());
        let certificates = certificates.map_err(|why| why.to_string())?;
        let mut asked = anew.names(&config);
        let unfinished = self.reloads.now.as_ref().map(|reload| &reload.changes.anew);
        let configured: Vec<&str> = config.pools.iter().map(|pool| pool.name.as_str()).collect();
        let unfinished = unfinished.into_iter().flatten();
        asked.extend(
            unfinished
                .filter(|name| configured.contains(&name.as_str()))
                .cloned(),
        );
        let changes = pool_changes::compare(&self.compared(&config), &configured, &asked)?;
        let opened = listen::open_others(&config, &self.plan.listeners, self.plan.threads)
            .map_err(|why| why.to_string())?;
        self.give_up_reload("a later reload has taken over what this one had not done yet");
        let now = self.now();
        let ticket = self.reloads.last + 1;
        self.reloads.last = ticket;
        let mut reload = Reload {
            ticket,
            config,
            opened,
            access_log,
            door_logs,
            certificates,
            changes,
            outgrown: BTreeSet::new(),
            lets_rest: *anew == ReloadScope::All,
            accepted: false,
            since: now,
            moving_until: None,
            asked: None,
            replaced: Vec::new(),
            kept: Vec::new(),
            stays,
        };
        self.plan.programs = programs;
        self.plan.limit(&reload.config);
        self.add_pools(&mut reload);
        self.reloads.now = Some(reload);
        self.tell_configuration();
        Ok(ticket)
    }

    fn compared(&self, config: &Config) -> Vec<ComparedPool<'_>> {
        let in_use = self.pools.iter().filter(|pool| pool.is_current());
        in_use
            .map(|pool| ComparedPool {
                name: &pool.plan.settings.pool,
                differs: config
                    .pool(&pool.plan.settings.pool)
                    .is_some_and(|wanted| pool.plan.differs(wanted, config)),
            })
            .collect()
    }

    /// A reload that is going on is given up, and why: a later one does what this one has not done
    /// yet, or the server stops.
    pub fn give_up_reload(&mut self, why: &str) {
        let Some(reload) = self.reloads.now.take() else {
            return;
        };
        for id in self.pools.ids() {
            if !self.pools[id].introduced {
                self.pool_event(id, generation::GenerationEvent::Leave);
            }
        }
        match self.is_fpm() {
            true => info!("{why}"),
            false => error!("{why}"),
        }
        self.reloads.finish(reload.ticket, Err(why.to_owned()));
    }

    /// A reload is over, well or not.
    fn finish_reload(&mut self, ticket: Ticket, outcome: Outcome) {
        match &outcome {
            Ok(done) => info!("{done}"),
            Err(why) => error!("{why}"),
        }
        self.reloads.finish(ticket, outcome);
    }

    /// New pools need no trial: there is nothing that could be kept instead.
    fn add_pools(&mut self, reload: &mut Reload) {
        for name in reload.changes.added.clone() {
            match self.plan_pool(&name, &reload.config) {
                Ok(plan) => {
                    let generation = self.next_generation();
                    let running = RunningPool::new(generation, self.front.line, plan);
                    let id = self.pools.push(running);
                    self.introduce_generation(id);
                    reload.replaced.push(name);
                }
                Err(why) => reload.kept.push((name, why)),
            }
        }
    }

    fn plan_pool(&mut self, name: &str, config: &Config) -> Result<PoolPlan, String> {
        let pool = config
            .pool(name)
            .ok_or_else(|| format!("pool `{name}` is not configured"))?;
        let scoreboard = self.scores.add(name);
        scoreboard.map_err(|why| format!("its scoreboard cannot be made: {why}"))?;
        let plan = PoolPlan::make(pool, config, &self.plan.programs, self.plan.threads);
        let mut plan = plan.map_err(|why| why.to_string())?;
        plan.settings.cache_size = self.cache_size_of(pool, config);
        Ok(plan)
    }

    /// How many workers the pool of this name has.
    pub fn workers_of(&self, name: &str) -> u32 {
        let in_use = self.pools.iter().filter(|pool| pool.is_current());
        let named = in_use.filter(|pool| pool.plan.settings.pool == name);
        named.map(|pool| pool.pool.workers()).sum()
    }

    pub fn next_generation(&mut self) -> Generation {
        self.pools.next_generation()
    }

    /// Sends the front the configuration to come. One that is being started gets it later, and
    /// cannot refuse it.
    fn tell_configuration(&mut self) {
        let Some(reload) = &self.reloads.now else {
            return;
        };
        let Some(peer) = &mut self.front.peer else {
            return self.configuration_taken(None);
        };
        let file = serde_json::to_vec(&reload.config).map_err(std::io::Error::from);
        let file = file.and_then(|json| shared::file_with("maitred-configuration", &json));
        match file {
            Ok(file) => {
                let log = reload.access_log.iter().map(AsFd::as_fd);
                let fds: Vec<_> = std::iter::once(file.as_fd()).chain(log).collect();
                reload.door_logs.tell(peer);
                peer.say(ToFront::Reconfigure, &fds);
                self.reloads.unanswered += 1;
            }
            Err(why) => {
                let why = format!("the front cannot be told of the configuration: {why}");
                self.configuration_taken(Some(why));
            }
        }
    }

    /// The front has said whether it takes a configuration. Only what it says of the last counts.
    pub fn reconfigured(&mut self, refused: Option<String>) {
        self.reloads.unanswered = self.reloads.unanswered.saturating_sub(1);
        if self.reloads.unanswered == 0 {
            self.configuration_taken(refused);
        }
    }

    /// The front has ended, and with it its answers. A configuration that it was just sent may be
    /// what ended it.
    pub fn front_answers_no_more(&mut self) {
        if let Some(reload) = &mut self.reloads.now {
            reload.asked = None;
        }
        if std::mem::take(&mut self.reloads.unanswered) > 0 {
            let why = "the front ended while it took the configuration over".to_owned();
            self.configuration_taken(Some(why));
        }
    }

    /// A front that does not say whether it takes a configuration is stuck, and may still take it
    /// when nobody expects it any more.
    fn end_silence(&mut self) {
        let late = |reload: &Reload| !reload.accepted && reload.since + CONSENT <= self.now();
        if !self.reloads.now.as_ref().is_some_and(late) {
            return;
        }
        let why = format!("the front said nothing for {} s", CONSENT.as_secs());
        if let Some(peer) = &self.front.peer {
            error!("the front is killed: {why} about a configuration");
            peer.signal(Signal::SIGKILL);
        }
        self.reloads.unanswered = 0;
        self.configuration_taken(Some(why));
    }

    fn configuration_taken(&mut self, refused: Option<String>) {
        let Some(mut reload) = self.reloads.now.take_if(|reload| !reload.accepted) else {
            return;
        };
        if let Some(why) = refused {
            for id in self.named(&reload.changes.added) {
                self.close_pool(id);
            }
            let why = format!("the reload is refused, all is as before: {why}");
            return self.finish_reload(reload.ticket, Err(why));
        }
        let error_log = self.plan.config.error_log != reload.config.error_log;
        cookies::follow(&mut self.cookies, &self.plan.config, &reload.config);
        self.plan.config = reload.config.clone();
        self.plan.follow_configuration();
        let now = self.now();
        self.systemd.follow(self.plan.config.fpm.as_ref(), now);
        self.phase.drain_for(fpm::patience(&reload.config));
        self.plan.access_log = reload.access_log.take();
        let door_logs = std::mem::take(&mut reload.door_logs);
        self.plan.door_logs.use_for(&reload.config, door_logs);
        if error_log {
            self.reopen_error_log();
        }
        self.say_inherited();
        self.use_certificates(reload.certificates.take());
        self.move_listeners(std::mem::take(&mut reload.opened));
        for id in self.named(&reload.changes.removed) {
            self.close_pool(id);
        }
        reload.accepted = true;
        reload.since = self.now();
        self.put_on_trial(&mut reload);
        self.reloads.now = Some(reload);
    }

    /// Gives the pools that are to be anew another generation beside the one that serves.
    fn put_on_trial(&mut self, reload: &mut Reload) {
        for name in reload.changes.anew.clone() {
            match self.plan_pool(&name, &reload.config) {
                Ok(plan) => {
                    let generation = self.next_generation();
                    let (line, workers) = (self.front.line, self.workers_of(&name));
                    let running = match reload.lets_rest && self.rests(&name) {
                        true => RunningPool::at_rest(generation, line, plan),
                        false => RunningPool::on_trial(generation, line, plan, workers),
                    };
                    self.pools.push(running);
                }
                Err(why) => {
                    self.larger_cache_failed(&name, false);
                    reload.kept.push((name, why));
                }
            }
        }
    }

    /// Where the pools of these names are that are in use.
    fn named(&self, names: &BTreeSet<String>) -> Vec<PoolId> {
        let named = self
            .pools
            .current()
            .filter(|pool| names.contains(pool.name()));
        named.map(RunningPool::id).collect()
    }

    fn close_pool(&mut self, id: PoolId) {
        let generation = self.pools[id].generation;
        if let Some(peer) = self.peer_of_line(self.pools[id].line) {
            peer.say(ToFront::ClosePool { generation }, &[]);
        }
        self.pools[id].closed = true;
        self.pool_event(id, generation::GenerationEvent::Leave);
    }

    /// Listens where it was not listened before, and no more where it is not to be. An address whose
    /// socket is replaced is given up before it is listened on anew.
    fn move_listeners(&mut self, opened: OpenedListeners) {
        let wanted = self.plan.config.listening();
        let wanted: Vec<_> = wanted.into_iter().map(Listening::address).collect();
        let stays = |one: &Listener| wanted.contains(&one.asked) && !opened.replaces(one);
        opened.adjust(&mut self.plan.listeners);
        let (mut stay, go): (Vec<_>, Vec<_>) = std::mem::take(&mut self.plan.listeners)
            .into_iter()
            .partition(stays);
        self.allow_front(opened.new.iter().map(|one| one.sockets.len()).sum());
        if let Some(peer) = &mut self.front.peer {
            for listener in &go {
                let address = listener.address.to_string();
                peer.say(ToFront::Unlisten { address }, &[]);
            }
            for listener in &opened.new {
                listener.tell(peer);
            }
        }
        stay.extend(opened.new);
        self.plan.listeners = stay;
    }

    /// A generation that nobody uses yet has failed: the one before goes on.
    pub fn trial_failed(&mut self, id: PoolId, why: &str) {
        let running = &mut self.pools[id];
        if running.introduced || running.pool.is_leaving() {
            return;
        }
        let why = running.complaint.take().unwrap_or_else(|| why.to_owned());
        let (name, line) = (running.plan.settings.pool.clone(), running.line);
        let reload = self.reloads.now.as_ref();
        let is_outgrown = reload.is_some_and(|reload| reload.outgrown.contains(&name));
        self.larger_cache_failed(&name, is_outgrown && line == self.front.line);
        self.pool_event(id, generation::GenerationEvent::Leave);
        if line != self.front.line {
            self.upgrade_failed(format!("pool {name}: {why}"));
        } else if let Some(reload) = &mut self.reloads.now {
            reload.kept.push((name, why));
        }
    }

    /// A generation has shown that it works, or has nothing to show it with: it is used from now
    /// on, and those before it are leaving.
    pub fn introduce_generation(&mut self, id: PoolId) {
        let generation = self.pools[id].generation;
        let name = self.name(id).to_owned();
        self.take_place(id);
        self.allow_front(0);
        if let Some(peer) = &mut self.front.peer {
            self.pools[id].tell_opened(peer, self.scores.page(&name), &self.pools);
        }
        for other in self.pools.ids() {
            let pool = &self.pools[other];
            if pool.is_current() && pool.generation < generation && self.name(other) == name {
                self.pool_event(other, generation::GenerationEvent::Leave);
            }
        }
        if let Some(reload) = &mut self.reloads.now
            && reload.changes.anew.contains(&name)
        {
            reload.replaced.push(name);
        }
    }

    /// What has to be done for a reload because time went by or something has happened.
    pub fn keep_reload(&mut self) {
        self.end_warming();
        self.end_silence();
        let trial = |reload: &Reload| reload.accepted && reload.since + TRIAL <= self.now();
        let late = self.reloads.now.as_ref().is_some_and(trial);
        for id in self.pools.ids() {
            let running = &self.pools[id];
            if !self.is_undecided(running) {
                continue;
            }
            if late {
                let why = format!("no worker was ready within {} s", TRIAL.as_secs());
                self.trial_failed(id, &why);
            } else if !running.pool.is_on_trial() && running.pool.wants_none() {
                self.introduce_generation(id);
            }
        }
        self.share_out();
        self.forget_gone();
        if !self.pools.iter().any(|pool| self.is_undecided(pool)) {
            self.see_whether_over();
        }
    }

    fn see_whether_over(&mut self) {
        let now = self.now();
        let moved = self.has_moved_over();
        let Some(reload) = self.reloads.now.as_mut().filter(|reload| reload.accepted) else {
            return;
        };
        let late = *reload.moving_until.get_or_insert(now + MOVE_OVER) <= now;
        if late || moved {
            self.ask_whether_settled(late);
        }
    }

    /// Whether no old worker is left, or the new ones are as many as may be open, or as the old ones
    /// were: then those that are left get nothing new, since others are ready in their stead.
    fn has_moved_over(&self) -> bool {
        let mut new = self.pools.iter().filter(|pool| pool.is_current());
        new.all(|new| {
            let name = &new.plan.settings.pool;
            let old = self.pools.iter().filter(|old| old.pool.is_leaving());
            let mut old = old.filter(|old| old.plan.settings.pool == *name);
            let enough = new.plan.max_children().min(new.replaces);
            let ready = new.pool.seated().count() >= enough as usize;
            ready || old.all(|old| old.pool.seated().next().is_none())
        })
    }

    /// Workers of generations that are leaving.
    fn leaving_workers(&self) -> usize {
        let old = self.pools.iter().filter(|old| old.pool.is_leaving());
        old.map(|old| old.pool.seated().count()).sum()
    }

    /// A reload is over when no new request can reach an old worker: when the front, which gives no
    /// request to an old worker while a new one is ready, has followed all orders and let none go
    /// since it was asked.
    fn ask_whether_settled(&mut self, late: bool) {
        let workers = self.leaving_workers();
        let Some(reload) = &mut self.reloads.now else {
            return;
        };
        let unasked = reload.asked.is_none_or(|(_, before)| before != workers);
        if !reload.accepted || !(unasked || late) {
            return;
        }
        let mark = reload.asked.map_or(1, |(mark, _)| mark + 1);
        reload.asked = Some((mark, workers));
        match &mut self.front.peer {
            Some(peer) if !late => peer.say(ToFront::Settle { mark }, &[]),
            _ => self.settled(mark),
        }
    }

    /// The front has followed all orders that came before this one.
    pub fn settled(&mut self, mark: u64) {
        let now = (mark, self.leaving_workers());
        let over = |reload: &mut Reload| reload.asked == Some(now);
        if let Some(reload) = self.reloads.now.take_if(over) {
            let unchanged = self.pools.iter().filter(|pool| pool.is_current()).count();
            let unchanged = unchanged.saturating_sub(reload.replaced.len() + reload.kept.len());
            let outcome = reload.outcome(unchanged, now.1);
            self.finish_reload(reload.ticket, outcome);
            self.say_ready_again();
        }
    }

    /// Whether it is on trial for a reload.
    fn is_undecided(&self, pool: &RunningPool) -> bool {
        pool.line == self.front.line && !pool.introduced && !pool.pool.is_leaving()
    }

    fn forget_gone(&mut self) {
        for id in self.pools.ids().into_iter().rev() {
            if !self.pools[id].pool.is_gone() || self.pools[id].zygote.is_some() {
                continue;
            }
            self.show_copies(id);
            let mut gone = self.pools.remove(id);
            let words = gone.plan.voice.last_words(self.started.elapsed());
            for line in words {
                warn!("pool {}: {line}", gone.plan.settings.pool);
            }
            let name = gone.plan.settings.pool.as_str();
            if self.pools.named(name).next().is_none() {
                self.scores.forget(name);
            }
            let generation = gone.generation;
            if let Some(peer) = self.peer_of_line(gone.line).filter(|_| gone.introduced) {
                peer.say(ToFront::ForgetPool { generation }, &[]);
            }
        }
    }
}
