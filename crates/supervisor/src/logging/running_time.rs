//! How a script that still runs has spent its time: what its worker has used now, minus what it had
//! used when it was last measured, before that script.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use maitred_os::schedstat::Schedstat;
use maitred_seat::board::{SeatBoard, UNKNOWN};

/// How a script has spent its time so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunningTime {
    /// Time on a processor; up to one clock tick (4 ms) may be missing.
    pub cpu: Duration,
    /// Time in which it was ready to run without having a processor.
    pub core_wait: Duration,
    /// Time in which it waited for anything else.
    pub blocked: Duration,
}

impl RunningTime {
    /// For a script that has run for `ran` in the worker `pid`, which publishes to this board.
    /// `None` if the worker or the kernel gives no values.
    pub fn of(pid: i32, board: &SeatBoard, ran: Duration) -> Option<RunningTime> {
        let (cpu, waited) = (board.used_cpu.load(Relaxed), board.used_core_wait.load(Relaxed));
        if cpu == 0 || waited == UNKNOWN {
            return None;
        }
        let before = (Duration::from_micros(cpu), Duration::from_nanos(waited));
        Some(RunningTime::between(before, Schedstat::of(pid)?, ran))
    }

    fn between(before: (Duration, Duration), now: Schedstat, ran: Duration) -> RunningTime {
        let since = |now: u64, before| Duration::from_nanos(now).saturating_sub(before);
        let (cpu, core_wait) = (since(now.ran, before.0), since(now.waited, before.1));
        RunningTime { cpu, core_wait, blocked: ran.saturating_sub(cpu).saturating_sub(core_wait) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_a_script_has_used_is_what_came_since_its_worker_was_measured() {
        let now = Schedstat { ran: 7_000_000_000, waited: 2_000_000_000 };
        let so_far = RunningTime::between((6 * SECOND, SECOND), now, 5 * SECOND);
        assert_eq!((so_far.cpu, so_far.core_wait), (SECOND, SECOND));
        assert_eq!(so_far.blocked, 3 * SECOND);
        let odd = RunningTime::between((9 * SECOND, 9 * SECOND), now, SECOND);
        assert_eq!((odd.cpu, odd.blocked), (Duration::ZERO, SECOND));
    }
}
