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

/// The version of the protocol of nodes that show each other their figures. Both ends agree on it
/// in the handshake (ALPN, RFC 7301). An end that names none is of version 1, without figures. A
/// later version is named besides this one, since a handshake without a common name fails.
pub const VERSION_2: &[u8] = b"maitred-purges/2";

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
        client.alpn_protocols = vec![VERSION_2.to_vec()];
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| why(&error))?
            .with_client_cert_verifier(verifier);
        let shown = Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified));
        let mut server = server.with_cert_resolver(shown);
        server.send_tls13_tickets = 0;
        server.alpn_protocols = vec![VERSION_2.to_vec()];
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

#[cfg(test)]
mod tests {
    use rustls::{ClientConnection, ServerConnection};

    use super::*;

    /// A key of Ed25519 (RFC 8410 §10.3).
    const KEY: &str = "MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC";

    /// What both ends have agreed on.
    fn shake_hands(of: &PeerIdentity) -> [Option<Vec<u8>>; 2] {
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let mut client = ClientConnection::new(of.client.clone(), name).unwrap();
        let mut server = ServerConnection::new(of.server.clone()).unwrap();
        while client.is_handshaking() || server.is_handshaking() {
            let (mut there, mut back) = (Vec::new(), Vec::new());
            client.write_tls(&mut there).unwrap();
            server.read_tls(&mut there.as_slice()).unwrap();
            server.process_new_packets().unwrap();
            server.write_tls(&mut back).unwrap();
            client.read_tls(&mut back.as_slice()).unwrap();
            client.process_new_packets().unwrap();
        }
        [client.alpn_protocol(), server.alpn_protocol()].map(|agreed| agreed.map(<[u8]>::to_vec))
    }

    #[test]
    fn nodes_of_two_versions_connect_and_only_new_ones_agree_on_figures() {
        let key = KEY.trim_end_matches('=');
        let now = PeerIdentity::of(key).unwrap();
        let agreed = Some(VERSION_2.to_vec());
        assert_eq!(shake_hands(&now), [agreed.clone(), agreed]);
        let mut before = PeerIdentity::of(key).unwrap();
        Arc::get_mut(&mut before.client).unwrap().alpn_protocols.clear();
        Arc::get_mut(&mut before.server).unwrap().alpn_protocols.clear();
        let follower = PeerIdentity { client: before.client.clone(), ..now.clone() };
        let followed = PeerIdentity { server: before.server.clone(), ..now };
        for mixed in [follower, followed, before] {
            assert_eq!(shake_hands(&mixed), [None, None]);
        }
    }
}
