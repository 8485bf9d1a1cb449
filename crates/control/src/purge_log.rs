//! Messages between the supervisor and the process that passes purges from node to node
//! (docs/decisions/0018-purges-everywhere.md).

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use maitred_os::users::Identity;
use serde::{Deserialize, Serialize};

use crate::acme::Secret;
use crate::nodes::{KnownNodes, NodeFigures};
use crate::purge::PurgeOrder;
use crate::redis_access::RedisAccess;

/// Longest purge that is passed on, in bytes of JSON. A longer one becomes one of all pages of its
/// sites, or of everything if it names none.
pub const MAX_ORDER_BYTES: usize = 48 * 1024;

/// Most nodes that a sentence names.
const MAX_NAMED: usize = 8;

/// Longest name of a node in a sentence, in characters.
const MAX_NAME_CHARS: usize = 64;

/// Orders to the process that passes purges on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToPurgeLog {
    /// Connect. Descriptors: a file with [`PurgeLogSettings`] as JSON, which holds a secret, and
    /// for [`PurgeLogPlace::Peers`] the listening socket.
    Begin,
    /// Have the other nodes apply a purge. Reply: [`FromPurgeLog::Published`].
    Publish {
        /// Its number.
        number: u64,
        /// The purge.
        order: PurgeOrder,
    },
    /// The fronts have handled a [`FromPurgeLog::Apply`].
    Applied {
        /// Its number.
        mark: u64,
        /// Whether all have applied it.
        is_done: bool,
    },
    /// The fronts have ended: no other node has to wait for this one. Then exit.
    Leave,
    /// Exit: the process of another program takes the place of this one. The fronts go on.
    Exit,
    /// Claim a run of a schedule for this node. Reply: [`FromPurgeLog::Claimed`].
    Claim {
        /// Its number.
        number: u64,
        /// The run: the same text on all nodes.
        run: String,
        /// How long no other node may claim it: longer than their clocks differ.
        lifetime: Duration,
        /// Time in which it is to be decided.
        timeout: Duration,
    },
    /// Show these figures of this node to the others. Reply: [`FromPurgeLog::Nodes`].
    Announce {
        /// The figures.
        figures: NodeFigures,
    },
}

/// Reports of the process that passes purges on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromPurgeLog {
    /// Another node has purged this. Reply: [`ToPurgeLog::Applied`].
    Apply {
        /// Its number.
        mark: u64,
        /// The purge.
        order: PurgeOrder,
    },
    /// Cached pages may be served until this time.
    Lease {
        /// Milliseconds of the machine's clock since its start
        /// ([`maitred_os::clock::since_boot_millis`]).
        until: u64,
    },
    /// Its state has changed.
    State(PurgeLogState),
    /// The outcome of a [`ToPurgeLog::Publish`].
    Published {
        /// Its number.
        number: u64,
        /// Which nodes have applied it.
        reach: PurgeReach,
    },
    /// The outcome of a [`ToPurgeLog::Claim`].
    Claimed {
        /// Its number.
        number: u64,
        /// Which node has the run.
        outcome: ClaimOutcome,
    },
    /// The outcome of a [`ToPurgeLog::Announce`].
    Nodes {
        /// The nodes with this purge log, this one included, or why they are not known.
        outcome: Result<KnownNodes, String>,
    },
}

/// Which node has a run of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimOutcome {
    /// This one.
    Here,
    /// Another one.
    Elsewhere,
    /// It is not known: Redis could not be reached in time.
    Undecided,
}

/// The state of the purge log, for people.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeLogState {
    /// The name of this node.
    pub node: String,
    /// Redis was reached in the last round, or all peers are connected.
    pub is_connected: bool,
    /// Since when that is so, in milliseconds of the machine's clock since its start.
    pub since: u64,
    /// Why it is not reached.
    pub why: Option<String>,
    /// The last entry that is applied here.
    pub last_id: Option<String>,
    /// Purges that the other nodes have still to be sent.
    pub waiting: u32,
    /// Other nodes that may serve cached pages, at most [`MAX_STATE_NODES`].
    pub nodes: Vec<String>,
    /// How many there are.
    pub node_count: u32,
    /// The nodes of a log without Redis.
    #[serde(default)]
    pub peers: Vec<PeerState>,
}

/// The state of a peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerState {
    /// Its address.
    pub address: SocketAddr,
    /// Whether both nodes have reached the other.
    pub connected: bool,
    /// The last purge of this node that it has applied, by its number; none: not known.
    pub applied: Option<u64>,
    /// How many purges of this node it has not applied.
    pub behind: u64,
    /// Why it is not reached, as one sentence.
    pub error: Option<String>,
}

/// The state of the purge log, as the status has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeLogStatus {
    /// The name of this node in the log.
    pub node: String,
    /// Whether Redis is reached, or all peers are.
    pub connected: bool,
    /// For how many seconds that has been so.
    pub since_seconds: u64,
    /// Why it is not reached, as one sentence.
    pub error: Option<String>,
    /// For how many seconds cached pages may still be served without Redis; 0: they are not.
    pub lease_seconds: u64,
    /// The last entry that is applied here.
    pub last_id: Option<String>,
    /// Purges that the other nodes have still to be sent.
    pub waiting: u32,
    /// The other nodes that may serve cached pages, 64 at most.
    pub nodes: Vec<String>,
    /// How many there are.
    pub node_count: u32,
    /// The nodes of a log without Redis; none of a log in Redis.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<PeerState>,
}

/// Most nodes that a [`PurgeLogState`] names.
pub const MAX_STATE_NODES: usize = 64;

/// The name of a node as others have registered it, for terminals and logs.
pub fn plain_node(name: &str) -> String {
    let plain = name.chars().take(MAX_NAME_CHARS).map(|c| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '-' | '_' | ':' | '[' | ']' => c,
        _ => '?',
    });
    plain.collect()
}

/// Which nodes have applied a purge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PurgeReach {
    /// All that serve pages.
    Everywhere,
    /// All but these.
    Missing(Vec<String>),
    /// All that are known, but there may be others: the log is new.
    Uncertain,
    /// None but this one: the log cannot be reached, and the purge is sent later.
    Queued,
    /// None but this one: the server is being upgraded, and the purge is sent right after.
    Upgrading,
}

impl PurgeReach {
    /// All but these nodes, whose names others have registered: short enough for a message.
    pub fn missing(nodes: &[String]) -> PurgeReach {
        PurgeReach::Missing(nodes.iter().map(|node| plain_node(node)).collect())
    }

    /// What is not as it should be, in one clause.
    pub fn complaint(&self) -> Option<String> {
        match self {
            PurgeReach::Everywhere => None,
            PurgeReach::Missing(nodes) => {
                let mut said = String::from("not confirmed by");
                for (at, name) in nodes.iter().take(MAX_NAMED).enumerate() {
                    said.push_str(if at == 0 { " " } else { ", " });
                    said.push_str(&plain_node(name));
                }
                if nodes.len() > MAX_NAMED {
                    let _ = write!(said, " and {} more", nodes.len() - MAX_NAMED);
                }
                Some(said)
            }
            PurgeReach::Uncertain => Some(
                "other nodes are not all known yet, since the purge log is new or was restarted; \
                 repeat it later"
                    .to_owned(),
            ),
            PurgeReach::Queued => Some(
                "only done here: the purge log cannot be reached, and the other nodes get it later"
                    .to_owned(),
            ),
            PurgeReach::Upgrading => Some(
                "only done here: this server is being upgraded, and the other nodes get it right \
                 after; repeat it then"
                    .to_owned(),
            ),
        }
    }
}

/// The settings of the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeLogSettings {
    /// User to become first.
    pub identity: Option<Identity>,
    /// Whether it is sandboxed, like the front.
    pub restricted: bool,
    /// Where the log is.
    pub place: PurgeLogPlace,
    /// The name of this node.
    pub node: String,
    /// Purges that the log has, about.
    pub length: u64,
    /// How long pages may be served after the log was last read.
    pub lease: Duration,
    /// How long a purge waits for other nodes.
    pub timeout: Duration,
    /// The folder of cached pages, if they are on disk: the position in the log is there, too.
    pub folder: Option<PathBuf>,
    /// The fronts have no page yet, except from that folder.
    pub is_cold: bool,
}

/// Where a purge log is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PurgeLogPlace {
    /// In a stream of Redis.
    Redis {
        /// Where Redis is, and how to log in.
        access: RedisAccess,
        /// The beginning of all keys.
        prefix: String,
    },
    /// Each node has its own.
    Peers(PeerSettings),
}

/// The nodes of a purge log without Redis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerSettings {
    /// The address of this node.
    pub listen: SocketAddr,
    /// Those of the others.
    pub addresses: Vec<SocketAddr>,
    /// The private key of all nodes, as PKCS #8 in base64.
    pub key: Secret,
    /// This start of the server: random, and the same until it ends.
    pub server_start: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_nodes_cannot_write_to_a_terminal_and_are_not_endless() {
        let one = PurgeReach::Missing(vec!["node2".to_owned(), "\x1b[2J\n".repeat(50)]);
        let said = one.complaint().unwrap();
        assert!(said.starts_with("not confirmed by node2, ?[2J??") && said.len() < 120, "{said}");
        let many = PurgeReach::Missing(vec!["n".to_owned(); 20]).complaint().unwrap();
        assert!(many.ends_with("n and 12 more"));
        assert_eq!(PurgeReach::Everywhere.complaint(), None);
        // As many nodes as there may be, in a message of 64 KiB.
        let longest = PurgeReach::missing(&vec!["\u{1}".repeat(256); 256]);
        assert!(serde_json::to_vec(&longest).unwrap().len() < 48 * 1024);
    }
}
