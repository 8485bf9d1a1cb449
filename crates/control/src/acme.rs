//! What the supervisor and the process that gets a certificate (ACME, RFC 8555) say to each other.
//! That process talks with the Internet; it gets one order, and ends.

use std::fmt;
use std::time::Duration;

use maitred_os::users::Identity;
use serde::{Deserialize, Serialize};

/// Longest chain of certificates that is taken, in bytes. Those of public authorities have 4 to 6 KiB.
pub const MAX_CHAIN_BYTES: usize = 32 * 1024;

/// Longest account that is taken, in bytes.
pub const MAX_ACCOUNT_BYTES: usize = 16 * 1024;

/// How long the process gives itself.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Orders to the process that gets a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToAcme {
    /// Get a certificate. Descriptor: a file with an [`Order`] as JSON, which holds secrets.
    Get,
    /// All proofs that were asked for are where the authority finds them.
    Published,
}

/// Reports from the process that gets a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromAcme {
    /// There is a new account, to be used from now on.
    Account {
        /// What has to be kept of it.
        account: Secret,
    },
    /// The authority is going to look for this; answered by [`ToAcme::Published`].
    Prove(Proof),
    /// Here it is.
    Issued {
        /// The certificate and those between it and its root, as PEM.
        chain: String,
    },
    /// There is none.
    Failed {
        /// One sentence; part of it may be the authority's words.
        why: String,
        /// What kind of failure it is.
        cause: Cause,
        /// How long the authority asks to wait before the next try.
        retry_after: Option<Duration>,
    },
}

/// What kind of failure it is that there is no certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// The authority was not reached, or had a fault of its own; or something lacks here. It has not
    /// counted the try.
    Unreachable,
    /// The authority says no, or did not find the proof.
    Refused,
    /// The authority has been asked too often.
    Limited,
}

/// What shows the authority that a host is ours. Nothing in it is secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Proof {
    /// A file over plain HTTP (`http-01`, RFC 8555 §8.3).
    File {
        /// Its name.
        token: String,
        /// What is in it.
        contents: String,
    },
    /// A certificate in a handshake (`tls-alpn-01`, RFC 8737 §3).
    Certificate {
        /// The host.
        name: String,
        /// The SHA-256 that the certificate has to show.
        digest: [u8; 32],
    },
}

/// All that is needed to get a certificate for one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Whom to become before anything is sent.
    pub identity: Option<Identity>,
    /// Whether it is restricted to what it needs, as the front is.
    pub restricted: bool,
    /// The URL of the authority's directory.
    pub directory: String,
    /// The roots that it is trusted by, as PEM; none: the system's.
    pub roots: Option<String>,
    /// Whom the authority may write to.
    pub email: Option<String>,
    /// What was kept of the account; none: a new one is needed.
    pub account: Option<Secret>,
    /// The name and the key (base64url) of the account that a new one is bound to.
    pub external_account: Option<(String, Secret)>,
    /// How it is to be shown that the host is ours.
    pub by_file: bool,
    /// The host.
    pub name: String,
    /// The request to be signed (PKCS #10, DER).
    pub request: Vec<u8>,
}

/// A text that nobody is to read in a log.
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
    fn an_account_shows_nothing_of_itself() {
        let account = Secret("key".to_owned());
        let said = format!("{:?}", FromAcme::Account { account });
        assert_eq!(said, "Account { account: Secret }");
    }
}
