//! Waiting for events, and no longer than until something is due.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use maitred_control::acme::ToAcme;
use maitred_control::memory_reader::ToMemoryReader;
use maitred_control::pipe_reader::ToPipeReader;
use maitred_control::purge_log::ToPurgeLog;
use maitred_control::shared_certificates::ToShared;
use maitred_control::{ToFront, ToZygote};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::error;

use super::Supervisor;
use crate::capacity::boot_order;
use crate::fpm::process_control_timeout;
use crate::limits::{Moment, ZYGOTE_LINGER};
use crate::peer::Peer;
use crate::processes::opcache_warming::OpcacheWarming;
use crate::processes::pools::PoolId;
use crate::processes::running_pool::RunningPool;
use crate::tls::certificates::Certificates;

/// How long to sleep after `poll(2)` has failed, so as not to spin.
const REFUSED_WAIT: Duration = Duration::from_millis(100);

/// What can be read.
pub struct Ready {
    pub signals: bool,
    /// By the lines of the fronts.
    pub fronts: Vec<u32>,
    pub zygotes: Vec<PoolId>,
    /// The numbers of pipes that tenants' code can write to.
    pub pipes: Vec<u64>,
    pub pipe_reader: bool,
    /// Files of an application that is watched.
    pub watches: bool,
    /// The alarm of schedules.
    pub alarm: bool,
    pub acme: bool,
    pub shared_certificates: bool,
    pub purge_log: bool,
    pub memory: bool,
    pub admin: bool,
}

/// What is polled, in this order.
struct Polled<'a> {
    signals: PollFd<'a>,
    fronts: Vec<(u32, &'a Peer<ToFront>)>,
    zygotes: Vec<(PoolId, &'a Peer<ToZygote>)>,
    pipes: Vec<(u64, BorrowedFd<'a>)>,
    pipe_reader: Option<&'a Peer<ToPipeReader>>,
    watches: Vec<BorrowedFd<'a>>,
    alarm: Option<BorrowedFd<'a>>,
    acme: Option<&'a Peer<ToAcme>>,
    shared_certificates: Option<&'a Peer<ToShared>>,
    purge_log: Option<&'a Peer<ToPurgeLog>>,
    memory: Option<&'a Peer<ToMemoryReader>>,
    admin: Vec<PollFd<'a>>,
}

impl<'a> Polled<'a> {
    fn of(server: &'a Supervisor) -> Polled<'a> {
        let (pools, now) = (&server.pools, server.now());
        let fronts = server.fronts.iter().filter(|(_, peer)| !peer.is_closed());
        let pipes = pools.iter().flat_map(|pool| pool.pipes(now)).chain(server.jobs.pipes(now));
        Polled {
            signals: PollFd::new(&server.signals, PollFlags::IN),
            fronts: fronts.collect(),
            zygotes: pools.iter().filter_map(zygote_of).collect(),
            pipes: if server.reads_pipes() { pipes.collect() } else { Vec::new() },
            pipe_reader: server.pipe_reader.listening(),
            watches: server.watches.listening().collect(),
            alarm: server.jobs.alarm(),
            acme: server.acme.listening(),
            shared_certificates: server.acme.listening_to_shared(),
            purge_log: server.purge_log.listening(),
            memory: server.memory_reader.listening(),
            admin: server.admin.interests().collect(),
        }
    }

    fn interests(&self) -> Vec<PollFd<'a>> {
        let mut fds = vec![self.signals.clone()];
        fds.extend(self.fronts.iter().flat_map(|(_, peer)| peer.interests()));
        fds.extend(self.zygotes.iter().flat_map(|(_, peer)| peer.interests()));
        let pipes = self.pipes.iter().map(|(_, pipe)| pipe);
        let read = pipes.chain(&self.watches).chain(&self.alarm);
        fds.extend(read.map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
        fds.extend(self.pipe_reader.iter().flat_map(|peer| peer.interests()));
        fds.extend(self.acme.iter().flat_map(|peer| peer.interests()));
        fds.extend(self.shared_certificates.iter().flat_map(|peer| peer.interests()));
        fds.extend(self.purge_log.iter().flat_map(|peer| peer.interests()));
        fds.extend(self.memory.iter().flat_map(|peer| peer.interests()));
        fds.extend(self.admin.iter().cloned());
        fds
    }

    /// What can be read, by the results for [`Polled::interests`].
    fn ready(self, fds: &[PollFd<'_>]) -> Ready {
        let mut results = fds.iter().map(|fd| !fd.revents().is_empty());
        let mut next = || results.next().unwrap_or(false);
        let signals = next();
        let fronts = self.fronts.iter();
        let fronts = fronts.filter_map(|(line, peer)| peer.is_ready(&mut next).then_some(*line));
        let fronts = fronts.collect();
        let zygotes = self.zygotes.iter();
        let zygotes = zygotes.filter_map(|(id, peer)| peer.is_ready(&mut next).then_some(*id));
        let zygotes = zygotes.collect();
        let pipes = self.pipes.iter();
        let pipes = pipes.filter_map(|(number, _)| next().then_some(*number)).collect();
        Ready {
            signals,
            fronts,
            zygotes,
            pipes,
            watches: self.watches.iter().fold(false, |any, _| next() || any),
            alarm: self.alarm.is_some() && next(),
            pipe_reader: self.pipe_reader.is_some_and(|peer| peer.is_ready(&mut next)),
            acme: self.acme.is_some_and(|peer| peer.is_ready(&mut next)),
            shared_certificates: self
                .shared_certificates
                .is_some_and(|peer| peer.is_ready(&mut next)),
            purge_log: self.purge_log.is_some_and(|peer| peer.is_ready(&mut next)),
            memory: self.memory.is_some_and(|peer| peer.is_ready(&mut next)),
            admin: results.any(|is_ready| is_ready),
        }
    }
}

fn zygote_of(pool: &RunningPool) -> Option<(PoolId, &Peer<ToZygote>)> {
    let peer = &pool.zygote.as_ref()?.peer;
    (!peer.is_closed()).then(|| (pool.id(), peer))
}

/// Waits until something can be read, or something is due.
pub fn wait(server: &Supervisor) -> Ready {
    let polled = Polled::of(server);
    let mut fds = polled.interests();
    let timeout = if server.reaps_on {
        Some(Duration::ZERO)
    } else {
        deadline(server).map(|deadline| deadline.saturating_sub(server.now()))
    };
    let timeout = timeout.and_then(|wait| Timespec::try_from(wait).ok());
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(why) => {
            error!("waiting for events failed: {why}");
            std::thread::sleep(REFUSED_WAIT);
        }
    }
    polled.ready(&fds)
}

/// When something is due without an event.
fn deadline(server: &Supervisor) -> Option<Moment> {
    let (pools, phase, now) = (&server.pools, &server.phase, server.now());
    let wants_front = phase.wants_front();
    let is_serving = phase.is_serving() && !server.upgrader.is_going_on();
    let certificates = server.plan.certificates.as_ref().filter(|_| wants_front);
    let front = wants_front.then(|| server.fronts.current().life.deadline());
    let liveness = wants_front.then_some(server.fronts.current().liveness).flatten();
    let capacity = phase.wants_workers().then(|| server.capacity.deadline(pools));
    let fixed = [
        phase.deadline(),
        server.exit_reports.deadline(),
        server.reloader.deadline(),
        server.lookups.deadline(),
        server.restarts_deadline(),
        server.watches.deadline(),
        server.preloading.deadline(pools),
        server.profiles.deadline(),
        server.config_watch.deadline(is_serving && server.plan.source.watched_file().is_some()),
        server.traces.deadline(),
        server.upgrader.deadline(),
        server.faults_deadline(),
        server.php_files_deadline(),
        server.fronts.deadline(),
        server.purges.deadline(),
        process_control_timeout::deadline(pools),
        server.systemd.deadline(),
        certificates.map(Certificates::deadline),
        capacity.flatten(),
        server.script_waits.deadline(),
        server.jobs.deadline(server.jobs_may_start(), now),
        server.acme.deadline(&server.plan.config, is_serving),
        server.purge_log.deadline(&server.plan.config, server.wants_purge_log()),
        server.admin.deadline(),
        server.memory_reader.deadline(),
        server.slowlog_writers.deadline(!phase.wants_workers()),
        server.pipe_reader.deadline(),
        server.script_children.deadline(),
        front.flatten(),
        boot_order::deadline(pools, now),
        liveness.map(|liveness| liveness.deadline()),
    ];
    let of_pools = pools.iter().flat_map(|pool| {
        let reaped = pool.zygote.as_ref().and_then(|zygote| zygote.reaped);
        let state = phase.wants_workers().then(|| pool.state.deadline());
        [
            reaped.map(|reaped| reaped + ZYGOTE_LINGER),
            pool.slow_scripts.deadline(),
            state.flatten(),
            pool.output_deadline(now),
            pool.warming.as_ref().map(OpcacheWarming::until),
            pool.errors.deadline(),
        ]
    });
    fixed.into_iter().chain(of_pools).flatten().min()
}
