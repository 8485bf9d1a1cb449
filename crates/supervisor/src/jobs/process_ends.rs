//! The processes of a command or a schedule from their start to their end. The end of one is held
//! until its output was read. From when it is reaped its number may be another process's, of
//! another user as well: it is sent no signal, and is known by the number of its unit.

use std::os::fd::AsFd;
use std::time::Duration;

use maitred_os::fork::HowEnded;
use maitred_os::signals::{self, Signal};
use maitred_text::humanize::lasted;
use rustix::process::{Pid, kill_process_group};
use tracing::{debug, warn};

use crate::jobs::job_process::{JobEnd, JobProcess, JobStep};
use crate::jobs::launch::Launched;
use crate::jobs::slot::{Chance, Slot};
use crate::jobs::unit::{JobContext, Runs, Unit};
use crate::limits::Moment;
use crate::logging::pool_output::PoolOutput;
use crate::processes::script_children::EndedScript;

/// The number of a unit. No other unit of this program has had it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnitNumber(
    /// Counted from 1.
    pub u64,
);

impl Unit {
    /// A process was started. The end of an earlier one with its number is held no longer.
    pub fn add_process(&mut self, launched: Launched, output: PoolOutput, context: &JobContext) {
        let Launched { pid, uid } = launched;
        // A group without members: the kernel reuses no number of another.
        let _ = self.settle(pid, context);
        self.outputs.insert(pid, output);
        self.users.insert(pid, uid);
    }

    /// All its processes that were not reaped.
    pub fn processes(&self) -> Vec<&JobProcess> {
        let is_here = |process: &&JobProcess| !self.was_reaped(process.pid);
        match &self.runs {
            Runs::Always(slots) => slots.iter().flat_map(Slot::processes).filter(is_here).collect(),
            Runs::Timed { timer, .. } => timer.process().into_iter().filter(is_here).collect(),
        }
    }

    /// The ids of all its processes that were not reaped, the probe's included.
    pub fn pids(&self) -> impl Iterator<Item = i32> {
        let probe = self.probe().filter(|pid| !self.was_reaped(*pid));
        let processes = self.processes().into_iter().map(|process| process.pid);
        processes.chain(probe)
    }

    /// Whether the end of a process of its own with this number is held.
    pub fn was_reaped(&self, pid: i32) -> bool {
        self.reaped.contains_key(&pid)
    }

    /// A process was reaped. Whether it was one of its own.
    pub fn reap(&mut self, pid: i32, how: HowEnded) -> bool {
        let is_its = self.pids().any(|own| own == pid);
        if is_its {
            self.reaped.insert(pid, how);
        }
        is_its
    }

    /// Whether output of this process, which was reaped, is still to be read.
    pub fn awaits_output(&mut self, pid: i32, now: Moment) -> bool {
        self.was_reaped(pid)
            && self.outputs.get_mut(&pid).is_some_and(|output| !output.is_drained(now))
    }

    /// Acts on the end of a process that was reaped, unless that is done. Returns its group: what
    /// is left in it is to be killed.
    pub fn settle(&mut self, pid: i32, context: &JobContext<'_>) -> Option<EndedScript> {
        let how = self.reaped.remove(&pid)?;
        self.ended(pid, how, context);
        let uid = self.users.remove(&pid)?;
        Some(EndedScript { worker: pid, uid, since: Duration::ZERO })
    }

    fn ended(&mut self, pid: i32, how: HowEnded, context: &JobContext<'_>) {
        if self.probe() == Some(pid) {
            self.end_output(pid, context.now);
            return self.probe_ended(how, context);
        }
        let succeeded = how == HowEnded::Exited(0);
        let (now, chance) = (context.now, Chance(fastrand::f64()));
        let end: Option<JobEnd> = match &mut self.runs {
            Runs::Always(slots) => {
                slots.iter_mut().find_map(|slot| slot.ended(pid, succeeded, &self.job, chance, now))
            }
            Runs::Timed { timer, .. } => timer.ended(pid, succeeded, now),
        };
        let Some(end) = end else { return };
        // What it has written is logged before its end.
        self.end_output(pid, now);
        let after = lasted(end.after);
        self.counts.last_exit = Some((how.to_string(), now));
        debug!("{}: process {pid} {how} after {after}", self.name());
        if end.failed {
            self.failed(&format!("{how} after {after}"), end.again_in, context);
        }
    }

    /// Logs the unfinished line of a process that has ended, whose output was read.
    fn end_output(&mut self, pid: i32, now: Moment) {
        let Some(mut output) = self.outputs.remove(&pid) else { return };
        let lines = output.last_words(now);
        self.take_lines(pid, lines);
    }

    /// Sends a process a signal. It cannot be another one: it is our child, and not reaped. One
    /// that is reaped, and whose output is still being read, gets none.
    pub fn signal(&self, step: JobStep) {
        let (pid, signal) = match step {
            JobStep::Start => return,
            JobStep::Stop(pid) | JobStep::Kill(pid) if self.was_reaped(pid) => return,
            JobStep::Stop(pid) => (pid, self.job.stop_signal.parse().unwrap_or(Signal::SIGTERM)),
            JobStep::Kill(pid) => {
                warn!("{}: process {pid} does not end, and is killed", self.name());
                if let Some(group) = Pid::from_raw(pid) {
                    let _ = kill_process_group(group, rustix::process::Signal::KILL);
                }
                (pid, Signal::SIGKILL)
            }
        };
        if let Ok(pidfd) = signals::pidfd(pid) {
            let _ = signals::send_to(pidfd.as_fd(), signal);
        }
    }
}
