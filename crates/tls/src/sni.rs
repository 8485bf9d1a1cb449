//! The choice of the certificate for a client.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::SignatureScheme;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::certificate::{Certified, Validity};

/// A certificate with its key, and its validity.
#[derive(Debug, Clone)]
struct TimedKey {
    key: Arc<CertifiedKey>,
    valid: Validity,
}

type TimedKeys = Vec<TimedKey>;

/// All certificates, by their names.
#[derive(Debug)]
pub struct Choice {
    first: NamedKeys,
    /// Those that yield to the first.
    yielding: NamedKeys,
    /// For clients without SNI or with an unknown name: those with the names of the first
    /// certificate.
    others: TimedKeys,
    /// Hosts that get no certificate of others.
    closed: HashSet<String>,
}

/// Certificates by their names.
#[derive(Debug, Default)]
struct NamedKeys {
    exact: HashMap<String, TimedKeys>,
    /// Those for `*.NAME`, by NAME.
    below: HashMap<String, TimedKeys>,
}

impl NamedKeys {
    fn add(&mut self, name: &str, key: TimedKey) {
        let keys = match name.strip_prefix("*.") {
            Some(parent) => self.below.entry(parent.to_owned()).or_default(),
            None => self.exact.entry(name.to_owned()).or_default(),
        };
        keys.push(key);
    }

    fn covers(&self, name: &str) -> bool {
        match name.strip_prefix("*.") {
            Some(parent) => self.below.contains_key(parent),
            None => self.of(name).next().is_some(),
        }
    }

    /// Those with the name of a host, before those with its domain.
    fn of(&self, host: &str) -> impl Iterator<Item = &TimedKey> {
        let below = host.split_once('.').and_then(|(_, parent)| self.below.get(parent));
        [self.exact.get(host), below].into_iter().flatten().flatten()
    }
}

impl Choice {
    /// The choice among `certificates`. The hosts in `closed` get one only if it names them.
    pub fn among(certificates: &[Certified], closed: &[String]) -> Choice {
        let (mut first, mut yielding) = (NamedKeys::default(), NamedKeys::default());
        let timed = |one: &Certified| TimedKey { key: one.key.clone(), valid: one.valid };
        for certified in certificates {
            // A tenant's certificate has as many names as it likes.
            let yields: HashSet<&String> = certified.yields.iter().collect();
            for name in &certified.names {
                match yields.contains(name) {
                    true => yielding.add(name, timed(certified)),
                    false => first.add(name, timed(certified)),
                }
            }
        }
        let default: HashSet<&String> =
            certificates.iter().take(1).flat_map(|first| &first.names).collect();
        let is_first = |(number, certified): &(usize, &Certified)| {
            *number == 0 || certified.names.iter().any(|name| default.contains(name))
        };
        let others = certificates.iter().enumerate().filter(is_first);
        Choice {
            first,
            yielding,
            others: others.map(|(_, certified)| timed(certified)).collect(),
            closed: closed.iter().cloned().collect(),
        }
    }

    /// Whether there is a certificate for a host, or for a name with `*.`.
    pub fn covers(&self, name: &str) -> bool {
        self.first.covers(name) || self.yielding.covers(name)
    }

    /// Whether there is one that yields to no other.
    pub fn covers_first(&self, name: &str) -> bool {
        self.first.covers(name)
    }

    fn is_closed(&self, host: &str) -> bool {
        let below = |host: &str| Some(format!("*.{}", host.split_once('.')?.1));
        self.closed.contains(host)
            || !self.closed.is_empty()
                && below(host).is_some_and(|name| self.closed.contains(&name))
    }

    /// Whether a certificate for a host is valid at time `now`.
    pub fn covers_at(&self, host: &str, now: SystemTime) -> bool {
        self.named(host).any(|one| one.valid.includes(now))
    }

    /// Those with the name of a host, in the order in which they are used.
    fn named(&self, host: &str) -> impl Iterator<Item = &TimedKey> {
        self.first.of(host).chain(self.yielding.of(host))
    }

    /// The certificate for a host, among those with signature schemes of the client: the first that
    /// is valid, or else the first. A name with `*.` matches one label (RFC 6125 §6.4.3).
    fn choose(
        &self,
        host: Option<&str>,
        schemes: &[SignatureScheme],
        now: SystemTime,
    ) -> Option<&Arc<CertifiedKey>> {
        let host = host.map(str::to_ascii_lowercase);
        let mut keys: Vec<_> = host.iter().flat_map(|host| self.named(host)).collect();
        if keys.is_empty() {
            if host.as_deref().is_some_and(|host| self.is_closed(host)) {
                return None;
            }
            keys.extend(&self.others);
        }
        keys.retain(|one| one.key.key.choose_scheme(schemes).is_some());
        let valid = keys.iter().find(|one| one.valid.includes(now));
        valid.or(keys.first()).map(|one| &one.key)
    }
}

impl ResolvesServerCert for Choice {
    fn resolve(&self, client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let now = SystemTime::now();
        let chosen = self.choose(client.server_name(), client.signature_schemes(), now);
        chosen.cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519};

    use super::*;
    use crate::material::{Pair, PemFile};

    const ECDSA: SignatureScheme = SignatureScheme::ECDSA_NISTP256_SHA256;
    const ED25519: SignatureScheme = SignatureScheme::ED25519;

    /// A certificate for `a.example` until `until`, with this kind of key.
    fn certified(kind: SignatureScheme, until: SystemTime) -> Certified {
        certified_for("a.example", kind, until)
    }

    fn certified_for(name: &str, kind: SignatureScheme, until: SystemTime) -> Certified {
        let key = match kind {
            ED25519 => KeyPair::generate_for(&PKCS_ED25519),
            _ => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
        };
        let key = key.unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = SystemTime::UNIX_EPOCH.into();
        params.not_after = until.into();
        let file = |text: &str| PemFile::new(Path::new("pem").to_owned(), text.as_bytes());
        let cert = params.self_signed(&key).unwrap().pem();
        let pair = Pair::new(file(&cert), file(&key.serialize_pem()));
        Certified::read(&pair, &rustls::crypto::aws_lc_rs::default_provider()).unwrap()
    }

    fn yielding(certified: Certified) -> Certified {
        Certified { yields: certified.names.clone(), ..certified }
    }

    /// Which of `certificates` clients with these schemes are shown.
    fn shown(certificates: &[Certified], schemes: &[SignatureScheme]) -> Option<usize> {
        let choice = Choice::among(certificates, &[]);
        let chosen = choice.choose(Some("A.example"), schemes, SystemTime::now())?;
        certificates.iter().position(|one| Arc::ptr_eq(&one.key, chosen))
    }

    fn valid() -> SystemTime {
        SystemTime::now() + Duration::from_secs(86400)
    }

    fn expired() -> SystemTime {
        SystemTime::now() - Duration::from_secs(86400)
    }

    #[test]
    fn an_expired_certificate_goes_after_a_valid_one_that_yields() {
        let all = |second| [yielding(certified(ECDSA, second)), certified(ECDSA, expired())];
        assert_eq!(shown(&all(valid()), &[ECDSA]), Some(0));
        assert_eq!(shown(&all(expired()), &[ECDSA]), Some(1));
        let both = [yielding(certified(ECDSA, valid())), certified(ECDSA, valid())];
        assert_eq!(shown(&both, &[ECDSA]), Some(1));
    }

    #[test]
    fn a_certificate_of_the_domain_goes_before_an_expired_one_and_one_that_yields() {
        let wildcard = |kind| certified_for("*.example", kind, valid());
        let expired = || certified(ECDSA, expired());
        assert_eq!(shown(&[expired(), wildcard(ECDSA)], &[ECDSA]), Some(1));
        let forged = || yielding(certified(ECDSA, valid()));
        assert_eq!(shown(&[forged(), expired(), wildcard(ECDSA)], &[ECDSA]), Some(2));
        let forged = yielding(certified(ED25519, valid()));
        let all = [forged, certified(ECDSA, valid()), wildcard(ED25519)];
        assert_eq!(shown(&all, &[ED25519]), Some(2));
        assert_eq!(shown(&all, &[ED25519, ECDSA]), Some(1));
    }

    #[test]
    fn a_client_that_can_use_no_other_gets_the_certificate_that_yields() {
        let all = [yielding(certified(ED25519, valid())), certified(ECDSA, valid())];
        assert_eq!(shown(&all, &[ED25519]), Some(0));
        assert_eq!(shown(&all, &[ED25519, ECDSA]), Some(1));
    }
}
