//! Settings of automatic certificates (ACME, RFC 8555).

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::model::redis::Redis;

/// The default authority.
pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// Settings of ACME.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acme {
    /// The contact address of the account.
    pub email: Option<String>,
    /// The URL of the authority's directory.
    pub directory: String,
    /// A PEM file with roots to verify the authority's server; none: the system's.
    pub ca: Option<PathBuf>,
    /// The challenge; none: chosen by the listeners.
    pub challenge: Option<Challenge>,
    /// The directory of account, keys and certificates; none: the user's state directory.
    pub folder: Option<PathBuf>,
    /// The external account that the ACME account is bound to.
    pub external_account: Option<ExternalAccount>,
    /// Where several nodes share account, certificates and challenges.
    pub shared: Option<AcmeShared>,
}

/// Where several nodes share account, certificates and challenges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcmeShared {
    /// The place.
    pub place: SharedPlace,
    /// The file with the key that everything there is encrypted with.
    pub key_file: PathBuf,
}

/// A place that all nodes reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SharedPlace {
    /// Redis.
    Redis {
        /// Where it is, and how to log in.
        redis: Redis,
        /// The beginning of all keys.
        prefix: String,
    },
    /// A folder.
    Folder(PathBuf),
}

/// The proof of control over a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Challenge {
    /// A file over plain HTTP, at port 80 (RFC 8555 §8.3).
    #[serde(rename = "http-01")]
    Http01,
    /// A certificate in a handshake, at port 443 (RFC 8737).
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
}

/// An external account (RFC 8555 §7.3.4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalAccount {
    /// Its identifier.
    pub id: String,
    /// A file with its key in base64url.
    pub key_file: PathBuf,
}

impl std::fmt::Display for Challenge {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Challenge::Http01 => "http-01",
            Challenge::TlsAlpn01 => "tls-alpn-01",
        })
    }
}
