//! The processes of ACME, started by the server: one gets a certificate, the other one shares what
//! there is with other nodes.

use std::process::ExitCode;

use maitred_os::channel::Channel;
use maitred_os::title;

use crate::exit_code::{EXIT_FAILURE, refuse};

/// Gets a certificate; the channel to the supervisor is inherited.
pub fn acme() -> ExitCode {
    title::set("maitred: acme");
    match Channel::inherited() {
        Ok(channel) => {
            let code = maitred_acme::run(channel);
            ExitCode::from(u8::try_from(code).unwrap_or(EXIT_FAILURE))
        }
        Err(_) => refuse(&"`maitred acme` is started by `maitred serve`, not by hand"),
    }
}

/// Shares certificates; the channel to the supervisor is inherited.
pub fn shared_certificates() -> ExitCode {
    title::set("maitred: certificates");
    match Channel::inherited() {
        Ok(channel) => {
            let code = maitred_acme::shared::run(channel);
            ExitCode::from(u8::try_from(code).unwrap_or(EXIT_FAILURE))
        }
        Err(_) => {
            refuse(&"`maitred shared-certificates` is started by `maitred serve`, not by hand")
        }
    }
}
