//! The log: one line an event on standard error, for the supervisor and the front alike.

use std::io::IsTerminal;

use maitred_supervisor::LOG_VARIABLE;
use tracing::level_filters::LevelFilter;

/// How much is logged where nobody says.
const DEFAULT_LEVEL: &str = "info";

/// Sets the log up and returns the level: `asked`, or else what the environment says.
///
/// # Errors
/// One sentence for a level that there is not.
pub fn set_up(asked: Option<String>) -> Result<String, String> {
    let level = asked.or_else(|| {
        std::env::var(LOG_VARIABLE)
            .ok()
            .filter(|text| !text.is_empty())
    });
    let level = level.unwrap_or_else(|| DEFAULT_LEVEL.to_owned());
    let filter: LevelFilter = level.parse().map_err(|_| {
        format!("the log level `{level}` is unknown; expected error, warn, info, debug or trace")
    })?;
    tracing_subscriber::fmt()
        .with_max_level(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        // It would tell standard error of the error, and panic: nobody reading is no reason to end.
        .log_internal_errors(false)
        .init();
    Ok(level)
}
