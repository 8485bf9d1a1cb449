//! `maitred doctor`: diagnoses how this machine serves PHP.

use std::path::PathBuf;
use std::process::ExitCode;

use maitred_doctor::{Options, Scope, examine};

use crate::command::DEFAULT_CONFIG;
use crate::command::Doctor;
use crate::exit_code::{fail, refuse};
use crate::log::has_colors;

/// Runs the checks, and prints the findings.
pub fn doctor(asked: &Doctor) -> ExitCode {
    if let Some(root) = asked.root.as_ref().filter(|root| !root.is_dir()) {
        return refuse(&format!("--root: {} is no folder", root.display()));
    }
    let which = match (&asked.config, &asked.php_fpm) {
        (Some(_), _) => Scope::Maitred,
        (None, Some(_)) => Scope::PhpFpm,
        (None, None) => Scope::Everything,
    };
    let config = asked.config.clone();
    let report = examine(&Options {
        which,
        config: config.unwrap_or_else(|| PathBuf::from(DEFAULT_CONFIG)),
        php_fpm: asked.php_fpm.clone().flatten(),
        admin_socket: asked.admin_socket.clone(),
        root: asked.root.clone(),
        access_log: asked.access_log.clone(),
        watch: asked.watch.unwrap_or(maitred_doctor::read::DEFAULT_WATCH),
        time: asked.time.unwrap_or(maitred_doctor::read::DEFAULT_TIME),
    });
    let colours = has_colors(&std::io::stdout());
    match asked.json.publish(&report.json(), || report.text(asked.all, colours)) {
        Ok(()) => ExitCode::from(report.exit_code()),
        Err(why) => fail(&why),
    }
}
