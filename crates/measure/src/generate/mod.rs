//! The generator: threads that send, and one that adds up what they say.

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

/// How long threads have to get ready.
const HEAD_START: u64 = 20 * MILLISECOND;

/// How often it is looked whether all answers have come, at the end.
const DRAIN_LOOK: Duration = Duration::from_millis(2);

/// How a run is going.
#[derive(Debug)]
pub struct Progress<'a> {
    /// The second that is over.
    pub second: &'a Second,
    /// All that was measured so far.
    pub total: &'a Tally,
    /// How long the run is to take, in seconds.
    pub duration: f64,
}

/// What a run has measured.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// When it began, on the wall's clock.
    pub began: Option<SystemTime>,
    /// What is counted of the time after the warm-up.
    pub total: Tally,
    /// What is counted of the warm-up.
    pub warm_up: Tally,
    /// Second by second, the warm-up included.
    pub series: Vec<Second>,
    /// How long was measured, in seconds.
    pub seconds: f64,
    /// Whether it was ended before its time.
    pub partial: bool,
    /// Requests without an answer when it was ended.
    pub cut_off: u64,
    /// Most requests on their way at once; with several threads, the sum of what each had in a second.
    pub most_in_flight: u64,
    /// The generator's processor time, in seconds.
    pub cpu: f64,
    /// How long the generator's threads could have run and got no processor, in seconds.
    pub run_wait: Option<f64>,
    /// How long all of it took, in seconds.
    pub wall: f64,
    /// When the last request ended ([`clock::now`]).
    pub last_end: u64,
    /// How long users were there.
    pub presence: Presence,
}

/// Carries a plan out. `watch` is told after every second; `stop` ends it.
///
/// # Errors
/// One sentence, when the generator itself cannot run.
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
    let (say, hear) = channel();
    let threads = (0..plan.threads).map(|number| start_thread(&shared, number, &say));
    let threads = threads.collect::<io::Result<Vec<_>>>().map_err(failed)?;
    drop(say);
    let mut measured = listen(plan, &hear, watch);
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
    say: &Sender<ThreadReport>,
) -> io::Result<JoinHandle<io::Result<()>>> {
    let (shared, say) = (shared.clone(), say.clone());
    let name = format!("bench-{number}");
    std::thread::Builder::new().name(name).spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let before = usage::this_thread();
        let ended = runtime.block_on(send(&shared, number, &say));
        let used = usage::this_thread().since(&before);
        let ((last_end, presence), outcome) = match ended {
            Ok(ended) => (ended, Ok(())),
            Err(why) => (Default::default(), Err(why)),
        };
        let over = ThreadReport::Over {
            cpu: used.cpu,
            wait: used.wait,
            last_end,
            presence,
        };
        // Who does not listen any more needs nothing.
        let _ = say.send(over);
        outcome
    })
}

/// A thread's work. When its last request ended, and how long users were there.
async fn send(
    shared: &Arc<RunState>,
    number: usize,
    say: &Sender<ThreadReport>,
) -> io::Result<(u64, Presence)> {
    let thread = Rc::new(Thread::new(shared.clone(), number));
    let tasks = LocalSet::new();
    let worked = tasks
        .run_until(async {
            tokio::select! {
                worked = work(&thread) => worked,
                () = thread.report(say) => Ok(()),
            }
        })
        .await;
    thread.flush(say);
    worked.map(|()| (thread.last_end(), thread.presence()))
}

async fn work(thread: &Rc<Thread>) -> io::Result<()> {
    let (plan, start) = (thread.plan(), thread.shared.start);
    let each = |connections: usize| connections.div_ceil(plan.threads) * plan.protocol.streams();
    let connections = match &plan.load {
        Load::Closed {
            users,
            think,
            ramp,
            requests,
        } => {
            let behaviour = UserBehaviour {
                users: *users,
                think: *think,
                ramp: *ramp,
                counted: requests.is_some(),
            };
            closed::users(thread, behaviour).await;
            return Ok(());
        }
        Load::Open {
            profile,
            spacing,
            connections,
        } => {
            let connections = Connections::new(thread, each(*connections));
            let arrivals = Arrivals::new(profile, *spacing, plan.seed);
            let mut ours = arrivals.skip(thread.number).step_by(plan.threads);
            let mut choice = Choice::new(plan, thread.number);
            let next = async || {
                let due = start.saturating_add(ours.next()?);
                let row = choice.pick(&mut thread.random.borrow_mut());
                let job = ScheduledRequest {
                    due,
                    row,
                    own: None,
                    waited: false,
                };
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

/// Adds up what the threads say, until all are over.
fn listen(
    plan: &Plan,
    hear: &Receiver<ThreadReport>,
    watch: &mut dyn FnMut(&Progress<'_>),
) -> Measured {
    let mut measured = Measured::default();
    let mut seconds: BTreeMap<u64, (usize, Second)> = BTreeMap::new();
    let mut over = 0;
    while let Ok(report) = hear.recv() {
        match report {
            ThreadReport::Second(interval) => {
                let number = interval.second;
                let (said, second) = seconds.entry(number).or_default();
                *said += 1;
                measured.take(*interval, second);
                if *said >= plan.threads
                    && let Some((_, second)) = seconds.remove(&number)
                {
                    measured.show(second, plan, watch);
                }
            }
            ThreadReport::Over {
                cpu,
                wait,
                last_end,
                presence,
            } => {
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

    /// Settles how long was measured.
    fn finish(&mut self, shared: &RunState, stopped: bool) {
        let now = clock::now();
        let plan = &shared.plan;
        let warm = shared.start.saturating_add(plan.warm_up);
        let nominal = shared.start.saturating_add(plan.duration);
        // An open loop has the time it was given; others last until their last answer, or as long as
        // their users were there.
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
