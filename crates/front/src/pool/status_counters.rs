//! The counters of php-fpm's status page. Scripts read them from the boards of their generations,
//! which a hostile script can overwrite; so the front counts in its own memory and copies the
//! result to the boards.

use std::sync::atomic::Ordering::Relaxed;

use maitred_seat::board::PoolBoard;

/// The status counters of a pool.
#[derive(Debug, Default)]
pub struct StatusCounters {
    /// Requests that were assigned to a worker.
    pub accepted: u64,
    /// Number of times that a request found every worker busy.
    pub limit_reached: u32,
    /// Scripts that ran for longer than `request_slowlog_timeout`.
    pub slow: u64,
    /// `request_queue_length`.
    pub queue_limit: u32,
    max_queued: u32,
    max_active: u32,
    /// In seconds since 1970; 0: not opened.
    opened_at: u64,
}

impl StatusCounters {
    /// Loads the counts of an earlier front from the board of the generation it used, once.
    pub fn open(&mut self, board: &PoolBoard, now: u64) {
        if self.opened_at != 0 {
            return;
        }
        self.accepted = board.accepted.load(Relaxed);
        self.limit_reached = board.max_children_reached.load(Relaxed);
        self.slow = board.slow.load(Relaxed);
        self.max_queued = board.max_queued.load(Relaxed);
        self.max_active = board.max_active.load(Relaxed);
        self.opened_at = match board.opened_at.load(Relaxed) {
            0 => now,
            opened => opened,
        };
    }

    /// Updates the maxima: waiting requests and busy workers.
    pub fn see(&mut self, queued: u32, active: u32) {
        self.max_queued = self.max_queued.max(queued);
        self.max_active = self.max_active.max(active);
    }

    /// Writes the counters to a generation's board.
    pub fn show(&self, board: &PoolBoard, queued: u32, active: u32) {
        board.accepted.store(self.accepted, Relaxed);
        board.queued.store(queued, Relaxed);
        board.max_queued.store(self.max_queued, Relaxed);
        board.queue_limit.store(self.queue_limit, Relaxed);
        board.active.store(active, Relaxed);
        board.max_active.store(self.max_active, Relaxed);
        let reached = &board.max_children_reached;
        reached.store(self.limit_reached, Relaxed);
        board.opened_at.store(self.opened_at, Relaxed);
        board.slow.store(self.slow, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use maitred_seat::{FrontEnd, create};

    use super::*;

    #[test]
    fn what_a_worker_writes_into_a_pools_figures_is_shown_until_they_change_and_no_longer() {
        let file = create("figures", 1, 1).unwrap();
        let link = FrontEnd::take_over(&file, 1, 1).unwrap();
        let board = link.board();
        let mut counters = StatusCounters::default();
        counters.open(board, 1000);
        (counters.accepted, counters.queue_limit) = (3, 100);
        counters.see(5, 2);
        counters.see(1, 1);
        board.accepted.store(u64::MAX, Relaxed);
        board.max_queued.store(u32::MAX, Relaxed);
        board.opened_at.store(7, Relaxed);
        counters.open(board, 2000);
        counters.show(board, 1, 1);
        let shown = [board.max_queued.load(Relaxed), board.max_active.load(Relaxed)];
        assert_eq!(shown, [5, 2]);
        let shown = [board.accepted.load(Relaxed), board.opened_at.load(Relaxed)];
        assert_eq!(shown, [3, 1000]);
        // The front after this one goes on from there.
        let mut next = StatusCounters::default();
        next.open(board, 3000);
        assert_eq!((next.accepted, next.opened_at), (3, 1000));
    }
}
