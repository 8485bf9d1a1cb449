//! Accepts connections, and serves the requests of each connection one after the other.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use maitred_control::Clients;
use maitred_http1::{Head, Refusal};
use maitred_os::sockets::unix::refuse_descriptors;
use maitred_os::sockets::waiting::waiting;
use maitred_os::sockets::{accept_silent_clients, closer};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, sockopt};
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

use crate::handler::request;
use crate::http::client::After;
use crate::net::admin_peer::AdminPeer;
use crate::net::proxy_protocol::take_header;
use crate::net::readable::readable;
use crate::net::socket::{Family, Socket};
use crate::net::tls::{self, NoTls};
use crate::runtime::thread::Paced;
use crate::server::connection_tasks::Tasks;
use crate::server::http1::connection::{Connection, NO_ADDRESS, NoHead};
use crate::server::{agent_check, fastcgi, http2};
use crate::services::Thread;
use crate::services::lifecycle::{ConnectionGuard, idle_is_over};

/// Pause of accepting when no descriptor is left, or the connection limit is reached.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
/// Pause for the idle connections that are closed to make room.
const ROOM_PAUSE: Duration = Duration::from_millis(1);
/// Connections accepted before the thread runs its other tasks.
const ACCEPT_BATCH: usize = 64;
/// Connections that a Unix socket may hold at most, unless the administrator has raised it
/// (`net.core.somaxconn`).
const QUEUE: u64 = 4096;

/// Accepts the connections of one thread, and owns the tasks that serve them.
pub struct Acceptor {
    thread: Arc<Thread>,
    http: Arc<Tasks<AcceptedClient>>,
    https: Arc<Tasks<AcceptedClient>>,
    fastcgi: Arc<Tasks<fastcgi::AcceptedWebServer>>,
}

impl Acceptor {
    /// An acceptor without tasks.
    pub fn new(thread: Arc<Thread>) -> Acceptor {
        Acceptor { thread, http: Tasks::new(), https: Tasks::new(), fastcgi: Tasks::new() }
    }
}

/// Accepts clients until the front stops, or `ended` reports that the socket is no longer needed.
/// Connections already in the kernel's queue are served.
pub async fn accept(
    listener: OwnedFd,
    clients: Clients,
    acceptor: Arc<Acceptor>,
    mut ended: oneshot::Receiver<()>,
) {
    let listener = match readable(listener) {
        Ok(listener) => Arc::new(listener),
        Err(error) => return tracing::error!("a listening socket cannot be used: {error}"),
    };
    let admin = is_for_admin(&clients);
    if clients == Clients::AgentCheck {
        accept_silent_clients(listener.as_fd());
    }
    let shared = &acceptor.thread.shared;
    let address: Option<Arc<str>> = match &clients {
        Clients::Fastcgi { listen } => {
            shared.pools.listen_backlog.watch(listen, &listener);
            Some(listen.as_str().into())
        }
        _ => None,
    };
    let mut wary = wary_of(&listener);
    let full = shared.takes_no_more();
    tokio::pin!(full);
    let mut last = false;
    loop {
        while shared.is_full(admin) {
            wait_for_room(&acceptor.thread, admin).await;
        }
        while wary > 0 && closer::is_full() {
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
        if accept_some(&listener, &clients, address.as_ref(), &acceptor, &mut wary).await {
            tokio::task::yield_now().await;
            continue;
        }
        if last {
            return;
        }
        tokio::select! {
            biased;
            ready = listener.readable() => match ready {
                Ok(mut ready) => ready.clear_ready(),
                Err(error) => return tracing::error!("a listening socket has failed: {error}"),
            },
            _ = &mut ended => last = true,
            () = &mut full => last = true,
        }
    }
}

/// Waits for a moment while the connection limit is reached, and has idle connections closed.
async fn wait_for_room(thread: &Thread, admin: bool) {
    let shared = &thread.shared;
    let has_room = match admin {
        true => shared.admin.make_room(thread.number),
        false => shared.want_room(thread.number),
    };
    if has_room {
        return tokio::time::sleep(ROOM_PAUSE).await;
    }
    if !admin {
        shared.troubles.full(shared.max_connections);
    }
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// How many of the next connections may carry descriptors, because the kernel does not refuse them:
/// those that were queued before the socket option was set, or all.
fn wary_of(listener: &AsyncFd<OwnedFd>) -> u64 {
    let family = sockopt::socket_domain(listener);
    if family != Ok(AddressFamily::UNIX) {
        return 0;
    }
    // Our supervisor sets the option when it opens the socket; systemd or an older version does
    // not.
    match refuse_descriptors(listener.as_fd()) {
        // A kernel without the module that reports the queue's length still has a queue.
        Ok(()) => waiting(listener).map_or(QUEUE, u64::from),
        Err(_) => u64::MAX,
    }
}

/// Accepts a batch of connections: of the admin listener, of a FastCGI listener, or of clients.
/// True when there may be more.
async fn accept_some(
    listener: &AsyncFd<OwnedFd>,
    clients: &Clients,
    address: Option<&Arc<str>>,
    acceptor: &Acceptor,
    wary: &mut u64,
) -> bool {
    let thread = &acceptor.thread;
    let admin = is_for_admin(clients);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    for _ in 0..ACCEPT_BATCH {
        if thread.shared.is_full(admin) {
            return true;
        }
        match rustix::net::acceptfrom_with(listener, flags) {
            Ok((socket, peer)) => {
                let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                let mut guard = ConnectionGuard::new(thread.clone(), admin);
                thread.shared.make_room(thread.number);
                let is_wary = *wary > 0;
                *wary = wary.saturating_sub(1);
                let family = match peer {
                    Some(_) => Family::Tcp,
                    None => Family::Unix,
                };
                if let Some(listen) = address {
                    let Ok(socket) = Socket::accepted(socket, family, is_wary) else {
                        continue;
                    };
                    let accepted =
                        fastcgi::AcceptedWebServer { socket, peer, listen: listen.clone(), guard };
                    acceptor.fastcgi.serve(accepted, fastcgi::converse);
                    continue;
                }
                if *clients == Clients::AgentCheck {
                    tokio::spawn(Paced::new(agent_check::serve(socket, guard)));
                    continue;
                }
                if admin {
                    let admin = AdminPeer::of(&socket, peer.is_none());
                    let Ok(socket) = Socket::accepted(socket, family, is_wary) else {
                        continue;
                    };
                    let connection = Connection::of_admin(socket, admin, peer, thread.rates());
                    acceptor.http.serve(AcceptedClient { connection, guard }, plain);
                    continue;
                }
                let peer = peer.unwrap_or(NO_ADDRESS);
                if thread.is_proxied() {
                    let is_https = *clients == Clients::Https;
                    let introduced = introduced(socket, peer, guard, is_https);
                    tokio::spawn(Paced::new(introduced));
                    continue;
                }
                if guard.admit(peer).is_err() {
                    continue;
                }
                let connection = Connection::new(socket, peer, thread.rates());
                let client = AcceptedClient { connection, guard };
                match clients {
                    Clients::Https => acceptor.https.serve(client, secure),
                    _ => acceptor.http.serve(client, plain),
                }
            }
            Err(Errno::AGAIN) => return false,
            Err(Errno::CONNABORTED | Errno::CONNRESET | Errno::INTR) => {}
            Err(error) => {
                thread.shared.troubles.not_accepted(&error);
                thread.shared.want_room(thread.number);
                tokio::time::sleep(ACCEPT_PAUSE).await;
                return true;
            }
        }
    }
    true
}

/// Whether a listener has the connections of administrators, which have a limit of their own.
fn is_for_admin(clients: &Clients) -> bool {
    matches!(clients, Clients::Admin | Clients::AgentCheck)
}

/// An accepted connection of a client.
struct AcceptedClient {
    connection: Connection,
    guard: ConnectionGuard,
}

/// How serving a connection over HTTP/1 ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The connection is closed.
    Over,
    /// The client starts HTTP/2, and the connection continues with that.
    Http2,
}

/// A client behind a proxy that speaks the PROXY protocol.
async fn introduced(socket: OwnedFd, peer: SocketAddr, mut guard: ConnectionGuard, is_https: bool) {
    let thread = guard.thread.clone();
    let troubles = &thread.shared.troubles;
    if !thread.sites().trust.proxies.contain(peer.ip()) {
        return troubles.not_proxied(peer.ip(), "it is none of trusted_proxies");
    }
    let (socket, client) = match take_header(socket).await {
        Ok(taken) => taken,
        Err(no_header) => return troubles.not_proxied(peer.ip(), no_header.words()),
    };
    let peer = client.unwrap_or(peer);
    if guard.admit(peer).is_err() {
        return;
    }
    let connection = Connection::new(socket, peer, thread.rates());
    match is_https {
        true => secure(AcceptedClient { connection, guard }).await,
        false => plain(AcceptedClient { connection, guard }).await,
    }
}

/// A client over plain HTTP, or over TLS once the handshake is complete.
fn plain(client: AcceptedClient) -> impl Future<Output = ()> + Send {
    // An async fn would hold its arguments twice, for as long as the connection is idle.
    let AcceptedClient { mut connection, guard } = client;
    async move {
        if converse_http1(&mut connection, &guard.thread).await == End::Http2 {
            Box::pin(http2::converse_after_preface(connection, guard)).await;
        } else if let Some(at) = connection.too_slow() {
            let troubles = &guard.thread.shared.troubles;
            troubles.too_slow(connection.peer.ip(), at);
        }
    }
}

/// A client over TLS.
async fn secure(client: AcceptedClient) {
    let AcceptedClient { mut connection, guard } = client;
    // The handshake's state is freed before the first request.
    match Box::pin(shake_hands(&mut connection, &guard.thread)).await {
        Ok(()) if connection.protocol() == Some(tls::HTTP2) => {
            Box::pin(http2::converse(connection, guard)).await;
        }
        // An ACME authority has validated the host (RFC 8737 §3).
        Ok(()) if connection.protocol() == Some(maitred_tls::ACME_TLS) => {}
        Ok(()) => plain(AcceptedClient { connection, guard }).await,
        Err(NoTls::PlainHttp) => {
            let why = "This port speaks HTTPS, and this was plain HTTP.";
            let response = crate::http::headers::bare(400, why);
            Box::pin(send_away(&mut connection, &guard.thread, 400, &response)).await;
        }
        Err(why) => tracing::debug!("{}: no TLS: {why}", connection.peer),
    }
}

/// Performs the TLS handshake. It is given up when the front stops or the connection limit needs
/// the room.
async fn shake_hands(connection: &mut Connection, thread: &Thread) -> Result<(), NoTls> {
    let shared = &thread.shared;
    let Some(tls) = shared.tls.load_full() else {
        return Err(NoTls::Closed);
    };
    let (under_way, is_crowded) = shared.handshakes.begin();
    if is_crowded {
        shared.troubles.gave_way();
    }
    tokio::select! {
        biased;
        outcome = connection.secure(&tls) => outcome,
        () = under_way.gives_way() => Err(NoTls::TooSlow),
        () = idle_is_over(shared) => Err(NoTls::Closed),
    }
}

/// Serves the requests of a connection over HTTP/1. Every idle connection holds what is alive
/// during the wait between two requests; the rest is boxed.
async fn converse_http1(connection: &mut Connection, thread: &Arc<Thread>) -> End {
    let limits = maitred_http1::Limits::default();
    let shared = &thread.shared;
    let mut leaves = pin!(idle_is_over(shared));
    let mut is_over = false;
    let is_admin = connection.admin.is_some();
    let mut is_first = !is_admin;
    let mut may_close = true;
    let mut idle = shared.idle_of(is_admin).connection(thread.number);
    loop {
        let head = tokio::select! {
            biased;
            head = connection.next_head(&limits, || shared.idle_timeout()) => head,
            () = idle.closed(), if may_close => {
                // A request that has partly arrived gets its response, except where there are few
                // places.
                may_close = false;
                if is_admin || connection.input().is_empty() {
                    return End::Over;
                }
                continue;
            }
            () = &mut leaves, if !is_over => {
                // A request that has partly arrived gets its response, unless the front stops.
                is_over = true;
                if shared.is_draining() || connection.input().is_empty() {
                    return End::Over;
                }
                continue;
            }
        };
        match head {
            Ok(head) => {
                is_first = false;
                may_close = true;
                idle.leave();
                let goes_on = match is_admin {
                    true => Box::pin(serve_admin(connection, thread, head)).await,
                    false => Box::pin(serve_request(connection, thread, head)).await,
                };
                if !goes_on {
                    return End::Over;
                }
            }
            Err(NoHead::Refused(Refusal::Http2)) if is_first => return End::Http2,
            Err(why) => {
                Box::pin(dismiss(connection, thread, why)).await;
                return End::Over;
            }
        }
    }
}

/// Serves a request of the admin listener, unless others need its place meanwhile. False when the
/// connection is to be closed.
async fn serve_admin(connection: &mut Connection, thread: &Arc<Thread>, head: Head) -> bool {
    let mut busy = thread.shared.admin.busy.connection(thread.number);
    tokio::select! {
        biased;
        goes_on = serve_request(connection, thread, head) => goes_on,
        () = busy.closed() => false,
    }
}

/// Serves a request. False when the connection is to be closed.
async fn serve_request(connection: &mut Connection, thread: &Arc<Thread>, mut head: Head) -> bool {
    let client_stays = head.keep_alive;
    head.keep_alive &= !thread.shared.closes_connections();
    head.keep_alive &= !thread.shared.is_outdated(connection.secured.as_ref());
    let address = || thread.address(connection.peer.ip());
    let _held = match thread.shared.requests.hold(head.memory_bytes(), address) {
        Ok(held) => held,
        Err(why) => {
            Box::pin(refuse_head(connection, thread, why)).await;
            return false;
        }
    };
    match request::serve(connection, &head, thread).await {
        After::Keep => return true,
        // A client that sent `Connection: close` sends nothing more.
        After::Close if !client_stays && connection.input().is_empty() => {}
        After::Close | After::Linger => linger(connection, thread).await,
    }
    false
}

/// Closes the connection so that the client gets its last response, unless others need its place.
async fn linger(connection: &mut Connection, thread: &Thread) {
    let is_admin = connection.admin.is_some();
    let mut idle = thread.shared.idle_of(is_admin).connection(thread.number);
    tokio::select! {
        biased;
        () = connection.linger() => {}
        () = idle.closed() => {}
    }
}

/// Refuses a request for lack of memory for its header.
async fn refuse_head(connection: &mut Connection, thread: &Thread, why: &str) {
    thread.shared.refuse_head(connection.peer.ip(), why);
    let response = crate::http::headers::bare(503, "Too many large requests are in progress.");
    send_away(connection, thread, 503, &response).await;
}

/// Ends the connection of a client that sends no further request, or an invalid one.
async fn dismiss(connection: &mut Connection, thread: &Thread, why: NoHead) {
    let (status, response) = match why {
        NoHead::Closed => return,
        NoHead::TooSlow => {
            let response =
                crate::http::headers::bare(408, "The request header arrived too slowly.");
            (408, response)
        }
        NoHead::Refused(refusal) => {
            tracing::debug!("{}: refused: {}", connection.peer, refusal.reason());
            let status = refusal.status();
            (status, crate::http::headers::bare(status, refusal.reason()))
        }
    };
    send_away(connection, thread, status, &response).await;
}

/// Responds to an invalid request, and closes the connection.
async fn send_away(connection: &mut Connection, thread: &Thread, status: u16, response: &[u8]) {
    let _ = connection.send(response).await;
    if let (false, Some(log)) = (connection.admin.is_some(), &*thread.shared.access_log.load()) {
        log.write_refused(connection.peer.ip(), status, connection.sent());
    }
    linger(connection, thread).await;
}
