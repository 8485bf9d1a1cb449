//! A seat of a pool, as the supervisor sees it.

use std::time::Duration;

use maitred_control::{Incarnation, Seat, WorkerId};

use crate::limits::Moment;

/// A seat: which worker was ordered for it last, and where that one is in its life.
#[derive(Debug)]
pub(super) struct SeatSlot {
    /// That of the last order given.
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
        /// It says that its script has booted.
        booted: bool,
    },
    Taken {
        pid: i32,
        born: Moment,
        /// Whether requests can go to it.
        boot: BootState,
        /// It has to end, and another may be ordered for what it did.
        sentenced: bool,
        /// It has served, or grown, as much as it may.
        worn: bool,
        /// When it is killed, if it was asked to leave and has not.
        kill_at: Option<Moment>,
        /// When a killed one should have been gone for long.
        gone_by: Option<Moment>,
    },
}

/// How far a worker's script has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootState {
    /// It can take requests, or there is no such script.
    Done,
    /// It has yet to boot, until then.
    Until(Moment),
    /// It took too long, and is killed.
    Late,
}

impl BootState {
    /// Of a worker that begins now.
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
    /// A seat that nobody has sat in.
    pub(super) fn empty() -> SeatSlot {
        let not_before = Moment::ZERO;
        SeatSlot {
            incarnation: 0,
            state: SeatState::Empty { not_before },
        }
    }

    /// The worker that was ordered last for this seat, whose number is `seat`.
    pub(super) fn worker(&self, seat: Seat) -> WorkerId {
        WorkerId {
            seat,
            incarnation: self.incarnation,
        }
    }

    /// Whether nobody sits here and nobody is on the way.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self.state, SeatState::Empty { .. })
    }

    /// Whether a worker sits here that stays, or is on its way.
    pub(super) fn has_worker(&self) -> bool {
        match self.state {
            SeatState::Ordered { .. } | SeatState::Announced { .. } => true,
            SeatState::Taken { sentenced, .. } => !sentenced,
            SeatState::Empty { .. } => false,
        }
    }

    /// Whether the worker that sits here stays only until another can take over.
    pub(super) fn is_worn(&self) -> bool {
        match self.state {
            SeatState::Taken {
                worn, sentenced, ..
            } => worn && !sentenced,
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
