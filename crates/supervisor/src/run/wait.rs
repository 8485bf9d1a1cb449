//! Waiting: for all that can have something to say, and no longer than until something is due.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use maitred_control::acme::ToAcme;
use maitred_control::{ToFront, ToZygote};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::error;

use crate::limits::{Moment, ZYGOTE_LINGER};
use crate::logging::line_framing::OutputStream;
use crate::logging::worker_output::Key;
use crate::peer::Peer;
use crate::processes::opcache_warming::OpcacheWarming;
use crate::processes::pools::PoolId;
use crate::processes::running_pool::RunningPool;
use crate::run::Supervisor;

/// How long to sleep after the system refused to let us wait, so as not to spin.
const REFUSED_WAIT: Duration = Duration::from_millis(100);

/// Who has something to say.
pub struct Ready {
    pub signals: bool,
    /// By [`Supervisor::fronts`].
    pub fronts: Vec<bool>,
    pub zygotes: Vec<PoolId>,
    pub voices: Vec<PoolId>,
    pub outputs: Vec<(PoolId, Key, OutputStream)>,
    /// Files of an application that is watched.
    pub watches: bool,
    pub acme: bool,
    pub admin: bool,
}

/// Who is listened to, in the order in which they are waited for.
struct Listened<'a> {
    signals: PollFd<'a>,
    fronts: Vec<&'a Peer<ToFront>>,
    zygotes: Vec<(PoolId, &'a Peer<ToZygote>)>,
    voices: Vec<(PoolId, BorrowedFd<'a>)>,
    outputs: Vec<((PoolId, Key, OutputStream), BorrowedFd<'a>)>,
    watches: Vec<BorrowedFd<'a>>,
    acme: Option<&'a Peer<ToAcme>>,
    admin: Vec<PollFd<'a>>,
}

impl<'a> Listened<'a> {
    /// What is waited for.
    fn interests(&self) -> Vec<PollFd<'a>> {
        let mut fds = vec![self.signals.clone()];
        let fronts = self.fronts.iter().filter(|peer| !peer.is_closed());
        fds.extend(fronts.flat_map(|peer| peer.interests()));
        let zygotes = self.zygotes.iter();
        fds.extend(zygotes.flat_map(|(_, peer)| peer.interests()));
        let voices = self.voices.iter().map(|(_, pipe)| pipe);
        let outputs = self.outputs.iter().map(|(_, pipe)| pipe);
        let read = voices.chain(outputs).chain(&self.watches);
        fds.extend(read.map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
        let acme = self.acme.iter();
        fds.extend(acme.flat_map(|peer| peer.interests()));
        fds.extend(self.admin.iter().cloned());
        fds
    }

    /// Who of them has something to say, by what became of their `interests`.
    fn ready(self, fds: &[PollFd<'_>]) -> Ready {
        let mut spoke = fds.iter().map(|fd| !fd.revents().is_empty());
        let mut next = || spoke.next().unwrap_or(false);
        let fronts = self.fronts.iter();
        let zygotes = self.zygotes.iter();
        let voices = self.voices.iter();
        let outputs = self.outputs.into_iter();
        Ready {
            signals: next(),
            fronts: fronts
                .map(|peer| !peer.is_closed() && peer.is_ready(&mut next))
                .collect(),
            zygotes: zygotes
                .filter_map(|(id, peer)| peer.is_ready(&mut next).then_some(*id))
                .collect(),
            voices: voices.filter_map(|(id, _)| next().then_some(*id)).collect(),
            outputs: outputs
                .filter_map(|(output, _)| next().then_some(output))
                .collect(),
            watches: self.watches.iter().fold(false, |any, _| next() || any),
            acme: self.acme.is_some_and(|peer| peer.is_ready(&mut next)),
            admin: spoke.any(|spoke| spoke),
        }
    }
}

impl Supervisor {
    /// Waits until somebody has something to say, or something is due.
    pub fn wait(&self) -> Ready {
        let listened = self.listened();
        let mut fds = listened.interests();
        let timeout = match self.reaps_on {
            true => Some(Duration::ZERO),
            false => self
                .deadline()
                .map(|deadline| deadline.saturating_sub(self.now())),
        };
        let timeout = timeout.and_then(|wait| Timespec::try_from(wait).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(why) => {
                error!("waiting for events failed: {why}");
                std::thread::sleep(REFUSED_WAIT);
            }
        }
        listened.ready(&fds)
    }

    fn listened(&self) -> Listened<'_> {
        let now = self.now();
        Listened {
            signals: PollFd::new(&self.signals, PollFlags::IN),
            fronts: self.fronts().map(|(_, peer)| peer).collect(),
            zygotes: self.pools.iter().filter_map(zygote_of).collect(),
            voices: self
                .pools
                .iter()
                .filter_map(|pool| Some((pool.id(), pool.plan.voice.listening(now)?)))
                .collect(),
            outputs: self.outputs_to_hear().collect(),
            watches: self.watches.listening().collect(),
            acme: self.acme.listening(),
            admin: self.admin.interests().collect(),
        }
    }

    /// The pipes of workers, each with whose it is.
    fn outputs_to_hear(
        &self,
    ) -> impl Iterator<Item = ((PoolId, Key, OutputStream), BorrowedFd<'_>)> {
        let outputs = self.pools.iter().flat_map(|pool| {
            let id = pool.id();
            let outputs = pool.outputs.iter();
            outputs.map(move |(key, output)| (id, *key, output))
        });
        outputs.flat_map(|(id, key, output)| {
            let pipes = output.listening();
            pipes.map(move |(source, pipe)| ((id, key, source), pipe))
        })
    }

    fn deadline(&self) -> Option<Moment> {
        let fixed = [
            self.phase.deadline(),
            self.obituaries.deadline(),
            self.reloads.deadline(),
            self.renewal_deadline(),
            self.watch_deadline(),
            self.traces.deadline(),
            self.upgrade_deadline(),
            self.purges.deadline(),
            self.leaving_deadline(),
            self.systemd.deadline(),
            self.certificates_deadline(),
            self.room_deadline(),
            self.acme_deadline(),
        ];
        let slow = self.pools.iter().filter_map(|pool| pool.slow.deadline());
        let front = self
            .phase
            .wants_front()
            .then(|| self.front.life.deadline())
            .flatten();
        let reaped = self
            .pools
            .iter()
            .filter_map(|pool| pool.zygote.as_ref()?.reaped);
        let lingering = reaped.map(|reaped| reaped + ZYGOTE_LINGER);
        let now = self.now();
        let deaf = self
            .pools
            .iter()
            .filter_map(|pool| pool.plan.voice.deadline(now));
        let warming = self.pools.iter().filter_map(|pool| pool.warming.as_ref());
        let warming = warming.map(OpcacheWarming::until);
        let wants_workers = self.phase.wants_workers();
        let pools = self.pools.iter().filter(|_| wants_workers);
        let pools = pools.filter_map(|pool| pool.pool.deadline());
        fixed
            .into_iter()
            .flatten()
            .chain(front)
            .chain(lingering)
            .chain(slow)
            .chain(pools)
            .chain(deaf)
            .chain(warming)
            .chain(
                self.pools
                    .iter()
                    .filter_map(|pool| pool.troubles.deadline()),
            )
            .chain(self.admin.deadline())
            .min()
    }
}

fn zygote_of(pool: &RunningPool) -> Option<(PoolId, &Peer<ToZygote>)> {
    let peer = &pool.zygote.as_ref()?.peer;
    (!peer.is_closed()).then(|| (pool.id(), peer))
}
