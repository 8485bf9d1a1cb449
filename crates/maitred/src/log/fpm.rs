//! The log of a server that was started as php-fpm: its lines, its levels, its destinations.
//!
//! Events that php-fpm logs, too, have the target [`SAYS`], where INFO is NOTICE. INFO events that
//! only maitred logs are for debugging, and therefore DEBUG.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::SystemTime;

use maitred_config::fpm::{Fpm, Level};
use maitred_config::{Config, LogTarget};
use maitred_os::collector::{Address, Collector, Form, Severity};
use maitred_os::stderr;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use super::collected::CollectedLog;
use super::line::{self, SourceLocation, WorkerOutput};

/// The target of events that php-fpm logs, too.
const SAYS: &str = "fpm";

/// The target of alerts.
const ALERT: &str = "fpm::alert";

/// The target of worker output. Fields: `who`, `text` (bytes) and, perhaps, `ending`.
const SAID: &str = "fpm::said";

/// The target of undecorated worker output. Field: `text` (bytes).
const BARE: &str = "fpm::bare";

/// The socket of the system's log (syslog(3)).
const SYSLOG_SOCKET: &str = "/dev/log";

/// What the facilities of `syslog.h` are multiples of.
const FACILITY_STEP: i32 = 8;

/// `log_limit` before a configuration is read (`ZLOG_DEFAULT_LIMIT`).
const DEFAULT_LIMIT: usize = 1024;

/// The current log level: a [`Level`], by [`number`].
static LEVEL: AtomicU8 = AtomicU8::new(1);

static STATE: Mutex<LogState> =
    Mutex::new(LogState { limit: DEFAULT_LIMIT, syslog: None, file: None });

/// The destination of lines and their maximum length.
struct LogState {
    /// Longest line in bytes.
    limit: usize,
    /// The system's log instead of standard error. Writing to it never waits, as syslog(3) would:
    /// any local user can fill its queue.
    syslog: Option<CollectedLog>,
    /// The error log, until it becomes standard error: before that, standard error is the
    /// terminal of the user who starts the server.
    file: Option<File>,
}

fn number(level: Level) -> u8 {
    match level {
        Level::Debug => 0,
        Level::Notice => 1,
        Level::Warning => 2,
        Level::Error => 3,
        Level::Alert => 4,
    }
}

/// Logs as php-fpm for the rest of this process.
pub fn begin(level: Level) {
    LEVEL.store(number(level), Ordering::Relaxed);
    // No other subscriber is set: this is called instead.
    let _ = tracing_subscriber::registry().with(FpmLines).try_init();
}

/// Changes the log level.
pub fn set_level(level: Level) {
    LEVEL.store(number(level), Ordering::Relaxed);
    tracing::callsite::rebuild_interest_cache();
}

/// Changes level and destination of the log to those of `fpm` and `config`. Standard error stays.
pub fn follow(config: &Config, fpm: &Fpm) {
    set_level(fpm.log_level);
    if let Ok(mut state) = STATE.lock() {
        state.limit = fpm.log_limit;
        state.syslog = (config.error_log == LogTarget::Syslog).then(|| syslog_of(fpm));
    }
}

fn syslog_of(fpm: &Fpm) -> CollectedLog {
    let facility = u8::try_from(fpm.syslog_facility / FACILITY_STEP).unwrap_or_default();
    let tag = fpm.syslog_ident.clone();
    let form = Form::Syslog { facility, tag, hostname: false };
    CollectedLog::new(Collector::new(Address::Unix(SYSLOG_SOCKET.into()), form))
}

/// Writes lines to the error log as well as to standard error, until [`launched`].
pub fn write_also_to(file: File) {
    if let Ok(mut state) = STATE.lock() {
        state.file = Some(file);
    }
}

/// The server has been set up: standard error becomes the error log, or nothing if that is the
/// system's log. Where neither is used, it stays.
///
/// # Errors
/// When standard error cannot be replaced.
pub fn launched() -> std::io::Result<()> {
    let Ok(mut state) = STATE.lock() else {
        return Ok(());
    };
    if let Some(file) = state.file.take() {
        rustix::stdio::dup2_stderr(file.as_fd())?;
    } else if state.syslog.is_some() {
        let null = File::options().write(true).open("/dev/null")?;
        rustix::stdio::dup2_stderr(null)?;
    }
    Ok(())
}

/// The php-fpm level of an event.
fn level_of(metadata: &Metadata<'_>) -> Level {
    let level = *metadata.level();
    match metadata.target() {
        ALERT if level == tracing::Level::ERROR => Level::Alert,
        _ if level == tracing::Level::ERROR => Level::Error,
        _ if level == tracing::Level::WARN => Level::Warning,
        SAYS if level == tracing::Level::INFO => Level::Notice,
        _ => Level::Debug,
    }
}

fn is_logged(metadata: &Metadata<'_>) -> bool {
    // Worker output has no level.
    if metadata.target() == BARE {
        return true;
    }
    *metadata.level() <= tracing::Level::DEBUG
        && number(level_of(metadata)) >= LEVEL.load(Ordering::Relaxed)
}

/// Turns events into lines.
struct FpmLines;

impl<S: Subscriber> Layer<S> for FpmLines {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if is_logged(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        is_logged(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match LEVEL.load(Ordering::Relaxed) {
            0 => LevelFilter::DEBUG,
            1 => LevelFilter::INFO,
            2 => LevelFilter::WARN,
            _ => LevelFilter::ERROR,
        })
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let mut message = Message::default();
        event.record(&mut message);
        let module = metadata.module_path().unwrap_or_else(|| metadata.target());
        let module = module.rsplit("::").next().unwrap_or_default();
        let place =
            SourceLocation { pid: std::process::id(), module, line: metadata.line().unwrap_or(0) };
        let place = (LEVEL.load(Ordering::Relaxed) == 0).then_some(place);
        if let Ok(mut state) = STATE.lock() {
            state.write(metadata.target(), level_of(metadata), place, &message);
        }
    }
}

impl LogState {
    fn write(
        &mut self,
        target: &str,
        level: Level,
        place: Option<SourceLocation<'_>>,
        said: &Message,
    ) {
        let prefix = if self.syslog.is_some() {
            line::syslog_prefix(level, place)
        } else {
            line::prefix(level, SystemTime::now(), place)
        };
        let who = WorkerOutput { who: &said.who, text: &said.text, ending: &said.ending };
        let lines = match target {
            SAID => line::said(&prefix, &who, self.limit),
            BARE => line::bare(&said.text, self.limit),
            _ => vec![line::whole(&prefix, said.text().as_bytes(), self.limit)],
        };
        for line in lines {
            self.write_line(level, &line);
        }
    }

    /// A closed reader is no error.
    fn write_line(&mut self, level: Level, line: &[u8]) {
        if let Some(syslog) = &self.syslog {
            let notice = |lost| {
                let prefix = line::syslog_prefix(Level::Warning, None);
                line::whole(&prefix, super::lost(lost).as_bytes(), self.limit)
            };
            // A missing reader is no error, and a NUL ends a line, as in syslog(3).
            let text = line.split(|byte| *byte == 0).next().unwrap_or_default();
            syslog.write(severity(level), text, notice);
            return;
        }
        if let Some(file) = &mut self.file {
            let _ = file.write_all(line);
            if level < Level::Notice {
                return;
            }
        }
        let notice = |lost| {
            let prefix = line::prefix(Level::Warning, SystemTime::now(), None);
            line::whole(&prefix, super::lost(lost).as_bytes(), self.limit)
        };
        let _ = stderr::write_line(line, notice);
    }
}

fn severity(level: Level) -> Severity {
    match level {
        Level::Debug => Severity::Debug,
        Level::Notice => Severity::Notice,
        Level::Warning => Severity::Warning,
        Level::Error => Severity::Error,
        Level::Alert => Severity::Alert,
    }
}

/// The parts of an event.
#[derive(Debug, Default)]
struct Message {
    message: String,
    others: String,
    who: String,
    text: Vec<u8>,
    ending: String,
}

impl Message {
    /// The message, and the event's other fields, without what a terminal would act on.
    fn text(&self) -> String {
        let text = [self.message.as_str(), self.others.as_str()].concat();
        text.replace(|c: char| c.is_control() && !matches!(c, '\t' | '\n'), " ")
    }
}

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.others.push_str(&format!(" {name}={value:?}")),
        }
    }

    fn record_bytes(&mut self, field: &Field, value: &[u8]) {
        match field.name() {
            "text" => self.text = value.to_vec(),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "who" => value.clone_into(&mut self.who),
            "ending" => value.clone_into(&mut self.ending),
            _ => self.record_debug(field, &value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek};
    use tracing::subscriber::with_default;
    use tracing::{debug, error, info, warn};

    /// What is written while `act` runs, without times. It is written to standard error, too.
    fn written(log: &mut File, act: impl FnOnce()) -> Vec<String> {
        with_default(tracing_subscriber::registry().with(FpmLines), act);
        let mut text = String::new();
        log.rewind().unwrap();
        log.read_to_string(&mut text).unwrap();
        log.set_len(0).unwrap();
        let lines = text.lines();
        let lines = lines.map(|line| line.split_once("] ").map_or(line, |(_, rest)| rest));
        lines.map(str::to_owned).collect()
    }

    fn talk() {
        info!("only maitred says so");
        debug!("nor that");
        info!(target: "fpm", "ready");
        warn!(pid = 7, "a worker hangs");
        error!(target: "fpm", "refused");
        error!(target: "fpm::alert", "help");
        let text = &b"from a script"[..];
        let who = "[pool www] child 7 said into stderr: ";
        warn!(target: "fpm::said", who, text, ending = "");
        error!(target: "fpm::bare", text);
    }

    // One test, for there is one state.
    #[test]
    fn lines_have_php_fpms_levels_and_what_only_maitred_says_is_for_who_looks_for_a_fault() {
        let mut log = tempfile::tempfile().unwrap();
        let copy = log.try_clone().unwrap();
        rustix::fs::fcntl_setfl(&copy, rustix::fs::OFlags::APPEND).unwrap();
        write_also_to(copy);
        set_level(Level::Notice);
        let said = "WARNING: [pool www] child 7 said into stderr: \"from a script\"";
        let usual = [
            "NOTICE: ready",
            "WARNING: a worker hangs pid=7",
            "ERROR: refused",
            "ALERT: help",
            said,
            "from a script",
        ];
        assert_eq!(written(&mut log, talk), usual);
        set_level(Level::Alert);
        assert_eq!(written(&mut log, talk), ["ALERT: help", "from a script"]);
        set_level(Level::Debug);
        let all = written(&mut log, talk);
        assert_eq!(all.len(), usual.len() + 2);
        let begin = format!("DEBUG: pid {}, tests(), line ", std::process::id());
        assert!(all[0].starts_with(&begin), "{}", all[0]);
        assert!(all[0].ends_with(": only maitred says so"), "{}", all[0]);
    }
}
