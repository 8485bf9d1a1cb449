//! The state of a seat.

use std::time::Duration;

use maitred_control::{Incarnation, Seat, WorkerId};

use crate::limits::Moment;

/// A seat: its last incarnation, and the state of that worker.
#[derive(Debug)]
pub(super) struct SeatSlot {
    /// The incarnation of the last order.
    pub(super) incarnation: Incarnation,
    pub(super) state: SeatState,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum SeatState {
    Empty {
        not_before: Moment,
    },
    Ordered {
        deadline: Moment,
    },
    Announced {
        pid: i32,
        since: Moment,
        look_at: Moment,
        deadline: Moment,
        /// It has reported that its script has booted.
        booted: bool,
    },
    Taken {
        pid: i32,
        born: Moment,
        /// Whether it can take requests.
        boot: BootState,
        /// It is to end, and another may be ordered in its place.
        sentenced: bool,
        /// It has served, or grown, as much as it may.
        worn: bool,
        /// When it is killed, if it was dismissed and has not exited.
        kill_at: Option<Moment>,
        /// When a killed one should have disappeared.
        gone_by: Option<Moment>,
    },
}

/// How far the script of a worker has booted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootState {
    /// It can take requests, or there is no such script.
    Done,
    /// It has yet to boot, until this timeout.
    Until(Moment),
    /// It timed out, and is killed.
    Late,
}

impl BootState {
    /// The state of a worker that starts now.
    pub(super) fn begin(within: Option<Duration>, now: Moment) -> BootState {
        match within {
            None => BootState::Done,
            Some(Duration::ZERO) => BootState::Until(Moment::MAX),
            Some(within) => BootState::Until(now.saturating_add(within)),
        }
    }

    pub(super) fn deadline(self) -> Option<Moment> {
        match self {
            BootState::Until(by) if by != Moment::MAX => Some(by),
            BootState::Until(_) | BootState::Done | BootState::Late => None,
        }
    }
}

impl SeatSlot {
    /// A seat without any incarnation.
    pub(super) fn empty() -> SeatSlot {
        let not_before = Moment::ZERO;
        SeatSlot { incarnation: 0, state: SeatState::Empty { not_before } }
    }

    /// The worker that was ordered last for this seat, whose number is `seat`.
    pub(super) fn worker(&self, seat: Seat) -> WorkerId {
        WorkerId { seat, incarnation: self.incarnation }
    }

    /// Whether it has no worker, and none is starting.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self.state, SeatState::Empty { .. })
    }

    /// Whether it has a worker that stays, or one is starting.
    pub(super) fn has_worker(&self) -> bool {
        match self.state {
            SeatState::Ordered { .. } | SeatState::Announced { .. } => true,
            SeatState::Taken { sentenced, .. } => !sentenced,
            SeatState::Empty { .. } => false,
        }
    }

    /// Whether its worker stays only until another can take over.
    pub(super) fn is_worn(&self) -> bool {
        match self.state {
            SeatState::Taken { worn, sentenced, .. } => worn && !sentenced,
            SeatState::Empty { .. } | SeatState::Ordered { .. } | SeatState::Announced { .. } => {
                false
            }
        }
    }
}

impl SeatState {
    pub(super) fn pid(&self) -> Option<i32> {
        match *self {
            SeatState::Announced { pid, .. } | SeatState::Taken { pid, .. } => Some(pid),
            SeatState::Empty { .. } | SeatState::Ordered { .. } => None,
        }
    }
}
