//! The settings of HTTPS.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::acme::Acme;
use crate::model::with_defaults::with_defaults;

/// The port of HTTPS (RFC 9110 §4.2.2).
pub const HTTPS_PORT: u16 = 443;

const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), HTTPS_PORT);

with_defaults! {
/// The settings of HTTPS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tls {
    /// Addresses for HTTPS, at least one. `[::]` means IPv4 as well.
    pub listen: Vec<SocketAddr> = vec![DEFAULT_LISTEN],
    /// The certificates, at least one if there is no `acme`; the first is for clients without SNI
    /// or with an unknown name.
    pub certificates: Vec<CertificateFiles> = Vec::new(),
    /// Automatic certificates for the hosts that `certificates` does not cover.
    pub acme: Option<Acme> = None,
    /// The oldest accepted version of TLS.
    pub min_version: TlsVersion = TlsVersion::V12,
    /// The status that redirects plain HTTP to HTTPS, if it is redirected.
    pub redirect: Option<u16> = None,
    /// `max-age` of the `Strict-Transport-Security` header (RFC 6797), if it is sent.
    pub hsts: Option<Duration> = None,
    /// `includeSubDomains` of that header.
    pub hsts_include_subdomains: bool = false,
    /// `preload` of that header.
    pub hsts_preload: bool = false,
    /// Whether the server requests client certificates.
    pub client_certificates: ClientCertificates = ClientCertificates::Off,
    /// The CA certificates for them: a PEM file; set unless `client_certificates` is off.
    pub client_ca: Option<PathBuf> = None,
}
}

/// The files of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateFiles {
    /// The certificate and its chain without the root, as PEM.
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

/// Whether the server requests client certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientCertificates {
    /// The server requests none.
    Off,
    /// The server requests one, and accepts clients without.
    Optional,
    /// The server requests one, and the handshake fails without.
    Required,
}

impl Tls {
    /// The port of redirects: 443 if there is a listener, otherwise the first.
    pub fn port(&self) -> u16 {
        let mut ports = self.listen.iter().map(SocketAddr::port);
        let first = ports.next().unwrap_or(HTTPS_PORT);
        if ports.any(|port| port == HTTPS_PORT) { HTTPS_PORT } else { first }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_sent_to_443_or_else_to_the_first_port() {
        let port = |addresses: &[&str]| {
            let listen = addresses.iter().map(|one| one.parse().unwrap()).collect();
            let tls = Tls { listen, ..Tls::default() };
            tls.port()
        };
        assert_eq!(port(&["127.0.0.1:8443"]), 8443);
        assert_eq!(port(&["127.0.0.1:8443", "[::]:443"]), 443);
        assert_eq!(port(&["[::]:443", "127.0.0.1:8443"]), 443);
    }
}
