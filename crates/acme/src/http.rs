//! The HTTP client for the authority: over TLS only, with limits on time and size.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Limited};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Hyper;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Timeout of a response, from name resolution to its last byte.
const ANSWER: Duration = Duration::from_secs(30);

/// The longest response, in bytes. A directory, an order or a chain has some kilobytes.
const MAX_ANSWER_BYTES: usize = 256 * 1024;

/// The longest `Retry-After` that is accepted. Rate limits of authorities are weekly at most.
const MAX_WAIT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The `Retry-After` header of the last response that was an error.
#[derive(Debug, Clone, Default)]
pub struct RetryAfter(Arc<Mutex<Option<Duration>>>);

impl RetryAfter {
    /// The delay that the authority requests before the next try.
    pub fn get(&self) -> Option<Duration> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, wait: Option<Duration>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = wait;
    }
}

/// An HTTP client for the authority.
pub struct Client {
    hyper: Hyper<HttpsConnector<HttpConnector>, BodyWrapper<Bytes>>,
    retry_after: RetryAfter,
}

impl Client {
    /// A client that trusts the root certificates in `roots` (PEM), by default those of the system.
    ///
    /// # Errors
    /// When there are no usable roots.
    pub fn new(roots: Option<&str>, retry_after: RetryAfter) -> Result<Client, String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let config = match roots {
            Some(pem) => config.with_root_certificates(read_roots(pem)?),
            None => config
                .with_native_roots()
                .map_err(|error| format!("the system's roots cannot be read: {error}"))?,
        };
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config.with_no_client_auth())
            .https_only()
            .enable_http1()
            .build();
        Ok(Client { hyper: Hyper::builder(TokioExecutor::new()).build(connector), retry_after })
    }
}

fn read_roots(pem: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|_| "the file named by `ca` is damaged")?;
        roots
            .add(certificate)
            .map_err(|error| format!("the file named by `ca` cannot be used: {error}"))?;
    }
    if roots.is_empty() {
        Err("there is no certificate in the file named by `ca`".to_owned())
    } else {
        Ok(roots)
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let sent = self.hyper.request(request);
        let retry_after = self.retry_after.clone();
        Box::pin(async move {
            let answered = tokio::time::timeout(ANSWER, async {
                let (parts, body) = sent.await?.into_parts();
                let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await?;
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>((parts, body.to_bytes()))
            });
            let answered =
                answered.await.map_err(|_| format!("no answer came within {} s", ANSWER.as_secs()));
            let (parts, body) =
                answered.map_err(|late| Error::Other(late.into()))?.map_err(Error::Other)?;
            let failed = parts.status.is_client_error() || parts.status.is_server_error();
            retry_after.set(wait(&parts.headers, SystemTime::now()).filter(|_| failed));
            Ok(BytesResponse { parts, body: Box::new(body) })
        })
    }
}

/// Parses the `Retry-After` header (RFC 9110 §10.2.3).
fn wait(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match value.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(value).ok()?.duration_since(now).ok()?,
    };
    Some(wait.min(MAX_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_may_be_seconds_or_a_date_and_is_bounded() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let asked = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            wait(&headers, now)
        };
        assert_eq!(asked("90"), Some(Duration::from_secs(90)));
        let date = httpdate::fmt_http_date(now + Duration::from_secs(60));
        assert_eq!(asked(&date), Some(Duration::from_secs(60)));
        assert_eq!(asked("999999999999"), Some(MAX_WAIT));
        assert_eq!(asked("soon"), None);
        assert_eq!(wait(&HeaderMap::new(), now), None);
    }
}
