//! `maitred doctor`: diagnoses how this machine serves PHP.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use maitred_doctor::{Options, Scope, examine};

use crate::command::DEFAULT_CONFIG;
use crate::command::Doctor;
use crate::exit_code::{fail, refuse};
use crate::log::has_colors;

/// Starts PHP as the pools of a configuration would. None for one that cannot be loaded: that is
/// another finding.
fn php_start(file: &Path) -> Option<Result<Vec<String>, String>> {
    let config = maitred_config::load(file).ok()?;
    let mistakes = maitred_supervisor::check_php(&config, file);
    Some(mistakes.map(|all| all.iter().map(ToString::to_string).collect()))
}

/// Runs the checks, and prints the findings.
pub fn doctor(asked: &Doctor) -> ExitCode {
    if let Some(root) = asked.root.as_ref().filter(|root| !root.is_dir()) {
        return refuse(&format!("--root: {} is no folder", root.display()));
    }
    if let Some(file) = asked.config.as_ref().filter(|_| asked.root.is_none())
        && let Err(why) = std::fs::metadata(file)
    {
        return refuse(&format!(
            "--config: {} cannot be read ({why}); name the file that `maitred serve --config` \
             reads",
            file.display()
        ));
    }
    let which = match (&asked.config, &asked.php_fpm) {
        (Some(_), _) => Scope::Maitred,
        (None, Some(_)) => Scope::PhpFpm,
        (None, None) => Scope::Everything,
    };
    let config = asked.config.clone();
    let config = config.unwrap_or_else(|| PathBuf::from(DEFAULT_CONFIG));
    // Another root has another PHP, and php-fpm's configuration is php-fpm's to judge.
    let is_tried = which != Scope::PhpFpm && asked.root.is_none();
    let php_start = is_tried.then(|| php_start(&config)).flatten();
    let mut report = examine(&Options {
        which,
        config: config.clone(),
        php_fpm: asked.php_fpm.clone().flatten(),
        admin_socket: asked.admin_socket.clone(),
        root: asked.root.clone(),
        access_log: asked.access_log.clone(),
        watch: asked.watch.unwrap_or(maitred_doctor::read::DEFAULT_WATCH),
        time: asked.time.unwrap_or(maitred_doctor::read::DEFAULT_TIME),
    });
    if let Some(shown) = php_start {
        report.add_php_start(&config.display().to_string(), shown);
    }
    let colours = has_colors(&std::io::stdout());
    match asked.json.publish(&report.json(), || report.text(asked.all, colours)) {
        Ok(()) => ExitCode::from(report.exit_code()),
        Err(why) => fail(&why),
    }
}
