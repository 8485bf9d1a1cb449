//! Executes a course: changes settings, measures, and restores everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use maitred_doctor::MemoryGroup;
use maitred_measure::arrivals::{Profile, Spacing};
use maitred_measure::clock;
use maitred_measure::generate::{self, Measured};
use maitred_measure::outcome::Class;
use maitred_measure::outside::OwnProcesses;
use maitred_measure::plan::{Load as Sends, Plan, Think};
use maitred_measure::report::{MAX_LATE_SHARE, Report};
use maitred_measure::slo::Slo;

use crate::course::{Course, IdleSample, NextStep, WorkerStart};
use crate::danger::MemoryDanger;
use crate::measurement::{Load, Measurement, Setting, Task, TaskLimits};
use crate::php_memory;
use crate::processes::{self, CpuTimes};
use crate::target::Target;
use crate::timeline::{Stalls, Timeline, memory_in_use};
use crate::workload::{Prober, Workload};

/// Most connections of an open loop: further ones would only wait.
const CONNECTIONS: usize = 4_096;

/// A server is idle when a page takes at most this multiple of its time alone.
const AT_REST: f64 = 2.0;

/// How often to check whether it is.
const LOOK: Duration = Duration::from_millis(20);

/// Longest name of a cause in the report.
const MAX_CAUSE: usize = 200;

/// Why a course was aborted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Abort {
    /// The user has stopped it. Everything is restored.
    Stopped,
    /// An error, as a message.
    Failed(String),
}

/// How long the first responses after a start took, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct FirstResponses {
    first: f64,
    /// `None` if only one page was requested.
    second: Option<f64>,
}

impl FirstResponses {
    /// Adds a response; the third and later ones are ignored.
    fn and(earlier: Option<FirstResponses>, took: f64) -> FirstResponses {
        match earlier {
            None => FirstResponses { first: took, second: None },
            Some(earlier) => FirstResponses { second: earlier.second.or(Some(took)), ..earlier },
        }
    }
}

/// What a measurement needs to know of the tuning.
#[derive(Debug, Clone)]
pub(crate) struct LoadContext {
    /// The goal.
    pub(crate) slo: Slo,
    /// The seed of random numbers.
    pub(crate) seed: u64,
    /// The usual latency of the first page, in seconds.
    pub(crate) rest: Option<f64>,
}

impl LoadContext {
    fn of(course: &Course) -> LoadContext {
        let goal = course.goal.as_ref();
        LoadContext {
            slo: goal.map_or_else(Slo::default, |goal| goal.slo.clone()),
            seed: course.input.seed,
            rest: course.rest(),
        }
    }
}

/// The outcome after the settings were restored, or were not.
pub(crate) fn with_restored(
    done: Result<(), Abort>,
    restored: Result<(), String>,
) -> Result<(), Abort> {
    match (done, restored) {
        (done, Ok(())) => done,
        (Err(Abort::Failed(why)), Err(further)) if !why.contains(&further) => {
            Err(Abort::Failed(format!("{why}; {further}")))
        }
        (Err(Abort::Failed(why)), Err(_)) | (_, Err(why)) => Err(Abort::Failed(why)),
    }
}

/// Executes courses.
pub struct Runner<'a> {
    /// The server.
    pub target: &'a mut Target,
    /// The requests.
    pub workload: &'a Workload,
    /// Requests single pages.
    pub prober: &'a mut Prober,
    /// Set to stop.
    pub stop: &'a Arc<AtomicBool>,
    /// Queries PHP's memory counts.
    pub counts: php_memory::PhpMemoryProbe<'a>,
    /// The start of the tuning.
    pub began: Instant,
    /// Gets the current step, and the remaining time in seconds.
    pub progress: &'a mut dyn FnMut(&str, f64),
}

impl Runner<'_> {
    /// Executes the course to its end or until an error. Afterwards the settings are restored, or
    /// the error says that they are not.
    ///
    /// # Errors
    /// Why it was aborted.
    pub fn run(&mut self, course: &mut Course) -> Result<(), Abort> {
        let mut watch = Timeline::begin();
        let done = self.steps(course, &mut watch);
        course.moments = watch.moments;
        with_restored(done, self.target.restore())
    }

    fn steps(&mut self, course: &mut Course, watch: &mut Timeline) -> Result<(), Abort> {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Abort::Stopped);
            }
            course.at(self.began.elapsed().as_secs_f64());
            match course.next() {
                NextStep::Over => return Ok(()),
                NextStep::Idle(seconds) => {
                    (self.progress)("observing the machine", course.left());
                    let rest = IdleSample {
                        outside: self.idle(seconds),
                        stalls: Stalls::now(),
                        memory: memory_in_use(),
                    };
                    course.idled(rest);
                }
                NextStep::Measure(task) => {
                    (self.progress)(&words(&task), course.left());
                    if !self.get_ready(&task, course)? {
                        course.leave_out();
                        continue;
                    }
                    let seen = self.measure(&task, &LoadContext::of(course), watch)?;
                    course.seen(seen);
                }
            }
        }
    }

    /// The share of the processors that other processes use without load.
    fn idle(&self, seconds: f64) -> Option<f64> {
        let ours = OwnProcesses::of(&self.workload.plan.endpoints, &[self.target.master()])?;
        let before = ours.look()?;
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        while Instant::now() < until && !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
        }
        ours.outside(&before)
    }

    /// Applies the task's setting, and waits until the server is idle. Returns `false` if there is
    /// no time to wait for that.
    fn get_ready(&mut self, task: &Task, course: &mut Course) -> Result<bool, Abort> {
        let before = self.target.now();
        let began = Instant::now();
        self.target.set(task.setting).map_err(Abort::Failed)?;
        if before != task.setting {
            course.reloaded(began.elapsed().as_secs_f64());
        }
        if before == task.setting && !task.limits.checks_idle {
            return Ok(true);
        }
        let cpu = CpuTimes::of(&self.target.workers()).each();
        let Some(responses) = self.come_to_rest(course, &task.limits)? else {
            return Ok(false);
        };
        if before != task.setting && (task.limits.times_second || responses.second.is_some()) {
            let limit = Duration::from_secs_f64(task.limits.page);
            let second = responses.second.or_else(|| {
                let (endpoint, url) = &self.workload.first;
                let received = self.prober.get_within(endpoint, url, limit, self.stop);
                received.ok().map(|(_, took)| took)
            });
            course.booted(WorkerStart { cpu, first: responses.first, second });
        }
        Ok(true)
    }

    /// Makes a measurement with the current setting.
    pub(crate) fn measure(
        &mut self,
        task: &Task,
        context: &LoadContext,
        watch: &mut Timeline,
    ) -> Result<Measurement, Abort> {
        let plan = Arc::new(plan(&self.workload.plan, task, context.seed));
        let ours = OwnProcesses::of(&plan.endpoints, &[self.target.master()]);
        let before = ours.as_ref().and_then(OwnProcesses::look);
        let pids = self.target.workers();
        let counted = self.counts.before(task);
        processes::forget_peaks(&pids);
        let cpu_times = CpuTimes::of(&pids);
        let mut later = cpu_times.clone();
        let measured = self.send(&plan, watch, &mut later)?;
        let outside = ours.zip(before).and_then(|(ours, before)| ours.outside(&before));
        let pids = self.target.workers();
        later.look_again(CpuTimes::of(&pids));
        let used = later.since(&cpu_times);
        let all = measured.total.count(Class::Served) + measured.warm_up.count(Class::Served);
        let memory = processes::memory(&pids);
        let each =
            used.filter(|_| all > 0).map(|(cpu, wait)| (cpu / all as f64, wait / all as f64));
        let report = Report::of(&plan, &measured, &context.slo);
        let peak = processes::peak(&pids);
        Ok(Measurement {
            counted: self.counts.since(counted),
            cpu: each.map(|(cpu, _)| cpu),
            core_wait: each.map(|(_, wait)| wait),
            workers: match task.setting {
                Setting::Workers(workers) => workers,
                Setting::AsItWas | Setting::Php(_) | Setting::OpcacheOff => pids.len() as u32,
            },
            private: memory.private,
            typical: memory.typical,
            peak,
            resident: memory.resident,
            outside,
            recovery: match task.limits.recovery {
                Some(seconds) => self.recovery(context, seconds)?,
                None => None,
            },
            ..of(&report)
        })
    }

    /// Sends the load of the plan. Ends at once if the user stops it, or the machine runs out of
    /// memory.
    fn send(
        &mut self,
        plan: &Arc<Plan>,
        watch: &mut Timeline,
        cpu_times: &mut CpuTimes,
    ) -> Result<Measured, Abort> {
        let halt = Arc::new(AtomicBool::new(false));
        let (target, stop) = (&*self.target, self.stop);
        // Workers may have a control group with a limit of their own.
        let first = target.workers().first().copied();
        let group = MemoryGroup::of(first.unwrap_or(target.master()));
        let before = MemoryDanger::now(group.as_ref());
        let mut danger = None;
        let measured = generate::run(plan, &halt, &mut |progress| {
            // Workers of a dynamic pool start and end.
            let pids = target.workers();
            cpu_times.look_again(CpuTimes::of(&pids));
            watch.see(progress.second, pids.len());
            danger = danger.or_else(|| MemoryDanger::now(group.as_ref()).since(&before));
            if danger.is_some() || stop.load(Ordering::Relaxed) {
                halt.store(true, Ordering::Relaxed);
            }
        });
        let measured = measured.map_err(Abort::Failed)?;
        if self.stop.load(Ordering::Relaxed) {
            return Err(Abort::Stopped);
        }
        match danger.or_else(|| MemoryDanger::now(group.as_ref()).since(&before)) {
            Some(danger) => Err(Abort::Failed(format!(
                "{danger} while the pool was set to {}: the tuning was aborted, and everything is \
                 restored; give the server more memory, or limit the workers with --most-workers",
                self.target.now().words()
            ))),
            None => Ok(measured),
        }
    }

    /// How long the server takes until it is idle, in seconds; `None` if that takes longer than the
    /// limit.
    fn recovery(&mut self, context: &LoadContext, seconds: f64) -> Result<Option<f64>, Abort> {
        let (endpoint, url) = &self.workload.first;
        let limit = Duration::from_secs_f64(seconds);
        let began = Instant::now();
        while began.elapsed() < limit {
            let left = limit.saturating_sub(began.elapsed());
            let received = self.prober.get_within(endpoint, url, left, self.stop);
            if let Ok((200..=499, took)) = received
                && context.rest.is_none_or(|alone| took <= alone * AT_REST)
            {
                return Ok(Some(began.elapsed().as_secs_f64()));
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(Abort::Stopped);
            }
            std::thread::sleep(LOOK);
        }
        Ok(None)
    }

    /// Waits until the site responds, and for a limited time until the queue of an earlier load has
    /// drained. Returns how long the first responses took; `None` if the time was too short to
    /// conclude that the site does not respond any more.
    fn come_to_rest(
        &mut self,
        course: &Course,
        limits: &TaskLimits,
    ) -> Result<Option<FirstResponses>, Abort> {
        let (endpoint, url) = &self.workload.first;
        let [patience, page, response] =
            [limits.rest, limits.page, limits.response].map(Duration::from_secs_f64);
        let began = Instant::now();
        let alone = course.rest();
        let (mut responses, mut last) = (None, String::new());
        loop {
            match self.prober.get_within(endpoint, url, page, self.stop) {
                Ok((status, took)) if status < 500 => {
                    let so_far = FirstResponses::and(responses, took);
                    let rests = alone.is_none_or(|alone| took <= alone * AT_REST);
                    if rests || began.elapsed() >= patience {
                        return Ok(Some(so_far));
                    }
                    responses = Some(so_far);
                }
                Ok((status, _)) => last = format!("it returns {status}"),
                Err(why) => last = why,
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(Abort::Stopped);
            }
            if began.elapsed() > response {
                if limits.is_cut {
                    return Ok(None);
                }
                return Err(Abort::Failed(format!("{url} does not respond any more: {last}")));
            }
            std::thread::sleep(LOOK);
        }
    }
}

fn words(task: &Task) -> String {
    let load = match task.load {
        Load::Users(users) => maitred_text::humanize::plural(u64::from(users), "user"),
        Load::Rate(rate) => format!("{}/s", maitred_text::humanize::digits(rate)),
    };
    format!("{}: {load}, {}", task.what, task.setting.words())
}

fn plan(like: &Plan, task: &Task, seed: u64) -> Plan {
    let load = match task.load {
        Load::Users(users) => {
            Sends::Closed { users: users as usize, think: Think::Nothing, ramp: 0, requests: None }
        }
        Load::Rate(rate) => Sends::Open {
            profile: Profile::constant(rate, task.seconds + task.warm_up),
            spacing: Spacing::Poisson,
            connections: CONNECTIONS.min(maitred_measure::usage::descriptors() as usize),
        },
    };
    Plan {
        load,
        duration: clock::nanos(task.seconds + task.warm_up),
        warm_up: clock::nanos(task.warm_up),
        timeout: clock::nanos(task.limits.timeout),
        seed,
        requests: match task.route {
            Some(at) => like.requests.get(at).cloned().into_iter().collect(),
            None => like.requests.clone(),
        },
        ..like.clone()
    }
}

/// The results of a report, without those of the server's processes.
fn of(report: &Report) -> Measurement {
    let requests = &report.requests;
    // Waiting for a connection is the server's slowness; a late generator is not.
    let own = requests.late.saturating_sub(requests.late_for_connections);
    let points = report.spectrum.iter();
    let cause = report.causes.first().map(|cause| cause.cause.chars().take(MAX_CAUSE).collect());
    Measurement {
        seconds: report.run.seconds,
        served: requests.served,
        rate: requests.rate,
        goodput: requests.goodput.unwrap_or(requests.rate),
        error_share: requests.error_share,
        refused_share: requests.refused as f64 / requests.sent.max(1) as f64,
        with_retry_after: (requests.refused > 0)
            .then(|| requests.with_retry_after as f64 / requests.refused as f64),
        cause,
        holds: report.valid && report.holds(),
        generator_late: own as f64 > MAX_LATE_SHARE * requests.sent.max(1) as f64,
        p50: report.corrected.p50,
        p90: report.corrected.p90,
        p95: report.corrected.p95,
        p99: report.corrected.p99,
        p999: report.corrected.p99_9,
        mean: report.service.mean,
        bytes: (requests.served > 0).then(|| requests.body_bytes as f64 / requests.served as f64),
        spectrum: points.filter_map(|point| Some((point.percentile, point.corrected?))).collect(),
        ..Measurement::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_answer_is_not_the_one_that_came_when_the_server_was_at_rest() {
        let mut responses = None;
        for took in [0.1, 0.08, 0.06, 0.01] {
            responses = Some(FirstResponses::and(responses, took));
        }
        assert_eq!(responses, Some(FirstResponses { first: 0.1, second: Some(0.08) }));
        assert_eq!(FirstResponses::and(None, 0.01).second, None);
    }
}
