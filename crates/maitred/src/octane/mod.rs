//! maitred in place of FrankenPHP, for `php artisan octane:start --server=frankenphp` with an
//! unchanged laravel/octane.
//!
//! The program is this one under the name `frankenphp`. It makes a configuration of Octane's
//! environment and Caddyfile, runs `maitred serve` with it, and translates between the two: the
//! requests of Octane's commands to Caddy's admin address (`admin_server.rs`), and the log
//! (`log_lines.rs`).

mod admin_request;
mod admin_server;
mod command_line;
pub mod install;
mod log_lines;
mod server_child;
mod settings;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use maitred_config::CertificateFiles;
use serde_json::json;

use crate::exit_code::{EXIT_FAILURE, EXIT_SUCCESS, fail, print_line, refuse};
use crate::import::Disk;
use crate::trust::authority_folder::AuthorityFolder;
use admin_server::AdminServer;
use command_line::OctaneCommand;
use log_lines::LogLines;
use server_child::StartedApplication;
use settings::OctaneSettings;

/// The names under which this program is Octane's server.
const NAMES: [&str; 2] = ["frankenphp", "maitred-octane"];

/// The version of FrankenPHP whose interface the worker functions have.
const INTERFACE_VERSION: &str = "1.12.7";

/// Longest wait for the rest of the log and of responses when the server has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Interval of checks whether the last response has been sent.
const LAST_CHECK: Duration = Duration::from_millis(10);

/// Whether this program is Octane's server, by the name it was started under.
pub fn is_meant(arguments: &[OsString]) -> bool {
    let name = arguments.first().and_then(|name| Path::new(name).file_name());
    name.is_some_and(|name| NAMES.iter().any(|one| name == *one))
}

/// Runs a command line of FrankenPHP.
pub fn run(arguments: &[OsString]) -> ExitCode {
    let version = env!("CARGO_PKG_VERSION");
    match command_line::read(arguments.get(1..).unwrap_or_default()) {
        OctaneCommand::BuildInfo => {
            // Octane compares what follows the last `v` of this line with what it needs.
            print_line(&format!("path\tmaitred\nmod\tmaitred\tv{version}"));
            print_line(&format!("dep\tgithub.com/dunglas/frankenphp\tv{INTERFACE_VERSION}"));
            ExitCode::from(EXIT_SUCCESS)
        }
        OctaneCommand::Version => {
            print_line(&format!("maitred {version} in place of FrankenPHP v{INTERFACE_VERSION}"));
            ExitCode::from(EXIT_SUCCESS)
        }
        OctaneCommand::PhpCli(arguments) => {
            let why = Command::new("php").args(arguments).exec();
            fail(&format!("php cannot be run ({why}); install the package php-cli"))
        }
        OctaneCommand::Run { caddyfile } => match serve(&caddyfile) {
            Ok(code) => ExitCode::from(code),
            Err(why) => {
                say("error", &why);
                ExitCode::from(EXIT_FAILURE)
            }
        },
        OctaneCommand::Refused(why) => refuse(&why),
    }
}

/// Writes a line that Octane prints.
fn say(level: &str, message: &str) {
    let mut lines = LogLines::new();
    let line = format!("0 {} {message}", level.to_uppercase());
    let _ = write!(io::stderr(), "{}", lines.translate(&line, SystemTime::now()));
}

/// Serves the application until the server has ended. Returns its exit code.
fn serve(caddyfile: &Path) -> Result<u8, String> {
    let environment = |name: &str| std::env::var(name).ok();
    if environment("LARAVEL_OCTANE").is_none() {
        return Err("LARAVEL_OCTANE is not set: `run` is for php artisan octane:start \
                    --server=frankenphp; for another Caddyfile, run `maitred import caddy`"
            .to_owned());
    }
    let caddyfile = std::path::absolute(caddyfile).unwrap_or_else(|_| caddyfile.to_owned());
    let settings = OctaneSettings::read(&Disk, &caddyfile, &environment)?;
    let certificate = certificate(&settings)?;
    let listener = admin_server::listen(&settings.admin)?;
    let folder = tempfile::tempdir().map_err(|why| format!("no temporary folder: {why}"))?;
    let socket = folder.path().join("admin.sock");
    let config = folder.path().join("maitred.toml");
    std::fs::write(&config, settings.toml(&socket, certificate.as_ref()))
        .map_err(|why| format!("{} cannot be written: {why}", config.display()))?;
    settings.warnings.iter().for_each(|warning| say("warn", warning));
    let started = server_child::start(&config, settings.log_level);
    let StartedApplication { mut child, served, log } =
        started.map_err(|why| format!("maitred serve cannot be started: {why}"))?;
    let (served, (end, log_ended)) = (Arc::new(served), mpsc::channel());
    let admin = Arc::new(admin(settings, socket, served.clone()));
    let server = admin.clone();
    thread("log", move || {
        server_child::pass_on(log);
        let _ = end.send(());
    })?;
    thread("admin", move || server.run(&listener))?;
    let code = child.wait(&served);
    let _ = log_ended.recv_timeout(LAST_WORDS);
    let deadline = Instant::now() + LAST_WORDS;
    while admin.open.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
        std::thread::sleep(LAST_CHECK);
    }
    Ok(u8::try_from(code).unwrap_or(EXIT_FAILURE))
}

fn admin(
    settings: OctaneSettings,
    socket: PathBuf,
    served: Arc<server_child::ServedApplication>,
) -> AdminServer {
    let worker = json!({ "file_name": settings.script, "num": settings.workers().unwrap_or(0) });
    AdminServer {
        config: json!({ "workers": [worker] }).to_string(),
        address: settings.admin,
        socket,
        pools: settings.pools,
        served,
        open: AtomicUsize::new(0),
    }
}

/// A certificate of the user's own authority, if the application is served by one.
fn certificate(settings: &OctaneSettings) -> Result<Option<CertificateFiles>, String> {
    if settings.own_tls.is_empty() {
        return Ok(None);
    }
    if let Some(next_step) = crate::serve::https::prepare()? {
        say("warn", next_step);
    }
    let folder = AuthorityFolder::of_user();
    let authority = folder.read_or_make()?.authority;
    folder.issue(&authority, &settings.own_tls).map(Some)
}

fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    started.map(|_| ()).map_err(|why| format!("no thread can be started: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_decides() {
        let meant = |name: &str| is_meant(&[OsString::from(name), OsString::from("run")]);
        assert!(meant("/srv/shop/frankenphp") && meant("maitred-octane"));
        assert!(!meant("/usr/bin/maitred") && !meant("frankenphp.bak"));
    }
}
