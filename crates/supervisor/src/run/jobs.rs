//! Commands and schedules, as a part of the server.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::PathBuf;

use maitred_control::admin::Reply;
use maitred_control::launch::ForegroundLaunch;
use maitred_control::purge_log::ClaimOutcome;
use maitred_os::fork::Ended;

use super::Supervisor;
use crate::jobs::{JobContext, Jobs, launch};

impl Supervisor {
    /// The jobs, and what they need.
    fn with_jobs<T>(&mut self, act: impl FnOnce(&mut Jobs, &JobContext<'_>) -> T) -> T {
        let context = JobContext {
            plan: &self.plan,
            scoreboards: &self.scoreboards,
            may_start: self.jobs_may_start(),
            now: self.started.elapsed(),
        };
        act(&mut self.jobs, &context)
    }

    /// Whether processes of jobs may be started.
    pub(super) fn jobs_may_start(&self) -> bool {
        self.phase.is_serving() && !self.jobs.is_retired()
    }

    /// Follows the configuration in use.
    pub(super) fn follow_jobs(&mut self) {
        let now = self.now();
        self.jobs.follow(&self.plan.config, self.plan.source.file(), now);
    }

    /// The purge log says which node has a run of a schedule.
    pub(super) fn run_is_decided(&mut self, number: u64, outcome: ClaimOutcome) {
        self.with_jobs(|jobs, context| jobs.decided(number, outcome, context));
    }

    /// Does what is due for jobs.
    pub(super) fn keep_jobs(&mut self) {
        self.with_jobs(|jobs, context| jobs.keep(context));
    }

    /// Whether the child that has ended was a process of a job.
    pub(super) fn job_ended(&mut self, ended: &Ended) -> bool {
        let was_job = self.with_jobs(|jobs, context| jobs.ended(ended, context));
        if was_job && self.jobs.is_retired() {
            self.check_drained();
        }
        was_job
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
        match launch::prepare(job, config, &self.plan.programs) {
            Ok(prepared) => Reply::Launch(Box::new(ForegroundLaunch {
                counts: self.scoreboards.applications.of(pool, prepared.uid()).map(own_path),
                launch: prepared.launch,
                program: prepared.program,
                group: self.plan.groups.as_ref().and_then(|groups| groups.entrance_file(pool)),
            })),
            Err(why) => Reply::Refused { why },
        }
    }
}

/// A path by which root opens a file of this process.
fn own_path(file: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()))
}
