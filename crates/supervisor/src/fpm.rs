//! php-fpm's master, if the server was started as php-fpm: its signals, and its log lines, whose
//! text is in [`fpm_words`].
//!
//! Everything else works as always: only what php-fpm's users send and read is different.

pub mod emergency_restart;
pub mod fpm_words;
pub mod process_control_timeout;
mod process_max_shares;

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use maitred_config::fpm::{Fpm, Level};
use maitred_config::{Config, ProcessManager};
use maitred_control::episode::LogThrottle;
use maitred_control::{Overrun, exit};
use maitred_os::fork::{Ended, HowEnded};
use maitred_os::signals::Signal;
use maitred_scoreboard::Cause;
use tracing::{debug, error, info, warn};

use crate::fpm::emergency_restart::{CrashCounter, CrashRule};
use crate::fpm::fpm_words as words;
use crate::limits::{DRAIN, Moment, TROUBLE_CALM};
use crate::logging::text::one_line;
use crate::processes::generation::{GenerationAction, WorkerMark};
use crate::processes::running_pool::RunningPool;

/// Number of workers started at once from which it is logged: the rate at which php-fpm warns
/// (`fpm_process_ctl.c`).
const BUSY_FROM: usize = 8;

/// SIGTERM as `waitpid(2)` numbers it.
const SIGTERM: i32 = Signal::SIGTERM as i32;

/// State of a server that was started as php-fpm.
#[derive(Debug)]
pub struct FpmLogState {
    /// The reload was logged, and an upgrade may come before it.
    reload_announced: bool,
    /// The upgrade before the reload was tried, whatever its outcome.
    upgrade_tried: bool,
    /// The file of our program; none: another program should run.
    program: Option<FileMark>,
    /// Pools that get many workers at once, each logged once an episode.
    busy: HashMap<String, LogThrottle<()>>,
    /// `process.max` keeps a pool from growing.
    process_max: LogThrottle<()>,
    crashes: CrashCounter,
}

/// What php-fpm's master does about a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalAction {
    /// Stop now.
    Terminate,
    /// Stop when requests have finished.
    Finish,
    /// Reopen all log files.
    ReopenLogs,
    /// Reload, with an upgrade before if the program has changed.
    Reload,
}

/// A log of php-fpm's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReopenedLog {
    /// The error log.
    Error,
    /// The access logs of pools.
    Access,
}

/// Identifies the file at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileMark {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl FileMark {
    fn of(path: &Path) -> Option<FileMark> {
        let data = std::fs::metadata(path).ok()?;
        Some(FileMark {
            device: data.dev(),
            inode: data.ino(),
            size: data.size(),
            modified: (data.mtime(), data.mtime_nsec()),
        })
    }
}

/// How long a stop waits for requests in flight. php-fpm's `process_control_timeout` is 0 by
/// default, which cuts them off; here that means [`DRAIN`].
pub fn patience(config: &Config) -> Duration {
    let timeout = config.process_control_timeout;
    match config.fpm.is_some() && timeout.is_zero() {
        true => DRAIN,
        false => timeout,
    }
}

/// Logs a line at a level of php-fpm's.
fn say(level: Level, line: &str) {
    match level {
        Level::Debug => debug!(target: "fpm", "{line}"),
        Level::Notice => info!(target: "fpm", "{line}"),
        Level::Warning => warn!(target: "fpm", "{line}"),
        Level::Error => error!(target: "fpm", "{line}"),
        Level::Alert => error!(target: "fpm::alert", "{line}"),
    }
}

/// How the end of a worker is logged, and whether its successor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ExitLogging {
    level: Level,
    /// How it ended, as php-fpm would see it; none: it was dismissed as idle.
    how: Option<HowEnded>,
    /// The start of its successor is logged at the same level.
    is_replaced: bool,
}

/// How the end of a worker is logged that was ended for this `cause`, if for any; `quiet`: the
/// whole server stops, or its pool restarts (`fpm_children_bury` in `fpm_children.c`).
fn logging(cause: Option<Cause>, how: HowEnded, quiet: bool) -> ExitLogging {
    let planned = matches!(how, HowEnded::Exited(exit::RECYCLED) | HowEnded::Signaled(SIGTERM));
    let logged =
        |level, how| ExitLogging { level, how: Some(how), is_replaced: level > Level::Debug };
    match (cause, how) {
        _ if quiet => logged(Level::Debug, how),
        (Some(Cause::Reload | Cause::Stop), _) if planned => logged(Level::Debug, how),
        (Some(Cause::Idle), _) if planned => {
            ExitLogging { level: Level::Debug, how: None, is_replaced: false }
        }
        // Its successor was started before.
        (Some(Cause::MaxRequests | Cause::MaxPrivateMemory | Cause::Grown), _) if planned => {
            ExitLogging {
                is_replaced: false,
                ..logged(Level::Notice, HowEnded::Exited(exit::RECYCLED))
            }
        }
        // A fatal error ends a script, and here its worker; php-fpm logs nothing then.
        (_, HowEnded::Exited(exit::BAILOUT)) => {
            logged(Level::Debug, HowEnded::Exited(exit::RECYCLED))
        }
        (_, HowEnded::Exited(exit::RECYCLED)) => logged(Level::Notice, how),
        _ => logged(Level::Warning, how),
    }
}

/// A request as php-fpm names it.
fn request_of(overrun: &Overrun) -> String {
    let mark = if overrun.query.is_empty() { "" } else { "?" };
    one_line(&format!("{}{mark}{}", overrun.target, overrun.query))
}

impl FpmLogState {
    /// Nothing has happened yet.
    pub fn new(program: &Path) -> FpmLogState {
        FpmLogState {
            reload_announced: false,
            upgrade_tried: false,
            program: FileMark::of(program),
            busy: HashMap::new(),
            process_max: LogThrottle::new(TROUBLE_CALM),
            crashes: CrashCounter::default(),
        }
    }

    /// The previous program has announced a reload, and this program is the upgrade before it.
    pub fn resume(&mut self, reload_announced: bool) {
        self.reload_announced = reload_announced;
        self.upgrade_tried = reload_announced;
    }

    /// A reload starts as soon as nothing else is going on. True the first time.
    pub fn announce_reload(&mut self, program: &Path, arguments: &[OsString]) -> bool {
        let is_new = !std::mem::replace(&mut self.reload_announced, true);
        if is_new {
            let arguments = arguments.iter();
            let arguments: Vec<String> =
                arguments.map(|argument| argument.to_string_lossy().into_owned()).collect();
            let program = program.display().to_string();
            say(Level::Notice, &words::reloading(&program, &arguments));
        }
        is_new
    }

    /// Whether the file at our program's path has changed, so that an upgrade has to come before
    /// the reload. It is tried once.
    pub fn needs_upgrade(&mut self, program: &Path) -> bool {
        if std::mem::replace(&mut self.upgrade_tried, true) {
            return false;
        }
        let mark = FileMark::of(program);
        mark.is_some() && self.program != mark
    }

    /// The reload starts.
    pub fn reload_started(&mut self) {
        self.reload_announced = false;
        self.upgrade_tried = false;
    }

    /// The program at our path was tried and does not serve: it is tried again at the next reload.
    pub fn forget_program(&mut self) {
        self.program = None;
    }

    /// A signal has ended a worker. True if the number of crashes restarts every pool, which is
    /// logged.
    pub fn worker_crashed(&mut self, fpm: &Fpm, signal: i32, now: Moment) -> bool {
        let rule = CrashRule {
            threshold: fpm.emergency_restart_threshold,
            interval: fpm.emergency_restart_interval,
        };
        let reached = self.crashes.ended_by(signal, rule, now);
        if reached {
            let line = words::crashes(rule.threshold, rule.interval);
            say(Level::Warning, &line);
        }
        reached
    }

    /// Logs that a pool gets many workers at once, if these `actions` have that effect; `busy`
    /// workers serve a request.
    pub fn log_growth(
        &mut self,
        running: &RunningPool,
        actions: &[GenerationAction],
        busy: impl FnOnce() -> u64,
        now: Moment,
    ) {
        if running.plan.pool.pm != ProcessManager::Dynamic || !running.is_current() {
            return;
        }
        let fills = actions.iter().filter(|action| matches!(action, GenerationAction::Fill { .. }));
        let spawning = fills.count();
        if spawning < BUSY_FROM {
            return;
        }
        let name = running.name().to_owned();
        let total = (running.state.workers() as usize).saturating_sub(spawning);
        let idle = (total as u64).saturating_sub(busy());
        let episode = self.busy.entry(name.clone());
        let episode = episode.or_insert_with(|| LogThrottle::new(TROUBLE_CALM));
        let _ = episode.due(now);
        if episode.happened(now, |()| {}) == 1 {
            let line = words::seems_busy(&name, spawning, idle, total);
            say(Level::Warning, &line);
        }
    }
}

/// Logs what php-fpm's master logs for a signal. Returns what it does about it.
pub fn obey(signal: Signal) -> Option<SignalAction> {
    let (line, action) = match signal {
        Signal::SIGTERM | Signal::SIGINT => (words::TERMINATING, SignalAction::Terminate),
        Signal::SIGQUIT => (words::FINISHING, SignalAction::Finish),
        Signal::SIGUSR1 => return Some(SignalAction::ReopenLogs),
        // SIGHUP is Debian's second name for SIGUSR2.
        Signal::SIGUSR2 | Signal::SIGHUP => (words::RELOADING, SignalAction::Reload),
        // No other is taken over.
        _ => return None,
    };
    say(Level::Notice, line);
    Some(action)
}

/// Logs that a log was reopened, or could not be.
pub fn log_reopened(log: ReopenedLog, is_well: bool) {
    let (opened, lost) = match log {
        ReopenedLog::Error => (words::ERROR_LOG_OPENED, words::ERROR_LOG_LOST),
        ReopenedLog::Access => (words::ACCESS_LOG_OPENED, words::ACCESS_LOG_LOST),
    };
    if is_well {
        say(Level::Notice, opened);
    } else {
        say(Level::Error, lost);
    }
}

/// Logs why a reload was refused.
pub fn log_refused_reload(why: &str) {
    why.lines().for_each(|line| say(Level::Error, line));
    say(
        Level::Error,
        "the reload is refused, and every pool goes on as it was; correct the configuration and \
         reload again",
    );
}

/// Logs that the server serves. That it runs was logged by its host, before its pools were started.
pub fn log_ready() {
    say(Level::Notice, words::READY);
}

/// Logs that the server serves after a reload.
pub fn log_ready_again() {
    say(Level::Notice, &words::running(std::process::id()));
    log_ready();
}

/// The last line of the log.
pub fn log_goodbye() {
    say(Level::Notice, words::BYE);
}

/// Logs a slow script, for each stack in the slow log.
pub fn log_slow_script(pool: &str, pid: i32, overrun: &Overrun) {
    let (script, request) = (one_line(&overrun.script), request_of(overrun));
    let line = words::slow(pool, pid, &script, &request, overrun.ran);
    say(Level::Warning, &line);
}

/// Logs that a worker is ended: because of `overrun`, or else because of `why`.
pub fn log_terminated(pool: &str, pid: i32, why: &str, overrun: Option<&Overrun>) {
    match overrun {
        Some(overrun) => {
            let (script, request) = (one_line(&overrun.script), request_of(overrun));
            let line = words::timed_out(pool, pid, &script, &request, overrun.ran);
            say(Level::Warning, &line);
        }
        None => warn!("[pool {pool}] child {pid} is ended: {}", one_line(why)),
    }
}

/// Logs in a worker's stead what php-fpm's workers log of the configuration when they start, where
/// their output is caught.
pub fn log_for_started_worker(fpm: &Fpm, running: &mut RunningPool, pid: i32) {
    let Some(said) = fpm.said_when_ready.get(running.name()) else {
        return;
    };
    let lines: String =
        said.iter().map(|(level, text)| format!("{}: {text}\n", level.name())).collect();
    running.log_for_worker(pid, &lines, Some(fpm.log_level));
}

/// Logs that a worker has started.
pub fn log_start(running: &mut RunningPool, pid: i32) {
    let level = match running.to_be_replaced {
        0 => Level::Debug,
        _ => Level::Notice,
    };
    running.to_be_replaced = running.to_be_replaced.saturating_sub(1);
    say(level, &words::started(running.name(), pid));
}

/// What the supervisor knows of a worker that has ended.
#[derive(Debug, Clone, Copy)]
pub struct WorkerEnd {
    /// Its process id, and how it ended.
    pub ended: Ended,
    /// Why the supervisor ended it, if it did.
    pub cause: Option<Cause>,
    /// Its end is nothing to log: the whole server stops.
    pub is_quiet: bool,
    /// The server has not served yet.
    pub is_start: bool,
    /// The time.
    pub now: Moment,
}

/// Logs the end of a worker, before the pool's state knows of it.
pub fn log_end(running: &mut RunningPool, end: &WorkerEnd) {
    let Ended { pid, how, core_dumped } = end.ended;
    let quiet = running.state.is_leaving() || end.is_quiet;
    let logging = logging(end.cause, how, quiet);
    let age = end.now.saturating_sub(running.state.born(pid).unwrap_or(end.now));
    let pool = running.name();
    let line = match logging.how {
        Some(how) => words::exited(pool, pid, how, core_dumped, age),
        None => words::managed_away(pool, pid, age),
    };
    say(logging.level, &line);
    let mut seated = running.state.all_seated();
    let was_counted = how == HowEnded::Signaled(SIGTERM)
        && seated.any(|(one, mark)| one.pid == pid && mark == WorkerMark::Sentenced);
    drop(seated);
    running.to_be_replaced += u32::from(logging.is_replaced && !was_counted);
    running.failed |= end.is_start && logging.level >= Level::Warning;
}

/// How many workers a pool needs after one that had nothing to do was killed by a signal other than
/// SIGTERM: php-fpm replaces it.
pub fn workers_after_kill(running: &RunningPool, cause: Option<Cause>, signal: i32) -> Option<u32> {
    let was_idle = cause == Some(Cause::Idle) && signal != SIGTERM;
    was_idle.then(|| running.state.wants() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILLED: HowEnded = HowEnded::Signaled(9);
    const TERMINATED: HowEnded = HowEnded::Signaled(SIGTERM);
    const GOOD: HowEnded = HowEnded::Exited(exit::RECYCLED);

    #[test]
    fn a_crash_is_a_warning_with_its_successor() {
        for how in [HowEnded::Signaled(11), HowEnded::Exited(255), KILLED] {
            let logged = logging(None, how, false);
            assert_eq!((logged.level, logged.how), (Level::Warning, Some(how)));
            assert!(logged.is_replaced);
        }
    }

    #[test]
    fn a_planned_end_alarms_nobody() {
        let own = logging(None, GOOD, false);
        assert_eq!((own.level, own.is_replaced), (Level::Notice, true));
        let worn = logging(Some(Cause::MaxRequests), TERMINATED, false);
        assert_eq!((worn.level, worn.how), (Level::Notice, Some(GOOD)));
        assert!(!worn.is_replaced, "its successor was there before");
        let bailout = logging(None, HowEnded::Exited(exit::BAILOUT), false);
        assert_eq!((bailout.level, bailout.how), (Level::Debug, Some(GOOD)));
    }

    #[test]
    fn an_idle_worker_that_goes_is_no_news_unless_it_had_to_be_killed() {
        let gone = logging(Some(Cause::Idle), TERMINATED, false);
        assert_eq!((gone.level, gone.how), (Level::Debug, None));
        let killed = logging(Some(Cause::Idle), KILLED, false);
        assert_eq!((killed.level, killed.how), (Level::Warning, Some(KILLED)));
    }

    #[test]
    fn nothing_is_said_of_workers_that_end_with_the_server_or_its_pool() {
        for how in [GOOD, KILLED, TERMINATED, HowEnded::Exited(1)] {
            assert_eq!(logging(None, how, true).level, Level::Debug);
        }
    }
}
