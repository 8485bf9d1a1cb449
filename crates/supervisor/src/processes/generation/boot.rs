//! Workers whose script has to boot before requests can go to them.

use std::time::Duration;

use maitred_control::WorkerId;

use super::seat_state::{Boot, State};
use super::{Action, Pool};
use crate::limits::{LEAVE, Moment};

impl Pool {
    /// The same pool, whose workers boot a script first if there is a limit for that; zero is none.
    #[must_use]
    pub fn booting(self, within: Option<Duration>) -> Pool {
        Pool {
            boots_within: within,
            ..self
        }
    }

    /// Whether scripts do not boot, as far as the last one has shown.
    pub fn boots_in_vain(&self) -> bool {
        self.boots_in_vain
    }

    /// Whether there are as many workers as there are to be, counting those that boot.
    pub fn is_seated(&self) -> bool {
        let coming = self.places.iter().filter(|place| place.has_worker());
        coming.count() >= self.growth.wants().min(self.growth.allowed())
    }

    /// What comes too late, for a worker that has been killed meanwhile, is passed over.
    pub(super) fn booted(&mut self, worker: WorkerId, actions: &mut Vec<Action>) {
        match self.state_of(worker) {
            // It was faster than we have looked whether it is our child.
            Some(State::Announced { booted, .. }) => *booted = true,
            Some(State::Taken {
                pid,
                boot: boot @ Boot::Until(_),
                sentenced: false,
                ..
            }) => {
                *boot = Boot::Done;
                actions.push(Action::Open { worker, pid: *pid });
            }
            Some(State::Empty { .. } | State::Ordered { .. } | State::Taken { .. }) | None => {
                return;
            }
        }
        self.boots_in_vain = false;
    }

    /// Nobody needs those any more that have yet to boot, and the front does not know them.
    pub(super) fn end_boots(&mut self, now: Moment, actions: &mut Vec<Action>) {
        for place in &mut self.places {
            if let State::Taken {
                pid,
                boot: Boot::Until(_),
                sentenced: sentenced @ false,
                kill_at,
                ..
            } = &mut place.state
            {
                *sentenced = true;
                *kill_at = Some(now + LEAVE);
                actions.push(Action::DismissWorker { pid: *pid });
            }
        }
    }
}
