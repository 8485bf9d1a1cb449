//! The process that obtains one certificate (ACME, RFC 8555) and exits. No other process connects
//! to the Internet on its own. It runs as the front's user, never has access to the certificate's
//! key, and reports the result to the supervisor (docs/decisions/0008-acme.md).

mod conversation;
mod failure;
mod http;
mod link;
pub mod shared;

use maitred_control::acme::{Cause, FromAcme, PATIENCE};
use maitred_os::channel::Channel;
use maitred_sandbox::{LessTrusted, Needs};

use crate::failure::Failure;
use crate::link::Link;

/// Runs the process over the channel to the supervisor. Returns the exit code: 0 when it has
/// reported its result.
pub fn run(channel: Channel) -> i32 {
    maitred_os::signals::ignore_sigpipe();
    match get(Link::new(channel)) {
        Ok(()) => 0,
        Err(why) => {
            tracing::error!("the process that gets certificates cannot work: {why}");
            1
        }
    }
}

fn get(link: Link) -> Result<(), String> {
    let supervisor = i32::try_from(std::os::unix::process::parent_id()).unwrap_or(0);
    let order = link.order()?;
    let (identity, restricted) = (order.identity.as_ref(), order.restricted);
    LessTrusted { supervisor, identity, restricted }.settle()?;
    if order.restricted {
        maitred_sandbox::enter("the process that gets certificates", &needs())?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("its runtime cannot be made: {error}"))?;
    let came_to = runtime.block_on(async {
        let conversation = conversation::hold(&order, &link);
        let came_to = tokio::time::timeout(PATIENCE, conversation).await;
        came_to.unwrap_or_else(|_| Err(too_slow()))
    });
    let said = link.say(&match came_to {
        Ok(chain) => FromAcme::Issued { chain },
        Err(failure) => failure.report(),
    });
    // A blocking task may still wait for a message of the supervisor.
    runtime.shutdown_background();
    said
}

/// It needs the network and the system's trusted certificates; the supervisor stores the key and
/// the result.
fn needs() -> Needs {
    Needs { read: maitred_sandbox::folders::of_roots(), ..Needs::default() }
}

fn too_slow() -> Failure {
    let seconds = PATIENCE.as_secs();
    let why = format!("the authority has not issued it within {seconds} s");
    Failure::new(Cause::Unreachable, why)
}
