//! Handing a generation over to the next program.

use maitred_control::Incarnation;

use super::seat_state::{BootState, SeatState};
use super::{GenerationState, Seated};
use crate::limits::{LEAVE, Moment, ZYGOTE_START};
use crate::processes::life::Life;

/// The state of a seated worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerMark {
    /// It stays.
    None,
    /// It stays until another is ready.
    Worn,
    /// It was dismissed.
    Sentenced,
    /// Its script has yet to boot.
    Boots,
}

impl GenerationState {
    /// Every worker that is our child, and its state.
    pub fn all_seated(&self) -> impl Iterator<Item = (Seated, WorkerMark)> {
        (0..).zip(&self.places).filter_map(|(seat, place)| match place.state {
            SeatState::Taken { pid, worn, sentenced, boot, .. } => {
                let mark = match (sentenced, worn) {
                    (true, _) => WorkerMark::Sentenced,
                    (false, _) if boot != BootState::Done => WorkerMark::Boots,
                    (false, true) => WorkerMark::Worn,
                    (false, false) => WorkerMark::None,
                };
                let who = Seated { worker: place.worker(seat), pid };
                Some((who, mark))
            }
            SeatState::Empty { .. } | SeatState::Ordered { .. } | SeatState::Announced { .. } => {
                None
            }
        })
    }

    /// The last incarnation of each seat.
    pub fn incarnations(&self) -> Vec<Incarnation> {
        self.places.iter().map(|place| place.incarnation).collect()
    }

    /// Resumes counting from [`GenerationState::incarnations`].
    pub fn remember(&mut self, incarnations: &[Incarnation]) {
        for (place, incarnation) in self.places.iter_mut().zip(incarnations) {
            place.incarnation = *incarnation;
        }
    }

    /// Resumes the state of the previous program: the seated workers, whether the zygote is up, and
    /// whether it is leaving.
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
            let longest = self.zygote.longest_wait();
            self.zygote = Life::of_running(ZYGOTE_START, now).waiting_up_to(longest);
        }
        self.growth.want(u32::try_from(seated.len()).unwrap_or(u32::MAX));
        self.leaving = leaving;
    }
}
