//! Carries a course out: changes settings, measures, and puts everything back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use maitred_measure::arrivals::{Profile, Spacing};
use maitred_measure::clock;
use maitred_measure::generate;
use maitred_measure::outcome::Class;
use maitred_measure::outside::Ours;
use maitred_measure::plan::{Load as Sends, Plan, Think};
use maitred_measure::report::{MAX_LATE_SHARE, Report};
use maitred_measure::slo::Slo;

use crate::course::{Course, Next};
use crate::processes::{self, Clocks};
use crate::seen::{Load, Seen, Setting, Task};
use crate::target::Target;
use crate::workload::{Prober, Workload};

/// Most connections of an open loop: more would only wait.
const CONNECTIONS: usize = 4_096;

/// How long an answer may take, as a multiple of what is in time, and at least, in seconds.
const TIMEOUT: f64 = 4.0;
const LEAST_TIMEOUT: f64 = 2.0;

/// The same before anything is known.
const FIRST_TIMEOUT: f64 = 10.0;

/// How long a server may take until it is at rest again, and until it answers at all after a reload.
const REST: Duration = Duration::from_secs(10);
const RETURN: Duration = Duration::from_secs(60);

/// A server is at rest when a page takes no longer than this multiple of what it took alone.
const AT_REST: f64 = 2.0;

/// How often it is looked whether it is.
const LOOK: Duration = Duration::from_millis(20);

/// Longest name of a cause that is told.
const MAX_CAUSE: usize = 200;

/// Why a course came to no end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// Somebody has stopped it. All is as it was.
    Stopped,
    /// Something is wrong, in a sentence.
    Trouble(String),
}

/// Who measures.
pub struct Runner<'a> {
    /// The server.
    pub target: &'a mut Target,
    /// What is asked for.
    pub workload: &'a Workload,
    /// Who asks for single pages.
    pub prober: &'a mut Prober,
    /// Told to stop.
    pub stop: &'a Arc<AtomicBool>,
    /// Is told what is done now, and how long the rest will take, in seconds.
    pub say: &'a mut dyn FnMut(&str, f64),
}

impl Runner<'_> {
    /// Carries the course out, to its end or until something is wrong. The settings are as they were then,
    /// whatever happens, or it is said that they are not.
    ///
    /// # Errors
    /// Why it came to no end.
    pub fn run(&mut self, course: &mut Course) -> Result<(), Ended> {
        let done = self.steps(course);
        let restored = self.target.restore();
        match (done, restored) {
            (done, Ok(())) => done,
            (Err(Ended::Trouble(why)), Err(further)) if !why.contains(&further) => {
                Err(Ended::Trouble(format!("{why}; {further}")))
            }
            (Err(Ended::Trouble(why)), Err(_)) => Err(Ended::Trouble(why)),
            (_, Err(why)) => Err(Ended::Trouble(why)),
        }
    }

    fn steps(&mut self, course: &mut Course) -> Result<(), Ended> {
        let mut patience = Duration::ZERO;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Ended::Stopped);
            }
            match course.next() {
                Next::Over => return Ok(()),
                Next::Idle(seconds) => {
                    (self.say)("looking at the machine", course.left());
                    let outside = self.idle(seconds);
                    course.idled(outside);
                }
                Next::Measure(task) => {
                    (self.say)(&words(&task), course.left());
                    let seen = self.measure(&task, course, patience)?;
                    course.seen(seen);
                    // Users who wait for their answers leave no queue behind.
                    patience = match task.load {
                        Load::Users(_) => Duration::ZERO,
                        Load::Rate(_) => Duration::from_secs_f64(task.seconds).min(REST),
                    };
                }
            }
        }
    }

    /// What others use of the processors while we ask nothing.
    fn idle(&self, seconds: f64) -> Option<f64> {
        let ours = Ours::of(&self.workload.plan.doors, &[self.target.master()])?;
        let before = ours.look()?;
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        while Instant::now() < until && !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
        }
        ours.outside(&before)
    }

    fn measure(&mut self, task: &Task, course: &Course, patience: Duration) -> Result<Seen, Ended> {
        self.target.set(task.setting).map_err(Ended::Trouble)?;
        self.come_to_rest(course, patience)?;
        let goal = course.goal.as_ref();
        let slo = goal.map_or_else(Slo::default, |goal| goal.slo.clone());
        let limit = goal.map_or(FIRST_TIMEOUT, |goal| {
            (goal.limit() * TIMEOUT).max(LEAST_TIMEOUT)
        });
        let plan = Arc::new(plan(&self.workload.plan, task, limit, course.terms.seed));
        let ours = Ours::of(&plan.doors, &[self.target.master()]);
        let before = ours.as_ref().and_then(Ours::look);
        let pids = self.target.workers();
        let clocks = Clocks::of(&pids);
        let measured = generate::run(&plan, self.stop, &mut |_| {}).map_err(Ended::Trouble)?;
        if self.stop.load(Ordering::Relaxed) {
            return Err(Ended::Stopped);
        }
        let pids = self.target.workers();
        let used = Clocks::of(&pids).since(&clocks);
        let all = measured.total.count(Class::Served) + measured.warm_up.count(Class::Served);
        let memory = processes::memory(&pids);
        let each = used
            .filter(|_| all > 0)
            .map(|(cpu, wait)| (cpu / all as f64, wait / all as f64));
        let report = Report::of(&plan, &measured, &slo);
        Ok(Seen {
            cpu: each.map(|(cpu, _)| cpu),
            core_wait: each.map(|(_, wait)| wait),
            workers: match task.setting {
                Setting::Workers(workers) => workers,
                Setting::AsItWas => pids.len() as u32,
            },
            private: memory.private,
            resident: memory.resident,
            outside: ours
                .zip(before)
                .and_then(|(ours, before)| ours.outside(&before)),
            ..of(&report)
        })
    }

    /// Waits until the site answers, and for so long at most until what an earlier load has left in queues
    /// is gone.
    fn come_to_rest(&mut self, course: &Course, patience: Duration) -> Result<(), Ended> {
        let (door, place) = &self.workload.first;
        let began = Instant::now();
        let alone = course.alone.as_ref().and_then(|alone| alone.mean);
        let mut last;
        loop {
            match self.prober.ask_within(door, place, REST) {
                Ok((status, took)) if status < 500 => {
                    let rests = alone.is_none_or(|alone| took <= alone * AT_REST);
                    if rests || began.elapsed() >= patience {
                        return Ok(());
                    }
                    last = String::new();
                }
                Ok((status, _)) => last = format!("it answers {status}"),
                Err(why) => last = why,
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(Ended::Stopped);
            }
            if began.elapsed() > RETURN {
                return Err(Ended::Trouble(format!(
                    "{place} does not answer any more: {last}"
                )));
            }
            std::thread::sleep(LOOK);
        }
    }
}

fn words(task: &Task) -> String {
    let load = match task.load {
        Load::Users(users) => maitred_measure::words::some(u64::from(users), "user"),
        Load::Rate(rate) => format!("{}/s", maitred_measure::words::digits(rate)),
    };
    format!("{}: {load}, {}", task.what, task.setting.words())
}

fn plan(like: &Plan, task: &Task, timeout: f64, seed: u64) -> Plan {
    let load = match task.load {
        Load::Users(users) => Sends::Closed {
            users: users as usize,
            think: Think::Nothing,
            ramp: 0,
            requests: None,
        },
        Load::Rate(rate) => Sends::Open {
            profile: Profile::constant(rate, task.seconds + task.warm_up),
            spacing: Spacing::Poisson,
            connections: CONNECTIONS.min(maitred_measure::machine::descriptors() as usize),
        },
    };
    Plan {
        load,
        duration: clock::nanos(task.seconds + task.warm_up),
        warm_up: clock::nanos(task.warm_up),
        timeout: clock::nanos(timeout),
        seed,
        ..like.clone()
    }
}

/// What a report says, but for the server's own figures.
fn of(report: &Report) -> Seen {
    let requests = &report.requests;
    // What waits for a connection is the server's slowness; a generator that is late is not.
    let own = requests.late.saturating_sub(requests.late_for_connections);
    let points = report.spectrum.iter();
    let cause = report
        .causes
        .first()
        .map(|cause| cause.cause.chars().take(MAX_CAUSE).collect());
    Seen {
        seconds: report.run.seconds,
        served: requests.served,
        rate: requests.rate,
        goodput: requests.goodput.unwrap_or(requests.rate),
        error_share: requests.error_share,
        cause,
        holds: report.valid && report.holds(),
        generator_late: own as f64 > MAX_LATE_SHARE * requests.sent.max(1) as f64,
        p50: report.corrected.p50,
        p90: report.corrected.p90,
        p99: report.corrected.p99,
        mean: report.service.mean,
        spectrum: points
            .filter_map(|point| Some((point.percentile, point.corrected?)))
            .collect(),
        ..Seen::default()
    }
}
