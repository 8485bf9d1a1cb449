//! What the supervisor reads and hands to the front: the bytes of certificates and keys.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use maitred_config::TlsVersion;
use serde::{Deserialize, Serialize};

use crate::tickets::Secret;

/// Everything that handshakes need. It holds private keys: its `Debug` shows none of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Material {
    /// The certificates; the first is for clients that name no host, or an unknown one. None, and
    /// every handshake is refused: those that are awaited have not been issued yet.
    pub certificates: Vec<Pair>,
    /// Hosts whose certificates have not been issued yet.
    #[serde(default)]
    pub awaited: Vec<String>,
    /// The oldest version that is spoken.
    pub min_version: TlsVersion,
    /// For how long a browser shall not come over plain HTTP, if it is told.
    #[serde(default)]
    pub hsts: Option<Duration>,
    /// That holds for all names below the host's as well.
    #[serde(default)]
    pub hsts_include_subdomains: bool,
    /// Browsers may know it before the first visit.
    #[serde(default)]
    pub hsts_preload: bool,
    /// Who issues clients' certificates, if clients are asked for them.
    pub clients: Option<Clients>,
    /// What session tickets are sealed with.
    pub tickets: Secret,
}

impl Material {
    /// The value of `Strict-Transport-Security`, if it is told (RFC 6797 §6.1; `preload` is of
    /// hstspreload.org).
    pub fn transport_security(&self) -> Option<String> {
        let mut value = format!("max-age={}", self.hsts?.as_secs());
        if self.hsts_include_subdomains {
            value.push_str("; includeSubDomains");
        }
        if self.hsts_preload {
            value.push_str("; preload");
        }
        Some(value)
    }
}

/// A certificate and its private key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The certificate and those between it and its root.
    pub cert: PemFile,
    /// Its private key.
    pub key: PemFile,
}

/// Who issues clients' certificates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clients {
    /// The issuers' certificates.
    pub ca: PemFile,
    /// A client without one is not served.
    pub required: bool,
}

/// A file and what is in it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PemFile {
    /// Its path, for messages.
    pub path: PathBuf,
    /// What is in it.
    pub text: String,
}

impl PemFile {
    /// A file with these contents. What in them is not UTF-8 is commentary: PEM is ASCII.
    pub fn new(path: PathBuf, contents: &[u8]) -> PemFile {
        PemFile {
            path,
            text: String::from_utf8_lossy(contents).into_owned(),
        }
    }
}

impl fmt::Debug for PemFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("PemFile").field(&self.path).finish()
    }
}
