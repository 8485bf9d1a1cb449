//! The phases of the server, from its start to its end.
//!
//! ```text
//!   Filling ──pools full──▶ Opening ──listening──▶ Serving ──stop──▶ Delaying
//!      │                       │                     │ stop without   │ over, a second stop
//!      │ stop, failed          │ stop, failed        │ delay          ▼
//!      │                       │                     ╰───────────▶ Draining
//!      │                       │                                     │ drained, front gone,
//!      │                       │                                     │ too late
//!      ╰───────────────────────┴────────────▶ Leaving ◀──────────────╯
//!                                                │ too late, or a further stop at any time
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
    /// The same without `stop_delay`: SIGINT, which a person at a terminal sends.
    Interrupted,
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
    /// Have the fronts report that the server is not ready, and clients close their connections.
    PrepareStop,
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

/// How long a stop takes at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopTimes {
    /// How long clients are still served, so that load balancers notice (`stop_delay`).
    pub delay: Duration,
    /// How long it then waits for requests in flight.
    pub drain: Duration,
}

/// What the next stop signal does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStop {
    /// It starts a stop, or counts as the one before.
    Graceful,
    /// It ends `stop_delay`.
    EndDelay,
    /// It kills every process.
    AtOnce,
}

/// The phase of the server.
#[derive(Debug)]
pub struct Phase {
    state: ServerState,
    exit: i32,
    times: StopTimes,
    /// When a stop was requested first, or `stop_delay` was ended by a second request.
    asked: Option<Moment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerState {
    Filling { deadline: Moment },
    Opening,
    Serving,
    Delaying { deadline: Moment },
    Draining { deadline: Moment },
    Leaving { deadline: Moment },
    Killing { deadline: Moment },
    Over,
}

impl Phase {
    /// The start of the server at `now`. A stop will take these times.
    pub fn new(now: Moment, times: StopTimes) -> Phase {
        Phase {
            state: ServerState::Filling { deadline: now + FIRST_FILL },
            exit: EXIT_STOPPED,
            times,
            asked: None,
        }
    }

    /// A server that serves already; `times` as for [`Phase::new`].
    pub fn serving(times: StopTimes) -> Phase {
        Phase { state: ServerState::Serving, exit: EXIT_STOPPED, times, asked: None }
    }

    /// A future stop will take these times.
    pub fn stop_within(&mut self, times: StopTimes) {
        self.times = times;
    }

    /// Takes an event and returns an action.
    pub fn on(&mut self, event: ServerEvent, now: Moment) -> Option<ServerAction> {
        let first = self.asked.is_none();
        let event = match event {
            ServerEvent::StopSignaled | ServerEvent::Interrupted
                if now < *self.asked.get_or_insert(now) + SAME_STOP =>
            {
                let waits = event == ServerEvent::StopSignaled;
                return self.first_stop(now, if waits { self.times.delay } else { Moment::ZERO });
            }
            ServerEvent::StopAsked if first => {
                self.asked = Some(now);
                return self.first_stop(now, self.times.delay);
            }
            ServerEvent::StopSignaled | ServerEvent::Interrupted => ServerEvent::StopAsked,
            ServerEvent::Finish => {
                self.asked.get_or_insert(now);
                return self.first_stop(now, Duration::ZERO);
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
            (ServerEvent::StopAsked, ServerState::Delaying { .. }) => {
                // Further signals of the same breath do not kill.
                self.asked = Some(now);
                self.drain(now)
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

    /// A stop is requested for the first time, or again by signals that count as one. Clients are
    /// served for `delay` more.
    fn first_stop(&mut self, now: Moment, delay: Duration) -> Option<ServerAction> {
        match self.state {
            ServerState::Filling { .. } | ServerState::Opening => self.leave(now),
            ServerState::Serving if delay.is_zero() => self.drain(now),
            ServerState::Serving => {
                self.state = ServerState::Delaying { deadline: now + delay };
                Some(ServerAction::PrepareStop)
            }
            ServerState::Delaying { .. }
            | ServerState::Draining { .. }
            | ServerState::Leaving { .. }
            | ServerState::Killing { .. }
            | ServerState::Over => self.late(now),
        }
    }

    fn terminate(&mut self, now: Moment) -> Option<ServerAction> {
        match self.state {
            ServerState::Serving | ServerState::Delaying { .. } | ServerState::Draining { .. } => {
                self.leave(now);
                Some(ServerAction::Terminate)
            }
            ServerState::Filling { .. } | ServerState::Opening => self.leave(now),
            ServerState::Leaving { .. } | ServerState::Killing { .. } | ServerState::Over => {
                self.late(now)
            }
        }
    }

    /// What the next stop signal does.
    pub fn next_stop(&self, now: Moment) -> NextStop {
        if self.asked.is_none_or(|asked| now < asked + SAME_STOP) {
            return NextStop::Graceful;
        }
        match self.state {
            ServerState::Delaying { .. } => NextStop::EndDelay,
            _ => NextStop::AtOnce,
        }
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
            ServerState::Delaying { .. } => self.drain(now),
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

    fn drain(&mut self, now: Moment) -> Option<ServerAction> {
        self.state = ServerState::Draining { deadline: now + self.times.drain };
        Some(ServerAction::Drain)
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
            | ServerState::Delaying { deadline }
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
            ServerState::Delaying { .. } => "stopping",
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

    /// Whether the server stops, and still serves its clients (`stop_delay`).
    pub fn is_delayed(&self) -> bool {
        matches!(self.state, ServerState::Delaying { .. })
    }

    /// Whether a front is needed.
    pub fn wants_front(&self) -> bool {
        matches!(self.state, ServerState::Opening | ServerState::Serving) || self.is_delayed()
    }

    /// Whether zygotes and workers are needed.
    pub fn wants_workers(&self) -> bool {
        self.is_start()
            || self.is_delayed()
            || matches!(self.state, ServerState::Serving | ServerState::Draining { .. })
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
    const AT_ONCE: StopTimes = StopTimes { delay: Duration::ZERO, drain: DRAIN };
    const DELAYED: StopTimes = StopTimes { delay: Duration::from_secs(5), drain: DRAIN };
    const LATER: Moment = NOW.saturating_add(SAME_STOP);

    fn serving() -> Phase {
        let mut phase = Phase::new(NOW, AT_ONCE);
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
        assert_eq!(phase.next_stop(LATER), NextStop::AtOnce);
        assert_eq!(phase.on(ServerEvent::StopAsked, LATER), Some(ServerAction::KillAll));
        phase.on(ServerEvent::NobodyLeft, LATER);
        assert_eq!(phase.exit_code(), Some(EXIT_STOPPED));
    }

    #[test]
    fn signals_of_one_breath_are_one_stop() {
        let mut phase = serving();
        assert_eq!(phase.on(ServerEvent::StopSignaled, NOW), Some(ServerAction::Drain));
        let same = LATER - Duration::from_nanos(1);
        assert_eq!(phase.next_stop(same), NextStop::Graceful);
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
        let mut phase = Phase::new(NOW, StopTimes { drain: Duration::ZERO, ..AT_ONCE });
        phase.on(ServerEvent::PoolsFull, NOW);
        phase.on(ServerEvent::Listening, NOW);
        assert_eq!(phase.on(ServerEvent::StopAsked, NOW), Some(ServerAction::Drain));
        assert_eq!(phase.on(ServerEvent::Tick, NOW), Some(ServerAction::CutOff));
    }

    #[test]
    fn a_start_that_fails_kills_everything_and_ends_with_code_1() {
        let mut phase = Phase::new(NOW, AT_ONCE);
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

    #[test]
    fn clients_are_served_for_the_delay_and_then_the_server_drains() {
        let mut phase = Phase::serving(DELAYED);
        assert_eq!(phase.on(ServerEvent::StopSignaled, NOW), Some(ServerAction::PrepareStop));
        assert!(phase.wants_front() && phase.wants_workers());
        assert!(phase.is_ending() && !phase.is_serving());
        let over = NOW + DELAYED.delay;
        assert_eq!(phase.deadline(), Some(over));
        assert_eq!(phase.on(ServerEvent::Drained, over - SAME_STOP), None);
        assert_eq!(phase.on(ServerEvent::Tick, over), Some(ServerAction::Drain));
        assert!(!phase.wants_front() && phase.wants_workers());
        assert_eq!(phase.next_stop(over), NextStop::AtOnce);
        assert_eq!(phase.deadline(), Some(over + DRAIN));
    }

    #[test]
    fn a_second_stop_ends_the_delay_and_a_third_one_kills() {
        for second in [ServerEvent::StopAsked, ServerEvent::StopSignaled, ServerEvent::Interrupted]
        {
            let mut phase = Phase::serving(DELAYED);
            phase.on(ServerEvent::StopSignaled, NOW);
            assert_eq!(phase.on(ServerEvent::StopSignaled, NOW), None, "of the same breath");
            assert_eq!(phase.next_stop(LATER), NextStop::EndDelay);
            assert_eq!(phase.on(second, LATER), Some(ServerAction::Drain), "{second:?}");
            assert_eq!(phase.on(ServerEvent::StopSignaled, LATER), None, "of the same breath");
            let third = phase.on(ServerEvent::StopSignaled, LATER + SAME_STOP);
            assert_eq!(third, Some(ServerAction::KillAll));
        }
    }

    #[test]
    fn a_person_at_a_terminal_waits_for_no_delay() {
        let mut phase = Phase::serving(DELAYED);
        assert_eq!(phase.on(ServerEvent::Interrupted, NOW), Some(ServerAction::Drain));
    }

    fn events() -> impl Strategy<Value = ServerEvent> {
        prop_oneof![
            Just(ServerEvent::Tick),
            Just(ServerEvent::PoolsFull),
            Just(ServerEvent::Listening),
            Just(ServerEvent::StartFailed),
            Just(ServerEvent::StopAsked),
            Just(ServerEvent::StopSignaled),
            Just(ServerEvent::Interrupted),
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
            after in prop::collection::vec((events(), 0u64..5_000), 0..50),
            delay in 0u64..10)
        {
            let delay = Duration::from_secs(delay);
            let mut phase = Phase::new(NOW, StopTimes { delay, drain: DRAIN });
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
                let is_served = phase.is_delayed() && now < asked + delay;
                prop_assert!(is_served || !phase.wants_front(), "no front is started later");
            }
            while let Some(deadline) = phase.deadline() {
                prop_assert!(deadline <= asked.max(now) + delay + DRAIN + LEAVE + KILLED);
                now = now.max(deadline);
                phase.on(ServerEvent::Tick, now);
            }
            prop_assert!(phase.exit_code().is_some());
        }
    }
}
