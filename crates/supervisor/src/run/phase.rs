//! The phases of the server, from its start to its end.
//!
//! ```text
//!   Filling ──pools full──▶ Opening ──listening──▶ Serving ──stop──▶ Draining
//!      │                       │                                       │ drained, front gone,
//!      │ stop, failed          │ stop, failed                          │ too late
//!      ╰───────────────────────┴────────────▶ Leaving ◀────────────────╯
//!                                                │ too late, or a second stop at any time
//!                                                ▼
//!                                             Killing ──none left, too late────▶ Over
//! ```

use std::time::Duration;

use crate::limits::{FIRST_FILL, KILLED, LEAVE, Moment, SAME_STOP};

/// Exit code of a server that was stopped.
pub const EXIT_STOPPED: i32 = 0;

/// Exit code of a server that could not start.
pub const EXIT_FAILED: i32 = 1;

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerEvent {
    /// Time has passed.
    Tick,
    /// Every seat of every pool has a worker.
    PoolsFull,
    /// The front accepts clients.
    Listening,
    /// A process has failed that the start needs.
    StartFailed,
    /// A command requests a stop.
    StopAsked,
    /// A signal requests a stop. Several within [`SAME_STOP`] count as one.
    StopSignaled,
    /// php-fpm's SIGQUIT: requests in flight may finish. A further one changes nothing.
    Finish,
    /// php-fpm's SIGTERM: requests in flight are ended now, also during a graceful stop.
    Terminate,
    /// The fronts have no request in flight any more, or have ended.
    Drained,
    /// No process of ours is left.
    NobodyLeft,
}

/// An action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerAction {
    /// Log that the server serves.
    Announce,
    /// Log that the start took too long, and kill every process.
    ReportSlowStart,
    /// Have the fronts finish the requests in flight.
    Drain,
    /// Log that requests in flight get no more time, and terminate every process.
    CutOff,
    /// Terminate every process.
    AskAllToLeave,
    /// Accept no more clients, and terminate every process.
    Terminate,
    /// Kill every process.
    KillAll,
}

/// The phase of the server.
#[derive(Debug)]
pub struct Phase {
    state: ServerState,
    exit: i32,
    /// How long a stop waits for requests in flight.
    drain: Duration,
    /// When a stop was requested first.
    asked: Option<Moment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerState {
    Filling { deadline: Moment },
    Opening,
    Serving,
    Draining { deadline: Moment },
    Leaving { deadline: Moment },
    Killing { deadline: Moment },
    Over,
}

impl Phase {
    /// The start of the server at `now`. A stop will wait for requests in flight, for `drain` at
    /// most.
    pub fn new(now: Moment, drain: Duration) -> Phase {
        Phase {
            state: ServerState::Filling { deadline: now + FIRST_FILL },
            exit: EXIT_STOPPED,
            drain,
            asked: None,
        }
    }

    /// A server that serves already; `drain` as for [`Phase::new`].
    pub fn serving(drain: Duration) -> Phase {
        Phase { state: ServerState::Serving, exit: EXIT_STOPPED, drain, asked: None }
    }

    /// A future stop will wait for `drain`.
    pub fn drain_for(&mut self, drain: Duration) {
        self.drain = drain;
    }

    /// Takes an event and returns an action.
    pub fn on(&mut self, event: ServerEvent, now: Moment) -> Option<ServerAction> {
        let first = self.asked.is_none();
        let event = match event {
            ServerEvent::StopSignaled if now < *self.asked.get_or_insert(now) + SAME_STOP => {
                return self.first_stop(now);
            }
            ServerEvent::StopAsked if first => {
                self.asked = Some(now);
                return self.first_stop(now);
            }
            ServerEvent::StopSignaled => ServerEvent::StopAsked,
            ServerEvent::Finish => {
                self.asked.get_or_insert(now);
                return self.first_stop(now);
            }
            ServerEvent::Terminate => {
                self.asked.get_or_insert(now);
                return self.terminate(now);
            }
            other => other,
        };
        match (event, self.state) {
            (ServerEvent::PoolsFull, ServerState::Filling { .. }) => {
                self.state = ServerState::Opening;
                None
            }
            (ServerEvent::Listening, ServerState::Opening) => {
                self.state = ServerState::Serving;
                Some(ServerAction::Announce)
            }
            (ServerEvent::StartFailed, ServerState::Filling { .. } | ServerState::Opening) => {
                self.exit = EXIT_FAILED;
                self.kill(now)
            }
            (
                ServerEvent::StopAsked,
                ServerState::Draining { .. } | ServerState::Leaving { .. },
            ) => self.kill(now),
            (ServerEvent::Drained, ServerState::Draining { .. }) => self.leave(now),
            (
                ServerEvent::NobodyLeft,
                ServerState::Leaving { .. } | ServerState::Killing { .. },
            ) => {
                self.state = ServerState::Over;
                None
            }
            _ => self.late(now),
        }
    }

    /// A stop is requested for the first time, or again by signals that count as one.
    fn first_stop(&mut self, now: Moment) -> Option<ServerAction> {
        match self.state {
            ServerState::Filling { .. } | ServerState::Opening => self.leave(now),
            ServerState::Serving => {
                self.state = ServerState::Draining { deadline: now + self.drain };
                Some(ServerAction::Drain)
            }
            ServerState::Draining { .. }
            | ServerState::Leaving { .. }
            | ServerState::Killing { .. }
            | ServerState::Over => self.late(now),
        }
    }

    fn terminate(&mut self, now: Moment) -> Option<ServerAction> {
        match self.state {
            ServerState::Serving | ServerState::Draining { .. } => {
                self.leave(now);
                Some(ServerAction::Terminate)
            }
            ServerState::Filling { .. } | ServerState::Opening => self.leave(now),
            ServerState::Leaving { .. } | ServerState::Killing { .. } | ServerState::Over => {
                self.late(now)
            }
        }
    }

    /// Whether the next stop signal is a second one.
    pub fn would_stop_at_once(&self, now: Moment) -> bool {
        self.asked.is_some_and(|asked| now >= asked + SAME_STOP)
    }

    fn late(&mut self, now: Moment) -> Option<ServerAction> {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return None;
        }
        match self.state {
            ServerState::Filling { .. } => {
                self.exit = EXIT_FAILED;
                self.kill(now);
                Some(ServerAction::ReportSlowStart)
            }
            ServerState::Draining { .. } => {
                self.leave(now);
                Some(ServerAction::CutOff)
            }
            ServerState::Leaving { .. } => self.kill(now),
            ServerState::Killing { .. } => {
                self.state = ServerState::Over;
                None
            }
            ServerState::Opening | ServerState::Serving | ServerState::Over => None,
        }
    }

    fn leave(&mut self, now: Moment) -> Option<ServerAction> {
        self.state = ServerState::Leaving { deadline: now + LEAVE };
        Some(ServerAction::AskAllToLeave)
    }

    fn kill(&mut self, now: Moment) -> Option<ServerAction> {
        self.state = ServerState::Killing { deadline: now + KILLED };
        Some(ServerAction::KillAll)
    }

    /// When something is due without an event.
    pub fn deadline(&self) -> Option<Moment> {
        match self.state {
            ServerState::Filling { deadline }
            | ServerState::Draining { deadline }
            | ServerState::Leaving { deadline }
            | ServerState::Killing { deadline } => Some(deadline),
            ServerState::Opening | ServerState::Serving | ServerState::Over => None,
        }
    }

    /// Name of the phase.
    pub fn name(&self) -> &'static str {
        match self.state {
            ServerState::Filling { .. } | ServerState::Opening => "starting",
            ServerState::Serving => "serving",
            ServerState::Draining { .. } => "draining",
            ServerState::Leaving { .. } | ServerState::Killing { .. } | ServerState::Over => {
                "ending"
            }
        }
    }

    /// Whether the server stops, on request or because it failed.
    pub fn is_ending(&self) -> bool {
        !matches!(
            self.state,
            ServerState::Filling { .. } | ServerState::Opening | ServerState::Serving
        )
    }

    /// Whether the server has not served yet: every failure ends it.
    pub fn is_start(&self) -> bool {
        matches!(self.state, ServerState::Filling { .. } | ServerState::Opening)
    }

    /// Whether the server serves, and no stop was requested.
    pub fn is_serving(&self) -> bool {
        matches!(self.state, ServerState::Serving)
    }

    /// Whether a front is needed.
    pub fn wants_front(&self) -> bool {
        matches!(self.state, ServerState::Opening | ServerState::Serving)
    }

    /// Whether zygotes and workers are needed.
    pub fn wants_workers(&self) -> bool {
        self.is_start() || matches!(self.state, ServerState::Serving | ServerState::Draining { .. })
    }

    /// Whether every remaining process is to be killed.
    pub fn kills(&self) -> bool {
        matches!(self.state, ServerState::Killing { .. })
    }

    /// The exit code, once the server has ended.
    pub fn exit_code(&self) -> Option<i32> {
        (self.state == ServerState::Over).then_some(self.exit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Moment = Duration::from_secs(100);
    const DRAIN: Duration = Duration::from_secs(60);
    const LATER: Moment = NOW.saturating_add(SAME_STOP);

    fn serving() -> Phase {
        let mut phase = Phase::new(NOW, DRAIN);
        assert_eq!(phase.on(ServerEvent::PoolsFull, NOW), None);
        assert_eq!(phase.on(ServerEvent::Listening, NOW), Some(ServerAction::Announce));
        phase
    }

    #[test]
    fn a_graceful_stop_drains_then_asks_then_ends_with_code_0() {
        let mut phase = serving();
        assert_eq!(phase.on(ServerEvent::StopAsked, NOW), Some(ServerAction::Drain));
        assert!(phase.wants_workers() && !phase.wants_front());
        assert_eq!(phase.on(ServerEvent::Drained, NOW), Some(ServerAction::AskAllToLeave));
        assert_eq!(phase.exit_code(), None);
        assert_eq!(phase.on(ServerEvent::NobodyLeft, NOW), None);
        assert_eq!(phase.exit_code(), Some(EXIT_STOPPED));
    }

    #[test]
    fn a_second_stop_kills_and_still_ends_with_code_0() {
        let mut phase = serving();
        phase.on(ServerEvent::StopAsked, NOW);
        assert!(phase.would_stop_at_once(LATER));
        assert_eq!(phase.on(ServerEvent::StopAsked, LATER), Some(ServerAction::KillAll));
        phase.on(ServerEvent::NobodyLeft, LATER);
        assert_eq!(phase.exit_code(), Some(EXIT_STOPPED));
    }

    #[test]
    fn signals_of_one_breath_are_one_stop() {
        let mut phase = serving();
        assert_eq!(phase.on(ServerEvent::StopSignaled, NOW), Some(ServerAction::Drain));
        let same = LATER - Duration::from_nanos(1);
        assert!(!phase.would_stop_at_once(same));
        assert_eq!(phase.on(ServerEvent::StopSignaled, same), None);
        assert_eq!(phase.on(ServerEvent::Drained, same), Some(ServerAction::AskAllToLeave));
        assert_eq!(phase.on(ServerEvent::StopSignaled, same), None);
        assert_eq!(phase.on(ServerEvent::StopSignaled, LATER), Some(ServerAction::KillAll));
    }

    #[test]
    fn a_stop_asked_for_twice_is_no_slip_however_soon() {
        let mut phase = serving();
        assert_eq!(phase.on(ServerEvent::StopAsked, NOW), Some(ServerAction::Drain));
        assert_eq!(phase.on(ServerEvent::StopAsked, NOW), Some(ServerAction::KillAll));
    }

    #[test]
    fn a_stop_without_patience_asks_all_to_leave_at_the_next_turn() {
        let mut phase = Phase::new(NOW, Duration::ZERO);
        phase.on(ServerEvent::PoolsFull, NOW);
        phase.on(ServerEvent::Listening, NOW);
        assert_eq!(phase.on(ServerEvent::StopAsked, NOW), Some(ServerAction::Drain));
        assert_eq!(phase.on(ServerEvent::Tick, NOW), Some(ServerAction::CutOff));
    }

    #[test]
    fn a_start_that_fails_kills_everything_and_ends_with_code_1() {
        let mut phase = Phase::new(NOW, DRAIN);
        assert_eq!(phase.on(ServerEvent::StartFailed, NOW), Some(ServerAction::KillAll));
        phase.on(ServerEvent::NobodyLeft, NOW);
        assert_eq!(phase.exit_code(), Some(EXIT_FAILED));
    }

    #[test]
    fn a_failure_after_the_start_does_not_end_the_server() {
        let mut phase = serving();
        assert_eq!(phase.on(ServerEvent::StartFailed, NOW), None);
        assert!(phase.wants_front() && phase.wants_workers());
    }

    #[test]
    fn processes_that_do_not_leave_are_killed_and_processes_that_do_not_die_are_left_behind() {
        let mut phase = serving();
        phase.on(ServerEvent::StopAsked, NOW);
        assert_eq!(phase.on(ServerEvent::Tick, NOW + DRAIN), Some(ServerAction::CutOff));
        let later = NOW + DRAIN + LEAVE;
        assert_eq!(phase.on(ServerEvent::Tick, later), Some(ServerAction::KillAll));
        assert_eq!(phase.on(ServerEvent::Tick, later + KILLED), None);
        assert_eq!(phase.exit_code(), Some(EXIT_STOPPED));
    }

    #[test]
    fn as_php_fpm_a_second_graceful_stop_changes_nothing_and_terminate_hurries_it() {
        let mut phase = serving();
        assert_eq!(phase.on(ServerEvent::Finish, NOW), Some(ServerAction::Drain));
        assert_eq!(phase.on(ServerEvent::Finish, LATER), None);
        assert_eq!(phase.on(ServerEvent::Terminate, LATER), Some(ServerAction::Terminate));
        assert_eq!(phase.on(ServerEvent::Terminate, LATER), None);
        assert_eq!(phase.on(ServerEvent::Finish, LATER), None);
        phase.on(ServerEvent::NobodyLeft, LATER);
        assert_eq!(phase.exit_code(), Some(EXIT_STOPPED));
    }

    #[test]
    fn as_php_fpm_terminate_waits_for_no_request() {
        let mut phase = serving();
        assert_eq!(phase.on(ServerEvent::Terminate, NOW), Some(ServerAction::Terminate));
        assert!(!phase.wants_workers());
        assert_eq!(phase.on(ServerEvent::Tick, NOW + LEAVE), Some(ServerAction::KillAll));
    }

    fn events() -> impl Strategy<Value = ServerEvent> {
        prop_oneof![
            Just(ServerEvent::Tick),
            Just(ServerEvent::PoolsFull),
            Just(ServerEvent::Listening),
            Just(ServerEvent::StartFailed),
            Just(ServerEvent::StopAsked),
            Just(ServerEvent::Finish),
            Just(ServerEvent::Terminate),
            Just(ServerEvent::Drained),
            Just(ServerEvent::NobodyLeft),
        ]
    }

    proptest! {
        #[test]
        fn whatever_happens_a_stop_that_was_asked_for_comes_to_an_end(
            before in prop::collection::vec((events(), 0u64..5_000), 0..50),
            after in prop::collection::vec((events(), 0u64..5_000), 0..50))
        {
            let mut phase = Phase::new(NOW, DRAIN);
            let mut now = NOW;
            for (event, pass) in before {
                now += Duration::from_millis(pass);
                phase.on(event, now);
            }
            phase.on(ServerEvent::StopAsked, now);
            let asked = now;
            for (event, pass) in after {
                now += Duration::from_millis(pass);
                phase.on(event, now);
                prop_assert!(!phase.wants_front(), "no front is started after a stop");
            }
            while let Some(deadline) = phase.deadline() {
                prop_assert!(deadline <= asked.max(now) + DRAIN + LEAVE + KILLED);
                now = now.max(deadline);
                phase.on(ServerEvent::Tick, now);
            }
            prop_assert!(phase.exit_code().is_some());
        }
    }
}
