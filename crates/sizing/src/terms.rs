//! What a number of workers is made of, and which part of it decides.

/// What the user has said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Fewest workers.
    pub floor: usize,
    /// Most workers (`max_children`).
    pub cap: usize,
}

/// What the pool's processes may use now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// Processors, in parts where a quota gives parts.
    pub cores: f64,
    /// Workers there is memory for; nothing: as many as there may be.
    pub memory: Option<usize>,
}

/// What is in the pool's hands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Workers that serve, with a request or without.
    pub ready: usize,
    /// Workers that run a request.
    pub busy: usize,
    /// Requests that wait for one.
    pub waiting: usize,
    /// Of the workers those that have run theirs for much longer than one takes
    /// ([`Controller::parks_after`]).
    pub parked: usize,
}

/// What decides. What binds is the smallest; of two that are the same the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// No more are needed.
    Demand,
    /// The processors are full.
    Cpu,
    /// Memory is.
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

/// How many workers each part allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// As many are needed.
    pub demand: usize,
    /// As many keep the processors busy.
    pub cpu: usize,
    /// There is memory for as many; nothing: it is no limit.
    pub memory: Option<usize>,
    /// As many do something; nothing: no such limit was found.
    pub downstream: Option<usize>,
    /// As many may be.
    pub user: usize,
}

impl Terms {
    /// One of them; nothing: it is no limit.
    pub fn of(&self, binding: Binding) -> Option<usize> {
        match binding {
            Binding::Demand => Some(self.demand),
            Binding::Cpu => Some(self.cpu),
            Binding::Memory => self.memory,
            Binding::Downstream => self.downstream,
            Binding::User => Some(self.user),
        }
    }

    /// The number they make, and which of them it is.
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

/// The outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizing {
    /// As many workers are to be there.
    pub workers: usize,
    /// Why not more.
    pub binding: Binding,
    /// What it was made of.
    pub terms: Terms,
}
