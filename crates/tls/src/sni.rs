//! The choice of the certificate for a client.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::certificate::Certified;

type CertifiedKeys = Vec<Arc<CertifiedKey>>;

/// All certificates, by their names.
#[derive(Debug)]
pub struct Choice {
    first: NamedKeys,
    /// Those that yield to the first.
    yielding: NamedKeys,
    /// For clients without SNI or with an unknown name: those with the names of the first
    /// certificate.
    others: CertifiedKeys,
    /// Hosts that get no certificate of others.
    closed: HashSet<String>,
}

/// Certificates by their names.
#[derive(Debug, Default)]
struct NamedKeys {
    exact: HashMap<String, CertifiedKeys>,
    /// Those for `*.NAME`, by NAME.
    below: HashMap<String, CertifiedKeys>,
}

impl NamedKeys {
    fn add(&mut self, name: &str, key: &Arc<CertifiedKey>) {
        let keys = match name.strip_prefix("*.") {
            Some(parent) => self.below.entry(parent.to_owned()).or_default(),
            None => self.exact.entry(name.to_owned()).or_default(),
        };
        keys.push(Arc::clone(key));
    }

    fn covers(&self, name: &str) -> bool {
        match name.strip_prefix("*.") {
            Some(parent) => self.below.contains_key(parent),
            None => self.of(name).is_some(),
        }
    }

    fn of(&self, host: &str) -> Option<&CertifiedKeys> {
        let below = |host: &str| self.below.get(host.split_once('.')?.1);
        self.exact.get(host).or_else(|| below(host))
    }
}

impl Choice {
    /// The choice among `certificates`. The hosts in `closed` get one only if it names them.
    pub fn among(certificates: &[Certified], closed: &[String]) -> Choice {
        let (mut first, mut yielding) = (NamedKeys::default(), NamedKeys::default());
        for certified in certificates {
            for name in &certified.names {
                match certified.yields.contains(name) {
                    true => yielding.add(name, &certified.key),
                    false => first.add(name, &certified.key),
                }
            }
        }
        let default: &[String] = certificates.first().map_or(&[], |first| &first.names);
        let is_first = |(number, certified): &(usize, &Certified)| {
            *number == 0 || certified.names.iter().any(|name| default.contains(name))
        };
        let others = certificates.iter().enumerate().filter(is_first);
        Choice {
            first,
            yielding,
            others: others.map(|(_, certified)| certified.key.clone()).collect(),
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

    fn named(&self, host: &str) -> Option<&CertifiedKeys> {
        self.first.of(host).or_else(|| self.yielding.of(host))
    }

    /// The certificate for a host, among those with signature schemes of the client. A name with
    /// `*.` matches one label (RFC 6125 §6.4.3).
    fn choose(
        &self,
        host: Option<&str>,
        schemes: &[SignatureScheme],
    ) -> Option<&Arc<CertifiedKey>> {
        let host = host.map(str::to_ascii_lowercase);
        let named = host.as_deref().and_then(|host| self.named(host));
        if named.is_none() && host.as_deref().is_some_and(|host| self.is_closed(host)) {
            return None;
        }
        let understood = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(schemes).is_some();
        let keys = named.unwrap_or(&self.others);
        keys.iter().find(understood)
    }
}

impl ResolvesServerCert for Choice {
    fn resolve(&self, client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let chosen = self.choose(client.server_name(), client.signature_schemes());
        chosen.cloned()
    }
}
