//! `maitred serve --open`: a process that waits until the server serves, and opens the browser.
//!
//! It is no child of the server, which would wait for a browser at its end, and kill it.

use std::io::{self, Read, Write};
use std::process::{ChildStdin, Command, ExitCode, Stdio};

use maitred_os::fork::{self, Half};
use maitred_supervisor::LOG_VARIABLE;
use tracing::warn;

use crate::exit_code::{EXIT_FAILURE, EXIT_SUCCESS};

/// The subcommand that waits.
const ROLE: &str = "open-browser";

/// The program that opens the user's browser (xdg-open(1)), and its package.
const OPENER: &str = "xdg-open";
const OPENER_PACKAGE: &str = "xdg-utils";

/// Longest URL, in bytes.
const MAX_URL_BYTES: u64 = 1024;

/// The process that waits for a URL.
#[derive(Debug)]
pub struct BrowserOpener(ChildStdin);

impl BrowserOpener {
    /// Starts the process, before this one has become the parent of orphans. A failure is logged.
    pub fn start(log_level: &str) -> Option<BrowserOpener> {
        let start = || -> io::Result<BrowserOpener> {
            let mut child = maitred_os::spawn::command(std::env::current_exe()?)
                .arg(ROLE)
                .env(LOG_VARIABLE, log_level)
                .stdin(Stdio::piped())
                .spawn()?;
            let urls = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
            // The part of it that waits for a URL is not ours.
            child.wait()?;
            Ok(BrowserOpener(urls))
        };
        start().inspect_err(|why| warn!("--open: the browser cannot be opened: {why}")).ok()
    }

    /// Opens the browser at `url`.
    pub fn open(mut self, url: &str) {
        // If it has ended, it has said why.
        let _ = self.0.write_all(url.as_bytes());
    }
}

/// The process itself: opens the URL on standard input.
pub fn run() -> ExitCode {
    match fork::into_background() {
        Ok(Half::Foreground) => return ExitCode::from(EXIT_SUCCESS),
        Ok(Half::Background) => {}
        Err(why) => {
            warn!("--open: the browser cannot be opened: {why}");
            return ExitCode::from(EXIT_FAILURE);
        }
    }
    let mut url = String::new();
    let read = io::stdin().take(MAX_URL_BYTES).read_to_string(&mut url);
    // Without a URL the server has not started, and has said why.
    let is_known = read.is_ok() && !url.is_empty();
    if let Some(Err(why)) = is_known.then(|| open(&url)) {
        warn!("--open: {why}; open {url} yourself");
    }
    ExitCode::from(EXIT_SUCCESS)
}

fn open(url: &str) -> Result<(), String> {
    let mut opener = Command::new(OPENER);
    opener.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Some browsers stay in the foreground until they are closed.
    match opener.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{OPENER} has opened no browser ({status})")),
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            Err(format!("{OPENER} is not installed (apt-get install {OPENER_PACKAGE})"))
        }
        Err(why) => Err(format!("{OPENER} cannot be run: {why}")),
    }
}
