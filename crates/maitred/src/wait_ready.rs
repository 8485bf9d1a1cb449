//! `maitred wait`: waits until a server is ready.

use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use maitred_control::admin::{Reply, Request};

use crate::client::{Client, UNEXPECTED};
use crate::command::Reach;
use crate::exit_code::{EXIT_SUCCESS, fail};

/// Interval of the questions to the server.
const EVERY: Duration = Duration::from_millis(100);

/// Longest timeout, in seconds.
const MAX_TIMEOUT: u64 = 24 * 3600;

/// Arguments of `maitred wait`.
#[derive(Debug, Args)]
pub struct Wait {
    /// Wait until `/ready` of the admin listener would respond with 200
    #[arg(long, required = true)]
    pub ready: bool,
    /// How long to wait, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(0..=MAX_TIMEOUT))]
    pub timeout: u64,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub reach: Reach,
}

/// Waits until the server is ready, or may not be started yet.
pub fn wait(asked: &Wait) -> ExitCode {
    let (began, timeout) = (Instant::now(), Duration::from_secs(asked.timeout));
    loop {
        let Err(why) = is_ready(&asked.reach) else {
            return ExitCode::from(EXIT_SUCCESS);
        };
        let left = timeout.saturating_sub(began.elapsed());
        if left.is_zero() {
            return fail(&format!("not ready after {} s: {why}", asked.timeout));
        }
        sleep(EVERY.min(left));
    }
}

/// Whether the server is ready.
///
/// # Errors
/// Why it is not, or cannot be asked.
fn is_ready(reach: &Reach) -> Result<(), String> {
    match Client::reach(reach)?.ask(&Request::Status { pool: None })? {
        Reply::Status(server) if server.readiness.ready => Ok(()),
        Reply::Status(server) => {
            Err(server.readiness.reason.unwrap_or_else(|| "it does not say why".to_owned()))
        }
        Reply::Refused { why } => Err(why),
        _ => Err(UNEXPECTED.to_owned()),
    }
}
