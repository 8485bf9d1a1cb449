//! The life of a process that must always run: a zygote or the front.
//!
//! ```text
//!            start                 ready
//!   Absent ─────────▶ Starting ───────────▶ Up
//!     ▲                  │ too late          │ broke the rules
//!     │                  ▼                   │
//!     ├──── ended ──── Ending ◀──────────────┤      (Starting and Up may end by themselves, too)
//!     │                  ▲ too late          │ not needed
//!     ╰──── ended ──── Leaving ◀─────────────╯
//! ```

use std::time::Duration;

use crate::limits::{BACKOFF_LONGEST, EARLY_DEATH, LEAVE, Moment};
use crate::processes::backoff::Backoff;

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Start it.
    Start,
    /// Kill it.
    Kill,
}

/// A process reported that it was ready out of turn.
#[derive(Debug, PartialEq, Eq)]
pub struct UnexpectedReady;

/// The state of such a process.
#[derive(Debug)]
pub struct Life {
    state: LifeState,
    start_limit: Duration,
    longest_wait: Duration,
    backoff: Backoff,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LifeState {
    Absent { not_before: Moment },
    Starting { deadline: Moment },
    Up { since: Moment },
    Leaving { deadline: Moment },
    Ending { up_since: Option<Moment> },
}

impl Life {
    /// A process that has not been started; `start_limit` is its timeout until it is ready.
    pub fn new(start_limit: Duration) -> Life {
        let state = LifeState::Absent { not_before: Moment::ZERO };
        Life { state, start_limit, longest_wait: BACKOFF_LONGEST, backoff: Backoff::default() }
    }

    /// The same, which after failed starts waits for up to this long before the next one.
    pub fn waiting_up_to(self, longest_wait: Duration) -> Life {
        Life { longest_wait, ..self }
    }

    /// A process that is up already.
    pub fn of_running(start_limit: Duration, now: Moment) -> Life {
        Life { state: LifeState::Up { since: now }, ..Life::new(start_limit) }
    }

    /// Whether it accepts orders.
    pub fn is_up(&self) -> bool {
        matches!(self.state, LifeState::Up { .. })
    }

    /// Since when it is being started, if it is.
    pub fn starts_since(&self) -> Option<Moment> {
        match self.state {
            LifeState::Starting { deadline } => Some(deadline.saturating_sub(self.start_limit)),
            LifeState::Absent { .. }
            | LifeState::Up { .. }
            | LifeState::Leaving { .. }
            | LifeState::Ending { .. } => None,
        }
    }

    /// Whether there is none, and it may be started now.
    pub fn may_start(&self, now: Moment) -> bool {
        matches!(self.state, LifeState::Absent { not_before } if not_before <= now)
    }

    /// Whether there is none, and none is being started.
    pub fn is_absent(&self) -> bool {
        matches!(self.state, LifeState::Absent { .. })
    }

    /// Whether it was dismissed.
    pub fn is_leaving(&self) -> bool {
        matches!(self.state, LifeState::Leaving { .. })
    }

    /// It was dismissed. If it stays, it is killed after [`LEAVE`].
    pub fn dismiss(&mut self, now: Moment) {
        if self.is_up() {
            self.state = LifeState::Leaving { deadline: now + LEAVE };
        }
    }

    /// What is due now. The step counts as taken.
    pub fn due(&mut self, now: Moment) -> Option<Step> {
        match self.state {
            LifeState::Absent { not_before } if not_before <= now => {
                self.state = LifeState::Starting { deadline: now + self.start_limit };
                Some(Step::Start)
            }
            LifeState::Starting { deadline } | LifeState::Leaving { deadline }
                if deadline <= now =>
            {
                self.give_up()
            }
            LifeState::Absent { .. }
            | LifeState::Starting { .. }
            | LifeState::Up { .. }
            | LifeState::Leaving { .. }
            | LifeState::Ending { .. } => None,
        }
    }

    /// It reports that it is ready.
    ///
    /// # Errors
    /// When it is not being started.
    pub fn ready(&mut self, now: Moment) -> Result<(), UnexpectedReady> {
        match self.state {
            LifeState::Starting { .. } => {
                self.state = LifeState::Up { since: now };
                Ok(())
            }
            LifeState::Absent { .. }
            | LifeState::Up { .. }
            | LifeState::Leaving { .. }
            | LifeState::Ending { .. } => Err(UnexpectedReady),
        }
    }

    /// It broke the rules, or is stuck: it is killed.
    pub fn give_up(&mut self) -> Option<Step> {
        match self.state {
            LifeState::Starting { .. } | LifeState::Leaving { .. } => {
                self.state = LifeState::Ending { up_since: None };
                Some(Step::Kill)
            }
            LifeState::Up { since } => {
                self.state = LifeState::Ending { up_since: Some(since) };
                Some(Step::Kill)
            }
            LifeState::Absent { .. } | LifeState::Ending { .. } => None,
        }
    }

    /// It has ended. One that was up for a while is restarted at once.
    pub fn ended(&mut self, now: Moment) {
        let not_before = match self.state {
            LifeState::Absent { not_before } => not_before,
            LifeState::Up { since } if now >= since + EARLY_DEATH => {
                self.backoff.succeeded();
                now
            }
            LifeState::Leaving { .. } => now,
            LifeState::Ending { up_since: Some(since) } if now >= since + EARLY_DEATH => {
                // Failures before it came up do not count any more.
                self.backoff.succeeded();
                self.backoff.failed(now)
            }
            LifeState::Up { .. } | LifeState::Ending { up_since: Some(_) } => {
                self.backoff.failed(now)
            }
            LifeState::Starting { .. } | LifeState::Ending { up_since: None } => {
                self.backoff.failed_within(now, self.longest_wait)
            }
        };
        self.state = LifeState::Absent { not_before };
    }

    /// The longest wait after a failed start.
    pub fn longest_wait(&self) -> Duration {
        self.longest_wait
    }

    /// What prevented its start may be gone: it is started now, and failures before do not count.
    pub fn retry(&mut self, now: Moment) {
        if self.is_absent() {
            self.backoff.succeeded();
            self.state = LifeState::Absent { not_before: now };
        }
    }

    /// When [`Life::due`] returns something, without an event.
    pub fn deadline(&self) -> Option<Moment> {
        match self.state {
            LifeState::Absent { not_before } => Some(not_before),
            LifeState::Starting { deadline } | LifeState::Leaving { deadline } => Some(deadline),
            LifeState::Up { .. } | LifeState::Ending { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{BACKOFF_FIRST, START_BACKOFF_LONGEST, ZYGOTE_START};

    const SECOND: Duration = Duration::from_secs(1);

    fn up_at(now: Moment) -> Life {
        let mut life = Life::new(ZYGOTE_START);
        assert_eq!(life.due(now), Some(Step::Start));
        life.ready(now).unwrap();
        life
    }

    #[test]
    fn a_process_that_never_becomes_ready_is_killed_and_started_again_after_a_wait() {
        let mut life = Life::new(ZYGOTE_START);
        assert_eq!(life.due(SECOND), Some(Step::Start));
        let late = life.deadline().unwrap();
        assert_eq!(late, SECOND + ZYGOTE_START);
        assert_eq!(life.due(late - Duration::from_nanos(1)), None);
        assert_eq!(life.due(late), Some(Step::Kill));
        assert_eq!(life.due(late + SECOND), None, "it is killed once");
        life.ended(late);
        assert_eq!(life.due(late), None);
        assert_eq!(life.due(late + BACKOFF_FIRST), Some(Step::Start));
    }

    #[test]
    fn a_process_that_was_up_for_long_is_started_again_at_once() {
        let mut life = up_at(SECOND);
        life.ended(SECOND + EARLY_DEATH);
        assert_eq!(life.due(SECOND + EARLY_DEATH), Some(Step::Start));
    }

    #[test]
    fn a_process_that_was_up_for_a_moment_is_not_started_again_at_once() {
        let mut life = up_at(SECOND);
        life.ended(SECOND);
        assert_eq!(life.due(SECOND), None);
        assert_eq!(life.deadline(), Some(SECOND + BACKOFF_FIRST));
    }

    #[test]
    fn a_process_that_is_given_up_after_long_service_pays_for_no_earlier_failure() {
        let mut life = Life::new(ZYGOTE_START);
        let mut now = SECOND;
        for _ in 0..10 {
            assert_eq!(life.due(now), Some(Step::Start));
            life.ended(now);
            now = life.deadline().unwrap();
        }
        assert_eq!(life.due(now), Some(Step::Start));
        life.ready(now).unwrap();
        now += EARLY_DEATH;
        assert_eq!(life.give_up(), Some(Step::Kill));
        life.ended(now);
        assert_eq!(life.deadline(), Some(now + BACKOFF_FIRST));
    }

    #[test]
    fn waits_after_failed_starts_double_up_to_a_minute_until_something_changes() {
        let mut life = Life::new(ZYGOTE_START).waiting_up_to(START_BACKOFF_LONGEST);
        let mut now = SECOND;
        let mut waits = Vec::new();
        for _ in 0..12 {
            assert_eq!(life.due(now), Some(Step::Start));
            assert_eq!(life.give_up(), Some(Step::Kill), "PHP did not start");
            life.ended(now);
            let next = life.deadline().unwrap();
            waits.push((next - now).as_millis());
            now = next;
        }
        assert_eq!(
            waits,
            [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200, 60_000, 60_000]
        );
        assert_eq!(life.due(now), Some(Step::Start));
        life.ended(now);
        life.retry(now);
        assert_eq!((life.deadline(), life.due(now)), (Some(now), Some(Step::Start)));
        life.retry(now);
        assert!(life.starts_since().is_some(), "one that starts is left alone");
        life.ended(now);
        assert_eq!(life.deadline(), Some(now + BACKOFF_FIRST));
        assert_eq!(life.due(now + BACKOFF_FIRST), Some(Step::Start));
        life.ready(now + BACKOFF_FIRST).unwrap();
        for _ in 0..9 {
            life.ended(now + BACKOFF_FIRST);
        }
        assert!(life.deadline().unwrap() <= now + BACKOFF_FIRST + BACKOFF_LONGEST);
    }

    #[test]
    fn being_ready_twice_is_out_of_turn() {
        let mut life = up_at(SECOND);
        assert_eq!(life.ready(SECOND), Err(UnexpectedReady));
        assert!(life.is_up());
    }
}
