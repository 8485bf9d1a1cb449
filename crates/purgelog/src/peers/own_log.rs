//! The log of this node's purges: what its peers have applied, and what they are sent. Pure.

use std::collections::VecDeque;

use super::peer_messages::{LogName, LogPosition, PeerMessage};
use super::{PeerOutcome, PeerStep, WINDOW};
use crate::Millis;

/// Most bytes of purges that the log has.
const MAX_LOG_BYTES: usize = 16 * 1024 * 1024;

/// Most purges that are remembered because not all peers have applied them.
const MAX_PENDING: usize = 8192;

/// The settings of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnLogSettings {
    /// Its name.
    pub log: LogName,
    /// How many peers there are.
    pub peers: usize,
    /// Most purges that it has, for peers that come back.
    pub length: usize,
    /// How long a purge waits for peers.
    pub timeout: Millis,
}

/// A peer that follows this log.
#[derive(Debug, Clone, Default)]
struct Follower {
    connection: Option<u64>,
    /// The last purge that it was sent.
    sent: u64,
    /// The last purge that it has applied.
    applied: u64,
    /// When it was lost.
    gone_since: Millis,
}

/// A purge that not all peers have applied.
#[derive(Debug)]
struct Pending {
    /// What the report calls it.
    name: u64,
    number: u64,
    until: Millis,
    is_reported: bool,
}

/// The log.
#[derive(Debug)]
pub struct OwnLog {
    settings: OwnLogSettings,
    purges: VecDeque<String>,
    bytes: usize,
    /// The number of the last purge; the first one is 1.
    last: u64,
    followers: Vec<Follower>,
    pending: VecDeque<Pending>,
}

impl OwnLog {
    /// A log without purges, of a process that starts now.
    pub fn new(settings: OwnLogSettings, now: Millis) -> OwnLog {
        let follower = Follower { gone_since: now, ..Follower::default() };
        OwnLog {
            followers: vec![follower; settings.peers],
            settings,
            purges: VecDeque::new(),
            bytes: 0,
            last: 0,
            pending: VecDeque::new(),
        }
    }

    /// The number of the last purge.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// How many purges a peer has not applied, and the last one that it has.
    pub fn behind(&self, peer: usize) -> (u64, u64) {
        let applied = self.followers.get(peer).map_or(0, |follower| follower.applied);
        (self.last.saturating_sub(applied), applied)
    }

    /// How many purges not all peers have applied.
    pub fn waiting(&self) -> u64 {
        self.last.saturating_sub(self.applied_by_all())
    }

    /// Whether a peer follows the log now.
    pub fn is_followed_by(&self, peer: usize) -> bool {
        self.followers.get(peer).is_some_and(|follower| follower.connection.is_some())
    }

    /// Whether all peers that follow now have applied everything.
    pub fn is_delivered(&self) -> bool {
        let mut connected = self.followers.iter().filter(|one| one.connection.is_some());
        connected.all(|one| one.applied == self.last)
    }

    /// Takes a purge that this node applies itself. `name` is that of its report.
    pub fn submit(&mut self, name: u64, payload: String, now: Millis) -> Vec<PeerStep> {
        self.last += 1;
        self.bytes += payload.len();
        self.purges.push_back(payload);
        while self.purges.len() > self.settings.length || self.bytes > MAX_LOG_BYTES {
            let Some(oldest) = self.purges.pop_front() else { break };
            self.bytes -= oldest.len();
        }
        let until = now.saturating_add(self.settings.timeout);
        let number = self.last;
        let mut steps = Vec::new();
        // Once the newest is everywhere, so is the one that it replaces.
        if self.pending.len() >= MAX_PENDING
            && let Some(one) = self.pending.pop_back().filter(|one| !one.is_reported)
        {
            let missing = PeerOutcome::Missing(self.lacking(one.number).collect());
            steps.push(PeerStep::Report(one.name, missing));
        }
        self.pending.push_back(Pending { name, number, until, is_reported: false });
        self.send(&mut steps);
        self.report_overdue(now, &mut steps);
        steps
    }

    /// A peer follows the log from now on, and has applied `known`.
    pub fn followed_by(
        &mut self,
        peer: usize,
        connection: u64,
        known: Option<LogPosition>,
    ) -> Vec<PeerStep> {
        let mut steps = Vec::new();
        let after = self.continues(known);
        let (log, last) = (self.settings.log, self.last);
        let Some(follower) = self.followers.get_mut(peer) else { return steps };
        steps.extend(follower.connection.replace(connection).map(PeerStep::Close));
        follower.sent = after.unwrap_or(last);
        follower.applied = after.unwrap_or(0);
        let (after, is_reset) = (follower.sent, after.is_none());
        steps.push(PeerStep::Send(connection, PeerMessage::Begin { log, after, is_reset }));
        self.send(&mut steps);
        self.settle(&mut steps);
        steps
    }

    /// The purge after which a peer continues; none: purges may be missing in between.
    fn continues(&self, known: Option<LogPosition>) -> Option<u64> {
        let known = known?;
        let LogName { server, process } = self.settings.log;
        let is_whole = self.last == self.purges.len() as u64;
        let is_here = |number: u64| number <= self.last && number >= self.first().saturating_sub(1);
        if known.log.server != server {
            // Starts in between, of which the peer knows nothing, may have purged, too.
            None
        } else if known.log.process != process {
            // What peers lacked of those before it is in this one: the supervisor sends it again.
            is_whole.then_some(0)
        } else {
            is_here(known.number).then_some(known.number)
        }
    }

    /// The number of the first purge that the log still has, or will have.
    fn first(&self) -> u64 {
        (self.last + 1).saturating_sub(self.purges.len() as u64)
    }

    /// A connection of a peer was lost.
    pub fn lost(&mut self, peer: usize, connection: u64, now: Millis) {
        if let Some(follower) = self.followers.get_mut(peer)
            && follower.connection == Some(connection)
        {
            follower.connection = None;
            follower.gone_since = now;
        }
    }

    /// A peer has applied all purges up to this one.
    pub fn applied(&mut self, peer: usize, connection: u64, number: u64) -> Vec<PeerStep> {
        let mut steps = Vec::new();
        let Some(follower) = self.followers.get_mut(peer) else { return steps };
        if follower.connection != Some(connection) {
            return steps;
        }
        if number > follower.sent {
            // It has not got it.
            return vec![PeerStep::Close(connection)];
        }
        follower.applied = follower.applied.max(number);
        self.send(&mut steps);
        self.settle(&mut steps);
        steps
    }

    /// When [`OwnLog::tick`] has something to do.
    pub fn deadline(&self) -> Option<Millis> {
        let awaited = self.pending.iter().filter(|one| !one.is_reported);
        awaited.map(|one| one.until).min()
    }

    /// Reports what is overdue.
    pub fn tick(&mut self, now: Millis) -> Vec<PeerStep> {
        let mut steps = Vec::new();
        self.report_overdue(now, &mut steps);
        steps
    }

    fn applied_by_all(&self) -> u64 {
        self.followers.iter().map(|follower| follower.applied).min().unwrap_or(self.last)
    }

    /// The peers that have not applied a purge.
    fn lacking(&self, number: u64) -> impl Iterator<Item = usize> {
        let followers = self.followers.iter().enumerate();
        followers.filter(move |(_, one)| one.applied < number).map(|(peer, _)| peer)
    }

    /// Sends peers what they lack, within the window.
    fn send(&mut self, steps: &mut Vec<PeerStep>) {
        let (first, last, log) = (self.first(), self.last, self.settings.log);
        for follower in &mut self.followers {
            let Some(connection) = follower.connection else { continue };
            while follower.sent < last && follower.sent < follower.applied + WINDOW {
                let number = follower.sent + 1;
                let at = number.checked_sub(first).and_then(|at| usize::try_from(at).ok());
                let message = match at.and_then(|at| self.purges.get(at)) {
                    Some(payload) => PeerMessage::Purge { number, payload: payload.clone() },
                    None => PeerMessage::Begin { log, after: last, is_reset: true },
                };
                follower.sent = match message {
                    PeerMessage::Begin { after, .. } => after,
                    _ => number,
                };
                steps.push(PeerStep::Send(connection, message));
            }
        }
    }

    /// Reports the purges that all peers have applied.
    fn settle(&mut self, steps: &mut Vec<PeerStep>) {
        let applied = self.applied_by_all();
        while let Some(one) = self.pending.front().filter(|one| one.number <= applied) {
            // Again, if it was reported before: no peer lacks it any more.
            steps.push(PeerStep::Report(one.name, PeerOutcome::Everywhere));
            self.pending.pop_front();
        }
    }

    /// Reports purges whose time is over, and those that only peers lack that were lost long ago.
    fn report_overdue(&mut self, now: Millis, steps: &mut Vec<PeerStep>) {
        let mut pending = std::mem::take(&mut self.pending);
        for one in pending.iter_mut().filter(|one| !one.is_reported) {
            let is_gone = |peer: usize| {
                self.followers.get(peer).is_none_or(|follower| {
                    let since = follower.gone_since.saturating_add(self.settings.timeout);
                    follower.connection.is_none() && since <= now
                })
            };
            if one.until <= now || self.lacking(one.number).all(is_gone) {
                one.is_reported = true;
                let missing = PeerOutcome::Missing(self.lacking(one.number).collect());
                steps.push(PeerStep::Report(one.name, missing));
            }
        }
        self.pending = pending;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: LogName = LogName { server: 1, process: 1 };

    fn log(length: usize) -> OwnLog {
        OwnLog::new(OwnLogSettings { log: LOG, peers: 2, length, timeout: 100 }, 0)
    }

    fn at(log: LogName, number: u64) -> Option<LogPosition> {
        Some(LogPosition { log, number })
    }

    fn begin(steps: &[PeerStep]) -> (u64, bool) {
        let begun = steps.iter().find_map(|step| match step {
            PeerStep::Send(_, PeerMessage::Begin { after, is_reset, .. }) => {
                Some((*after, *is_reset))
            }
            _ => None,
        });
        begun.expect("it has begun")
    }

    #[test]
    fn a_purge_is_everywhere_once_each_peer_has_applied_it() {
        let mut own = log(100);
        own.followed_by(0, 10, None);
        own.followed_by(1, 11, None);
        let steps = own.submit(7, "a".to_owned(), 0);
        let purge = PeerMessage::Purge { number: 1, payload: "a".to_owned() };
        assert_eq!(steps, [PeerStep::Send(10, purge.clone()), PeerStep::Send(11, purge)]);
        assert!(own.applied(0, 10, 1).is_empty());
        assert_eq!((own.waiting(), own.behind(0), own.behind(1)), (1, (0, 1), (1, 0)));
        assert_eq!(own.applied(1, 11, 1), [PeerStep::Report(7, PeerOutcome::Everywhere)]);
        assert!(own.is_delivered() && own.deadline().is_none());
        // More than it was sent.
        assert_eq!(own.applied(1, 11, 2), [PeerStep::Close(11)]);
    }

    #[test]
    fn peers_that_do_not_confirm_in_time_are_named_and_one_that_is_long_gone_at_once() {
        let mut own = log(100);
        own.followed_by(0, 10, None);
        own.submit(7, "a".to_owned(), 0);
        assert!(own.tick(99).is_empty());
        let missing = |peers: &[usize]| PeerOutcome::Missing(peers.to_vec());
        assert_eq!(own.tick(100), [PeerStep::Report(7, missing(&[0, 1]))]);
        let steps = own.submit(8, "b".to_owned(), 200);
        assert_eq!(steps.len(), 1, "the peer that is connected is waited for: {steps:?}");
        own.applied(0, 10, 2);
        assert_eq!(own.tick(201), [PeerStep::Report(8, missing(&[1]))]);
        // It comes back, and gets both.
        let steps = own.followed_by(1, 12, at(LOG, 0));
        assert_eq!(begin(&steps), (0, false));
        assert_eq!(steps.len(), 3);
        let all = |name| PeerStep::Report(name, PeerOutcome::Everywhere);
        assert_eq!(own.applied(1, 12, 2), [all(7), all(8)]);
    }

    #[test]
    fn a_peer_continues_where_it_was_unless_purges_may_be_missing() {
        let mut own = log(100);
        let cases = |own: &mut OwnLog, known| begin(&own.followed_by(0, 1, known));
        let other = |server, process| LogName { server, process };
        for number in 0..3 {
            own.submit(number, String::new(), 0);
        }
        assert_eq!(cases(&mut own, None), (3, true));
        assert_eq!(cases(&mut own, at(LOG, 2)), (2, false));
        assert_eq!(cases(&mut own, at(LOG, 4)), (3, true), "the future");
        assert_eq!(cases(&mut own, at(other(1, 5), 9)), (0, false), "another process");
        assert_eq!(cases(&mut own, at(other(2, 5), 9)), (3, true), "another start");
        assert_eq!(cases(&mut own, at(other(2, 1), 3)), (3, true), "another start");
        for number in 3..300 {
            own.submit(number, String::new(), 0);
        }
        assert_eq!(cases(&mut own, at(LOG, 199)), (300, true), "trimmed");
        assert_eq!(cases(&mut own, at(LOG, 200)), (200, false));
        assert_eq!(cases(&mut own, at(other(1, 5), 9)), (300, true));
    }

    #[test]
    fn a_peer_that_is_slow_is_sent_a_window_and_drops_its_pages_where_that_is_trimmed() {
        let mut own = log(100);
        own.followed_by(0, 10, None);
        own.followed_by(1, 11, None);
        let mut sent = 0;
        for number in 0..WINDOW + 200 {
            let steps = own.submit(number, "a".to_owned(), 0);
            sent += steps.iter().filter(|step| matches!(step, PeerStep::Send(10, _))).count();
        }
        assert_eq!(sent as u64, WINDOW);
        let steps = own.applied(0, 10, 1);
        assert_eq!(begin(&steps), (WINDOW + 200, true));
        assert!(own.applied(0, 10, WINDOW).is_empty(), "it has not dropped them yet");
        assert_eq!(own.behind(0).0, 200);
        own.applied(0, 10, WINDOW + 200);
        assert_eq!(own.behind(0).0, 0);
    }

    #[test]
    fn memory_is_bounded_while_a_peer_is_away() {
        let mut own = log(1_000_000);
        for number in 0..20_000 {
            own.submit(number, "p".repeat(2000), 1000);
        }
        assert!(own.bytes <= MAX_LOG_BYTES && own.pending.len() <= MAX_PENDING);
        // The last one is reported once it is applied, and so are all before it.
        let mut reported = Vec::new();
        for peer in 0..2 {
            own.followed_by(peer, 1, None);
            reported = own.applied(peer, 1, 20_000);
        }
        assert_eq!(reported.last(), Some(&PeerStep::Report(19_999, PeerOutcome::Everywhere)));
        assert_eq!(reported.len(), MAX_PENDING);
    }
}
