//! Whether the front hangs: the supervisor checks it, and replaces one without a sign of life.
//!
//! A front may be stopped by a signal, wait for a lock for ever, or read a file of a network disk
//! that has gone. Its stacks are captured before it is killed.

use std::time::Duration;

use crate::limits::Moment;

/// Interval of the checks.
pub const CHECKED_EVERY: Duration = Duration::from_millis(2500);

/// A front without a sign of life for this time hangs.
pub const SILENT_MAX: Duration = Duration::from_secs(10);

/// Checks without a reply before a front counts as one that hangs. If the supervisor itself was
/// stopped, the front has had no check to reply to.
const UNANSWERED_MIN: u32 = 3;

/// Time for the threads of a front that hangs to report their stacks.
pub const STACKS_WITHIN: Duration = Duration::from_millis(500);

/// The stack of a thread of a front that hangs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadStack {
    /// The number of the front.
    pub epoch: u32,
    /// The id of the thread.
    pub thread: i32,
    /// Its calls, as [`maitred_os::thread_stack::absolute`] takes them.
    pub calls: Vec<i64>,
}

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LivenessStep {
    /// Ask for a sign of life.
    Check,
    /// It hangs: capture the stacks of its threads.
    CaptureStacks,
    /// Kill it.
    Kill,
}

/// The signs of life of a front that accepts clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Liveness {
    last_sign: Moment,
    next_check: Moment,
    unanswered: u32,
    kill_at: Option<Moment>,
}

impl Liveness {
    /// A front that has just reported that it accepts clients.
    pub fn new(now: Moment) -> Liveness {
        Liveness { last_sign: now, next_check: now + CHECKED_EVERY, unanswered: 0, kill_at: None }
    }

    /// It has given a sign of life. Too late for one that hangs: its stacks are captured already.
    pub fn alive(&mut self, now: Moment) {
        self.last_sign = now;
        self.unanswered = 0;
    }

    /// Whether it hangs, and its stacks have been requested.
    pub fn is_hung(&self) -> bool {
        self.kill_at.is_some()
    }

    /// What is due now. The step counts as taken. `is_busy`: the front opens the files of a new
    /// configuration, which has a timeout of its own.
    pub fn due(&mut self, is_busy: bool, now: Moment) -> Option<LivenessStep> {
        if is_busy {
            self.alive(now);
        }
        if let Some(kill_at) = self.kill_at {
            let is_due = kill_at <= now;
            if is_due {
                self.kill_at = Some(Moment::MAX);
            }
            return is_due.then_some(LivenessStep::Kill);
        }
        if self.unanswered >= UNANSWERED_MIN && self.last_sign + SILENT_MAX <= now {
            self.kill_at = Some(now + STACKS_WITHIN);
            return Some(LivenessStep::CaptureStacks);
        }
        if self.next_check <= now {
            self.next_check = now + CHECKED_EVERY;
            self.unanswered += 1;
            return Some(LivenessStep::Check);
        }
        None
    }

    /// When something is due.
    pub fn deadline(&self) -> Moment {
        self.kill_at.unwrap_or(match self.unanswered >= UNANSWERED_MIN {
            true => self.next_check.min(self.last_sign + SILENT_MAX),
            false => self.next_check,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Moment {
        Duration::from_secs_f64(seconds)
    }

    /// All steps until `end`, each at its deadline.
    fn steps(liveness: &mut Liveness, end: Moment) -> Vec<(Moment, LivenessStep)> {
        let mut steps = Vec::new();
        while liveness.deadline() <= end {
            let now = liveness.deadline();
            steps.extend(liveness.due(false, now).map(|step| (now, step)));
        }
        steps
    }

    #[test]
    fn a_front_without_a_sign_of_life_for_ten_seconds_is_killed_and_its_stacks_come_first() {
        let mut liveness = Liveness::new(seconds(1.0));
        assert_eq!(
            steps(&mut liveness, seconds(100.0)),
            [
                (seconds(3.5), LivenessStep::Check),
                (seconds(6.0), LivenessStep::Check),
                (seconds(8.5), LivenessStep::Check),
                (seconds(11.0), LivenessStep::CaptureStacks),
                (seconds(11.5), LivenessStep::Kill),
            ]
        );
    }

    #[test]
    fn a_front_that_replies_is_left_alone() {
        let mut liveness = Liveness::new(Moment::ZERO);
        for _ in 0..100 {
            let now = liveness.deadline();
            assert_eq!(liveness.due(false, now), Some(LivenessStep::Check));
            liveness.alive(now + seconds(2.0));
        }
    }

    #[test]
    fn a_front_that_takes_a_configuration_over_is_not_blamed_for_its_silence() {
        let mut liveness = Liveness::new(Moment::ZERO);
        let mut now = Moment::ZERO;
        while now < seconds(60.0) {
            now = liveness.deadline();
            assert_eq!(liveness.due(true, now), Some(LivenessStep::Check));
        }
        // The reload is over: from then on it has the same time as any other.
        let found = steps(&mut liveness, now + seconds(60.0));
        assert_eq!(found[0], (now + CHECKED_EVERY, LivenessStep::Check));
        let kill = found.iter().find(|(_, step)| *step == LivenessStep::Kill);
        assert_eq!(kill.map(|(at, _)| *at), Some(now + SILENT_MAX + STACKS_WITHIN));
        assert!(liveness.is_hung());
    }

    #[test]
    fn a_reload_does_not_save_a_front_that_already_counts_as_hung() {
        let mut liveness = Liveness::new(Moment::ZERO);
        steps(&mut liveness, SILENT_MAX);
        assert!(liveness.is_hung());
        let now = liveness.deadline();
        assert_eq!(liveness.due(true, now), Some(LivenessStep::Kill));
    }

    #[test]
    fn a_supervisor_that_was_stopped_does_not_blame_the_front() {
        let mut liveness = Liveness::new(Moment::ZERO);
        // A minute of a stopped supervisor, or machine.
        let now = seconds(60.0);
        assert_eq!(liveness.due(false, now), Some(LivenessStep::Check));
        assert_eq!(liveness.due(false, now), None);
        liveness.alive(now + seconds(0.1));
        assert_eq!(liveness.due(false, now + seconds(1.0)), None);
    }
}
