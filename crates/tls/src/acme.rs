//! What is asked of authorities, and what they are shown in handshakes (`tls-alpn-01`, RFC 8737).

use std::collections::HashMap;
use std::sync::Arc;

use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs as provider;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// How an authority names what it speaks when it looks whether a host is ours (RFC 8737 §6.2).
pub const ACME_TLS: &[u8] = b"acme-tls/1";

/// A request for a certificate, and the key that it is for.
pub struct Asked {
    /// The key, as PEM. Only the request is shown to anybody.
    pub key: String,
    /// The request (PKCS #10, DER).
    pub request: Vec<u8>,
}

/// Makes a key (ECDSA with P-256) for a host, and asks for a certificate.
///
/// # Errors
/// When the system gives no random numbers, or the name cannot be that of a host.
pub fn ask_for(name: &str) -> Result<Asked, String> {
    let made = || -> Result<Asked, rcgen::Error> {
        let key = KeyPair::generate()?;
        let request = params(name)?.serialize_request(&key)?;
        Ok(Asked {
            key: key.serialize_pem(),
            request: request.der().to_vec(),
        })
    };
    made().map_err(|why| format!("a key for {name} cannot be made: {why}"))
}

fn params(name: &str) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    Ok(params)
}

/// The certificate that shows an authority that this host is ours (RFC 8737 §3).
fn proof(name: &str, digest: &[u8; 32]) -> Result<CertifiedKey, String> {
    let made = || -> Result<_, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = params(name)?;
        let shown = CustomExtension::new_acme_identifier(digest);
        params.custom_extensions.push(shown);
        let certificate = params.self_signed(&key)?;
        Ok((certificate.der().clone(), key.serialize_der()))
    };
    let (certificate, key) = made().map_err(|why| why.to_string())?;
    let key = PrivateKeyDer::Pkcs8(key.into());
    let key = provider::sign::any_ecdsa_type(&key).map_err(|why| why.to_string())?;
    Ok(CertifiedKey::new(vec![certificate], key))
}

/// The same handshakes, and those with which authorities look whether these hosts are ours. Each
/// host comes with the SHA-256 that is to be shown.
///
/// # Errors
/// When a certificate for it cannot be made.
pub fn with_proofs(
    config: &Arc<ServerConfig>,
    proofs: &[(String, [u8; 32])],
) -> Result<Arc<ServerConfig>, String> {
    if proofs.is_empty() {
        return Ok(config.clone());
    }
    let mut shown = HashMap::new();
    for (name, digest) in proofs {
        let made = proof(name, digest);
        let made = made.map_err(|why| format!("the proof for {name} cannot be made: {why}"))?;
        shown.insert(name.clone(), Arc::new(made));
    }
    let mut config = ServerConfig::clone(config);
    config.alpn_protocols.push(ACME_TLS.to_vec());
    config.cert_resolver = Arc::new(Proving {
        shown,
        others: config.cert_resolver.clone(),
    });
    Ok(Arc::new(config))
}

/// What authorities are shown, and everybody else.
#[derive(Debug)]
struct Proving {
    shown: HashMap<String, Arc<CertifiedKey>>,
    others: Arc<dyn ResolvesServerCert>,
}

impl ResolvesServerCert for Proving {
    fn resolve(&self, client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let looks = client
            .alpn()
            .is_some_and(|mut names| names.any(|name| name == ACME_TLS));
        if !looks {
            return self.others.resolve(client);
        }
        // Nobody else speaks that: whoever asks for another host is told nothing (RFC 8737 §3).
        self.shown
            .get(&client.server_name()?.to_ascii_lowercase())
            .cloned()
    }
}
