//! The probe of a command: a process that prints the length of a queue now and then.

use maitred_config::{Job, Scaling};
use maitred_os::fork::HowEnded;
use rustix::process::{Pid, kill_process_group};
use tracing::{info, warn};

use crate::jobs::launch;
use crate::jobs::process_count::{Scale, length_of};
use crate::jobs::slot::Slot;
use crate::jobs::unit::{JobContext, Runs, Unit, new_output};
use crate::limits::{JOB_PROBE_LINES, JOB_PROBE_TIMEOUT, Moment};

/// The state of a command whose number of processes follows a queue.
#[derive(Debug)]
pub struct Probed {
    scale: Scale,
    next: Moment,
    run: Option<ProbeRun>,
    is_failing: bool,
}

/// A run of the probe.
#[derive(Debug)]
struct ProbeRun {
    pid: i32,
    since: Moment,
    is_killed: bool,
    lines: Vec<String>,
}

impl Probed {
    /// A command that has this many processes.
    pub fn new(wanted: usize, now: Moment) -> Probed {
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        Probed { scale: Scale::new(wanted, now), next: now, run: None, is_failing: false }
    }

    /// Other settings hold for a command that has this many processes. A run of the probe goes on.
    pub fn begin_again(&mut self, wanted: usize, now: Moment) {
        *self = Probed { run: self.run.take(), ..Probed::new(wanted, now) };
    }

    /// The process of the probe.
    pub fn pid(&self) -> Option<i32> {
        self.run.as_ref().map(|run| run.pid)
    }

    /// Processes that are to run.
    pub fn wanted(&self) -> u32 {
        self.scale.wanted()
    }

    /// Takes what the probe has printed; the first lines are left out if there are many.
    pub fn printed(&mut self, lines: Vec<String>) {
        if let Some(run) = &mut self.run {
            run.lines.extend(lines);
            run.lines.drain(..run.lines.len().saturating_sub(JOB_PROBE_LINES));
        }
    }

    /// When something is due, without an event.
    pub fn deadline(&self, may_start: bool) -> Option<Moment> {
        match &self.run {
            Some(run) => (!run.is_killed).then(|| run.since + JOB_PROBE_TIMEOUT),
            None => may_start.then_some(self.next),
        }
    }
}

/// The processes of a command with these settings that had this many `before`, by a queue.
pub fn processes_of(job: &Job, before: Option<u32>) -> usize {
    let count = job.scaling.as_ref().map_or(job.processes, |scaling| {
        let Scaling { min_processes, max_processes, .. } = *scaling;
        before.map_or(min_processes, |before| before.min(max_processes).max(min_processes))
    });
    usize::try_from(count).unwrap_or(usize::MAX)
}

impl Unit {
    /// The process of the probe.
    pub fn probe(&self) -> Option<i32> {
        self.probed.as_ref().and_then(Probed::pid)
    }

    /// Kills the probe, if it runs.
    pub fn kill_probe(&mut self) {
        let run = self.probed.as_mut().and_then(|probed| probed.run.as_mut());
        let Some(run) = run.filter(|run| !run.is_killed) else { return };
        run.is_killed = true;
        // It is our child, and not reaped: it cannot be another group.
        if !self.reaped.contains_key(&run.pid)
            && let Some(group) = Pid::from_raw(run.pid)
        {
            let _ = kill_process_group(group, rustix::process::Signal::KILL);
        }
    }

    /// Starts the probe when it is due, unless this turn has no step left for that, and ends one
    /// that takes too long. Returns whether it has started one.
    pub fn keep_probe(&mut self, context: &JobContext<'_>, has_step: bool) -> bool {
        let may_start = context.may_start && !self.is_retired;
        let Some(probed) = &mut self.probed else { return false };
        if probed.deadline(may_start).is_none_or(|due| due > context.now) {
            return false;
        }
        if probed.run.is_some() {
            self.kill_probe();
            return false;
        }
        let Some(Scaling { probe, interval, .. }) = &self.job.scaling else {
            // It follows no queue any more.
            self.probed = None;
            return false;
        };
        if !has_step {
            return false;
        }
        probed.next = context.now.saturating_add(*interval);
        let job = Job { command: probe.clone(), ..self.job.clone() };
        let started = new_output(&job.pool).and_then(|output| {
            let started = launch::start(&job, None, context, output.writer())?;
            Ok((started, output))
        });
        match started {
            Ok((launched, output)) => {
                let (pid, since, lines) = (launched.pid, context.now, Vec::new());
                self.add_process(launched, output, context);
                if let Some(probed) = &mut self.probed {
                    probed.run = Some(ProbeRun { pid, since, is_killed: false, lines });
                }
            }
            Err(why) => self.probe_failed(&format!("cannot be started: {why}")),
        }
        true
    }

    /// The probe has ended, and its output was read.
    pub fn probe_ended(&mut self, how: HowEnded, context: &JobContext<'_>) {
        let Some(probed) = &mut self.probed else { return };
        let Some(run) = probed.run.take() else { return };
        let length = match how {
            HowEnded::Exited(0) => length_of(&run.lines),
            _ if run.is_killed => {
                Err(format!("printed no number within {} s", JOB_PROBE_TIMEOUT.as_secs()))
            }
            _ => Err(format!("{how}: {}", run.lines.last().map_or("", String::as_str))),
        };
        let (length, scaling) = match (length, &self.job.scaling) {
            (_, None) => return,
            (Err(_), _) if self.is_retired => return,
            (Err(why), _) => return self.probe_failed(&why),
            (Ok(length), Some(scaling)) => (length, scaling),
        };
        let room = context.capacity.more_processes(&self.job.pool, &self.job.name);
        let before = probed.scale.wanted();
        let wanted = probed.scale.measured(length, scaling, room, context.now);
        if std::mem::take(&mut probed.is_failing) {
            info!("{}: its probe prints the length of the queue again", self.name());
        }
        if wanted != before {
            info!("{}: {length} jobs wait; {wanted} processes, {before} before", self.name());
        }
        self.resize(usize::try_from(wanted).unwrap_or(usize::MAX), context.now);
    }

    fn probe_failed(&mut self, why: &str) {
        let name = self.name();
        let Some(probed) = &mut self.probed else { return };
        if !std::mem::replace(&mut probed.is_failing, true) {
            let stays = probed.scale.wanted();
            warn!("{name}: its probe {why}; it stays at {stays} processes");
        }
    }

    /// Has this many processes run from now on.
    pub fn resize(&mut self, processes: usize, now: Moment) {
        let Runs::Always(slots) = &mut self.runs else { return };
        let wanted = slots.iter().filter(|slot| !slot.is_retired()).count();
        slots.extend((wanted..processes).map(|_| Slot::new(now)));
        let surplus = slots.iter_mut().filter(|slot| !slot.is_retired()).skip(processes);
        let steps: Vec<_> = surplus.filter_map(|slot| slot.retire(&self.job, now)).collect();
        steps.into_iter().for_each(|step| self.signal(step));
    }
}
