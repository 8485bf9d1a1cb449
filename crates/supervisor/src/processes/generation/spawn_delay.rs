//! Workers that have to wait, after a failure or because of `max_spawn_rate`.

use super::GenerationState;
use super::seat_state::{SeatSlot, SeatState};
use crate::limits::Moment;

impl GenerationState {
    /// When the next worker can be ordered: as soon as fewer seats have to wait than lack a worker.
    pub(super) fn order_deadline(&self) -> Option<Moment> {
        let lacks = self.lacks();
        if lacks == 0 || !self.orders() {
            return None;
        }
        let empty = self.places.iter().filter_map(|place| match place.state {
            SeatState::Empty { not_before } => Some(not_before),
            SeatState::Ordered { .. } | SeatState::Announced { .. } | SeatState::Taken { .. } => {
                None
            }
        });
        let mut empty: Vec<Moment> = empty.collect();
        empty.sort_unstable_by(|a, b| b.cmp(a));
        let decisive = empty.get(lacks.min(empty.len()).checked_sub(1)?)?;
        Some((*decisive).max(self.growth.next_order()))
    }

    /// How many workers are missing only because of `max_spawn_rate`.
    pub fn held_back(&self, now: Moment) -> usize {
        if self.orders() && self.growth.next_order() > now {
            self.lacks().saturating_sub(self.waiting(now))
        } else {
            0
        }
    }

    /// Seats that have to wait after a failure.
    pub(super) fn waiting(&self, now: Moment) -> usize {
        let waits = |place: &&SeatSlot| match place.state {
            SeatState::Empty { not_before } => not_before > now,
            _ => false,
        };
        self.places.iter().filter(waits).count()
    }
}
