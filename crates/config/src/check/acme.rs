//! Resolves the host names and the challenge of `acme`, and checks it against other settings.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use crate::model::acme::{Acme, Challenge};
use crate::model::config::Config;
use crate::model::host::Host;
use crate::model::tls::{ClientCertificates, HTTPS_PORT, Tls};

/// The port of `http-01` (RFC 8555 §8.3).
const HTTP_PORT: u16 = 80;

/// Top-level domains without public certificates: reserved (RFC 2606, RFC 6761, RFC 6762, RFC 7686,
/// RFC 8375), or common in private networks.
const PRIVATE_ENDINGS: &[&str] = &[
    "alt",
    "arpa",
    "example",
    "home",
    "internal",
    "invalid",
    "lan",
    "local",
    "localhost",
    "onion",
    "test",
];

impl Acme {
    /// The challenge: as set, or else `http-01` if there is plain HTTP at port 80, or plain HTTP
    /// but no TLS at port 443.
    pub fn challenge(&self, config: &Config) -> Challenge {
        let plain = &config.listen;
        let tls = config.tls.as_ref();
        let is_at_443 = tls.is_some_and(|tls| has_port(&tls.listen, HTTPS_PORT));
        self.challenge.unwrap_or_else(|| {
            if has_port(plain, HTTP_PORT) || !(plain.is_empty() || is_at_443) {
                Challenge::Http01
            } else {
                Challenge::TlsAlpn01
            }
        })
    }

    /// The hosts of all sites that can have a certificate, without duplicates, in the order of the
    /// file.
    pub fn names<'c>(&self, config: &'c Config) -> Vec<&'c str> {
        let mut seen = HashSet::new();
        let names = exact(config).filter(|name| self.not_issued_for(name).is_none());
        names.filter(|name| seen.insert(*name)).collect()
    }

    /// The hosts that can have no certificate, each with the reason as the end of a sentence.
    pub fn left_out<'c>(&self, config: &'c Config) -> Vec<(&'c str, &'static str)> {
        let out = exact(config).filter_map(|name| Some((name, self.not_issued_for(name)?)));
        out.collect()
    }

    fn not_issued_for(&self, name: &str) -> Option<&'static str> {
        if name.starts_with('[') || name.parse::<Ipv4Addr>().is_ok() {
            return Some("is an address and no name");
        }
        let odd =
            |label: &str| label.contains('_') || label.starts_with('-') || label.ends_with('-');
        if name.split('.').any(odd) {
            return Some("is no name that certificates can have (RFC 1123 §2.1)");
        }
        let ending = name.rsplit('.').next().unwrap_or_default();
        let is_private = !name.contains('.') || PRIVATE_ENDINGS.contains(&ending);
        // A private authority issues for any name.
        (is_private && self.ca.is_none()).then_some("is no name of the public Internet")
    }
}

fn has_port(addresses: &[std::net::SocketAddr], port: u16) -> bool {
    addresses.iter().any(|address| address.port() == port)
}

fn exact(config: &Config) -> impl Iterator<Item = &str> {
    let hosts = config.sites.iter().flat_map(|site| &site.hosts);
    hosts.filter_map(|host| match host {
        Host::Exact(name) => Some(name.as_str()),
        Host::Below(_) | Host::Any => None,
    })
}

/// The fault between `acme` and other settings, if there is one.
pub(crate) fn check_acme(tls: &Tls, config: &Config) -> Option<&'static str> {
    let challenge = tls.acme.as_ref()?.challenge;
    if challenge == Some(Challenge::Http01) && config.listen.is_empty() {
        return Some(
            "`acme` with the challenge http-01 needs plain HTTP, and the file has no `listen`; add \
             one before the first section, such as listen = \":80\", or use tls-alpn-01",
        );
    }
    let asks = tls.client_certificates == ClientCertificates::Required;
    if asks && challenge != Some(Challenge::Http01) && config.listen.is_empty()
        || asks && challenge == Some(Challenge::TlsAlpn01)
    {
        return Some(
            "`acme` with the challenge tls-alpn-01 cannot go with client_certificates = \
             \"required\", since the authority's validation has none; use http-01, which needs a \
             `listen` for plain HTTP",
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn config(top: &str, acme: &str, hosts: &str) -> Config {
        let text = format!(
            "{top}\n[tls]\nacme = {{ terms_agreed = true{acme} }}\n[[sites]]\nroot = \"/\"\n\
             hosts = {hosts}\n"
        );
        crate::parse(&text, Path::new("/maitred.toml")).unwrap()
    }

    fn acme(config: &Config) -> &Acme {
        config.tls.as_ref().unwrap().acme.as_ref().unwrap()
    }

    #[test]
    fn the_challenge_is_one_that_the_ports_allow() {
        let chosen = |top: &str| {
            let config = config(top, "", "[\"shop.example.com\"]");
            acme(&config).challenge(&config)
        };
        assert_eq!(chosen(""), Challenge::TlsAlpn01);
        assert_eq!(chosen("listen = \":80\""), Challenge::Http01);
        assert_eq!(chosen("listen = \":8080\""), Challenge::TlsAlpn01);
    }

    #[test]
    fn names_that_no_public_authority_issues_for_are_left_out_with_the_reason() {
        let hosts = "[\"shop.example.com\", \"10.0.0.1\", \"[::1]\", \"intranet\", \"a_b.com\", \
                     \"db.internal\", \"*.example.com\"]";
        let public = config("", "", hosts);
        assert_eq!(acme(&public).names(&public), ["shop.example.com"]);
        let left: Vec<_> = acme(&public).left_out(&public);
        let left: Vec<_> = left.iter().map(|(name, _)| *name).collect();
        assert_eq!(left, ["10.0.0.1", "[::1]", "intranet", "a_b.com", "db.internal"]);
        let own = config("", ", ca = \"/dev/null\"", hosts);
        assert_eq!(acme(&own).names(&own), ["shop.example.com", "intranet", "db.internal"]);
    }
}
