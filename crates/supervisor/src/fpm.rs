//! The supervisor as php-fpm's master, when it was started as php-fpm: what its signals mean, and
//! what it says when. The words are in [`fpm_words`].
//!
//! Whatever else the supervisor does is as always: only what php-fpm's users send and read is
//! different.

pub mod emergency_restart;
pub mod fpm_words;
mod process_control_timeout;
mod process_max_shares;

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use maitred_config::fpm::{Fpm, Level};
use maitred_config::{Config, ProcessManager};
use maitred_control::{Overrun, WorkerId, exit};
use maitred_os::fork::{Ended, HowEnded};
use maitred_os::signals::Signal;
use maitred_scoreboard::Cause;
use tracing::{debug, error, info, warn};

use crate::fpm::fpm_words as words;
use crate::limits::{DRAIN, FIRST_FILL, TROUBLE_CALM};
use crate::listen;
use crate::logging::text::one_line;
use crate::plan::Plan;
use crate::processes::generation::{self, GenerationAction, GenerationState};
use crate::processes::pools::PoolId;
use crate::processes::running_pool::RunningPool;
use crate::reload::ReloadScope;
use crate::run::Supervisor;
use maitred_control::episode::LogThrottle;

/// Workers that a pool gets at once are worth a line from this many on: the rate at which php-fpm
/// begins to warn (`fpm_process_ctl.c`).
const BUSY_FROM: usize = 8;

/// SIGTERM as `waitpid(2)` numbers it.
const SIGTERM: i32 = Signal::SIGTERM as i32;

/// What a server that was started as php-fpm keeps in mind.
#[derive(Debug)]
pub struct FpmLogState {
    /// It was said that a reload begins, which an upgrade comes before.
    pub reload_announced: bool,
    /// The upgrade that comes before a reload was tried, whatever came of it.
    pub upgrade_tried: bool,
    /// The file that our program is; none: it is not the one that should run.
    program: Option<FileMark>,
    /// Pools that get many workers at once, each told once an episode.
    busy: HashMap<String, LogThrottle<()>>,
    /// `process.max` keeps a pool from growing.
    process_max: LogThrottle<()>,
}

/// What tells one file at a path from another.
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

impl FpmLogState {
    /// Nothing has happened yet.
    pub fn new(plan: &Plan) -> FpmLogState {
        FpmLogState {
            reload_announced: false,
            upgrade_tried: false,
            program: FileMark::of(&plan.invocation.program),
            busy: HashMap::new(),
            process_max: LogThrottle::new(TROUBLE_CALM),
        }
    }
}

/// How long a stop waits for requests that run. php-fpm's `process_control_timeout` is 0 where
/// nobody sets it, and cuts them off; here that means [`DRAIN`].
pub fn patience(config: &Config) -> Duration {
    let timeout = config.process_control_timeout;
    match config.fpm.is_some() && timeout.is_zero() {
        true => DRAIN,
        false => timeout,
    }
}

/// Says something at a level of php-fpm's.
fn say(level: Level, line: &str) {
    match level {
        Level::Debug => debug!(target: "fpm", "{line}"),
        Level::Notice => info!(target: "fpm", "{line}"),
        Level::Warning => warn!(target: "fpm", "{line}"),
        Level::Error => error!(target: "fpm", "{line}"),
        Level::Alert => error!(target: "fpm::alert", "{line}"),
    }
}

/// How the end of a worker is told, and whether it is told who takes its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ExitLogging {
    level: Level,
    /// How it ended, as php-fpm would have it; nothing: it was let go because nobody needed it.
    how: Option<HowEnded>,
    /// Its successor is told, too.
    is_replaced: bool,
}

/// How the end of a worker is told that was ended for this `cause`, if for any; `quiet`: with the
/// whole server, or because its pool begins anew (`fpm_children_bury` in `fpm_children.c`).
fn telling(cause: Option<Cause>, how: HowEnded, quiet: bool) -> ExitLogging {
    let planned = matches!(
        how,
        HowEnded::Exited(exit::RECYCLED) | HowEnded::Signaled(SIGTERM)
    );
    let told = |level, how| ExitLogging {
        level,
        how: Some(how),
        is_replaced: level > Level::Debug,
    };
    match (cause, how) {
        _ if quiet => told(Level::Debug, how),
        (Some(Cause::Reload | Cause::Stop), _) if planned => told(Level::Debug, how),
        (Some(Cause::Idle), _) if planned => ExitLogging {
            level: Level::Debug,
            how: None,
            is_replaced: false,
        },
        // The one that takes its place came before it went.
        (Some(Cause::MaxRequests | Cause::MaxPrivateMemory | Cause::Grown), _) if planned => {
            ExitLogging {
                is_replaced: false,
                ..told(Level::Notice, HowEnded::Exited(exit::RECYCLED))
            }
        }
        // A fatal error ends a script, and with us its worker; php-fpm has nothing to tell there.
        (_, HowEnded::Exited(exit::BAILOUT)) => {
            told(Level::Debug, HowEnded::Exited(exit::RECYCLED))
        }
        (_, HowEnded::Exited(exit::RECYCLED)) => told(Level::Notice, how),
        _ => told(Level::Warning, how),
    }
}

/// A request as php-fpm names it.
fn request_of(overrun: &Overrun) -> String {
    let mark = if overrun.query.is_empty() { "" } else { "?" };
    one_line(&format!("{}{mark}{}", overrun.target, overrun.query))
}

impl Supervisor {
    /// What php-fpm's configuration says beside, if the server was started as php-fpm.
    pub fn fpm(&self) -> Option<&Fpm> {
        self.plan.config.fpm.as_ref()
    }

    /// Whether the server was started as php-fpm.
    pub fn is_fpm(&self) -> bool {
        self.fpm().is_some()
    }

    /// Obeys a signal as php-fpm's master does. SIGHUP is Debian's second name for SIGUSR2.
    pub fn obey_as_fpm(&mut self, signal: Signal) {
        match signal {
            Signal::SIGTERM | Signal::SIGINT => {
                say(Level::Notice, words::TERMINATING);
                self.phase_event(crate::run::phase::ServerEvent::Terminate);
            }
            Signal::SIGQUIT => {
                say(Level::Notice, words::FINISHING);
                self.phase_event(crate::run::phase::ServerEvent::Finish);
            }
            Signal::SIGUSR1 => self.reopen_logs(),
            Signal::SIGUSR2 | Signal::SIGHUP => {
                say(Level::Notice, words::RELOADING);
                self.reload_later = true;
            }
            // No other is taken over.
            _ => {}
        }
    }

    /// Opens every log file again and says so as php-fpm does.
    pub fn reopen_logs_as_fpm(&mut self) {
        match self.reopen_error_log() {
            true => say(Level::Notice, words::ERROR_LOG_OPENED),
            false => say(Level::Error, words::ERROR_LOG_LOST),
        }
        let has_access_log = |pool: &RunningPool| pool.plan.pool.door_log.is_some();
        if self.pools.iter().any(has_access_log) {
            match self.reopen_door_logs() {
                true => say(Level::Notice, words::ACCESS_LOG_OPENED),
                false => say(Level::Error, words::ACCESS_LOG_LOST),
            }
        }
        self.reopen_slowlogs();
    }

    /// Begins every pool anew that was asked to, as soon as nothing else is going on. What was asked
    /// for meanwhile is one further reload, since the configuration may be another by now.
    pub fn begin_anew_when_possible(&mut self) {
        let is_free = self.upgrade.is_none() && !self.reloads.is_going_on();
        if !self.reload_later || !is_free || !self.phase.is_serving() {
            return;
        }
        if !std::mem::replace(&mut self.tidings.reload_announced, true) {
            self.say_reloading();
            self.systemd.reloads();
        }
        if !std::mem::replace(&mut self.tidings.upgrade_tried, true) && self.program_has_changed() {
            // What it comes to, decides about the server; the reload comes after it in any case.
            info!("another program lies where ours lay; it takes over first");
            return self.upgrade();
        }
        self.reload_later = false;
        self.tidings.reload_announced = false;
        self.tidings.upgrade_tried = false;
        if let Err(why) = self.reload(&ReloadScope::All) {
            why.lines().for_each(|line| say(Level::Error, line));
            say(
                Level::Error,
                "the reload is refused, and every pool goes on as it was; correct the \
                 configuration and reload again",
            );
        }
    }

    fn say_reloading(&self) {
        let invocation = &self.plan.invocation;
        let arguments = invocation.arguments.iter();
        let arguments: Vec<String> = arguments
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect();
        let program = invocation.program.display().to_string();
        say(Level::Notice, &words::reloading(&program, &arguments));
    }

    /// Whether our program's path leads to another file than the one that we are.
    fn program_has_changed(&self) -> bool {
        let mark = FileMark::of(&self.plan.invocation.program);
        mark.is_some() && self.tidings.program != mark
    }

    /// What lies at our program's path was tried and did not come to serve: it is tried again at the
    /// next reload.
    pub fn forget_program(&mut self) {
        self.tidings.program = None;
    }

    /// The server serves. That it runs was said by its host, before its pools were started.
    pub fn say_ready(&mut self) {
        say(Level::Notice, words::READY);
        self.tell_systemd();
        for id in self.pools.ids() {
            let seated: Vec<i32> = self.pools[id].pool.seated().map(|one| one.pid).collect();
            for pid in seated {
                self.speak_for(id, pid);
            }
        }
    }

    /// The server serves with all that a reload has brought.
    pub fn say_ready_again(&self) {
        if self.is_fpm() {
            say(Level::Notice, &words::running(std::process::id()));
            say(Level::Notice, words::READY);
        }
    }

    /// Says in a worker's place what php-fpm's workers say of the configuration when they start,
    /// where what they say is heard.
    fn speak_for(&mut self, id: PoolId, pid: i32) {
        let said = self.fpm().map(|fpm| &fpm.said_when_ready);
        let Some(said) = said.and_then(|said| said.get(self.name(id))) else {
            return;
        };
        let lines = said.iter();
        let lines: String = lines
            .map(|(level, text)| format!("{}: {text}\n", level.name()))
            .collect();
        self.say_for_worker(id, pid, &lines);
    }

    /// A reload keeps every listening socket, first of all.
    pub fn say_inherited(&self) {
        if self.is_fpm() {
            listen::announce(&self.plan.listeners);
        }
    }

    /// The last line of all.
    pub fn say_goodbye(&self) {
        if self.is_fpm() && self.phase.exit_code() == Some(crate::run::phase::EXIT_STOPPED) {
            say(Level::Notice, words::BYE);
        }
    }

    /// Says what a worker died of, with what it ran. php-fpm says less, and said it already.
    pub fn tell_obituary(&self, line: &str) {
        match self.is_fpm() {
            true => info!("{line}"),
            false => error!("{line}"),
        }
    }

    /// A worker has begun to serve.
    pub fn tell_start(&mut self, id: PoolId, pid: i32) {
        if !self.is_fpm() {
            return;
        }
        let owed = &mut self.pools[id].to_be_replaced;
        let level = match *owed {
            0 => Level::Debug,
            _ => Level::Notice,
        };
        *owed = owed.saturating_sub(1);
        say(level, &words::started(self.name(id), pid));
        if self.phase.is_serving() {
            self.speak_for(id, pid);
        }
    }

    /// A worker has ended, and nothing of that has been noted yet.
    pub fn tell_end(&mut self, id: PoolId, ended: Ended) {
        if !self.is_fpm() {
            return;
        }
        let Ended {
            pid,
            how,
            core_dumped,
        } = ended;
        let (now, running) = (self.now(), &self.pools[id]);
        let quiet = running.pool.is_leaving() || !self.phase.wants_workers();
        let telling = telling(self.scores.cause(pid), how, quiet);
        let age = now.saturating_sub(running.pool.born(pid).unwrap_or(now));
        let pool = self.name(id);
        let line = match telling.how {
            Some(how) => words::exited(pool, pid, how, core_dumped, age),
            None => words::managed_away(pool, pid, age),
        };
        say(telling.level, &line);
        let is_start = self.phase.is_start();
        let mut seated = running.pool.all_seated();
        let was_counted = how == HowEnded::Signaled(Signal::SIGTERM as i32)
            && seated
                .any(|(one, mark)| one.pid == pid && mark == generation::WorkerMark::Sentenced);
        drop(seated);
        let running = &mut self.pools[id];
        running.to_be_replaced += u32::from(telling.is_replaced && !was_counted);
        running.failed |= is_start && telling.level >= Level::Warning;
    }

    /// A worker has ended, and its seat is empty. What php-fpm does then and we do not.
    pub fn after_end(&mut self, id: PoolId, cause: Option<Cause>, how: HowEnded) {
        let Some(fpm) = self.fpm() else { return };
        let rule = (
            fpm.emergency_restart_threshold,
            fpm.emergency_restart_interval,
        );
        let HowEnded::Signaled(signal) = how else {
            return;
        };
        // One that had to be killed is a death as any other, and is replaced.
        if cause == Some(Cause::Idle) && signal != SIGTERM {
            let workers = self.pools[id].pool.wants() + 1;
            self.pool_event(id, generation::GenerationEvent::Wanted { workers });
        }
        let now = self.now();
        if self.phase.is_serving() && self.emergency.ended_by(signal, rule, now) {
            say(Level::Warning, &words::crashes(rule.0, rule.1));
            self.reload_later = true;
        }
    }

    /// A script is slow, as each is told that has a stack in the slow log.
    pub fn tell_slow_as_fpm(&self, id: PoolId, pid: i32, overrun: &Overrun) {
        let (script, request) = (one_line(&overrun.script), request_of(overrun));
        let pool = self.name(id);
        let line = words::slow(pool, pid, &script, &request, overrun.ran);
        say(Level::Warning, &line);
    }

    /// The front wants a worker ended: because of `overrun`, or else because of `why`.
    pub fn terminate_worker(
        &mut self,
        id: PoolId,
        worker: WorkerId,
        why: &str,
        overrun: Option<&Overrun>,
    ) {
        let Some(pid) = self.pools[id].pool.pid_of(worker) else {
            return;
        };
        let pool = self.name(id);
        match overrun {
            Some(overrun) => {
                let (script, request) = (one_line(&overrun.script), request_of(overrun));
                let line = words::timed_out(pool, pid, &script, &request, overrun.ran);
                say(Level::Warning, &line);
            }
            None => warn!("[pool {pool}] child {pid} is ended: {}", one_line(why)),
        }
        // Another may be there before this one is dead.
        self.pools[id].to_be_replaced += 1;
        self.pool_event(id, generation::GenerationEvent::TerminateWorker { worker });
    }

    /// A pool has decided what to do: does it get many workers at once?
    pub fn tell_growth(&mut self, id: PoolId, actions: &[GenerationAction]) {
        let running = &self.pools[id];
        let is_dynamic = running.plan.pool.pm == ProcessManager::Dynamic;
        if !self.is_fpm() || !is_dynamic || !running.is_current() || !self.phase.is_serving() {
            return;
        }
        let fills = actions
            .iter()
            .filter(|action| matches!(action, GenerationAction::Fill { .. }));
        let spawning = fills.count();
        if spawning < BUSY_FROM {
            return;
        }
        let name = running.plan.settings.pool.clone();
        let total = (running.pool.workers() as usize).saturating_sub(spawning);
        let busy = self.scores.page(&name).map_or(0, |page| page.read().busy);
        let (now, idle) = (self.now(), (total as u64).saturating_sub(busy));
        let episode = self.tidings.busy.entry(name.clone());
        let episode = episode.or_insert_with(|| LogThrottle::new(TROUBLE_CALM));
        let _ = episode.due(now);
        if episode.happened(now, |()| {}) == 1 {
            say(
                Level::Warning,
                &words::seems_busy(&name, spawning, idle, total),
            );
        }
    }

    /// Whether every pool has the workers it starts with. One that cannot start keeps no other
    /// waiting, unless none can.
    pub fn see_whether_full(&mut self) {
        // A script that takes long to boot, or does not, keeps no other pool from serving.
        let late = self.now() >= FIRST_FILL;
        let boots = |pool: &GenerationState| pool.boots_in_vain() || late && pool.is_seated();
        let is_ready = |pool: &RunningPool| pool.pool.is_full() || pool.failed || boots(&pool.pool);
        if !self.pools.iter().all(is_ready) {
            return;
        }
        let fails = |pool: &RunningPool| pool.failed && !pool.boots();
        let all_failed = !self.pools.is_empty() && self.pools.iter().all(fails);
        match all_failed {
            true => self.fail("no pool can be started"),
            false => self.phase_event(crate::run::phase::ServerEvent::PoolsFull),
        }
    }
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
            let told = telling(None, how, false);
            assert_eq!((told.level, told.how), (Level::Warning, Some(how)));
            assert!(told.is_replaced);
        }
    }

    #[test]
    fn a_planned_end_alarms_nobody() {
        let own = telling(None, GOOD, false);
        assert_eq!((own.level, own.is_replaced), (Level::Notice, true));
        let worn = telling(Some(Cause::MaxRequests), TERMINATED, false);
        assert_eq!((worn.level, worn.how), (Level::Notice, Some(GOOD)));
        assert!(!worn.is_replaced, "its successor was there before");
        let bailout = telling(None, HowEnded::Exited(exit::BAILOUT), false);
        assert_eq!((bailout.level, bailout.how), (Level::Debug, Some(GOOD)));
    }

    #[test]
    fn an_idle_worker_that_goes_is_no_news_unless_it_had_to_be_killed() {
        let gone = telling(Some(Cause::Idle), TERMINATED, false);
        assert_eq!((gone.level, gone.how), (Level::Debug, None));
        let killed = telling(Some(Cause::Idle), KILLED, false);
        assert_eq!((killed.level, killed.how), (Level::Warning, Some(KILLED)));
    }

    #[test]
    fn nothing_is_said_of_workers_that_end_with_the_server_or_its_pool() {
        for how in [GOOD, KILLED, TERMINATED, HowEnded::Exited(1)] {
            assert_eq!(telling(None, how, true).level, Level::Debug);
        }
    }
}
