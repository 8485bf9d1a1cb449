//! The process that shares certificates, the account and the proofs of an order with other nodes,
//! in Redis or in a folder. It alone waits for that place: neither the front nor the supervisor
//! does. It runs as the front's user and is sandboxed as the front is. Everything that it carries
//! is sealed by the supervisor, and it has no key (docs/decisions/0008-acme.md).

mod folder_place;
mod link;
mod redis_place;
mod rounds;
mod store;
mod witnesses;

use maitred_control::redis_access::RedisServer;
use maitred_control::shared_certificates::{SharedAccess, SharedSettings};
use maitred_os::channel::Channel;
use maitred_sandbox::{LessTrusted, Needs};

use link::SharedLink;
use rounds::Session;

/// A time of this machine since its start, or a duration, in milliseconds.
type Millis = u64;

/// Most threads for a folder whose file system hangs.
const FOLDER_THREADS: usize = 4;

/// Runs the process over the channel to the supervisor. Returns the exit code: 0 when the
/// supervisor has gone, or when it is to be started again.
pub fn run(channel: Channel) -> i32 {
    maitred_os::signals::ignore_sigpipe();
    // It ends with its channel, and gives the lock back before.
    maitred_os::signals::ignore_sigterm();
    match begin(SharedLink::new(channel)) {
        Ok(()) => 0,
        Err(why) => {
            tracing::error!("the process that shares certificates cannot work: {why}");
            1
        }
    }
}

fn begin(link: SharedLink) -> Result<(), String> {
    let supervisor = i32::try_from(std::os::unix::process::parent_id()).unwrap_or(0);
    let settings = link.settings()?;
    let (identity, restricted) = (settings.identity.as_ref(), settings.restricted);
    LessTrusted { supervisor, identity, restricted }.settle()?;
    if settings.restricted {
        maitred_sandbox::enter("the process that shares certificates", &needs(&settings))?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(FOLDER_THREADS)
        .build()
        .map_err(|error| format!("its runtime cannot be made: {error}"))?;
    let ended = runtime.block_on(async { Session::new(&settings, link)?.run().await });
    runtime.shutdown_background();
    ended
}

fn needs(settings: &SharedSettings) -> Needs {
    let (mut read, mut written) = (Vec::new(), Vec::new());
    match &settings.place {
        SharedAccess::Folder(folder) => written.push(folder.clone()),
        SharedAccess::Redis(access, _) => match &access.server {
            RedisServer::Unix(path) => read.push(path.clone()),
            RedisServer::Tcp { .. } if access.needs_roots_of_system() => {
                read = maitred_sandbox::folders::of_roots();
            }
            RedisServer::Tcp { .. } => {}
        },
    }
    Needs { read, sites: false, written }
}
