//! Settings of TLS, checked, and what must hold between them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::acme::Acme;

/// The port of HTTPS (RFC 9110 §4.2.2).
pub const HTTPS_PORT: u16 = 443;

const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), HTTPS_PORT);

/// How clients are served over TLS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tls {
    /// Addresses for HTTPS, at least one. `[::]` means IPv4 as well.
    pub listen: Vec<SocketAddr>,
    /// The certificates, at least one if there is no `acme`; the first is for clients that name no
    /// host, or an unknown one.
    pub certificates: Vec<CertificateFiles>,
    /// How hosts without one get theirs, if they do.
    #[serde(default)]
    pub acme: Option<Acme>,
    /// The oldest version of TLS that is spoken.
    pub min_version: TlsVersion,
    /// The status with which a request over plain HTTP is sent to HTTPS, if it is.
    pub redirect: Option<u16>,
    /// For how long a browser shall not come over plain HTTP (RFC 6797), if it is told.
    pub hsts: Option<Duration>,
    /// That holds for all names below the host's as well.
    #[serde(default)]
    pub hsts_include_subdomains: bool,
    /// Browsers may know it before the first visit.
    #[serde(default)]
    pub hsts_preload: bool,
    /// Whether clients show certificates.
    pub client_certificates: ClientCertificates,
    /// Who issues them: a PEM file; set unless clients show none.
    pub client_ca: Option<PathBuf>,
}

/// The files of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateFiles {
    /// The certificate and those between it and its root, as PEM.
    pub cert: PathBuf,
    /// Its private key, as PEM.
    pub key: PathBuf,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    #[serde(rename = "1.2")]
    V12,
    /// TLS 1.3 (RFC 8446).
    #[serde(rename = "1.3")]
    V13,
}

/// Whether clients show certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientCertificates {
    /// They are not asked.
    Off,
    /// They are asked, and may show none.
    Optional,
    /// Who shows none is not served.
    Required,
}

impl Default for Tls {
    /// All defaults, and not yet a certificate: what the directives are read into.
    fn default() -> Tls {
        Tls {
            listen: vec![DEFAULT_LISTEN],
            certificates: Vec::new(),
            acme: None,
            min_version: TlsVersion::V12,
            redirect: None,
            hsts: None,
            hsts_include_subdomains: false,
            hsts_preload: false,
            client_certificates: ClientCertificates::Off,
            client_ca: None,
        }
    }
}

impl Tls {
    /// The port that clients are sent to: 443 if it is listened on, otherwise the first.
    pub fn port(&self) -> u16 {
        let mut ports = self.listen.iter().map(SocketAddr::port);
        let first = ports.next().unwrap_or(HTTPS_PORT);
        match first == HTTPS_PORT || ports.any(|port| port == HTTPS_PORT) {
            true => HTTPS_PORT,
            false => first,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_sent_to_443_or_else_to_the_first_port() {
        let port = |addresses: &[&str]| {
            let listen = addresses.iter().map(|one| one.parse().unwrap()).collect();
            let tls = Tls {
                listen,
                ..Tls::default()
            };
            tls.port()
        };
        assert_eq!(port(&["127.0.0.1:8443"]), 8443);
        assert_eq!(port(&["127.0.0.1:8443", "[::]:443"]), 443);
        assert_eq!(port(&["[::]:443", "127.0.0.1:8443"]), 443);
    }
}
