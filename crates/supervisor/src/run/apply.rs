//! Carrying out what was decided: starting, telling, ending.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use maitred_config::Address;
use maitred_control::{Clients, PhpInfo, ToFront, ToZygote, WorkerId};
use maitred_os::fork::HowEnded;
use maitred_os::signals::{self, Signal};
use maitred_os::spawn::Program;
use maitred_scoreboard::Cause;
use tracing::{debug, error, warn};

use crate::fpm;
use crate::limits::FIRST_FILL;
use crate::logging::exit_reports::WorkerLabel;
use crate::logging::text::{one_line, some_workers};
use crate::peer::Peer;
use crate::processes::adopt::{self, ChildCheck};
use crate::processes::generation::{self, BootState, GenerationAction, KillReason};
use crate::processes::pools::PoolId;
use crate::processes::running_pool::Zygote;
use crate::roomy_name;
use crate::run::Supervisor;
use crate::run::phase;
use crate::system::identity;
use crate::system::programs::is_version;

/// The argument that makes the PHP program a zygote.
const ZYGOTE_ROLE: &str = "zygote";

/// Document roots named in the line that says what is served.
const ROOTS_SHOWN: usize = 8;

impl Supervisor {
    /// Tells a pool what happened, and does what it says.
    pub fn pool_event(&mut self, id: PoolId, event: generation::GenerationEvent) {
        let now = self.now();
        let (is_auto, before) = (self.give_room(id), self.pools[id].pool.workers());
        let actions = self.pools[id].pool.on(event, now);
        if is_auto {
            self.pay_for_workers(id, before);
        }
        self.tell_growth(id, &actions);
        for action in actions {
            self.apply(id, action);
        }
        let running = &mut self.pools[id];
        let (seated, coming) = (running.pool.seated().count(), running.pool.coming());
        let name = &running.plan.settings.pool;
        self.scores
            .show_workers(name, &mut running.shown, seated, coming);
    }

    /// Tells the whole server what happened, and does what it says.
    pub fn phase_event(&mut self, event: phase::ServerEvent) {
        match self.phase.on(event, self.now()) {
            None => {}
            Some(phase::ServerAction::Announce) => {
                if let Some(shared) = identity::shared_with_front(&self.plan.config) {
                    warn!("{shared}");
                }
                self.announce();
                self.plan.invocation.host.serves();
            }
            Some(phase::ServerAction::ReportSlowStart) => {
                let limit = FIRST_FILL.as_secs();
                self.say_failure(&format!(
                    "not every pool was full of workers after {limit} s"
                ));
                self.signal_everybody(Signal::SIGKILL);
            }
            Some(phase::ServerAction::Drain) => {
                self.systemd.stops();
                self.close_listeners();
                self.give_up_reload("the server was asked to stop before the reload was done");
                let lines: Vec<u32> = self.fronts().map(|(line, _)| line).collect();
                for &line in &lines {
                    if let Some(peer) = self.peer_of_line(line) {
                        peer.say(ToFront::Drain, &[]);
                    }
                }
                self.see_whether_drained();
            }
            Some(phase::ServerAction::CutOff) => {
                let limit = fpm::patience(&self.plan.config).as_secs_f64();
                warn!(
                    "requests still run after process_control_timeout = {limit} s; they are ended"
                );
                self.signal_everybody(Signal::SIGTERM);
            }
            Some(phase::ServerAction::Terminate) => {
                self.systemd.stops();
                self.close_listeners();
                self.give_up_reload("the server was asked to stop before the reload was done");
                self.signal_everybody(Signal::SIGTERM);
            }
            Some(phase::ServerAction::AskAllToLeave) => {
                self.systemd.stops();
                self.signal_everybody(Signal::SIGTERM);
            }
            Some(phase::ServerAction::KillAll) => {
                self.systemd.stops();
                self.signal_everybody(Signal::SIGKILL);
            }
        }
    }

    /// Does one thing for a pool. While the server ends, nothing is begun any more.
    pub fn apply(&mut self, id: PoolId, action: GenerationAction) {
        if !self.phase.wants_workers() {
            return;
        }
        match action {
            GenerationAction::StartZygote => self.start_zygote(id),
            GenerationAction::KillZygote(reason) => self.kill_zygote(id, reason),
            GenerationAction::DismissZygote => {
                if let Some(zygote) = &self.pools[id].zygote {
                    zygote.peer.signal(Signal::SIGTERM);
                }
            }
            GenerationAction::Fill { worker } => self.fill(id, worker),
            GenerationAction::Look { pid } => self.look(id, pid),
            GenerationAction::Open { worker, pid } => self.open_seat(id, worker, pid),
            GenerationAction::KillWorker { pid } => {
                self.send_away(id, pid, Cause::Terminated, Signal::SIGKILL);
            }
            GenerationAction::TerminateWorker { pid } => {
                self.send_away(id, pid, Cause::Terminated, Signal::SIGTERM);
            }
            GenerationAction::DismissWorker { pid } => {
                let cause = match self.pools[id].pool.is_leaving() {
                    true => Cause::Reload,
                    false => Cause::Idle,
                };
                self.send_away(id, pid, cause, Signal::SIGTERM);
            }
            GenerationAction::ReportStuck { seat, pid } => error!(
                "pool {} seat {seat}: worker {pid} does not end, though it was killed; it hangs in \
                 the kernel (a dead network disk?) or is being traced, and keeps its seat until it has gone",
                self.name(id)
            ),
            GenerationAction::Report {
                worker,
                pid,
                how,
                boot,
                retry,
            } => {
                let who = self.who(id, worker);
                self.report_death(id, who, pid, (how, boot), retry);
            }
        }
    }

    /// Has the front give requests to a worker that is there.
    fn open_seat(&mut self, id: PoolId, worker: WorkerId, pid: i32) {
        let line = self.pools[id].line;
        if !self.pools[id].introduced && line == self.front.line {
            self.introduce_generation(id);
        }
        self.tell_start(id, pid);
        self.show_whose_copies(id);
        let generation = self.pools[id].generation;
        self.scores.spawned(&self.pools[id].plan.settings.pool);
        let pidfd = self.pools[id].workers.get(&pid);
        let pidfd = pidfd.and_then(|pidfd| pidfd.try_clone().ok());
        let known = self.pools[id].introduced;
        let peer = self.peer_of_line(line).filter(|_| known);
        if let (Some(pidfd), Some(peer)) = (pidfd, peer) {
            let order = ToFront::OpenSeat {
                generation,
                worker,
                pid,
            };
            peer.say(order, &[pidfd.as_fd()]);
        }
    }

    /// Ends a worker with a signal, for a cause that is counted.
    fn send_away(&mut self, id: PoolId, pid: i32, cause: Cause, signal: Signal) {
        self.scores.leaves(pid, cause);
        if let Some(pidfd) = self.pools[id].workers.get(&pid) {
            // A failure means that it has gone.
            let _ = signals::send_to(pidfd.as_fd(), signal);
        }
    }

    fn report_death(
        &mut self,
        id: PoolId,
        who: WorkerLabel,
        pid: i32,
        (how, boot): (HowEnded, BootState),
        retry: Duration,
    ) {
        let how = match boot {
            BootState::Done => how.to_string(),
            BootState::Until(_) => format!("{how} before its script had booted"),
            BootState::Late => {
                let limit = self.pools[id].plan.pool.boot_timeout.as_secs_f64();
                format!("was ended, for its script has not booted in {limit} s")
            }
        };
        self.obituaries.died(who, pid, how, retry, self.now());
        if boot != BootState::Done {
            self.trial_failed(id, "its script does not boot");
        }
    }

    /// Looks whether an announced process has become our child.
    pub fn look(&mut self, id: PoolId, pid: i32) {
        match adopt::see(pid, self.pools[id].plan.uid) {
            ChildCheck::Ours(pidfd) => {
                self.pools[id].workers.insert(pid, pidfd);
                self.pool_event(id, generation::GenerationEvent::Adopted { pid });
            }
            ChildCheck::NotYet => {}
            ChildCheck::Stranger => {
                self.pool_event(
                    id,
                    generation::GenerationEvent::ZygoteFailed(KillReason::BrokeRules),
                );
            }
        }
    }

    fn start_zygote(&mut self, id: PoolId) {
        let (plan, groups) = (&self.pools[id].plan, self.plan.groups.as_ref());
        let name = roomy_name(&format!("maitred-php: zygote pool {}", plan.settings.pool));
        let started = Peer::start(&Program {
            path: &plan.program,
            name: &name,
            arguments: &[OsStr::new(ZYGOTE_ROLE)],
            environment: &self.plan.environment,
            inherit: &[],
            output: Some(plan.voice.writer()),
            group: groups.and_then(|groups| groups.entrance(&plan.settings.pool)),
        });
        match started {
            Ok(mut peer) => {
                peer.allow(plan.descriptors_of_zygote());
                let order = ToZygote::Configure(Box::new(plan.settings.clone()));
                peer.say(order, &plan.shared());
                self.pools[id].zygote = Some(Zygote::new(peer));
            }
            Err(why) => {
                let program = plan.program.display();
                let sentence = format!("{program} could not be started: {why}");
                self.pool_fails(id, sentence);
                self.trial_failed(id, "its zygote could not be started");
                self.pool_event(id, generation::GenerationEvent::ZygoteEnded);
            }
        }
    }

    fn kill_zygote(&mut self, id: PoolId, reason: KillReason) {
        if let Some(zygote) = &self.pools[id].zygote {
            zygote.peer.signal(Signal::SIGKILL);
        }
        if !matches!(reason, KillReason::StartFailed | KillReason::NotNeeded) {
            let pool = self.name(id);
            let sentence = format!("the zygote of pool `{pool}` is killed: {reason}");
            self.pool_fails(id, sentence);
        }
        self.trial_failed(id, &reason.to_string());
    }

    /// A zygote says that PHP runs. Is it a PHP that is wanted?
    pub fn zygote_started(&mut self, id: PoolId, php: &str, fixed: bool, manner: PhpInfo) {
        let (pool, php) = (self.name(id).to_owned(), one_line(php));
        let wanted = self.pools[id].plan.php.as_ref();
        if let Some(wanted) = wanted.filter(|wanted| !is_version(&php, wanted)) {
            let sentence = format!(
                "pool `{pool}` asks for PHP {wanted}, and {} runs PHP {php}; correct `php`, or \
                 build maitred against the other version",
                self.pools[id].plan.program.display()
            );
            self.pool_fails(id, sentence);
            return self.pool_event(
                id,
                generation::GenerationEvent::ZygoteFailed(KillReason::StartFailed),
            );
        }
        let known = self.pools[id].php.as_ref() == Some(&php);
        if !fixed {
            let lacks = format!(
                "pool `{pool}` runs PHP {php}, which lacks the security fixes of October 2026; \
                 update it to 8.2.35, 8.3.36, 8.4.27, 8.5.12 or newer"
            );
            if self.plan.config.require_fixed_php {
                self.pool_fails(id, format!("{lacks}, or set require_fixed_php = false"));
                return self.pool_event(
                    id,
                    generation::GenerationEvent::ZygoteFailed(KillReason::StartFailed),
                );
            }
            if !known {
                warn!("{lacks}");
            }
        }
        self.pools[id].manner = manner;
        self.pools[id].php = Some(php);
        self.tell_manner(id);
        self.pools[id].failed = false;
        self.pool_event(id, generation::GenerationEvent::ZygoteStarted);
        if self.pools[id].pool.is_on_trial() {
            self.begin_warming(id);
        }
    }

    /// Says what failed for a pool, and keeps it for whoever waits for its trial.
    pub fn pool_fails(&mut self, id: PoolId, sentence: String) {
        self.zygote_failed(id, &sentence);
        self.pools[id].complaint = Some(sentence);
    }

    pub fn zygote_reaped(&mut self, id: PoolId, how: HowEnded) {
        if self.pools[id].pool.zygote_leaves() {
            // It was asked to: nobody needs it now.
            return;
        }
        if self.phase.wants_workers() {
            let pool = self.name(id);
            let rest = match self.pools[id].introduced {
                true => "; its workers go on serving",
                false => "",
            };
            let sentence = format!("the zygote of pool `{pool}` {how}{rest}");
            self.zygote_failed(id, &sentence);
        }
        self.trial_failed(id, &format!("its zygote {how}"));
    }

    /// Says what failed about a zygote; once the server serves, no more often than it has to.
    pub fn zygote_failed(&mut self, id: PoolId, sentence: &str) {
        let now = self.now();
        if self.phase.is_start() && (self.is_fpm() || self.pools[id].boots()) {
            // The other pools have done nothing wrong, and php-fpm starts them. What an application
            // lacks at its boot, such as its database, may come.
            self.pools[id].failed = true;
            error!("{sentence}");
        } else if self.phase.is_start() || self.pools[id].troubles.zygote_failed(now) {
            self.fail(sentence);
        } else {
            debug!("{sentence}");
        }
    }

    /// Says what failed. Before the server serves, that is its end.
    pub fn fail(&mut self, sentence: &str) {
        if self.phase.is_start() {
            self.say_failure(sentence);
        } else {
            error!("{sentence}");
        }
        self.phase_event(phase::ServerEvent::StartFailed);
    }

    fn say_failure(&self, sentence: &str) {
        error!("{sentence}");
        if self.plan.terminal.is_aside() && !self.is_fpm() {
            self.plan.terminal.tell(sentence);
        }
    }

    fn announce(&mut self) {
        if self.is_fpm() {
            return self.say_ready();
        }
        let roots: BTreeSet<&Path> = self
            .plan
            .config
            .sites
            .iter()
            .map(|site| site.root.as_path())
            .collect();
        let mut shown: Vec<String> = roots
            .iter()
            .take(ROOTS_SHOWN)
            .map(|root| root.display().to_string())
            .collect();
        if let more @ 1.. = roots.len() - shown.len() {
            shown.push(format!("{more} more"));
        }
        let (auto, others): (Vec<_>, Vec<_>) =
            self.pools.iter().partition(|pool| pool.finds_its_size());
        let workers = others.iter().map(|pool| pool.pool.seated().count()).sum();
        let most = auto.iter().map(|pool| pool.plan.max_children() as usize);
        let versions: BTreeSet<&String> = self
            .pools
            .iter()
            .filter_map(|pool| pool.php.as_ref())
            .collect();
        let mut facts = some_workers(workers, most.sum());
        for version in versions {
            facts.push_str(&format!(", PHP {version}"));
        }
        for listener in &self.plan.listeners {
            let (roots, address) = (shown.join(", "), &listener.address);
            self.plan.terminal.tell(&match listener.clients {
                Clients::Admin => match address {
                    Address::Tcp(address) => format!("metrics and status on http://{address}"),
                    Address::Unix(path) => format!("metrics and status on {}", path.display()),
                },
                Clients::Http => format!("serving {roots} on http://{address} ({facts})"),
                Clients::Https => format!("serving {roots} on https://{address} ({facts})"),
                Clients::Fastcgi { .. } => format!("FastCGI on {address} ({facts})"),
            });
        }
        if let Some(open) = identity::admin_is_open(&self.plan.config) {
            warn!("{open}");
        }
    }

    /// Sends a signal to every child there is: our processes, and what scripts left behind and we
    /// were given as the subreaper.
    pub fn signal_everybody(&self, signal: Signal) {
        let front = self.fronts().map(|(_, peer)| peer.pid());
        let alive = |zygote: &&Zygote| zygote.reaped.is_none();
        let zygotes = self.pools.iter().filter_map(|pool| pool.zygote.as_ref());
        let zygotes = zygotes.filter(alive).map(|zygote| zygote.peer.pid());
        let workers = self
            .pools
            .iter()
            .flat_map(|pool| pool.workers.keys().copied());
        let known = front.chain(zygotes).chain(workers);
        let everybody: BTreeSet<i32> = adopt::children().into_iter().chain(known).collect();
        for pid in everybody {
            // They are children that nobody but us reaps, so no pid changes hands; who is not
            // there any more needs no signal.
            if let Ok(pidfd) = signals::pidfd(pid) {
                let _ = signals::send_to(pidfd.as_fd(), signal);
            }
        }
    }

    pub fn name(&self, id: PoolId) -> &str {
        &self.pools[id].plan.settings.pool
    }

    /// Names a worker in a report.
    pub fn who(&self, id: PoolId, worker: WorkerId) -> WorkerLabel {
        WorkerLabel {
            pool: self.name(id).to_owned(),
            generation: self.pools[id].generation,
            worker,
        }
    }

    /// Whether `pid` is a process of ours that pool `id` has no claim to.
    pub fn is_known_elsewhere(&self, id: PoolId, pid: i32) -> bool {
        let front = self.fronts().any(|(_, peer)| peer.pid() == pid);
        let zygotes = self.pools.iter().filter_map(|pool| pool.zygote.as_ref());
        let mut others = self.pools.iter().filter(|other| other.id() != id);
        front
            || zygotes.into_iter().any(|zygote| zygote.peer.pid() == pid)
            || others.any(|pool| pool.pool.knows(pid))
    }
}
