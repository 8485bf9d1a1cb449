//! Upgrade (SIGUSR2): a new program takes over in this process, with everything that runs.
//!
//! ```text
//!   asked ──▶ new program tried ──▶ nobody is being forked ──▶ exec
//!                 │ it cannot              │ too late            │ refused
//!                 ▼                        ▼                     ▼
//!             all goes on as it was, and the log says why
//!
//!   (new program) every pool on trial ──▶ new front started ──▶ it listens ──▶ old front hands over
//!                    │ one failed              │ it does not come
//!                    ▼                         ▼
//!             old front and generations go on, and the log says why
//! ```
//!
//! Before and after the `exec` the same processes serve: the old front, zygotes and workers notice
//! nothing. Both fronts accept from the same sockets until the old one is told to hand over.

pub mod handover;

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd};

use maitred_control::ToFront;
use maitred_os::fork::HowEnded;
use maitred_os::shared;
use maitred_os::signals::{self, Signal};
use maitred_os::spawn::{self, Program};
use tracing::{error, info, warn};

use crate::limits::{DRAIN, Moment, STILL, TRIAL, UPGRADE_TRY};
use crate::peer::Peer;
use crate::processes::generation;
use crate::processes::plan::PoolPlan;
use crate::processes::pools::PoolId;
use crate::processes::running_pool::{DrainingFront, Front, RunningPool};
use crate::reload::ReloadScope;
use crate::roomy_name;
use crate::run::Supervisor;
use crate::upgrade::handover::HandoverState;

/// The argument after which the new program finds the descriptor of what it takes over.
pub const TAKE_OVER: &str = "--take-over";

/// The argument with which a program is asked whether it could take over.
pub const TRY_TAKE_OVER: &str = "--try-take-over";

/// Exit code of a program that could take over. None that programs commonly end with: what lies at our
/// path may be anything.
pub const CAN_TAKE_OVER: i32 = 113;

/// How far an upgrade has come.
#[derive(Debug)]
pub enum Upgrade {
    /// The new program is asked whether it could take over.
    Trying { pid: i32, until: Moment },
    /// It can; it does as soon as nobody is being forked.
    Waiting { until: Moment },
    /// We are the new program: every pool has a generation on trial.
    OnTrial {
        until: Moment,
        /// One has failed, and why.
        failed: Option<String>,
    },
    /// The new front is being started; `old` accepts clients until it has been.
    Opening { old: Front, until: Moment },
}

impl Supervisor {
    /// Reloads as soon as no upgrade is going on.
    pub fn reload_when_possible(&mut self) {
        self.reload_later = self.upgrade.is_some();
        if self.reload_later {
            return info!("the reload begins when the upgrade is over");
        }
        info!("SIGHUP: reloading");
        self.systemd.reloads();
        if let Err(why) = self.reload(&ReloadScope::Changed) {
            error!("the reload is refused, all is as before: {why}");
        }
    }

    /// Begins what had to wait for a reload or an upgrade to be over.
    pub fn do_what_waited(&mut self) {
        if self.is_fpm() {
            return self.begin_anew_when_possible();
        }
        if self.upgrade.is_some() {
            return;
        }
        if std::mem::take(&mut self.reload_later) {
            self.reload_when_possible();
        }
        if self.upgrade_later && !self.reloads.is_going_on() {
            self.upgrade();
        }
    }

    /// Begins an upgrade, as soon as no reload is going on.
    pub fn upgrade(&mut self) {
        self.upgrade_later = self.reloads.is_going_on();
        if self.upgrade_later {
            return info!("the upgrade begins when the reload is over");
        }
        if let Err(why) = self.try_program() {
            self.upgrade_refused(&why);
        }
    }

    fn upgrade_refused(&mut self, why: &str) {
        self.upgrade = None;
        error!("the upgrade is refused, all goes on as it was: {why}");
    }

    /// Asks the program that lies where ours lay whether it can read what we would leave to it.
    fn try_program(&mut self) -> Result<(), String> {
        if !self.phase.is_serving() {
            return Err("the server is starting or ending".to_owned());
        }
        if !self.front_is_settled() {
            return Err("the front is being started; upgrade again when it serves".to_owned());
        }
        if self.upgrade.is_some() {
            return Err("another upgrade is going on".to_owned());
        }
        let state = self.state_file(&self.hand_over())?;
        let mut arguments = self.plan.invocation.arguments.clone();
        arguments.push(TRY_TAKE_OVER.into());
        arguments.push(spawn::FIRST_INHERITED_FD.to_string().into());
        let arguments: Vec<_> = arguments.iter().map(OsString::as_os_str).collect();
        let program = &self.plan.invocation.program;
        // A program that may be php-fpm by its name has to know that.
        let name = match self.is_fpm() {
            true => program.clone().into_os_string(),
            false => roomy_name("maitred: upgrade"),
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
        let until = self.now() + UPGRADE_TRY;
        self.upgrade = Some(Upgrade::Trying { pid, until });
        Ok(())
    }

    fn state_file(&self, state: &HandoverState) -> Result<std::os::fd::OwnedFd, String> {
        let file = serde_json::to_vec(state).map_err(std::io::Error::from);
        let file = file.and_then(|json| shared::file_with("maitred-state", &json));
        file.map_err(|why| format!("what is running cannot be written down: {why}"))
    }

    /// A child has ended: was it the new program on its trial?
    pub fn tried(&mut self, ended: i32, how: HowEnded) -> bool {
        match self.upgrade {
            Some(Upgrade::Trying { pid, .. }) if pid == ended => {}
            _ => return false,
        }
        if how == HowEnded::Exited(CAN_TAKE_OVER) {
            let until = self.now() + STILL;
            self.upgrade = Some(Upgrade::Waiting { until });
        } else {
            let program = self.plan.invocation.program.display().to_string();
            self.upgrade_refused(&format!("{program} {how} when it was asked to take over"));
        }
        true
    }

    /// Whether no worker may be ordered for a moment.
    pub fn holds_still(&self) -> bool {
        matches!(self.upgrade, Some(Upgrade::Waiting { .. }))
    }

    /// Whether the front accepts clients, and no front has orders before it that only we know: what
    /// is handed over has no place for either.
    fn front_is_settled(&self) -> bool {
        let accepts = self.front.peer.is_some() && self.front.life.is_up();
        let is_behind = self.fronts().any(|(_, peer)| peer.is_behind());
        accepts && !is_behind && self.purges.are_done()
    }

    /// What has to be done for an upgrade because time went by or something has happened.
    pub fn keep_upgrade(&mut self) {
        let now = self.now();
        if !self.phase.is_serving() {
            self.give_up_upgrade();
        }
        match &self.upgrade {
            None => {}
            Some(Upgrade::Trying { pid, until }) if *until <= now => {
                kill(*pid);
                let limit = UPGRADE_TRY.as_secs();
                self.upgrade_refused(&format!("the new program said nothing for {limit} s"));
            }
            Some(Upgrade::Waiting { until }) => {
                let late = *until <= now;
                if self.front_is_settled() && self.pools.iter().all(RunningPool::is_still) {
                    self.become_program();
                } else if late {
                    let limit = STILL.as_secs();
                    self.upgrade_refused(&format!(
                        "workers or the front were being started for {limit} s"
                    ));
                }
            }
            Some(Upgrade::OnTrial { until, failed }) => {
                let late = *until <= now;
                match failed.clone() {
                    Some(why) => self.take_back(&why),
                    None => self.judge_trials(late),
                }
            }
            Some(Upgrade::Opening { until, .. }) if *until <= now => {
                self.take_back("the new front did not accept clients in time");
            }
            Some(Upgrade::Trying { .. } | Upgrade::Opening { .. }) => {}
        }
        self.end_old_fronts();
    }

    /// The server is to stop: nothing new is begun, and what has begun ends with all the rest.
    fn give_up_upgrade(&mut self) {
        match self.upgrade.take() {
            Some(Upgrade::Trying { pid, .. }) => kill(pid),
            Some(Upgrade::Opening { mut old, .. }) => {
                if let Some(peer) = old.peer.take() {
                    self.keep_old_front(&old, peer);
                }
            }
            Some(Upgrade::Waiting { .. } | Upgrade::OnTrial { .. }) | None => {}
        }
    }

    fn keep_old_front(&mut self, old: &Front, peer: Peer<ToFront>) {
        self.old_fronts.push(DrainingFront {
            line: old.line,
            epoch: old.epoch,
            peer,
            until: self.now() + DRAIN,
            drained: old.drained,
        });
    }

    /// When an upgrade has taken too long, or an old front.
    pub fn upgrade_deadline(&self) -> Option<Moment> {
        let upgrade = self.upgrade.as_ref().map(|upgrade| match upgrade {
            Upgrade::Trying { until, .. }
            | Upgrade::Waiting { until }
            | Upgrade::OnTrial { until, .. }
            | Upgrade::Opening { until, .. } => *until,
        });
        let old = self.old_fronts.iter().map(|old| old.until);
        upgrade.into_iter().chain(old).min()
    }

    /// Runs the new program in this process. Returns only if that failed.
    fn become_program(&mut self) {
        for line in self.obituaries.last_words(self.started.elapsed()) {
            self.tell_obituary(&line);
        }
        self.flush_outputs();
        if let Some(certificates) = &mut self.plan.certificates {
            certificates.leave();
        }
        for id in self.pools.ids() {
            self.show_copies(id);
        }
        let state = self.hand_over();
        let why = match self.state_file(&state) {
            Err(why) => why,
            Ok(file) => {
                let number = file.as_raw_fd();
                let mut arguments = vec![self.plan.invocation.program.clone().into_os_string()];
                arguments.extend(self.plan.invocation.arguments.iter().cloned());
                arguments.extend([TAKE_OVER.into(), number.to_string().into()]);
                info!(
                    "SIGUSR2: {} takes over",
                    self.plan.invocation.program.display()
                );
                let kept = state
                    .keep_open(true)
                    .and_then(|()| spawn::keep_across_exec(number, true));
                let why = match kept {
                    Ok(()) => spawn::become_program(&self.plan.invocation.program, &arguments),
                    Err(why) => why,
                };
                let _ = state.keep_open(false);
                format!(
                    "{} cannot be run: {why}",
                    self.plan.invocation.program.display()
                )
            }
        };
        self.upgrade_refused(&why);
    }

    /// We are the new program: gives every pool a generation of its own PHP program.
    pub fn begin_trials(&mut self) {
        let until = self.now() + TRIAL;
        self.upgrade = Some(Upgrade::OnTrial {
            until,
            failed: None,
        });
        self.prepare_company();
        let config = self.plan.config.clone();
        // A pool at rest stays so, or a hundred of them would start PHP at once; but some pool has to
        // show that PHP starts at all.
        let mut tried = config.pools.iter().any(|pool| !self.rests(&pool.name));
        for pool in &config.pools {
            match PoolPlan::make(pool, &config, &self.plan.programs, self.plan.threads) {
                Ok(mut plan) => {
                    plan.settings.cache_size = self.cache_size_of(pool, &config);
                    let generation = self.next_generation();
                    let line = self.front.line + 1;
                    let workers = self.workers_of(&pool.name);
                    let running = match self.rests(&pool.name) && tried {
                        true => RunningPool::at_rest(generation, line, plan),
                        false => RunningPool::on_trial(generation, line, plan, workers),
                    };
                    tried = true;
                    self.pools.push(running);
                }
                Err(why) => return self.take_back(&why.to_string()),
            }
        }
    }

    /// Whether the pool of this name has neither workers nor a zygote.
    pub fn rests(&self, name: &str) -> bool {
        let mut in_use = self.pools.iter().filter(|pool| pool.is_current());
        in_use.any(|pool| {
            pool.plan.settings.pool == name && pool.zygote.is_none() && pool.pool.workers() == 0
        })
    }

    /// A generation of the new program has failed.
    pub fn upgrade_failed(&mut self, why: String) {
        if let Some(Upgrade::OnTrial { failed, .. }) = &mut self.upgrade {
            failed.get_or_insert(why);
        }
    }

    /// Starts the new front once every generation on trial has a worker that is ready, or needs none.
    fn judge_trials(&mut self, late: bool) {
        let line = self.front.line + 1;
        // What an upgrade that failed has left, and is still leaving, was of the same line.
        let is_new = |pool: &&RunningPool| pool.line == line && !pool.pool.is_leaving();
        let new = || self.pools.iter().filter(is_new);
        let ready = |pool: &RunningPool| {
            let pool = &pool.pool;
            !pool.is_on_trial() && (pool.wants_none() || pool.seated().next().is_some())
        };
        if !new().all(ready) || self.purges.prepares_upgrade() {
            if late {
                let limit = TRIAL.as_secs();
                self.take_back(&format!("not every pool had a worker within {limit} s"));
            }
            return;
        }
        for id in self.pools.ids() {
            if is_new(&&self.pools[id]) {
                self.take_place(id);
            }
        }
        let new = Front::new(line, self.front.epoch);
        let old = std::mem::replace(&mut self.front, new);
        let until = self.now() + TRIAL;
        self.upgrade = Some(Upgrade::Opening { old, until });
    }

    /// The new front accepts clients: the old one finishes what it has, and gives its workers up.
    pub fn front_has_taken_over(&mut self) {
        let Some(Upgrade::Opening { .. }) = &self.upgrade else {
            return;
        };
        let Some(Upgrade::Opening { mut old, .. }) = self.upgrade.take() else {
            return;
        };
        for id in self.pools.ids() {
            if self.pools[id].line != self.front.line {
                self.pool_event(id, generation::GenerationEvent::Leave);
            }
        }
        if let Some(mut peer) = old.peer.take() {
            peer.say(ToFront::HandOver, &[]);
            self.keep_old_front(&old, peer);
        } else {
            self.dismiss_workers_of(old.line);
        }
        info!(
            "upgraded to {} {}; front {} accepts clients",
            env!("CARGO_PKG_NAME").trim_end_matches("-supervisor"),
            env!("CARGO_PKG_VERSION"),
            self.front.epoch
        );
    }

    /// The upgrade has failed: the old front and its generations go on.
    fn take_back(&mut self, why: &str) {
        let new = match self.upgrade.take() {
            Some(Upgrade::Opening { old, .. }) => {
                let new = std::mem::replace(&mut self.front, old);
                if let Some(peer) = &new.peer {
                    peer.signal(Signal::SIGKILL);
                }
                self.front.epoch = new.epoch;
                new.line
            }
            _ => self.front.line + 1,
        };
        for id in self.pools.ids() {
            if self.pools[id].line == new {
                self.pool_event(id, generation::GenerationEvent::Leave);
            }
        }
        self.dismiss_workers_of(new);
        self.front_purges_no_more(new);
        self.forget_program();
        error!(
            "the new program runs with the front and the workers of the one before: {why}; correct \
             that and upgrade again"
        );
    }

    /// Lets the workers go that no front uses any more.
    pub fn dismiss_workers_of(&mut self, line: u32) {
        for id in self.pools.ids() {
            if self.pools[id].line == line {
                self.dismiss_workers(id);
            }
        }
    }

    fn dismiss_workers(&mut self, id: PoolId) {
        let seated: Vec<_> = self.pools[id].pool.seated().collect();
        for generation::Seated { worker, .. } in seated {
            self.pool_event(id, generation::GenerationEvent::Retired { worker });
        }
    }

    /// An old front has no more time: what it still holds is lost, and said.
    fn end_old_fronts(&mut self) {
        let now = self.now();
        for old in self.old_fronts.iter().filter(|old| old.until <= now) {
            warn!(
                "front {} is ended: it still had requests after {} s",
                old.epoch,
                DRAIN.as_secs()
            );
            old.peer.signal(Signal::SIGKILL);
        }
        for old in &mut self.old_fronts {
            if old.until <= now {
                old.until = Moment::MAX;
            }
        }
    }
}

/// Kills a child of ours that has not been reaped.
fn kill(pid: i32) {
    if let Ok(pidfd) = signals::pidfd(pid) {
        let _ = signals::send_to(pidfd.as_fd(), Signal::SIGKILL);
    }
}
