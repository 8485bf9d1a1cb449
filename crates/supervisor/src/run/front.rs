//! The front as the supervisor sees it: starting it, and telling it all it has to know.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::Path;

use maitred_control::{FromFront, Generation, Overrun, ToFront, WorkerId};
use maitred_os::fork::HowEnded;
use maitred_os::shared;
use maitred_os::signals::Signal;
use maitred_os::spawn::Program;
use maitred_scoreboard::Page;
use tracing::{error, info, warn};

use crate::limits::FRONT_START;
use crate::logging::text::one_line;
use crate::peer::Peer;
use crate::processes::generation;
use crate::processes::life::Step;
use crate::processes::pools::{PoolId, Pools};
use crate::processes::protocol_errors::{BREACHES_MAX, BREACHES_WITHIN};
use crate::processes::running_pool::RunningPool;
use crate::processes::slow_scripts::SlowScript;
use crate::run::Supervisor;
use crate::run::phase;
use crate::upgrade::Upgrade;
use crate::{FRONT_ROLE, roomy_name};

/// The program that runs, whatever has become of its file since.
pub const THIS_PROGRAM: &str = "/proc/self/exe";

impl Supervisor {
    /// Sees to it that there is a front, as long as there has to be one.
    pub fn keep_front(&mut self) {
        if !self.phase.wants_front() {
            return;
        }
        match self.front.life.due(self.now()) {
            Some(Step::Start) => self.start_front(),
            Some(Step::Kill) => self.kill_front(&format!(
                "it accepted no clients within {} s",
                FRONT_START.as_secs()
            )),
            None => {}
        }
    }

    fn start_front(&mut self) {
        self.front.epoch += 1;
        self.scores.clear_front(self.front.epoch);
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
                    epoch: self.front.epoch,
                    threads: self.plan.threads,
                    identity: self.plan.front_identity.clone(),
                };
                peer.say(order, &[file.as_fd()]);
                for purge in self.purges_for_new_front() {
                    peer.say(purge, &[]);
                }
                for cookies in self.cookies_for_new_front() {
                    peer.say(cookies, &[]);
                }
                self.introduce(&mut peer);
                self.front.peer = Some(peer);
            }
            Err(why) => {
                self.fail(&format!("the front could not be started: {why}"));
                self.front.life.ended(self.now());
            }
        }
    }

    /// Clients that come now are refused by the kernel at once, and can go elsewhere.
    pub fn close_listeners(&mut self) {
        for listener in &mut self.plan.listeners {
            listener.close();
        }
    }

    /// Tells a new front all there is to know: where to listen, the pools, who sits where.
    fn introduce(&self, peer: &mut Peer<ToFront>) {
        peer.allow(self.descriptors_of_front());
        if let Some(certificates) = &self.plan.certificates {
            certificates.tell(peer);
        }
        if let Some(proofs) = self.acme.proofs() {
            peer.say(proofs, &[]);
        }
        for listener in &self.plan.listeners {
            listener.tell(peer);
        }
        if let Some(log) = &self.plan.access_log {
            peer.say(ToFront::SetAccessLog, &[log.as_fd()]);
        }
        self.plan.door_logs.tell(peer);
        let ours = |pool: &&RunningPool| pool.introduced && pool.line == self.front.line;
        for running in self.pools.iter().filter(ours) {
            let scoreboard = self.scores.page(&running.plan.settings.pool);
            running.tell_opened(peer, scoreboard, &self.pools);
            running.tell_seats(peer);
            let generation = running.generation;
            if running.closed {
                peer.say(ToFront::ClosePool { generation }, &[]);
            }
        }
        peer.say(ToFront::Begin, &[]);
    }

    /// Lets as many descriptors wait for the front as it may be sent at once, and some `more`.
    pub fn allow_front(&mut self, more: usize) {
        let descriptors = self.descriptors_of_front().saturating_add(more);
        if let Some(peer) = &mut self.front.peer {
            peer.allow(descriptors);
        }
    }

    /// How many descriptors a front gets that is told all there is to know.
    fn descriptors_of_front(&self) -> usize {
        let sockets = self.plan.listeners.iter().map(|one| one.sockets.len());
        let pools = self.pools.iter();
        let pools = pools.map(|running| running.plan.descriptors_of_front());
        sockets.chain(pools).fold(0, usize::saturating_add)
    }

    fn kill_front(&mut self, why: &str) {
        if let Some(peer) = &self.front.peer {
            peer.signal(Signal::SIGKILL);
        }
        self.fail(&format!("the front is killed: {why}"));
    }

    /// Acts on what the front says.
    pub fn front_said(&mut self, line: u32, report: FromFront) {
        match report {
            FromFront::Listening if line == self.front.line => self.front_listens(),
            FromFront::Listening => {}
            report @ (FromFront::WorkerFailed { .. }
            | FromFront::ScriptDied { .. }
            | FromFront::WorkersNeeded { .. }
            | FromFront::SeatRetired { .. }
            | FromFront::SeatWorn { .. }
            | FromFront::OpenFailed { .. }
            | FromFront::SlowScriptFound { .. }) => self.said_of_a_pool(report),
            FromFront::OpcacheFilled { generation } => self.cache_said_full(generation),
            FromFront::Reconfigured { refused } => {
                self.reconfigured(refused.map(|why| one_line(&why)));
            }
            FromFront::Settled { mark } if line == self.front.line => self.settled(mark),
            FromFront::Settled { .. } => {}
            FromFront::AcmeProofsSet { mark } => self.proofs_taken(mark),
            FromFront::StatsWritten => self.figures_told(line),
            FromFront::Purged { mark, outcome } => self.purged(line, mark, outcome),
            FromFront::PagesDropped { dropped, mark } => self.purging(line, dropped, mark),
            report @ FromFront::CookiesSeen { .. } => self.cookies_learned(line, report),
            FromFront::MetricsRequested => {
                self.look_at_caches();
                self.measure();
            }
            FromFront::Drained => self.front_drained(line),
        }
    }

    /// Acts on what the front says of a generation, unless that has gone.
    fn said_of_a_pool(&mut self, report: FromFront) {
        let generation = generation_of(&report);
        let Some(id) = generation.and_then(|generation| self.pools.find(generation)) else {
            return;
        };
        match report {
            FromFront::WorkerFailed {
                worker,
                why,
                overrun,
                broke_rules,
                ..
            } => match broke_rules {
                true => self.end_breaker(id, worker, &why),
                false => self.end_worker(id, worker, &why, overrun.as_ref()),
            },
            FromFront::ScriptDied { worker, script, .. } => {
                let who = self.who(id, worker);
                let (now, script) = (self.now(), one_line(&script));
                self.obituaries.ran(who, script, now);
            }
            FromFront::WorkersNeeded { workers, .. } => {
                self.pool_event(id, generation::GenerationEvent::Wanted { workers });
            }
            FromFront::SeatRetired { worker, .. } => {
                self.pool_event(id, generation::GenerationEvent::Retired { worker })
            }
            FromFront::SeatWorn { worker, why, .. } => {
                self.note_wear(id, worker, why);
                self.pools[id].to_be_replaced += 1;
                self.pool_event(id, generation::GenerationEvent::Worn { worker });
            }
            FromFront::SlowScriptFound {
                worker,
                request,
                overrun,
                id: request_id,
                ..
            } => {
                let slow = SlowScript {
                    id: request_id,
                    worker,
                    request,
                    overrun,
                };
                self.slow_script(id, slow);
            }
            FromFront::OpenFailed { .. } => self.introduce_again(id),
            _ => {}
        }
    }

    /// The front wants a worker ended.
    fn end_worker(&mut self, id: PoolId, worker: WorkerId, why: &str, overrun: Option<&Overrun>) {
        if self.is_fpm() {
            return self.terminate_worker(id, worker, why, overrun);
        }
        let (pool, why) = (self.name(id), one_line(why));
        warn!(
            "pool {pool} seat {}: its worker is ended: {why}",
            worker.seat
        );
        self.pool_event(id, generation::GenerationEvent::EndWorker { worker });
    }

    /// A worker has broken the rules of the seat link: it is asked nothing any more. Where there
    /// are many, its pool is started again.
    fn end_breaker(&mut self, id: PoolId, worker: WorkerId, why: &str) {
        let (worker, now) = (worker, self.now());
        let pool = self.name(id).to_owned();
        if self.pools[id].breaches.note(worker, now) && self.pools[id].is_current() {
            warn!(
                "pool `{pool}`: {BREACHES_MAX} workers have broken the rules of the seat link within \
                 {} s; something that its scripts run writes to the memory of all of them, so the \
                 pool is started again, with other memory",
                BREACHES_WITHIN.as_secs()
            );
            self.renewals.want_fresh(&pool);
        }
        if !self.pools[id].pool.serves(worker) {
            return;
        }
        warn!(
            "pool {pool} seat {}: its worker is ended: {}",
            worker.seat,
            one_line(why)
        );
        if self.is_fpm() {
            self.pools[id].to_be_replaced += 1;
        }
        self.pool_event(id, generation::GenerationEvent::EndWorker { worker });
    }

    /// A front has no request left.
    fn front_drained(&mut self, line: u32) {
        if line == self.front.line {
            self.front.drained = true;
        }
        if let Some(Upgrade::Opening { old, .. }) = &mut self.upgrade
            && old.line == line
        {
            old.drained = true;
        }
        let mut old = self.old_fronts.iter_mut();
        if let Some(old) = old.find(|old| old.line == line) {
            old.drained = true;
        }
        self.see_whether_drained();
    }

    /// Tells the front of a generation that it could not open when it was told before, and who has
    /// taken its place since.
    fn introduce_again(&mut self, id: PoolId) {
        let running = &self.pools[id];
        let Some(peer) = self
            .front
            .peer
            .as_mut()
            .filter(|_| running.line == self.front.line)
        else {
            return;
        };
        let name = &running.plan.settings.pool;
        running.tell_opened(peer, self.scores.page(name), &self.pools);
        let later = self.pools.iter().filter(|other| {
            let is_later = other.generation > running.generation && other.introduced;
            is_later && !other.closed && other.plan.settings.pool == *name
        });
        for new in later.map(|later| later.generation) {
            peer.say(ToFront::Replace { new }, &[]);
        }
        running.tell_seats(peer);
        if running.closed {
            let generation = running.generation;
            peer.say(ToFront::ClosePool { generation }, &[]);
        }
    }

    /// Every front there is, with its line.
    pub fn fronts(&self) -> impl Iterator<Item = (u32, &Peer<ToFront>)> {
        let replaced = match &self.upgrade {
            Some(Upgrade::Opening { old, .. }) => Some(old),
            _ => None,
        };
        let whole = [Some(&self.front), replaced].into_iter().flatten();
        let whole = whole.filter_map(|front| Some((front.line, front.peer.as_ref()?)));
        whole.chain(self.old_fronts.iter().map(|old| (old.line, &old.peer)))
    }

    /// The front of a line, if it is there.
    pub fn peer_of_line(&mut self, line: u32) -> Option<&mut Peer<ToFront>> {
        if self.front.line == line {
            return self.front.peer.as_mut();
        }
        if let Some(Upgrade::Opening { old, .. }) = &mut self.upgrade
            && old.line == line
        {
            return old.peer.as_mut();
        }
        let mut old = self.old_fronts.iter_mut();
        Some(&mut old.find(|old| old.line == line)?.peer)
    }

    /// Tells the server when no front has anything in hand any more.
    pub fn see_whether_drained(&mut self) {
        let current = self.front.drained || self.front.peer.is_none();
        let replaced = matches!(&self.upgrade, Some(Upgrade::Opening { old, .. }) if old.peer.is_some() && !old.drained);
        if current && !replaced && self.old_fronts.iter().all(|old| old.drained) {
            self.phase_event(phase::ServerEvent::Drained);
        }
    }

    pub fn front_listens(&mut self) {
        if self.front.life.ready(self.now()).is_err() {
            self.front.life.give_up();
            return self.kill_front("it said twice that it listens");
        }
        if matches!(self.upgrade, Some(Upgrade::Opening { .. })) {
            return self.front_has_taken_over();
        }
        if !self.phase.is_start() {
            info!("front {} accepts clients", self.front.epoch);
        }
        self.phase_event(phase::ServerEvent::Listening);
    }

    /// A front has ended. What the one of an earlier line left needs nobody any more.
    pub fn front_ended(&mut self, line: u32, how: HowEnded) {
        if line == self.front.line {
            return self.current_front_ended(how);
        }
        let now = self.now();
        if let Some(Upgrade::Opening { old, .. }) = &mut self.upgrade
            && old.line == line
        {
            old.peer = None;
            old.life.ended(now);
            self.scores.clear_front(old.epoch);
            error!("the front {how}; the one that was to take over is being started");
            return self.front_purges_no_more(line);
        }
        if let Some(id) = self.old_fronts.iter().position(|old| old.line == line) {
            let old = self.old_fronts.remove(id);
            self.scores.clear_front(old.epoch);
            if !old.drained {
                error!("front {} {how}; what it had in hand is lost", old.epoch);
            }
        }
        self.dismiss_workers_of(line);
        self.front_purges_no_more(line);
        self.see_whether_drained();
    }

    fn current_front_ended(&mut self, how: HowEnded) {
        self.front.peer = None;
        self.front.life.ended(self.now());
        self.front_answers_no_more();
        self.front_purges_no_more(self.front.line);
        self.scores.clear_front(self.front.epoch);
        if self.phase.wants_front() {
            self.fail(&format!("the front {how}"));
        }
        for id in self.pools.ids() {
            if self.pools[id].line == self.front.line {
                self.pool_event(id, generation::GenerationEvent::Wanted { workers: 0 });
            }
        }
        self.see_whether_drained();
    }
}

impl Supervisor {
    /// Tells the front what PHP a generation runs, if it knows of it.
    pub fn tell_manner(&mut self, id: PoolId) {
        let line = self.front.line;
        // Those whose PHP was never started hear of it, too.
        let concerned = |pool: &&RunningPool| {
            let is_asleep = pool.php.is_none() && pool.trusts_manner_of(&self.pools[id]);
            (pool.id() == id || is_asleep) && pool.introduced && pool.line == line
        };
        let pools = self.pools.iter().filter(concerned);
        let orders: Vec<ToFront> = pools.map(|pool| pool.manner(&self.pools)).collect();
        if let Some(peer) = &mut self.front.peer {
            for order in orders {
                peer.say(order, &[]);
            }
        }
    }
}

impl RunningPool {
    /// What answers say of this generation's PHP, and how it reads paths. As long as it was never
    /// started (`pm = ondemand`), it is what another of `all` says that runs the same program as
    /// the same user: no user says anything in the name of another.
    fn manner(&self, all: &Pools) -> ToFront {
        let is_alike = |other: &&RunningPool| {
            self.php.is_none() && other.php.is_some() && self.trusts_manner_of(other)
        };
        let alike = all.iter().find(is_alike);
        let manner = alike.map_or(&self.manner, |alike| &alike.manner);
        ToFront::SetPhpInfo {
            generation: self.generation,
            info: manner.clone(),
        }
    }

    fn trusts_manner_of(&self, other: &RunningPool) -> bool {
        let user = |pool: &RunningPool| {
            let identity = pool.plan.settings.identity.as_ref();
            identity.map(|identity| (identity.uid, identity.gid))
        };
        self.plan.program == other.plan.program && user(self) == user(other)
    }

    /// Tells a front of this generation, to be used from now on.
    pub fn tell_opened(&self, peer: &mut Peer<ToFront>, scoreboard: Option<&Page>, all: &Pools) {
        let generation = self.generation;
        let settings = serde_json::to_vec(&self.plan.pool).map_err(std::io::Error::from);
        let settings = settings.and_then(|json| shared::file_with("maitred-pool", &json));
        match settings {
            Ok(settings) => {
                let mut fds = vec![settings.as_fd()];
                fds.extend(self.plan.shared());
                fds.extend(scoreboard.map(AsFd::as_fd));
                peer.say(ToFront::OpenPool { generation }, &fds);
                peer.say(ToFront::Replace { new: generation }, &[]);
                peer.say(self.manner(all), &[]);
            }
            Err(why) => {
                let pool = &self.plan.settings.pool;
                error!("the front cannot be told of pool `{pool}`: {why}");
            }
        }
    }

    /// Tells a front who sits in the seats of this generation.
    fn tell_seats(&self, peer: &mut Peer<ToFront>) {
        for generation::Seated { worker, pid } in self.pool.seated() {
            if let Some(pidfd) = self.workers.get(&pid) {
                let order = ToFront::OpenSeat {
                    generation: self.generation,
                    worker,
                    pid,
                };
                peer.say(order, &[pidfd.as_fd()]);
            }
        }
    }
}

/// Which generation the front says something of, if it is one.
fn generation_of(report: &FromFront) -> Option<Generation> {
    match report {
        FromFront::WorkerFailed { generation, .. }
        | FromFront::ScriptDied { generation, .. }
        | FromFront::WorkersNeeded { generation, .. }
        | FromFront::SeatRetired { generation, .. }
        | FromFront::SeatWorn { generation, .. }
        | FromFront::OpenFailed { generation }
        | FromFront::SlowScriptFound { generation, .. } => Some(*generation),
        _ => None,
    }
}
