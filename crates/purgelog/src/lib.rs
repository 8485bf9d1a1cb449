//! The process that passes purges of cached pages from node to node, over a stream of Redis or
//! Valkey, or without it to each peer. It alone waits for them: neither the front nor the
//! supervisor does. It runs as the front's user and is sandboxed as the front is
//! (docs/decisions/0018-purges-everywhere.md).

mod claims;
mod connection;
pub mod fuzzing;
mod link;
mod log_entry;
mod member;
mod node_figures;
mod payloads;
mod peers;
mod position_file;
mod redis_log;
mod session;
mod wire;

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use maitred_control::purge_log::{PurgeLogPlace, PurgeLogSettings};
use maitred_control::redis_access::RedisServer;
use maitred_os::channel::Channel;
use maitred_sandbox::{LessTrusted, Needs};

use crate::link::Link;
use crate::peers::peer_session::PeerSession;
use crate::redis_log::RedisLog;
use crate::session::Session;

/// A time of this machine since its start, or a duration, in milliseconds.
pub type Millis = u64;

/// Runs the process over the channel to the supervisor. Returns the exit code: 0 when it was to
/// leave.
pub fn run(channel: Channel) -> i32 {
    maitred_os::signals::ignore_sigpipe();
    // It ends after the fronts, by an order.
    maitred_os::signals::ignore_sigterm();
    match begin(Link::new(channel)) {
        Ok(()) => 0,
        Err(why) => {
            tracing::error!("the process of the purge log cannot work: {why}");
            1
        }
    }
}

fn begin(link: Link) -> Result<(), String> {
    let supervisor = i32::try_from(std::os::unix::process::parent_id()).unwrap_or(0);
    let (settings, listener) = link.settings()?;
    let (identity, restricted) = (settings.identity.as_ref(), settings.restricted);
    LessTrusted { supervisor, identity, restricted }.settle()?;
    if settings.restricted {
        maitred_sandbox::enter("the process of the purge log", &needs(&settings))?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("its runtime cannot be made: {error}"))?;
    let ended = runtime.block_on(work(settings, link, listener));
    runtime.shutdown_background();
    ended
}

async fn work(
    settings: PurgeLogSettings,
    link: Link,
    listener: Option<TcpListener>,
) -> Result<(), String> {
    match (settings.place.clone(), listener) {
        (PurgeLogPlace::Peers(peers), Some(listener)) => {
            PeerSession::new(settings, peers, link)?.run(listener).await
        }
        (PurgeLogPlace::Redis { access, prefix }, _) => {
            let PurgeLogSettings { node, length, lease, timeout, folder, is_cold, .. } = settings;
            let log = RedisLog { access, prefix, node, length, lease, timeout, folder, is_cold };
            Session::new(log, link)?.run().await
        }
        (PurgeLogPlace::Peers(_), None) => Err("there is no listener".to_owned()),
    }
}

/// It needs the network, the system's root certificates, and the folder of cached pages.
fn needs(settings: &PurgeLogSettings) -> Needs {
    let read: Vec<PathBuf> = match &settings.place {
        PurgeLogPlace::Redis { access, .. } => match &access.server {
            RedisServer::Unix(path) => vec![path.clone()],
            RedisServer::Tcp { .. } if access.needs_roots_of_system() => {
                maitred_sandbox::folders::of_roots()
            }
            RedisServer::Tcp { .. } => Vec::new(),
        },
        PurgeLogPlace::Peers(_) => Vec::new(),
    };
    Needs { read, sites: false, written: settings.folder.iter().cloned().collect() }
}

fn millis(time: Duration) -> Millis {
    Millis::try_from(time.as_millis()).unwrap_or(Millis::MAX)
}

/// A random number of this process.
fn random() -> Result<u64, String> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| format!("the system has no random numbers: {error}"))?;
    Ok(u64::from_ne_bytes(bytes))
}
