//! `maitred doctor`: diagnoses how this machine serves PHP.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use maitred_config::{Config, Pool};
use maitred_doctor::{Options, Scope, examine, html};
use maitred_os::users;

use crate::command::DEFAULT_CONFIG;
use crate::exit_code::{fail, refuse};
use crate::log::has_colors;
use crate::report_file::{self, JsonOption};

/// Arguments of `maitred doctor`.
#[derive(Debug, Args)]
pub struct DoctorOptions {
    /// Check this configuration of maitred, and no other server
    #[arg(long, value_name = "FILE", conflicts_with = "php_fpm")]
    pub config: Option<PathBuf>,
    /// Check php-fpm, nginx and Apache only
    ///
    /// With FILE, the php-fpm of that configuration.
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    #[allow(clippy::option_option)]
    pub php_fpm: Option<Option<PathBuf>>,
    /// Show every check in full, also those that pass
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub json: JsonOption,
    /// Write the report as one HTML file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Seconds for which to watch counters [default: 0.3]
    #[arg(long, value_name = "SECONDS", value_parser = watch)]
    pub watch: Option<Duration>,
    /// Seconds, beside those, to wait for responses [default: 1.2]
    ///
    /// What has not responded after them is reported as unknown.
    #[arg(long, value_name = "SECONDS", value_parser = watch)]
    pub time: Option<Duration>,
    /// Read the request rate from an access log
    ///
    /// Its last 16 MB, in the common or combined format.
    #[arg(long, value_name = "FILE")]
    pub access_log: Option<PathBuf>,
    /// Read files below this folder: an image, or another disk
    ///
    /// No server is queried.
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// The server's admin socket
    ///
    /// [default: `admin_socket` in its configuration or environment]
    #[arg(long, value_name = "PATH")]
    pub admin_socket: Option<PathBuf>,
}

/// Longest `--watch` of `maitred doctor`, in seconds.
const MAX_WATCH_SECONDS: f64 = 600.0;

/// Reads a number of seconds.
fn watch(text: &str) -> Result<Duration, String> {
    let range = 0.0..=MAX_WATCH_SECONDS;
    let seconds: Option<f64> = text.parse().ok().filter(|seconds| range.contains(seconds));
    let wrong = || format!("seconds from 0 to {MAX_WATCH_SECONDS} are expected");
    seconds.map(Duration::from_secs_f64).ok_or_else(wrong)
}

/// Starts PHP as the pools of a configuration would. None for one that cannot be loaded: that is
/// another finding.
fn php_start(file: &Path) -> Option<Result<Vec<String>, String>> {
    let config = maitred_config::load(file).ok()?;
    let mistakes = maitred_supervisor::check_php(&config, file);
    Some(mistakes.map(|all| all.iter().map(ToString::to_string).collect()))
}

/// The user that a server started as root gives a pool's workers, if root asks.
pub fn user_of_pool(pool: &Pool, config: &Config) -> Option<u32> {
    let user = users::is_root().then(|| maitred_supervisor::user_of_pool(pool, config));
    Some(user?.ok()??.uid)
}

/// Runs the checks, and prints the findings.
pub fn doctor(asked: &DoctorOptions) -> ExitCode {
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
        user_of_pool,
        root: asked.root.clone(),
        access_log: asked.access_log.clone(),
        watch: asked.watch.unwrap_or(maitred_doctor::read::DEFAULT_WATCH),
        time: asked.time.unwrap_or(maitred_doctor::read::DEFAULT_TIME),
    });
    if let Some(shown) = php_start {
        report.add_php_start(&config.display().to_string(), shown);
    }
    let colours = has_colors(&std::io::stdout());
    let printed = asked.json.publish(&report.json(), || report.text(asked.all, colours));
    let page = || html::page(&report);
    let written = asked.html.as_ref().map_or(Ok(()), |file| report_file::write(file, &page()));
    match printed.and(written) {
        Ok(()) => ExitCode::from(report.exit_code()),
        Err(why) => fail(&why),
    }
}
