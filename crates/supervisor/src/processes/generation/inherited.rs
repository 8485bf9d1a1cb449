//! What one program tells the next of a pool, when it is upgraded.

use maitred_control::Incarnation;

use super::seat_state::{BootState, SeatState};
use super::{GenerationState, Seated};
use crate::limits::{LEAVE, Moment, ZYGOTE_START};
use crate::processes::life::Life;

/// What was said of a worker that sits in a seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerMark {
    /// Nothing: it stays.
    None,
    /// It stays until another is ready.
    Worn,
    /// It was asked to leave.
    Sentenced,
    /// Its script has yet to boot.
    Boots,
}

impl GenerationState {
    /// Every worker that is known to be our child, and what was said of it.
    pub fn all_seated(&self) -> impl Iterator<Item = (Seated, WorkerMark)> {
        (0..)
            .zip(&self.places)
            .filter_map(|(seat, place)| match place.state {
                SeatState::Taken {
                    pid,
                    worn,
                    sentenced,
                    boot,
                    ..
                } => {
                    let mark = match (sentenced, worn) {
                        (true, _) => WorkerMark::Sentenced,
                        (false, _) if boot != BootState::Done => WorkerMark::Boots,
                        (false, true) => WorkerMark::Worn,
                        (false, false) => WorkerMark::None,
                    };
                    let who = Seated {
                        worker: place.worker(seat),
                        pid,
                    };
                    Some((who, mark))
                }
                SeatState::Empty { .. }
                | SeatState::Ordered { .. }
                | SeatState::Announced { .. } => None,
            })
    }

    /// By seat: which worker was ordered last.
    pub fn incarnations(&self) -> Vec<Incarnation> {
        self.places.iter().map(|place| place.incarnation).collect()
    }

    /// Goes on counting where [`GenerationState::incarnations`] ended.
    pub fn remember(&mut self, incarnations: &[Incarnation]) {
        for (place, incarnation) in self.places.iter_mut().zip(incarnations) {
            place.incarnation = *incarnation;
        }
    }

    /// Makes this the pool that the program before us had: who sits in its seats, whether its
    /// zygote is up, and whether it is leaving.
    pub fn take_over(
        &mut self,
        seated: &[(Seated, WorkerMark)],
        zygote: bool,
        leaving: bool,
        now: Moment,
    ) {
        let within = self.boots_within;
        for &(who, mark) in seated {
            let Some(place) = self.place(who.worker.seat) else {
                continue;
            };
            place.incarnation = who.worker.incarnation;
            place.state = SeatState::Taken {
                pid: who.pid,
                born: now,
                boot: match mark {
                    WorkerMark::Boots => BootState::begin(within, now),
                    WorkerMark::None | WorkerMark::Worn | WorkerMark::Sentenced => BootState::Done,
                },
                sentenced: mark == WorkerMark::Sentenced,
                worn: mark == WorkerMark::Worn,
                kill_at: (mark == WorkerMark::Sentenced).then_some(now + LEAVE),
                gone_by: None,
            };
        }
        if zygote {
            self.zygote = Life::of_running(ZYGOTE_START, now);
        }
        self.growth
            .want(u32::try_from(seated.len()).unwrap_or(u32::MAX));
        self.leaving = leaving;
    }
}
