//! TLS to a collector.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Most root certificates of `ca_file`.
const MAX_ROOTS: usize = 1024;

/// Continues a connection to `host` with TLS, and verifies the certificate with the roots in this
/// file, or with those of the system. They are read each time, so that a new file needs no reload.
///
/// # Errors
/// The reason, as the end of a sentence that starts with the collector's name.
pub async fn secured(
    stream: TcpStream,
    host: &str,
    ca_file: Option<&Path>,
) -> Result<TlsStream<TcpStream>, String> {
    let config = config(roots(ca_file)?)?;
    let name = ServerName::try_from(host.to_owned());
    let name = name.map_err(|error| format!("has a name that TLS cannot verify: {error}"))?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    stream.map_err(|error| format!("cannot be reached over TLS: {error}"))
}

fn roots(ca_file: Option<&Path>) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    let Some(path) = ca_file else {
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return match store.is_empty() {
            true => Err("cannot be verified: there is no root certificate; set ca_file".to_owned()),
            false => Ok(store),
        };
    };
    let unusable = |error: &dyn std::fmt::Display| {
        format!("cannot be verified: ca_file {}: {error}", path.display())
    };
    let certificates =
        CertificateDer::pem_file_iter(path).map_err(|error| unusable(&error))?.take(MAX_ROOTS);
    for certificate in certificates {
        let certificate = certificate.map_err(|error| unusable(&error))?;
        store.add(certificate).map_err(|error| unusable(&error))?;
    }
    if store.is_empty() {
        return Err(unusable(&"it holds no certificate"));
    }
    Ok(store)
}

fn config(roots: RootCertStore) -> Result<ClientConfig, String> {
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("cannot be reached over TLS: {error}"))?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
