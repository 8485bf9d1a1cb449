//! The counters of php-fpm's status page. Scripts read them from the boards of their generations,
//! which a hostile script can overwrite; so the front counts in its own memory and copies the
//! result to the boards.

use std::sync::LazyLock;
use std::sync::atomic::Ordering::Relaxed;

use maitred_seat::board::PoolBoard;

/// Memory and swap space of the machine when the front first asks, in bytes.
pub fn machine_memory() -> u64 {
    static MACHINE_MEMORY: LazyLock<u64> = LazyLock::new(|| {
        let info = rustix::system::sysinfo();
        let units = info.totalram.saturating_add(info.totalswap);
        units.saturating_mul(info.mem_unit.into())
    });
    *MACHINE_MEMORY
}

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
    /// Highest peak memory of a script, in bytes.
    memory_peak: u64,
    /// In seconds since 1970; 0: not opened.
    opened_at: u64,
}

impl StatusCounters {
    /// Loads the counts of an earlier front from the board of the generation it used, once.
    /// The machine has `machine_memory` bytes.
    pub fn open(&mut self, board: &PoolBoard, now: u64, machine_memory: u64) {
        if self.opened_at != 0 {
            return;
        }
        self.accepted = board.accepted.load(Relaxed);
        self.limit_reached = board.max_children_reached.load(Relaxed);
        self.slow = board.slow.load(Relaxed);
        self.max_queued = board.max_queued.load(Relaxed);
        self.max_active = board.max_active.load(Relaxed);
        self.memory_peak = 0;
        self.see_memory_peak(board.memory_peak.load(Relaxed), machine_memory);
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

    /// Updates the highest peak memory with that of a finished script, which its worker reports.
    /// More than the memory of the machine is no peak: it would hide all later ones.
    pub fn see_memory_peak(&mut self, reported: u64, machine_memory: u64) {
        if reported <= machine_memory {
            self.memory_peak = self.memory_peak.max(reported);
        }
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
        board.memory_peak.store(self.memory_peak, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use maitred_seat::{FrontEnd, create};

    use super::*;

    /// Of the machine, in bytes.
    const MEMORY: u64 = 1 << 30;

    #[test]
    fn what_a_worker_writes_into_a_pools_figures_is_shown_until_they_change_and_no_longer() {
        let file = create("figures", 1, 1).unwrap();
        let link = FrontEnd::take_over(&file, 1, 1).unwrap();
        let board = link.board();
        let mut counters = StatusCounters::default();
        counters.open(board, 1000, MEMORY);
        (counters.accepted, counters.queue_limit) = (3, 100);
        counters.see(5, 2);
        counters.see(1, 1);
        board.accepted.store(u64::MAX, Relaxed);
        board.max_queued.store(u32::MAX, Relaxed);
        board.opened_at.store(7, Relaxed);
        counters.open(board, 2000, MEMORY);
        counters.show(board, 1, 1);
        let shown = [board.max_queued.load(Relaxed), board.max_active.load(Relaxed)];
        assert_eq!(shown, [5, 2]);
        let shown = [board.accepted.load(Relaxed), board.opened_at.load(Relaxed)];
        assert_eq!(shown, [3, 1000]);
        // The front after this one goes on from there.
        let mut next = StatusCounters::default();
        next.open(board, 3000, MEMORY);
        assert_eq!((next.accepted, next.opened_at), (3, 1000));
    }

    #[test]
    fn the_memory_peak_of_a_pool_outlasts_a_reload_and_a_lie_of_a_worker() {
        let files = [1, 2].map(|_| create("peaks", 1, 1).unwrap());
        let [old, new] = files.each_ref().map(|file| FrontEnd::take_over(file, 1, 1).unwrap());
        let mut counters = StatusCounters::default();
        counters.open(old.board(), 1000, MEMORY);
        for reported in [4096, 8192, 2048, MEMORY + 1, u64::MAX] {
            counters.see_memory_peak(reported, MEMORY);
        }
        old.board().memory_peak.store(u64::MAX, Relaxed);
        for link in [&old, &new] {
            counters.open(link.board(), 2000, MEMORY);
            counters.show(link.board(), 0, 0);
            assert_eq!(link.board().memory_peak.load(Relaxed), 8192);
        }
        let next = |shown| {
            new.board().memory_peak.store(shown, Relaxed);
            let mut next = StatusCounters::default();
            next.open(new.board(), 3000, MEMORY);
            next.memory_peak
        };
        assert_eq!((next(8192), next(u64::MAX)), (8192, 0));
    }
}
