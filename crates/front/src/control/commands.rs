//! The supervisor's commands while clients are served: one task receives them, and each thread
//! carries out its part.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use maitred_config::Config;
use maitred_control::admin::FrontFigures;
use maitred_control::{
    Clients, FromFront, Generation as Number, Received, ToFront, WorkerId, acme, purge,
};
use maitred_sandbox::Readable;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::admin::{busy_routes, node_load, readiness};
use crate::cache::purge::OrderedPurge;
use crate::logging::access_log::AccessLog;
use crate::net::readable::readable;
use crate::net::tls::Tls;
use crate::pool::generation::Generation;
use crate::pool::queue::SeatId;
use crate::pool::worker_events::{EventThrottle, PAUSE};
use crate::pool::{Pool, thread_local};
use crate::runtime::sandbox;
use crate::runtime::supervisor_channel::{read_json, write_json};
use crate::server::accept::{Acceptor, accept};
use crate::services::{Shared, Thread};
use crate::services::{expiries, history};

/// Commands that may be queued for a thread before the sender waits.
const ORDERS_AHEAD: usize = 64;
/// Pause before a worker that cannot be watched is replaced, and a generation that cannot be opened
/// is retried: the cause may be gone then, and workers must not be forked without a pause.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Longest wait until a purge that the supervisor orders is recorded: as long as it waits for the
/// report.
const PURGE_RECORDED: Duration = Duration::from_secs(10);

/// A command for one thread.
pub enum ThreadOrder {
    /// Listen to a generation's workers.
    Add(Arc<Generation>),
    /// Forget a generation.
    Remove(Number),
    /// Accept clients.
    Listen {
        /// The address, for [`ThreadOrder::Unlisten`].
        address: String,
        /// The socket.
        socket: OwnedFd,
        /// The kind of its clients.
        clients: Clients,
    },
    /// Accept no more clients at an address.
    Unlisten(String),
    /// Open the sites of a new configuration, and report the result.
    Prepare(Arc<Config>, oneshot::Sender<Result<(), String>>),
    /// Use the sites that were opened.
    Switch(oneshot::Sender<()>),
    /// Drop the sites that were opened.
    Discard,
    /// Reply, which shows that the thread does not hang.
    ReportAlive(oneshot::Sender<()>),
}

/// A channel for commands to a thread.
pub fn channel() -> (mpsc::Sender<ThreadOrder>, mpsc::Receiver<ThreadOrder>) {
    mpsc::channel(ORDERS_AHEAD)
}

/// A worker's event only has to wake the thread: the thread's hooks do the rest. The event is
/// edge-triggered, so its counter need not be read.
async fn listen_to(generation: Weak<Generation>, thread: u32) {
    let mut throttle = EventThrottle::default();
    let mut has_failed = false;
    loop {
        let listened = {
            let Some(generation) = generation.upgrade() else {
                return;
            };
            let Some(event) = generation.event(thread) else {
                return;
            };
            let listened = event.try_clone().and_then(readable);
            if let (Err(error), false) = (&listened, has_failed) {
                let pool = &generation.settings.name;
                tracing::error!(
                    "pool {pool}: its workers cannot be listened to: {error}; it is tried again \
                     every second; if it is the limit of open files, raise it"
                );
            }
            listened
        };
        has_failed = listened.is_err();
        let Ok(listened) = listened else {
            tokio::time::sleep(TRY_AGAIN_AFTER).await;
            continue;
        };
        while let Ok(mut ready) = listened.readable().await {
            ready.clear_ready();
            let Some(generation) = generation.upgrade() else {
                return;
            };
            if throttle.is_wasteful(generation.useful_events(thread)) {
                break;
            }
        }
        // While it is awaited, each event wakes the thread. Earlier events show at once.
        drop(listened);
        tokio::time::sleep(PAUSE).await;
    }
}

/// Carries out the commands of one thread until the thread ends.
pub async fn follow_thread(mut orders: mpsc::Receiver<ThreadOrder>, thread: Arc<Thread>) {
    let mut follower = ThreadCommands {
        acceptor: Arc::new(Acceptor::new(thread.clone())),
        thread,
        events: HashMap::new(),
        listeners: HashMap::new(),
    };
    while let Some(order) = orders.recv().await {
        follower.follow(order);
    }
}

/// The tasks that commands have started on a thread.
struct ThreadCommands {
    thread: Arc<Thread>,
    acceptor: Arc<Acceptor>,
    /// The tasks that wait for the workers of each generation.
    events: HashMap<Number, AbortHandle>,
    /// Stops accepting at each address.
    listeners: HashMap<String, oneshot::Sender<()>>,
}

impl ThreadCommands {
    fn follow(&mut self, order: ThreadOrder) {
        match order {
            ThreadOrder::Add(generation) => self.add(generation),
            ThreadOrder::Remove(number) => {
                thread_local::remove(number);
                if let Some(task) = self.events.remove(&number) {
                    task.abort();
                }
            }
            ThreadOrder::Listen { address, socket, clients } => {
                let (end, ended) = oneshot::channel();
                tokio::spawn(accept(socket, clients, self.acceptor.clone(), ended));
                self.listeners.insert(address, end);
            }
            ThreadOrder::Unlisten(address) => {
                if let Some(end) = self.listeners.remove(&address) {
                    let _ = end.send(());
                }
            }
            ThreadOrder::Prepare(config, response) => {
                let _ = response.send(self.thread.prepare(&config));
            }
            ThreadOrder::Switch(done) => {
                self.thread.switch();
                let opening = self.thread.clone();
                tokio::spawn(async move { opening.open_roots().await });
                let _ = done.send(());
            }
            ThreadOrder::Discard => self.thread.discard(),
            ThreadOrder::ReportAlive(response) => {
                let _ = response.send(());
            }
        }
    }

    fn add(&mut self, generation: Arc<Generation>) {
        let task = tokio::spawn(listen_to(Arc::downgrade(&generation), self.thread.number));
        self.events.insert(generation.number, task.abort_handle());
        thread_local::add(generation);
    }
}

/// Receives the supervisor's commands.
pub struct CommandReceiver {
    shared: Arc<Shared>,
    epoch: u32,
    /// The folders that the sandbox lets the front read.
    readable: Readable,
    threads: Vec<mpsc::Sender<ThreadOrder>>,
    /// Called with every configuration in use.
    follow: fn(&Config),
}

impl CommandReceiver {
    /// A receiver that sends commands to `threads`, and calls `follow` with every configuration.
    pub fn new(
        shared: Arc<Shared>,
        epoch: u32,
        readable: Readable,
        threads: Vec<mpsc::Sender<ThreadOrder>>,
        follow: fn(&Config),
    ) -> CommandReceiver {
        CommandReceiver { shared, epoch, readable, threads, follow }
    }

    /// Carries out the commands that arrived during the start, which name all pools.
    pub async fn introduce(&self, early: Vec<(ToFront, Vec<OwnedFd>)>) {
        for (order, fds) in early {
            self.follow(order, fds).await;
        }
        self.shared.is_introduced.store(true, Ordering::Relaxed);
        self.shared.supervisor.report(&FromFront::Listening);
    }

    /// Carries out further commands until the channel is closed.
    pub async fn run(self) {
        let shared = &self.shared;
        let Ok(channel) = shared.supervisor.channel().as_fd().try_clone_to_owned() else {
            return;
        };
        let Ok(channel) = readable(channel) else {
            return;
        };
        loop {
            match shared.supervisor.order(false) {
                Ok(Received::Message(order, fds)) => self.follow(order, fds).await,
                Ok(Received::Nothing) => match channel.readable().await {
                    Ok(mut ready) => ready.clear_ready(),
                    Err(_) => return,
                },
                Ok(Received::Closed) => return shared.drain(),
                Err(error) => tracing::error!("a command is invalid: {error}"),
            }
        }
    }

    async fn follow(&self, order: ToFront, mut fds: Vec<OwnedFd>) {
        let shared = &self.shared;
        match order {
            ToFront::PrepareStop => shared.prepare_stop(),
            ToFront::Drain => shared.drain(),
            ToFront::HandOver => self.hand_over(),
            ToFront::Settle { mark } => self.settle(mark),
            ToFront::CheckLiveness => self.report_alive(),
            ToFront::Listen { thread, address, clients } => {
                self.listen(thread, address, clients, fds.pop()).await
            }
            ToFront::Unlisten { address } => {
                self.tell_all(|| ThreadOrder::Unlisten(address.clone())).await;
            }
            ToFront::OpenPool { generation } => self.open_pool(generation, fds).await,
            ToFront::Replace { new } => self.with_pool(new, |pool| pool.replace(new)),
            ToFront::SuspendPool { generation } => {
                self.with_pool(generation, |pool| pool.suspend(Instant::now()));
            }
            ToFront::ClosePool { generation } => {
                self.with_pool(generation, |pool| pool.leave(generation));
            }
            ToFront::SetPhpInfo { generation, info } => {
                self.with_pool(generation, |pool| pool.manner.store(Arc::new(info)));
            }
            ToFront::SetCapacity { generation, cores, workers } => {
                self.with_pool(generation, |pool| pool.set_capacity(cores, workers))
            }
            ToFront::ReplaceWorker {
                generation,
                worker: WorkerId { seat: number, incarnation },
            } => {
                let seat = SeatId { generation, number };
                self.with_pool(generation, |pool| pool.outgrown(seat.worker(incarnation)));
            }
            ToFront::ForgetPool { generation } => {
                shared.pools.forget(generation);
                self.tell_all(|| ThreadOrder::Remove(generation)).await;
            }
            ToFront::OpenSeat {
                generation,
                worker: WorkerId { seat: number, incarnation },
                pid,
            } => {
                let (seat, pidfd) = (SeatId { generation, number }, fds.pop());
                let shared = shared.clone();
                self.with_pool(generation, |pool| {
                    let worker = SeatedWorker { seat, incarnation, pid };
                    tokio::spawn(watch_seat(shared, pool, worker, pidfd));
                });
            }
            ToFront::Reconfigure => self.reconfigure_and_tell(fds).await,
            ToFront::ReportStats => self.tell_figures(fds.pop()),
            ToFront::SetCertificates => self.take_certificates(fds).await,
            ToFront::SetAcmeProofs { proofs, mark } => self.take_proofs(proofs, mark),
            ToFront::Purge { order, mark } => self.purge(&order, mark),
            ToFront::AddCookieNames { site_key, names } => {
                if let Some(cache) = &self.shared.cache {
                    cache.add_cookies(&site_key, names.as_deref());
                }
            }
            ToFront::ConfirmPurge { mark, complaint } => self.purged_elsewhere(mark, complaint),
            ToFront::SetPurgeLease { until } => {
                if let Some(cache) = &self.shared.cache {
                    cache.lease.set(until);
                }
            }
            ToFront::ShowPurgeLog { state } => self.shared.purge_log.store(Some(Arc::new(state))),
            ToFront::ShowSlowStack { stack } => self.shared.recent_requests.add_stack(stack),
            ToFront::ShowCertificateFailures { failures } => {
                self.shared.recent_requests.set_failures(failures);
            }
            ToFront::ShowJobs { jobs } => self.shared.jobs.store(Some(Arc::new(jobs))),
            ToFront::ShowNodes { outcome } => self.shared.nodes.take(outcome),
            ToFront::SetAccessLog => self.take_access_log(fds.pop()),
            ToFront::SetPoolAccessLog { path } => self.take_pool_access_log(path, fds.pop()),
            ToFront::SetErrorLog => take_error_log(fds),
            other @ (ToFront::Configure { .. } | ToFront::Begin) => {
                tracing::error!("a command arrived too late: {other:?}");
            }
        }
    }

    /// Does something with the pool of a generation, if that still exists.
    fn with_pool(&self, generation: Number, work: impl FnOnce(Arc<Pool>)) {
        if let Some(pool) = self.shared.pools.of(generation) {
            work(pool);
        }
    }

    fn hand_over(&self) {
        self.shared.hand_over();
        if let Some(cache) = &self.shared.cache {
            cache.leave_folder();
        }
    }

    async fn listen(
        &self,
        thread: u32,
        address: String,
        clients: Clients,
        socket: Option<OwnedFd>,
    ) {
        if let (Some(thread), Some(socket)) = (self.threads.get(thread as usize), socket) {
            let order = ThreadOrder::Listen { address, socket, clients };
            let _ = thread.send(order).await;
        }
    }

    async fn reconfigure_and_tell(&self, fds: Vec<OwnedFd>) {
        let refused = self.reconfigure(fds).await.err();
        let supervisor = &self.shared.supervisor;
        supervisor.report(&FromFront::Reconfigured { refused });
    }

    fn purged_elsewhere(&self, mark: u64, complaint: Option<String>) {
        if let Some(cache) = &self.shared.cache {
            cache.others.done(mark, complaint);
        }
    }

    fn take_access_log(&self, file: Option<OwnedFd>) {
        if let (Some(log), Some(file)) = (&*self.shared.access_log.load(), file) {
            log.reopened(file);
        }
    }

    fn take_pool_access_log(&self, path: PathBuf, file: Option<OwnedFd>) {
        if let Some(file) = file {
            self.shared.pool_access_logs.opened(path, file);
        }
    }

    /// Reports when all commands up to this one have been carried out.
    fn settle(&self, mark: u64) {
        let shared = self.shared.clone();
        // Queued behind the tasks of earlier commands.
        tokio::spawn(async move {
            tokio::task::yield_now().await;
            shared.supervisor.report(&FromFront::Settled { mark });
        });
    }

    /// Reports when every thread has had a turn.
    fn report_alive(&self) {
        let (threads, supervisor) = (self.threads.clone(), self.shared.supervisor.clone());
        tokio::spawn(async move {
            for thread in &threads {
                let (response, responded) = oneshot::channel();
                let _ = thread.send(ThreadOrder::ReportAlive(response)).await;
                if responded.await.is_err() {
                    return;
                }
            }
            supervisor.report(&FromFront::Alive);
        });
    }

    fn tell_figures(&self, file: Option<OwnedFd>) {
        let shared = &self.shared;
        let figures = FrontFigures {
            page_cache: shared.cache.as_ref().and_then(|cache| cache.figures()),
            proxies: shared.proxies.read(),
            readiness: Some(readiness::of(shared)),
            scale: Some(node_load::of(shared)),
            routes: busy_routes::of(shared),
        };
        if let Err(error) = write_json(file, &figures) {
            tracing::warn!("the front's statistics cannot be sent: {error}");
        }
        shared.supervisor.report(&FromFront::StatsWritten);
    }

    /// Sets the responses to challenges of ACME authorities.
    fn take_proofs(&self, proofs: Vec<acme::Proof>, mark: u64) {
        let shared = &self.shared;
        shared.proofs.set(proofs);
        if let Some(tls) = shared.tls.load_full() {
            self.use_tls(&tls);
        }
        shared.supervisor.report(&FromFront::AcmeProofsSet { mark });
    }

    /// Uses these certificates for new handshakes. The supervisor has checked them: on an error,
    /// the present ones stay.
    async fn take_certificates(&self, mut fds: Vec<OwnedFd>) {
        let file = fds.pop();
        // A thousand certificates take a while, in which this thread serves clients.
        let made = tokio::task::spawn_blocking(move || {
            let file = file.ok_or("the front's limit of open files is reached")?;
            let material = read_json(file).map_err(|error| error.to_string())?;
            Ok((Tls::new(&material)?, expiries(&material)))
        });
        let made = made.await.map_err(|error| error.to_string());
        match made.and_then(|made| made) {
            Ok((tls, certificates)) => {
                self.shared.certificates.store(Arc::new(certificates));
                self.use_tls(&tls);
            }
            Err(why) => tracing::error!("new certificates are not used: {why}"),
        }
    }

    /// Uses this TLS configuration for new handshakes, with the certificates of ACME challenges.
    fn use_tls(&self, tls: &Tls) {
        let tls = tls.with_proofs(&self.shared.proofs.certificates());
        self.shared.tls.store(Some(Arc::new(tls)));
    }

    fn purge(&self, order: &purge::PurgeOrder, mark: u64) {
        let done = match &self.shared.cache {
            Some(cache) => cache.obey(order),
            None => Err("there is no page cache".to_owned()),
        };
        let (outcome, record) = match done {
            Ok(OrderedPurge { said, record }) => (Ok(said), record),
            Err(why) => (Err(why), None),
        };
        let report = FromFront::Purged { mark, outcome };
        let supervisor = self.shared.supervisor.clone();
        let Some(record) = record else {
            supervisor.report(&report);
            return;
        };
        tokio::spawn(async move {
            // Until then, the supervisor has the next front carry it out if this one ends.
            if record.written(PURGE_RECORDED).await {
                supervisor.report(&report);
            }
        });
    }

    async fn tell_all(&self, order: impl Fn() -> ThreadOrder) {
        for thread in &self.threads {
            // A thread that receives no more has ended, and the front is about to.
            let _ = thread.send(order()).await;
        }
    }

    async fn open_pool(&self, number: Number, fds: Vec<OwnedFd>) {
        let opened = Generation::open(number, fds, self.epoch, self.threads.len());
        match opened {
            Ok(generation) => {
                let generation = self.shared.pools.add(generation);
                self.tell_all(|| ThreadOrder::Add(generation.clone())).await;
            }
            Err(why) => {
                tracing::error!("generation {number} is not served yet: {why}");
                let supervisor = self.shared.supervisor.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(TRY_AGAIN_AFTER).await;
                    supervisor.report(&FromFront::OpenFailed { generation: number });
                });
            }
        }
    }

    /// All threads use the new configuration, or none.
    async fn reconfigure(&self, fds: Vec<OwnedFd>) -> Result<(), String> {
        let mut fds = fds.into_iter();
        let file = fds.next().ok_or("the front's limit of open files is reached")?;
        let config: Config = read_json(file)
            .map_err(|error| format!("the configuration cannot be read: {error}"))?;
        let access_log = AccessLog::of(&config, fds.next(), &self.shared.troubles)?;
        let config = Arc::new(config);
        let prepared = self.prepare(&config).await;
        let prepared = prepared.and_then(|()| self.shared.trace(config.traces.as_ref()));
        match prepared {
            Ok(()) => {
                (self.follow)(&config);
                sandbox::warn(&self.readable, &config);
                let cache = self.shared.cache.as_ref();
                let changed = cache.map(|cache| cache.use_sites(&config));
                self.shared.access_log.store(access_log.map(Arc::new));
                self.shared.ready_sheds.store(config.ready_sheds, Ordering::Relaxed);
                self.shared.history.want(history::can_be_seen(&config));
                self.shared.recent_requests.want(history::can_be_seen(&config));
                self.shared.nodes.follow(&config);
                for thread in &self.threads {
                    let (done, is_done) = oneshot::channel();
                    let _ = thread.send(ThreadOrder::Switch(done)).await;
                    let _ = is_done.await;
                }
                if let Some((cache, changed)) = cache.zip(changed) {
                    cache.drop_sites(&changed).await;
                }
            }
            Err(_) => self.tell_all(|| ThreadOrder::Discard).await,
        }
        self.shared.pools.sweep();
        self.shared.pool_access_logs.sweep(&self.shared.troubles);
        prepared
    }

    async fn prepare(&self, config: &Arc<Config>) -> Result<(), String> {
        for thread in &self.threads {
            let (response, answered) = oneshot::channel();
            let _ = thread.send(ThreadOrder::Prepare(config.clone(), response)).await;
            answered.await.map_err(|_| "a thread of the front has ended")??;
        }
        Ok(())
    }
}

/// Redirects standard error, and with it every message, to the received file. Standard output is
/// unused, and is redirected too, since it would hold the previous file open.
pub fn take_error_log(fds: Vec<OwnedFd>) {
    for file in fds {
        let replaced = rustix::stdio::dup2_stderr(&file).and(rustix::stdio::dup2_stdout(&file));
        if let Err(why) = replaced {
            tracing::error!("the front keeps the former error log: {why}");
        }
    }
}

/// A worker in a seat.
struct SeatedWorker {
    seat: SeatId,
    incarnation: u32,
    pid: i32,
}

/// Opens a seat for the life of its worker. `pidfd` is none when the front is at its limit of open
/// files.
async fn watch_seat(
    shared: Arc<Shared>,
    pool: Arc<Pool>,
    worker: SeatedWorker,
    pidfd: Option<OwnedFd>,
) {
    let SeatedWorker { seat, incarnation, pid } = worker;
    let pidfd = pidfd.ok_or_else(|| io::Error::other("the front's limit of open files is reached"));
    match pidfd.and_then(readable) {
        Ok(pidfd) => {
            pool.open_seat(seat.worker(incarnation)).await;
            let _ = pidfd.readable().await;
            pool.seat_died(seat.worker(incarnation));
        }
        Err(error) => {
            shared.troubles.not_watched(&pool.name, &error);
            tokio::time::sleep(TRY_AGAIN_AFTER).await;
            pool.give_back(seat.worker(incarnation));
        }
    }
    pool.forget_pid(seat, pid);
    pool.give_memory_back(seat.worker(incarnation)).await;
}
