//! Counters that workers publish in the shared memory of their seats.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

use maitred_seat::Boards;
use maitred_sizing::ledger::WorkerMemory;

use crate::processes::generation::Seated;
use crate::processes::running_pool::RunningPool;

/// What a worker publishes about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WorkerCounters {
    /// Peak memory of the largest program that it has run, in bytes.
    pub(super) program: u64,
    /// Requests that it has begun.
    pub(super) requests: u64,
}

/// A source of worker counters.
pub(super) trait CounterSource {
    /// The counters of each worker, by process id.
    fn reported_by_workers(&self) -> HashMap<i32, WorkerCounters>;
}

impl CounterSource for RunningPool {
    fn reported_by_workers(&self) -> HashMap<i32, WorkerCounters> {
        // Mapped only while they are read.
        let boards = Boards::map(&self.plan.memory).ok();
        boards.map_or_else(HashMap::new, |boards| reported_by(&boards, self.state.seated()))
    }
}

/// Adds the worker's counters, if it has published any. A value above `limit`, the memory of the
/// machine, is cut to it.
pub(super) fn with_reported(
    has: WorkerMemory,
    reported: Option<WorkerCounters>,
    limit: f64,
) -> WorkerMemory {
    let program = reported.map_or(0.0, |reported| reported.program as f64).min(limit);
    WorkerMemory {
        most: has.most.map(|most| most + program),
        served: reported.map(|reported| reported.requests),
        ..has
    }
}

/// The counters of workers, by process id.
fn reported_by(
    boards: &Boards,
    seated: impl Iterator<Item = Seated>,
) -> HashMap<i32, WorkerCounters> {
    let reported = seated.filter_map(|worker| {
        let board = boards.seat(worker.worker.seat)?;
        let reported = WorkerCounters {
            program: board.program_most.load(Relaxed),
            requests: board.requests.load(Relaxed),
        };
        Some((worker.pid, reported))
    });
    reported.collect()
}

#[cfg(test)]
mod tests {
    use maitred_control::WorkerId;

    use super::*;

    #[test]
    fn the_requests_and_the_largest_program_that_a_worker_publishes_are_counted() {
        let memory = maitred_seat::create("www", 2, 1).unwrap();
        let boards = Boards::map(&memory).unwrap();
        boards.seat(1).unwrap().program_most.store(4000, Relaxed);
        boards.seat(1).unwrap().requests.store(7, Relaxed);
        let seated = [(0, 10), (1, 11), (2, 12)]
            .map(|(seat, pid)| Seated { worker: WorkerId { seat, incarnation: 1 }, pid });
        let reported = reported_by(&boards, seated.into_iter());
        let all = [(10, 0, 0), (11, 4000, 7)];
        let all = all.map(|(pid, program, requests)| (pid, WorkerCounters { program, requests }));
        assert_eq!(reported, HashMap::from(all));
        let has = |most, served| WorkerMemory { own: 1.0, most, served };
        let with = |most| with_reported(has(most, None), reported.get(&11).copied(), 3000.0);
        assert_eq!(with(Some(2.0)), has(Some(3002.0), Some(7)), "and no more than there is");
        assert_eq!(with(None), has(None, Some(7)), "no counters");
        let unknown = with_reported(has(None, None), None, 3000.0);
        assert_eq!(unknown, has(None, None));
    }
}
