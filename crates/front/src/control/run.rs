//! The front process from its first order to its last answer.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use maitred_config::Config;
use maitred_control::{FromFront, Heard, ToFront};
use maitred_os::channel::Channel;
use maitred_os::users::Identity;
use maitred_sandbox::Readable;
use tokio::sync::mpsc;

use crate::cache::Cache;
use crate::control::commands::{self, CommandReceiver, ThreadOrder, follow_thread, take_error_log};
use crate::logging::access_log::AccessLog;
use crate::logging::pool_access_log::DoorLogs;
use crate::logging::repeated::RepeatedErrors;
use crate::pool::pools::Pools;
use crate::pool::thread_local::{self, Inbox};
use crate::pool::wishes::Wishes;
use crate::runtime::supervisor_channel::{Supervisor, read_json};
use crate::runtime::{background, sandbox, thread};
use crate::services::{Shared, Thread};

/// Descriptors kept back for files, pools and temporary files when connections are counted.
const RESERVED_DESCRIPTORS: u64 = 512;
/// With no more descriptors than this, all are for connections; of those beyond, kept pages may have
/// [`PART_OF_PAGES`], and no more than [`MOST_OF_PAGES`].
const FEW_DESCRIPTORS: u64 = 4096;
/// One in so many.
const PART_OF_PAGES: u64 = 8;
/// Most descriptors of kept pages: 200 MB of the smallest that have one.
const MOST_OF_PAGES: u64 = 4096;
/// How often a thread with connections looks at the clock. A timer that is set for earlier than
/// every other costs a system call; with this one there is always an earlier one.
const BEAT: Duration = Duration::from_millis(500);
/// How often it does so after its last connection has ended: what that held is given back in this time.
const BEATS_AFTERWARDS: u32 = 30;
/// How often a front that is ending looks whether the last script has ended.
const QUIET_CHECK: Duration = Duration::from_millis(20);

/// What the supervisor has said before the first client.
struct Start {
    shared: Arc<Shared>,
    inboxes: Arc<[Inbox]>,
    config: Arc<Config>,
    epoch: u32,
    /// Told every configuration that is in use.
    follow: fn(&Config),
    /// Where to listen, the pools, who sits where.
    early: Vec<(ToFront, Vec<OwnedFd>)>,
    /// What can be opened since the front was restricted.
    readable: Readable,
    /// What scripts wish the front to do.
    unheard: Wishes,
}

/// Runs the front until the supervisor lets it end. Returns the exit code. `follow` is told every
/// configuration that is in use from then on.
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
    early: Vec<(ToFront, Vec<OwnedFd>)>,
    access_log: Option<OwnedFd>,
    door_logs: DoorLogs,
}

fn receive_start(supervisor: &Arc<Supervisor>, follow: fn(&Config)) -> Result<Start, String> {
    let mut orders = Orders::default();
    loop {
        match supervisor.order(true).map_err(|error| error.to_string())? {
            Heard::Message(ToFront::Begin, _) => return prepare(supervisor, orders, follow),
            Heard::Message(order, fds) => take_order(&mut orders, order, fds)?,
            Heard::Nothing | Heard::Closed => return Err("the supervisor has gone".to_owned()),
        }
    }
}

fn take_order(orders: &mut Orders, order: ToFront, fds: Vec<OwnedFd>) -> Result<(), String> {
    match order {
        ToFront::Configure {
            epoch,
            threads,
            identity,
        } => {
            let file = fds.into_iter().next().ok_or("no configuration came")?;
            let config = read_json(file)
                .map_err(|error| format!("the configuration cannot be read: {error}"))?;
            orders.configured = Some((epoch, threads, identity, config));
        }
        ToFront::Listen { .. }
        | ToFront::OpenPool { .. }
        | ToFront::Replace { .. }
        | ToFront::ClosePool { .. }
        | ToFront::ForgetPool { .. }
        | ToFront::PhpInfo { .. }
        | ToFront::Room { .. }
        | ToFront::Outgrown { .. }
        | ToFront::Certificates
        | ToFront::Figures
        | ToFront::Proofs { .. }
        | ToFront::Purge { .. }
        | ToFront::CookieNames { .. }
        | ToFront::OpenSeat { .. } => orders.early.push((order, fds)),
        ToFront::AccessLog => orders.access_log = fds.into_iter().next(),
        ToFront::DoorLog { path } => {
            if let Some(file) = fds.into_iter().next() {
                orders.door_logs.opened(path, file);
            }
        }
        ToFront::ErrorLog => take_error_log(fds),
        ToFront::Begin
        | ToFront::Drain
        | ToFront::HandOver
        | ToFront::Settle { .. }
        | ToFront::PurgedElsewhere { .. }
        | ToFront::Unlisten { .. }
        | ToFront::Reconfigure => return Err(format!("an order came too early: {order:?}")),
    }
    Ok(())
}

/// Gives our privileges up, and sets everything up.
fn prepare(
    supervisor: &Arc<Supervisor>,
    orders: Orders,
    follow: fn(&Config),
) -> Result<Start, String> {
    let supervisor_pid = i32::try_from(std::os::unix::process::parent_id()).unwrap_or(0);
    let (epoch, threads, identity, config) = orders
        .configured
        .ok_or("no configuration came before the order to begin")?;
    follow(&config);
    if config.fpm.is_some() {
        // No name that `killall php-fpm` would take for a worker of php-fpm.
        maitred_os::title::set_with_name("php-fpm: front", "maitred-front");
    }
    let troubles = Arc::new(RepeatedErrors::default());
    let access_log = AccessLog::of(&config, orders.access_log, &troubles)?;
    if config.front_sandbox {
        maitred_sandbox::drop_capabilities()
            .map_err(|error| format!("it cannot give capabilities up: {error}"))?;
    }
    if let Some(identity) = &identity {
        maitred_os::users::become_user(identity)
            .map_err(|error| format!("it cannot become user {}: {error}", identity.name))?;
    }
    // A change of user clears the wish to die with the parent.
    maitred_os::fork::die_with_parent(supervisor_pid);
    maitred_os::fork::forbid_inspection().map_err(|error| error.to_string())?;
    let readable = sandbox::enter(&config)?;
    warn_of_unusable_folders(&config);
    let inboxes: Arc<[Inbox]> = (0..threads).map(|_| Inbox::default()).collect();
    let limit = maitred_os::sockets::raise_descriptor_limit().unwrap_or(1024);
    let has_cache = config.sites.iter().any(|site| site.cache.is_some());
    let of_pages = if has_cache {
        descriptors_of_pages(limit)
    } else {
        0
    };
    let max_connections = limit
        .saturating_sub(RESERVED_DESCRIPTORS + of_pages)
        .max(64);
    let max_connections = usize::try_from(max_connections).unwrap_or(usize::MAX);
    let files = usize::try_from(of_pages).unwrap_or(0);
    let cache = Cache::open(&config, threads, files, supervisor.clone())
        .map_err(|error| format!("there is no page cache: {error}"))?;
    let wishes = Wishes::default();
    let is_fpm = config.fpm.is_some();
    let pools = Pools::new(inboxes.clone(), supervisor.clone(), wishes.clone(), is_fpm);
    let shared = Shared::new(
        pools,
        (access_log, orders.door_logs),
        supervisor.clone(),
        troubles,
        max_connections,
        Some(Arc::new(cache)),
    );
    Ok(Start {
        shared: Arc::new(shared),
        inboxes,
        config: Arc::new(config),
        epoch,
        follow,
        early: orders.early,
        readable,
        unheard: wishes,
    })
}

/// Descriptors that kept pages may have, of so many, where a site has a cache.
fn descriptors_of_pages(limit: u64) -> u64 {
    let part = limit.saturating_sub(FEW_DESCRIPTORS) / PART_OF_PAGES;
    part.min(MOST_OF_PAGES)
}

/// Says at start what would otherwise show only as a 403 or a 507 some day.
fn warn_of_unusable_folders(config: &maitred_config::Config) {
    let me = maitred_os::users::current().name;
    for site in &config.sites {
        let root = &site.root;
        if let Err(error) = std::fs::read_dir(root) {
            let root = root.display();
            tracing::warn!(
                "the document root {root} cannot be read by {me}, whom the front runs as: {error}; \
                 give {me} the right to read it and to enter the folders above it"
            );
        }
    }
    if let Err(error) = tempfile::tempfile_in(&config.spool_dir) {
        let dir = config.spool_dir.display();
        tracing::warn!(
            "spool_dir {dir} cannot be written by {me}, whom the front runs as: {error}; large \
             bodies and answers for slow clients cannot be kept"
        );
    }
}

/// Starts all threads and stays with the first.
fn serve(start: Start) -> Result<(), String> {
    let count = start.inboxes.len();
    let ready = Arc::new(Barrier::new(count));
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| commands::channel()).unzip();
    let mut receivers = (0..).zip(receivers);
    let Some((_, first)) = receivers.next() else {
        return Err("no thread to serve with".to_owned());
    };
    let known = (start.epoch, start.readable);
    let hearer = CommandReceiver::new(start.shared.clone(), known, senders, start.follow);
    let hears = (hearer, start.early, start.unheard);
    let mut threads = Vec::new();
    for (number, orders) in receivers {
        let shared = (
            start.shared.clone(),
            start.inboxes.clone(),
            start.config.clone(),
        );
        let ready = ready.clone();
        let body = move || serve_thread(number, shared, orders, None, &ready);
        let thread = std::thread::Builder::new()
            .name(format!("front {number}"))
            .spawn(body)
            .map_err(|error| format!("a thread cannot be started: {error}"))?;
        threads.push(thread);
    }
    let shared = (start.shared, start.inboxes, start.config);
    let outcome = serve_thread(0, shared, first, Some(hears), &ready);
    for thread in threads {
        thread
            .join()
            .map_err(|_| "a thread has panicked".to_owned())??;
    }
    outcome
}

/// What each thread is given of what all share.
type Given = (Arc<Shared>, Arc<[Inbox]>, Arc<Config>);
/// Whoever hears the supervisor, what it has said already, and what scripts wish.
type Hears = (CommandReceiver, Vec<(ToFront, Vec<OwnedFd>)>, Wishes);

fn serve_thread(
    number: u32,
    (shared, inboxes, config): Given,
    orders: mpsc::Receiver<ThreadOrder>,
    hears: Option<Hears>,
    ready: &Barrier,
) -> Result<(), String> {
    let log = shared.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(move || {
            log.flush_logs();
            thread_local::before_park();
        })
        .on_thread_unpark(thread_local::after_unpark)
        .build()
        .map_err(|error| format!("the event loop cannot be set up: {error}"))?;
    thread_local::set_up(number, inboxes);
    // Pools are looked after by the first thread, and begin to be while this is under way.
    let entered = runtime.enter();
    let thread = Thread::new(number, shared.clone(), &config);
    drop((entered, config));
    ready.wait();
    let thread = Arc::new(thread?);
    runtime.block_on(async {
        tokio::spawn(thread_local::rescue());
        tokio::spawn(beat(thread.clone()));
        tokio::spawn(follow_thread(orders, thread.clone()));
        if let Some((hearer, early, unheard)) = hears {
            tokio::spawn(hearer.run(early));
            let troubles = shared.troubles.clone();
            tokio::spawn(async move { troubles.tell().await });
            if let Some(cache) = &shared.cache {
                cache.await_folder();
                tokio::spawn(cache.clone().sweep());
                tokio::spawn(cache.clone().hear(unheard));
            }
        }
        drained(&shared).await;
    });
    shared.flush_logs();
    if number == 0 {
        if let Some(cache) = &shared.cache {
            cache.close();
        }
        shared.supervisor.report(&FromFront::Drained);
    }
    Ok(())
}

/// Returns when the front is to end and nothing is in hand.
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
        // A script that outlives its answer tells nobody when it ends.
        let _ = tokio::time::timeout(QUIET_CHECK, changed).await;
    }
}

/// Keeps a timer set while the thread has connections, and none when it has had none for a while.
async fn beat(serving: Arc<Thread>) {
    loop {
        serving.first_connection.notified().await;
        while serving.has_connections() {
            tokio::time::sleep(BEAT).await;
            thread::notify_tick();
            thread_local::rescue_forgotten();
            serving.shared.heap.look();
        }
        for _ in 0..BEATS_AFTERWARDS {
            if serving.has_connections() {
                break;
            }
            tokio::time::sleep(BEAT).await;
            serving.shared.heap.look();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FEW_DESCRIPTORS, descriptors_of_pages as of};

    #[test]
    fn kept_pages_have_descriptors_only_where_there_are_many() {
        assert_eq!((of(0), of(1024), of(FEW_DESCRIPTORS)), (0, 0, 0));
        assert_eq!((of(20_000), of(1 << 20)), (1988, 4096));
    }
}
