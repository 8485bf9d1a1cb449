//! Which client certificates the handshake of a connection accepts. A reload changes that for new
//! connections only: those from before it end.

use std::hash::{DefaultHasher, Hash, Hasher};

use maitred_tls::Clients;

/// The settings of client certificates at a handshake.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientVerification {
    /// A hash of the CA certificates; none: no certificate is requested.
    authorities: Option<u64>,
    /// The handshake fails without one.
    is_required: bool,
}

impl ClientVerification {
    /// Those of this material.
    pub fn of(clients: Option<&Clients>) -> ClientVerification {
        let hash = |clients: &Clients| {
            let mut hasher = DefaultHasher::new();
            clients.ca.text.hash(&mut hasher);
            hasher.finish()
        };
        ClientVerification {
            authorities: clients.map(hash),
            is_required: clients.is_some_and(|clients| clients.required),
        }
    }

    /// Whether certificates are requested.
    pub fn is_on(self) -> bool {
        self.authorities.is_some()
    }

    /// Whether a connection from before these settings is refused: it might fail the handshake now,
    /// or its certificate the verification.
    pub fn refuses(self, before: ClientVerification, shows_certificate: bool) -> bool {
        self != before && (self.is_required || shows_certificate)
    }
}

#[cfg(test)]
mod tests {
    use maitred_tls::PemFile;

    use super::*;

    fn settings(ca: &str, required: bool) -> ClientVerification {
        let ca = PemFile { path: "ca.pem".into(), text: ca.to_owned() };
        ClientVerification::of(Some(&Clients { ca, required }))
    }

    #[test]
    fn a_connection_is_refused_that_might_fail_the_handshake_now() {
        let off = ClientVerification::of(None);
        let (optional, required) = (settings("a", false), settings("a", true));
        assert!(!off.is_on() && optional.is_on());
        assert!(required.refuses(off, false) && required.refuses(optional, true));
        assert!(settings("b", true).refuses(required, true));
        assert!(settings("b", false).refuses(optional, true));
        assert!(off.refuses(required, true));
        // Without a certificate, nothing depends on it.
        assert!(!optional.refuses(off, false) && !settings("b", false).refuses(optional, false));
        assert!(!required.refuses(settings("a", true), true));
    }
}
