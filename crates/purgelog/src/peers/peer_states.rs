//! Which peers are reached, for the log and the status.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use maitred_control::purge_log::{PeerState, PurgeLogState};

use super::followed_logs::FollowedLogs;
use super::own_log::OwnLog;
use crate::Millis;

/// How often the state is reported, in milliseconds.
const REPORT_EVERY: Millis = 1000;

/// How often it is logged that an address was turned away, in milliseconds.
const LOG_EVERY: Millis = 60_000;

/// Most addresses of which it is known when that was logged.
const MAX_TURNED_AWAY: usize = 64;

/// Longest text of a system or a peer, in characters.
const MAX_TEXT_CHARS: usize = 200;

/// Whether a peer is reached.
#[derive(Debug, Clone, Default)]
struct Reach {
    is_reached: Option<bool>,
    since: Millis,
    why: Option<String>,
}

/// What is known of connections.
#[derive(Debug)]
pub struct PeerStates {
    node: String,
    addresses: Vec<SocketAddr>,
    reach: Vec<Reach>,
    turned_away: BTreeMap<IpAddr, Millis>,
    /// Whether all are connected, and since when.
    all: (bool, Millis),
    said: PurgeLogState,
    said_at: Millis,
}

impl PeerStates {
    /// Those of peers of which nothing is known.
    pub fn new(node: String, addresses: &[SocketAddr]) -> PeerStates {
        PeerStates {
            node,
            addresses: addresses.to_vec(),
            reach: vec![Reach::default(); addresses.len()],
            turned_away: BTreeMap::new(),
            all: (false, 0),
            said: PurgeLogState::default(),
            said_at: 0,
        }
    }

    /// A peer is reached.
    pub fn reached(&mut self, peer: usize, now: Millis) {
        let (Some(reach), Some(address)) = (self.reach.get_mut(peer), self.addresses.get(peer))
        else {
            return;
        };
        if reach.is_reached == Some(false) {
            let seconds = now.saturating_sub(reach.since).div_ceil(1000);
            tracing::info!("{address} of the purge log is reached again, after {seconds} s");
        }
        *reach = Reach { is_reached: Some(true), since: now, why: None };
    }

    /// A peer is not reached.
    pub fn unreached(&mut self, peer: usize, why: String, now: Millis) {
        let (Some(reach), Some(address)) = (self.reach.get_mut(peer), self.addresses.get(peer))
        else {
            return;
        };
        let why: String = why.chars().take(MAX_TEXT_CHARS).collect();
        if reach.is_reached != Some(false) {
            tracing::error!(
                "{address} of the purge log cannot be reached: {why}; purges are done here, and \
                 sent to it later"
            );
            (reach.is_reached, reach.since) = (Some(false), now);
        }
        reach.why = Some(why);
    }

    /// A connection from an address was closed.
    pub fn turned_away(&mut self, from: IpAddr, why: &str, now: Millis) {
        let is_known = self.turned_away.contains_key(&from);
        if !is_known && self.turned_away.len() >= MAX_TURNED_AWAY {
            self.turned_away.retain(|_, at| now < at.saturating_add(LOG_EVERY));
            if self.turned_away.len() >= MAX_TURNED_AWAY {
                return;
            }
        }
        let last = self.turned_away.entry(from).or_default();
        if *last == 0 || now >= last.saturating_add(LOG_EVERY) {
            *last = now;
            tracing::warn!("a connection of {from} to the purge log was closed: {why}");
        }
    }

    /// The state, if it has changed: once a second at most, and at once if that changes whether
    /// all peers are connected.
    pub fn report(
        &mut self,
        own: &OwnLog,
        followed: &FollowedLogs,
        now: Millis,
    ) -> Option<PurgeLogState> {
        let is_connected = |peer: usize| own.is_followed_by(peer) && followed.follows(peer);
        let is_all = (0..self.addresses.len()).all(is_connected);
        let is_new = self.all.0 != is_all || self.all.1 == 0;
        if is_new {
            self.all = (is_all, now);
        }
        if !is_new && now < self.said_at.saturating_add(REPORT_EVERY) {
            return None;
        }
        self.said_at = now;
        let peers = self.addresses.iter().zip(&self.reach).enumerate();
        let peers: Vec<PeerState> = peers
            .map(|(peer, (address, reach))| {
                let (behind, applied) = own.behind(peer);
                let connected = is_connected(peer);
                let applied = Some(applied).filter(|_| connected || applied > 0);
                let error = reach.why.clone().filter(|_| !connected);
                PeerState { address: *address, connected, applied, behind, error }
            })
            .collect();
        let connected = peers.iter().filter(|peer| peer.connected);
        let nodes: Vec<String> = connected.map(|peer| peer.address.to_string()).collect();
        let count = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let lost = peers.iter().find(|peer| !peer.connected);
        let why = lost.map(|peer| {
            let why = peer.error.as_deref().unwrap_or("not connected yet");
            format!("{}: {why}", peer.address)
        });
        let state = PurgeLogState {
            node: self.node.clone(),
            is_connected: is_all,
            since: self.all.1,
            why,
            last_id: Some(own.last().to_string()),
            waiting: count(own.waiting()),
            node_count: count(nodes.len() as u64),
            nodes,
            peers,
        };
        if state == self.said {
            return None;
        }
        self.said = state.clone();
        Some(state)
    }
}
