//! The children of the supervisor: whether an announced process is one, and what follows from the
//! end of one.

use maitred_control::WorkerId;
use maitred_os::fork::Ended;

use super::Supervisor;
use crate::processes::adopt::{self, ChildCheck};
use crate::processes::generation::{GenerationEvent, KillReason};
use crate::processes::pools::{PidClaim, PoolId};

impl Supervisor {
    /// A zygote reports that it forked a worker. It may report any pid.
    pub(super) fn worker_announced(&mut self, id: PoolId, worker: WorkerId, pid: i32) {
        if self.fronts.line_of(pid).is_some() || self.pools.is_others(id, pid) {
            return self.zygote_broke_rules(id);
        }
        self.pools[id].attribute_output(worker, pid);
        self.pool_event(id, GenerationEvent::Announced { worker, pid });
    }

    /// Checks whether an announced process has become our child. Another may have got its pid since
    /// the announcement.
    pub(super) fn check_child(&mut self, id: PoolId, pid: i32) {
        match adopt::see(pid, self.pools[id].plan.uid) {
            ChildCheck::Ours(pidfd) if !self.pools.is_others(id, pid) => {
                self.pools[id].workers.insert(pid, pidfd);
                self.pool_event(id, GenerationEvent::Adopted { pid });
            }
            ChildCheck::NotYet => {}
            ChildCheck::Ours(_) | ChildCheck::Stranger => self.zygote_broke_rules(id),
        }
    }

    pub(super) fn zygote_broke_rules(&mut self, id: PoolId) {
        self.pool_event(id, GenerationEvent::ZygoteFailed(KillReason::BrokeRules));
    }

    /// A child has ended: the front, a zygote, a worker, or an orphan that became our child.
    pub(super) fn collect(&mut self, ended: Ended) {
        self.script_children.reaped(ended.pid);
        let Some(ended) = self.hold_for_output(ended) else { return };
        let Ended { pid, how, .. } = ended;
        if let Some(line) = self.fronts.line_of(pid) {
            return self.front_ended(line, how);
        }
        if self.upgrader.is_trial(pid) {
            let (program, now) = (&self.plan.invocation.program, self.now());
            return self.upgrader.tried(program, how, now);
        }
        if self.acme.is_process(pid) {
            return self.acme().process_ended(pid, how);
        }
        if self.acme.is_shared_process(pid) {
            return self.acme().shared_process_ended(how);
        }
        if self.purge_log.is_process(pid) {
            return self.purge_log_ended(how);
        }
        if self.memory_reader.is_process(pid) {
            return self.memory_reader_ended(how);
        }
        if self.slowlog_writers.process_ended(pid, how) {
            return;
        }
        if self.pipe_reader_ended(pid, how) || self.job_ended(&ended) {
            return;
        }
        for owner in self.pools.owners_of(pid) {
            match owner.claim {
                PidClaim::Zygote => self.zygote_reaped(owner.id, how),
                PidClaim::Worker | PidClaim::Announced => self.worker_ended(owner.id, ended),
            }
        }
    }
}
