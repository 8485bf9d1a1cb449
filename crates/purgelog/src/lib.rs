//! The process that passes purges of cached pages from node to node, over a stream of Redis or
//! Valkey. It alone waits for that server: neither the front nor the supervisor does. It runs as
//! the front's user and is sandboxed as the front is (docs/decisions/0018-purges-everywhere.md).

mod claims;
mod connection;
pub mod fuzzing;
mod link;
mod log_entry;
mod member;
mod node_figures;
mod position_file;
mod session;
mod wire;

use maitred_control::purge_log::PurgeLogSettings;
use maitred_control::redis_access::RedisServer;
use maitred_os::channel::Channel;
use maitred_sandbox::{LessTrusted, Needs};

use crate::link::Link;
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
    let settings = link.settings()?;
    let (identity, restricted) = (settings.identity.as_ref(), settings.restricted);
    LessTrusted { supervisor, identity, restricted }.settle()?;
    if settings.restricted {
        maitred_sandbox::enter("the process of the purge log", &needs(&settings))?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("its runtime cannot be made: {error}"))?;
    let ended = runtime.block_on(async { Session::new(settings, link)?.run().await });
    runtime.shutdown_background();
    ended
}

/// It needs the network, the system's root certificates, and the folder of cached pages.
fn needs(settings: &PurgeLogSettings) -> Needs {
    let read = match &settings.access.server {
        RedisServer::Unix(path) => vec![path.clone()],
        RedisServer::Tcp { .. } if settings.access.needs_roots_of_system() => {
            maitred_sandbox::folders::of_roots()
        }
        RedisServer::Tcp { .. } => Vec::new(),
    };
    Needs { read, sites: false, written: settings.folder.iter().cloned().collect() }
}
