//! Several nodes behind a balancer, in virtual time, with a database that all of them share, and an
//! autoscaler that scales them on the saturation that each of them measures with the server's code.

pub mod autoscalers;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use fastrand::Rng;
use maitred_sizing::Spent;
use maitred_sizing::saturation::{Meter, PoolCapacity};

use crate::chance::{Times, exponential};
use crate::cores::{Cores, Drag};
use autoscalers::{Autoscaler, Sample};

/// A node.
#[derive(Debug, Clone, Copy)]
pub struct NodeShape {
    /// Processors.
    pub cores: f64,
    /// Workers (`max_children`).
    pub workers: usize,
    /// Time from its order until it gets requests, in seconds.
    pub start: f64,
}

/// The requests, and what they need.
pub struct Traffic<'a> {
    /// Requests a second at a time in seconds.
    pub rate: &'a dyn Fn(f64) -> f64,
    /// The highest rate.
    pub most: f64,
    /// Processor time.
    pub cpu: Times,
    /// Waiting that other requests do not affect.
    pub blocked: Times,
    /// Time at the database once it has a connection.
    pub database: Times,
    /// Connections of the database, for all nodes together.
    pub connections: usize,
    /// Longest time in a node's queue, in seconds.
    pub queue_timeout: f64,
    /// The simulated time, in seconds.
    pub seconds: f64,
}

/// The results of a run.
#[derive(Debug, Default)]
pub struct ClusterOutcome {
    /// Each served request: its arrival and its response time, in seconds.
    pub served: Vec<(f64, f64)>,
    /// The arrivals of requests that no worker has run.
    pub failed: Vec<f64>,
    /// The number of nodes at each check of the autoscaler.
    pub sizes: Vec<(f64, usize)>,
}

impl ClusterOutcome {
    /// A percentile of the response times of requests that arrived from `from` to `to`; infinite if
    /// more than the rest of them failed.
    pub fn percentile(&self, percent: f64, from: f64, to: f64) -> f64 {
        let is_within = |at: f64| (from..to).contains(&at);
        let served = self.served.iter().filter(|(at, _)| is_within(*at));
        let mut all: Vec<f64> = served.map(|(_, took)| *took).collect();
        let failed = self.failed.iter().filter(|at| is_within(**at)).count();
        all.extend(std::iter::repeat_n(f64::INFINITY, failed));
        all.sort_by(f64::total_cmp);
        let place = (all.len() as f64 * percent / 100.0) as usize;
        all.get(place.min(all.len().saturating_sub(1))).copied().unwrap_or(0.0)
    }

    /// The average number of nodes from `from` to `to`.
    pub fn nodes(&self, from: f64, to: f64) -> f64 {
        let sizes = self.sizes.iter().filter(|(at, _)| (from..to).contains(at));
        let sizes: Vec<f64> = sizes.map(|(_, nodes)| *nodes as f64).collect();
        sizes.iter().sum::<f64>() / sizes.len().max(1) as f64
    }

    /// The most nodes at a check from `from` to `to`.
    pub fn most_nodes(&self, from: f64, to: f64) -> usize {
        let sizes = self.sizes.iter().filter(|(at, _)| (from..to).contains(at));
        sizes.map(|(_, nodes)| *nodes).max().unwrap_or(0)
    }

    /// How often nodes were added after some were removed, or the reverse, from `from` to `to`.
    pub fn reversals(&self, from: f64, to: f64) -> usize {
        let sizes = self.sizes.iter().filter(|(at, _)| (from..to).contains(at));
        let sizes: Vec<usize> = sizes.map(|(_, nodes)| *nodes).collect();
        let steps = sizes.windows(2).map(|two| two[1].cmp(&two[0]));
        let steps: Vec<_> = steps.filter(|step| step.is_ne()).collect();
        steps.windows(2).filter(|two| two[0] != two[1]).count()
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Event {
    Arrives,
    Unblocked { node: usize, slot: usize },
    DatabaseDone { node: usize, slot: usize },
    Check,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Due {
    at: f64,
    order: u64,
    event: Event,
}

impl Eq for Due {}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        self.at.total_cmp(&other.at).then(self.order.cmp(&other.order))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// A request in its worker.
#[derive(Debug, Clone, Copy, Default)]
struct Running {
    arrived: f64,
    began: f64,
    cpu: f64,
    database: f64,
    blocked: f64,
    waits_since: f64,
    /// It has had its first half of processor time.
    is_half: bool,
}

struct Node {
    cores: Cores,
    queue: VecDeque<f64>,
    slots: Vec<Running>,
    free: Vec<usize>,
    meter: Meter,
    ready_at: f64,
    /// It gets no more requests.
    leaves: bool,
}

impl Node {
    fn busy(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

/// Simulates a run.
pub fn play(
    shape: NodeShape,
    traffic: &Traffic<'_>,
    scaler: &mut dyn Autoscaler,
    seed: u64,
) -> ClusterOutcome {
    let mut cluster = Cluster {
        shape,
        traffic,
        rng: Rng::with_seed(seed),
        now: 0.0,
        order: 0,
        due: BinaryHeap::new(),
        nodes: Vec::new(),
        next_node: 0,
        connections: traffic.connections,
        database: VecDeque::new(),
        outcome: ClusterOutcome::default(),
    };
    (0..scaler.initial()).for_each(|_| cluster.add_node(0.0));
    cluster.plan_arrival();
    cluster.plan(scaler.every(), Event::Check);
    while cluster.step(scaler) {}
    cluster.outcome
}

struct Cluster<'a> {
    shape: NodeShape,
    traffic: &'a Traffic<'a>,
    rng: Rng,
    now: f64,
    order: u64,
    due: BinaryHeap<Reverse<Due>>,
    nodes: Vec<Node>,
    next_node: usize,
    connections: usize,
    database: VecDeque<(usize, usize)>,
    outcome: ClusterOutcome,
}

impl Cluster<'_> {
    fn plan(&mut self, at: f64, event: Event) {
        self.order += 1;
        self.due.push(Reverse(Due { at, order: self.order, event }));
    }

    fn add_node(&mut self, ready_at: f64) {
        let workers = self.shape.workers;
        self.nodes.push(Node {
            cores: Cores::new(self.shape.cores, Drag { switching: 0.005, ..Drag::default() }),
            queue: VecDeque::new(),
            slots: vec![Running::default(); workers],
            free: (0..workers).rev().collect(),
            meter: Meter::default(),
            ready_at,
            leaves: false,
        });
    }

    /// The next arrival of a Poisson process whose rate changes, by thinning.
    fn plan_arrival(&mut self) {
        let mut at = self.now;
        loop {
            at += exponential(&mut self.rng) / self.traffic.most;
            if self.rng.f64() * self.traffic.most <= (self.traffic.rate)(at) {
                return self.plan(at, Event::Arrives);
            }
        }
    }

    /// False when the time is over.
    fn step(&mut self, scaler: &mut dyn Autoscaler) -> bool {
        let due = self.due.peek().map_or(f64::INFINITY, |due| due.0.at);
        let ends = self.nodes.iter().enumerate();
        let ends = ends.filter_map(|(number, node)| Some((node.cores.next()?, number)));
        let first = ends.min_by(|a, b| a.0.total_cmp(&b.0));
        let at = due.min(first.map_or(f64::INFINITY, |(at, _)| at));
        if at >= self.traffic.seconds {
            return false;
        }
        self.now = at;
        match first.filter(|(end, _)| *end <= due) {
            Some((_, node)) => {
                self.nodes[node].cores.advance(at);
                if let Some(slot) = self.nodes[node].cores.end() {
                    self.worked(node, slot);
                }
            }
            None => {
                if let Some(Reverse(due)) = self.due.pop() {
                    self.happen(due.event, scaler);
                }
            }
        }
        true
    }

    fn happen(&mut self, event: Event, scaler: &mut dyn Autoscaler) {
        match event {
            Event::Arrives => {
                self.plan_arrival();
                self.arrive();
            }
            Event::Unblocked { node, slot } => self.ask_database(node, slot),
            Event::DatabaseDone { node, slot } => {
                self.work_again(node, slot);
                match self.database.pop_front() {
                    Some((node, slot)) => self.use_database(node, slot),
                    None => self.connections += 1,
                }
            }
            Event::Check => {
                self.scale(scaler);
                self.plan(self.now + scaler.every(), Event::Check);
            }
        }
    }

    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.now)
    }

    fn arrive(&mut self) {
        let (count, now) = (self.nodes.len(), self.now);
        let nodes = (0..count).map(|step| (self.next_node + step) % count);
        let is_up = |node: &usize| {
            let node = &self.nodes[*node];
            node.ready_at <= now && !node.leaves
        };
        let Some(place) = nodes.into_iter().find(is_up) else {
            return self.outcome.failed.push(now);
        };
        self.next_node = place + 1;
        let time = self.time();
        self.nodes[place].meter.arrived(time);
        match self.nodes[place].free.pop() {
            Some(slot) => self.begin(place, slot, now),
            None => self.nodes[place].queue.push_back(now),
        }
    }

    fn begin(&mut self, place: usize, slot: usize, arrived: f64) {
        let (cpu, database) =
            (self.traffic.cpu.draw(&mut self.rng), self.traffic.database.draw(&mut self.rng));
        let (now, time) = (self.now, self.time());
        let node = &mut self.nodes[place];
        node.slots[slot] = Running { arrived, began: now, cpu, database, ..Running::default() };
        node.meter.begun(time, Duration::from_secs_f64(now - arrived));
        node.meter.busy(time, node.slots.len() - node.free.len());
        self.work(place, slot, cpu / 2.0);
    }

    fn work(&mut self, place: usize, slot: usize, seconds: f64) {
        let now = self.now;
        let cores = &mut self.nodes[place].cores;
        cores.advance(now);
        cores.begin(slot, seconds);
    }

    /// A worker has had its processor time.
    fn worked(&mut self, place: usize, slot: usize) {
        let now = self.now;
        let one = &mut self.nodes[place].slots[slot];
        if one.is_half {
            return self.end(place, slot);
        }
        one.is_half = true;
        one.waits_since = now;
        let blocked = self.traffic.blocked.draw(&mut self.rng);
        match blocked > 0.0 {
            true => self.plan(now + blocked, Event::Unblocked { node: place, slot }),
            false => self.ask_database(place, slot),
        }
    }

    fn ask_database(&mut self, place: usize, slot: usize) {
        if self.nodes[place].slots[slot].database <= 0.0 {
            return self.work_again(place, slot);
        }
        match self.connections {
            0 => self.database.push_back((place, slot)),
            _ => {
                self.connections -= 1;
                self.use_database(place, slot);
            }
        }
    }

    fn use_database(&mut self, place: usize, slot: usize) {
        let took = self.nodes[place].slots[slot].database;
        self.plan(self.now + took, Event::DatabaseDone { node: place, slot });
    }

    fn work_again(&mut self, place: usize, slot: usize) {
        let one = &mut self.nodes[place].slots[slot];
        one.blocked += self.now - one.waits_since;
        let cpu = one.cpu;
        self.work(place, slot, cpu / 2.0);
    }

    fn end(&mut self, place: usize, slot: usize) {
        let (now, time) = (self.now, self.time());
        let node = &mut self.nodes[place];
        let one = node.slots[slot];
        let ready = (now - one.began - one.cpu - one.blocked).max(0.0);
        let spent = Spent {
            cpu: Duration::from_secs_f64(one.cpu),
            ready: Some(Duration::from_secs_f64(ready)),
            blocked: Duration::from_secs_f64(one.blocked),
        };
        node.meter.ended(time, 0, spent);
        self.outcome.served.push((one.arrived, now - one.arrived));
        while let Some(arrived) = self.nodes[place].queue.pop_front() {
            if now - arrived <= self.traffic.queue_timeout {
                return self.begin(place, slot, arrived);
            }
            self.outcome.failed.push(arrived);
        }
        let node = &mut self.nodes[place];
        node.free.push(slot);
        node.meter.busy(time, node.busy());
    }

    fn scale(&mut self, scaler: &mut dyn Autoscaler) {
        let (now, time) = (self.now, self.time());
        let capacity = PoolCapacity {
            cores: self.shape.cores,
            memory: None,
            max_children: self.shape.workers,
        };
        let here = self.nodes.iter_mut().filter(|node| !node.leaves);
        let samples = here.map(|node| Sample {
            value: (node.ready_at <= now).then(|| node.meter.read(time, &capacity).value),
        });
        let samples: Vec<Sample> = samples.collect();
        let wants = scaler.desired(now, &samples);
        let start = now + self.shape.start;
        (samples.len()..wants).for_each(|_| self.add_node(start));
        let here = self.nodes.iter_mut().rev().filter(|node| !node.leaves);
        let beyond = samples.len().saturating_sub(wants);
        here.take(beyond).for_each(|node| node.leaves = true);
        self.outcome.sizes.push((now, wants));
    }
}
