//! The log: one line an event on standard error, or to whoever collects them, for the supervisor and
//! the front alike.

pub mod collected;
pub mod fpm;
mod line;

use std::io::IsTerminal;

use maitred_supervisor::LOG_VARIABLE;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// How much is logged where nobody says.
const DEFAULT_LEVEL: &str = "info";

/// What the variable says of the level before the level in processes of a server that was started as
/// php-fpm.
const FPM: &str = "fpm:";

/// The variable's value for processes of such a server.
pub fn as_fpm(level: maitred_config::fpm::Level) -> String {
    [FPM, level.name()].concat()
}

/// Sets the log up as a server says that was started as php-fpm and has started us, and says whether
/// one has.
pub fn follow_fpm() -> bool {
    use maitred_config::fpm::Level;
    let said = std::env::var(LOG_VARIABLE).ok();
    let Some(name) = said.as_deref().and_then(|said| said.strip_prefix(FPM)) else {
        return false;
    };
    let all = [Level::Debug, Level::Notice, Level::Warning, Level::Error];
    let level = all.into_iter().find(|level| level.name() == name);
    fpm::begin(level.unwrap_or(Level::Alert));
    true
}

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
        .with_ansi(std::io::stderr().is_terminal())
        // It would tell standard error of the error, and panic: nobody reading is no reason to end.
        .log_internal_errors(false)
        .event_format(collected::Lines::default())
        .with_writer(collected::Log)
        .finish()
        .with(without_gossip(filter))
        .init();
    Ok(level)
}

/// What is logged of that: libraries that talk with clients warn of each mistake of a client's, which
/// would let clients fill the log. What matters of it the front says.
fn without_gossip(filter: LevelFilter) -> Targets {
    let gossip = match filter >= LevelFilter::DEBUG {
        true => filter,
        false => LevelFilter::OFF,
    };
    Targets::new()
        .with_default(filter)
        .with_target("h2", gossip)
}

/// What stands in the log where lines are missing.
fn lost(lines: u64) -> String {
    let lines = match lines {
        1 => "1 line".to_owned(),
        lines => format!("{lines} lines"),
    };
    format!("{lines} of the log could not be written here: nobody took them")
}
