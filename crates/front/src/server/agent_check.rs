//! HAProxy's agent check (its configuration manual, `agent-check`): each connection gets one line
//! with the state of this node and its weight, and is closed.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::Shutdown;

use crate::admin::{node_load, readiness};
use crate::net::readable::readable;
use crate::services::lifecycle::ConnectionGuard;

/// How long a connection stays open for HAProxy to read the line, and close it.
const LINGER: Duration = Duration::from_secs(1);

/// Bytes of HAProxy's that are read and ignored (`agent-send`).
const IGNORED_BYTES: usize = 256;

/// Serves a connection.
pub async fn serve(socket: OwnedFd, guard: ConnectionGuard) {
    let shared = &guard.thread.shared;
    let Some(_place) = shared.agent.place() else {
        return;
    };
    let now = maitred_scoreboard::now();
    let saturation = node_load::of(shared).saturation;
    let line = if shared.has_handed_over() {
        shared.agent.line_of_replaced(now, saturation)
    } else {
        let readiness = readiness::of(shared);
        shared.agent.line(now, &readiness, shared.closes_connections(), saturation)
    };
    // The buffer of a new connection has room for it.
    if rustix::io::write(&socket, line.as_bytes()).is_err() {
        return;
    }
    let _ = rustix::net::shutdown(&socket, Shutdown::Write);
    // Closed at once, with unread bytes of HAProxy's, it would be reset, and the line lost.
    let _ = tokio::time::timeout(LINGER, until_closed(socket)).await;
}

async fn until_closed(socket: OwnedFd) {
    let Ok(socket) = readable(socket) else {
        return;
    };
    let mut ignored = [0; IGNORED_BYTES];
    let Ok(mut ready) = socket.readable().await else {
        return;
    };
    ready.clear_ready();
    if matches!(rustix::io::read(socket.get_ref(), &mut ignored), Ok(1..))
        && let Ok(mut ready) = socket.readable().await
    {
        ready.clear_ready();
    }
}
