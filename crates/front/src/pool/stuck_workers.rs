//! Which scripts hang: those that have waited for much longer than one takes. One that works, or waits for a
//! processor, does not hang, however long it has run: another worker would have no processor either.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use maitred_os::clock::monotonic_nanos;
use maitred_os::schedstat::Schedstat;
use maitred_seat::board::{NOT_KNOWN, SeatBoard};

/// A seat of a generation.
type Place = (u32, u32);

/// Scripts that are asked about at most in one count, each of which costs a file. It is done under the pool's
/// lock; the others have their turn in the next counts.
const CHECKS_MAX: usize = 32;

/// The scripts that hang: the seat of each, and when it began, on the clock that never goes backwards.
#[derive(Debug, Default)]
pub struct StuckWorkers {
    known: HashMap<Place, Duration>,
    /// Who was asked about last.
    last: Place,
}

/// A script that runs: in which seat, since when on the clock that never goes backwards, and who can tell
/// more.
pub type RunningScript<T> = (Place, Duration, T);

/// The script in a seat, if one runs [`now`]. One of an older program's worker is asked about at each
/// count: when it began is a little different each time.
pub fn running(
    place: Place,
    board: &SeatBoard,
    now: Duration,
) -> Option<RunningScript<&SeatBoard>> {
    board.runs_since(now).map(|began| (place, began, board))
}

/// Now, on the clock that never goes backwards.
pub fn now() -> Duration {
    Duration::from_nanos(monotonic_nanos())
}

impl StuckWorkers {
    /// Whether the script in this seat hung at the last count.
    pub fn has(&self, place: Place) -> bool {
        self.known.contains_key(&place)
    }

    /// How many of these scripts have waited for longer than `after` by [`now`], as `waited` says of one
    /// that has run for so long. Who is found to hang does so to its end.
    pub fn count<T>(
        &mut self,
        scripts: impl Iterator<Item = RunningScript<T>>,
        (after, now): (Duration, Duration),
        waited: impl Fn(T, Duration) -> Duration,
    ) -> usize {
        let before = std::mem::take(&mut self.known);
        let mut unknown = Vec::new();
        for (place, began, script) in scripts {
            let ran = now.saturating_sub(began);
            if before.get(&place) == Some(&began) {
                self.known.insert(place, began);
            } else if ran > after {
                unknown.push((place, began, script, ran));
            }
        }
        let next = unknown.partition_point(|(place, ..)| *place <= self.last);
        unknown.rotate_left(next);
        for (place, began, script, ran) in unknown.into_iter().take(CHECKS_MAX) {
            self.last = place;
            if waited(script, ran) > after {
                self.known.insert(place, began);
            }
        }
        self.known.len()
    }
}

/// How long a script that has run for `ran` has waited for anything but a processor. Where nobody tells: all
/// the time. It costs a file.
pub fn waited(board: &SeatBoard, ran: Duration) -> Duration {
    let pid = i32::try_from(board.pid.load(Relaxed)).unwrap_or(0);
    let cpu = board.used_cpu.load(Relaxed);
    // A new worker has used nothing before its first script. Another was not measured.
    let is_told = cpu > 0 || board.requests.load(Relaxed) <= 1;
    let now = Schedstat::of(pid).filter(|_| is_told);
    let core_wait = match board.used_core_wait.load(Relaxed) {
        NOT_KNOWN => 0,
        nanos => nanos,
    };
    let before = (Duration::from_micros(cpu), Duration::from_nanos(core_wait));
    now.map_or(ran, |now| without(before, now, ran))
}

/// The same for one whose worker had used so much processor time before, and had waited so long for it.
fn without(before: (Duration, Duration), now: Schedstat, ran: Duration) -> Duration {
    let cpu = Duration::from_nanos(now.ran).saturating_sub(before.0);
    let core_wait = Duration::from_nanos(now.waited).saturating_sub(before.1);
    ran.saturating_sub(cpu).saturating_sub(core_wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_millis(100);
    const SECOND: Duration = Duration::from_secs(1);

    /// A script of seat 7 that began at a second and has waited for so long.
    fn script(began: u64, waited: Duration) -> std::iter::Once<RunningScript<Duration>> {
        std::iter::once(((1, 7), Duration::from_secs(began), waited))
    }

    fn count(
        stuck: &mut StuckWorkers,
        scripts: impl Iterator<Item = RunningScript<Duration>>,
        now: u64,
    ) -> usize {
        stuck.count(scripts, (AFTER, SECOND * now as u32), |waited, ran| {
            waited.min(ran)
        })
    }

    #[test]
    fn who_waits_for_long_hangs_and_who_works_or_is_new_does_not() {
        let mut stuck = StuckWorkers::default();
        assert_eq!(count(&mut stuck, script(100, SECOND), 100), 0, "it is new");
        assert_eq!(
            count(&mut stuck, script(100, AFTER / 2), 160),
            0,
            "it works"
        );
        assert_eq!(count(&mut stuck, script(100, SECOND), 160), 1);
    }

    #[test]
    fn who_hangs_does_so_to_its_end_and_the_next_in_its_seat_does_not() {
        let mut stuck = StuckWorkers::default();
        assert_eq!(count(&mut stuck, script(100, SECOND), 102), 1);
        let asked_again = |_, _| panic!("that is known");
        let again = stuck.count(script(100, SECOND), (AFTER, 103 * SECOND), asked_again);
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
            let scripts = running((1, 0), board, now).into_iter();
            StuckWorkers::default().count(scripts, (AFTER, now), |_, ran| ran)
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
            let scripts = running((1, 0), board, 30 * DAY).into_iter();
            stuck.count(scripts, (DAY, 30 * DAY), |_, ran| ran)
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
            let all = (0..many).map(|seat| ((1, seat), 100 * SECOND, SECOND));
            count(&mut stuck, all, 160)
        });
        assert_eq!(found, [1, 2, 3, 3].map(|counts| counts * CHECKS_MAX));
    }

    #[test]
    fn what_a_script_has_worked_and_waited_for_a_processor_is_no_waiting() {
        let now = Schedstat {
            ran: 7_000_000_000,
            waited: 2_000_000_000,
        };
        assert_eq!(without((6 * SECOND, SECOND), now, 5 * SECOND), 3 * SECOND);
        assert_eq!(without((SECOND, SECOND), now, 5 * SECOND), Duration::ZERO);
        assert_eq!(without((9 * SECOND, 9 * SECOND), now, SECOND), SECOND);
    }
}
