//! The state that one program hands to the next in an upgrade: processes, sockets and memory,
//! written as JSON with the numbers of descriptors, which stay open across the `exec`. A later
//! version must be able to read the state of an earlier one: add fields with a default, and raise
//! [`FORMAT`] only for what an older program cannot leave out.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use maitred_config::{Address, Config, Pool, PoolUser};
use maitred_control::{Clients, Generation, Incarnation, PhpInfo, WorkerId, ZygoteSettings};
use maitred_os::channel::{SupervisorEnd, Taken};
use maitred_os::walk::Untrusted;
use maitred_os::{shared, spawn};
use serde::{Deserialize, Serialize};

use crate::fronts::cookies::CookieNames;
use crate::fronts::purge_log::PurgeLogBefore;
use crate::fronts::{DrainingFront, Front, Fronts};
use crate::jobs::{JobState, Jobs};
use crate::limits::Moment;
use crate::listen::{FileState, Listener, OwnFile};
use crate::logging::log_openers::StuckOpener;
use crate::logging::pool_access_logs::PoolAccessLogs;
use crate::logging::pool_output::PoolOutput;
use crate::logging::terminal::Terminal;
use crate::logging::worker_output::{PipeReaders, WorkerOutput};
use crate::peer::Peer;
use crate::plan::Plan;
use crate::plan::folder_lookups::StuckLookup;
use crate::processes::application_memory::LeftMemory;
use crate::processes::generation;
use crate::processes::pipe_reader::StuckPipeReader;
use crate::processes::plan::PoolPlan;
use crate::processes::pools::Pools;
use crate::processes::running_pool::RunningPool;
use crate::processes::scoreboards::Scoreboards;
use crate::processes::zygote::Zygote;
use crate::system::deferred_close::{self, PoolEnds, close_later};
use crate::system::faults::Faults;
use crate::systemd::SystemdState;
use crate::tls::certificates::Certificates;

/// The format of the state.
const FORMAT: u32 = 2;

/// Largest state that is read, in bytes.
const MAX_STATE_BYTES: u64 = 256 << 20;

/// Everything that one supervisor hands to the next.
#[derive(Debug, Serialize, Deserialize)]
pub struct HandoverState {
    format: u32,
    /// Time since the first start of the server.
    pub elapsed: Duration,
    /// The configuration in use.
    pub config: Config,
    pub last_generation: Generation,
    /// The groups with untrusted members: users that cannot be looked up now have some of them.
    #[serde(default)]
    pub untrusted_groups: Option<Untrusted>,
    /// A reload was requested during the upgrade.
    #[serde(default)]
    pub reload_later: bool,
    #[serde(default)]
    pub cookies: CookieNames,
    #[serde(default)]
    pub systemd: SystemdState,
    /// The number of the front that was started last.
    #[serde(default)]
    last_epoch: u32,
    fronts: Vec<FrontState>,
    listeners: Vec<ListenerState>,
    terminal: Option<RawFd>,
    #[serde(default)]
    access_log: Option<RawFd>,
    /// A file with certificates and keys.
    #[serde(default)]
    certificates: Option<RawFd>,
    /// By their paths.
    #[serde(default)]
    pool_access_logs: Vec<(PathBuf, RawFd)>,
    #[serde(default)]
    stuck_log_openers: Vec<StuckOpener>,
    /// The faults of single sites and pools: the next program looks up no folder of a tenant.
    #[serde(default)]
    pub faults: Option<Faults>,
    #[serde(default)]
    pub stuck_lookups: Vec<StuckLookup>,
    /// The processes that read pipes and wait for locks.
    #[serde(default)]
    pub stuck_pipe_readers: Vec<StuckPipeReader>,
    /// What is closed once the locks of its pool are free, with the pool.
    #[serde(default)]
    deferred_closes: Vec<(String, RawFd)>,
    pools: Vec<PoolState>,
    /// By the name of the pool.
    #[serde(default)]
    scoreboards: Vec<(String, RawFd)>,
    /// Commands and schedules.
    #[serde(default)]
    jobs: Vec<JobState>,
    /// The memory of applications' counters.
    #[serde(default)]
    applications: Vec<LeftMemory<RawFd>>,
    /// Purges between nodes.
    #[serde(flatten)]
    pub purge_log: PurgeLogBefore,
}

/// A process with a channel.
#[derive(Debug, Serialize, Deserialize)]
struct PeerState {
    pid: i32,
    orders: RawFd,
    reports: RawFd,
    /// Partly received frame and report.
    taken: (Vec<u8>, Vec<u8>),
}

impl PeerState {
    fn descriptors(&self) -> [RawFd; 2] {
        [self.orders, self.reports]
    }
}

/// A front; the first is the one that accepts clients, the others are draining.
#[derive(Debug, Serialize, Deserialize)]
struct FrontState {
    line: u32,
    epoch: u32,
    peer: PeerState,
    until: Option<Duration>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ListenerState {
    asked: Address,
    address: Address,
    clients: Clients,
    sockets: Vec<RawFd>,
    #[serde(default)]
    file: Option<FileState>,
}

#[derive(Debug, Serialize, Deserialize)]
struct PoolState {
    generation: Generation,
    line: u32,
    introduced: bool,
    closed: bool,
    leaving: bool,
    #[serde(default)]
    leaves_with_front: bool,
    settings: ZygoteSettings,
    configured: Pool,
    pool: Pool,
    program: PathBuf,
    uid: u32,
    memory: RawFd,
    events: Vec<RawFd>,
    voice: (RawFd, RawFd),
    php: Option<String>,
    #[serde(default)]
    manner: PhpInfo,
    zygote: Option<PeerState>,
    workers: Vec<WorkerState>,
    /// The last incarnation of each seat.
    incarnations: Vec<Incarnation>,
    /// When workers were last needed.
    #[serde(default)]
    asked_at: Option<Duration>,
}

#[derive(Debug, Serialize, Deserialize)]
struct WorkerState {
    #[serde(flatten)]
    worker: WorkerId,
    pid: i32,
    worn: bool,
    /// It was dismissed.
    #[serde(default)]
    sentenced: bool,
    /// Its script has yet to boot.
    #[serde(default)]
    boots: bool,
    pidfd: RawFd,
    /// The reading ends of its standard output and error, if they are caught.
    #[serde(default)]
    output: Option<(Option<RawFd>, Option<RawFd>)>,
}

/// The state of the previous supervisor, taken over.
#[derive(Debug)]
pub struct InheritedServer {
    pub listeners: Vec<Listener>,
    pub terminal: Terminal,
    /// The access log, if it is a file.
    pub access_log: Option<File>,
    /// The certificates and keys of TLS.
    pub certificates: Option<Certificates>,
    /// The access logs of pools and sites.
    pub pool_access_logs: PoolAccessLogs,
    /// The processes that open logs and were late.
    pub stuck_log_openers: Vec<StuckOpener>,
    pub fronts: Fronts,
    pub pools: Vec<RunningPool>,
    /// By the name of the pool.
    pub scoreboards: Vec<(String, OwnedFd)>,
    /// Commands and schedules.
    pub jobs: Jobs,
    /// The memory of applications' counters.
    pub applications: Vec<LeftMemory<OwnedFd>>,
}

/// What a supervisor hands over.
#[derive(Debug)]
pub struct Running<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// All generations.
    pub pools: &'a Pools,
    /// All fronts.
    pub fronts: &'a Fronts,
    /// Cookies that sites have set.
    pub cookies: &'a CookieNames,
    /// All scoreboards.
    pub scoreboards: &'a Scoreboards,
    /// Commands and schedules.
    pub jobs: &'a Jobs,
    /// Purges between nodes.
    pub purge_log: PurgeLogBefore,
    /// What systemd knows.
    pub systemd: SystemdState,
    /// A reload waits for the upgrade.
    pub reload_later: bool,
    /// The processes that look names up and were late.
    pub stuck_lookups: &'a [StuckLookup],
    /// The processes that read pipes and wait for locks.
    pub stuck_pipe_readers: &'a [StuckPipeReader],
    /// The time.
    pub now: Moment,
}

impl HandoverState {
    /// Writes the state down. The descriptors are only numbers until [`HandoverState::keep_open`].
    pub fn of(running: &Running<'_>) -> HandoverState {
        let Running { plan, fronts, .. } = running;
        let current = fronts.current();
        let current = current.peer.as_ref().map(|peer| FrontState {
            line: current.line,
            epoch: current.epoch,
            peer: peer_state(peer),
            until: None,
        });
        let draining = fronts.draining().iter().map(|old| FrontState {
            line: old.line,
            epoch: old.epoch,
            peer: peer_state(&old.peer),
            until: Some(old.until),
        });
        HandoverState {
            format: FORMAT,
            elapsed: running.now,
            config: plan.config.clone(),
            last_generation: running.pools.last_generation(),
            untrusted_groups: Some(Untrusted::current()),
            reload_later: running.reload_later,
            cookies: running.cookies.clone(),
            systemd: running.systemd,
            last_epoch: fronts.last_epoch(),
            fronts: current.into_iter().chain(draining).collect(),
            listeners: plan.listeners.iter().map(listener_state).collect(),
            terminal: plan.terminal.descriptor().map(|fd| fd.as_raw_fd()),
            access_log: plan.logs.access_log().map(AsRawFd::as_raw_fd),
            certificates: plan.certificates.as_ref().and_then(Certificates::left),
            pool_access_logs: plan.logs.pool_logs().descriptors(),
            stuck_log_openers: plan.logs.openers().stuck().to_vec(),
            faults: Some(plan.faults.clone()),
            stuck_lookups: running.stuck_lookups.to_vec(),
            stuck_pipe_readers: running.stuck_pipe_readers.to_vec(),
            deferred_closes: deferred_close::left(),
            pools: running.pools.iter().map(pool_state).collect(),
            scoreboards: running.scoreboards.descriptors(),
            jobs: running.jobs.state(),
            applications: running.scoreboards.applications.descriptors(),
            purge_log: running.purge_log.clone(),
        }
    }

    /// Writes it into a file.
    ///
    /// # Errors
    /// One sentence, when the system is out of memory or descriptors.
    pub fn write(&self) -> Result<OwnedFd, String> {
        let file = serde_json::to_vec(self).map_err(std::io::Error::from);
        let file = file.and_then(|json| shared::file_with("maitred-state", &json));
        file.map_err(|why| format!("what is running cannot be written down: {why}"))
    }
}

impl HandoverState {
    /// Reads the state of the previous program from `file`.
    ///
    /// # Errors
    /// One sentence, when it cannot be read or its format is unknown.
    pub fn read(file: &OwnedFd) -> Result<HandoverState, String> {
        use std::io::Read;
        let bad =
            |why: String| format!("what the program before this one left cannot be read: {why}");
        let copy = file.try_clone().map_err(|why| bad(why.to_string()))?;
        let mut text = Vec::new();
        std::fs::File::from(copy)
            .take(MAX_STATE_BYTES)
            .read_to_end(&mut text)
            .map_err(|why| bad(why.to_string()))?;
        let state: HandoverState =
            serde_json::from_slice(&text).map_err(|why| bad(why.to_string()))?;
        if state.format != FORMAT {
            return Err(bad(format!(
                "it has form {}, and this version knows form {FORMAT}; restart the server instead",
                state.format
            )));
        }
        Ok(state)
    }

    /// All descriptors in it.
    fn descriptors(&self) -> Vec<RawFd> {
        let mut all: Vec<RawFd> = self.terminal.into_iter().collect();
        all.extend(self.access_log);
        all.extend(self.certificates);
        all.extend(self.pool_access_logs.iter().map(|(_, fd)| *fd));
        all.extend(self.fronts.iter().flat_map(|one| one.peer.descriptors()));
        all.extend(self.scoreboards.iter().map(|(_, fd)| *fd));
        all.extend(self.deferred_closes.iter().map(|(_, fd)| *fd));
        all.extend(self.jobs.iter().flat_map(JobState::descriptors));
        all.extend(self.applications.iter().map(|(_, _, fd)| *fd));
        for listener in &self.listeners {
            all.extend(&listener.sockets);
        }
        all.extend(self.purge_log.listener.iter().map(|listener| listener.socket));
        for pool in &self.pools {
            all.extend([pool.memory, pool.voice.0, pool.voice.1]);
            all.extend(&pool.events);
            all.extend(pool.zygote.iter().flat_map(PeerState::descriptors));
            for worker in &pool.workers {
                let (stdout, stderr) = worker.output.unwrap_or_default();
                all.extend([Some(worker.pidfd), stdout, stderr].into_iter().flatten());
            }
        }
        all
    }

    /// Keeps the descriptors open across the `exec` to come, or not.
    ///
    /// # Errors
    /// The system's error.
    pub fn keep_open(&self, keep: bool) -> io::Result<()> {
        for fd in self.descriptors() {
            spawn::keep_across_exec(fd, keep)?;
        }
        Ok(())
    }

    /// Takes everything over.
    ///
    /// # Errors
    /// When a descriptor is not there.
    pub fn inherit(self) -> io::Result<InheritedServer> {
        let mut front = Front::new(0, 0);
        let mut draining = Vec::new();
        for state in self.fronts {
            let FrontState { line, epoch, .. } = state;
            let peer = state.peer.inherit()?;
            match state.until {
                None => front = Front::running(line, epoch, peer, self.elapsed),
                Some(until) => {
                    draining.push(DrainingFront { line, epoch, peer, until, drained: false })
                }
            }
        }
        let pools = self.pools.into_iter();
        let pools: io::Result<Vec<RunningPool>> =
            pools.map(|pool| pool.inherit(self.elapsed)).collect();
        let listeners = self.listeners.into_iter().map(ListenerState::inherit);
        let access_log = self.access_log.map(spawn::inherited_fd).transpose()?;
        let certificates = self.certificates.map(spawn::inherited_fd).transpose()?;
        let pool_access_logs = self.pool_access_logs.into_iter();
        let pool_access_logs =
            pool_access_logs.map(|(path, fd)| Ok((path, spawn::inherited_fd(fd)?.into())));
        let pool_access_logs = pool_access_logs.collect::<io::Result<Vec<_>>>()?;
        let scoreboards = self.scoreboards.into_iter();
        let scoreboards = scoreboards.map(|(pool, fd)| Ok((pool, spawn::inherited_fd(fd)?)));
        let applications = self.applications.into_iter();
        let applications =
            applications.map(|(pool, user, fd)| Ok((pool, user, spawn::inherited_fd(fd)?)));
        for (pool, end) in self.deferred_closes {
            let ends = vec![Arc::new(spawn::inherited_fd(end)?)];
            close_later(PoolEnds { pool, ends });
        }
        Ok(InheritedServer {
            applications: applications.collect::<io::Result<_>>()?,
            listeners: listeners.collect::<io::Result<_>>()?,
            terminal: Terminal::over(self.terminal.map(spawn::inherited_fd).transpose()?),
            access_log: access_log.map(File::from),
            certificates: certificates.and_then(|file| Certificates::inherited(file).ok()),
            pool_access_logs: PoolAccessLogs::inherited(pool_access_logs),
            stuck_log_openers: self.stuck_log_openers,
            fronts: Fronts::new(front, draining).numbered_after(self.last_epoch),
            pools: pools?,
            scoreboards: scoreboards.collect::<io::Result<_>>()?,
            jobs: Jobs::inherited(self.jobs, self.elapsed)?,
        })
    }
}

fn peer_state<Out: Serialize>(peer: &Peer<Out>) -> PeerState {
    let (orders, reports, taken) = peer.channel();
    PeerState {
        pid: peer.pid(),
        orders,
        reports,
        taken: (taken.frame.clone(), taken.report.clone()),
    }
}

fn listener_state(listener: &Listener) -> ListenerState {
    ListenerState {
        asked: listener.asked.clone(),
        address: listener.address.clone(),
        clients: listener.clients.clone(),
        sockets: listener.sockets.iter().map(AsRawFd::as_raw_fd).collect(),
        file: listener.file.as_ref().map(OwnFile::state),
    }
}

fn pool_state(running: &RunningPool) -> PoolState {
    let plan = &running.plan;
    let workers = running.state.all_seated().filter_map(|(seated, mark)| {
        let generation::Seated { worker, pid } = seated;
        let pidfd = running.workers.get(&pid)?.as_raw_fd();
        Some(WorkerState {
            worker,
            pid,
            worn: mark == generation::WorkerMark::Worn,
            sentenced: mark == generation::WorkerMark::Sentenced,
            boots: mark == generation::WorkerMark::Boots,
            pidfd,
            output: running.outputs.get(&worker).and_then(WorkerOutput::descriptors),
        })
    });
    let zygote = running.zygote.as_ref().filter(|zygote| zygote.reaped.is_none());
    PoolState {
        generation: running.generation,
        line: running.line,
        introduced: running.introduced,
        closed: running.closed,
        leaving: running.state.is_leaving(),
        leaves_with_front: running.state.leaves_with_front(),
        settings: plan.settings.clone(),
        configured: plan.configured.clone(),
        pool: plan.pool.clone(),
        program: plan.program.clone(),
        uid: plan.uid,
        memory: plan.memory.as_raw_fd(),
        events: plan.events.iter().map(AsRawFd::as_raw_fd).collect(),
        voice: plan.output.descriptors(),
        php: running.php.clone(),
        manner: running.php_info.clone(),
        zygote: zygote.map(|zygote| peer_state(&zygote.peer)),
        workers: workers.collect(),
        incarnations: running.state.incarnations(),
        asked_at: running.state.asked_at(),
    }
}

impl PeerState {
    fn inherit<Out: Serialize>(self) -> io::Result<Peer<Out>> {
        let (frame, report) = self.taken;
        let orders = spawn::inherited_fd(self.orders)?;
        let reports = spawn::inherited_fd(self.reports)?;
        let channel = SupervisorEnd::over(orders, reports, Taken { frame, report });
        Peer::over(self.pid, channel)
    }
}

impl ListenerState {
    fn inherit(self) -> io::Result<Listener> {
        let sockets = self.sockets.into_iter().map(spawn::inherited_fd);
        Ok(Listener {
            asked: self.asked,
            address: self.address,
            clients: self.clients,
            sockets: sockets.collect::<io::Result<_>>()?,
            file: self.file.map(OwnFile::over),
        })
    }
}

impl PoolState {
    fn inherit(mut self, now: Duration) -> io::Result<RunningPool> {
        // An older program does not hand it over.
        self.configured.runs_as = PoolUser::of(self.settings.identity.as_ref());
        self.pool.runs_as = self.configured.runs_as;
        let events = self.events.into_iter().map(spawn::inherited_fd);
        let plan = PoolPlan {
            php: self.configured.php.clone(),
            configured: self.configured,
            pool: self.pool,
            program: self.program,
            uid: self.uid,
            memory: spawn::inherited_fd(self.memory)?,
            events: events.collect::<io::Result<_>>()?,
            output: PoolOutput::over(
                spawn::inherited_fd(self.voice.0)?,
                spawn::inherited_fd(self.voice.1)?,
                &self.settings.pool,
            ),
            settings: self.settings,
            // The generations of the old program leave.
            preload: None,
        };
        let mut running = RunningPool::new(self.generation, self.line, plan);
        running.php_info = self.manner;
        let mut seated = Vec::new();
        for worker in self.workers {
            let pidfd = spawn::inherited_fd(worker.pidfd)?;
            running.workers.insert(worker.pid, pidfd);
            if let Some((stdout, stderr)) = worker.output {
                let stdout = stdout.map(spawn::inherited_fd).transpose()?;
                let stderr = stderr.map(spawn::inherited_fd).transpose()?;
                let readers = PipeReaders { stdout, stderr };
                let output = WorkerOutput::over(Some(worker.pid), readers, running.name());
                running.outputs.insert(worker.worker, output);
            }
            let who = generation::Seated { worker: worker.worker, pid: worker.pid };
            let mark = match (worker.sentenced, worker.worn) {
                (true, _) => generation::WorkerMark::Sentenced,
                (false, _) if worker.boots => generation::WorkerMark::Boots,
                (false, true) => generation::WorkerMark::Worn,
                (false, false) => generation::WorkerMark::None,
            };
            seated.push((who, mark));
        }
        let zygote = self.zygote.map(PeerState::inherit).transpose()?;
        let up = zygote.is_some();
        running.state.remember(&self.incarnations);
        running.state.take_over(&seated, up, self.leaving, now);
        if self.leaves_with_front {
            running.state.leave_with_front();
        }
        running.state.was_asked_at(self.asked_at);
        running.zygote = zygote.map(|peer: Peer<_>| {
            let mut peer = peer.of_pool(running.name());
            peer.allow(running.plan.descriptors_of_zygote());
            Zygote::inherited(peer, running.plan.settings.seats)
        });
        running.introduced = self.introduced;
        running.closed = self.closed;
        running.php = self.php;
        running.copies_shown = running.copy_counters();
        Ok(running)
    }
}
