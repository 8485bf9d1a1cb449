//! Workers whose script has to boot before they get requests.

use std::time::Duration;

use maitred_control::WorkerId;

use super::seat_state::{BootState, SeatState};
use super::{GenerationAction, GenerationState};
use crate::limits::{LEAVE, Moment};

impl GenerationState {
    /// The same generation, whose workers boot a script first, with this timeout; zero is none.
    #[must_use]
    pub fn booting(self, within: Option<Duration>) -> GenerationState {
        GenerationState { boots_within: within, ..self }
    }

    /// Whether the last boot of a script has failed.
    pub fn boots_in_vain(&self) -> bool {
        self.boots_in_vain
    }

    /// Whether there are as many workers as wanted, counting those that boot.
    pub fn is_seated(&self) -> bool {
        let coming = self.places.iter().filter(|place| place.has_worker());
        coming.count() >= self.growth.wants().min(self.growth.allowed())
    }

    /// A script has booted. A report that arrives after its worker was killed is ignored.
    pub(super) fn booted(&mut self, worker: WorkerId, actions: &mut Vec<GenerationAction>) {
        match self.state_of(worker) {
            // It was faster than our check whether it is our child.
            Some(SeatState::Announced { booted, .. }) => *booted = true,
            Some(SeatState::Taken {
                pid,
                boot: boot @ BootState::Until(_),
                sentenced: false,
                ..
            }) => {
                *boot = BootState::Done;
                actions.push(GenerationAction::Open { worker, pid: *pid });
            }
            Some(SeatState::Empty { .. } | SeatState::Ordered { .. } | SeatState::Taken { .. })
            | None => {
                return;
            }
        }
        self.boots_in_vain = false;
    }

    /// Dismisses workers that have yet to boot, which the front does not know.
    pub(super) fn end_boots(&mut self, now: Moment, actions: &mut Vec<GenerationAction>) {
        for place in &mut self.places {
            if let SeatState::Taken {
                pid,
                boot: BootState::Until(_),
                sentenced: sentenced @ false,
                kill_at,
                ..
            } = &mut place.state
            {
                *sentenced = true;
                *kill_at = Some(now + LEAVE);
                actions.push(GenerationAction::DismissWorker { pid: *pid });
            }
        }
    }
}
