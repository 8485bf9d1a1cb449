//! A pool in virtual time: requests arrive, wait, run and end, and a policy decides the number of
//! workers. As in the server, a request gets the most recently used worker, the queue is FIFO, and
//! a request that waits too long is rejected.

mod memory;
mod queue;
mod together;

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use maitred_sizing::Spent;
use maitred_sizing::ledger::WorkerMemory;

use crate::arrivals::Arrival;
use crate::cores::Cores;
use crate::outcome::{Outcome, ServedRequest};
use crate::plant::Plant;
use crate::policies::{Policy, View};
pub use together::play_together;

/// How long a client takes until its next request, in seconds.
const ASKS_AGAIN: f64 = 0.0001;

/// Simulates a run.
pub fn play(plant: &Plant, arrivals: &[Arrival], policy: &mut dyn Policy) -> Outcome {
    let mut world = World::new(plant, arrivals);
    world.follow(policy);
    while world.step(policy) {}
    world.outcome
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Event {
    Arrives(usize),
    /// A worker stops waiting.
    Unblocked(usize),
    Tick,
    Cores(f64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct DueMeasurement {
    at: f64,
    order: u64,
    event: Event,
}

impl Eq for DueMeasurement {}

impl Ord for DueMeasurement {
    fn cmp(&self, other: &DueMeasurement) -> Ordering {
        self.at.total_cmp(&other.at).then(self.order.cmp(&other.order))
    }
}

impl PartialOrd for DueMeasurement {
    fn partial_cmp(&self, other: &DueMeasurement) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The state of a worker.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    /// Its index is free.
    Gone,
    /// It starts: the processor time.
    Forked,
    /// It starts: the rest.
    Starts,
    Idle {
        since: f64,
    },
    /// The first half of a request's computing.
    Begins,
    Blocked,
    Database,
    /// Computes under the lock.
    Locked,
    /// The second half.
    Ends,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Worker {
    id: i32,
    stage: Stage,
    request: usize,
    began: f64,
    /// How long it has waited for anything but a processor, in seconds.
    blocked: f64,
    waits_since: f64,
    private: f64,
    /// Its maximum of memory.
    most: f64,
    /// Requests that it has served.
    served: u64,
    /// It exits once it is idle.
    is_worn: bool,
}

struct World<'p> {
    plant: &'p Plant,
    arrivals: Vec<Arrival>,
    /// The first request that is not scheduled yet.
    next: usize,
    now: f64,
    order: u64,
    forked: i32,
    due: BinaryHeap<Reverse<DueMeasurement>>,
    cores: Cores,
    workers: Vec<Worker>,
    free: Vec<usize>,
    /// The last one is the most recently used.
    idle: Vec<usize>,
    booting: usize,
    busy: usize,
    waiting: VecDeque<usize>,
    /// Requests that wait until others of their kind have ended, because those hang.
    held_back: VecDeque<usize>,
    database: VecDeque<usize>,
    database_free: usize,
    peaks: f64,
    privates: f64,
    /// Memory of other pools with the same limit, in bytes.
    others: f64,
    cpu_before: f64,
    ticked_at: f64,
    /// Ended requests.
    ended: u64,
    outcome: Outcome,
}

impl<'p> World<'p> {
    fn new(plant: &'p Plant, arrivals: &[Arrival]) -> World<'p> {
        let mut world = World {
            plant,
            arrivals: arrivals.to_vec(),
            next: 0,
            now: 0.0,
            order: 0,
            forked: 0,
            due: BinaryHeap::new(),
            cores: Cores::new(plant.segments[0].cores, plant.drag),
            workers: Vec::new(),
            free: Vec::new(),
            idle: Vec::new(),
            booting: 0,
            busy: 0,
            waiting: VecDeque::new(),
            held_back: VecDeque::new(),
            database: VecDeque::new(),
            database_free: plant.database.map_or(usize::MAX, |database| database.slots),
            peaks: 0.0,
            privates: 0.0,
            others: 0.0,
            cpu_before: 0.0,
            ticked_at: 0.0,
            ended: 0,
            outcome: Outcome::new(plant),
        };
        for segment in &plant.segments[1..] {
            world.plan(segment.at, Event::Cores(segment.cores));
        }
        (0..plant.users.unwrap_or(1)).for_each(|_| world.send());
        world.plan(0.0, Event::Tick);
        world
    }

    fn plan(&mut self, at: f64, event: Event) {
        self.order += 1;
        self.due.push(Reverse(DueMeasurement { at, order: self.order, event }));
    }

    /// Schedules the next request: at its time, or as a client's next.
    fn send(&mut self) {
        let Some(next) = self.arrivals.get_mut(self.next) else {
            return;
        };
        if self.plant.users.is_some() {
            next.at = self.now + ASKS_AGAIN;
        }
        let at = next.at;
        self.plan(at, Event::Arrives(self.next));
        self.next += 1;
    }

    /// A request has ended or was rejected.
    fn answered(&mut self) {
        if self.plant.users.is_some() {
            self.send();
        }
    }

    /// False when the time is over.
    fn step(&mut self, policy: &mut dyn Policy) -> bool {
        let (due, work) = (self.due_at(), self.worked_at());
        let next = due.min(work);
        if next >= self.plant.seconds {
            self.pass(self.plant.seconds);
            return false;
        }
        self.pass(next);
        if work <= due {
            if let Some(worker) = self.cores.end() {
                self.worked(worker, policy);
            }
        } else if let Some(Reverse(due)) = self.due.pop() {
            self.happen(due.event, policy);
        }
        self.follow(policy);
        true
    }

    /// When the next scheduled event happens.
    fn due_at(&self) -> f64 {
        self.due.peek().map_or(f64::INFINITY, |due| due.0.at)
    }

    /// When the next task has had its processor time.
    fn worked_at(&self) -> f64 {
        self.cores.next().unwrap_or(f64::INFINITY)
    }

    /// When the next event happens.
    fn next_at(&self) -> f64 {
        self.due_at().min(self.worked_at())
    }

    fn pass(&mut self, now: f64) {
        self.outcome.pass(self.now, now, self.alive(), self.overcommit() > 0.0);
        self.cores.advance(now);
        self.now = now;
    }

    fn alive(&self) -> usize {
        self.booting + self.busy + self.idle.len()
    }

    fn happen(&mut self, event: Event, policy: &mut dyn Policy) {
        match event {
            Event::Arrives(request) => {
                if self.plant.users.is_none() {
                    self.send();
                }
                self.expire();
                if policy.holds_back(self.arrivals[request].kind) {
                    self.held_back.push_back(request);
                    return;
                }
                match self.idle.pop() {
                    Some(worker) => self.run(worker, request, policy),
                    None if self.waiting.len() >= self.plant.queue_length => {
                        self.refuse();
                        return;
                    }
                    None => self.waiting.push_back(request),
                }
                if self.idle.is_empty() {
                    policy.all_busy(&mut self.waits());
                }
                policy.arrived(&self.view());
            }
            Event::Unblocked(worker) => self.unblocked(worker, policy),
            Event::Cores(cores) => self.cores.resize(cores),
            Event::Tick => {
                self.expire();
                let (now, busy) = (self.now, self.cores.busy());
                policy.running(&mut self.waits());
                let (arrivals, tells) = (&self.arrivals, self.tells_most());
                let alive = self.workers.iter().filter(|worker| worker.is_alive());
                let mut has = alive.map(|worker| {
                    let peak = arrivals[worker.request].peak;
                    let peak = if worker.is_busy() { peak } else { 0.0 };
                    let own = worker.private + peak;
                    let most = tells.then_some(worker.most);
                    let served = Some(worker.served);
                    (worker.id, WorkerMemory { own, most, served })
                });
                policy.measures(&mut has, self.ended);
                let view = self.view();
                policy.tick(&view);
                for _ in 0..policy.lets_go(&view).min(self.idle.len()) {
                    let worker = self.idle.remove(0);
                    self.leave(worker);
                }
                self.wear_out(policy.outgrown());
                while let Some(worker) = self.idle.pop() {
                    let Some(request) = self.next_waiting(policy) else {
                        self.idle.push(worker);
                        break;
                    };
                    self.run(worker, request, policy);
                }
                self.cpu_before = busy;
                self.ticked_at = now;
                self.outcome.size(self.now, self.alive());
                self.plan(now + policy.every(), Event::Tick);
            }
        }
    }

    /// Whether a worker's maximum of memory is known: that of its children is not.
    fn tells_most(&self) -> bool {
        self.plant.memory.is_some_and(|memory| !memory.by_children)
    }

    /// The kind of each running request, and how long it has waited for anything but a processor.
    fn waits(&self) -> impl Iterator<Item = (u64, f64)> {
        let busy = self.workers.iter().filter(|worker| worker.is_busy());
        busy.map(|worker| {
            let kind = self.arrivals[worker.request].kind;
            match worker.stage {
                Stage::Blocked | Stage::Database => {
                    (kind, worker.blocked + self.now - worker.waits_since)
                }
                _ => (kind, worker.blocked),
            }
        })
    }

    fn refuse(&mut self) {
        self.outcome.refused(self.now);
        self.answered();
    }

    fn view(&self) -> View {
        let oldest = self.waiting.front().map(|first| self.arrivals[*first].at);
        let rested = self.idle.first().map(|first| self.workers[*first].stage);
        let passed = (self.now - self.ticked_at).max(f64::MIN_POSITIVE);
        View {
            now: self.now,
            busy: self.busy,
            idle: self.idle.len(),
            booting: self.booting,
            waiting: self.waiting.len(),
            waited: oldest.map_or(0.0, |at| self.now - at),
            rested: match rested {
                Some(Stage::Idle { since }) => self.now - since,
                _ => 0.0,
            },
            cores: self.cores.count(),
            cpu_used: (self.cores.busy() - self.cpu_before) / passed / self.cores.count(),
            memory: self.seen(),
        }
    }

    /// Starts the missing workers.
    fn follow(&mut self, policy: &mut dyn Policy) {
        let wants = policy.wants(&self.view()).min(self.plant.cap);
        let lacks = wants.saturating_sub(self.alive());
        policy.forked(lacks);
        for _ in 0..lacks {
            self.forked += 1;
            let worker = Worker {
                id: self.forked,
                stage: Stage::Forked,
                request: 0,
                began: self.now,
                blocked: 0.0,
                waits_since: 0.0,
                private: self.plant.memory.map_or(0.0, |memory| memory.worker),
                most: self.plant.memory.map_or(0.0, |memory| memory.worker),
                served: 0,
                is_worn: false,
            };
            self.privates += worker.private;
            let place = match self.free.pop() {
                Some(place) => {
                    self.workers[place] = worker;
                    place
                }
                None => {
                    self.workers.push(worker);
                    self.workers.len() - 1
                }
            };
            self.booting += 1;
            self.outcome.forked(self.now);
            self.cores.begin(place, self.plant.boot.cpu);
            self.press();
        }
    }

    fn leave(&mut self, worker: usize) {
        self.privates -= self.workers[worker].private;
        self.workers[worker].stage = Stage::Gone;
        self.free.push(worker);
        self.press();
    }

    fn run(&mut self, worker: usize, request: usize, policy: &mut dyn Policy) {
        policy.began(self.arrivals[request].kind);
        self.busy += 1;
        let arrival = &self.arrivals[request];
        let one = &mut self.workers[worker];
        one.stage = Stage::Begins;
        one.request = request;
        one.began = self.now;
        one.blocked = 0.0;
        one.most = one.most.max(one.private + arrival.peak);
        self.peaks += arrival.peak;
        self.outcome.waited(arrival.at, self.now);
        self.cores.begin(worker, arrival.cpu / 2.0);
        self.press();
    }

    /// A worker has had its processor time.
    fn worked(&mut self, worker: usize, policy: &mut dyn Policy) {
        let one = self.workers[worker];
        match one.stage {
            Stage::Forked => {
                self.workers[worker].stage = Stage::Starts;
                self.plan(self.now + self.plant.boot.time, Event::Unblocked(worker));
            }
            Stage::Begins => {
                self.workers[worker].waits_since = self.now;
                self.workers[worker].stage = Stage::Blocked;
                let blocked = self.arrivals[one.request].blocked;
                if blocked > 0.0 {
                    self.plan(self.now + blocked, Event::Unblocked(worker))
                } else {
                    self.ask_database(worker)
                }
            }
            Stage::Locked => {
                self.leave_database();
                self.workers[worker].waits_since = self.now;
                self.works_again(worker);
            }
            Stage::Ends => self.ended(worker, policy),
            Stage::Gone | Stage::Starts | Stage::Idle { .. } | Stage::Blocked | Stage::Database => {
            }
        }
    }

    fn unblocked(&mut self, worker: usize, policy: &mut dyn Policy) {
        match self.workers[worker].stage {
            Stage::Starts => {
                self.booting -= 1;
                self.free_for_next(worker, policy);
            }
            Stage::Blocked => self.ask_database(worker),
            Stage::Database => {
                self.leave_database();
                self.works_again(worker);
            }
            Stage::Gone
            | Stage::Forked
            | Stage::Idle { .. }
            | Stage::Begins
            | Stage::Locked
            | Stage::Ends => {}
        }
    }

    /// The next request gets the connection.
    fn leave_database(&mut self) {
        match self.database.pop_front() {
            Some(next) => self.at_database(next),
            None => self.database_free += 1,
        }
    }

    fn ask_database(&mut self, worker: usize) {
        let request = self.workers[worker].request;
        if self.arrivals[request].database <= 0.0 {
            return self.works_again(worker);
        }
        self.workers[worker].stage = Stage::Database;
        match self.database_free {
            0 => self.database.push_back(worker),
            _ => {
                self.database_free -= 1;
                self.at_database(worker);
            }
        }
    }

    fn at_database(&mut self, worker: usize) {
        let one = &mut self.workers[worker];
        let took = self.arrivals[one.request].database;
        if self.plant.is_locked() {
            one.blocked += self.now - one.waits_since;
            one.stage = Stage::Locked;
            return self.cores.begin(worker, took);
        }
        self.plan(self.now + took, Event::Unblocked(worker));
    }

    fn works_again(&mut self, worker: usize) {
        let one = &mut self.workers[worker];
        one.blocked += self.now - one.waits_since;
        one.stage = Stage::Ends;
        let cpu = self.arrivals[one.request].cpu;
        self.cores.begin(worker, cpu / 2.0);
    }

    fn ended(&mut self, worker: usize, policy: &mut dyn Policy) {
        let one = self.workers[worker];
        let arrival = self.arrivals[one.request];
        let took = self.now - one.began;
        let locked = if self.plant.is_locked() { arrival.database } else { 0.0 };
        let work = arrival.cpu + locked;
        let spent = Spent {
            cpu: Duration::from_secs_f64(work),
            ready: Some(Duration::from_secs_f64((took - work - one.blocked).max(0.0))),
            blocked: Duration::from_secs_f64(one.blocked),
        };
        let request = ServedRequest { arrived: arrival.at, began: one.began, cpu: work };
        self.outcome.served(&request, self.now);
        self.ended += 1;
        self.peaks -= arrival.peak;
        let leak = self.plant.memory.map_or(0.0, |memory| memory.leak);
        self.workers[worker].private += leak;
        self.workers[worker].served += 1;
        self.privates += leak;
        self.press();
        policy.finished(&self.view(), arrival.kind, spent);
        self.busy -= 1;
        self.answered();
        self.free_for_next(worker, policy);
    }

    /// A worker is idle: it gets the next request, exits, or stays.
    fn free_for_next(&mut self, worker: usize, policy: &mut dyn Policy) {
        self.expire();
        self.workers[worker].stage = Stage::Idle { since: self.now };
        self.idle.push(worker);
        let is_surplus = self.workers[worker].is_worn || policy.is_surplus(&self.view());
        self.idle.pop();
        if is_surplus {
            return self.leave(worker);
        }
        match self.next_waiting(policy) {
            Some(request) => self.run(worker, request, policy),
            None => self.idle.push(worker),
        }
    }
}

impl Worker {
    fn is_alive(&self) -> bool {
        self.stage != Stage::Gone
    }

    fn is_busy(&self) -> bool {
        matches!(
            self.stage,
            Stage::Begins | Stage::Blocked | Stage::Database | Stage::Locked | Stage::Ends
        )
    }
}
