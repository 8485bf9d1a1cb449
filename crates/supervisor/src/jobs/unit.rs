//! A command or a schedule with its processes, its output and its counters. The steps that its
//! state machines decide on are carried out here.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use maitred_config::Job;
use maitred_control::episode::{Account, LogThrottle, News};
use maitred_os::fork::HowEnded;
use maitred_scoreboard::Counter;
use maitred_text::humanize::{lasted, plural};
use maitred_timetable::Timetable;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::BorrowedFd;
use tracing::{debug, error, info, warn};

use crate::capacity::auto::CapacityManager;
use crate::jobs::alarm::WallTime;
use crate::jobs::job_process::JobStep;
use crate::jobs::launch;
use crate::jobs::length_probe::{Probed, processes_of};
use crate::jobs::process_ends::UnitNumber;
use crate::jobs::schedule_runs::{Fired, ScheduleRuns};
use crate::jobs::slot::{Chance, Slot};
use crate::limits::{CLOCK_SET_BACK, JOB_CALM, JOB_LAST_LINE_CHARS, JOB_LAST_LINES, Moment};
use crate::logging::pool_output::PoolOutput;
use crate::logging::shared_limit::SharedLimit;
use crate::logging::tenant_pipe::PipeRead;
use crate::logging::text::one_line;
use crate::plan::Plan;
use crate::processes::pipe_orders::ReadReport;
use crate::processes::pools::Pools;
use crate::processes::scoreboards::Scoreboards;
use crate::system::deferred_close;

/// What a unit needs to act.
#[derive(Debug, Clone, Copy)]
pub struct JobContext<'a> {
    /// The configuration, the programs and the control groups.
    pub plan: &'a Plan,
    /// The generations of pools, whose settings the processes get.
    pub pools: &'a Pools,
    /// The counters of the pools.
    pub scoreboards: &'a Scoreboards,
    /// The memory that is free.
    pub capacity: &'a CapacityManager,
    /// Whether processes may be started.
    pub may_start: bool,
    /// The time.
    pub now: Moment,
}

/// The next run of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextRun {
    /// When it is due by its timetable, in seconds since 1970.
    pub due: i64,
    /// When it begins: later by a random delay.
    pub begins: WallTime,
    /// When it was looked up.
    pub found: WallTime,
}

/// What runs, and when.
#[derive(Debug)]
pub enum Runs {
    /// Processes that always run.
    Always(Vec<Slot>),
    /// Runs at certain times. Without a timetable there are none.
    Timed { timer: ScheduleRuns, table: Option<Timetable>, next: Option<NextRun> },
}

/// How often it was started, and how it ended.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub struct JobCounts {
    /// Processes that were started.
    pub starts: u64,
    /// Processes that failed by themselves, or could not be started.
    pub failures: u64,
    /// Runs of a schedule that were left out.
    pub skipped: u64,
    /// How the last process ended, and when.
    pub last_exit: Option<(String, Moment)>,
}

/// A command or a schedule.
#[derive(Debug)]
pub struct Unit {
    /// Its number.
    pub number: UnitNumber,
    /// Its settings.
    pub job: Job,
    /// Its processes.
    pub runs: Runs,
    /// The output of each of its processes, by pid: lines of several must not mix.
    pub outputs: BTreeMap<i32, PoolOutput>,
    /// The user of each of its processes, by pid: the pool may have another one by now.
    pub users: BTreeMap<i32, u32>,
    /// How those of its processes have ended that were reaped, and whose ends are held for their
    /// output, by pid.
    pub reaped: BTreeMap<i32, HowEnded>,
    /// Its counters.
    pub counts: JobCounts,
    /// How its number of processes follows a queue.
    pub probed: Option<Probed>,
    /// It is not wanted any more.
    pub is_retired: bool,
    /// When the run of a schedule that begins next, or began last, was due.
    pub(super) due: Option<i64>,
    /// The limit of log lines of all commands and schedules of its pool.
    limit: SharedLimit,
    last_lines: VecDeque<String>,
    failures: LogThrottle<()>,
    overlaps: LogThrottle<()>,
}

impl Unit {
    /// A job that does not run yet.
    pub fn new(job: &Job, now: Moment, wall: WallTime) -> Unit {
        let runs = match &job.schedule {
            None => Runs::Always((0..processes_of(job, None)).map(|_| Slot::new(now)).collect()),
            Some(_) => Runs::Timed { timer: ScheduleRuns::default(), table: None, next: None },
        };
        let mut unit = Unit::over(job.clone(), runs, BTreeMap::new());
        unit.probe_from(now);
        unit.look_up(None, wall);
        unit
    }

    /// A job whose processes run already.
    pub fn over(job: Job, runs: Runs, outputs: BTreeMap<i32, PoolOutput>) -> Unit {
        Unit {
            number: UnitNumber::default(),
            job,
            runs,
            outputs,
            users: BTreeMap::new(),
            reaped: BTreeMap::new(),
            counts: JobCounts::default(),
            probed: None,
            is_retired: false,
            due: None,
            limit: SharedLimit::default(),
            last_lines: VecDeque::new(),
            failures: LogThrottle::new(JOB_CALM),
            overlaps: LogThrottle::new(JOB_CALM),
        }
    }

    /// Has a limit of log lines that the others of its pool have as well.
    pub fn share(&mut self, limit: &SharedLimit) {
        self.limit = limit.clone();
        self.outputs.values_mut().for_each(|output| output.share(limit));
    }

    /// Whether it is to end.
    pub fn is_retiring(&self) -> bool {
        self.is_retired
    }

    /// Follows the queue from now on, if it is to.
    pub fn probe_from(&mut self, now: Moment) {
        let (Some(_), Runs::Always(slots)) = (&self.job.scaling, &self.runs) else { return };
        let wanted = slots.iter().filter(|slot| !slot.is_retired()).count();
        self.probed = Some(Probed::new(wanted, now));
    }

    /// Other settings hold from now on.
    pub fn change(&mut self, job: &Job, now: Moment, wall: WallTime) {
        self.renew(now);
        let is_scaled_as_before = self.job.scaling == job.scaling;
        self.job = job.clone();
        match &mut self.runs {
            Runs::Always(_) if is_scaled_as_before && job.scaling.is_some() => {}
            Runs::Always(_) => {
                let before = self.probed.as_ref().map(Probed::wanted);
                let processes = processes_of(job, before);
                self.resize(processes, now);
                match &mut self.probed {
                    Some(probed) => probed.begin_again(processes, now),
                    None => self.probe_from(now),
                }
            }
            Runs::Timed { table, .. } => {
                *table = None;
                self.look_up(None, wall);
            }
        }
    }

    /// The run of a schedule that the previous program had found, also if it is due by now.
    pub fn look_up_from(&mut self, due: Option<i64>, wall: WallTime) {
        self.look_up(None, wall);
        let Runs::Timed { next, .. } = &mut self.runs else { return };
        let due = due.and_then(|due| Some((due, u64::try_from(due).ok()?)));
        if let Some((due, seconds)) =
            due.filter(|(due, _)| next.is_some_and(|next| *due < next.due))
        {
            *next = Some(NextRun { due, begins: Duration::from_secs(seconds), found: wall });
        }
    }

    /// `pool shop: command mails`.
    pub fn name(&self) -> String {
        format!("pool {}: {} {}", self.job.pool, self.job.kind(), self.job.name)
    }

    /// Finds the next run of a schedule after the last one, which was due at `last`.
    pub fn look_up(&mut self, last: Option<i64>, wall: WallTime) {
        let (Runs::Timed { table, next, .. }, Some(schedule)) =
            (&mut self.runs, &self.job.schedule)
        else {
            return;
        };
        if table.is_none() {
            match schedule.timetable() {
                Ok(found) => *table = Some(found),
                Err(why) => {
                    let Job { pool, name, .. } = &self.job;
                    error!("pool {pool}: schedule {name} has no runs: its time {why}");
                }
            }
        }
        let now = i64::try_from(wall.as_secs()).unwrap_or(i64::MAX);
        let set_back = i64::try_from(CLOCK_SET_BACK.as_secs()).unwrap_or(0);
        let last = last.filter(|last| *last < now.saturating_add(set_back));
        let due = table.as_ref().and_then(|table| table.next(last.unwrap_or(now).max(now)));
        *next = due.map(|due| {
            let delay = schedule.jitter.mul_f64(fastrand::f64());
            let at = Duration::from_secs(u64::try_from(due).unwrap_or(0));
            NextRun { due, begins: at.saturating_add(delay), found: wall }
        });
    }

    /// The next run of a schedule.
    pub fn next_run(&self) -> Option<NextRun> {
        match &self.runs {
            Runs::Timed { next, .. } if !self.is_retired => *next,
            Runs::Timed { .. } | Runs::Always(_) => None,
        }
    }

    /// One run begins for those of a schedule that were due after `last`, in seconds since 1970.
    pub fn make_up(&mut self, last: i64, wall: WallTime) {
        let Runs::Timed { table: Some(table), .. } = &self.runs else { return };
        let missed = table.next(last);
        self.look_up_from(missed, wall);
    }

    /// The run of a schedule that is due, if one is: when it was due, in seconds since 1970. With a
    /// clock that was set, the next run is looked up again.
    pub fn due_run(&mut self, wall: WallTime) -> Option<i64> {
        let next = self.next_run()?;
        if wall < next.begins {
            let back = next.found.saturating_sub(wall);
            let is_back = back > CLOCK_SET_BACK;
            if is_back || !back.is_zero() && self.leaves_out_runs(next.due, wall) {
                self.look_up(None, wall);
            }
            return None;
        }
        self.look_up(Some(next.due), wall);
        Some(next.due)
    }

    /// Whether a schedule that is no time of the day leaves out more than one run until this one.
    /// One may be left out, so that a clock that is set back by seconds repeats none.
    fn leaves_out_runs(&self, due: i64, wall: WallTime) -> bool {
        let Runs::Timed { table: Some(table), .. } = &self.runs else { return false };
        let now = i64::try_from(wall.as_secs()).unwrap_or(i64::MAX);
        let second = table.next(now).and_then(|first| table.next(first));
        !table.is_fixed() && second.is_some_and(|second| second < due)
    }

    /// Begins a run of a schedule that was due at this time, in seconds since 1970, as its last one
    /// allows.
    pub fn begin_run(&mut self, due: i64, context: &JobContext<'_>) {
        let (Runs::Timed { timer, .. }, Some(schedule)) = (&mut self.runs, &self.job.schedule)
        else {
            return;
        };
        if timer.fire(schedule.overlap) != Fired::Skipped {
            self.due = Some(due);
        } else {
            self.leave_out(context);
            if self.overlaps.happened(context.now, |()| {}) == 1 {
                warn!("{} is due while its last run goes on: it is left out", self.name());
            }
        }
    }

    /// Counts a run of a schedule that is left out.
    pub fn leave_out(&mut self, context: &JobContext<'_>) {
        self.counts.skipped += 1;
        context.scoreboards.count(&self.job.pool, Counter::ScheduleRunsSkipped);
    }

    /// Carries out what is due, in at most this many steps. Returns how many are left.
    pub fn keep(&mut self, steps: usize, context: &JobContext<'_>) -> usize {
        let mut left = steps;
        while left > 0 {
            let Some((slot, step)) = self.next_step(context) else { break };
            left -= 1;
            match step {
                JobStep::Start => self.start(slot, context),
                step => self.signal(step),
            }
        }
        if let Runs::Always(slots) = &mut self.runs {
            slots.retain(|slot| !slot.is_gone());
        }
        if self.keep_probe(context, left > 0) {
            left -= 1;
        }
        self.log_dropped(context.now);
        self.log_episodes(context.now);
        left
    }

    fn next_step(&mut self, context: &JobContext<'_>) -> Option<(usize, JobStep)> {
        let JobContext { may_start, now, .. } = *context;
        match &mut self.runs {
            Runs::Always(slots) => {
                let mut slots = slots.iter_mut().enumerate();
                slots.find_map(|(number, slot)| Some((number, slot.due(may_start, now)?)))
            }
            Runs::Timed { timer, .. } => {
                timer.due(self.job.stop_timeout, may_start, now).map(|step| (0, step))
            }
        }
    }

    fn start(&mut self, slot: usize, context: &JobContext<'_>) {
        let now = context.now;
        let (name, pool) = (self.name(), self.job.pool.clone());
        let chance = Chance(fastrand::f64());
        let started = new_output(&pool).and_then(|mut output| {
            output.share(&self.limit);
            let launched = launch::start(&self.job, self.due, context, output.writer())?;
            Ok((launched, output))
        });
        let is_schedule = self.job.schedule.is_some();
        match started {
            Ok((launched, output)) => {
                let pid = launched.pid;
                self.add_process(launched, output, context);
                debug!("{name}: process {pid} runs");
                self.counts.starts += 1;
                let counter =
                    if is_schedule { Counter::ScheduleRuns } else { Counter::CommandStarts };
                context.scoreboards.count(&pool, counter);
                let step = match (&mut self.runs, &self.job.schedule) {
                    (Runs::Always(slots), _) => slots
                        .get_mut(slot)
                        .and_then(|slot| slot.started(pid, &self.job, chance, now)),
                    (Runs::Timed { timer, .. }, Some(schedule)) => {
                        timer.started(pid, schedule, now);
                        None
                    }
                    (Runs::Timed { .. }, None) => None,
                };
                step.into_iter().for_each(|step| self.signal(step));
            }
            Err(why) => {
                let again = match &mut self.runs {
                    Runs::Always(slots) => {
                        slots.get_mut(slot).map(|slot| slot.start_failed(&self.job, chance, now))
                    }
                    Runs::Timed { .. } => None,
                };
                self.failed(&format!("cannot be started: {why}"), again, context);
            }
        }
    }

    /// Counts a failure, and logs the first one of an episode with the last lines of output.
    pub(super) fn failed(&mut self, how: &str, again: Option<Duration>, context: &JobContext<'_>) {
        self.counts.failures += 1;
        let counter = match self.job.schedule {
            Some(_) => Counter::ScheduleRunsFailed,
            None => Counter::CommandFailures,
        };
        context.scoreboards.count(&self.job.pool, counter);
        if self.failures.happened(context.now, |()| {}) != 1 {
            return;
        }
        let again = again.map(|wait| format!("; it is started again in {}", lasted(wait)));
        let lines: Vec<&str> = self.last_lines.iter().map(String::as_str).collect();
        let lines = match lines.is_empty() {
            true => String::new(),
            false => format!("; the last lines of its output: {}", lines.join(" | ")),
        };
        error!("{} {how}{}{lines}", self.name(), again.unwrap_or_default());
    }

    /// Logs how many lines were dropped where that is due, also of processes that print no more.
    fn log_dropped(&mut self, now: Moment) {
        let outputs = self.outputs.values_mut();
        let counts = outputs.filter_map(|output| output.dropped(now)).chain(self.limit.due(now));
        for count in counts {
            warn!("pool {}: commands and schedules: {count}", self.job.pool);
        }
    }

    fn log_episodes(&mut self, now: Moment) {
        if self.failures.is_quiet() && self.overlaps.is_quiet() {
            return;
        }
        let name = self.name();
        let times = |account: &Account<()>| plural(account.times, "time");
        match self.failures.due(now) {
            Some(News::GoesOn(account)) => {
                let lasts = lasted(account.lasted);
                error!("{name} has failed {} within {lasts}", times(&account));
            }
            Some(News::Over(account)) if account.times > 1 => {
                let lasts = lasted(account.lasted);
                info!("{name} fails no longer; it has failed {} within {lasts}", times(&account));
            }
            Some(News::Over(_)) | None => {}
        }
        match self.overlaps.due(now) {
            Some(News::GoesOn(account) | News::Over(account)) if account.times > 1 => {
                warn!("{name}: {} left out, since the last one went on", times(&account));
            }
            _ => {}
        }
    }

    /// The pipes of its processes that can be polled, by their numbers.
    pub fn pipes(&self, now: Moment) -> impl Iterator<Item = (u64, BorrowedFd<'_>)> {
        let outputs = self.outputs.values();
        outputs.filter_map(move |output| Some((output.number(), output.listening(now)?)))
    }

    /// The pipes with one of these numbers are to be read.
    pub fn order_reads<'a>(&'a mut self, ready: &'a [u64]) -> impl Iterator<Item = PipeRead> + 'a {
        let is_ready = |output: &&mut PoolOutput| ready.contains(&output.number());
        self.outputs.values_mut().filter(is_ready).map(PoolOutput::order)
    }

    /// A pipe was read: logs the output. False if it is none of these.
    pub fn take_read(&mut self, read: &ReadReport, now: Moment) -> bool {
        let mut outputs = self.outputs.iter_mut();
        let found = outputs.find(|(_, output)| output.number() == read.number);
        let Some((pid, output)) = found else { return false };
        let (pid, lines) = (*pid, output.take(&read.outcome, now));
        self.take_lines(pid, lines);
        true
    }

    /// What a process has printed: that of the probe is a number.
    pub(super) fn take_lines(&mut self, pid: i32, lines: Vec<String>) {
        match self.probed.as_mut().filter(|probed| probed.pid() == Some(pid)) {
            Some(probed) => probed.printed(lines),
            None => self.log_lines(lines),
        }
    }

    fn log_lines(&mut self, lines: Vec<String>) {
        let name = self.name();
        for line in lines {
            if self.last_lines.len() >= JOB_LAST_LINES {
                self.last_lines.pop_front();
            }
            self.last_lines.push_back(line.chars().take(JOB_LAST_LINE_CHARS).collect());
            info!("{name}: {}", one_line(&line));
        }
    }

    /// A reload: its processes are replaced.
    pub fn renew(&mut self, now: Moment) {
        let Runs::Always(slots) = &mut self.runs else { return };
        let steps: Vec<JobStep> =
            slots.iter_mut().filter_map(|slot| slot.renew(&self.job, now)).collect();
        steps.into_iter().for_each(|step| self.signal(step));
    }

    /// It is not wanted any more: its processes are stopped.
    pub fn retire(&mut self, now: Moment) {
        self.is_retired = true;
        self.kill_probe();
        let steps: Vec<JobStep> = match &mut self.runs {
            Runs::Always(slots) => {
                slots.iter_mut().filter_map(|slot| slot.retire(&self.job, now)).collect()
            }
            Runs::Timed { timer, .. } => {
                timer.retire(self.job.stop_timeout, now).into_iter().collect()
            }
        };
        steps.into_iter().for_each(|step| self.signal(step));
    }

    /// Whether nothing of it is left.
    pub fn is_gone(&self) -> bool {
        let is_gone = match &self.runs {
            Runs::Always(slots) => slots.iter().all(Slot::is_gone),
            Runs::Timed { timer, .. } => timer.is_gone(),
        };
        let is_probing = self.probed.as_ref().is_some_and(|probed| probed.pid().is_some());
        self.is_retired && is_gone && !is_probing
    }

    /// When something is due by the monotonic clock.
    pub fn deadline(&self, may_start: bool, now: Moment) -> Option<Moment> {
        let own = match &self.runs {
            Runs::Always(slots) => slots.iter().filter_map(|slot| slot.deadline(may_start)).min(),
            Runs::Timed { timer, .. } => timer.deadline(may_start),
        };
        let outputs = self.outputs.values().filter_map(|output| output.deadline(now));
        let logged = [self.failures.deadline(), self.overlaps.deadline(), self.limit.deadline()];
        let may_probe = may_start && !self.is_retired;
        let probe = self.probed.as_ref().and_then(|probed| probed.deadline(may_probe));
        own.into_iter().chain(probe).chain(outputs).chain(logged.into_iter().flatten()).min()
    }
}

/// A pipe for the output of a process of this pool. Our end does not block. Theirs does: programs
/// lose output that does not fit otherwise.
pub fn new_output(pool: &str) -> Result<PoolOutput, String> {
    deferred_close::check(pool)?;
    let made = pipe_with(PipeFlags::CLOEXEC).and_then(|(reader, writer)| {
        fcntl_setfl(&reader, OFlags::NONBLOCK)?;
        Ok(PoolOutput::over(reader, writer, pool))
    });
    made.map_err(|why| format!("a pipe cannot be made: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use maitred_config::{Missed, Overlap, Schedule};
    use maitred_timetable::{TimeOfDay, When};

    const DAY: u64 = 1_800_057_600;

    /// When the next run is due after a clock that had this time was set to another, in seconds
    /// after midnight UTC.
    fn due(when: When, had: u64, set_to: u64) -> u64 {
        let schedule = Schedule {
            when,
            timezone: Some("UTC".to_owned()),
            overlap: Overlap::Skip,
            timeout: Duration::ZERO,
            jitter: Duration::ZERO,
            missed: Missed::Skip,
            one_node: false,
        };
        let job = Job { schedule: Some(schedule), ..Job::default() };
        let wall = |seconds: u64| Duration::from_secs(DAY + seconds);
        let mut unit = Unit::new(&job, Moment::ZERO, wall(had));
        assert_eq!(unit.due_run(wall(set_to)), None);
        u64::try_from(unit.next_run().unwrap().due).unwrap() - DAY
    }

    #[test]
    fn a_clock_that_is_set_back_is_followed_by_frequent_runs_and_repeats_none_of_a_time_of_day() {
        let hour = 3600;
        let every = |seconds| When::Every(Duration::from_secs(seconds));
        let cron = |line: &str| When::Cron(line.to_owned());
        let daily = || When::At(vec![TimeOfDay::parse("13:10").unwrap()]);
        assert_eq!(due(every(60), 12 * hour + 30, 10 * hour + 30), 10 * hour + 60);
        assert_eq!(due(cron("*/5 * * * *"), 12 * hour, 10 * hour), 10 * hour + 300);
        assert_eq!(due(cron("7 * * * *"), 12 * hour, 9 * hour + 60), 9 * hour + 420);
        assert_eq!(due(daily(), 12 * hour, 10 * hour), 13 * hour + 600);
        assert_eq!(due(cron("0,10 13 * * *"), 13 * hour + 601, 11 * hour), 37 * hour);
        assert_eq!(due(daily(), 14 * hour, 10 * hour), 13 * hour + 600, "it is far back");
    }

    #[test]
    fn a_clock_that_is_set_back_by_less_than_an_interval_repeats_no_run() {
        let every = |seconds| When::Every(Duration::from_secs(seconds));
        assert_eq!(due(every(60), 7230, 7199), 7260);
        assert_eq!(due(every(3600), 7230, 7000), 10_800);
        assert_eq!(due(every(3 * 3600), 3 * 3600 + 30, 3600), 6 * 3600);
        assert_eq!(due(every(60), 7230, 7231), 7260, "it goes forward");
    }
}
