//! The process that passes purges to other nodes, started by the server.

use std::process::ExitCode;

use maitred_os::channel::Channel;
use maitred_os::title;

use crate::exit_code::{EXIT_FAILURE, refuse};

/// Passes purges on; the channel to the supervisor is inherited.
pub fn purge_log() -> ExitCode {
    title::set("maitred: purges");
    match Channel::inherited() {
        Ok(channel) => {
            let code = maitred_purgelog::run(channel);
            ExitCode::from(u8::try_from(code).unwrap_or(EXIT_FAILURE))
        }
        Err(_) => refuse(&"`maitred purge-log` is started by `maitred serve`, not by hand"),
    }
}
