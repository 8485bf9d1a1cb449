//! The server's TLS configuration.

use std::sync::Arc;
use std::time::SystemTime;

use maitred_config::TlsVersion;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self as provider, cipher_suite};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion};

use crate::certificate::{Certified, Validity};
use crate::fault::Fault;
use crate::material::{Clients, Material, Pair};
use crate::pem;
use crate::sni::Choice;
use crate::tickets::Tickets;

/// The cipher suites in order of preference: Mozilla's "intermediate" list, without known attacks,
/// the cheapest first.
const CIPHER_SUITES: &[SupportedCipherSuite] = &[
    cipher_suite::TLS13_AES_128_GCM_SHA256,
    cipher_suite::TLS13_AES_256_GCM_SHA384,
    cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
];

/// Checked material, ready for handshakes.
#[derive(Debug)]
pub struct Server {
    /// The configuration of new connections.
    pub config: Arc<ServerConfig>,
    certificates: Vec<(String, Certified)>,
    choice: Arc<Choice>,
}

impl Server {
    /// Checks all of `material`. `protocols` are offered by ALPN (RFC 7301), in order of
    /// preference.
    ///
    /// # Errors
    /// The first fault, with its file and line.
    pub fn new(material: &Material, protocols: &[&[u8]]) -> Result<Server, Fault> {
        let provider = Arc::new(crypto());
        let mut certified = Vec::new();
        for pair in &material.certificates {
            certified.push(Certified::read(pair, &provider)?);
        }
        let versions: &[&SupportedProtocolVersion] = match material.min_version {
            TlsVersion::V12 => &[&TLS12, &TLS13],
            TlsVersion::V13 => &[&TLS13],
        };
        let clients = material.clients.as_ref();
        let verifier = clients.map(|clients| verifier(clients, &provider));
        let choice = Arc::new(Choice::among(&certified, &material.closed));
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(|why| about_all(material, &why))?;
        let mut config = match verifier.transpose()? {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        }
        .with_cert_resolver(choice.clone());
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        config.ignore_client_order = true;
        // Tickets suffice, and cost no memory.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        // A ticket has the client's certificate, which rustls verifies no more when the session is
        // resumed, and copies into the next ticket: with tickets, an expired one is good for ever.
        if material.clients.is_none() {
            let secret = material.tickets.clone();
            config.ticketer = Arc::new(Tickets::new(secret, SystemTime::now()));
        }
        let files = material.certificates.iter();
        let files = files.map(|pair| pair.cert.path.display().to_string());
        Ok(Server {
            config: Arc::new(config),
            certificates: files.zip(certified).collect(),
            choice,
        })
    }

    /// Whether there is a certificate for this host, or for this name with `*.`.
    pub fn covers(&self, name: &str) -> bool {
        self.choice.covers(name)
    }

    /// Whether a certificate for a host is valid at time `now`.
    pub fn covers_at(&self, host: &str, now: SystemTime) -> bool {
        self.choice.covers_at(host, now)
    }

    /// Whether there is one that yields to no other.
    pub fn covers_first(&self, name: &str) -> bool {
        self.choice.covers_first(name)
    }

    /// Certificates that clients reject at time `now`: the file of each expired or not yet valid
    /// certificate, and a sentence.
    pub fn complaints(&self, now: SystemTime) -> Vec<(String, String)> {
        let certificates = self.certificates.iter();
        let complaints = certificates.filter_map(|(file, certified)| {
            let complaint = certified.complaint(now)?;
            let sentence = format!("{file}: the certificate {complaint}");
            Some((file.clone(), sentence))
        });
        complaints.collect()
    }
}

fn crypto() -> CryptoProvider {
    CryptoProvider { cipher_suites: CIPHER_SUITES.to_vec(), ..provider::default_provider() }
}

/// The names of each certificate, and its end. Those that cannot be used are left out.
pub fn expiries(material: &Material) -> Vec<(Vec<String>, SystemTime)> {
    let provider = crypto();
    let read = |pair: &Pair| Certified::read(pair, &provider).ok();
    let all = material.certificates.iter().filter_map(read);
    all.map(|one| (one.names, one.valid.until)).collect()
}

/// The host names of a certificate, if it and its key can be used.
///
/// # Errors
/// A fault of either.
pub fn host_names(pair: &Pair) -> Result<Vec<String>, Fault> {
    Certified::read(pair, &crypto()).map(|certified| certified.names)
}

/// The validity of a host's certificate by an authority. It has no other names: it would be used
/// for those as well, and the authority has to issue what was requested (RFC 8555 section 7.4).
///
/// # Errors
/// A fault of it or its key, or that it is for other hosts.
pub fn examine(pair: &Pair, host: &str) -> Result<Validity, Fault> {
    let certified = Certified::read(pair, &crypto())?;
    let covers = Choice::among(std::slice::from_ref(&certified), &[]).covers(host);
    let other = certified.names.iter().find(|name| !name.eq_ignore_ascii_case(host));
    let sentence = match other {
        _ if !covers => format!("the certificate is not for {host}"),
        Some(other) => format!("the certificate is for {other} as well, which was not requested"),
        None => return Ok(certified.valid),
    };
    Err(Fault::of(&pair.cert.path, sentence))
}

fn about_all(material: &Material, why: &rustls::Error) -> Fault {
    let first = material.certificates.first();
    let file = first.map_or_else(Default::default, |pair| pair.cert.path.clone());
    Fault::of(&file, format!("TLS cannot be set up: {why}"))
}

/// The verifier of client certificates.
fn verifier(
    clients: &Clients,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, Fault> {
    let mut roots = RootCertStore::empty();
    for (root, line) in pem::certificates(&clients.ca)? {
        roots.add(root).map_err(|why| {
            let sentence = format!("the certificate that starts here cannot be a CA: {why}");
            Fault::at(&clients.ca.path, line, sentence)
        })?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let verifier = if clients.required { verifier } else { verifier.allow_unauthenticated() };
    verifier.build().map_err(|why| Fault::of(&clients.ca.path, format!("it cannot be used: {why}")))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::path::Path;

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ClientConfig, ClientConnection, HandshakeKind, ServerConnection};

    use super::*;
    use crate::material::PemFile;
    use crate::tickets::Secret;

    type Authority = CertifiedIssuer<'static, KeyPair>;

    fn authority() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    /// The PEM of a certificate for a host, and of its key.
    fn issue(authority: &Authority, host: &str) -> [String; 2] {
        issue_for(authority, &[host])
    }

    fn issue_for(authority: &Authority, hosts: &[&str]) -> [String; 2] {
        let key = KeyPair::generate().unwrap();
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let params = CertificateParams::new(hosts).unwrap();
        let certificate = params.signed_by(&key, authority).unwrap();
        [certificate.pem(), key.serialize_pem()]
    }

    fn file(name: &str, text: &str) -> PemFile {
        PemFile::new(Path::new(name).to_owned(), text.as_bytes())
    }

    fn server(authority: &Authority, clients: Option<bool>) -> Server {
        let [cert, key] = issue(authority, "localhost");
        let ca = || file("ca.pem", &authority.pem());
        let material = Material {
            certificates: vec![Pair::new(file("cert", &cert), file("key", &key))],
            awaited: Vec::new(),
            closed: Vec::new(),
            min_version: TlsVersion::V12,
            hsts: None,
            hsts_include_subdomains: false,
            hsts_preload: false,
            clients: clients.map(|required| Clients { ca: ca(), required }),
            tickets: Secret::new(SystemTime::now()).unwrap(),
        };
        Server::new(&material, &[]).unwrap()
    }

    /// A client that keeps its sessions and shows a certificate if the server requests one.
    fn client(authority: &Authority, version: &'static SupportedProtocolVersion) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone()).unwrap();
        let [cert, key] = issue(authority, "ann");
        let cert = CertificateDer::from_pem_slice(cert.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        ClientConfig::builder_with_provider(Arc::new(crypto()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![cert], key)
            .unwrap()
    }

    #[test]
    fn a_certificate_by_an_authority_has_the_name_of_its_host_and_no_other() {
        let authority = authority();
        let examined = |hosts: &[&str]| {
            let [cert, key] = issue_for(&authority, hosts);
            let pair = Pair::new(file("cert", &cert), file("key", &key));
            examine(&pair, "a.com").map_err(|fault| fault.sentence)
        };
        assert!(examined(&["a.com"]).is_ok() && examined(&["A.com"]).is_ok());
        let why = examined(&["a.com", "b.com"]).unwrap_err();
        assert!(why.contains("for b.com as well"), "{why}");
        assert!(examined(&["b.com"]).unwrap_err().contains("not for a.com"));
        assert!(examined(&["a.com", "*.com"]).is_err());
    }

    #[test]
    fn text_that_is_no_host_name_is_no_name_of_a_certificate() {
        let authority = authority();
        let hosts = ["a.com", "x\n2026-12-01 ERROR forged", "\u{1b}[2J.com", "*.B.com", "*", ""];
        let [cert, key] = issue_for(&authority, &hosts);
        let pair = Pair::new(file("cert", &cert), file("key", &key));
        assert_eq!(host_names(&pair).unwrap(), ["a.com", "*.b.com"]);
    }

    /// The kind of the handshake, and whether the server knows a certificate of the client.
    fn handshake(server: &Server, client: &Arc<ClientConfig>) -> (HandshakeKind, bool) {
        let name = "localhost".try_into().unwrap();
        let mut client = ClientConnection::new(client.clone(), name).unwrap();
        let mut server = ServerConnection::new(server.config.clone()).unwrap();
        server.writer().write_all(b"x").unwrap();
        let mut bytes = Vec::new();
        while client.reader().read(&mut [0]).is_err() {
            client.write_tls(&mut bytes).unwrap();
            server.read_tls(&mut &bytes[..]).unwrap();
            server.process_new_packets().unwrap();
            bytes.clear();
            server.write_tls(&mut bytes).unwrap();
            client.read_tls(&mut &bytes[..]).unwrap();
            client.process_new_packets().unwrap();
            bytes.clear();
        }
        (server.handshake_kind().unwrap(), server.peer_certificates().is_some())
    }

    #[test]
    fn a_session_is_resumed_only_where_no_certificate_of_the_client_would_be_with_it() {
        let authority = authority();
        for version in [&TLS12, &TLS13] {
            for (clients, again) in [
                (None, (HandshakeKind::Resumed, false)),
                (Some(true), (HandshakeKind::Full, true)),
                (Some(false), (HandshakeKind::Full, true)),
            ] {
                let server = server(&authority, clients);
                let client = Arc::new(client(&authority, version));
                let first = handshake(&server, &client);
                assert_eq!(first, (HandshakeKind::Full, clients.is_some()));
                for _ in 0..2 {
                    assert_eq!(handshake(&server, &client), again, "{version:?} {clients:?}");
                }
            }
        }
    }
}
