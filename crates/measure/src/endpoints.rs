//! Resolves a URL to a server: addresses, whether it is on this machine, and its TLS settings.

use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::plan::{Address, Endpoint, TlsSettings};
use crate::url::Url;

/// Timeout of the first connection.
const FIRST_CONNECT: Duration = Duration::from_secs(10);

/// Files in which systems store trusted certificates.
const SYSTEM_ROOTS: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Which certificates are trusted.
#[derive(Debug, Clone, Default)]
pub struct TlsTrust {
    /// All of them.
    pub insecure: bool,
    /// Those signed by a certificate of this file, instead of the system's.
    pub ca: Option<std::path::PathBuf>,
}

/// Why a URL cannot be resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndpointError {
    /// The server is on another machine, and the user has not confirmed owning it. It was not
    /// contacted.
    Remote(String),
    /// Another reason, as a message.
    Failed(String),
}

impl From<String> for EndpointError {
    fn from(why: String) -> EndpointError {
        EndpointError::Failed(why)
    }
}

/// The endpoint of a URL's server, which has to accept a connection now. A server on another
/// machine has to be the user's own.
///
/// # Errors
/// The name is unknown, the port is closed, or the server is remote and its ownership not
/// confirmed.
pub fn find(
    url: &Url,
    unix: Option<&Path>,
    trust: &TlsTrust,
    protocols: &[&[u8]],
    owned: bool,
) -> Result<Endpoint, EndpointError> {
    let address = match unix {
        Some(path) => {
            UnixStream::connect(path).map_err(|why| not_listening(&path.display(), &why))?;
            Address::Unix(path.to_owned())
        }
        None => Address::Tcp(first_that_listens(url, owned)?),
    };
    let tls = url.tls.then(|| tls(&url.host, trust, protocols)).transpose()?;
    Ok(Endpoint { address, tls })
}

/// The endpoint of a URL's server at a given address; the host name is not resolved.
///
/// # Errors
/// A message, when TLS cannot be set up.
pub fn at(
    address: SocketAddr,
    url: &Url,
    trust: &TlsTrust,
    protocols: &[&[u8]],
) -> Result<Endpoint, String> {
    let tls = url.tls.then(|| tls(&url.host, trust, protocols)).transpose()?;
    let address = Address::Tcp(address);
    Ok(Endpoint { address, tls })
}

fn not_listening(url: &dyn std::fmt::Display, why: &std::io::Error) -> String {
    format!("no connection to {url}: {why}; is the server running?")
}

fn first_that_listens(url: &Url, owned: bool) -> Result<SocketAddr, EndpointError> {
    let (host, port) = (url.host.as_str(), url.port);
    let resolved = (host, port).to_socket_addrs();
    let addresses: Vec<SocketAddr> =
        resolved.map_err(|why| format!("the name '{host}' cannot be resolved: {why}"))?.collect();
    let elsewhere = addresses.iter().find(|address| !is_ours(address.ip()));
    if let Some(address) = elsewhere.filter(|_| !owned) {
        return Err(EndpointError::Remote(address.to_string()));
    }
    let mut last = None;
    for address in &addresses {
        match TcpStream::connect_timeout(address, FIRST_CONNECT) {
            Ok(_) => return Ok(*address),
            Err(why) => last = Some((address, why)),
        }
    }
    Err(EndpointError::Failed(match last {
        Some((address, why)) => not_listening(address, &why),
        None => format!("the name '{host}' has no address"),
    }))
}

/// Whether a server listens on this machine.
pub fn is_here(address: &Address) -> bool {
    match address {
        Address::Tcp(address) => is_ours(address.ip()),
        Address::Unix(_) => true,
    }
}

/// An address is local if a socket can bind to it.
fn is_ours(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}

fn tls(host: &str, trust: &TlsTrust, protocols: &[&[u8]]) -> Result<TlsSettings, String> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| format!("'{host}' is no name that a certificate can have"))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|why| format!("TLS cannot be used: {why}"))?;
    let mut config = if trust.insecure {
        let verifier = Arc::new(TrustAnybody::new(&provider));
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        builder.with_no_client_auth()
    } else {
        let roots = roots(trust.ca.as_deref())?;
        builder.with_root_certificates(roots).with_no_client_auth()
    };
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(TlsSettings { config: Arc::new(config), name })
}

fn roots(ca: Option<&Path>) -> Result<RootCertStore, String> {
    let system = || SYSTEM_ROOTS.iter().map(Path::new).find(|file| file.is_file());
    let file = ca.or_else(system).ok_or(
        "this system has no file of trusted certificates; name one with --ca, or trust anybody \
         with --insecure",
    )?;
    let shown = file.display();
    let wrong = |why: &dyn std::fmt::Display| {
        format!("{shown} cannot be used as a list of trusted certificates: {why}")
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|why| wrong(&why))? {
        let certificate = certificate.map_err(|why| wrong(&why))?;
        let added = roots.add(certificate);
        // A system's list may contain a certificate that rustls rejects; the user's own list may
        // not.
        if ca.is_some() {
            added.map_err(|why| wrong(&why))?;
        }
    }
    if roots.is_empty() {
        return Err(wrong(&"it holds none"));
    }
    Ok(roots)
}

/// Accepts every certificate. Signatures are verified all the same, since they are part of the
/// load.
#[derive(Debug)]
struct TrustAnybody(WebPkiSupportedAlgorithms);

impl TrustAnybody {
    fn new(provider: &CryptoProvider) -> TrustAnybody {
        TrustAnybody(provider.signature_verification_algorithms)
    }
}

impl ServerCertVerifier for TrustAnybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machines_addresses_are_local() {
        for (address, local) in [
            ("127.0.0.1:80", true),
            ("127.9.9.9:80", true),
            ("[::1]:80", true),
            ("192.0.2.1:80", false),
            ("[2001:db8::1]:80", false),
        ] {
            let address: SocketAddr = address.parse().expect("an address");
            assert_eq!(is_ours(address.ip()), local, "{address}");
        }
    }
}
