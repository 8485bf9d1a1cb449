//! The front process from its first order to its last answer.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use maitred_control::{FromFront, Generation, Heard, ToFront};
use maitred_os::channel::Channel;
use maitred_os::users::Identity;
use maitred_seat::FrontEnd;
use rustix::io::Errno;
use rustix::net::SocketFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::access::AccessLog;
use crate::connection::{Connection, NoHead};
use crate::pool::local::{self, Inbox, Paced};
use crate::pool::{Pool, growth};
use crate::request::{self, After};
use crate::shared::{Shared, Thread};
use crate::supervisor::Supervisor;

/// Descriptors kept back for files, pools and temporary files when connections are counted.
const RESERVED_DESCRIPTORS: u64 = 512;
/// How long accepting pauses when there is no descriptor left, or no room for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
/// Connections accepted before the thread looks after those it has.
const ACCEPT_BATCH: usize = 64;
/// How often a thread with connections looks at the clock. A timer that is set for earlier than
/// every other costs a system call; with this one there is always an earlier one.
const BEAT: Duration = Duration::from_millis(500);
/// How often a front that is ending looks whether the last script has ended.
const QUIET_CHECK: Duration = Duration::from_millis(20);

/// What the supervisor has said before the first client.
struct Start {
    shared: Arc<Shared>,
    inboxes: Arc<[Inbox]>,
    /// For each thread, its listening sockets.
    listeners: Vec<Vec<OwnedFd>>,
    /// Orders about workers that were there before us.
    seats: Vec<(ToFront, Vec<OwnedFd>)>,
}

/// Runs the front until the supervisor lets it end. Returns the exit code.
pub fn run(control: Channel) -> i32 {
    maitred_os::title::set("maitred: front");
    maitred_os::signals::ignore_sigpipe();
    let supervisor = Arc::new(Supervisor::new(control));
    let start = match receive_start(&supervisor) {
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
    configured: Option<(u32, u32, Option<Identity>, maitred_config::Config)>,
    listeners: Vec<(u32, OwnedFd)>,
    pools: HashMap<Generation, Vec<OwnedFd>>,
    seats: Vec<(ToFront, Vec<OwnedFd>)>,
}

fn receive_start(supervisor: &Arc<Supervisor>) -> Result<Start, String> {
    let mut orders = Orders::default();
    loop {
        match supervisor.order(true).map_err(|error| error.to_string())? {
            Heard::Message(ToFront::Begin, _) => return prepare(supervisor, orders),
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
            let config = serde_json::from_reader(std::fs::File::from(file))
                .map_err(|error| format!("the configuration cannot be read: {error}"))?;
            orders.configured = Some((epoch, threads, identity, config));
        }
        ToFront::Listen { thread, .. } => {
            orders
                .listeners
                .extend(fds.into_iter().map(|fd| (thread, fd)));
        }
        ToFront::OpenPool { generation } => drop(orders.pools.insert(generation, fds)),
        ToFront::Replace { .. } => {}
        ToFront::OpenSeat { .. } => orders.seats.push((order, fds)),
        ToFront::Begin
        | ToFront::Drain
        | ToFront::HandOver
        | ToFront::Unlisten { .. }
        | ToFront::ClosePool { .. }
        | ToFront::ForgetPool { .. }
        | ToFront::Reconfigure => return Err(format!("an order came too early: {order:?}")),
    }
    Ok(())
}

/// Opens what needs our privileges, gives them up, and sets everything else up.
fn prepare(supervisor: &Arc<Supervisor>, orders: Orders) -> Result<Start, String> {
    let supervisor_pid = i32::try_from(std::os::unix::process::parent_id()).unwrap_or(0);
    let (epoch, threads, identity, config) = orders
        .configured
        .ok_or("no configuration came before the order to begin")?;
    let access_log = match &config.access_log {
        None => None,
        Some(target) => Some(
            AccessLog::open(target, config.access_log_format)
                .map_err(|error| format!("the access log {target} cannot be opened: {error}"))?,
        ),
    };
    if let Some(identity) = &identity {
        maitred_os::users::become_user(identity)
            .map_err(|error| format!("it cannot become user {}: {error}", identity.name))?;
    }
    // A change of user clears the wish to die with the parent.
    maitred_os::fork::die_with_parent(supervisor_pid);
    maitred_os::fork::forbid_inspection().map_err(|error| error.to_string())?;
    warn_of_unusable_folders(&config);
    let inboxes: Arc<[Inbox]> = (0..threads).map(|_| Inbox::default()).collect();
    let mut pools = Vec::new();
    for (generation, fds) in orders.pools {
        pools.push(Arc::new(open_pool(
            generation, fds, epoch, &inboxes, supervisor,
        )?));
    }
    let limit = maitred_os::sockets::raise_descriptor_limit().unwrap_or(1024);
    let max_connections = limit.saturating_sub(RESERVED_DESCRIPTORS).max(64);
    let max_connections = usize::try_from(max_connections).unwrap_or(usize::MAX);
    let mut listeners: Vec<Vec<OwnedFd>> = (0..threads).map(|_| Vec::new()).collect();
    for (thread, fd) in orders.listeners {
        listeners
            .get_mut(thread as usize)
            .ok_or("a socket for no thread came")?
            .push(fd);
    }
    let shared = Shared::new(
        config,
        pools,
        access_log,
        supervisor.clone(),
        max_connections,
    );
    Ok(Start {
        shared: Arc::new(shared),
        inboxes,
        listeners,
        seats: orders.seats,
    })
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

fn open_pool(
    generation: Generation,
    fds: Vec<OwnedFd>,
    epoch: u32,
    inboxes: &Arc<[Inbox]>,
    supervisor: &Arc<Supervisor>,
) -> Result<Pool, String> {
    let mut fds = fds.into_iter();
    let settings = fds.next().ok_or("a pool came without its settings")?;
    let settings: maitred_config::Pool = serde_json::from_reader(std::fs::File::from(settings))
        .map_err(|error| format!("the settings of a pool cannot be read: {error}"))?;
    let memory = fds.next().ok_or("a pool came without its memory")?;
    let events: Vec<OwnedFd> = fds.collect();
    let threads = u32::try_from(events.len()).unwrap_or(u32::MAX);
    let link = FrontEnd::take_over(&memory, threads, epoch)
        .map_err(|error| format!("the seat link of pool {}: {error}", settings.name))?;
    if events.len() != inboxes.len() {
        return Err(format!(
            "pool {} came with the wrong number of events",
            settings.name
        ));
    }
    Ok(Pool::new(
        generation,
        settings,
        link,
        events,
        inboxes.clone(),
        supervisor.clone(),
    ))
}

/// Starts one thread per set of listeners and stays with the first.
fn serve(start: Start) -> Result<(), String> {
    let Start {
        shared,
        inboxes,
        listeners,
        seats,
    } = start;
    let count = listeners.len();
    let ready = Arc::new(Barrier::new(count));
    let mut threads = Vec::new();
    let mut sets = listeners.into_iter().enumerate();
    let Some((_, first)) = sets.next() else {
        return Err("no thread to serve with".to_owned());
    };
    for (number, sockets) in sets {
        let (shared, inboxes, ready) = (shared.clone(), inboxes.clone(), ready.clone());
        let number = u32::try_from(number).unwrap_or(0);
        let body = move || serve_thread(number, shared, inboxes, sockets, Vec::new(), &ready);
        let thread = std::thread::Builder::new()
            .name(format!("front {number}"))
            .spawn(body)
            .map_err(|error| format!("a thread cannot be started: {error}"))?;
        threads.push(thread);
    }
    let outcome = serve_thread(0, shared, inboxes, first, seats, &ready);
    for thread in threads {
        thread
            .join()
            .map_err(|_| "a thread has panicked".to_owned())??;
    }
    outcome
}

fn serve_thread(
    number: u32,
    shared: Arc<Shared>,
    inboxes: Arc<[Inbox]>,
    sockets: Vec<OwnedFd>,
    seats: Vec<(ToFront, Vec<OwnedFd>)>,
    ready: &Barrier,
) -> Result<(), String> {
    let log = shared.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(move || {
            if let Some(log) = &log.access_log {
                log.flush();
            }
            local::before_park();
        })
        .on_thread_unpark(local::after_unpark)
        .build()
        .map_err(|error| format!("the event loop cannot be set up: {error}"))?;
    local::set_up(number, shared.pools.clone(), inboxes);
    let thread = Thread::new(number, shared.clone());
    ready.wait();
    let thread = Arc::new(thread?);
    runtime.block_on(async {
        for pool in &shared.pools {
            if let Some(event) = pool.event(number) {
                tokio::spawn(listen_to(
                    event.try_clone().map_err(|error| error.to_string())?,
                ));
            }
        }
        tokio::spawn(local::rescue());
        tokio::spawn(beat(thread.clone()));
        for socket in sockets {
            tokio::spawn(accept(socket, thread.clone()));
        }
        if number == 0 {
            for (order, fds) in seats {
                follow(&shared, order, fds);
            }
            for pool in &shared.pools {
                tokio::spawn(growth::tend(pool.clone()));
            }
            tokio::spawn(follow_orders(thread.clone()));
            shared.supervisor.report(&FromFront::Listening);
        }
        drained(&shared).await;
        Ok::<(), String>(())
    })?;
    if let Some(log) = &shared.access_log {
        log.flush();
    }
    if number == 0 {
        shared.supervisor.report(&FromFront::Drained);
    }
    Ok(())
}

/// Returns when the front is to end and nothing is in hand.
async fn drained(shared: &Shared) {
    draining(shared).await;
    loop {
        let changed = shared.changed.notified();
        let connections = shared.connections.load(Ordering::Acquire);
        if connections == 0 && shared.pools.iter().all(|pool| pool.is_quiet()) {
            return;
        }
        // A script that outlives its answer tells nobody when it ends.
        let _ = tokio::time::timeout(QUIET_CHECK, changed).await;
    }
}

/// A descriptor to wait on. tokio's newer constructors are unsafe for the sake of types that may
/// change their descriptor; an `OwnedFd` cannot.
#[allow(deprecated)]
fn readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, Interest::READABLE)
}

/// Being woken is all that a worker's event is for: the hooks of the thread do the rest. The
/// event is edge-triggered, so its counter need not be read.
async fn listen_to(event: OwnedFd) {
    let Ok(event) = readable(event) else {
        tracing::error!("a worker's event cannot be waited for");
        return;
    };
    while let Ok(mut ready) = event.readable().await {
        ready.clear_ready();
    }
}

/// Keeps a timer set while the thread has connections, and none while it has not.
async fn beat(thread: Arc<Thread>) {
    loop {
        thread.first_connection.notified().await;
        while thread.has_connections() {
            tokio::time::sleep(BEAT).await;
        }
    }
}

async fn follow_orders(thread: Arc<Thread>) {
    let shared = &thread.shared;
    let Ok(channel) = shared.supervisor.channel().as_fd().try_clone_to_owned() else {
        return;
    };
    let Ok(channel) = readable(channel) else {
        return;
    };
    loop {
        match shared.supervisor.order(false) {
            Ok(Heard::Message(order, fds)) => follow(shared, order, fds),
            Ok(Heard::Nothing) => match channel.readable().await {
                Ok(mut ready) => ready.clear_ready(),
                Err(_) => return,
            },
            Ok(Heard::Closed) => return shared.drain(),
            Err(error) => tracing::error!("an order cannot be understood: {error}"),
        }
    }
}

fn follow(shared: &Arc<Shared>, order: ToFront, fds: Vec<OwnedFd>) {
    match order {
        ToFront::Drain => shared.drain(),
        ToFront::OpenSeat {
            generation,
            seat,
            incarnation,
            pid,
        } => {
            let pool = shared.pool(generation).cloned();
            if let (Some(pool), Some(pidfd)) = (pool, fds.into_iter().next()) {
                tokio::spawn(async move {
                    watch_seat(&pool, seat, incarnation, pidfd).await;
                    pool.forget_pid(seat, pid);
                });
            }
        }
        other => tracing::error!("an order came too late: {other:?}"),
    }
}

/// Opens a seat for the life of its worker.
async fn watch_seat(pool: &Arc<Pool>, seat: u32, incarnation: u32, pidfd: OwnedFd) {
    match readable(pidfd) {
        Ok(pidfd) => {
            pool.seat_opened(seat, incarnation);
            let _ = pidfd.readable().await;
            pool.seat_died(seat, incarnation);
        }
        Err(error) => tracing::error!("a worker cannot be watched and gets no work: {error}"),
    }
}

async fn accept(listener: OwnedFd, thread: Arc<Thread>) {
    let listener = match readable(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!("a listening socket cannot be used: {error}"),
    };
    let shared = &thread.shared;
    let draining = draining(shared);
    tokio::pin!(draining);
    loop {
        while shared.is_full() {
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
        let more = accept_some(&listener, &thread).await;
        if more {
            tokio::task::yield_now().await;
            continue;
        }
        // Clients that the kernel has let in already are served even while draining.
        tokio::select! {
            biased;
            ready = listener.readable() => match ready {
                Ok(mut ready) => ready.clear_ready(),
                Err(error) => return tracing::error!("a listening socket has failed: {error}"),
            },
            () = &mut draining => return,
        }
    }
}

/// Accepts a batch of connections. True when there may be more.
async fn accept_some(listener: &AsyncFd<OwnedFd>, thread: &Arc<Thread>) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    for _ in 0..ACCEPT_BATCH {
        match rustix::net::acceptfrom_with(listener, flags) {
            Ok((socket, peer)) => {
                let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                let peer = peer.unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)));
                thread.count_in();
                let connection = Connection::new(socket, peer);
                tokio::spawn(Paced::new(converse(connection, thread.clone())));
            }
            Err(Errno::AGAIN) => return false,
            Err(Errno::CONNABORTED | Errno::CONNRESET | Errno::INTR) => {}
            Err(error) => {
                tracing::warn!("no connection can be accepted for a moment: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                return true;
            }
        }
    }
    true
}

/// Counts a connection for as long as it lives.
struct Counted(Arc<Thread>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.count_out();
    }
}

/// One client's requests, one after the other.
async fn converse(mut connection: Connection, thread: Arc<Thread>) {
    let counted = Counted(thread);
    let thread = &counted.0;
    let limits = maitred_http1::Limits::default();
    let draining = draining(&thread.shared);
    tokio::pin!(draining);
    loop {
        let head = tokio::select! {
            biased;
            head = connection.next_head(&limits) => head,
            () = &mut draining => return,
        };
        match head {
            Ok(mut head) => {
                let client_stays = head.keep_alive;
                head.keep_alive &= !thread.shared.is_crowded() && !thread.shared.is_draining();
                let served = Box::pin(request::serve(&mut connection, &head, thread));
                match served.await {
                    After::Keep => {}
                    // A client that said it would close sends nothing more.
                    After::Close if !client_stays && connection.input().is_empty() => return,
                    After::Close | After::Linger => return connection.linger().await,
                }
            }
            Err(NoHead::Closed) => return,
            Err(NoHead::TooSlow) => {
                let answer = request::bare(408, "The request's head came too slowly.");
                return send_away(connection, thread, 408, &answer).await;
            }
            Err(NoHead::Refused(refusal)) => {
                tracing::debug!("{}: refused: {}", connection.peer, refusal.reason());
                let answer = request::bare(refusal.status(), refusal.reason());
                return send_away(connection, thread, refusal.status(), &answer).await;
            }
        }
    }
}

/// Answers what is no request, and is done with the client.
async fn send_away(mut connection: Connection, thread: &Thread, status: u16, answer: &[u8]) {
    let _ = connection.send(answer).await;
    if let Some(log) = &thread.shared.access_log {
        log.write_refused(connection.peer.ip(), status, connection.sent());
    }
    connection.linger().await;
}

/// Returns when the front is to end.
async fn draining(shared: &Shared) {
    loop {
        let changed = shared.changed.notified();
        if shared.is_draining() {
            return;
        }
        changed.await;
    }
}
