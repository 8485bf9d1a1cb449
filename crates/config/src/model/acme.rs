//! Settings of automatic certificates (ACME, RFC 8555), and what must hold between them and others.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Whom certificates are asked of if nobody else is named.
pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// How certificates are got by ACME.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acme {
    /// Whom the authority may write to.
    pub email: Option<String>,
    /// The URL of the authority's directory.
    pub directory: String,
    /// A PEM file with the roots that the authority itself is trusted by; none: the system's.
    pub ca: Option<PathBuf>,
    /// How it is shown that a host is ours; none: as the ports are.
    pub challenge: Option<Challenge>,
    /// Where account, keys and certificates are kept; none: where the user's state is.
    pub folder: Option<PathBuf>,
    /// What binds the account to one that the authority has given otherwise.
    pub external_account: Option<ExternalAccount>,
}

/// How it is shown that a host is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Challenge {
    /// A file over plain HTTP, at port 80 (RFC 8555 §8.3).
    #[serde(rename = "http-01")]
    Http01,
    /// A certificate in a handshake, at port 443 (RFC 8737).
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
}

/// An account that the authority has given otherwise (RFC 8555 §7.3.4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalAccount {
    /// What it is called.
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
