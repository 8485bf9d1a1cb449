//! Detects hanging scripts: those that have waited for something for much longer than a script
//! usually takes. A script that computes, or waits for a processor, does not hang, however long it
//! has run: another worker would have no processor either.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use maitred_os::clock::monotonic_nanos;
use maitred_os::schedstat::Schedstat;
use maitred_seat::board::{SeatBoard, UNKNOWN};

use crate::pool::seats::SeatId;

/// Most scripts that one count checks, each of which costs reading a file under the pool's lock.
/// The next counts check the others.
const CHECKS_MAX: usize = 32;

/// The workers with a hanging script, and the start of that script on the monotonic clock.
#[derive(Debug, Default)]
pub struct StuckWorkers {
    known: HashMap<SeatId, Duration>,
    /// The seat that was checked last.
    last: SeatId,
}

/// A script that runs.
#[derive(Debug, Clone, Copy)]
pub struct RunningScript<T> {
    /// The seat of its worker.
    pub seat: SeatId,
    /// Its start, on the monotonic clock.
    pub began: Duration,
    /// The source of its waiting time.
    pub board: T,
}

/// The script in a seat, if one runs [`now`]. A script of an older program's worker is checked in
/// each count, since its start differs slightly each time.
pub fn running(
    seat: SeatId,
    board: &SeatBoard,
    now: Duration,
) -> Option<RunningScript<&SeatBoard>> {
    let began = board.runs_since(now)?;
    Some(RunningScript { seat, began, board })
}

/// Now, on the monotonic clock.
pub fn now() -> Duration {
    Duration::from_nanos(monotonic_nanos())
}

impl StuckWorkers {
    /// Whether the script in this seat hung at the last count.
    pub fn has(&self, seat: SeatId) -> bool {
        self.known.contains_key(&seat)
    }

    /// Counts the scripts that have waited for longer than `after` by [`now`]; `waited` returns the
    /// waiting time of a script by its run time. Once counted, a script counts as hanging until it
    /// ends.
    pub fn count<T>(
        &mut self,
        scripts: impl Iterator<Item = RunningScript<T>>,
        after: Duration,
        now: Duration,
        waited: impl Fn(T, Duration) -> Duration,
    ) -> usize {
        let before = std::mem::take(&mut self.known);
        let mut unknown = Vec::new();
        for script in scripts {
            if before.get(&script.seat) == Some(&script.began) {
                self.known.insert(script.seat, script.began);
            } else if now.saturating_sub(script.began) > after {
                unknown.push(script);
            }
        }
        let next = unknown.partition_point(|script| script.seat <= self.last);
        unknown.rotate_left(next);
        for script in unknown.into_iter().take(CHECKS_MAX) {
            self.last = script.seat;
            let ran = now.saturating_sub(script.began);
            if waited(script.board, ran) > after {
                self.known.insert(script.seat, script.began);
            }
        }
        self.known.len()
    }
}

/// The time that a script with a run time of `ran` has waited for anything but a processor; all of
/// `ran` if that is unknown. Reads a file.
pub fn waited(board: &SeatBoard, ran: Duration) -> Duration {
    let pid = i32::try_from(board.pid.load(Relaxed)).unwrap_or(0);
    let cpu = board.used_cpu.load(Relaxed);
    // A new worker has used nothing before its first script. Another was not measured.
    let is_measured = cpu > 0 || board.requests.load(Relaxed) <= 1;
    let now = Schedstat::of(pid).filter(|_| is_measured);
    let core_wait = match board.used_core_wait.load(Relaxed) {
        UNKNOWN => 0,
        nanos => nanos,
    };
    let (cpu, core_wait) = (Duration::from_micros(cpu), Duration::from_nanos(core_wait));
    now.map_or(ran, |now| waited_since(cpu, core_wait, now, ran))
}

/// The part of `ran` without the processor time since a worker had used `cpu` and had waited
/// `core_wait` for a processor.
fn waited_since(cpu: Duration, core_wait: Duration, now: Schedstat, ran: Duration) -> Duration {
    let cpu = Duration::from_nanos(now.ran).saturating_sub(cpu);
    let core_wait = Duration::from_nanos(now.waited).saturating_sub(core_wait);
    ran.saturating_sub(cpu).saturating_sub(core_wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_millis(100);
    const SECOND: Duration = Duration::from_secs(1);

    fn seat(number: u32) -> SeatId {
        SeatId { generation: 1, number }
    }

    /// A script of a seat that began at a second and has waited for this long.
    fn script_in(number: u32, began: u64, waited: Duration) -> RunningScript<Duration> {
        RunningScript { seat: seat(number), began: Duration::from_secs(began), board: waited }
    }

    fn script(began: u64, waited: Duration) -> std::iter::Once<RunningScript<Duration>> {
        std::iter::once(script_in(7, began, waited))
    }

    fn count(
        stuck: &mut StuckWorkers,
        scripts: impl Iterator<Item = RunningScript<Duration>>,
        now: u64,
    ) -> usize {
        stuck.count(scripts, AFTER, SECOND * now as u32, |waited, ran| waited.min(ran))
    }

    #[test]
    fn who_waits_for_long_hangs_and_who_works_or_is_new_does_not() {
        let mut stuck = StuckWorkers::default();
        assert_eq!(count(&mut stuck, script(100, SECOND), 100), 0, "it is new");
        assert_eq!(count(&mut stuck, script(100, AFTER / 2), 160), 0, "it works");
        assert_eq!(count(&mut stuck, script(100, SECOND), 160), 1);
    }

    #[test]
    fn who_hangs_does_so_to_its_end_and_the_next_in_its_seat_does_not() {
        let mut stuck = StuckWorkers::default();
        assert_eq!(count(&mut stuck, script(100, SECOND), 102), 1);
        let asked_again = |_, _| panic!("that is known");
        let again = stuck.count(script(100, SECOND), AFTER, 103 * SECOND, asked_again);
        assert_eq!(again, 1);
        assert_eq!(count(&mut stuck, script(103, Duration::ZERO), 104), 0);
        assert_eq!(count(&mut stuck, std::iter::empty(), 105), 0);
    }

    #[test]
    fn a_wall_clock_that_is_set_makes_nobody_hang_and_hides_nobody() {
        let file = maitred_seat::create("clock", 1, 1).unwrap();
        let link = maitred_seat::FrontEnd::take_over(file, 1, 1).unwrap();
        let board = link.seat_board(0);
        board.running.store(1, Relaxed);
        let count = |began, wall| {
            let nanos = u64::try_from(Duration::as_nanos(&began)).unwrap();
            board.request_since.store(nanos, Relaxed);
            board.request_at.store(wall, Relaxed);
            let now = 160 * SECOND;
            let scripts = running(seat(0), board, now).into_iter();
            StuckWorkers::default().count(scripts, AFTER, now, |_, ran| ran)
        };
        // It has begun this very moment: decades ago, and in centuries, as the wall clock has it.
        assert_eq!([0, u64::MAX].map(|wall| count(160 * SECOND, wall)), [0, 0]);
        assert_eq!([0, u64::MAX].map(|wall| count(100 * SECOND, wall)), [1, 1]);
    }

    #[test]
    fn who_tells_the_wall_clock_only_hangs_by_that_and_a_new_one_does_not() {
        const DAY: Duration = Duration::from_secs(86_400);
        let file = maitred_seat::create("clock", 1, 1).unwrap();
        let link = maitred_seat::FrontEnd::take_over(file, 1, 1).unwrap();
        let board = link.seat_board(0);
        board.running.store(1, Relaxed);
        let mut stuck = StuckWorkers::default();
        let mut count = |ran: Duration| {
            let wall = crate::runtime::clock::since_1970() - ran;
            let micros = u64::try_from(wall.as_micros()).unwrap();
            board.request_at.store(micros, Relaxed);
            let scripts = running(seat(0), board, 30 * DAY).into_iter();
            stuck.count(scripts, DAY, 30 * DAY, |_, ran| ran)
        };
        assert_eq!(count(Duration::ZERO), 0);
        assert_eq!([2 * DAY, 2 * DAY].map(&mut count), [1, 1]);
        assert_eq!(count(Duration::ZERO), 0, "the next in its seat");
    }

    #[test]
    fn of_many_scripts_all_are_asked_about_in_turn() {
        let mut stuck = StuckWorkers::default();
        let many = 3 * CHECKS_MAX as u32;
        let found = std::array::from_fn(|_| {
            let all = (0..many).map(|seat| script_in(seat, 100, SECOND));
            count(&mut stuck, all, 160)
        });
        assert_eq!(found, [1, 2, 3, 3].map(|counts| counts * CHECKS_MAX));
    }

    #[test]
    fn what_a_script_has_worked_and_waited_for_a_processor_is_no_waiting() {
        let now = Schedstat { ran: 7_000_000_000, waited: 2_000_000_000 };
        assert_eq!(waited_since(6 * SECOND, SECOND, now, 5 * SECOND), 3 * SECOND);
        assert_eq!(waited_since(SECOND, SECOND, now, 5 * SECOND), Duration::ZERO);
        assert_eq!(waited_since(9 * SECOND, 9 * SECOND, now, SECOND), SECOND);
    }
}
