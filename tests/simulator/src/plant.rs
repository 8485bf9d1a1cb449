//! What is played: the work that comes, and what there is to do it with.

use crate::chance::Times;
use crate::cores::Drag;

/// Bytes in a megabyte.
pub const MB: f64 = 1024.0 * 1024.0;

/// A kind of request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kind {
    /// How many of all requests are of it, as a share of the sum.
    pub weight: f64,
    /// Processor time.
    pub cpu: Times,
    /// Waiting for what nobody else waits for.
    pub blocked: Times,
    /// Time at the database, once it has its turn; work under the lock, if it is one.
    pub database: Times,
    /// Memory that it takes beside its worker's, in bytes.
    pub peak: f64,
}

impl Kind {
    /// A request that works and waits.
    pub fn new(cpu: Times, blocked: Times) -> Kind {
        Kind {
            weight: 1.0,
            cpu,
            blocked,
            database: Times::Fixed(0.0),
            peak: 0.0,
        }
    }
}

/// From when on how many requests come, and of which kinds.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// When it begins, in seconds.
    pub at: f64,
    /// Requests a second.
    pub rate: f64,
    /// Kinds.
    pub kinds: Vec<Kind>,
    /// Processors.
    pub cores: f64,
}

/// A database that serves so many at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Database {
    /// Connections.
    pub slots: usize,
    /// It is a lock of the application's: whoever has it works.
    pub is_lock: bool,
}

/// Memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Memory {
    /// What there is.
    pub limit: f64,
    /// What others and the pool's shared memory have.
    pub base: f64,
    /// What each worker has for itself when it is warm.
    pub worker: f64,
    /// By how much each request makes it grow.
    pub leak: f64,
    /// What requests take is their children's.
    pub by_children: bool,
    /// How much slower everybody is for each hundredth that is swapped out.
    pub swap_drag: f64,
}

/// How a worker comes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Boot {
    /// Processor time, in seconds.
    pub cpu: f64,
    /// Other time, in seconds.
    pub time: f64,
}

/// A machine, the work on it, and its clients.
#[derive(Debug, Clone, PartialEq)]
pub struct Plant {
    /// Its name in reports.
    pub name: &'static str,
    /// What comes, in order; the first at 0.
    pub segments: Vec<Segment>,
    /// What more workers at work cost each other.
    pub drag: Drag,
    /// The database, if there is one.
    pub database: Option<Database>,
    /// Memory, if it is short.
    pub memory: Option<Memory>,
    /// How a worker comes.
    pub boot: Boot,
    /// Longest that a request waits for a worker, in seconds (`request_queue_timeout`).
    pub queue_timeout: f64,
    /// Most requests that wait (`request_queue_length`).
    pub queue_length: usize,
    /// How long it is played, in seconds.
    pub seconds: f64,
    /// What of that is not counted, from its beginning.
    pub warm_up: f64,
    /// Most workers (`max_children`).
    pub cap: usize,
    /// Its work changes: there is no one best number.
    pub shifts: bool,
    /// So many clients that each send another request when they have their answer, in place of requests that
    /// come whatever happens. Theirs are those that would have come, in that order: the rate is to be more
    /// than they can send.
    pub users: Option<usize>,
}

impl Plant {
    /// What lasts `seconds`: as many requests a second of one kind, on as many processors.
    pub fn steady(name: &'static str, cores: f64, rate: f64, kind: Kind, seconds: f64) -> Plant {
        let segment = Segment {
            at: 0.0,
            rate,
            kinds: vec![kind],
            cores,
        };
        Plant {
            name,
            segments: vec![segment],
            drag: Drag {
                switching: 0.005,
                ..Drag::default()
            },
            database: None,
            memory: None,
            boot: Boot {
                cpu: 0.003,
                time: 0.002,
            },
            queue_timeout: 2.0,
            queue_length: 1000,
            seconds,
            warm_up: seconds / 6.0,
            cap: 96,
            shifts: false,
            users: None,
        }
    }

    /// Whether requests work one after another for a part of their time.
    pub fn is_locked(&self) -> bool {
        self.database.is_some_and(|database| database.is_lock)
    }

    /// The segment at a time.
    pub fn segment(&self, at: f64) -> &Segment {
        let after = self.segments.partition_point(|segment| segment.at <= at);
        &self.segments[after.saturating_sub(1)]
    }
}
