//! Messages between the supervisor and the process that gets a certificate (ACME, RFC 8555). That
//! process talks with the Internet; it gets one order, and exits.

use std::fmt;
use std::time::Duration;

use maitred_os::users::Identity;
use serde::{Deserialize, Serialize};

/// Maximum size of an accepted certificate chain, in bytes. Public authorities send 4 to 6 KiB.
pub const MAX_CHAIN_BYTES: usize = 32 * 1024;

/// Longest accepted account, in bytes.
pub const MAX_ACCOUNT_BYTES: usize = 16 * 1024;

/// Timeout of the whole process, which it sets itself.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Orders to the process that gets a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToAcme {
    /// Get a certificate. Descriptor: a file with an [`Order`] as JSON, which holds secrets.
    Get,
    /// All requested proofs are served to the authority.
    Published,
}

/// Reports from the process that gets a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromAcme {
    /// There is a new account, to be used from now on.
    Account {
        /// The account, to be stored.
        account: Secret,
    },
    /// The authority is about to request this proof. Reply: [`ToAcme::Published`].
    Prove(Proof),
    /// The certificate was issued.
    Issued {
        /// The certificate and the intermediates up to its root, as PEM.
        chain: String,
    },
    /// There is no certificate.
    Failed {
        /// One sentence; part of it may be the authority's.
        why: String,
        /// The kind of failure.
        cause: Cause,
        /// How long the authority asks to wait before the next try.
        retry_after: Option<Duration>,
    },
}

/// Why there is no certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// The authority could not be reached or had an internal error, or something is missing on this
    /// machine. The authority has not counted the attempt.
    Unreachable,
    /// The authority refused, or the proof was not there.
    Refused,
    /// The rate limit of the authority was reached.
    Limited,
}

/// Proves to the authority that a host is ours. Nothing in it is secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Proof {
    /// A file over plain HTTP (`http-01`, RFC 8555 §8.3).
    File {
        /// The host. Programs before this field sent none: such a file is served for no host.
        #[serde(default)]
        name: String,
        /// Its name.
        token: String,
        /// Its contents.
        contents: String,
    },
    /// A certificate in a handshake (`tls-alpn-01`, RFC 8737 §3).
    Certificate {
        /// The host.
        name: String,
        /// The SHA-256 in the certificate.
        digest: [u8; 32],
    },
}

/// Everything needed to get a certificate for one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// User to become before anything is sent.
    pub identity: Option<Identity>,
    /// Whether it is sandboxed, like the front.
    pub restricted: bool,
    /// The URL of the authority's directory.
    pub directory: String,
    /// The root certificates to verify the authority's server with, as PEM; none: the system's.
    pub roots: Option<String>,
    /// Contact address for the authority.
    pub email: Option<String>,
    /// The stored account; none: a new one is needed.
    pub account: Option<Secret>,
    /// Id and key (base64url) of the external account to bind a new account to.
    pub external_account: Option<(String, Secret)>,
    /// Whether the proof is a file; otherwise it is a certificate.
    pub by_file: bool,
    /// The host.
    pub name: String,
    /// The certificate request to be signed (PKCS #10, DER).
    pub request: Vec<u8>,
}

/// A text that must not be logged.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_a_former_program_has_no_host() {
        let file = r#"{"File":{"token":"t","contents":"t.key"}}"#;
        let Proof::File { name, .. } = serde_json::from_str(file).unwrap() else {
            panic!("it is a file");
        };
        assert_eq!(name, "");
    }

    #[test]
    fn an_account_shows_nothing_of_itself() {
        let account = Secret("key".to_owned());
        let said = format!("{:?}", FromAcme::Account { account });
        assert_eq!(said, "Account { account: Secret }");
    }
}
