//! The parts of a number of workers, and the one that decides.

/// The configured bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Fewest workers.
    pub floor: usize,
    /// Most workers (`max_children`).
    pub cap: usize,
}

/// The resources of the pool's processes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// Processors, fractional for a quota.
    pub cores: f64,
    /// Workers that fit into memory; `None`: no limit.
    pub memory: Option<usize>,
}

/// The load of a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Serving workers, with a request or without.
    pub ready: usize,
    /// Workers that run a request.
    pub busy: usize,
    /// Requests that wait for a worker.
    pub waiting: usize,
    /// Workers whose request has run much longer than one takes ([`Controller::parks_after`]).
    pub parked: usize,
}

/// The limit that decides: the smallest, or the first of two equal ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// No more are needed.
    Demand,
    /// The processors are full.
    Cpu,
    /// Memory is full.
    Memory,
    /// All wait for the same thing.
    Downstream,
    /// `max_children`.
    User,
}

impl Binding {
    /// Its name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Binding::Demand => "demand",
            Binding::Cpu => "cpu",
            Binding::Memory => "memory",
            Binding::Downstream => "downstream",
            Binding::User => "user",
        }
    }
}

/// The number of workers that each part allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Needed.
    pub demand: usize,
    /// Keep the processors busy.
    pub cpu: usize,
    /// Fit into memory; `None`: no limit.
    pub memory: Option<usize>,
    /// Contribute; `None`: no such limit was found.
    pub downstream: Option<usize>,
    /// Are allowed.
    pub user: usize,
}

impl Terms {
    /// One of them; `None`: no limit.
    pub fn of(&self, binding: Binding) -> Option<usize> {
        match binding {
            Binding::Demand => Some(self.demand),
            Binding::Cpu => Some(self.cpu),
            Binding::Memory => self.memory,
            Binding::Downstream => self.downstream,
            Binding::User => Some(self.user),
        }
    }

    /// The resulting number, and the part that decides it.
    pub fn least(&self) -> (usize, Binding) {
        let all = [
            (self.demand, Binding::Demand),
            (self.cpu, Binding::Cpu),
            (self.memory.unwrap_or(usize::MAX), Binding::Memory),
            (self.downstream.unwrap_or(usize::MAX), Binding::Downstream),
            (self.user, Binding::User),
        ];
        let least = all.into_iter().min_by_key(|(workers, _)| *workers);
        least.unwrap_or((self.user, Binding::User))
    }
}

impl std::fmt::Display for Terms {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let or_none = |term: Option<usize>| term.map_or("-".to_owned(), |term| term.to_string());
        write!(
            out,
            "demand {}, cpu {}, memory {}, downstream {}, max_children {}",
            self.demand,
            self.cpu,
            or_none(self.memory),
            or_none(self.downstream),
            self.user
        )
    }
}

/// The result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizing {
    /// The target number of workers.
    pub workers: usize,
    /// The limit.
    pub binding: Binding,
    /// Its parts.
    pub terms: Terms,
}
