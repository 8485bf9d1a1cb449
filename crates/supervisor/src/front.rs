//! The front as the supervisor sees it: starting it, and telling it all it has to know.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::Path;

use maitred_control::{FromFront, ToFront};
use maitred_os::fork::HowEnded;
use maitred_os::shared;
use maitred_os::signals::Signal;
use maitred_os::spawn::Program;
use tracing::{error, info, warn};

use crate::life::Step;
use crate::limits::FRONT_START;
use crate::peer::Peer;
use crate::phase;
use crate::pool;
use crate::run::{RunningPool, Supervisor};
use crate::words::one_line;
use crate::{FRONT_ROLE, roomy_name};

/// The program that runs, whatever has become of its file since.
const THIS_PROGRAM: &str = "/proc/self/exe";

impl Supervisor {
    /// Sees to it that there is a front, as long as there has to be one.
    pub(crate) fn keep_front(&mut self) {
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
    pub(crate) fn close_listeners(&mut self) {
        for listener in &mut self.plan.listeners {
            listener.sockets.clear();
        }
    }

    /// Tells a new front all there is to know: where to listen, the pools, who sits where.
    fn introduce(&self, peer: &mut Peer<ToFront>) {
        for listener in &self.plan.listeners {
            for (thread, socket) in (0..).zip(&listener.sockets) {
                let address = listener.address.to_string();
                peer.say(ToFront::Listen { thread, address }, &[socket.as_fd()]);
            }
        }
        for running in &self.pools {
            introduce_pool(peer, running);
        }
        peer.say(ToFront::Begin, &[]);
    }

    fn kill_front(&mut self, why: &str) {
        if let Some(peer) = &self.front.peer {
            peer.signal(Signal::SIGKILL);
        }
        self.fail(&format!("the front is killed: {why}"));
    }

    /// Acts on what the front says.
    pub(crate) fn front_said(&mut self, report: FromFront) {
        match report {
            FromFront::Listening => self.front_listens(),
            FromFront::EndWorker {
                generation,
                seat,
                incarnation,
                why,
            } => {
                let Some(index) = self.index_of(generation) else {
                    return;
                };
                let pool = self.name(index);
                warn!(
                    "pool {pool} seat {seat}: its worker is ended: {}",
                    one_line(&why)
                );
                self.pool_event(index, pool::Event::EndWorker { seat, incarnation });
            }
            FromFront::ScriptDied {
                generation,
                seat,
                incarnation,
                script,
            } => {
                let Some(index) = self.index_of(generation) else {
                    return;
                };
                let who = self.who(index, seat, incarnation);
                let (now, script) = (self.now(), one_line(&script));
                self.obituaries.ran(who, script, now);
            }
            FromFront::Wanted {
                generation,
                workers,
            } => {
                if let Some(index) = self.index_of(generation) {
                    self.pool_event(index, pool::Event::Wanted { workers });
                }
            }
            FromFront::SeatRetired {
                generation,
                seat,
                incarnation,
            } => {
                if let Some(index) = self.index_of(generation) {
                    self.pool_event(index, pool::Event::Retired { seat, incarnation });
                }
            }
            FromFront::SeatWorn { .. } | FromFront::Reconfigured { .. } => {}
            FromFront::Drained => self.phase_event(phase::Event::Drained),
        }
    }

    pub(crate) fn front_listens(&mut self) {
        if self.front.life.ready(self.now()).is_err() {
            self.front.life.give_up();
            return self.kill_front("it said twice that it listens");
        }
        if !self.phase.is_start() {
            info!("front {} accepts clients", self.front.epoch);
        }
        self.phase_event(phase::Event::Listening);
    }

    pub(crate) fn front_ended(&mut self, how: HowEnded) {
        self.front.peer = None;
        self.front.life.ended(self.now());
        if self.phase.wants_front() {
            self.fail(&format!("the front {how}"));
        }
        for index in 0..self.pools.len() {
            self.pool_event(index, pool::Event::Wanted { workers: 0 });
        }
        self.phase_event(phase::Event::Drained);
    }
}

/// Tells a front of a generation of a pool, and who sits in its seats.
fn introduce_pool(peer: &mut Peer<ToFront>, running: &RunningPool) {
    let generation = running.generation;
    let settings = serde_json::to_vec(&running.plan.pool).map_err(std::io::Error::from);
    let settings = settings.and_then(|json| shared::file_with("maitred-pool", &json));
    let settings = match settings {
        Ok(settings) => settings,
        Err(why) => {
            let pool = &running.plan.settings.pool;
            return error!("the front cannot be told of pool `{pool}`: {why}");
        }
    };
    let mut fds = vec![settings.as_fd()];
    fds.extend(running.plan.shared());
    peer.say(ToFront::OpenPool { generation }, &fds);
    peer.say(ToFront::Replace { new: generation }, &[]);
    for pool::Seated {
        seat,
        incarnation,
        pid,
    } in running.pool.seated()
    {
        if let Some(pidfd) = running.workers.get(&pid) {
            let order = ToFront::OpenSeat {
                generation,
                seat,
                incarnation,
                pid,
            };
            peer.say(order, &[pidfd.as_fd()]);
        }
    }
}
