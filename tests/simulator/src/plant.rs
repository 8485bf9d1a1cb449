//! What is simulated: the load, and the machine.

use crate::chance::Times;
use crate::cores::Drag;

/// Bytes in a megabyte.
pub const MB: f64 = 1024.0 * 1024.0;

/// A kind of request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kind {
    /// Its relative frequency.
    pub weight: f64,
    /// Processor time.
    pub cpu: Times,
    /// Time of waiting that other requests do not affect.
    pub blocked: Times,
    /// Time at the database once it has a connection; work under the lock, if the database is a
    /// lock.
    pub database: Times,
    /// Memory in addition to its worker's, in bytes.
    pub peak: f64,
}

impl Kind {
    /// A request that computes and waits.
    pub fn new(cpu: Times, blocked: Times) -> Kind {
        Kind { weight: 1.0, cpu, blocked, database: Times::Fixed(0.0), peak: 0.0 }
    }
}

/// The load from a time on.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// Its start, in seconds.
    pub at: f64,
    /// Requests a second.
    pub rate: f64,
    /// The kinds of requests.
    pub kinds: Vec<Kind>,
    /// Processors.
    pub cores: f64,
}

/// A database with a limited number of connections.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Database {
    /// Connections.
    pub slots: usize,
    /// It is a lock of the application: its holder computes.
    pub is_lock: bool,
}

/// Memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Memory {
    /// The limit.
    pub limit: f64,
    /// Memory of other processes and the pool's shared memory.
    pub base: f64,
    /// Private memory of a warm worker.
    pub worker: f64,
    /// Growth with each request.
    pub leak: f64,
    /// Requests use memory in child processes.
    pub by_children: bool,
    /// The slowdown for each hundredth that is swapped out.
    pub swap_drag: f64,
}

/// The cost of starting a worker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Boot {
    /// Processor time, in seconds.
    pub cpu: f64,
    /// Other time, in seconds.
    pub time: f64,
}

/// A machine, its load, and its clients.
#[derive(Debug, Clone, PartialEq)]
pub struct Plant {
    /// Its name in reports.
    pub name: &'static str,
    /// The load over time; the first segment starts at 0.
    pub segments: Vec<Segment>,
    /// The cost of running workers for each other.
    pub drag: Drag,
    /// The database, if there is one.
    pub database: Option<Database>,
    /// Memory, if it is limited.
    pub memory: Option<Memory>,
    /// The cost of starting a worker.
    pub boot: Boot,
    /// Longest queue time of a request, in seconds (`request_queue_timeout`).
    pub queue_timeout: f64,
    /// Most queued requests (`request_queue_length`).
    pub queue_length: usize,
    /// The simulated time, in seconds.
    pub seconds: f64,
    /// The warm-up, in seconds.
    pub warm_up: f64,
    /// Most workers (`max_children`).
    pub cap: usize,
    /// Its load changes: there is no single best number of workers.
    pub shifts: bool,
    /// A closed loop of this many clients that each send another request after a response. They
    /// send the requests of the open loop in its order, so its rate has to be higher than theirs.
    pub users: Option<usize>,
}

impl Plant {
    /// A constant load of one kind on a constant number of processors.
    pub fn steady(name: &'static str, cores: f64, rate: f64, kind: Kind, seconds: f64) -> Plant {
        let segment = Segment { at: 0.0, rate, kinds: vec![kind], cores };
        Plant {
            name,
            segments: vec![segment],
            drag: Drag { switching: 0.005, ..Drag::default() },
            database: None,
            memory: None,
            boot: Boot { cpu: 0.003, time: 0.002 },
            queue_timeout: 2.0,
            queue_length: 1000,
            seconds,
            warm_up: seconds / 6.0,
            cap: 96,
            shifts: false,
            users: None,
        }
    }

    /// Whether requests run one after another for a part of their time.
    pub fn is_locked(&self) -> bool {
        self.database.is_some_and(|database| database.is_lock)
    }

    /// The segment at a time.
    pub fn segment(&self, at: f64) -> &Segment {
        let after = self.segments.partition_point(|segment| segment.at <= at);
        &self.segments[after.saturating_sub(1)]
    }
}
