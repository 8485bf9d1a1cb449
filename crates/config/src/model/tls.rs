//! Settings of TLS, checked, and what must hold between them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::mistakes::Fault;
use crate::model::acme::{Acme, check_acme};
use crate::model::config::Config;

/// The port of HTTPS (RFC 9110 §4.2.2).
pub const HTTPS_PORT: u16 = 443;

/// For how long a host has to be HTTPS only to be in the list that browsers are shipped with
/// (hstspreload.org).
const PRELOAD_AGE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

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

/// What does not fit together in `[tls]`, which `section` is, and between it and the top of the
/// file. A setting that is wrong by itself has been told already.
pub(crate) fn check_tls(
    tls: &Tls,
    config: &Config,
    table: &DeTable<'_>,
    section: &Spanned<DeValue<'_>>,
) -> Vec<Fault> {
    let settings = section.get_ref().as_table();
    let value = |name: &str| settings.and_then(|settings| settings.get(name));
    let mut faults = Vec::new();
    let mut fault = |name: &str, sentence: &str| {
        let span = value(name).map_or(section.span(), Spanned::span);
        faults.push(Fault::new(span, sentence.to_owned()));
    };
    if value("certificates").is_none() && value("acme").is_none() {
        let sentence = "[tls] has no `certificates`; add the files of at least one, such as \
                        certificates = [{ cert = \"site.pem\", key = \"site.key\" }], or \
                        `acme` to have them issued";
        fault("certificates", sentence);
    }
    if let Some(sentence) = check_acme(tls, config) {
        fault("acme", sentence);
    }
    let asks = tls.client_certificates != ClientCertificates::Off;
    if asks && value("client_ca").is_none() {
        let sentence = "`client_certificates` needs `client_ca`; add the file with the \
                        certificates of those who issue them";
        fault("client_certificates", sentence);
    }
    if !asks && value("client_ca").is_some() && value("client_certificates").is_none() {
        let sentence = "`client_ca` is for `client_certificates`; add that, or leave this out";
        fault("client_ca", sentence);
    }
    if tls.hsts_include_subdomains && tls.hsts.is_none() {
        let sentence = "`hsts_include_subdomains` is for `hsts`; add that, or leave this out";
        fault("hsts_include_subdomains", sentence);
    }
    let is_for_all = tls.hsts_include_subdomains && tls.hsts.is_some_and(|age| age >= PRELOAD_AGE);
    if tls.hsts_preload && !is_for_all {
        let sentence = "`hsts_preload` needs `hsts` of at least \"365d\" and \
                        `hsts_include_subdomains`; the list of browsers takes no less \
                        (hstspreload.org)";
        fault("hsts_preload", sentence);
    }
    if tls.redirect.is_some() && !table.contains_key("listen") {
        let sentence = "`redirect` is for plain HTTP, and the file has no `listen`; add one \
                        before the first section, such as listen = \":80\"";
        fault("redirect", sentence);
    }
    if tls.redirect.is_some() && tls.port() == 0 {
        let sentence = "`redirect` needs to know where to; give `listen` in [tls] a port \
                        other than 0";
        fault("redirect", sentence);
    }
    let shared = |address: &&SocketAddr| {
        let taken = config.listen.contains(address) || config.admin == Some(**address);
        address.port() != 0 && taken
    };
    if let Some(shared) = tls.listen.iter().find(shared) {
        let sentence = format!(
            "`listen` has {shared}, which plain HTTP is answered at too; choose another port"
        );
        fault("listen", &sentence);
    }
    faults
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
