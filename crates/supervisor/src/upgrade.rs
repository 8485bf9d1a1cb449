//! The state of an upgrade (SIGUSR2): a new program takes over in this process, with everything
//! that runs. The steps are taken in `run/upgrade.rs`.
//!
//! ```text
//!   requested ──▶ new program tried ──▶ no process is being forked ──▶ exec
//!                    │ it cannot              │ too late                 │ refused
//!                    ▼                        ▼                          ▼
//!                nothing is changed, and the reason is logged
//!
//!   (new program) every pool on trial ──▶ new front started ──▶ it listens ──▶ old front drains
//!                    │ all failed              │ it does not
//!                    ▼                         ▼
//!             old front and generations stay, and the reason is logged
//! ```
//!
//! Before and after the `exec` the same processes serve: the old front, zygotes and workers notice
//! nothing. A pool that fails its trial alone takes part as one whose PHP does not start: its old
//! workers end with the old front, and its requests get a 503 until it is fixed. Both fronts
//! accept from the same sockets until the old one is ordered to hand over.

pub mod handover;

use std::os::fd::AsFd;
use std::path::Path;

use maitred_os::fork::HowEnded;
use maitred_os::signals::{self, Signal};
use tracing::error;

use crate::limits::{Moment, STILL, STILL_ZYGOTES, TRIAL, UPGRADE_TRY, UPGRADE_WAITS_NAMED};
use crate::processes::pools::PoolId;

/// The argument after which the new program finds the descriptor of the handed-over state.
pub const TAKE_OVER: &str = "--take-over";

/// The argument with which a program is tried: it reports whether it could take over.
pub const TRY_TAKE_OVER: &str = "--try-take-over";

/// Exit code of a program that could take over. No usual exit code: the file at our path may be any
/// program.
pub const CAN_TAKE_OVER: i32 = 113;

/// The stage of an upgrade.
#[derive(Debug)]
enum Stage {
    /// The new program is being tried.
    Trying { pid: i32, until: Moment },
    /// It can take over, and does as soon as no process is being forked. Zygotes that are being
    /// started, or do not take their orders, are killed from `zygotes_until` on; none: by now.
    Waiting { zygotes_until: Option<Moment>, until: Moment },
    /// This is the new program: every pool has a generation on trial.
    OnTrial { until: Moment },
    /// The new front is being started; the old one accepts clients until then.
    Opening { until: Moment },
}

/// What is due for an upgrade.
#[derive(Debug, PartialEq, Eq)]
pub enum UpgradeStep {
    /// It is refused, and why.
    Refuse(String),
    /// Kill the zygotes that are being started, or do not take their orders.
    KillZygotes,
    /// Run the new program in this process.
    BecomeProgram,
    /// Check whether all trials have passed.
    JudgeTrials {
        /// They have had enough time.
        late: bool,
    },
    /// The new program continues with the old front, and why.
    TakeBack(String),
}

/// The upgrade that is going on, if there is one.
#[derive(Debug, Default)]
pub struct Upgrader {
    stage: Option<Stage>,
    /// The generations of the new program that failed, and why.
    failed: Vec<(PoolId, String)>,
    /// An upgrade was requested during a reload.
    is_postponed: bool,
}

impl Upgrader {
    /// Whether one is going on.
    pub fn is_going_on(&self) -> bool {
        self.stage.is_some()
    }

    /// An upgrade was requested, which has to wait; or none waits any more.
    pub fn postpone(&mut self, is_postponed: bool) {
        self.is_postponed = is_postponed;
    }

    /// Whether an upgrade waits.
    pub fn is_postponed(&self) -> bool {
        self.is_postponed
    }

    /// The new program is being tried by process `pid`.
    pub fn start(&mut self, pid: i32, now: Moment) {
        let until = now + UPGRADE_TRY;
        self.stage = Some(Stage::Trying { pid, until });
    }

    /// Whether this process tries the new program.
    pub fn is_trial(&self, pid: i32) -> bool {
        matches!(self.stage, Some(Stage::Trying { pid: trial, .. }) if trial == pid)
    }

    /// The process that tried the new `program` has ended.
    pub fn tried(&mut self, program: &Path, how: HowEnded, now: Moment) {
        if how == HowEnded::Exited(CAN_TAKE_OVER) {
            let zygotes_until = Some(now + STILL_ZYGOTES);
            self.stage = Some(Stage::Waiting { zygotes_until, until: now + STILL });
        } else {
            let program = program.display();
            self.refuse(&format!("{program} {how} when it was asked to take over"));
        }
    }

    /// The upgrade is refused, which is logged.
    pub fn refuse(&mut self, why: &str) {
        self.end();
        error!("the upgrade is refused, all goes on as it was: {why}");
    }

    /// No worker may be ordered now, and no zygote and no process of a job started.
    pub fn holds_still(&self) -> bool {
        matches!(self.stage, Some(Stage::Waiting { .. }))
    }

    /// Whether one has waited for as long as it waits for zygotes, and for the rest of output.
    pub fn is_late(&self, now: Moment) -> bool {
        match self.stage {
            Some(Stage::Waiting { zygotes_until, .. }) => {
                zygotes_until.is_none_or(|until| until <= now)
            }
            _ => false,
        }
    }

    /// This is the new program: its trials start.
    pub fn start_trials(&mut self, now: Moment) {
        self.failed.clear();
        self.stage = Some(Stage::OnTrial { until: now + TRIAL });
    }

    /// A generation of the new program has failed.
    pub fn trial_failed(&mut self, id: PoolId, why: String) {
        if self.stage.is_some() && !self.has_failed(id) {
            self.failed.push((id, why));
        }
    }

    /// Whether this generation of the new program has failed.
    pub fn has_failed(&self, id: PoolId) -> bool {
        self.failed.iter().any(|(failed, _)| *failed == id)
    }

    /// The generations of the new program that failed, and why.
    pub fn failed(&self) -> &[(PoolId, String)] {
        &self.failed
    }

    /// All trials have passed: the new front is started.
    pub fn open_front(&mut self, now: Moment) {
        self.stage = Some(Stage::Opening { until: now + TRIAL });
    }

    /// Whether the new front is being started.
    pub fn opens_front(&self) -> bool {
        matches!(self.stage, Some(Stage::Opening { .. }))
    }

    /// The upgrade is over, well or not.
    pub fn end(&mut self) {
        self.failed.clear();
        self.stage = None;
    }

    /// The server stops: no new program takes over.
    pub fn give_up(&mut self) {
        if let Some(Stage::Trying { pid, .. }) = self.stage.take() {
            kill(pid);
        }
    }

    /// What is due. `waits_for`: what has to be over before the new program takes over.
    pub fn due(&mut self, waits_for: &[String], now: Moment) -> Option<UpgradeStep> {
        match self.stage.as_mut()? {
            Stage::Trying { pid, until } => (*until <= now).then(|| {
                kill(*pid);
                let limit = UPGRADE_TRY.as_secs();
                UpgradeStep::Refuse(format!("the new program said nothing for {limit} s"))
            }),
            Stage::Waiting { .. } if waits_for.is_empty() => Some(UpgradeStep::BecomeProgram),
            Stage::Waiting { until, .. } if *until <= now => {
                Some(UpgradeStep::Refuse(waited_for(waits_for)))
            }
            Stage::Waiting { zygotes_until, .. } => {
                zygotes_until.take_if(|until| *until <= now);
                zygotes_until.is_none().then_some(UpgradeStep::KillZygotes)
            }
            Stage::OnTrial { until } => Some(UpgradeStep::JudgeTrials { late: *until <= now }),
            Stage::Opening { until } => (*until <= now).then(|| {
                UpgradeStep::TakeBack("the new front did not accept clients in time".to_owned())
            }),
        }
    }

    /// When it has taken too long.
    pub fn deadline(&self) -> Option<Moment> {
        self.stage.as_ref().map(|stage| match stage {
            Stage::Waiting { zygotes_until: Some(until), .. }
            | Stage::Trying { until, .. }
            | Stage::Waiting { until, .. }
            | Stage::OnTrial { until }
            | Stage::Opening { until } => *until,
        })
    }
}

/// Why an upgrade is refused that has waited for this.
fn waited_for(all: &[String]) -> String {
    let named = &all[..all.len().min(UPGRADE_WAITS_NAMED)];
    let more = match all.len() - named.len() {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!("it has waited for {} s for {}{more}", STILL.as_secs(), named.join(", "))
}

/// Kills a child that has not been reaped.
fn kill(pid: i32) {
    if let Ok(pidfd) = signals::pidfd(pid) {
        let _ = signals::send_to(pidfd.as_fd(), Signal::SIGKILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_upgrade_kills_zygotes_that_are_slow_and_then_names_what_it_still_waits_for() {
        let (mut upgrader, now) = (Upgrader::default(), Duration::from_secs(100));
        upgrader.tried(Path::new("maitred"), HowEnded::Exited(CAN_TAKE_OVER), now);
        assert!(upgrader.holds_still());
        let waits_for: Vec<String> = (0..10).map(|number| format!("pool p{number}")).collect();
        assert_eq!(upgrader.due(&waits_for, now), None);
        let due = upgrader.deadline().unwrap();
        assert_eq!(due, now + STILL_ZYGOTES);
        // Also those that stop later.
        for _ in 0..2 {
            assert_eq!(upgrader.due(&waits_for, due), Some(UpgradeStep::KillZygotes));
        }
        assert_eq!(upgrader.deadline(), Some(now + STILL));
        assert_eq!(upgrader.due(&[], due), Some(UpgradeStep::BecomeProgram));
        let Some(UpgradeStep::Refuse(why)) = upgrader.due(&waits_for, now + STILL) else {
            panic!("it is late");
        };
        assert!(why.contains("pool p0, ") && why.ends_with("pool p7, and 2 more"), "{why}");
    }
}
