//! How nodes know each other: all have one Ed25519 key, derived from their secret, and both ends of
//! a connection prove by TLS 1.3 that they have it, as a raw public key (RFC 7250). There is no
//! certificate, so no name, no date and no authority.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error,
    PeerIncompatible, ServerConfig, SignatureScheme,
};

/// TLS in both directions.
#[derive(Debug, Clone)]
pub struct PeerIdentity {
    /// For connections to peers.
    pub client: Arc<ClientConfig>,
    /// For connections of peers.
    pub server: Arc<ServerConfig>,
}

impl PeerIdentity {
    /// With the key of all nodes, as PKCS #8 in base64.
    ///
    /// # Errors
    /// One sentence, when it is none.
    pub fn of(key: &str) -> Result<PeerIdentity, String> {
        let why = |error: &dyn fmt::Display| format!("the key of the nodes is unusable: {error}");
        let der = STANDARD_NO_PAD.decode(key).map_err(|error| why(&error))?;
        let key = aws_lc_rs::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(der));
        let key = key.map_err(|error| why(&error))?;
        let public = key.public_key().ok_or_else(|| why(&"it has no public part"))?;
        let public = public.as_ref().to_vec();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let only = CertificateDer::from(public);
        let verifier = Arc::new(SameKey { key: only.clone(), provider: provider.clone() });
        let certified = Arc::new(CertifiedKey::new(vec![only], key));
        let client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| why(&error))?
            .dangerous()
            .with_custom_certificate_verifier(verifier.clone());
        let shown = Arc::new(AlwaysResolvesClientRawPublicKeys::new(certified.clone()));
        let mut client = client.with_client_cert_resolver(shown);
        client.resumption = Resumption::disabled();
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| why(&error))?
            .with_client_cert_verifier(verifier);
        let shown = Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified));
        let mut server = server.with_cert_resolver(shown);
        server.send_tls13_tickets = 0;
        Ok(PeerIdentity { client: Arc::new(client), server: Arc::new(server) })
    }
}

/// What an error of a handshake says of the other end, if it is one of that.
pub fn handshake_error(error: &std::io::Error) -> Option<&'static str> {
    let inner = error.get_ref()?.downcast_ref::<Error>()?;
    match inner {
        Error::InvalidCertificate(_) => Some("it has another secret (`secret_file`)"),
        Error::AlertReceived(_) => Some("it refuses the secret of this node (`secret_file`)"),
        _ => Some("it does not speak the protocol of the purge log"),
    }
}

/// Accepts one key, and verifies that the other end has its private part.
#[derive(Debug)]
struct SameKey {
    key: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl SameKey {
    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        match shown.as_ref() == self.key.as_ref() {
            true => Ok(()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(shown.as_ref());
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &key, signed, algorithms)
    }
}

impl ServerCertVerifier for SameKey {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOfferedOrEnabled.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for SameKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOfferedOrEnabled.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
