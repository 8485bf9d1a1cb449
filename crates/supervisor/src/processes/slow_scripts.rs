//! Scripts that run for longer than `request_slowlog_timeout`: their stacks go to the slow log;
//! that there are any is logged once, and again when it is over.

use maitred_config::{LogTarget, Pool};
use maitred_control::front::{MAX_CALLS_SHOWN, SlowStack, shown};
use maitred_control::stack::Stack;
use maitred_control::{Overrun, ToZygote, WorkerId};
use maitred_os::users::Identity;
use maitred_seat::Boards;
use tracing::warn;

use crate::limits::{Moment, SLOW_EPISODE};
use crate::logging::log_files;
use crate::logging::running_time::RunningTime;
use crate::logging::slowlog::{Slowlog, Subject, calls, entry};
use crate::logging::text::one_line;
use crate::processes::pools::Pools;
use crate::processes::running_pool::RunningPool;
use crate::processes::slowlog_writers::{SlowlogWriters, TenantSlowlog};
use crate::processes::traces::Traces;

/// The purpose of a stack.
#[derive(Debug)]
pub enum TraceTarget {
    /// An entry of the slow log.
    SlowScript(Subject),
    /// A status reply.
    Shown(StackPosition),
}

/// The position of a stack in a status reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackPosition {
    /// Number of the reply.
    pub draft: u64,
    /// Position of the pool in the reply.
    pub pool: usize,
    /// Position of the script in the pool.
    pub script: usize,
}

/// A slow script, as the front reports it.
#[derive(Debug)]
pub struct SlowScript {
    /// The worker.
    pub worker: WorkerId,
    /// Number of the request of that worker.
    pub request: u64,
    /// The script, and for how long it has run.
    pub overrun: Overrun,
    /// The request's id in the logs; empty if it has none.
    pub id: String,
}

/// A pool's slow scripts.
#[derive(Debug)]
pub struct SlowScripts {
    log: SlowlogPlace,
    episode: Option<SlowEpisode>,
}

/// Where the stacks of a pool go.
#[derive(Debug)]
enum SlowlogPlace {
    /// Nowhere.
    None,
    /// A log that the supervisor writes.
    Ours(Slowlog),
    /// A log whose path the pool's user controls, and whether it is still to be created.
    Tenants(TenantSlowlog, bool),
}

impl SlowlogPlace {
    /// That of a pool which runs as `identity`.
    fn of(pool: &Pool, identity: Option<&Identity>) -> SlowlogPlace {
        let is_used = !pool.request_slowlog_timeout.is_zero();
        let Some(target) = pool.slowlog.clone().filter(|_| is_used) else {
            return SlowlogPlace::None;
        };
        if let LogTarget::File(path) = &target
            && let Some(tenant) = log_files::tenant_of(path, identity)
        {
            let (pool, identity, path) = (pool.name.clone(), tenant.clone(), path.clone());
            return SlowlogPlace::Tenants(TenantSlowlog { pool, identity, path }, true);
        }
        let (log, problem) = Slowlog::new(target);
        if let Some(problem) = problem {
            warn!("pool {}: {problem}", pool.name);
        }
        SlowlogPlace::Ours(log)
    }

    /// Its path or collector.
    fn name(&self) -> Option<String> {
        match self {
            SlowlogPlace::None => None,
            SlowlogPlace::Ours(log) => Some(log.target().to_string()),
            SlowlogPlace::Tenants(log, _) => Some(log.path.display().to_string()),
        }
    }
}

/// An episode of slow scripts: it ends after [`SLOW_EPISODE`] without one.
#[derive(Debug, PartialEq, Eq)]
struct SlowEpisode {
    began: Moment,
    last: Moment,
    scripts: u64,
}

impl SlowScripts {
    /// No slow script yet. The slow log is opened, if the pool has one and uses it.
    pub fn new(pool: &Pool, identity: Option<&Identity>) -> SlowScripts {
        SlowScripts { log: SlowlogPlace::of(pool, identity), episode: None }
    }

    /// Counts a slow script. True when it is the first of an episode.
    fn count(&mut self, now: Moment) -> bool {
        let is_first = self.episode.is_none();
        let episode = self.episode.get_or_insert(SlowEpisode { began: now, last: now, scripts: 0 });
        episode.last = now;
        episode.scripts += 1;
        is_first
    }

    /// When the episode is over, unless another script is slow.
    pub fn deadline(&self) -> Option<Moment> {
        self.episode.as_ref().map(|episode| episode.last + SLOW_EPISODE)
    }

    /// The summary of an episode that is over. An episode of one script needs none.
    fn over(&mut self, now: Moment) -> Option<String> {
        let episode = self.episode.take_if(|episode| now >= episode.last + SLOW_EPISODE)?;
        let (scripts, length) = (episode.scripts, episode.last - episode.began);
        (scripts > 1).then(|| {
            format!(
                "{scripts} scripts were slow within {:.1} s, and none in the {} s since",
                length.as_secs_f64(),
                SLOW_EPISODE.as_secs()
            )
        })
    }
}

impl RunningPool {
    /// Logs that a script is slow, if it is the first of an episode.
    pub fn log_slow_script(&mut self, pid: i32, slow: &SlowScript, now: Moment) {
        if !self.slow_scripts.count(now) {
            return;
        }
        let log = self.slow_scripts.log.name();
        let log = log
            .map_or_else(String::new, |log| format!("; the stacks of such scripts are in {log}"));
        let timeout = self.plan.pool.request_slowlog_timeout;
        warn!(
            "pool {} seat {}: worker {pid} has run {} ({}) for {:.1} s, and \
             request_slowlog_timeout is {} s{log}",
            self.name(),
            slow.worker.seat,
            one_line(&slow.overrun.script),
            one_line(&slow.overrun.target),
            slow.overrun.ran.as_secs_f64(),
            timeout.as_secs_f64(),
        );
    }

    /// The slow log entry of a script. As php-fpm, without request id, times and zone if `is_fpm`.
    pub fn slowlog_subject(&self, pid: i32, slow: &SlowScript, is_fpm: bool) -> Subject {
        let (id, running_time) = if is_fpm {
            (String::new(), None)
        } else {
            (one_line(&slow.id), self.running_time(pid, slow))
        };
        Subject {
            id,
            pool: self.name().to_owned(),
            pid,
            script: one_line(&slow.overrun.script),
            running_time,
            is_fpm,
        }
    }

    fn running_time(&self, pid: i32, slow: &SlowScript) -> Option<RunningTime> {
        // Mapped only now: a pool's memory is large, and scripts are rarely slow.
        let boards = Boards::map(&self.plan.memory).ok()?;
        RunningTime::of(pid, boards.seat(slow.worker.seat)?, slow.overrun.ran)
    }

    /// Requests the stack of a slow script for the slow log. Returns the entry and the reason if
    /// there will be no stack.
    pub fn trace_slow_script(
        &mut self,
        subject: Subject,
        slow: &SlowScript,
        traces: &mut Traces<TraceTarget>,
        now: Moment,
    ) -> Option<(TraceTarget, &'static str)> {
        let target = TraceTarget::SlowScript(subject);
        let Some(zygote) = &mut self.zygote else {
            return Some((target, "the pool's zygote does not run"));
        };
        let trace = match traces.ask(self.generation, target, now) {
            Ok(trace) => trace,
            Err(target) => return Some((target, "too many scripts are slow at once")),
        };
        let order = ToZygote::Trace {
            trace,
            worker: slow.worker,
            request: slow.request,
            depth: self.plan.pool.request_slowlog_trace_depth,
        };
        zygote.say(order, &[]);
        None
    }

    /// Writes an entry of the slow log.
    pub fn write_slowlog(
        &mut self,
        subject: &Subject,
        stack: Result<&Stack, &str>,
        writers: &mut SlowlogWriters,
    ) {
        let depth = self.plan.pool.request_slowlog_trace_depth as usize;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.map_or(0, |passed| passed.as_secs().cast_signed());
        let stamp = subject.stamp(now);
        let entry = || entry(subject, &stamp, stack, depth);
        match &mut self.slow_scripts.log {
            SlowlogPlace::None => {}
            SlowlogPlace::Ours(log) => {
                if let Some(problem) = log.append(&entry()) {
                    warn!("pool {}: {problem}", subject.pool);
                }
            }
            SlowlogPlace::Tenants(log, _) => writers.append(log.clone(), &entry()),
        }
    }
}

/// The stack of a slow script, for the dashboard.
pub fn slow_stack(subject: &Subject, stack: Result<&Stack, &str>) -> SlowStack {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.unwrap_or_default().as_millis();
    let script = stack.ok().map(|stack| &stack.script).filter(|script| !script.is_empty());
    let frames = stack.map_or(&[][..], |stack| &stack.frames);
    let unsound = "the script calls and returns faster than it can be looked at";
    let problem = match stack {
        Ok(stack) => (!stack.is_sound).then(|| unsound.to_owned()),
        Err(why) => Some(shown(why)),
    };
    SlowStack {
        at: u64::try_from(now).unwrap_or(u64::MAX),
        pool: subject.pool.clone(),
        pid: subject.pid,
        script: shown(script.unwrap_or(&subject.script)),
        id: subject.id.clone(),
        calls: calls(frames, MAX_CALLS_SHOWN).map(|(_, call)| shown(&call)).collect(),
        problem,
    }
}

impl Pools {
    /// Logs the end of episodes of slow scripts.
    pub fn end_slow_episodes(&mut self, now: Moment) {
        for running in self.iter_mut() {
            if let Some(summary) = running.slow_scripts.over(now) {
                warn!("pool {}: {summary}", running.name());
            }
        }
    }

    /// Opens all slow logs again: their files were moved away.
    pub fn reopen_slowlogs(&mut self) {
        for running in self.iter_mut() {
            let problem = match &mut running.slow_scripts.log {
                SlowlogPlace::None => None,
                SlowlogPlace::Ours(log) => log.reopen(),
                SlowlogPlace::Tenants(_, is_new) => {
                    *is_new = true;
                    None
                }
            };
            if let Some(problem) = problem {
                warn!("pool {}: {problem}", running.name());
            }
        }
    }

    /// Has the slow logs created whose paths tenants control.
    pub fn create_slowlogs(&mut self, writers: &mut SlowlogWriters) {
        for running in self.iter_mut() {
            if let SlowlogPlace::Tenants(log, is_new) = &mut running.slow_scripts.log
                && std::mem::take(is_new)
            {
                writers.create(log.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_episode_begins_once_and_ends_with_its_figures() {
        let at = Duration::from_secs;
        let mut slow = SlowScripts { log: SlowlogPlace::None, episode: None };
        assert!(slow.count(at(100)));
        assert_eq!(slow.deadline(), Some(at(100) + SLOW_EPISODE));
        assert_eq!(slow.over(at(100) + SLOW_EPISODE), None, "one was told");
        assert!(slow.count(at(200)) && !slow.count(at(210)) && !slow.count(at(230)));
        assert_eq!(slow.over(at(231)), None);
        let end = slow.over(at(230) + SLOW_EPISODE).expect("figures");
        assert_eq!(end, "3 scripts were slow within 30.0 s, and none in the 60 s since");
        assert_eq!(slow.deadline(), None);
        assert!(slow.count(at(1000)));
    }
}
