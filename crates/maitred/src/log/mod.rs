//! The log of supervisor and front: one line per event, on standard error or to a collector.

pub mod collected;
pub mod fpm;
mod line;

use std::io::IsTerminal;

use maitred_os::clock::local_iso_8601;
use maitred_supervisor::LOG_VARIABLE;
use maitred_text::humanize::plural;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The default log level.
const DEFAULT_LEVEL: &str = "info";

/// Prefix of the level in the environment variable, in processes of a server that was started as
/// php-fpm.
const FPM: &str = "fpm:";

/// The variable's value for processes of such a server.
pub fn as_fpm(level: maitred_config::fpm::Level) -> String {
    [FPM, level.name()].concat()
}

/// Sets the log up if a server that was started as php-fpm has started this process. Returns
/// whether one has.
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

/// Sets the log up and returns the level: `asked`, or else that of the environment.
///
/// # Errors
/// One sentence, for an unknown level.
pub fn set_up(asked: Option<String>) -> Result<String, String> {
    let level = asked.or_else(|| std::env::var(LOG_VARIABLE).ok().filter(|text| !text.is_empty()));
    let level = level.unwrap_or_else(|| DEFAULT_LEVEL.to_owned());
    let filter: LevelFilter = level.parse().map_err(|_| {
        format!("the log level `{level}` is unknown; expected error, warn, info, debug or trace")
    })?;
    // The time zone is loaded before a sandbox or a `chroot` hides its file.
    let _ = local_iso_8601(0);
    tracing_subscriber::fmt()
        .with_max_level(filter)
        .with_ansi(has_colors(&std::io::stderr()))
        // It would write the error to standard error, and panic if that is closed.
        .log_internal_errors(false)
        .event_format(collected::EventFormat::default())
        .with_writer(collected::LogWriter)
        .finish()
        .with(without_gossip(filter))
        .init();
    Ok(level)
}

/// Whether lines on this output have colours: on a terminal, unless `NO_COLOR` is set and not empty
/// (no-color.org).
pub fn has_colors(output: &impl IsTerminal) -> bool {
    let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|text| !text.is_empty());
    output.is_terminal() && !is_unwanted
}

/// Silences libraries that warn of every protocol error of a client: clients could fill the log.
/// The front logs what matters.
fn without_gossip(filter: LevelFilter) -> Targets {
    let gossip = if filter >= LevelFilter::DEBUG { filter } else { LevelFilter::OFF };
    Targets::new().with_default(filter).with_target("h2", gossip)
}

/// The notice in the log where lines are missing.
fn lost(lines: u64) -> String {
    let (lines, were) = (plural(lines, "line"), if lines == 1 { "was" } else { "were" });
    format!("{lines} of the log {were} dropped here: no reader took them")
}
