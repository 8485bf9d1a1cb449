//! The logs of the peers that this node follows: what it has applied of each, and for how long it
//! may serve cached pages. Pure.
//!
//! It may for a lease after it has sent a ping whose reply it has caught up with, to the peer where
//! that is longest ago. A peer that has not been heard of for three quarters of a lease is given
//! up: it names this node as one that has not confirmed, so nothing succeeds without it.

use std::collections::VecDeque;

use super::peer_messages::{LogName, LogPosition, PeerMessage};
use super::{PeerRemark, PeerStep, WINDOW};
use crate::Millis;

/// Least and longest time between pings.
const PING: (Millis, Millis) = (20, 1000);

/// The settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowSettings {
    /// How long pages are served after a peer was last heard of.
    pub lease: Millis,
    /// What is applied of the log of each peer, if that is known.
    pub positions: Vec<Option<LogPosition>>,
}

/// A purge that the fronts apply.
#[derive(Debug)]
struct Applying {
    mark: u64,
    log: LogName,
    number: u64,
    is_done: bool,
}

/// The log of a peer.
#[derive(Debug)]
struct Followed {
    position: Option<LogPosition>,
    connection: Option<u64>,
    /// The log, once it has begun.
    log: Option<LogName>,
    /// The last purge that was received.
    received: u64,
    applying: VecDeque<Applying>,
    ping: Ping,
    /// When a ping was sent, and the last purge at its reply, until that is applied.
    check: Option<(Millis, u64)>,
    /// When the last ping was sent whose reply is applied.
    caught_up: Option<Millis>,
    /// When it was last heard of, or when this node began to listen.
    heard: Millis,
    is_given_up: bool,
    /// It does not have this node in its list, so its purges succeed without it.
    is_refused: bool,
}

/// The last ping.
#[derive(Debug, Default)]
struct Ping {
    number: u64,
    /// When it was sent; 0: the next one is due.
    sent: Millis,
    /// There is no reply yet.
    is_awaited: bool,
}

/// The logs of all peers.
#[derive(Debug)]
pub struct FollowedLogs {
    lease: Millis,
    peers: Vec<Followed>,
    last_mark: u64,
    ticked: Millis,
    lease_said: Millis,
}

impl FollowedLogs {
    /// The logs of a process that starts now.
    pub fn new(settings: FollowSettings, now: Millis) -> FollowedLogs {
        let followed = |position| Followed {
            position,
            connection: None,
            log: None,
            received: 0,
            applying: VecDeque::new(),
            ping: Ping::default(),
            check: None,
            caught_up: None,
            heard: now,
            is_given_up: false,
            is_refused: false,
        };
        FollowedLogs {
            lease: settings.lease,
            peers: settings.positions.into_iter().map(followed).collect(),
            last_mark: 0,
            ticked: now,
            lease_said: 0,
        }
    }

    /// What is applied of each log.
    pub fn positions(&self) -> impl Iterator<Item = Option<LogPosition>> {
        self.peers.iter().map(|one| one.position)
    }

    /// Whether a peer's log is followed now.
    pub fn follows(&self, peer: usize) -> bool {
        self.peers.get(peer).is_some_and(|one| one.log.is_some())
    }

    /// A connection to a peer is open. Returns what is applied of its log, for the first message.
    pub fn connected(&mut self, peer: usize, connection: u64) -> Option<LogPosition> {
        let one = self.peers.get_mut(peer)?;
        one.connection = Some(connection);
        (one.log, one.check) = (None, None);
        one.ping.is_awaited = false;
        // What the fronts have not applied comes again.
        one.applying.clear();
        one.position
    }

    /// A connection to a peer was lost.
    pub fn lost(&mut self, peer: usize, connection: u64) {
        if let Some(one) = self.peers.get_mut(peer)
            && one.connection == Some(connection)
        {
            (one.connection, one.log) = (None, None);
        }
    }

    /// A peer has sent a message.
    pub fn received(
        &mut self,
        peer: usize,
        connection: u64,
        message: PeerMessage,
        now: Millis,
    ) -> Vec<PeerStep> {
        let mut steps = Vec::new();
        let mark = self.last_mark + 1;
        let Some(one) = self.peers.get_mut(peer).filter(|one| one.connection == Some(connection))
        else {
            return steps;
        };
        if message == PeerMessage::Refused && one.log.is_none() {
            // It begins when this node is in its list.
            one.connection = None;
            if !std::mem::replace(&mut one.is_refused, true) {
                steps.push(PeerStep::Say(peer, PeerRemark::Refused));
                // Also that of an earlier process, of which this one has said nothing.
                self.lease_said = 0;
                steps.push(PeerStep::Lease(0));
            }
            steps.push(PeerStep::Close(connection));
            return steps;
        }
        let taken = one.take(message, mark);
        if taken.is_ok() {
            one.heard = now;
        }
        match taken {
            Ok(Some(apply)) => {
                self.last_mark = mark;
                if apply == (PeerStep::Apply { mark, payload: None }) {
                    steps.push(PeerStep::Say(peer, PeerRemark::Dropped));
                }
                steps.push(apply);
            }
            Ok(None) => one.settle(),
            Err(()) => {
                (one.connection, one.log) = (None, None);
                steps.push(PeerStep::Close(connection));
            }
        }
        self.keep_pings(now, &mut steps);
        self.keep_lease(now, &mut steps);
        steps
    }

    /// The fronts have applied a purge, or not in time: everything is dropped in its place.
    pub fn applied(&mut self, mark: u64, is_done: bool, now: Millis) -> Vec<PeerStep> {
        let mut steps = Vec::new();
        for one in &mut self.peers {
            let Some(applying) = one.applying.iter_mut().find(|one| one.mark == mark) else {
                continue;
            };
            if !is_done {
                return vec![PeerStep::Apply { mark, payload: None }];
            }
            applying.is_done = true;
            let before = one.position;
            while let Some(Applying { log, number, is_done: true, .. }) = one.applying.front() {
                let (log, number) = (*log, *number);
                one.position = Some(LogPosition { log, number });
                one.applying.pop_front();
            }
            one.settle();
            if let (Some(connection), Some(position)) = (one.connection, one.position)
                && before != one.position
            {
                let number = position.number;
                steps.push(PeerStep::Send(connection, PeerMessage::Applied { number }));
            }
        }
        self.keep_lease(now, &mut steps);
        steps
    }

    /// When [`FollowedLogs::tick`] has something to do.
    pub fn deadline(&self) -> Millis {
        self.ticked.saturating_add(self.interval())
    }

    fn interval(&self) -> Millis {
        (self.lease / 8).clamp(PING.0, PING.1)
    }

    /// Sends pings, gives peers up that are not heard of, and extends the lease.
    pub fn tick(&mut self, now: Millis) -> Vec<PeerStep> {
        let mut steps = Vec::new();
        if now > self.ticked.saturating_add(self.lease / 2) {
            // This process, or the machine, was stopped: who was heard of meanwhile is not known.
            for one in &mut self.peers {
                (one.heard, one.is_given_up) = (now, false);
            }
        }
        self.ticked = now;
        self.keep_pings(now, &mut steps);
        for (peer, one) in self.peers.iter_mut().enumerate() {
            let until = one.heard.saturating_add(self.lease - self.lease / 4);
            if !one.is_given_up && !one.is_refused && until <= now {
                one.is_given_up = true;
                steps.push(PeerStep::Say(peer, PeerRemark::GivenUp));
            }
        }
        self.keep_lease(now, &mut steps);
        steps
    }

    fn keep_pings(&mut self, now: Millis, steps: &mut Vec<PeerStep>) {
        let interval = self.interval();
        for one in &mut self.peers {
            let (Some(connection), Some(_)) = (one.connection, one.log) else { continue };
            if one.ping.is_awaited {
                if one.ping.sent.saturating_add(self.lease / 2) <= now {
                    (one.connection, one.log) = (None, None);
                    steps.push(PeerStep::Close(connection));
                }
            } else if one.ping.sent == 0 || one.ping.sent.saturating_add(interval) <= now {
                let number = one.ping.number + 1;
                one.ping = Ping { number, sent: now, is_awaited: true };
                steps.push(PeerStep::Send(connection, PeerMessage::Ping { number }));
            }
        }
    }

    fn keep_lease(&mut self, now: Millis, steps: &mut Vec<PeerStep>) {
        let until = |one: &Followed| match (one.is_given_up, one.caught_up) {
            _ if one.is_refused => 0,
            (true, _) => now.saturating_add(self.lease),
            (false, Some(sent)) => sent.saturating_add(self.lease),
            (false, None) => 0,
        };
        let until = self.peers.iter().map(until).min().unwrap_or(Millis::MAX);
        let step = (self.lease / 16).clamp(1, 500);
        let is_over = until < self.lease_said && until <= now;
        if is_over || until >= self.lease_said.saturating_add(step) {
            self.lease_said = until;
            steps.push(PeerStep::Lease(until));
        }
    }
}

impl Followed {
    /// Takes a message. Returns what it has the fronts apply, as `mark`. An error closes the
    /// connection.
    fn take(&mut self, message: PeerMessage, mark: u64) -> Result<Option<PeerStep>, ()> {
        match (message, self.log) {
            (PeerMessage::Begin { log, after, is_reset }, _) => {
                (self.log, self.received) = (Some(log), after);
                (self.is_given_up, self.is_refused) = (false, false);
                // A reply that is on its way is of before.
                (self.ping.sent, self.ping.is_awaited, self.check) = (0, false, None);
                if is_reset {
                    return self.apply(mark, None).map(Some);
                }
                self.position = Some(LogPosition { log, number: after });
                Ok(None)
            }
            (PeerMessage::Purge { number, payload }, Some(_))
                if self.received.checked_add(1) == Some(number) =>
            {
                self.received = number;
                self.apply(mark, Some(payload)).map(Some)
            }
            (PeerMessage::Pong { number, last }, Some(_)) if number == self.ping.number => {
                self.ping.is_awaited = false;
                self.check.get_or_insert((self.ping.sent, last));
                Ok(None)
            }
            (PeerMessage::Pong { number, .. }, Some(_)) if number < self.ping.number => Ok(None),
            _ => Err(()),
        }
    }

    fn apply(&mut self, mark: u64, payload: Option<String>) -> Result<PeerStep, ()> {
        let Some(log) = self.log.filter(|_| self.applying.len() as u64 <= WINDOW) else {
            return Err(());
        };
        let number = self.received;
        self.applying.push_back(Applying { mark, log, number, is_done: false });
        Ok(PeerStep::Apply { mark, payload })
    }

    /// Notes what is caught up with.
    fn settle(&mut self) {
        let Some(LogPosition { log, number }) = self.position else { return };
        if self.log == Some(log)
            && let Some((sent, _)) = self.check.take_if(|(_, last)| *last <= number)
        {
            self.caught_up = Some(sent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: LogName = LogName { server: 1, process: 1 };
    const LEASE: Millis = 8000;

    /// One that follows a peer from a purge on, and has the lease.
    fn following(after: u64) -> FollowedLogs {
        let position = LogPosition { log: LOG, number: after };
        let settings = FollowSettings { lease: LEASE, positions: vec![Some(position)] };
        let mut logs = FollowedLogs::new(settings, 1000);
        assert_eq!(logs.connected(0, 5), Some(position));
        let begin = PeerMessage::Begin { log: LOG, after, is_reset: false };
        let steps = logs.received(0, 5, begin, 1000);
        assert_eq!(steps, [PeerStep::Send(5, PeerMessage::Ping { number: 1 })]);
        let pong = PeerMessage::Pong { number: 1, last: after };
        assert_eq!(logs.received(0, 5, pong, 1100), [PeerStep::Lease(1000 + LEASE)]);
        logs
    }

    fn purge(number: u64) -> PeerMessage {
        PeerMessage::Purge { number, payload: number.to_string() }
    }

    fn numbers(logs: &FollowedLogs) -> Vec<Option<u64>> {
        logs.positions().map(|position| position.map(|position| position.number)).collect()
    }

    #[test]
    fn purges_are_applied_in_their_order_and_confirmed_up_to_the_first_that_is_missing() {
        let mut logs = following(3);
        for (number, mark) in [(4, 1), (5, 2)] {
            let steps = logs.received(0, 5, purge(number), 1200);
            assert_eq!(steps, [PeerStep::Apply { mark, payload: Some(number.to_string()) }]);
        }
        assert!(logs.applied(2, true, 1200).is_empty());
        assert_eq!(numbers(&logs), [Some(3)]);
        assert_eq!(logs.applied(1, false, 1200), [PeerStep::Apply { mark: 1, payload: None }]);
        let confirmed = PeerStep::Send(5, PeerMessage::Applied { number: 5 });
        assert_eq!(logs.applied(1, true, 1200), [confirmed]);
        assert_eq!(numbers(&logs), [Some(5)]);
        // One is left out.
        assert_eq!(logs.received(0, 5, purge(7), 1300), [PeerStep::Close(5)]);
        assert!(!logs.follows(0));
    }

    #[test]
    fn pages_are_served_for_a_lease_after_a_ping_that_is_caught_up_with() {
        let mut logs = following(0);
        assert_eq!(logs.tick(2000), [PeerStep::Send(5, PeerMessage::Ping { number: 2 })]);
        logs.received(0, 5, purge(1), 2001);
        let pong = PeerMessage::Pong { number: 2, last: 1 };
        assert!(logs.received(0, 5, pong, 2002).is_empty(), "the purge is not applied yet");
        let steps = logs.applied(1, true, 2010);
        assert_eq!(steps.last(), Some(&PeerStep::Lease(2000 + LEASE)));
        // The peer is connected, and this node does not get on.
        logs.received(0, 5, purge(2), 2011);
        for number in 3..30 {
            let now = number * 1000;
            logs.tick(now);
            let steps = logs.received(0, 5, PeerMessage::Pong { number, last: 2 }, now + 1);
            assert!(!steps.iter().any(|step| matches!(step, PeerStep::Lease(_))), "{steps:?}");
        }
    }

    #[test]
    fn a_peer_that_is_silent_is_given_up_without_a_moment_that_lacks_the_lease() {
        let mut logs = following(0);
        let (mut until, mut is_closed, mut is_said) = (1000 + LEASE, false, false);
        for now in (2000..30_000).step_by(500) {
            for step in logs.tick(now) {
                match step {
                    PeerStep::Lease(at) => until = at,
                    PeerStep::Close(5) => is_closed = true,
                    PeerStep::Say(0, PeerRemark::GivenUp) => is_said = true,
                    _ => {}
                }
            }
            assert!(until > now, "{until} at {now}");
        }
        assert!(is_closed && is_said);
        // It comes back: what it has purged is applied before more pages are served.
        logs.connected(0, 6);
        let begin = PeerMessage::Begin { log: LOG, after: 9, is_reset: true };
        let steps = logs.received(0, 6, begin, 30_000);
        assert_eq!(
            steps[..2],
            [PeerStep::Say(0, PeerRemark::Dropped), PeerStep::Apply { mark: 1, payload: None }]
        );
        assert!(matches!(steps.last(), Some(PeerStep::Lease(until)) if *until < 30_000));
        logs.applied(1, true, 30_001);
        let steps = logs.received(0, 6, PeerMessage::Pong { number: 3, last: 9 }, 30_002);
        assert_eq!(steps, [PeerStep::Lease(30_000 + LEASE)]);
    }

    #[test]
    fn a_node_that_starts_or_was_stopped_waits_for_its_peers_first() {
        let settings = FollowSettings { lease: LEASE, positions: vec![None, None] };
        let mut logs = FollowedLogs::new(settings, 1000);
        for now in (1000..6999).step_by(500) {
            assert!(logs.tick(now).is_empty(), "{now}");
        }
        assert!(logs.tick(7000).contains(&PeerStep::Lease(7000 + LEASE)));
        // Stopped for a minute: those that were given up may be there by now.
        let steps = logs.tick(67_000);
        assert_eq!(steps, [PeerStep::Lease(0)]);
        assert!(!logs.tick(67_500).iter().any(|step| matches!(step, PeerStep::Lease(_))));
    }

    #[test]
    fn a_peer_that_never_begins_is_given_up_like_one_that_is_not_reached() {
        let settings = FollowSettings { lease: LEASE, positions: vec![None] };
        let mut logs = FollowedLogs::new(settings, 1000);
        let mut lease = 0;
        for (connection, now) in (1000..8000).step_by(500).enumerate() {
            logs.connected(0, connection as u64);
            logs.received(0, connection as u64, PeerMessage::Applied { number: 1 }, now);
            for step in logs.tick(now) {
                if let PeerStep::Lease(until) = step {
                    lease = until;
                }
            }
        }
        assert!(lease >= 7000 + LEASE, "{lease}");
    }

    #[test]
    fn without_being_in_the_list_of_a_peer_no_page_is_served_until_it_is() {
        let mut logs = following(0);
        logs.lost(0, 5);
        let refused = |logs: &mut FollowedLogs, connection, now| {
            logs.connected(0, connection);
            logs.received(0, connection, PeerMessage::Refused, now)
        };
        let said = PeerStep::Say(0, PeerRemark::Refused);
        let steps = refused(&mut logs, 6, 2000);
        assert_eq!(steps, [said, PeerStep::Lease(0), PeerStep::Close(6)]);
        assert_eq!(refused(&mut logs, 7, 3000), [PeerStep::Close(7)], "it is said once");
        // A process that has said nothing of a lease ends that of the one before.
        let settings = FollowSettings { lease: LEASE, positions: vec![None] };
        let steps = refused(&mut FollowedLogs::new(settings, 0), 1, 10);
        assert!(steps.contains(&PeerStep::Lease(0)), "{steps:?}");
        let later = (3000..60_000).step_by(500).flat_map(|now| logs.tick(now));
        assert!(!later.into_iter().any(|step| matches!(step, PeerStep::Lease(_))));
        logs.connected(0, 8);
        let begin = PeerMessage::Begin { log: LOG, after: 0, is_reset: true };
        logs.received(0, 8, begin, 60_000);
        logs.applied(1, true, 60_001);
        let steps = logs.received(0, 8, PeerMessage::Pong { number: 2, last: 0 }, 60_002);
        assert_eq!(steps, [PeerStep::Lease(60_000 + LEASE)]);
    }

    #[test]
    fn a_log_that_begins_again_on_a_connection_is_not_closed_for_a_ping_of_before() {
        let mut logs = following(0);
        logs.tick(2000);
        // Trimmed, and the reply is late.
        let begin = PeerMessage::Begin { log: LOG, after: u64::MAX, is_reset: true };
        let steps = logs.received(0, 5, begin, 9000);
        let ping = PeerStep::Send(5, PeerMessage::Ping { number: 3 });
        assert!(steps.contains(&ping) && !steps.contains(&PeerStep::Close(5)), "{steps:?}");
        let pong = |number| PeerMessage::Pong { number, last: u64::MAX };
        assert!(logs.received(0, 5, pong(2), 9001).is_empty());
        logs.applied(1, true, 9002);
        assert_eq!(logs.received(0, 5, pong(3), 9003), [PeerStep::Lease(9000 + LEASE)]);
        // There is no number after it.
        assert_eq!(logs.received(0, 5, purge(0), 9004), [PeerStep::Close(5)]);
    }
}
