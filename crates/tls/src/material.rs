//! The bytes of certificates and keys, which the supervisor reads and passes to the front.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use maitred_config::TlsVersion;
use serde::{Deserialize, Serialize};

use crate::tickets::Secret;

/// All inputs of handshakes. Its `Debug` shows no private keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Material {
    /// The certificates; the first is for clients without SNI or with an unknown name. Without any,
    /// every handshake fails: the `awaited` ones are not issued yet.
    pub certificates: Vec<Pair>,
    /// Hosts whose certificates have not been issued yet.
    #[serde(default)]
    pub awaited: Vec<String>,
    /// Hosts, or names with `*.`, whose certificate cannot be used: handshakes for them fail.
    #[serde(default)]
    pub closed: Vec<String>,
    /// The oldest accepted version.
    pub min_version: TlsVersion,
    /// `max-age` of the `Strict-Transport-Security` header, if it is sent.
    #[serde(default)]
    pub hsts: Option<Duration>,
    /// `includeSubDomains` of that header.
    #[serde(default)]
    pub hsts_include_subdomains: bool,
    /// `preload` of that header.
    #[serde(default)]
    pub hsts_preload: bool,
    /// The CAs of client certificates, if the server requests them.
    pub clients: Option<Clients>,
    /// The secret of session tickets.
    pub tickets: Secret,
}

impl Material {
    /// The value of the `Strict-Transport-Security` header, if it is sent (RFC 6797 §6.1; `preload`
    /// is from hstspreload.org).
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
    /// The certificate and its intermediate certificates.
    pub cert: PemFile,
    /// Its private key.
    pub key: PemFile,
    /// Names for which any other certificate is used before it.
    #[serde(default)]
    pub yields: Vec<String>,
    /// Who may have written the certificate.
    #[serde(default)]
    pub writer: FileWriter,
}

/// Who may have written a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileWriter {
    /// The server's user, or root.
    Server,
    /// This user.
    User(u32),
    /// Users of a group, of a list, or all; or it is not known.
    #[default]
    Several,
}

impl Pair {
    /// A pair of the server's own, which yields to no other.
    pub fn new(cert: PemFile, key: PemFile) -> Pair {
        Pair { cert, key, yields: Vec::new(), writer: FileWriter::Server }
    }
}

/// The CAs of client certificates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clients {
    /// The CA certificates.
    pub ca: PemFile,
    /// Whether the handshake fails without one.
    pub required: bool,
}

/// A file and its contents.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PemFile {
    /// Its path, for messages.
    pub path: PathBuf,
    /// Its contents.
    pub text: String,
}

impl PemFile {
    /// A file with these contents. Bytes that are not UTF-8 are replaced: PEM is ASCII.
    pub fn new(path: PathBuf, contents: &[u8]) -> PemFile {
        PemFile { path, text: String::from_utf8_lossy(contents).into_owned() }
    }
}

impl fmt::Debug for PemFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("PemFile").field(&self.path).finish()
    }
}
