//! The children of the supervisor: whether an announced process is one, and what follows from the
//! end of one.

use maitred_control::WorkerId;
use maitred_os::fork::Ended;

use super::Supervisor;
use crate::jobs::UnitNumber;
use crate::processes::adopt::{self, ChildCheck};
use crate::processes::generation::{GenerationEvent, KillReason};
use crate::processes::pools::{PidClaim, PidOwner, PoolId};

/// The end of a child, and what it was when it was reaped.
#[derive(Debug)]
pub(super) struct ChildEnd {
    /// The end.
    pub ended: Ended,
    /// The generations that had it.
    pub owners: Vec<PidOwner>,
    /// The command or schedule that had it.
    pub job: Option<UnitNumber>,
}

impl ChildEnd {
    /// Whether a generation had this process.
    pub(super) fn is_of(&self, id: PoolId, pid: i32) -> bool {
        self.ended.pid == pid && self.owners.iter().any(|owner| owner.id == id)
    }
}

/// Whether the end of a process of this generation is `held` that had this number.
pub(super) fn is_held(id: PoolId, pid: i32, held: &[ChildEnd]) -> bool {
    held.iter().any(|held| held.is_of(id, pid))
}

/// Whether the process that was reaped is the owner's, and not only announced by it. The seat of a
/// process with the same number, whose end is `held`, still has that number.
fn is_new(owner: &PidOwner, pid: i32, held: &[ChildEnd]) -> bool {
    owner.claim != PidClaim::Announced || !is_held(owner.id, pid, held)
}

impl Supervisor {
    /// A zygote reports that it forked a worker. It may report any pid.
    pub(super) fn worker_announced(&mut self, id: PoolId, worker: WorkerId, pid: i32) {
        // A seat of its own may still have the number: its end waits no longer.
        let is_of_this = |held: &mut ChildEnd| held.is_of(id, pid);
        let held: Vec<ChildEnd> = self.held.extract_if(.., is_of_this).collect();
        for end in held {
            self.settle(end);
        }
        if self.is_not_its_worker(id, pid) {
            return self.zygote_broke_rules(id);
        }
        self.pools[id].attribute_output(worker, pid);
        self.pool_event(id, GenerationEvent::Announced { worker, pid });
    }

    /// Checks whether an announced process has become our child. Another may have got its pid since
    /// the announcement.
    pub(super) fn check_child(&mut self, id: PoolId, pid: i32) {
        if is_held(id, pid, &self.held) {
            // It has ended, and the number may be another's.
            return;
        }
        match adopt::see(pid, self.pools[id].plan.uid) {
            ChildCheck::Ours(pidfd) if !self.is_not_its_worker(id, pid) => {
                self.pools[id].workers.insert(pid, pidfd);
                self.pool_event(id, GenerationEvent::Adopted { pid });
            }
            ChildCheck::NotYet => {}
            ChildCheck::Ours(_) | ChildCheck::Stranger => self.zygote_broke_rules(id),
        }
    }

    fn is_not_its_worker(&self, id: PoolId, pid: i32) -> bool {
        self.is_own_process(pid) || self.pools.is_others(id, pid)
    }

    /// Whether the supervisor has started this process for another purpose than a pool's requests.
    /// Commands and writers of slow logs have the user of a pool.
    fn is_own_process(&self, pid: i32) -> bool {
        self.fronts.line_of(pid).is_some()
            || self.upgrader.is_trial(pid)
            || self.lookups.is_process(pid)
            || self.acme.is_process(pid)
            || self.acme.is_shared_process(pid)
            || self.purge_log.is_process(pid)
            || self.memory_reader.is_process(pid)
            || self.slowlog_writers.is_process(pid)
            || self.pipe_reader.pids().contains(&pid)
            || self.jobs.is_process(pid)
    }

    pub(super) fn zygote_broke_rules(&mut self, id: PoolId) {
        self.pool_event(id, GenerationEvent::ZygoteFailed(KillReason::BrokeRules));
    }

    /// A child has ended: the front, a zygote, a worker, or an orphan that became our child.
    pub(super) fn collect(&mut self, ended: Ended) {
        self.script_children.reaped(ended.pid);
        let job = self.jobs.reaped(ended.pid, ended.how);
        let mut owners = self.pools.reaped(ended.pid);
        owners.retain(|owner| is_new(owner, ended.pid, &self.held));
        if job.is_none() {
            // A zygote may have announced it, which does not delay its end.
            self.own_process_ended(&ended);
        }
        if let Some(end) = self.hold_for_output(ChildEnd { ended, owners, job }) {
            self.settle(end);
        }
    }

    /// Acts on the end of a process of a pool or a job. What the process was is known since it was
    /// reaped: its number may be another's.
    pub(super) fn settle(&mut self, end: ChildEnd) {
        let ChildEnd { ended, owners, job } = end;
        if let Some(unit) = job {
            self.job_ended(unit, ended.pid);
        }
        let level = self.plan.fpm_log_level();
        // A zygote may have announced any process: no seat stays with a pid that is free again.
        for PidOwner { id, claim } in owners {
            // A generation may have gone meanwhile.
            if !self.pools.ids().contains(&id) {
                continue;
            }
            self.pools[id].end_output(ended.pid, level);
            match claim {
                PidClaim::Zygote => self.zygote_reaped(id, ended.how),
                PidClaim::Worker | PidClaim::Announced => self.worker_ended(id, ended),
            }
        }
    }

    /// Acts on the end of a process for another purpose than a pool's requests, if it was one.
    fn own_process_ended(&mut self, ended: &Ended) {
        let Ended { pid, how, .. } = *ended;
        if let Some(line) = self.fronts.line_of(pid) {
            self.front_ended(line, how);
        } else if self.upgrader.is_trial(pid) {
            let (program, now) = (&self.plan.invocation.program, self.now());
            self.upgrader.tried(program, how, now);
        } else if self.lookups.is_process(pid) {
            self.lookups.process_ended(pid, how);
        } else if self.acme.is_process(pid) {
            self.acme().process_ended(pid, how);
        } else if self.acme.is_shared_process(pid) {
            self.acme().shared_process_ended(how);
        } else if self.purge_log.is_process(pid) {
            self.purge_log_ended(how);
        } else if self.memory_reader.is_process(pid) {
            self.memory_reader_ended(how);
        } else if self.slowlog_writers.is_process(pid) {
            self.slowlog_writers.process_ended(pid, how);
        } else if !self.plan.logs.process_ended(pid) {
            let now = self.now();
            self.pipe_reader.process_ended(pid, how, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use maitred_os::fork::HowEnded;

    use super::*;

    #[test]
    fn a_zygote_that_has_the_number_of_a_worker_whose_end_is_held_is_a_process_of_its_own() {
        const PID: i32 = 7;
        let (id, other) = (PoolId::of(1), PoolId::of(2));
        let owner = |id, claim| PidOwner { id, claim };
        let ended = Ended { pid: PID, how: HowEnded::Exited(0), core_dumped: false };
        let owners = vec![owner(id, PidClaim::Worker)];
        let held = [ChildEnd { ended, owners, job: None }];
        for claim in [PidClaim::Zygote, PidClaim::Worker] {
            assert!(is_new(&owner(id, claim), PID, &held), "{claim:?}");
        }
        assert!(!is_new(&owner(id, PidClaim::Announced), PID, &held), "it is the seat of the held");
        assert!(is_new(&owner(id, PidClaim::Announced), PID + 1, &held));
        assert!(is_new(&owner(other, PidClaim::Announced), PID, &held));
    }
}
