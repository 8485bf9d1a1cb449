//! What carries the decisions of both logs out: it waits for orders, for peers and for the clock.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use maitred_control::purge::PurgeOrder;
use maitred_control::purge_log::{
    ClaimOutcome, FromPurgeLog, PeerSettings, PurgeLogSettings, PurgeReach, ToPurgeLog,
};
use maitred_os::clock::since_boot_millis;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, timeout_at};

use super::followed_logs::{FollowSettings, FollowedLogs};
use super::own_log::{OwnLog, OwnLogSettings};
use super::peer_figures::PeerFigures;
use super::peer_identity::PeerIdentity;
use super::peer_messages::{LogName, PeerMessage};
use super::peer_network::{EVENTS, NetEvent, Outbox, PeerNetwork};
use super::peer_positions::PeerPositions;
use super::peer_states::PeerStates;
use super::{PeerOutcome, PeerRemark, PeerStep};
use crate::link::Link;
use crate::payloads::{payload_of, purge_of};
use crate::position_file::WriteFailures;
use crate::{Millis, millis, random};

/// How often the positions are written, in milliseconds.
const WRITE_EVERY: Millis = 1000;

/// A connection.
struct Open {
    peer: usize,
    /// This node has opened it, to follow the peer's log.
    is_dialled: bool,
    /// The peer takes this node's figures over it.
    has_figures: bool,
    outbox: Outbox,
}

/// The process at work, without Redis.
pub struct PeerSession {
    settings: PurgeLogSettings,
    peers: PeerSettings,
    link: Link,
    own: OwnLog,
    followed: FollowedLogs,
    open: BTreeMap<u64, Open>,
    /// Wakes what connects to a peer.
    present: Arc<Vec<Notify>>,
    states: PeerStates,
    figures: PeerFigures,
    file: Option<PeerPositions>,
    failures: WriteFailures,
    written_at: Millis,
    /// The lease, until its end is logged.
    lease: Option<Millis>,
}

impl PeerSession {
    /// A session without connections.
    ///
    /// # Errors
    /// One sentence, when there are no random numbers.
    pub fn new(
        settings: PurgeLogSettings,
        peers: PeerSettings,
        link: Link,
    ) -> Result<PeerSession, String> {
        let now = since_boot_millis();
        let count = peers.addresses.len();
        let file = settings.folder.as_deref().map(PeerPositions::new);
        let own = OwnLogSettings {
            log: LogName { server: peers.server_start, process: random()? },
            peers: count,
            length: usize::try_from(settings.length).unwrap_or(usize::MAX),
            timeout: millis(settings.timeout),
        };
        let positions = match &file {
            Some(file) => file.read(&peers.addresses),
            None => vec![None; count],
        };
        let follow = FollowSettings { lease: millis(settings.lease), positions };
        Ok(PeerSession {
            own: OwnLog::new(own, now),
            followed: FollowedLogs::new(follow, now),
            open: BTreeMap::new(),
            present: Arc::new((0..count).map(|_| Notify::new()).collect()),
            states: PeerStates::new(settings.node.clone(), &peers.addresses),
            figures: PeerFigures::new(&settings.node, &peers.addresses, now),
            file,
            failures: WriteFailures::default(),
            written_at: now,
            lease: None,
            settings,
            peers,
            link,
        })
    }

    /// Runs until the supervisor has exited, or this process is to leave.
    ///
    /// # Errors
    /// One sentence, when it cannot work.
    pub async fn run(mut self, listener: TcpListener) -> Result<(), String> {
        let mut orders = self.link.orders()?;
        let (events, mut happened) = mpsc::channel(EVENTS);
        let network = PeerNetwork {
            listen: self.peers.listen,
            addresses: Arc::new(self.peers.addresses.clone()),
            identity: PeerIdentity::of(&self.peers.key.0)?,
            events,
            last: Arc::default(),
            present: self.present.clone(),
        };
        network.begin(listener).map_err(|error| format!("its listener is of no use: {error}"))?;
        drop(network);
        loop {
            let due = self.due().saturating_sub(since_boot_millis());
            tokio::select! {
                order = orders.recv() => match order {
                    None => return Ok(()),
                    Some(ToPurgeLog::Exit) => {
                        self.write_positions();
                        return Ok(());
                    }
                    Some(ToPurgeLog::Leave) => return self.leave(happened).await,
                    Some(order) => self.obey(order)?,
                },
                Some(event) = happened.recv() => self.note(event)?,
                () = sleep(Duration::from_millis(due)) => {}
            }
            self.keep()?;
        }
    }

    /// When there is something to do without an event.
    fn due(&self) -> Millis {
        self.own.deadline().unwrap_or(Millis::MAX).min(self.followed.deadline())
    }

    /// Does what is due because time has passed.
    fn keep(&mut self) -> Result<(), String> {
        let now = since_boot_millis();
        let steps = self.own.tick(now);
        self.carry_out(steps)?;
        if self.followed.deadline() <= now {
            let steps = self.followed.tick(now);
            self.carry_out(steps)?;
        }
        if self.lease.is_some_and(|until| until <= now) {
            self.lease = None;
            tracing::warn!(
                "the lease of the purge log has ended: cached pages are not served until each peer \
                 that can be reached has replied and its purges are applied"
            );
        }
        if now >= self.written_at.saturating_add(WRITE_EVERY) {
            self.written_at = now;
            self.write_positions();
        }
        match self.states.report(&self.own, &self.followed, now) {
            Some(state) => self.link.say(&FromPurgeLog::State(state)),
            None => Ok(()),
        }
    }

    fn write_positions(&mut self) {
        let Some(file) = &mut self.file else { return };
        let addresses = self.peers.addresses.iter().copied();
        let positions = addresses.zip(self.followed.positions());
        let known = positions.filter_map(|(address, position)| Some((address, position?)));
        let written = file.write(known);
        self.failures.note(file.path(), written);
    }

    fn obey(&mut self, order: ToPurgeLog) -> Result<(), String> {
        let now = since_boot_millis();
        let steps = match order {
            ToPurgeLog::Publish { number, order } => {
                self.own.submit(number, payload_of(&order), now)
            }
            ToPurgeLog::Applied { mark, is_done } => self.followed.applied(mark, is_done, now),
            ToPurgeLog::Claim { number, .. } => {
                // The configuration does not allow it.
                let outcome = ClaimOutcome::Undecided;
                return self.link.say(&FromPurgeLog::Claimed { number, outcome });
            }
            ToPurgeLog::Announce { figures } => {
                self.figures.announce(figures);
                let is_connected = |peer| self.followed.follows(peer);
                let outcome = Ok(self.figures.nodes(now, is_connected));
                self.link.say(&FromPurgeLog::Nodes { outcome })?;
                self.open.keys().filter_map(|connection| self.announcement(*connection)).collect()
            }
            ToPurgeLog::Begin | ToPurgeLog::Leave | ToPurgeLog::Exit => Vec::new(),
        };
        self.carry_out(steps)
    }

    /// This node's figures for a peer whose log it follows over this connection.
    fn announcement(&self, connection: u64) -> Option<PeerStep> {
        let open = self.open.get(&connection).filter(|open| open.has_figures)?;
        let message = self.figures.message().filter(|_| self.followed.follows(open.peer))?;
        Some(PeerStep::Send(connection, message))
    }

    fn note(&mut self, event: NetEvent) -> Result<(), String> {
        let now = since_boot_millis();
        let steps = match event {
            NetEvent::Dialled { peer, connection, has_figures, outbox } => {
                let open = Open { peer, is_dialled: true, has_figures, outbox };
                self.open.insert(connection, open);
                let known = self.followed.connected(peer, connection);
                let (from, to) = (self.peers.listen, self.peers.addresses[peer]);
                vec![PeerStep::Send(connection, PeerMessage::Hello { from, to, known })]
            }
            NetEvent::Accepted { connection, source, hello, outbox } => {
                self.accepted(connection, source, hello, outbox)
            }
            NetEvent::Message { connection, message } => self.received(connection, message, now),
            NetEvent::Over { connection, why } => {
                if let Some(Open { peer, is_dialled, .. }) = self.open.remove(&connection) {
                    self.lost(peer, is_dialled, connection, now);
                    if is_dialled {
                        self.states.unreached(peer, why, now);
                    }
                }
                Vec::new()
            }
            NetEvent::Unreached { peer, why } => {
                self.states.unreached(peer, why, now);
                Vec::new()
            }
            NetEvent::TurnedAway { from, why } => {
                self.states.turned_away(from, &why, now);
                Vec::new()
            }
        };
        self.carry_out(steps)
    }

    fn lost(&mut self, peer: usize, is_dialled: bool, connection: u64, now: Millis) {
        match is_dialled {
            true => self.followed.lost(peer, connection),
            false => self.own.lost(peer, connection, now),
        }
    }

    /// A node follows this one's log, if it is a peer that means this one.
    fn accepted(
        &mut self,
        connection: u64,
        source: IpAddr,
        hello: PeerMessage,
        outbox: Outbox,
    ) -> Vec<PeerStep> {
        let PeerMessage::Hello { from, to, known } = hello else { return Vec::new() };
        match follower(&self.peers, source, from, to) {
            Ok(peer) => {
                let open = Open { peer, is_dialled: false, has_figures: false, outbox };
                self.open.insert(connection, open);
                if let Some(present) = self.present.get(peer)
                    && !self.followed.follows(peer)
                {
                    present.notify_one();
                }
                self.own.followed_by(peer, connection, known)
            }
            Err(why) => {
                self.states.turned_away(from.ip(), &why, since_boot_millis());
                if to == self.peers.listen {
                    // Without room it is closed all the same.
                    let _ = outbox.try_send(PeerMessage::Refused);
                }
                Vec::new()
            }
        }
    }

    fn received(&mut self, connection: u64, message: PeerMessage, now: Millis) -> Vec<PeerStep> {
        let Some(Open { peer, is_dialled, .. }) = self.open.get(&connection) else {
            return Vec::new();
        };
        let (peer, is_dialled) = (*peer, *is_dialled);
        match message {
            message if is_dialled => {
                let is_begin = matches!(message, PeerMessage::Begin { .. });
                match message {
                    PeerMessage::Begin { .. } => self.states.reached(peer, now),
                    PeerMessage::Refused => {
                        let why = "it does not have this node in its `peers`".to_owned();
                        self.states.unreached(peer, why, now);
                    }
                    _ => {}
                }
                let mut steps = self.followed.received(peer, connection, message, now);
                if is_begin {
                    steps.extend(self.announcement(connection));
                }
                steps
            }
            PeerMessage::Figures { .. } => {
                self.figures.take(peer, message, now);
                Vec::new()
            }
            PeerMessage::Applied { number } => self.own.applied(peer, connection, number),
            PeerMessage::Ping { number } => {
                let last = self.own.last();
                vec![PeerStep::Send(connection, PeerMessage::Pong { number, last })]
            }
            _ => vec![PeerStep::Close(connection)],
        }
    }

    fn carry_out(&mut self, steps: Vec<PeerStep>) -> Result<(), String> {
        for step in steps {
            match step {
                PeerStep::Send(connection, message) => self.send(connection, message),
                PeerStep::Close(connection) => self.close(connection),
                PeerStep::Apply { mark, payload } => {
                    let order = match payload {
                        Some(payload) => purge_of(&payload),
                        None => PurgeOrder::everything(),
                    };
                    self.link.say(&FromPurgeLog::Apply { mark, order })?;
                }
                PeerStep::Lease(until) => {
                    self.lease = Some(until).filter(|until| *until > 0);
                    self.link.say(&FromPurgeLog::Lease { until })?;
                }
                PeerStep::Report(number, outcome) => {
                    let reach = match outcome {
                        PeerOutcome::Everywhere => PurgeReach::Everywhere,
                        PeerOutcome::Missing(peers) => PurgeReach::Missing(self.names(&peers)),
                    };
                    self.link.say(&FromPurgeLog::Published { number, reach })?;
                }
                PeerStep::Say(peer, remark) => self.log(peer, remark),
            }
        }
        Ok(())
    }

    fn names(&self, peers: &[usize]) -> Vec<String> {
        let addresses = peers.iter().filter_map(|peer| self.peers.addresses.get(*peer));
        addresses.map(SocketAddr::to_string).collect()
    }

    fn send(&mut self, connection: u64, message: PeerMessage) {
        let Some(open) = self.open.get(&connection) else { return };
        if open.outbox.try_send(message).is_err() {
            // It does not read, or is over.
            self.close(connection);
        }
    }

    /// Closes a connection, after what waits to be sent.
    fn close(&mut self, connection: u64) {
        if let Some(Open { peer, is_dialled, .. }) = self.open.remove(&connection) {
            self.lost(peer, is_dialled, connection, since_boot_millis());
        }
    }

    /// Whether no page was ever served or stored here that a peer may have purged.
    fn is_empty(&self, peer: usize) -> bool {
        let is_new = self.followed.positions().nth(peer).flatten().is_none();
        is_new && self.settings.is_cold && self.settings.folder.is_none()
    }

    fn log(&self, peer: usize, remark: PeerRemark) {
        let Some(address) = self.peers.addresses.get(peer) else { return };
        match remark {
            PeerRemark::GivenUp => tracing::warn!(
                "{address} of the purge log is not waited for any more: cached pages are served \
                 without it, and purges name it until it is back"
            ),
            PeerRemark::Refused => tracing::error!(
                "{address} of the purge log does not have this node, {}, in its `peers`: cached \
                 pages are not served until it is added there and that node is restarted",
                self.peers.listen
            ),
            // Without pages that is no news.
            PeerRemark::Dropped if self.is_empty(peer) => {}
            PeerRemark::Dropped => tracing::info!(
                "purges of {address} may be missing here, since it was restarted or was away for \
                 long: all cached pages are dropped"
            ),
        }
    }

    /// The fronts have ended: peers get what was purged last.
    async fn leave(mut self, mut happened: mpsc::Receiver<NetEvent>) -> Result<(), String> {
        let until = Instant::now() + self.settings.timeout;
        while !self.own.is_delivered() {
            match timeout_at(until, happened.recv()).await {
                Ok(Some(event)) => self.note(event)?,
                Ok(None) | Err(_) => break,
            }
        }
        self.write_positions();
        let mut open: Vec<u64> = std::mem::take(&mut self.open).into_keys().collect();
        // Their outboxes are gone, and what is in them is sent.
        while !open.is_empty() {
            match timeout_at(until, happened.recv()).await {
                Ok(Some(NetEvent::Over { connection, .. })) => {
                    open.retain(|one| *one != connection)
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        Ok(())
    }
}

/// The number of the peer that says where it listens, and which node it means.
fn follower(
    peers: &PeerSettings,
    source: IpAddr,
    from: SocketAddr,
    to: SocketAddr,
) -> Result<usize, String> {
    if source != from.ip() {
        // A copy of a node, with its configuration, is not that node.
        return Err(format!("it connects from {source}, and its `listen` is {from}"));
    }
    if to != peers.listen {
        return Err(format!("it means {to}, which is not `listen` of this node"));
    }
    let peer = peers.addresses.iter().position(|peer| *peer == from);
    peer.ok_or_else(|| format!("its `listen` is {from}, which is not in `peers` of this node"))
}

#[cfg(test)]
mod tests {
    use maitred_control::acme::Secret;
    use maitred_control::purge_log::PurgeLogPlace;
    use maitred_os::channel::Channel;

    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn peers() -> PeerSettings {
        PeerSettings {
            listen: at("10.0.0.1:7700"),
            addresses: vec![at("10.0.0.2:7700"), at("10.0.0.3:7700")],
            key: Secret(String::new()),
            server_start: 1,
        }
    }

    #[test]
    fn a_node_that_means_another_one_is_turned_away() {
        let (peers, this) = (peers(), at("10.0.0.1:7700"));
        let follower = |from: SocketAddr, to| follower(&peers, from.ip(), from, to);
        assert_eq!(follower(at("10.0.0.3:7700"), this), Ok(1));
        for (from, to) in [
            (at("10.0.0.3:7700"), at("10.0.0.2:7700")),
            (at("10.0.0.3:7701"), this),
            // Itself, to which its own connection was led.
            (this, at("10.0.0.2:7700")),
            (this, this),
        ] {
            assert!(follower(from, to).is_err(), "{from} {to}");
        }
    }

    /// A session that knows nothing.
    fn session(link: Link) -> PeerSession {
        let settings = PurgeLogSettings {
            identity: None,
            restricted: false,
            place: PurgeLogPlace::Peers(peers()),
            node: "a".to_owned(),
            length: 100,
            lease: Duration::from_secs(10),
            timeout: Duration::from_secs(2),
            folder: None,
            is_cold: true,
        };
        PeerSession::new(settings, peers(), link).unwrap()
    }

    #[test]
    fn a_node_that_connects_from_another_address_than_it_listens_at_is_refused() {
        let (_supervisor, channel) = Channel::pair().unwrap();
        let mut session = session(Link::new(channel));
        let (from, to) = (at("10.0.0.3:7700"), at("10.0.0.1:7700"));
        let mut accepted = |connection, source: &str| {
            let (outbox, mut sent) = mpsc::channel(8);
            let hello = PeerMessage::Hello { from, to, known: None };
            let steps = session.accepted(connection, source.parse().unwrap(), hello, outbox);
            (steps.len(), sent.try_recv().ok(), session.own.is_followed_by(1))
        };
        // A copy of the node, with its configuration.
        assert_eq!(accepted(1, "10.0.0.4"), (0, Some(PeerMessage::Refused), false));
        assert_eq!(accepted(2, "10.0.0.3"), (1, None, true));
        // Then the node itself stays.
        assert_eq!(accepted(3, "10.0.0.2"), (0, Some(PeerMessage::Refused), true));
    }
}
