//! Scripts that run for longer than `request_slowlog_timeout`: their stacks go to the slow log, and
//! that there are any is said once, when it begins and when it is over.

use maitred_config::Pool;
use maitred_control::stack::Stack;
use maitred_control::{Overrun, ToZygote, WorkerId};
use maitred_os::clock::local_time;
use maitred_os::users::Identity;
use maitred_seat::Boards;
use tracing::warn;

use crate::admin::StackPosition;
use crate::limits::{Moment, SLOW_EPISODE};
use crate::logging::running_time::RunningTime;
use crate::logging::slowlog::{Slowlog, Subject, entry};
use crate::logging::text::one_line;
use crate::processes::pools::PoolId;
use crate::run::Supervisor;

/// What a stack is wanted for.
#[derive(Debug)]
pub enum TraceTarget {
    /// For an entry of the slow log.
    SlowScript(Subject),
    /// For a command that shows what runs.
    Shown(StackPosition),
}

/// A script that is slow, as the front reports it.
#[derive(Debug)]
pub struct SlowScript {
    /// The worker.
    pub worker: WorkerId,
    /// Which request of that worker.
    pub request: u64,
    /// What has run for how long.
    pub overrun: Overrun,
    /// The request's id in the logs; empty if it has none.
    pub id: String,
}

/// A pool's slow scripts.
#[derive(Debug)]
pub struct SlowScripts {
    log: Option<Slowlog>,
    episode: Option<SlowEpisode>,
}

/// A time in which scripts are slow: it ends when none was for [`SLOW_EPISODE`].
#[derive(Debug, PartialEq, Eq)]
struct SlowEpisode {
    began: Moment,
    last: Moment,
    scripts: u64,
}

impl SlowScripts {
    /// No script is slow yet. The slow log is opened, if the pool has one and uses it.
    pub fn new(pool: &Pool, identity: Option<&Identity>) -> SlowScripts {
        let is_used = !pool.request_slowlog_timeout.is_zero();
        let target = pool.slowlog.clone().filter(|_| is_used);
        let log = target.map(|target| {
            let (log, problem) = Slowlog::new(target, identity.cloned());
            if let Some(problem) = problem {
                warn!("pool {}: {problem}", pool.name);
            }
            log
        });
        SlowScripts { log, episode: None }
    }

    /// The slow log, if there is one.
    pub fn log(&mut self) -> Option<&mut Slowlog> {
        self.log.as_mut()
    }

    /// Counts a slow script. True when it is the first of an episode.
    fn count(&mut self, now: Moment) -> bool {
        let is_first = self.episode.is_none();
        let episode = self.episode.get_or_insert(SlowEpisode {
            began: now,
            last: now,
            scripts: 0,
        });
        episode.last = now;
        episode.scripts += 1;
        is_first
    }

    /// When the episode is over, unless another script is slow.
    pub fn deadline(&self) -> Option<Moment> {
        self.episode
            .as_ref()
            .map(|episode| episode.last + SLOW_EPISODE)
    }

    /// The end of an episode, as the end of a sentence. One of a single script has been told.
    fn over(&mut self, now: Moment) -> Option<String> {
        let episode = self
            .episode
            .take_if(|episode| now >= episode.last + SLOW_EPISODE)?;
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

impl Supervisor {
    /// Asks for the stack of a script that is slow.
    pub fn slow_script(&mut self, id: PoolId, slow: SlowScript) {
        // The stack of a worker that has ended is gone, and its end is logged.
        let Some(pid) = self.pools[id].pool.pid_of(slow.worker) else {
            return;
        };
        self.tell_slow(id, pid, &slow);
        let now = self.now();
        // php-fpm's slow log has no such lines.
        let (request_id, so_far) = match self.is_fpm() {
            true => (String::new(), None),
            false => (one_line(&slow.id), self.so_far(id, pid, &slow)),
        };
        let running = &mut self.pools[id];
        let subject = Subject {
            id: request_id,
            pool: running.plan.settings.pool.clone(),
            pid,
            script: one_line(&slow.overrun.script),
            so_far,
        };
        let about = TraceTarget::SlowScript(subject);
        let Some(zygote) = &mut running.zygote else {
            return self.use_stack(id, about, Err("the pool's zygote does not run"));
        };
        match self.traces.ask(running.generation, about, now) {
            Ok(trace) => {
                let order = ToZygote::Trace {
                    trace,
                    worker: slow.worker,
                    request: slow.request,
                    depth: running.plan.pool.request_slowlog_trace_depth,
                };
                zygote.peer.say(order, &[]);
            }
            Err(about) => self.use_stack(id, about, Err("too many scripts are slow at once")),
        }
    }

    fn so_far(&self, id: PoolId, pid: i32, slow: &SlowScript) -> Option<RunningTime> {
        // Mapped for the moment only: a pool's memory is large, and scripts are rarely slow.
        let boards = Boards::map(&self.pools[id].plan.memory).ok()?;
        RunningTime::of(pid, boards.seat(slow.worker.seat)?, slow.overrun.ran)
    }

    fn tell_slow(&mut self, id: PoolId, pid: i32, slow: &SlowScript) {
        if self.is_fpm() {
            return self.tell_slow_as_fpm(id, pid, &slow.overrun);
        }
        let now = self.now();
        if !self.pools[id].slow.count(now) {
            return;
        }
        let log = self.pools[id].slow.log();
        let log = log.map_or_else(String::new, |log| {
            format!("; the stacks of such scripts are in {}", log.target())
        });
        let timeout = self.pools[id].plan.pool.request_slowlog_timeout;
        warn!(
            "pool {} seat {}: worker {pid} has run {} ({}) for {:.1} s, and \
             request_slowlog_timeout is {} s{log}",
            self.name(id),
            slow.worker.seat,
            one_line(&slow.overrun.script),
            one_line(&slow.overrun.target),
            slow.overrun.ran.as_secs_f64(),
            timeout.as_secs_f64(),
        );
    }

    /// A zygote tells a stack, or why there is none.
    pub fn traced(&mut self, id: PoolId, trace: u64, stack: &Result<Stack, String>) {
        let generation = self.pools[id].generation;
        // Nobody waits for it any more when it comes late.
        if let Some(about) = self.traces.answered(generation, trace) {
            let stack = stack.as_ref().map_err(String::as_str);
            self.use_stack(id, about, stack);
        }
    }

    /// Gives up stacks that do not come, and ends episodes.
    pub fn tend_slow(&mut self) {
        let now = self.now();
        for (generation, about) in self.traces.overdue(now) {
            if let Some(id) = self.pools.find(generation) {
                self.use_stack(id, about, Err("the pool's zygote did not answer"));
            }
        }
        for id in self.pools.ids() {
            if let Some(figures) = self.pools[id].slow.over(now) {
                warn!("pool {}: {figures}", self.name(id));
            }
        }
    }

    /// Opens all slow logs anew: their files were moved away.
    pub fn reopen_slowlogs(&mut self) {
        for running in &mut self.pools {
            let problem = running.slow.log().and_then(Slowlog::reopen);
            if let Some(problem) = problem {
                warn!("pool {}: {problem}", running.plan.settings.pool);
            }
        }
    }

    fn use_stack(&mut self, id: PoolId, about: TraceTarget, stack: Result<&Stack, &str>) {
        let subject = match about {
            TraceTarget::SlowScript(subject) => subject,
            TraceTarget::Shown(place) => return self.admin.stack_came(place, stack.ok()),
        };
        let running = &mut self.pools[id];
        let depth = running.plan.pool.request_slowlog_trace_depth as usize;
        let Some(log) = running.slow.log() else {
            return;
        };
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.map_or(0, |passed| passed.as_secs());
        let now = i64::try_from(now).ok().and_then(local_time);
        if let Some(problem) = log.append(&entry(&subject, now, stack, depth)) {
            warn!("pool {}: {problem}", subject.pool);
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
        let mut slow = SlowScripts {
            log: None,
            episode: None,
        };
        assert!(slow.count(at(100)));
        assert_eq!(slow.deadline(), Some(at(100) + SLOW_EPISODE));
        assert_eq!(slow.over(at(100) + SLOW_EPISODE), None, "one was told");
        assert!(slow.count(at(200)) && !slow.count(at(210)) && !slow.count(at(230)));
        assert_eq!(slow.over(at(231)), None);
        let end = slow.over(at(230) + SLOW_EPISODE).expect("figures");
        assert_eq!(
            end,
            "3 scripts were slow within 30.0 s, and none in the 60 s since"
        );
        assert_eq!(slow.deadline(), None);
        assert!(slow.count(at(1000)));
    }
}
