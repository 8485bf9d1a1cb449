//! The front process, from its first command to its last response.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use maitred_config::{Config, Destination, Site};
use maitred_control::{FromFront, Received, ToFront};
use maitred_os::channel::Channel;
use maitred_os::users::Identity;
use maitred_sandbox::Readable;
use tokio::sync::mpsc;

use crate::admin::announced;
use crate::cache::Cache;
use crate::control::commands::{self, CommandReceiver, ThreadOrder, follow_thread, take_error_log};
use crate::control::descriptors::{DescriptorShares, DescriptorUsers};
use crate::http::transfers;
use crate::logging::access_log::AccessLog;
use crate::logging::pool_access_log::PoolAccessLogs;
use crate::logging::repeated::RepeatedErrors;
use crate::pool::pool_registry::Pools;
use crate::pool::thread_local::{self, Inbox};
use crate::pool::worker_calls::WorkerCalls;
use crate::runtime::supervisor_channel::{Supervisor, read_json};
use crate::runtime::{background, sandbox, thread};
use crate::services::history;
use crate::services::{FrontSize, Shared, Thread};

/// Most threads of an event loop that wait for the file system. Those for the files of tenants have
/// limits of their own (`lookup_turns.rs`); each tenant has one for itself alone.
const BLOCKING_THREADS: usize = 4096;

/// Tick of a thread with connections. A timer that is earlier than all others costs a system call;
/// with this one there always is an earlier one.
const BEAT: Duration = Duration::from_millis(500);
/// Ticks after the last connection has ended: its memory is returned in this time.
const BEATS_AFTERWARDS: u32 = 50;
/// Ticks after which a file that was not requested meanwhile is closed, 60 seconds: then the space
/// of a deleted one is free (as with `inactive` of nginx's `open_file_cache`).
const BEATS_OF_A_FILE: u32 = 120;
/// Interval at which a stopping front checks whether the last script has ended.
const QUIET_CHECK: Duration = Duration::from_millis(20);

/// The state before the first client.
struct Start {
    shared: Arc<Shared>,
    inboxes: Arc<[Inbox]>,
    config: Arc<Config>,
    epoch: u32,
    /// Called with every configuration in use.
    follow: fn(&Config),
    /// Early commands: listeners, pools, seats.
    early: Vec<(ToFront, Vec<OwnedFd>)>,
    /// The folders that the sandbox lets the front read.
    readable: Readable,
    /// Calls of workers to the front.
    unheard: WorkerCalls,
}

/// Runs the front until the supervisor stops it. Returns the exit code. Calls `follow` with every
/// configuration in use.
pub fn run(control: Channel, follow: fn(&Config)) -> i32 {
    maitred_os::title::set("maitred: front");
    maitred_os::signals::ignore_sigpipe();
    let supervisor = Arc::new(Supervisor::new(control));
    let start = match receive_start(&supervisor, follow) {
        Ok(start) => start,
        Err(why) => {
            tracing::error!("the front cannot start: {why}");
            return 1;
        }
    };
    match serve(start) {
        Ok(()) => 0,
        Err(why) => {
            tracing::error!("the front has failed: {why}");
            1
        }
    }
}

#[derive(Default)]
struct Orders {
    configured: Option<(u32, u32, Option<Identity>, Config)>,
    is_new_server: bool,
    early: Vec<(ToFront, Vec<OwnedFd>)>,
    access_log: Option<OwnedFd>,
    pool_access_logs: PoolAccessLogs,
}

fn receive_start(supervisor: &Arc<Supervisor>, follow: fn(&Config)) -> Result<Start, String> {
    let mut orders = Orders::default();
    loop {
        match supervisor.order(true).map_err(|error| error.to_string())? {
            Received::Message(ToFront::Begin, _) => return prepare(supervisor, orders, follow),
            Received::Message(order, fds) => take_order(&mut orders, order, fds)?,
            Received::Nothing | Received::Closed => {
                return Err("the supervisor has gone".to_owned());
            }
        }
    }
}

fn take_order(orders: &mut Orders, order: ToFront, fds: Vec<OwnedFd>) -> Result<(), String> {
    match order {
        ToFront::Configure { epoch, threads, identity, is_new_server } => {
            let file = fds.into_iter().next().ok_or("no configuration came")?;
            let config = read_json(file)
                .map_err(|error| format!("the configuration cannot be read: {error}"))?;
            orders.configured = Some((epoch, threads, identity, config));
            orders.is_new_server = is_new_server;
        }
        ToFront::Listen { .. }
        | ToFront::OpenPool { .. }
        | ToFront::Replace { .. }
        | ToFront::ClosePool { .. }
        | ToFront::SuspendPool { .. }
        | ToFront::ForgetPool { .. }
        | ToFront::SetPhpInfo { .. }
        | ToFront::SetCapacity { .. }
        | ToFront::ReplaceWorker { .. }
        | ToFront::SetCertificates
        | ToFront::ReportStats
        | ToFront::SetAcmeProofs { .. }
        | ToFront::Purge { .. }
        | ToFront::SetPurgeLease { .. }
        | ToFront::ShowPurgeLog { .. }
        | ToFront::AddCookieNames { .. }
        | ToFront::ShowSlowStack { .. }
        | ToFront::ShowCertificateFailures { .. }
        | ToFront::ShowJobs { .. }
        | ToFront::ShowNodes { .. }
        | ToFront::OpenSeat { .. } => orders.early.push((order, fds)),
        ToFront::SetAccessLog => orders.access_log = fds.into_iter().next(),
        ToFront::SetPoolAccessLog { path } => {
            if let Some(file) = fds.into_iter().next() {
                orders.pool_access_logs.opened(path, file);
            }
        }
        ToFront::SetErrorLog => take_error_log(fds),
        ToFront::Begin
        | ToFront::PrepareStop
        | ToFront::Drain
        | ToFront::HandOver
        | ToFront::Settle { .. }
        | ToFront::CheckLiveness
        | ToFront::ConfirmPurge { .. }
        | ToFront::Unlisten { .. }
        | ToFront::Reconfigure => return Err(format!("a command arrived too early: {order:?}")),
    }
    Ok(())
}

/// Gives up privileges, and creates the services.
fn prepare(
    supervisor: &Arc<Supervisor>,
    orders: Orders,
    follow: fn(&Config),
) -> Result<Start, String> {
    let supervisor_pid = i32::try_from(std::os::unix::process::parent_id()).unwrap_or(0);
    let (epoch, threads, identity, config) =
        orders.configured.ok_or("no configuration arrived before the command to begin")?;
    follow(&config);
    if config.fpm.is_some() {
        // `killall php-fpm` must not match it.
        maitred_os::title::set_with_name("php-fpm: front", "maitred-front");
    }
    let troubles = Arc::new(RepeatedErrors::default());
    let access_log = AccessLog::of(&config, orders.access_log, &troubles)?;
    maitred_sandbox::LessTrusted {
        supervisor: supervisor_pid,
        identity: identity.as_ref(),
        restricted: config.front_sandbox,
    }
    .settle()?;
    let reports = supervisor.channel().reports().as_fd();
    maitred_os::thread_stack::install(reports, FromFront::STACK_FORM)
        .map_err(|error| error.to_string())?;
    let readable = sandbox::enter(&config)?;
    warn_of_unusable_spool(&config);
    let inboxes: Arc<[Inbox]> = (0..threads).map(|_| Inbox::default()).collect();
    let limit = maitred_os::sockets::raise_descriptor_limit().unwrap_or(1024);
    let shares = DescriptorShares::of(limit, descriptor_users(&config, threads));
    transfers::limit_to(shares.transfers);
    let size = FrontSize {
        threads,
        max_connections: usize::try_from(shares.connections).unwrap_or(usize::MAX),
        open_files: usize::try_from(shares.held / u64::from(threads.max(1))).unwrap_or(0),
        spooled_files: shares.spooled,
    };
    let pages = usize::try_from(shares.pages).unwrap_or(0);
    let cache = Cache::open(&config, threads, pages, supervisor.clone())
        .map_err(|error| format!("there is no page cache: {error}"))?;
    let worker_calls = WorkerCalls::default();
    let is_fpm = config.fpm.is_some();
    let pools = Pools::new(inboxes.clone(), supervisor.clone(), worker_calls.clone(), is_fpm);
    let shared = Shared::new(
        pools,
        access_log,
        orders.pool_access_logs,
        supervisor.clone(),
        troubles,
        size,
        Some(Arc::new(cache)),
    );
    shared.trace(config.traces.as_ref())?;
    shared.history.want(history::can_be_seen(&config));
    shared.recent_requests.want(history::can_be_seen(&config));
    shared.nodes.follow(&config);
    shared.ready_sheds.store(config.ready_sheds, Ordering::Relaxed);
    shared.agent.undoes_drain.store(orders.is_new_server, Ordering::Relaxed);
    Ok(Start {
        shared: Arc::new(shared),
        inboxes,
        config: Arc::new(config),
        epoch,
        follow,
        early: orders.early,
        readable,
        unheard: worker_calls,
    })
}

/// What needs descriptors at the start.
fn descriptor_users(config: &Config, threads: u32) -> DescriptorUsers {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = u32::try_from(cores).unwrap_or(u32::MAX);
    DescriptorUsers {
        threads: u64::from(threads),
        pools: config.pools.len() as u64,
        workers: config.pools.iter().map(|pool| u64::from(pool.most_workers(cores))).sum(),
        has_cache: config.sites.iter().any(|site| site.cache.is_some()),
        has_upstreams: config.sites.iter().any(has_upstreams),
    }
}

fn has_upstreams(site: &Site) -> bool {
    matches!(site.destination, Destination::Upstream(_)) || !site.rules.proxy.is_empty()
}

/// Warns at the start of an error that would otherwise show only as a 507 later.
fn warn_of_unusable_spool(config: &maitred_config::Config) {
    let me = maitred_os::users::current().name;
    if let Err(error) = tempfile::tempfile_in(&config.spool_dir) {
        let dir = config.spool_dir.display();
        tracing::warn!(
            "spool_dir {dir} cannot be written by the front's user {me}: {error}; large \
             bodies, and responses to slow clients, cannot be stored"
        );
    }
}

/// Starts all threads, and runs the first on the current one.
fn serve(start: Start) -> Result<(), String> {
    let count = start.inboxes.len();
    let ready = Arc::new(Barrier::new(count));
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| commands::channel()).unzip();
    let mut receivers = (0..).zip(receivers);
    let Some((_, first)) = receivers.next() else {
        return Err("no thread to serve with".to_owned());
    };
    let receiver = CommandReceiver::new(
        start.shared.clone(),
        start.epoch,
        start.readable,
        senders,
        start.follow,
    );
    let duties = FirstThread { receiver, early: start.early, worker_calls: start.unheard };
    let common =
        Common { shared: start.shared, inboxes: start.inboxes, config: start.config, ready };
    let mut threads = Vec::new();
    for (number, orders) in receivers {
        let common = common.clone();
        let body = move || serve_thread(number, common, orders, None);
        let thread = std::thread::Builder::new()
            .name(format!("front {number}"))
            .spawn(body)
            .map_err(|error| format!("a thread cannot be started: {error}"))?;
        threads.push(thread);
    }
    let outcome = serve_thread(0, common, first, Some(duties));
    for thread in threads {
        thread.join().map_err(|_| "a thread has panicked".to_owned())??;
    }
    outcome
}

/// The start parameters that all threads have in common.
#[derive(Clone)]
struct Common {
    shared: Arc<Shared>,
    inboxes: Arc<[Inbox]>,
    config: Arc<Config>,
    ready: Arc<Barrier>,
}

/// The duties of the first thread: it receives the supervisor's commands and the calls of workers.
struct FirstThread {
    receiver: CommandReceiver,
    /// Commands that arrived before the start.
    early: Vec<(ToFront, Vec<OwnedFd>)>,
    worker_calls: WorkerCalls,
}

fn serve_thread(
    number: u32,
    common: Common,
    orders: mpsc::Receiver<ThreadOrder>,
    first: Option<FirstThread>,
) -> Result<(), String> {
    let Common { shared, inboxes, config, ready } = common;
    let log = shared.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .on_thread_park(move || {
            log.flush_logs();
            thread_local::before_park();
        })
        .on_thread_unpark(thread_local::after_unpark)
        .build()
        .map_err(|error| format!("the event loop cannot be set up: {error}"))?;
    thread_local::set_up(number, inboxes);
    // The first thread runs the tasks of pools, which start here.
    let entered = runtime.enter();
    let thread = Thread::new(number, shared.clone(), &config);
    let has_purge_log = config.purge_log.is_some();
    drop((entered, config));
    ready.wait();
    let thread = Arc::new(thread?);
    runtime.block_on(async {
        tokio::spawn(thread_local::rescue());
        tokio::spawn(beat(thread.clone()));
        tokio::spawn(follow_thread(orders, thread.clone()));
        let opening = thread.clone();
        tokio::spawn(async move { opening.open_roots().await });
        if let Some(first) = first {
            let supervisor = shared.supervisor.clone();
            tokio::spawn(async move { supervisor.resend().await });
            let announcing = shared.clone();
            tokio::spawn(async move {
                first.receiver.introduce(first.early).await;
                if has_purge_log {
                    tokio::spawn(announced::announce(announcing));
                }
                first.receiver.run().await;
            });
            let troubles = shared.troubles.clone();
            tokio::spawn(async move { troubles.tell().await });
            tokio::spawn(history::keep(shared.clone()));
            if let Some(cache) = &shared.cache {
                cache.await_folder();
                cache.record_purges();
                tokio::spawn(cache.clone().sweep());
                tokio::spawn(cache.clone().hear(first.worker_calls));
            }
        }
        drained(&shared).await;
    });
    shared.flush_logs();
    if number == 0 {
        if let Some(cache) = &shared.cache {
            cache.close();
        }
        if let Some(traces) = shared.traces.swap(None) {
            traces.finish();
        }
        shared.pool_access_logs.finish(&shared.troubles);
        shared.supervisor.report_last(&FromFront::Drained);
    }
    Ok(())
}

/// Returns when the front is to stop and no request is in progress.
async fn drained(shared: &Shared) {
    shared.takes_no_more().await;
    loop {
        let changed = shared.changed.notified();
        let connections = shared.connections.load(Ordering::Acquire);
        if connections == 0 && shared.pools.are_quiet() && background::is_all_said() {
            return;
        }
        if shared.has_handed_over() {
            shared.pools.shrink(connections);
        }
        // A script that outlives its response sends no event when it ends.
        let _ = tokio::time::timeout(QUIET_CHECK, changed).await;
    }
}

/// Runs a timer while the thread has connections, and for a while after.
async fn beat(serving: Arc<Thread>) {
    let mut until_files = BEATS_OF_A_FILE;
    loop {
        serving.first_connection.notified().await;
        while serving.has_connections() {
            tokio::time::sleep(BEAT).await;
            thread::notify_tick();
            thread_local::rescue_forgotten();
            serving.shared.heap.look();
            close_idle_files(&serving, &mut until_files);
        }
        for _ in 0..BEATS_AFTERWARDS {
            if serving.has_connections() {
                break;
            }
            tokio::time::sleep(BEAT).await;
            serving.shared.heap.look();
            close_idle_files(&serving, &mut until_files);
        }
        if !serving.has_connections() {
            // No beat follows: what is open would stay so until the next connection.
            serving.sites().close_idle();
            serving.sites().close_idle();
        }
    }
}

fn close_idle_files(serving: &Thread, beats_left: &mut u32) {
    *beats_left -= 1;
    if *beats_left == 0 {
        *beats_left = BEATS_OF_A_FILE;
        serving.sites().close_idle();
    }
}
