//! The certificate authority of development servers: one of a user's own, for names and addresses
//! that no public authority issues certificates for.
//!
//! Name constraints (RFC 5280 §4.2.1.10) limit it: with its key, a thief cannot imitate a site of
//! the web.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, SystemTime};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints, SanType,
};
use rustls::crypto::aws_lc_rs as provider;
use time::OffsetDateTime;

use crate::certificate::Certified;
use crate::fault::Fault;
use crate::material::{Pair, PemFile};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How long the authority is valid.
const AUTHORITY_AGE: Duration = DAY.saturating_mul(3650);

/// How long a certificate of it is valid.
pub const CERTIFICATE_AGE: Duration = DAY.saturating_mul(90);

/// How far the start of a validity is in the past: clocks of other machines differ.
const CLOCK_DIFFERENCE: Duration = Duration::from_secs(60 * 60);

/// Bytes of its key's identifier that are in its name.
const ID_BYTES: usize = 4;

/// Domains that never are of the public web, with all below them (RFC 6761 §6.2, §6.3).
const DOMAINS: [&str; 2] = ["localhost", "test"];

/// Networks that never are of the public web: loopback, private (RFC 1918, RFC 4193) and link-local
/// (RFC 3927, RFC 4291 §2.5.6) addresses.
const NETWORKS: [IpNet; 8] = [
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 8)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(172, 16, 0, 0), 12)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(192, 168, 0, 0), 16)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16)),
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128)),
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7)),
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10)),
];

/// What the names of all authorities begin with; the rest is the identifier of the key.
pub const AUTHORITY_NAME: &str = "maitred development authority";

/// A certificate and its private key, both as PEM.
pub struct KeyAndCertificate {
    /// The private key.
    pub key: String,
    /// The certificate.
    pub certificate: String,
}

/// An authority that issues certificates for this machine.
pub struct LocalAuthority {
    issuer: Issuer<'static, KeyPair>,
    id: String,
}

impl LocalAuthority {
    /// Creates the key (ECDSA with P-256) and the certificate of a new authority.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn create(now: SystemTime) -> Result<KeyAndCertificate, String> {
        let made = || -> Result<KeyAndCertificate, rcgen::Error> {
            let key = KeyPair::generate()?;
            let mut params = CertificateParams::default();
            let name = format!("{AUTHORITY_NAME} {}", id_of(&key));
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
            // Neither for mail nor for programs.
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            params.name_constraints = Some(constraints());
            set_validity(&mut params, now, AUTHORITY_AGE);
            let certificate = params.self_signed(&key)?.pem();
            Ok(KeyAndCertificate { key: key.serialize_pem(), certificate })
        };
        made().map_err(|why| format!("a certificate authority cannot be created: {why}"))
    }

    /// Reads an authority that [`LocalAuthority::create`] has made.
    ///
    /// # Errors
    /// A fault of either file, or that the certificate has expired.
    pub fn read(pair: &Pair, now: SystemTime) -> Result<LocalAuthority, Fault> {
        let certified = Certified::read(pair, &provider::default_provider())?;
        if let Some(complaint) = certified.complaint(now) {
            return Err(Fault::of(&pair.cert.path, format!("the certificate {complaint}")));
        }
        let unusable = |file: &PemFile| {
            let sentence = "it cannot be used for an authority";
            Fault::of(&file.path, sentence)
        };
        let key = KeyPair::from_pem(&pair.key.text).map_err(|_| unusable(&pair.key))?;
        let id = id_of(&key);
        let issuer = Issuer::from_ca_cert_pem(&pair.cert.text, key);
        let issuer = issuer.map_err(|_| unusable(&pair.cert))?;
        Ok(LocalAuthority { issuer, id })
    }

    /// The name of its certificate, for which programs show it.
    pub fn name(&self) -> String {
        format!("{AUTHORITY_NAME} {}", self.id)
    }

    /// The identifier in its name: hexadecimal digits.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Issues a certificate for localhost and both its addresses, and for the permitted ones of
    /// `addresses`, with a new key (ECDSA with P-256), for 90 days.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn issue(
        &self,
        addresses: &[IpAddr],
        now: SystemTime,
    ) -> Result<KeyAndCertificate, String> {
        let made = || -> Result<KeyAndCertificate, rcgen::Error> {
            let key = KeyPair::generate()?;
            let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
            let mut all = vec![IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
            all.extend(addresses.iter().filter(|address| permits(**address)));
            all.sort();
            all.dedup();
            params.subject_alt_names.extend(all.into_iter().map(SanType::IpAddress));
            params.distinguished_name.push(DnType::CommonName, "localhost");
            params.is_ca = IsCa::ExplicitNoCa;
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            params.use_authority_key_identifier_extension = true;
            set_validity(&mut params, now, CERTIFICATE_AGE);
            let certificate = params.signed_by(&key, &self.issuer)?.pem();
            Ok(KeyAndCertificate { key: key.serialize_pem(), certificate })
        };
        made().map_err(|why| format!("a certificate for localhost cannot be created: {why}"))
    }
}

/// Whether a local authority may issue a certificate for this address.
pub fn permits(address: IpAddr) -> bool {
    NETWORKS.iter().any(|network| network.contains(&address))
}

fn constraints() -> NameConstraints {
    let domains = DOMAINS.map(|domain| GeneralSubtree::DnsName(domain.to_owned()));
    let networks = NETWORKS.map(|network| {
        let subnet = CidrSubnet::from_addr_prefix(network.addr(), network.prefix_len());
        GeneralSubtree::IpAddress(subnet)
    });
    NameConstraints {
        permitted_subtrees: domains.into_iter().chain(networks).collect(),
        excluded_subtrees: Vec::new(),
    }
}

fn set_validity(params: &mut CertificateParams, now: SystemTime, age: Duration) {
    let from = now - CLOCK_DIFFERENCE;
    params.not_before = OffsetDateTime::from(from);
    params.not_after = OffsetDateTime::from(from + age);
}

/// The first bytes of a key's identifier (RFC 7093 §2), in hexadecimal.
fn id_of(key: &KeyPair) -> String {
    let id = CertificateParams::default().key_identifier(key);
    id.iter().take(ID_BYTES).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn pair(made: &KeyAndCertificate) -> Pair {
        let file = |name: &str, text: &str| PemFile::new(PathBuf::from(name), text.as_bytes());
        Pair::new(file("ca.pem", &made.certificate), file("ca.key", &made.key))
    }

    #[test]
    fn a_certificate_is_for_localhost_and_the_addresses_that_are_permitted() {
        let now = SystemTime::now();
        let authority = pair(&LocalAuthority::create(now).unwrap());
        let authority = LocalAuthority::read(&authority, now).unwrap();
        assert_eq!(authority.name(), format!("{AUTHORITY_NAME} {}", authority.id()));
        assert_eq!(authority.id().len(), 8);
        let addresses = ["192.168.1.5", "8.8.8.8", "0.0.0.0"].map(|one| one.parse().unwrap());
        let issued = pair(&authority.issue(&addresses, now).unwrap());
        let certified = Certified::read(&issued, &provider::default_provider()).unwrap();
        assert_eq!(certified.names, ["localhost"]);
        let age = certified.valid.until.duration_since(certified.valid.from).unwrap();
        assert!(age <= Duration::from_secs(90 * 24 * 60 * 60), "{age:?}");
        assert_eq!(certified.complaint(now), None);
    }

    #[test]
    fn an_authority_that_has_expired_or_has_another_key_is_a_fault() {
        let now = SystemTime::now();
        let made = pair(&LocalAuthority::create(now - AUTHORITY_AGE).unwrap());
        let fault = LocalAuthority::read(&made, now).err().unwrap().to_string();
        assert_eq!(fault, "ca.pem: the certificate has expired today; renew it");
        let other = pair(&LocalAuthority::create(now).unwrap());
        let mixed = Pair::new(made.cert, other.key);
        let fault = LocalAuthority::read(&mixed, now).err().unwrap().to_string();
        assert!(fault.contains("does not belong to the key"), "{fault}");
    }

    #[test]
    fn only_addresses_outside_of_the_web_are_permitted() {
        let permitted = |address: &str| permits(address.parse().unwrap());
        for address in ["127.0.0.2", "10.1.2.3", "172.31.0.1", "192.168.0.1", "::1", "fd00::1"] {
            assert!(permitted(address), "{address}");
        }
        for address in ["8.8.8.8", "172.32.0.1", "192.0.2.1", "::", "2001:db8::1", "0.0.0.0"] {
            assert!(!permitted(address), "{address}");
        }
    }
}
