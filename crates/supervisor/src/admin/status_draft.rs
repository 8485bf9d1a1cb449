//! Parts of a status reply that other processes report: zygotes the stacks of scripts and the state
//! of OPcache, the front the state of the page cache. The reply waits for them a little, and is
//! sent without those that do not arrive.

use std::time::Duration;

use maitred_control::admin::{
    FrontFigures, MAX_STACKS_SHOWN, Readiness, Reply, Running, ServerStatus,
};
use maitred_control::stack::Stack;
use maitred_control::{Generation, ToZygote, WorkerId};

use crate::limits::Moment;
use crate::logging::slowlog::calls;
use crate::processes::pools::Pools;
use crate::processes::slow_scripts::{StackPosition, TraceTarget};
use crate::processes::traces::Traces;

use super::Admin;
use super::connection::AdminConnection;
use super::status::{StatusSource, plain};

/// How long a reply waits for zygotes. An idle one reads a stack in well under a millisecond, and
/// the state of OPcache in a few.
const ZYGOTES: Duration = Duration::from_millis(30);

/// How long a script has to have run for its stack to be requested, in seconds.
const WORTH_A_LOOK: f64 = 0.1;

/// Most calls of a stack that are shown.
const CALLS_SHOWN: u32 = 8;

/// Most pending requests of commands to a zygote, so that a busy one does not get more orders than
/// may be queued.
const UNANSWERED_MAX: usize = 2 * MAX_STACKS_SHOWN;

/// The worker of a running script, as the worker reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Runner {
    /// The generation of its pool.
    pub generation: Generation,
    /// The worker.
    pub worker: WorkerId,
    /// Number of the request of that worker.
    pub request: u64,
}

/// A status reply without stacks, and by pool the workers that run its scripts.
#[derive(Debug)]
pub struct DraftedStatus {
    /// The reply.
    pub status: Box<ServerStatus>,
    /// The workers, in the order of the reply.
    pub runners: Vec<Vec<Runner>>,
}

/// An incomplete status reply.
#[derive(Debug)]
pub struct StatusDraft {
    number: u64,
    status: Box<ServerStatus>,
    missing: usize,
    until: Moment,
}

impl StatusDraft {
    /// When it is sent as it is.
    pub fn until(&self) -> Moment {
        self.until
    }

    /// Whether nothing is waited for any more: neither stacks, nor sources that are awaited (the
    /// OPcache of a pool by its name; the front and the memory of processes without a name).
    pub fn is_due(&self, now: Moment, is_awaited: impl Fn(Option<&str>) -> bool) -> bool {
        let names = self.status.pools.iter().map(|pool| pool.name.as_str());
        let mut sources = names.map(Some).chain([None]);
        let is_complete = self.missing == 0 && !sources.any(is_awaited);
        now >= self.until || is_complete
    }

    /// The reply, with what pools and front have reported by now.
    pub fn finish(self, source: &StatusSource<'_>, front: &FrontFigures, now: Moment) -> Reply {
        let mut status = self.status;
        for pool in &mut status.pools {
            pool.opcache = source.pools.opcache(&pool.name, now);
            source.add_memory(pool);
        }
        status.page_cache.clone_from(&front.page_cache);
        status.proxies.clone_from(&front.proxies);
        status.scale.clone_from(&front.scale);
        status.routes.clone_from(&front.routes);
        status.readiness = match (status.phase.as_str(), &front.readiness) {
            ("serving" | "stopping", Some(readiness)) => readiness.clone(),
            ("serving", None) => Readiness::not("the front does not respond"),
            ("starting", _) => Readiness::not("the server is starting"),
            _ => Readiness::not("the server stops"),
        };
        Reply::Status(status)
    }

    fn script(&mut self, place: StackPosition) -> Option<&mut Running> {
        let pool = self.status.pools.get_mut(place.pool)?;
        pool.running.get_mut(place.script)
    }

    /// A stack has arrived, or there is none.
    fn take(&mut self, place: StackPosition, stack: Option<&Stack>) {
        self.missing = self.missing.saturating_sub(1);
        let depth = CALLS_SHOWN as usize;
        if let (Some(script), Some(stack)) = (self.script(place), stack) {
            let shown = calls(&stack.frames, depth).map(|(_, call)| plain(&call));
            script.stack = shown.collect();
        }
    }
}

impl Admin {
    /// A stack for a reply has arrived, or there is none. The reply may have been sent already.
    pub fn take_stack(&mut self, position: StackPosition, stack: Option<&Stack>) {
        let drafts = self.connections.iter_mut().flat_map(AdminConnection::draft);
        for draft in drafts.filter(|draft| draft.number == position.draft) {
            draft.take(position, stack);
        }
    }

    /// Requests the stacks of the slowest scripts of a status reply from their zygotes.
    pub fn draft(
        &mut self,
        status: DraftedStatus,
        pools: &mut Pools,
        traces: &mut Traces<TraceTarget>,
        now: Moment,
    ) -> StatusDraft {
        let DraftedStatus { status, runners } = status;
        self.last_draft += 1;
        let draft = self.last_draft;
        let mut missing = 0;
        for (pool, script) in slowest(&status) {
            let position = StackPosition { draft, pool, script };
            let runner = runners.get(pool).and_then(|of_pool| of_pool.get(script));
            let is_requested = |runner: &Runner| runner.request_stack(position, pools, traces, now);
            missing += usize::from(runner.is_some_and(is_requested));
        }
        StatusDraft { number: draft, status, missing, until: now + ZYGOTES }
    }
}

impl Runner {
    /// Whether the stack was requested from a zygote.
    fn request_stack(
        &self,
        position: StackPosition,
        pools: &mut Pools,
        traces: &mut Traces<TraceTarget>,
        now: Moment,
    ) -> bool {
        let Some(id) = pools.find(self.generation) else {
            return false;
        };
        let is_shown = |target: &TraceTarget| matches!(target, TraceTarget::Shown(_));
        let unanswered = traces.unanswered(self.generation, is_shown);
        let running = &mut pools[id];
        let is_up = running.state.zygote_is_up() && unanswered < UNANSWERED_MAX;
        let Some(zygote) = running.zygote.as_mut().filter(|_| is_up) else {
            return false;
        };
        let target = TraceTarget::Shown(position);
        let Ok(trace) = traces.ask(self.generation, target, now) else {
            return false;
        };
        let order = ToZygote::Trace {
            trace,
            worker: self.worker,
            request: self.request,
            depth: CALLS_SHOWN,
        };
        zygote.say(order, &[]);
        true
    }
}

/// The scripts whose stacks are shown: the slowest, by pool and position in the pool.
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
        let running = |seconds: &f64| Running { seconds: *seconds, ..Running::default() };
        let pool = |scripts: &&[f64]| PoolStatus {
            running: scripts.iter().map(running).collect(),
            ..PoolStatus::default()
        };
        ServerStatus { pools: pools.iter().map(pool).collect(), ..ServerStatus::default() }
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
        let place = |script| StackPosition { draft: 1, pool: 0, script };
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
        assert!(!draft.is_due(NOW, |pool| pool.is_some()), "its OPcache is still looked at");
        assert!(!draft.is_due(NOW, |pool| pool.is_none()), "and so is the page cache");
        draft.take(place(7), Some(&stack));
        let running = &draft.status.pools[0].running;
        assert_eq!(running[0].stack, ["sleep() /srv/a?.php:3", "wait() /srv/a?.php:9"]);
        assert!(running[1].stack.is_empty());
    }
}
