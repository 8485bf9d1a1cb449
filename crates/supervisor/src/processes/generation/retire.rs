//! How a worker comes to its end when somebody wants it to.

use maitred_control::{Incarnation, Seat};

use super::seat_state::State;
use super::{Action, Pool};
use crate::limits::{KILLED, LEAVE, Moment};

impl Pool {
    /// Has a worker ended that somebody asks to be rid of: killed, or else by `asking` it first, as
    /// php-fpm does.
    pub(super) fn sentence(
        &mut self,
        (seat, incarnation): (Seat, Incarnation),
        asking: bool,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        let Some(place) = self.place(seat) else {
            return;
        };
        if let State::Taken {
            pid,
            sentenced,
            kill_at,
            gone_by,
            ..
        } = &mut place.state
            && place.incarnation == incarnation
        {
            *sentenced = true;
            if asking {
                *kill_at = Some(now + LEAVE);
                return actions.push(Action::TerminateWorker { pid: *pid });
            }
            *kill_at = None;
            *gone_by = Some(now + KILLED);
            actions.push(Action::KillWorker { pid: *pid });
        }
    }

    /// Lets a worker go that the front gives nothing more to. Had it asked for its end before, it
    /// would be killed already.
    pub(super) fn retire(
        &mut self,
        seat: Seat,
        incarnation: Incarnation,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        let Some(place) = self.place(seat) else {
            return;
        };
        let State::Taken {
            pid,
            sentenced: sentenced @ false,
            worn,
            kill_at,
            ..
        } = &mut place.state
        else {
            return;
        };
        if place.incarnation != incarnation {
            return;
        }
        let given_up = !*worn;
        *sentenced = true;
        *kill_at = Some(now + LEAVE);
        actions.push(Action::DismissWorker { pid: *pid });
        if given_up {
            let workers = self.places.iter().filter(|place| place.has_worker());
            self.growth.gave_up(workers.count());
        }
    }
}
