//! What a pool can do for the next request, for readiness.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use maitred_config::ProcessManager;
use maitred_scoreboard::{Counter, RequestOutcome};

use crate::pool::Pool;
use crate::pool::generations::PoolQueues;

/// What a pool can do for the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolState {
    /// It has a worker.
    Serving,
    /// It has no worker, needs none without a request, and gets one for the next.
    Resting,
    /// It has never had a worker: its PHP or its application starts.
    Booting,
    /// Its workers have ended, and others are being started.
    NoWorker,
    /// Its PHP, or its application, does not start.
    Failed,
}

impl PoolState {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            PoolState::Serving => "serving",
            PoolState::Resting => "resting",
            PoolState::Booting => "booting",
            PoolState::NoWorker => "no worker",
            PoolState::Failed => "failed",
        }
    }

    /// Whether the next request gets a worker.
    pub fn can_serve(self) -> bool {
        matches!(self, PoolState::Serving | PoolState::Resting)
    }
}

/// A pool, as far as readiness depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolHealth {
    /// Its name.
    pub name: String,
    /// What it can do.
    pub state: PoolState,
    /// Time since it has rejected a request for lack of workers; none: never.
    pub rejected: Option<Duration>,
}

/// When a pool has rejected a request for lack of workers.
#[derive(Debug, Default)]
pub struct LastRejection {
    /// Milliseconds on the clock of the scoreboard; 0: never.
    at: AtomicU64,
}

impl LastRejection {
    /// A request is rejected now.
    pub fn note(&self) {
        let now = maitred_scoreboard::now().as_millis();
        self.at.store(u64::try_from(now).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The time since the last one.
    fn since(&self) -> Option<Duration> {
        let at = self.at.load(Ordering::Relaxed);
        (at > 0).then(|| maitred_scoreboard::now().saturating_sub(Duration::from_millis(at)))
    }
}

/// Whether a request that gets no worker for this reason is one too many.
pub fn is_shed(why: RequestOutcome) -> bool {
    why.is_rejection() && !matches!(why, RequestOutcome::CrashLimit | RequestOutcome::NoPool)
}

impl Pool {
    /// What it can do for the next request.
    pub fn health(&self) -> PoolHealth {
        let state = {
            let state = self.lock();
            self.state_of(&state)
        };
        PoolHealth { name: self.name.to_string(), state, rejected: self.last_rejection.since() }
    }

    fn state_of(&self, state: &PoolQueues) -> PoolState {
        if state.queue.has_open_workers() {
            return PoolState::Serving;
        }
        if state.suspended_until.is_some() {
            return PoolState::Failed;
        }
        let settings = self.settings();
        let rests = match settings.pm {
            ProcessManager::Static | ProcessManager::Dynamic => false,
            ProcessManager::Ondemand => true,
            ProcessManager::Auto => settings.fewest_found() == 0 || state.growth.is_resting(),
        };
        if rests {
            return PoolState::Resting;
        }
        let started = |page: &maitred_scoreboard::Page| {
            page.read().counters.count(Counter::WorkersStarted) > 0
        };
        match self.metrics().is_some_and(|metrics| started(metrics.page())) {
            true => PoolState::NoWorker,
            false => PoolState::Booting,
        }
    }
}
