//! The children of the supervisor: whether an announced process is one, and what follows from the
//! end of one.

use maitred_control::WorkerId;
use maitred_os::fork::Ended;
use maitred_os::signals;

use super::Supervisor;
use crate::jobs::{Jobs, UnitNumber};
use crate::limits::Moment;
use crate::processes::adopt::{self, ChildCheck};
use crate::processes::generation::{GenerationEvent, KillReason};
use crate::processes::pools::{PidClaim, PidOwner, PoolId, Pools};

/// The end of a child, and what it was when it was reaped.
#[derive(Debug)]
pub(super) struct ChildEnd {
    /// The end.
    pub ended: Ended,
    /// The generations whose zygote or worker it was. Those whose zygotes have announced it are
    /// known only when all reports of the turn are.
    pub owners: Vec<PidOwner>,
    /// The command or schedule that had it.
    pub job: Option<UnitNumber>,
}

impl ChildEnd {
    /// The end of a child that was reaped just now. Its number may be another's from now on: no
    /// job and no generation has it any more.
    pub(super) fn of(ended: Ended, jobs: &mut Jobs, pools: &mut Pools, now: Moment) -> ChildEnd {
        let job = jobs.reaped(ended.pid, ended.how);
        ChildEnd { ended, owners: pools.reaped(ended.pid, now), job }
    }

    /// Whether a generation had this process.
    pub(super) fn is_of(&self, id: PoolId, pid: i32) -> bool {
        self.ended.pid == pid && self.owners.iter().any(|owner| owner.id == id)
    }
}

/// Whether the end of a process of this generation is `held` that had this number.
pub(super) fn is_held(id: PoolId, pid: i32, held: &[ChildEnd]) -> bool {
    held.iter().any(|held| held.is_of(id, pid))
}

/// The generations whose zygotes have announced a process that was reaped, and that no generation
/// had. The seat of a process with the same number, whose end is `held`, still has that number.
/// Where a process has the number again, that is the announced one, and runs: a tenant can end an
/// orphan just before the number is a worker's of another pool.
fn announcers(pools: &Pools, pid: i32, held: &[ChildEnd]) -> Vec<PidOwner> {
    if signals::pidfd(pid).is_ok() {
        return Vec::new();
    }
    let mut owners = pools.owners_of(pid);
    owners.retain(|owner| owner.claim == PidClaim::Announced && !is_held(owner.id, pid, held));
    owners
}

impl Supervisor {
    /// A zygote reports that it forked a worker. It may report any pid.
    pub(super) fn worker_announced(&mut self, id: PoolId, worker: WorkerId, pid: i32) {
        // A seat of its own may still have the number: its end waits no longer.
        let is_of_this = |end: &mut ChildEnd| end.is_of(id, pid);
        let reaped: Vec<ChildEnd> = self.reaped.extract_if(.., is_of_this).collect();
        reaped.into_iter().for_each(|end| self.collect(end));
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
        if self.jobs.is_process(pid) {
            return true;
        }
        // The number of one that was reaped in this turn may be another's.
        let was_reaped = self.reaped.iter().any(|end| end.ended.pid == pid);
        !was_reaped && self.is_of_server(pid)
    }

    fn is_of_server(&self, pid: i32) -> bool {
        self.fronts.line_of(pid).is_some()
            || self.upgrader.is_trial(pid)
            || self.lookups.is_process(pid)
            || self.acme.is_process(pid)
            || self.acme.is_shared_process(pid)
            || self.purge_log.is_process(pid)
            || self.memory_reader.is_process(pid)
            || self.slowlog_writers.is_process(pid)
            || self.pipe_reader.pids().contains(&pid)
    }

    pub(super) fn zygote_broke_rules(&mut self, id: PoolId) {
        self.pool_event(id, GenerationEvent::ZygoteFailed(KillReason::BrokeRules));
    }

    /// The end of a child counts: of the front, a zygote, a worker, or an orphan that became our
    /// child.
    pub(super) fn collect(&mut self, mut end: ChildEnd) {
        if end.owners.is_empty() {
            end.owners = announcers(&self.pools, end.ended.pid, &self.held);
        }
        if end.job.is_none() {
            // A zygote may have announced it, which does not delay its end.
            self.own_process_ended(&end.ended);
        }
        if let Some(end) = self.hold_for_output(end) {
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
    use crate::jobs;
    use crate::processes::pools::tests::{announce, pools};

    fn own_pid() -> i32 {
        i32::try_from(std::process::id()).unwrap()
    }

    /// The number of a process that has ended and was reaped.
    fn free_pid() -> i32 {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        i32::try_from(child.id()).unwrap()
    }

    fn end_of(pid: i32) -> Ended {
        Ended { pid, how: HowEnded::Exited(0), core_dumped: false }
    }

    #[test]
    fn no_job_and_no_generation_has_a_child_from_when_it_is_reaped() {
        let (mut jobs, mut pools, pid) =
            (jobs::tests::with_process(own_pid()), pools(2), own_pid());
        let [one, other] = pools.ids()[..] else { panic!("two") };
        announce(&mut pools[one], pid);
        pools[one].workers.insert(pid, signals::pidfd(pid).unwrap());
        assert!(jobs.is_process(pid) && pools.is_others(other, pid));
        let end = ChildEnd::of(end_of(pid), &mut jobs, &mut pools, Moment::ZERO);
        assert!(!jobs.is_process(pid) && !pools.is_others(other, pid));
        assert_eq!(end.owners, [PidOwner { id: one, claim: PidClaim::Worker }]);
        assert!(end.job.is_some());
        // Another process has the number, and ends in the same turn.
        let end = ChildEnd::of(end_of(pid), &mut jobs, &mut pools, Moment::ZERO);
        assert!(end.owners.is_empty() && end.job.is_none());
    }

    #[test]
    fn a_process_that_no_generation_had_is_of_those_whose_zygotes_have_announced_it() {
        let (mut pools, pid) = (pools(2), free_pid());
        let [one, other] = pools.ids()[..] else { panic!("two") };
        assert_eq!(announcers(&pools, pid, &[]), []);
        announce(&mut pools[one], pid);
        let owner = PidOwner { id: one, claim: PidClaim::Announced };
        assert_eq!(announcers(&pools, pid, &[]), [owner]);
        let held = |id, pid| {
            let owners = vec![PidOwner { id, claim: PidClaim::Worker }];
            [ChildEnd { ended: end_of(pid), owners, job: None }]
        };
        assert_eq!(announcers(&pools, pid, &held(one, pid)), [], "it is the seat of the held");
        assert_eq!(announcers(&pools, pid, &held(one, pid + 1)), [owner]);
        assert_eq!(announcers(&pools, pid, &held(other, pid)), [owner]);
        // Another process has the number by now.
        pools[other].workers.insert(pid, signals::pidfd(own_pid()).unwrap());
        assert_eq!(announcers(&pools, pid, &[]), []);
    }

    #[test]
    fn the_end_of_a_process_is_not_that_of_an_announced_one_that_has_its_number_and_runs() {
        let (mut jobs, mut pools, pid) =
            (jobs::tests::with_process(own_pid()), pools(1), own_pid());
        let id = pools.ids()[0];
        let of_job = ChildEnd::of(end_of(pid), &mut jobs, &mut pools, Moment::ZERO);
        let of_orphan = ChildEnd::of(end_of(pid), &mut jobs, &mut pools, Moment::ZERO);
        announce(&mut pools[id], pid);
        for end in [of_job, of_orphan] {
            assert_eq!(end.owners, []);
            assert_eq!(announcers(&pools, end.ended.pid, &[]), []);
        }
    }
}
