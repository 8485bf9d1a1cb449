//! A copy of a pool's boards, for `fpm_get_status` and the status page.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::board::{PoolBoard, SeatBoard};

/// A pool at one moment, approximately: it is not stopped, so values may be a few requests apart.
/// Values from a seat's board are unverified, since its worker writes them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolState {
    /// When the pool was opened, in seconds since 1970.
    pub start_time: u64,
    /// Seconds since then.
    pub start_since: u64,
    /// Completed requests.
    pub accepted: u64,
    /// Requests waiting for a worker.
    pub queued: u32,
    /// Longest queue so far.
    pub max_queued: u32,
    /// Limit of the queue.
    pub queue_limit: u32,
    /// Workers without a request.
    pub idle: u32,
    /// Workers with a request.
    pub active: u32,
    /// Most active workers at the same time.
    pub max_active: u32,
    /// How often a request found all workers busy.
    pub max_children_reached: u32,
    /// Scripts that ran for longer than `request_slowlog_timeout`.
    pub slow: u64,
    /// Highest peak memory of a script, in bytes.
    pub memory_peak: u64,
    /// The workers, by seat.
    pub processes: Vec<WorkerState>,
}

/// A worker at one moment, unverified.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkerState {
    /// Process id.
    pub pid: u32,
    /// Whether it runs a script.
    pub running: bool,
    /// When it was forked, in seconds since 1970.
    pub start_time: u64,
    /// Seconds since then.
    pub start_since: u64,
    /// Requests it has started.
    pub requests: u64,
    /// Microseconds of the running request so far, or of the last one.
    pub duration: u64,
    /// Method of that request; empty before the first.
    pub method: String,
    /// Its target, without the query.
    pub uri: String,
    /// Its query.
    pub query: String,
    /// Length of its body in bytes.
    pub content_length: u64,
    /// Its authenticated user, or empty.
    pub user: String,
    /// Its script.
    pub script: String,
    /// Processor time of the last request in microseconds, if measured; 0 during a request.
    pub cpu: u64,
    /// Peak memory of the last script in bytes; 0 during a request.
    pub memory_peak: u64,
}

impl PoolState {
    /// Copies a pool's board and those of its occupied seats; `now` is the time since 1970. A
    /// worker without a process id on its board is left out.
    pub fn take<'b>(
        pool: &PoolBoard,
        seats: impl Iterator<Item = &'b SeatBoard>,
        now: Duration,
    ) -> PoolState {
        let processes: Vec<WorkerState> = seats
            .filter(|board| board.pid.load(Relaxed) != 0)
            .map(|board| WorkerState::of(board, now))
            .collect();
        let start_time = pool.opened_at.load(Relaxed);
        let active = pool.active.load(Relaxed);
        let present = u32::try_from(processes.len()).unwrap_or(u32::MAX);
        PoolState {
            start_time,
            start_since: now.as_secs().saturating_sub(start_time),
            accepted: pool.accepted.load(Relaxed),
            queued: pool.queued.load(Relaxed),
            max_queued: pool.max_queued.load(Relaxed),
            queue_limit: pool.queue_limit.load(Relaxed),
            idle: present.saturating_sub(active),
            active,
            max_active: pool.max_active.load(Relaxed),
            max_children_reached: pool.max_children_reached.load(Relaxed),
            slow: pool.slow.load(Relaxed),
            memory_peak: pool.memory_peak.load(Relaxed),
            processes,
        }
    }
}

impl WorkerState {
    fn of(board: &SeatBoard, now: Duration) -> WorkerState {
        let running = board.running.load(Relaxed) != 0;
        let micros = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        let start_time = board.started_at.load(Relaxed);
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let (duration, cpu, memory_peak) = if running {
            let begun = board.request_at.load(Relaxed);
            (micros.saturating_sub(begun), 0, 0)
        } else {
            let took = board.request_took.load(Relaxed);
            let cpu = board.cpu_micros.load(Relaxed);
            (took, cpu, board.memory_peak.load(Relaxed))
        };
        WorkerState {
            pid: board.pid.load(Relaxed),
            running,
            start_time,
            start_since: now.as_secs().saturating_sub(start_time),
            requests: board.requests.load(Relaxed),
            duration,
            method: text(board.method.get()),
            uri: text(board.uri.get()),
            query: text(board.query.get()),
            content_length: board.content_length.load(Relaxed),
            user: text(board.user.get()),
            script: text(board.script.get()),
            cpu,
            memory_peak,
        }
    }

    /// The share of a processor that the last request had, in per cent.
    pub fn cpu_share(&self) -> f64 {
        match self.duration {
            0 => 0.0,
            took => self.cpu as f64 / took as f64 * 100.0,
        }
    }
}
