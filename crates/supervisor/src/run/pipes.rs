//! The pipes that code of pools can write to: another process reads and closes them.

use super::Supervisor;
use super::children::{ChildEnd, is_held};
use crate::limits::PIPE_READER_MESSAGES_PER_TURN;
use crate::processes::adopt;
use crate::processes::pipe_reader::PipeReaderContext;

impl Supervisor {
    /// Whether pipes are polled: not before an upgrade, as soon as all that has ended was read.
    pub(super) fn reads_pipes(&self) -> bool {
        !(self.upgrader.holds_still() && self.held.is_empty())
    }

    /// These pipes are to be read.
    pub(super) fn order_pipes(&mut self, ready: &[u64]) {
        if ready.is_empty() {
            return;
        }
        let now = self.now();
        let of_pools = self.pools.iter_mut().flat_map(|running| running.order_reads(ready));
        let of_jobs = self.jobs.order_reads(ready);
        for read in of_pools.chain(of_jobs) {
            self.pipe_reader.want(read, now);
        }
    }

    /// Logs what was read.
    pub(super) fn hear_pipe_reader(&mut self, is_ready: bool) {
        let now = self.now();
        let most = if is_ready { PIPE_READER_MESSAGES_PER_TURN } else { 0 };
        for _ in 0..most {
            if !self.pipe_reader.hear(now) {
                break;
            }
        }
        let level = self.plan.fpm_log_level();
        for read in self.pipe_reader.orders.take_reports() {
            let mut pools = self.pools.iter_mut();
            if !pools.any(|running| running.take_read(&read, level, now)) {
                self.jobs.take_read(&read, now);
            }
        }
    }

    /// Sends orders. The last step of a turn.
    pub(super) fn keep_pipe_reader(&mut self) {
        self.pipe_reader.keep(PipeReaderContext {
            environment: &self.plan.environment,
            identity: self.plan.front_identity.as_ref(),
            restricted: self.plan.config.front_sandbox,
            now: self.now(),
        });
    }

    /// Holds the end of a child until its output was read: that is logged before.
    pub(super) fn hold_for_output(&mut self, end: ChildEnd) -> Option<ChildEnd> {
        let level = self.plan.fpm_log_level();
        let pid = end.ended.pid;
        // Also that of a process whose seat was emptied meanwhile: its deadline would stay. Output
        // of one before it, with the same number, is still being read.
        for running in &mut self.pools {
            let is_its = end.owners.iter().any(|owner| owner.id == running.id());
            if !is_its && !is_held(running.id(), pid, &self.held) {
                running.end_output(pid, level);
            }
        }
        if self.awaits_output(&end) {
            self.held.push(end);
            return None;
        }
        Some(end)
    }

    /// Acts on the ends that were held for output which was read.
    pub(super) fn release_held(&mut self) {
        for end in std::mem::take(&mut self.held) {
            match self.awaits_output(&end) {
                true => self.held.push(end),
                false => self.settle(end),
            }
        }
    }

    fn awaits_output(&mut self, end: &ChildEnd) -> bool {
        let (now, pid) = (self.now(), end.ended.pid);
        if self.upgrader.is_late(now) {
            // A tenant may leave output behind at any time, or the upgrade would never be.
            return false;
        }
        // A zygote may have named any process as its worker.
        let mut pools = self.pools.iter_mut();
        let is_its = |id| end.owners.iter().any(|owner| owner.id == id);
        pools.any(|running| is_its(running.id()) && running.awaits_output(pid, now))
            || end.job.is_some_and(|unit| self.jobs.awaits_output(unit, pid, now))
    }

    /// Whether no process of ours is left, and all output was read. The process that reads pipes is
    /// ended last; those that are stuck in the kernel are not waited for.
    pub(super) fn all_have_ended(&mut self) -> bool {
        let readers = self.pipe_reader.pids();
        let is_other = |pid: &i32| !readers.contains(pid);
        if adopt::any_child() && (readers.is_empty() || adopt::children().iter().any(is_other)) {
            return false;
        }
        let now = self.now();
        let mut pools = self.pools.iter_mut();
        if !self.held.is_empty() || !pools.all(|running| running.is_drained(now)) {
            return false;
        }
        self.pipe_reader.may_retire(now) && !self.pipe_reader.retire()
    }
}
