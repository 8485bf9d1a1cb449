//! The process that passes purges to other nodes (crate `purgelog`): it is started while the server
//! serves, and again with growing waits when it ends.

use std::os::fd::AsFd;

use maitred_config::{Config, PurgeLog, PurgeLogPlace as Configured};
use maitred_control::nodes::{KnownNodes, NodeFigures, NodesSeen, NodesStatus};
use maitred_control::purge::PurgeOrder;
use maitred_control::purge_log::{
    FromPurgeLog, MAX_STATE_NODES, PeerSettings, PeerState, PurgeLogPlace, PurgeLogSettings,
    PurgeLogState, PurgeLogStatus, PurgeReach, ToPurgeLog, plain_node,
};
use maitred_os::clock::since_boot_millis;
use maitred_os::fork::HowEnded;
use maitred_os::shared;
use maitred_os::signals::Signal;
use maitred_os::users::Identity;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};
use tracing::{error, warn};

use crate::fronts::unconfirmed_purges::UnconfirmedPurges;
use crate::limits::{LEAVE, Moment};
use crate::listen::peer_listener::{PeerListener, PeerListenerState};
use crate::logging::text::one_line;
use crate::peer::Peer;
use crate::processes::backoff::Backoff;
use crate::system::peer_secret;
use crate::system::redis_files::redis_access;

/// The argument that makes our program the one that passes purges on.
pub const PURGE_LOG_ROLE: &str = "purge-log";

/// Most peers that the status shows.
const MAX_PEERS: usize = 4;

/// What the process needs of the rest of the server.
#[derive(Debug)]
pub struct PurgeLogContext<'a> {
    /// The configuration in use.
    pub config: &'a Config,
    /// The environment of the process.
    pub environment: &'a [(String, String)],
    /// The user of the process.
    pub identity: Option<&'a Identity>,
    /// Whether the process is to run.
    pub is_wanted: bool,
    /// The time.
    pub now: Moment,
}

/// What a program has to know of the one before it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeLogBefore {
    /// The purges that other nodes may lack, in their order.
    #[serde(rename = "purges_unconfirmed", default)]
    pub purges: Vec<PurgeOrder>,
    /// There are such purges: all that older programs say and know.
    #[serde(rename = "purges_unsent", default)]
    pub has_unsent: bool,
    /// This start of the server, as peers know it: random; 0: not known.
    #[serde(default)]
    pub server_start: u64,
    /// Until when fronts may serve cached pages, in milliseconds of the machine's clock.
    #[serde(rename = "purge_lease", default)]
    pub lease: u64,
    /// The socket to which peers connect.
    #[serde(rename = "purge_listener", default)]
    pub listener: Option<PeerListenerState>,
}

/// The process that passes purges on.
#[derive(Debug, Default)]
pub struct PurgeLogManager {
    peer: Option<Peer<ToPurgeLog>>,
    backoff: Backoff,
    /// When it is started again.
    start_at: Moment,
    /// It, or one of an earlier program, has run: the fronts may have pages.
    has_run: bool,
    /// It has the order to leave.
    is_leaving: bool,
    /// When it is killed, if it has the order to exit.
    killed_at: Option<Moment>,
    /// Until when fronts may serve cached pages.
    lease: u64,
    /// Purges that it was sent, and that other nodes may lack.
    unconfirmed: UnconfirmedPurges,
    /// There is no Redis that has what it was sent.
    has_peers: bool,
    /// The socket to which peers connect, while one process follows another.
    listener: Option<PeerListener>,
    /// This start of the server: random; 0: not chosen.
    server_start: u64,
    /// Its state, as it was reported.
    state: Option<PurgeLogState>,
    /// What other nodes are to show of this one, until it is sent.
    figures: Option<NodeFigures>,
    /// The nodes, as it has reported them.
    nodes: Option<NodesSeen>,
}

impl PurgeLogManager {
    /// That of a server that a previous program has left running, perhaps with purges that other
    /// nodes lack.
    pub fn resumed(before: PurgeLogBefore) -> PurgeLogManager {
        let PurgeLogBefore { mut purges, has_unsent, server_start, lease, listener } = before;
        if has_unsent && purges.is_empty() {
            purges.push(PurgeOrder::everything());
        }
        PurgeLogManager {
            has_run: true,
            unconfirmed: UnconfirmedPurges::left(purges),
            server_start,
            lease,
            // Without it, one is opened for the next process.
            listener: listener.and_then(|listener| listener.inherit().ok()),
            ..PurgeLogManager::default()
        }
    }

    /// What the next program has to know. `unsent`: purges that the process was not sent.
    pub fn handover<'a>(&self, unsent: impl Iterator<Item = &'a PurgeOrder>) -> PurgeLogBefore {
        let sent = self.unconfirmed.iter().map(|(_, order)| order.clone());
        let purges: Vec<PurgeOrder> = sent.chain(unsent.cloned()).collect();
        PurgeLogBefore {
            has_unsent: !purges.is_empty(),
            purges,
            server_start: self.server_start,
            lease: self.lease,
            listener: self.listener.as_ref().map(PeerListener::state),
        }
    }

    /// Whether there is no process, which the next program would not know.
    pub fn is_gone(&self) -> bool {
        self.peer.is_none()
    }

    /// The process, if it can report.
    pub fn listening(&self) -> Option<&Peer<ToPurgeLog>> {
        self.peer.as_ref().filter(|peer| !peer.is_closed())
    }

    /// Until when a front that is being started may serve cached pages.
    pub fn lease(&self) -> u64 {
        self.lease
    }

    /// When the process is to be started.
    pub fn deadline(&self, config: &Config, is_wanted: bool) -> Option<Moment> {
        let is_due = is_wanted && config.purge_log.is_some() && self.peer.is_none();
        is_due.then_some(self.start_at).or(self.killed_at)
    }

    /// Starts the process if it is wanted, and ends it if it is not.
    pub fn keep(&mut self, context: &PurgeLogContext<'_>) {
        let Some(settings) = &context.config.purge_log else {
            return;
        };
        match &self.peer {
            // One that has the order to exit does, also if it is wanted again by then.
            Some(_) if !self.is_leaving && (!context.is_wanted || self.killed_at.is_some()) => {
                self.end(context.now);
            }
            None if context.is_wanted && self.start_at <= context.now => {
                self.has_peers = matches!(settings.place, Configured::Peers(_));
                match self.begin(settings, context) {
                    Ok(peer) => {
                        self.peer = Some(peer);
                        self.has_run = true;
                        self.send_again();
                    }
                    Err(why) => {
                        error!("the process of the purge log could not be started: {why}");
                        self.start_at = self.backoff.failed(context.now);
                    }
                }
            }
            Some(_) | None => {}
        }
    }

    fn begin(
        &mut self,
        settings: &PurgeLog,
        context: &PurgeLogContext<'_>,
    ) -> Result<Peer<ToPurgeLog>, String> {
        let server = ServerRun { is_cold: !self.has_run, start: self.choose_start()? };
        self.listen(settings)?;
        start(settings, context, server, self.listener.as_ref())
    }

    /// Listens for peers, unless an earlier process has got the socket.
    fn listen(&mut self, settings: &PurgeLog) -> Result<(), String> {
        let wanted = match &settings.place {
            Configured::Peers(peers) => Some(peers.listen),
            Configured::Redis { .. } => None,
        };
        let is_wanted = |listener: &PeerListener| wanted.is_some_and(|one| listener.is_at(one));
        if !self.listener.as_ref().is_some_and(is_wanted) {
            // Before another one is opened, which may have the same port.
            self.close_listener();
            self.listener = wanted.map(PeerListener::open).transpose()?;
        }
        Ok(())
    }

    /// Frees the address of the log.
    pub fn close_listener(&mut self) {
        self.listener = None;
    }

    /// Ends the process, which has more purges under way than it may have. The next one reads those
    /// that are not applied again.
    pub fn kill(&mut self) {
        if let Some(peer) = &self.peer {
            warn!("the process of the purge log is ended: it does not wait for its purges");
            peer.signal(Signal::SIGKILL);
        }
    }

    /// Has the process exit, with what it has applied written down; soon by force.
    fn end(&mut self, now: Moment) {
        let Some(peer) = &mut self.peer else { return };
        match self.killed_at {
            None => {
                peer.say(ToPurgeLog::Exit, &[]);
                self.killed_at = Some(now + LEAVE);
            }
            Some(at) if at <= now => {
                peer.signal(Signal::SIGKILL);
                self.killed_at = Some(Moment::MAX);
            }
            Some(_) => {}
        }
    }

    /// The name of this start of the server for peers: they drop their pages after another one.
    fn choose_start(&mut self) -> Result<u64, String> {
        while self.server_start == 0 {
            let mut bytes = [0; 8];
            getrandom(&mut bytes, GetRandomFlags::empty())
                .map_err(|error| format!("the system has no random numbers: {error}"))?;
            self.server_start = u64::from_ne_bytes(bytes);
        }
        Ok(self.server_start)
    }

    /// What other nodes may lack of the purges that an earlier process was sent comes first: to
    /// peers, all else that it was sent is known.
    fn send_again(&mut self) {
        for (number, order) in self.unconfirmed.iter() {
            if let Some(peer) = &mut self.peer {
                peer.say(ToPurgeLog::Publish { number, order: order.clone() }, &[]);
            }
        }
    }

    /// Whether it can be sent orders.
    pub fn is_running(&self) -> bool {
        self.peer.is_some() && !self.is_leaving && self.killed_at.is_none()
    }

    /// Sends orders.
    pub fn say(&mut self, orders: Vec<ToPurgeLog>) {
        for order in orders {
            if let ToPurgeLog::Publish { number, order } = &order
                && !self.unconfirmed.add(*number, order)
            {
                continue;
            }
            if let Some(peer) = &mut self.peer {
                peer.say(order, &[]);
            }
        }
    }

    /// Takes what other nodes are to show of this one. A front may report any text: it is cut as
    /// that of another node.
    pub fn announce(&mut self, figures: &NodeFigures) {
        self.figures = NodeFigures::read(&figures.text());
    }

    /// The order to announce that, if it is new.
    pub fn take_announcement(&mut self) -> Option<ToPurgeLog> {
        self.figures.take().map(|figures| ToPurgeLog::Announce { figures })
    }

    /// The fronts have ended: other nodes need not wait for this one.
    pub fn leave(&mut self) {
        if let Some(peer) = self.peer.as_mut().filter(|_| !self.is_leaving) {
            self.is_leaving = true;
            peer.say(ToPurgeLog::Leave, &[]);
            if let lacking @ 1.. = self.unconfirmed.missed_count() {
                warn!("{}", lost_purges(lacking, self.has_peers));
            }
        }
    }

    /// Receives the next report.
    pub fn hear(&mut self) -> Option<FromPurgeLog> {
        let peer = self.peer.as_mut()?;
        peer.flush();
        let report = bounded(peer.hear::<FromPurgeLog>()?);
        match &report {
            FromPurgeLog::Lease { until } => {
                self.lease = *until;
                self.backoff.succeeded();
            }
            FromPurgeLog::Published { number, reach } => {
                let is_passed_on = match reach {
                    PurgeReach::Everywhere => true,
                    // Redis has it.
                    PurgeReach::Missing(_) | PurgeReach::Uncertain => !self.has_peers,
                    PurgeReach::Queued | PurgeReach::Upgrading => false,
                };
                match is_passed_on {
                    true => self.unconfirmed.confirmed(*number),
                    false => self.unconfirmed.missed(*number),
                }
            }
            FromPurgeLog::State(state) => self.state = Some(state.clone()),
            FromPurgeLog::Nodes { outcome } => {
                self.see(outcome.clone(), since_boot_millis());
            }
            FromPurgeLog::Apply { .. } | FromPurgeLog::Claimed { .. } => {}
        }
        Some(report)
    }

    /// The state of the log, as its process has reported it.
    pub fn state(&self) -> Option<&PurgeLogState> {
        self.state.as_ref()
    }

    fn see(&mut self, outcome: Result<KnownNodes, String>, now: u64) {
        self.nodes = Some(NodesSeen::after(self.nodes.as_ref(), outcome, now));
    }

    /// The nodes with this purge log at this time of the machine's clock, in milliseconds since its
    /// start; none: there is no report yet.
    pub fn nodes(&self, now: u64) -> Option<NodesStatus> {
        Some(self.nodes.as_ref()?.status(now))
    }

    /// Whether this is the process.
    pub fn is_process(&self, pid: i32) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.pid() == pid)
    }

    /// The state of the log, at the time `now` of the machine's clock since its start.
    pub fn status(&self, now: u64) -> Option<PurgeLogStatus> {
        let state = self.state.as_ref()?;
        let seconds = |millis: u64| millis / 1000;
        Some(PurgeLogStatus {
            node: state.node.clone(),
            connected: state.is_connected,
            since_seconds: seconds(now.saturating_sub(state.since)),
            error: state.why.clone(),
            lease_seconds: self.lease.saturating_sub(now).div_ceil(1000),
            last_id: state.last_id.clone(),
            waiting: state.waiting,
            nodes: state.nodes.clone(),
            node_count: state.node_count,
            peers: state.peers.clone(),
        })
    }

    /// Without the process, its last report is out of date. `now` is in milliseconds.
    fn lost(&mut self, now: u64) {
        if let Some(state) = &mut self.state {
            if std::mem::replace(&mut state.is_connected, false) {
                state.since = now;
            }
            state.why = Some(PROCESS_ENDED.to_owned());
            for peer in &mut state.peers {
                (peer.connected, peer.error) = (false, Some(PROCESS_ENDED.to_owned()));
            }
        }
    }

    /// The process has ended.
    pub fn process_ended(&mut self, how: HowEnded, is_wanted: bool, now: Moment) {
        let was_to_exit = self.killed_at.is_some();
        (self.peer, self.killed_at) = (None, None);
        if self.is_leaving {
            // No process follows, and peers are refused at once.
            self.listener = None;
        }
        let now_of_machine = since_boot_millis();
        self.lost(now_of_machine);
        if self.nodes.is_some() {
            self.see(Err(PROCESS_ENDED.to_owned()), now_of_machine);
        }
        if is_wanted && !self.is_leaving && !was_to_exit {
            error!("the process of the purge log {how}; it is started again");
            self.start_at = self.backoff.failed(now);
        }
    }
}

/// A report as it may be passed on: its process is less trusted.
fn bounded(report: FromPurgeLog) -> FromPurgeLog {
    match report {
        FromPurgeLog::Nodes { outcome } => {
            let outcome = outcome.map(KnownNodes::bounded).map_err(|why| one_line(&why));
            FromPurgeLog::Nodes { outcome }
        }
        FromPurgeLog::State(state) => FromPurgeLog::State(PurgeLogState {
            node: one_line(&state.node),
            why: state.why.as_deref().map(one_line),
            last_id: state.last_id.as_deref().map(one_line),
            nodes: state.nodes.iter().take(MAX_STATE_NODES).map(|name| plain_node(name)).collect(),
            peers: state.peers.iter().take(MAX_PEERS).map(shown).collect(),
            ..state
        }),
        report => report,
    }
}

/// What is logged at a stop of purges that other nodes lack.
fn lost_purges(count: usize, has_peers: bool) -> String {
    let purges = if count == 1 { "one purge has" } else { &format!("{count} purges have") };
    match has_peers {
        true => format!(
            "{purges} not reached all peers, and this server forgets them now: run `maitred purge \
             --everything` on those that were away, unless this server is started again"
        ),
        false => format!(
            "{purges} not reached the purge log, and this server forgets them now: run `maitred \
             purge --everything` on another node when Redis is reached"
        ),
    }
}

/// What is said of the log without its process.
const PROCESS_ENDED: &str = "its process has ended";

/// What the process reports of a peer, for terminals.
fn shown(peer: &PeerState) -> PeerState {
    PeerState { error: peer.error.as_deref().map(one_line), ..peer.clone() }
}

/// What the process has to know of the server's past.
#[derive(Debug, Clone, Copy)]
struct ServerRun {
    /// No process of the log has run before.
    is_cold: bool,
    /// Its start: random.
    start: u64,
}

fn start(
    settings: &PurgeLog,
    context: &PurgeLogContext<'_>,
    server: ServerRun,
    listener: Option<&PeerListener>,
) -> Result<Peer<ToPurgeLog>, String> {
    if let Some(note) = peer_secret::note(context.config) {
        warn!("{note}");
    }
    let settings = settings_of(settings, context, server)?;
    let file = serde_json::to_vec(&settings).map_err(std::io::Error::from);
    let file = file.and_then(|json| shared::file_with("maitred-purge-log", &json));
    let started = file.and_then(|file| {
        let mut peer = Peer::start_role("maitred: purges", PURGE_LOG_ROLE, context.environment)?;
        let listener = listener.map(PeerListener::socket);
        let descriptors: Vec<_> = [file.as_fd()].into_iter().chain(listener).collect();
        peer.say(ToPurgeLog::Begin, &descriptors);
        Ok(peer)
    });
    started.map_err(|why| why.to_string())
}

fn settings_of(
    settings: &PurgeLog,
    context: &PurgeLogContext<'_>,
    server: ServerRun,
) -> Result<PurgeLogSettings, String> {
    let node = settings.node.clone().unwrap_or_else(|| {
        let host = rustix::system::uname();
        host.nodename().to_string_lossy().into_owned()
    });
    let place = match &settings.place {
        Configured::Redis { redis, prefix } => {
            PurgeLogPlace::Redis { access: redis_access(redis)?, prefix: prefix.clone() }
        }
        Configured::Peers(peers) => PurgeLogPlace::Peers(PeerSettings {
            listen: peers.listen,
            addresses: peers.addresses.clone(),
            key: peer_secret::key_of(&peers.secret_file)?,
            server_start: server.start,
        }),
    };
    Ok(PurgeLogSettings {
        identity: context.identity.cloned(),
        restricted: context.config.front_sandbox,
        place,
        node,
        length: u64::from(settings.length),
        lease: settings.lease,
        timeout: settings.timeout,
        folder: context.config.cache_dir.clone(),
        is_cold: server.is_cold,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status_of(is_connected: bool, why: Option<&str>) -> PurgeLogStatus {
        let why = why.map(str::to_owned);
        let state = PurgeLogState { is_connected, since: 1000, why, ..PurgeLogState::default() };
        let mut manager = PurgeLogManager { state: Some(state), ..PurgeLogManager::default() };
        manager.lost(5000);
        manager.status(9000).unwrap()
    }

    #[test]
    fn the_next_program_and_the_next_process_are_sent_what_other_nodes_may_lack() {
        let mut log = PurgeLogManager { has_peers: true, ..PurgeLogManager::default() };
        let publish = |numbers: std::ops::Range<u64>| {
            let order = PurgeOrder::everything;
            numbers.map(|number| ToPurgeLog::Publish { number, order: order() }).collect()
        };
        let start = log.choose_start().unwrap();
        assert_ne!(start, 0);
        log.say(publish(1..4));
        // A process of the log has ended, and who waits says it again.
        log.process_ended(HowEnded::Exited(1), false, Moment::ZERO);
        log.say(publish(2..5));
        assert_eq!(
            log.unconfirmed.iter().map(|(number, _)| number).collect::<Vec<_>>(),
            [1, 2, 3, 4]
        );
        log.unconfirmed.confirmed(3);
        let unsent = PurgeOrder::Dropped(Vec::new());
        let before = log.handover([&unsent].into_iter());
        assert_eq!((before.server_start, before.has_unsent), (start, true));
        assert_eq!(before.purges, [PurgeOrder::everything(), unsent]);
        let mut next = PurgeLogManager::resumed(before);
        assert_eq!((next.unconfirmed.iter().count(), next.choose_start()), (2, Ok(start)));
        next.unconfirmed.confirmed(u64::MAX - 1);
        assert!(!next.handover(std::iter::empty()).has_unsent);
        // An older program does not say which they are.
        let older = PurgeLogBefore { has_unsent: true, ..PurgeLogBefore::default() };
        let next = PurgeLogManager::resumed(older);
        let orders: Vec<_> = next.unconfirmed.iter().map(|(_, order)| order.clone()).collect();
        assert_eq!(orders, [PurgeOrder::everything()]);
    }

    #[test]
    fn what_is_lost_at_a_stop_is_logged_with_what_to_do() {
        assert!(lost_purges(1, true).starts_with("one purge has not reached all peers"));
        assert!(lost_purges(7, false).starts_with("7 purges have not reached the purge log"));
    }

    #[test]
    fn a_process_that_has_ended_is_shown_as_such_and_not_what_it_reported_before() {
        let lost = status_of(true, None);
        assert!(!lost.connected);
        assert_eq!(lost.since_seconds, 4);
        assert_eq!(lost.error.as_deref(), Some(PROCESS_ENDED));
        let before = status_of(false, Some("Connection refused"));
        assert_eq!(before.since_seconds, 8, "it was not connected before, either");
        assert_eq!(before.error.as_deref(), Some(PROCESS_ENDED));
        assert!(PurgeLogManager::default().status(0).is_none());
    }
}
