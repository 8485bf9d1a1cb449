//! What others have to tell for an answer to `maitred status`: zygotes stacks, and how OPcache is
//! doing; the front how the page cache is. The answer waits for them a little, and goes out without what did not come.

use std::time::Duration;

use maitred_control::admin::{Answer, MAX_STACKS_SHOWN, Running, ServerStatus};
use maitred_control::stack::Stack;
use maitred_control::{Generation, ToZygote, WorkerId};

use crate::limits::Moment;
use crate::logging::slowlog::calls;
use crate::processes::slow_scripts::TraceTarget;
use crate::run::Supervisor;

use super::connection::AdminConnection;
use super::status::plain;

/// Longest that an answer waits for zygotes. One that has nothing else to do tells a stack in well
/// under a millisecond, and of its OPcache in a few.
const ZYGOTES: Duration = Duration::from_millis(30);

/// How long a script has to have run for its stack to be worth a question, in seconds.
const WORTH_A_LOOK: f64 = 0.1;

/// Most calls of a stack that are shown.
const CALLS_SHOWN: u32 = 8;

/// Most questions of commands to a zygote that it has not answered, so that one that has something
/// else to do does not find more orders than it is allowed to leave unread.
const UNANSWERED_MAX: usize = 2 * MAX_STACKS_SHOWN;

/// Who runs a script, by the word of the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Runner {
    /// The generation of its pool.
    pub generation: Generation,
    /// The worker.
    pub worker: WorkerId,
    /// Which request of that worker.
    pub request: u64,
}

/// Where a stack belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackPosition {
    /// Number of the answer.
    draft: u64,
    /// Which of its pools.
    pool: usize,
    /// Which of the scripts of that pool.
    script: usize,
}

/// An answer without some of the stacks that belong in it.
#[derive(Debug)]
pub struct StatusDraft {
    number: u64,
    status: Box<ServerStatus>,
    missing: usize,
    until: Moment,
}

impl StatusDraft {
    /// When it goes out as it is.
    pub fn until(&self) -> Moment {
        self.until
    }

    /// Whether there is nothing to wait for: no pool's OPcache that is about to be told of, and, for
    /// no pool, no page cache.
    fn is_due(&self, now: Moment, cache_comes: impl Fn(Option<&str>) -> bool) -> bool {
        let pools = self
            .status
            .pools
            .iter()
            .map(|pool| Some(pool.name.as_str()));
        let all_came = self.missing == 0 && !pools.chain([None]).any(cache_comes);
        now >= self.until || all_came
    }

    fn script(&mut self, place: StackPosition) -> Option<&mut Running> {
        let pool = self.status.pools.get_mut(place.pool)?;
        pool.running.get_mut(place.script)
    }

    /// A stack has come, or there is none.
    fn take(&mut self, place: StackPosition, stack: Option<&Stack>) {
        self.missing = self.missing.saturating_sub(1);
        let depth = CALLS_SHOWN as usize;
        if let (Some(script), Some(stack)) = (self.script(place), stack) {
            let shown = calls(&stack.frames, depth).map(|(_, call)| plain(&call));
            script.stack = shown.collect();
        }
    }
}

impl super::Admin {
    /// The stack for an answer has come, or there is none. The answer may have gone out already.
    pub fn stack_came(&mut self, place: StackPosition, stack: Option<&Stack>) {
        let drafts = self.guests.iter_mut().flat_map(AdminConnection::draft);
        for draft in drafts.filter(|draft| draft.number == place.draft) {
            draft.take(place, stack);
        }
    }
}

impl Supervisor {
    /// Asks for the stacks of the slowest scripts of an answer; `runners` are those of its scripts,
    /// by pool.
    pub(super) fn ask_stacks(
        &mut self,
        status: ServerStatus,
        runners: Vec<Vec<Runner>>,
    ) -> StatusDraft {
        self.admin.last_draft += 1;
        let number = self.admin.last_draft;
        let mut missing = 0;
        for (pool, script) in slowest(&status) {
            let place = StackPosition {
                draft: number,
                pool,
                script,
            };
            let runner = runners.get(pool).and_then(|of_pool| of_pool.get(script));
            missing += usize::from(runner.is_some_and(|runner| self.ask_stack(*runner, place)));
        }
        StatusDraft {
            number,
            status: Box::new(status),
            missing,
            until: self.now() + ZYGOTES,
        }
    }

    /// Whether a zygote was asked.
    fn ask_stack(&mut self, runner: Runner, place: StackPosition) -> bool {
        let Some(id) = self.pools.find(runner.generation) else {
            return false;
        };
        let now = self.now();
        let is_shown = |about: &TraceTarget| matches!(about, TraceTarget::Shown(_));
        let unanswered = self.traces.unanswered(runner.generation, is_shown);
        let running = &mut self.pools[id];
        let is_up = running.pool.zygote_is_up() && unanswered < UNANSWERED_MAX;
        let Some(zygote) = running.zygote.as_mut().filter(|_| is_up) else {
            return false;
        };
        let about = TraceTarget::Shown(place);
        let Ok(trace) = self.traces.ask(runner.generation, about, now) else {
            return false;
        };
        let order = ToZygote::Trace {
            trace,
            worker: runner.worker,
            request: runner.request,
            depth: CALLS_SHOWN,
        };
        zygote.peer.say(order, &[]);
        true
    }

    /// Gives a command the answer that it waits for, if it is complete or waited for long enough.
    pub(super) fn tell_drafted(&self, guest: &mut AdminConnection, now: Moment) {
        let comes = |pool: Option<&str>| match pool {
            Some(pool) => self.cache_comes(pool),
            None => self.figures_come(),
        };
        let is_due = |draft: &mut StatusDraft| draft.is_due(now, comes);
        if let Some(mut draft) = guest.draft().take_if(is_due) {
            for pool in &mut draft.status.pools {
                pool.opcache = self.opcache(&pool.name);
            }
            let figures = self.front_figures();
            draft.status.page_cache = figures.page_cache;
            draft.status.proxies = figures.proxies;
            guest.answer(&Answer::Status(draft.status), self.now());
        }
    }
}

/// The scripts whose stacks are shown: the slowest, as pool and place among the pool's.
fn slowest(status: &ServerStatus) -> Vec<(usize, usize)> {
    let mut slow: Vec<(f64, (usize, usize))> = Vec::new();
    for (pool, of_pool) in status.pools.iter().enumerate() {
        let scripts = of_pool.running.iter().enumerate();
        let scripts = scripts.filter(|(_, script)| script.seconds >= WORTH_A_LOOK);
        slow.extend(scripts.map(|(place, script)| (script.seconds, (pool, place))));
    }
    slow.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    slow.truncate(MAX_STACKS_SHOWN);
    slow.into_iter().map(|(_, place)| place).collect()
}

#[cfg(test)]
mod tests {
    use maitred_control::admin::PoolStatus;
    use maitred_control::stack::Frame;

    use super::*;

    const NOW: Moment = Duration::from_secs(1);

    fn status(pools: &[&[f64]]) -> ServerStatus {
        let running = |seconds: &f64| Running {
            seconds: *seconds,
            ..Running::default()
        };
        let pool = |scripts: &&[f64]| PoolStatus {
            running: scripts.iter().map(running).collect(),
            ..PoolStatus::default()
        };
        ServerStatus {
            pools: pools.iter().map(pool).collect(),
            ..ServerStatus::default()
        }
    }

    #[test]
    fn the_slowest_scripts_of_all_pools_are_looked_at_and_no_short_one() {
        let all = status(&[&[9.0, 2.0, 0.05], &[], &[3.0, 1.0], &[5.0, 0.2, f64::NAN]]);
        let expected = [(0, 0), (3, 0), (2, 0), (0, 1), (2, 1)];
        assert_eq!(slowest(&all), expected);
        assert_eq!(slowest(&status(&[&[0.09]])), []);
    }

    #[test]
    fn an_answer_goes_out_when_all_has_come_or_time_is_up() {
        let mut draft = StatusDraft {
            number: 1,
            status: Box::new(status(&[&[2.0, 1.0]])),
            missing: 2,
            until: NOW + ZYGOTES,
        };
        let none = |_: Option<&str>| false;
        assert!(!draft.is_due(NOW, none) && draft.is_due(NOW + ZYGOTES, none));
        let place = |script| StackPosition {
            draft: 1,
            pool: 0,
            script,
        };
        let frame = |call: &str, line| Frame {
            address: 1,
            call: call.to_owned(),
            file: (line > 0).then(|| "/srv/a\u{1b}.php".to_owned()),
            line,
        };
        let stack = Stack {
            frames: vec![frame("sleep", 0), frame("wait", 3), frame("{main}", 9)],
            ..Stack::default()
        };
        draft.take(place(0), Some(&stack));
        assert!(!draft.is_due(NOW, none));
        draft.take(place(1), None);
        assert!(draft.is_due(NOW, none));
        assert!(
            !draft.is_due(NOW, |pool| pool.is_some()),
            "its OPcache is still looked at"
        );
        assert!(
            !draft.is_due(NOW, |pool| pool.is_none()),
            "and so is the page cache"
        );
        draft.take(place(7), Some(&stack));
        let running = &draft.status.pools[0].running;
        assert_eq!(
            running[0].stack,
            ["sleep() /srv/a?.php:3", "wait() /srv/a?.php:9"]
        );
        assert!(running[1].stack.is_empty());
    }
}
