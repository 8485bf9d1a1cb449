//! ACME: certificate requests, and the validation certificates of `tls-alpn-01` (RFC 8737).

use std::collections::HashMap;
use std::sync::Arc;

use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs as provider;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The ALPN protocol of validation handshakes (RFC 8737 §6.2).
pub const ACME_TLS: &[u8] = b"acme-tls/1";

/// A certificate request and its key.
pub struct KeyAndRequest {
    /// The key, as PEM. Only the request is sent.
    pub key: String,
    /// The request (PKCS #10, DER).
    pub request: Vec<u8>,
}

/// Creates a key (ECDSA with P-256) for a host, and a certificate request.
///
/// # Errors
/// If the system has no random numbers, or the name is no host name.
pub fn ask_for(name: &str) -> Result<KeyAndRequest, String> {
    let made = || -> Result<KeyAndRequest, rcgen::Error> {
        let key = KeyPair::generate()?;
        let request = params(name)?.serialize_request(&key)?;
        Ok(KeyAndRequest { key: key.serialize_pem(), request: request.der().to_vec() })
    };
    made().map_err(|why| format!("a key for {name} cannot be created: {why}"))
}

fn params(name: &str) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    Ok(params)
}

/// The validation certificate for a host (RFC 8737 §3).
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

/// The configuration with validation handshakes for these hosts added. Each host comes with the
/// SHA-256 of its key authorization.
///
/// # Errors
/// If a certificate for it cannot be created.
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
        let made = made.map_err(|why| {
            format!("the validation certificate for {name} cannot be created: {why}")
        })?;
        shown.insert(name.clone(), Arc::new(made));
    }
    let mut config = ServerConfig::clone(config);
    config.alpn_protocols.push(ACME_TLS.to_vec());
    config.cert_resolver = Arc::new(AcmeResolver { shown, others: config.cert_resolver.clone() });
    Ok(Arc::new(config))
}

/// Validation certificates for authorities, and the others for clients.
#[derive(Debug)]
struct AcmeResolver {
    shown: HashMap<String, Arc<CertifiedKey>>,
    others: Arc<dyn ResolvesServerCert>,
}

impl ResolvesServerCert for AcmeResolver {
    fn resolve(&self, client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let looks = client.alpn().is_some_and(|mut names| names.any(|name| name == ACME_TLS));
        if !looks {
            return self.others.resolve(client);
        }
        // Only authorities use this protocol: another host gets no certificate (RFC 8737 §3).
        self.shown.get(&client.server_name()?.to_ascii_lowercase()).cloned()
    }
}
