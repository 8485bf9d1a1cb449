//! Messages between the supervisor and the process that shares certificates with other nodes
//! (docs/decisions/0008-acme.md). What is shared is sealed: the process has no key to it.

use std::path::PathBuf;
use std::time::Duration;

use maitred_os::users::Identity;
use serde::{Deserialize, Serialize};

use crate::redis_access::RedisAccess;

/// Longest sealed text, in bytes: a key, and the longest chain, as base64.
pub const MAX_SEALED_BYTES: usize = 48 * 1024;

/// Longest sealed reason of a failure, in bytes. It is in one message with a certificate.
pub const MAX_FAILURE_BYTES: usize = 8 * 1024;

/// How long the lock for an order is held at most. The order has ended before.
pub const LOCK_TIME: Duration = Duration::from_secs(240);

/// How long a proof may take to be on all nodes. The authority looks for it then in any case.
pub const SPREAD_TIME: Duration = Duration::from_secs(10);

/// What is shared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SharedRecord {
    /// The account at the authority.
    Account,
    /// Key and chain of a host.
    Certificate(String),
    /// Why a host has no new certificate, and until when no node orders one.
    Failure(String),
    /// The proofs of the running order.
    Proofs,
}

impl SharedRecord {
    /// Its name. What is sealed is bound to it.
    pub fn name(&self) -> String {
        match self {
            SharedRecord::Account => "account".to_owned(),
            SharedRecord::Certificate(host) => format!("certificate.{host}"),
            SharedRecord::Failure(host) => format!("failure.{host}"),
            SharedRecord::Proofs => "proofs".to_owned(),
        }
    }
}

/// A sealed text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed(pub String);

/// Orders to the process that shares certificates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToShared {
    /// Connect. Descriptor: a file with [`SharedSettings`] as JSON, which holds a secret.
    Begin,
    /// Read what there is of a host, and get the lock for an order unless another node has it.
    /// Reply: [`FromShared::Found`].
    Take {
        /// The number of the order.
        number: u64,
        /// The host.
        host: String,
        /// Whether the lock is wanted.
        locks: bool,
    },
    /// Write a record. It is written as soon as the place can be reached.
    Write {
        /// Which.
        record: SharedRecord,
        /// Its contents; none: it is removed.
        text: Option<Sealed>,
        /// How long it is of use.
        life: Duration,
    },
    /// Have all nodes serve the proofs of the running order. Reply: [`FromShared::Spread`].
    Spread {
        /// The number of the order.
        number: u64,
        /// The proofs.
        text: Sealed,
    },
    /// This node serves the proofs with this id.
    Serving {
        /// The id.
        id: u64,
    },
    /// The order has ended: remove its proofs and the lock.
    Release,
}

/// Reports of the process that shares certificates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromShared {
    /// The account at the authority. Comes before [`FromShared::Found`].
    Account {
        /// The account.
        text: Sealed,
    },
    /// What there is of a host.
    Found {
        /// The number of the order.
        number: u64,
        /// Its certificate.
        certificate: Option<Sealed>,
        /// Why there is no newer one.
        failure: Option<Sealed>,
        /// This node has the lock.
        is_locked: bool,
    },
    /// Another node needs these proofs served; none: no more. Reply: [`ToShared::Serving`].
    Proofs {
        /// Their id.
        id: u64,
        /// The proofs.
        text: Option<Sealed>,
    },
    /// All other nodes serve the proofs of the running order, or have had the time to.
    Spread {
        /// The number of the order.
        number: u64,
        /// How many nodes have not said so.
        missing: usize,
    },
    /// The place cannot be reached. Reported once.
    Lost {
        /// One sentence.
        why: String,
    },
    /// The place is reached, for the first time or again.
    Reached,
}

/// The settings of the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedSettings {
    /// User to become first.
    pub identity: Option<Identity>,
    /// Whether it is sandboxed, like the front.
    pub restricted: bool,
    /// The place.
    pub place: SharedAccess,
    /// The name of the authority, as that of its folder.
    pub authority: String,
}

/// The place of what is shared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SharedAccess {
    /// Redis, and the beginning of all keys.
    Redis(RedisAccess, String),
    /// A folder.
    Folder(PathBuf),
}
