//! php-fpm's `process_control_timeout`: how long running scripts of a replaced generation are
//! waited for.

use std::time::Duration;

use maitred_control::WorkerId;
use maitred_os::clock::monotonic_nanos;
use maitred_seat::Boards;
use maitred_seat::board::SeatBoard;

use crate::limits::Moment;
use crate::processes::pools::{PoolId, Pools};

/// Whether a worker has run the same script for this `time` at `now`, as its board says.
fn has_run_for(board: &SeatBoard, time: Duration, now: Duration) -> bool {
    let since = board.runs_since(now);
    since.is_some_and(|since| now.saturating_sub(since) >= time)
}

/// Workers of leaving generations that have run the same script for longer than `limit`
/// (`process_control_timeout`) since their generation was replaced. A script that started later is
/// no old request: php-fpm would have given it to a new worker.
pub fn overdue(pools: &mut Pools, limit: Duration, now: Moment) -> Vec<(PoolId, WorkerId)> {
    let mut overdue = Vec::new();
    for running in pools.iter_mut().filter(|pool| pool.state.is_leaving()) {
        let leave_by = *running.leave_by.get_or_insert(now + limit);
        if leave_by > now {
            continue;
        }
        running.leave_by = Some(Moment::MAX);
        let since = (now - leave_by).saturating_add(limit);
        let boards = Boards::map(&running.plan.memory).ok();
        let clock = Duration::from_nanos(monotonic_nanos());
        let id = running.id();
        let late = running.state.seated().filter(|seated| {
            let board = boards.as_ref().and_then(|boards| boards.seat(seated.worker.seat));
            board.is_none_or(|board| has_run_for(board, since, clock))
        });
        overdue.extend(late.map(|seated| (id, seated.worker)));
    }
    overdue
}

/// When workers of a leaving generation are ended.
pub fn deadline(pools: &Pools) -> Option<Moment> {
    let leaving = pools.iter().filter_map(|pool| pool.leave_by);
    leaving.filter(|by| *by != Moment::MAX).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::{SystemTime, UNIX_EPOCH};

    #[test]
    fn a_wall_clock_that_is_set_makes_no_script_an_old_one() {
        const LIMIT: Duration = Duration::from_secs(10);
        let file = maitred_seat::create("clock", 1, 1).unwrap();
        let boards = Boards::map(file).unwrap();
        let board = boards.seat(0).unwrap();
        let began = Duration::from_secs(100);
        board.request_since.store(100_000_000_000, Relaxed);
        board.running.store(1, Relaxed);
        for wall in [0, u64::MAX] {
            board.request_at.store(wall, Relaxed);
            assert!(!has_run_for(board, LIMIT, began + LIMIT / 2));
            assert!(has_run_for(board, LIMIT, began + LIMIT));
        }
        board.running.store(0, Relaxed);
        assert!(!has_run_for(board, LIMIT, began + LIMIT));
    }

    #[test]
    fn a_script_of_a_worker_that_tells_the_wall_clock_only_is_as_old_as_that_says() {
        const DAY: Duration = Duration::from_secs(86_400);
        let file = maitred_seat::create("clock", 1, 1).unwrap();
        let boards = Boards::map(file).unwrap();
        let board = boards.seat(0).unwrap();
        let began = |at: SystemTime| {
            let at = at.duration_since(UNIX_EPOCH).unwrap().as_micros();
            board.request_at.store(u64::try_from(at).unwrap(), Relaxed);
        };
        board.running.store(1, Relaxed);
        began(SystemTime::now());
        assert!(!has_run_for(board, DAY, 30 * DAY));
        began(SystemTime::now() - 2 * DAY);
        assert!(has_run_for(board, DAY, 30 * DAY));
    }
}
