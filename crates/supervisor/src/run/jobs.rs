//! Commands and schedules, as a part of the server.

use std::os::fd::{AsRawFd, BorrowedFd};

use maitred_control::admin::Reply;
use maitred_control::launch::{ForegroundLaunch, ServerFile};
use maitred_control::purge_log::ClaimOutcome;

use super::Supervisor;
use crate::jobs::{JobContext, Jobs, UnitNumber, launch};

impl Supervisor {
    /// The jobs, and what they need.
    fn with_jobs<T>(&mut self, act: impl FnOnce(&mut Jobs, &JobContext<'_>) -> T) -> T {
        let context = JobContext {
            plan: &self.plan,
            pools: &self.pools,
            capacity: &self.capacity,
            scoreboards: &self.scoreboards,
            may_start: self.jobs_may_start(),
            now: self.started.elapsed(),
        };
        act(&mut self.jobs, &context)
    }

    /// Whether processes of jobs may be started: not while an upgrade waits for the ends of others.
    pub(super) fn jobs_may_start(&self) -> bool {
        let is_serving = self.phase.is_serving() && !self.jobs.is_retired();
        is_serving && !self.upgrader.holds_still()
    }

    /// Follows the configuration in use, except for pools that do not run, and those among
    /// `later`, whose generation is yet to come.
    pub(super) fn follow_jobs(&mut self, later: impl Fn(&str) -> bool) {
        let (now, config) = (self.now(), &self.plan.config);
        let runs = |pool: &str| !later(pool) && self.pools.current_of(pool).is_some();
        let has_it = |pool: &str| config.pool(pool).is_none() || runs(pool);
        self.jobs.remember_runs(config, self.plan.source.file());
        self.jobs.follow(config, has_it, now);
    }

    /// The commands of a pool follow its new generation.
    pub(super) fn renew_jobs(&mut self, pool: &str) {
        let now = self.now();
        // A pool that was added gets its jobs once the front has accepted the configuration.
        let reload = self.reloader.current();
        let is_restarted = reload.is_some_and(|reload| reload.changes.restarted.contains(pool));
        if !is_restarted {
            return;
        }
        if self.reloader.is_for_php_alone(pool) {
            // Settings whose trial had failed before are those of this generation.
            self.jobs.follow(&self.plan.config, |name| name == pool, now);
        } else {
            self.jobs.renew(pool, &self.plan.config, now);
        }
    }

    /// The purge log says which node has a run of a schedule.
    pub(super) fn run_is_decided(&mut self, number: u64, outcome: ClaimOutcome) {
        self.with_jobs(|jobs, context| jobs.decided(number, outcome, context));
    }

    /// Does what is due for jobs.
    pub(super) fn keep_jobs(&mut self) {
        self.with_jobs(|jobs, context| jobs.keep(context));
    }

    /// A process of a job has ended, and its output was read.
    pub(super) fn job_ended(&mut self, unit: UnitNumber, pid: i32) {
        self.with_jobs(|jobs, context| jobs.settle(unit, pid, context));
        for group in self.jobs.take_ended_groups() {
            self.script_children.end_those_of(group, None, self.started.elapsed());
        }
        if self.jobs.is_retired() {
            self.check_drained();
        }
    }

    /// Stops all jobs, since the server stops.
    pub(super) fn retire_jobs(&mut self) {
        let now = self.now();
        self.jobs.retire(now);
    }

    /// What a job is started with.
    pub(super) fn launch_of(&self, pool: &str, name: &str) -> Reply {
        let config = &self.plan.config;
        let job = config.jobs.iter().find(|job| job.pool == pool && job.name == name);
        let Some(job) = job else {
            let all: Vec<String> =
                config.jobs.iter().map(|job| format!("{}/{}", job.pool, job.name)).collect();
            let there = match all.is_empty() {
                true => "there is none".to_owned(),
                false => format!("there are {}", all.join(", ")),
            };
            let why = format!("there is no command or schedule {pool}/{name}; {there}");
            return Reply::Refused { why };
        };
        match launch::prepare(job, &self.pools, &self.plan.programs) {
            Ok(prepared) => Reply::Launch(Box::new(ForegroundLaunch {
                counts: prepared.counts(&self.scoreboards).map(own_file),
                launch: prepared.launch,
                program: prepared.program,
                group: self.plan.groups.as_ref().and_then(|groups| groups.entrance_file(pool)),
            })),
            Err(why) => Reply::Refused { why },
        }
    }
}

/// A file of this process, as root can copy it.
fn own_file(file: BorrowedFd<'_>) -> ServerFile {
    let pid = i32::try_from(std::process::id()).unwrap_or(0);
    ServerFile { pid, number: file.as_raw_fd() }
}
