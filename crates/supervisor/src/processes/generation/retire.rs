//! Ending a worker on request.

use maitred_control::WorkerId;

use super::seat_state::SeatState;
use super::{GenerationAction, GenerationState};
use crate::limits::{KILLED, LEAVE, Moment};

impl GenerationState {
    /// Kills a worker.
    pub(super) fn kill_worker(
        &mut self,
        worker: WorkerId,
        now: Moment,
        actions: &mut Vec<GenerationAction>,
    ) {
        if let Some(SeatState::Taken { pid, sentenced, kill_at, gone_by, .. }) =
            self.state_of(worker)
        {
            *sentenced = true;
            *kill_at = None;
            *gone_by = Some(now + KILLED);
            actions.push(GenerationAction::KillWorker { pid: *pid });
        }
    }

    /// Ends a worker as php-fpm does: SIGTERM first, SIGKILL later.
    pub(super) fn terminate_worker(
        &mut self,
        worker: WorkerId,
        now: Moment,
        actions: &mut Vec<GenerationAction>,
    ) {
        if let Some(SeatState::Taken { pid, sentenced, kill_at, .. }) = self.state_of(worker) {
            *sentenced = true;
            *kill_at = Some(now + LEAVE);
            actions.push(GenerationAction::TerminateWorker { pid: *pid });
        }
    }

    /// Dismisses a worker that the front has retired. One whose end the front requested before has
    /// been killed already.
    pub(super) fn retire(
        &mut self,
        worker: WorkerId,
        now: Moment,
        actions: &mut Vec<GenerationAction>,
    ) {
        let Some(SeatState::Taken { pid, sentenced: sentenced @ false, worn, kill_at, .. }) =
            self.state_of(worker)
        else {
            return;
        };
        let given_up = !*worn;
        *sentenced = true;
        *kill_at = Some(now + LEAVE);
        actions.push(GenerationAction::DismissWorker { pid: *pid });
        if given_up {
            let workers = self.places.iter().filter(|place| place.has_worker());
            self.growth.gave_up(workers.count());
        }
    }
}
