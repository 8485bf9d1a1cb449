//! Why a zygote is killed, as it is logged.

use crate::limits::{WORKER_SPAWN, ZYGOTE_START};

/// Why a zygote is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillReason {
    /// PHP was not running within [`ZYGOTE_START`].
    SlowStart,
    /// It did not exit within [`LEAVE`](crate::limits::LEAVE) after it was dismissed.
    SlowEnd,
    /// An order was not carried out within [`WORKER_SPAWN`].
    SlowFork,
    /// It sent a report out of turn, or named a process that is not its own.
    BrokeRules,
    /// Its generation of the pool is not used any more.
    NotNeeded,
    /// It reported that PHP cannot start.
    StartFailed,
    /// An upgrade has waited for its start, or for it to take its orders, for
    /// [`STILL_ZYGOTES`](crate::limits::STILL_ZYGOTES).
    DelaysUpgrade,
}

impl std::fmt::Display for KillReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            KillReason::SlowStart => {
                write!(f, "PHP was not running after {} s", ZYGOTE_START.as_secs())
            }
            KillReason::SlowEnd => f.write_str("it did not leave when it was asked to"),
            KillReason::SlowFork => {
                write!(f, "it made no worker within {} s", WORKER_SPAWN.as_secs())
            }
            KillReason::BrokeRules => f.write_str("it did not keep to the rules of its channel"),
            KillReason::NotNeeded => f.write_str("it is not needed any more"),
            KillReason::StartFailed => f.write_str("PHP could not start"),
            KillReason::DelaysUpgrade => f.write_str("an upgrade waits for it"),
        }
    }
}
