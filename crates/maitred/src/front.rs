//! The role the server starts this program in for the front.

use std::process::ExitCode;

use maitred_config::Config;
use maitred_os::channel::Channel;
use maitred_os::title;

use crate::exit_code::refuse;
use crate::log;

/// Runs the front over the channel that the supervisor left us.
pub fn front() -> ExitCode {
    title::set("maitred: front");
    match Channel::inherited() {
        Ok(channel) => {
            let code = maitred_front::run(channel, follow);
            ExitCode::from(u8::try_from(code).unwrap_or(crate::exit_code::EXIT_FAILURE))
        }
        Err(_) => refuse(&"`maitred front` is started by `maitred serve`, not by hand"),
    }
}

/// Applies the log settings of a new configuration.
fn follow(config: &Config) {
    match &config.fpm {
        Some(fpm) => log::fpm::follow(config, fpm),
        None => log::collected::follow(&config.error_log),
    }
}
