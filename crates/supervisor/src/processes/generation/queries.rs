//! Queries about the workers of a generation.

use maitred_control::WorkerId;

use super::seat_state::{BootState, SeatSlot, SeatState};
use super::{GenerationState, Seated};
use crate::limits::Moment;

impl GenerationState {
    /// The workers that are our children, have booted, and stay.
    pub fn seated(&self) -> impl Iterator<Item = Seated> {
        (0..).zip(&self.places).filter_map(|(seat, place)| match place.state {
            SeatState::Taken { pid, sentenced: false, boot: BootState::Done, .. } => {
                Some(Seated { worker: place.worker(seat), pid })
            }
            SeatState::Empty { .. }
            | SeatState::Ordered { .. }
            | SeatState::Announced { .. }
            | SeatState::Taken { .. } => None,
        })
    }

    /// The seat of the process with this pid, in whatever state it is.
    pub fn seat_of(&self, pid: i32) -> Option<u32> {
        let index = self.places.iter().position(|place| place.state.pid() == Some(pid))?;
        u32::try_from(index).ok()
    }

    /// Whether this worker is one of [`GenerationState::seated`].
    pub fn serves(&self, worker: WorkerId) -> bool {
        self.pid_of(worker).is_some()
    }

    /// The process id of this worker, if it is one of [`GenerationState::seated`].
    pub fn pid_of(&self, worker: WorkerId) -> Option<i32> {
        let mut seated = self.seated();
        Some(seated.find(|one| one.worker == worker)?.pid)
    }

    /// When the worker with this pid became our child.
    pub fn born(&self, pid: i32) -> Option<Moment> {
        self.places.iter().find_map(|place| match place.state {
            SeatState::Taken { pid: own, born, .. } if own == pid => Some(born),
            SeatState::Empty { .. }
            | SeatState::Ordered { .. }
            | SeatState::Announced { .. }
            | SeatState::Taken { .. } => None,
        })
    }

    /// How many workers are wanted now, whatever other generations leave to this one; none if it is
    /// leaving.
    pub fn wants(&self) -> u32 {
        match self.leaving {
            true => 0,
            false => u32::try_from(self.growth.wants()).unwrap_or(u32::MAX),
        }
    }

    /// At least as many workers are wanted as another generation of the pool has.
    pub fn expect(&mut self, workers: u32) {
        let wants = u32::try_from(self.growth.wants()).unwrap_or(u32::MAX);
        self.growth.want(workers.max(wants));
    }

    /// Whether no worker is being forked, and the zygote is either up or absent.
    pub fn is_still(&self) -> bool {
        let moving = |place: &SeatSlot| {
            matches!(place.state, SeatState::Ordered { .. } | SeatState::Announced { .. })
        };
        let settled = self.zygote.is_up() || self.zygote.is_absent();
        settled && !self.places.iter().any(moving)
    }

    /// How many workers are starting: ordered, not yet our children, or booting.
    pub fn coming(&self) -> usize {
        let coming = |place: &&SeatSlot| match place.state {
            SeatState::Ordered { .. } | SeatState::Announced { .. } => true,
            SeatState::Taken { boot, sentenced, .. } => boot != BootState::Done && !sentenced,
            SeatState::Empty { .. } => false,
        };
        self.places.iter().filter(coming).count()
    }

    /// The processes that were announced and are not known to be our children.
    pub fn announced(&self) -> Vec<i32> {
        let pids = self.places.iter().filter_map(|place| match place.state {
            SeatState::Announced { pid, .. } => Some(pid),
            SeatState::Empty { .. } | SeatState::Ordered { .. } | SeatState::Taken { .. } => None,
        });
        pids.collect()
    }

    /// The pids that sit in a seat, or were announced for one.
    pub fn pids(&self) -> impl Iterator<Item = i32> {
        self.places.iter().filter_map(|place| place.state.pid())
    }

    /// Whether this worker is ordered, and may be announced with this pid.
    pub fn expects(&self, worker: WorkerId, pid: i32) -> bool {
        let is_ordered = matches!(self.seated_state(worker), Some(SeatState::Ordered { .. }));
        is_ordered && pid > 1 && !self.knows(pid)
    }

    /// Whether this worker was announced with this pid, or sits in its seat.
    pub fn has(&self, worker: WorkerId, pid: i32) -> bool {
        self.seated_state(worker).is_some_and(|state| state.pid() == Some(pid))
    }

    /// The state of the seat of a worker, if no other was ordered for it since.
    fn seated_state(&self, worker: WorkerId) -> Option<&SeatState> {
        let place = self.places.get(usize::try_from(worker.seat).ok()?)?;
        (place.incarnation == worker.incarnation).then_some(&place.state)
    }

    /// Whether this pid sits in a seat, or was announced for one.
    pub fn knows(&self, pid: i32) -> bool {
        self.places.iter().any(|place| place.state.pid() == Some(pid))
    }
}
