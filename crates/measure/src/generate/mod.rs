//! The generator: threads that send requests, and one that merges their reports.

mod closed;
mod connection;
mod exchange;
mod http2;
mod open;
mod thread;
mod timer;

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use tokio::runtime::Builder;
use tokio::task::LocalSet;

use crate::arrivals::Arrivals;
use crate::clock::{self, MILLISECOND};
use crate::plan::{Choice, Load, Plan};
use crate::replay;
use crate::series::Second;
use crate::tally::Tally;
use crate::usage;
use closed::UserBehaviour;
use open::Connections;
use thread::{Interval, MEASURED, RunState, ScheduledRequest, Thread, ThreadReport, WARM_UP};

pub use closed::Presence;
pub use http2::PROTOCOL as HTTP2_PROTOCOL;
pub use thread::render;

/// The time that threads have to get ready.
const HEAD_START: u64 = 20 * MILLISECOND;

/// At the end, how often to check whether all responses have arrived.
const DRAIN_LOOK: Duration = Duration::from_millis(2);

/// The progress of a run.
#[derive(Debug)]
pub struct Progress<'a> {
    /// The second that is over.
    pub second: &'a Second,
    /// The totals so far.
    pub total: &'a Tally,
    /// The planned duration of the run, in seconds.
    pub duration: f64,
}

/// The measurements of a run.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// Its start, by the wall clock.
    pub began: Option<SystemTime>,
    /// Counts after the warm-up.
    pub total: Tally,
    /// Counts of the warm-up.
    pub warm_up: Tally,
    /// Second by second, the warm-up included.
    pub series: Vec<Second>,
    /// The measured time, in seconds.
    pub seconds: f64,
    /// Whether it was stopped early.
    pub partial: bool,
    /// Requests in flight when it was stopped.
    pub cut_off: u64,
    /// Most requests in flight at once; with several threads, the sum of each thread's maximum in a
    /// second.
    pub most_in_flight: u64,
    /// The generator's processor time, in seconds.
    pub cpu: f64,
    /// How long the generator's threads were runnable without a processor, in seconds.
    pub run_wait: Option<f64>,
    /// The wall time of the run, in seconds.
    pub wall: f64,
    /// When the last request ended ([`clock::now`]).
    pub last_end: u64,
    /// How long users were active.
    pub presence: Presence,
}

/// Executes a plan. `watch` is called after every second; `stop` ends the run.
///
/// # Errors
/// A message, when the generator itself cannot run.
pub fn run(
    plan: &Arc<Plan>,
    stop: &Arc<AtomicBool>,
    watch: &mut dyn FnMut(&Progress<'_>),
) -> Result<Measured, String> {
    let began = SystemTime::now();
    let quota = match plan.load {
        Load::Closed { requests, .. } => requests.unwrap_or(u64::MAX),
        _ => u64::MAX,
    };
    let shared = Arc::new(RunState {
        plan: plan.clone(),
        start: clock::now() + HEAD_START,
        stop: stop.clone(),
        quota: AtomicU64::new(quota),
    });
    let (sender, reports) = channel();
    let threads = (0..plan.threads).map(|number| start_thread(&shared, number, &sender));
    let threads = threads.collect::<io::Result<Vec<_>>>().map_err(failed)?;
    drop(sender);
    let mut measured = listen(plan, &reports, watch);
    for thread in threads {
        match thread.join() {
            Ok(ended) => ended.map_err(failed)?,
            Err(_) => return Err("a thread of the generator has failed".to_owned()),
        }
    }
    let stopped = stop.load(Ordering::Relaxed);
    measured.began = Some(began);
    measured.finish(&shared, stopped);
    Ok(measured)
}

fn failed(why: io::Error) -> String {
    format!("the generator cannot run: {why}")
}

fn start_thread(
    shared: &Arc<RunState>,
    number: usize,
    reports: &Sender<ThreadReport>,
) -> io::Result<JoinHandle<io::Result<()>>> {
    let (shared, reports) = (shared.clone(), reports.clone());
    let name = format!("bench-{number}");
    std::thread::Builder::new().name(name).spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let before = usage::this_thread();
        let ended = runtime.block_on(send(&shared, number, &reports));
        let used = usage::this_thread().since(&before);
        let ((last_end, presence), outcome) = match ended {
            Ok(ended) => (ended, Ok(())),
            Err(why) => (Default::default(), Err(why)),
        };
        let over = ThreadReport::Over { cpu: used.cpu, wait: used.wait, last_end, presence };
        // Fails only if the receiver is gone, and then the report is not needed.
        let _ = reports.send(over);
        outcome
    })
}

/// The work of one thread. Returns when its last request ended, and how long users were active.
async fn send(
    shared: &Arc<RunState>,
    number: usize,
    reports: &Sender<ThreadReport>,
) -> io::Result<(u64, Presence)> {
    let thread = Rc::new(Thread::new(shared.clone(), number));
    let tasks = LocalSet::new();
    let worked = tasks
        .run_until(async {
            tokio::select! {
                worked = work(&thread) => worked,
                () = thread.report(reports) => Ok(()),
            }
        })
        .await;
    thread.flush(reports);
    worked.map(|()| (thread.last_end(), thread.presence()))
}

async fn work(thread: &Rc<Thread>) -> io::Result<()> {
    let (plan, start) = (thread.plan(), thread.shared.start);
    let each = |connections: usize| connections.div_ceil(plan.threads) * plan.protocol.streams();
    let connections = match &plan.load {
        Load::Closed { users, think, ramp, requests } => {
            let behaviour = UserBehaviour {
                users: *users,
                think: *think,
                ramp: *ramp,
                counted: requests.is_some(),
            };
            closed::users(thread, behaviour).await;
            return Ok(());
        }
        Load::Open { profile, spacing, connections } => {
            let connections = Connections::new(thread, each(*connections));
            let arrivals = Arrivals::new(profile, *spacing, plan.seed);
            let mut ours = arrivals.skip(thread.number).step_by(plan.threads);
            let mut choice = Choice::new(plan, thread.number);
            let next = async || {
                let due = start.saturating_add(ours.next()?);
                let row = choice.pick(&mut thread.random.borrow_mut());
                let job = ScheduledRequest { due, row, own: None, waited: false };
                thread.is_time(due).then_some(job)
            };
            connections.send_all(next).await?;
            connections
        }
        Load::Replay { log, connections } => {
            let connections = Connections::new(thread, each(*connections));
            let mut lines = replay::Reader::start(log)?;
            let next = async || {
                let line = lines.next().await?;
                let due = start.saturating_add(line.at);
                let job = ScheduledRequest {
                    due,
                    row: line.row,
                    own: Some(Rc::new(line.spec)),
                    waited: false,
                };
                thread.is_time(due).then_some(job)
            };
            connections.send_all(next).await?;
            connections
        }
    };
    connections.give_up_waiting();
    while !connections.is_idle() {
        tokio::time::sleep(DRAIN_LOOK).await;
    }
    Ok(())
}

/// Merges the threads' reports until all threads have ended.
fn listen(
    plan: &Plan,
    reports: &Receiver<ThreadReport>,
    watch: &mut dyn FnMut(&Progress<'_>),
) -> Measured {
    let mut measured = Measured::default();
    let mut seconds: BTreeMap<u64, (usize, Second)> = BTreeMap::new();
    let mut over = 0;
    while let Ok(report) = reports.recv() {
        match report {
            ThreadReport::Second(interval) => {
                let number = interval.second;
                let (count, second) = seconds.entry(number).or_default();
                *count += 1;
                measured.take(*interval, second);
                if *count >= plan.threads
                    && let Some((_, second)) = seconds.remove(&number)
                {
                    measured.show(second, plan, watch);
                }
            }
            ThreadReport::Over { cpu, wait, last_end, presence } => {
                measured.cpu += cpu;
                measured.run_wait = match (measured.run_wait, wait, over) {
                    (None, wait, 0) => wait,
                    (Some(before), Some(wait), _) => Some(before + wait),
                    _ => None,
                };
                over += 1;
                measured.last_end = measured.last_end.max(last_end);
                measured.presence.merge(presence);
            }
        }
    }
    for (_, (_, second)) in std::mem::take(&mut seconds) {
        measured.show(second, plan, watch);
    }
    measured
}

impl Measured {
    fn take(&mut self, interval: Interval, second: &mut Second) {
        second.number = interval.second;
        second.in_flight += interval.in_flight;
        second.most_in_flight += interval.most_in_flight;
        second.waiting += interval.waiting;
        second.connections += interval.connections;
        self.total.add(&interval.tallies[MEASURED]);
        self.warm_up.add(&interval.tallies[WARM_UP]);
        interval.tallies.iter().for_each(|tally| second.add(tally));
    }

    fn show(&mut self, mut second: Second, plan: &Plan, watch: &mut dyn FnMut(&Progress<'_>)) {
        second.sum_up(clock::seconds(plan.warm_up));
        self.most_in_flight = self.most_in_flight.max(second.most_in_flight);
        watch(&Progress {
            second: &second,
            total: &self.total,
            duration: clock::seconds(plan.duration),
        });
        self.series.push(second);
    }

    /// Computes the measured time.
    fn finish(&mut self, shared: &RunState, stopped: bool) {
        let now = clock::now();
        let plan = &shared.plan;
        let warm = shared.start.saturating_add(plan.warm_up);
        let nominal = shared.start.saturating_add(plan.duration);
        // An open loop has its planned duration; others last until their last response, or as long
        // as their users were active.
        let end = match (&plan.load, stopped) {
            (_, true) => now.min(nominal),
            (Load::Open { .. }, false) => nominal,
            (_, false) => self.last_end,
        };
        self.seconds = clock::seconds(end.saturating_sub(warm));
        if let (Load::Closed { requests: None, .. }, false) = (&plan.load, stopped) {
            self.seconds = self.presence.mean().unwrap_or(self.seconds);
        }
        self.partial = stopped;
        let all = self.total.all() + self.warm_up.all();
        self.cut_off = (self.total.sent + self.warm_up.sent).saturating_sub(all);
        self.wall = clock::seconds(now.saturating_sub(shared.start));
    }
}
