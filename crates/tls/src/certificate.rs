//! One certificate: checks of its chain and key, and its names.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use maitred_config::is_host_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{Error, InconsistentKeys};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::fault::Fault;
use crate::material::{Pair, PemFile};
use crate::pem;

const DAY_SECONDS: u64 = 24 * 60 * 60;

/// The validity of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// Its start.
    pub from: SystemTime,
    /// Its end.
    pub until: SystemTime,
}

impl Validity {
    /// Whether a certificate is valid at time `now`.
    pub fn includes(&self, now: SystemTime) -> bool {
        (self.from..self.until).contains(&now)
    }
}

/// A certificate ready for handshakes.
#[derive(Debug)]
pub struct Certified {
    /// The chain and the key.
    pub key: Arc<CertifiedKey>,
    /// Its host names, in lower case: exact ones and those with `*.`.
    pub names: Vec<String>,
    /// Names for which any other certificate is used before it.
    pub yields: Vec<String>,
    /// Its validity.
    pub valid: Validity,
}

impl Certified {
    /// Checks a certificate and its key.
    ///
    /// # Errors
    /// A fault of the certificate, the key or the chain.
    pub fn read(pair: &Pair, provider: &CryptoProvider) -> Result<Certified, Fault> {
        let chain = pem::certificates(&pair.cert)?;
        let (key, line) = pem::private_key(&pair.key)?;
        let key = provider.key_provider.load_private_key(key).map_err(|_| {
            let sentence = "the private key cannot be used; expected RSA from 2048 bits on, ECDSA \
                            with P-256, P-384 or P-521, or Ed25519";
            Fault::at(&pair.key.path, line, sentence)
        })?;
        let parsed = parse_all(&pair.cert, &chain)?;
        check_key(pair, &chain, &key)?;
        check_order(&pair.cert, &parsed)?;
        let (own, _) = &parsed[0];
        let validity = own.validity();
        let valid = Validity {
            from: moment(validity.not_before.timestamp()),
            until: moment(validity.not_after.timestamp()),
        };
        let (names, yields) = (names(own), pair.yields.clone());
        let chain = chain.iter().map(|(der, _)| der.clone()).collect();
        Ok(Certified { key: Arc::new(CertifiedKey::new(chain, key)), names, yields, valid })
    }

    /// Why clients reject it at time `now`, as the end of a sentence that starts with the
    /// certificate.
    pub fn complaint(&self, now: SystemTime) -> Option<String> {
        let Validity { from, until } = self.valid;
        if let Ok(since) = now.duration_since(until) {
            let ago = match since.as_secs() / DAY_SECONDS {
                0 => "today".to_owned(),
                1 => "a day ago".to_owned(),
                days => format!("{days} days ago"),
            };
            return Some(format!("has expired {ago}; renew it"));
        }
        if let Ok(left) = from.duration_since(now) {
            let minutes = left.as_secs() / 60;
            return Some(format!("is not valid yet, for {minutes} minutes; is the clock right?"));
        }
        None
    }
}

fn moment(timestamp: i64) -> SystemTime {
    let seconds = Duration::from_secs(timestamp.unsigned_abs());
    let moment = if timestamp < 0 {
        UNIX_EPOCH.checked_sub(seconds)
    } else {
        UNIX_EPOCH.checked_add(seconds)
    };
    moment.unwrap_or(UNIX_EPOCH)
}

type Parsed<'a> = Vec<(X509Certificate<'a>, usize)>;

fn parse_all<'a>(
    file: &PemFile,
    chain: &'a [(CertificateDer<'static>, usize)],
) -> Result<Parsed<'a>, Fault> {
    let parse = |(der, line): &'a (CertificateDer<'static>, usize)| {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|_| {
            let sentence = "the certificate that starts here cannot be parsed; copy the file again";
            Fault::at(&file.path, *line, sentence)
        })?;
        Ok((certificate, *line))
    };
    chain.iter().map(parse).collect()
}

/// Checks that the key belongs to the chain's first certificate.
fn check_key(
    pair: &Pair,
    chain: &[(CertificateDer<'static>, usize)],
    key: &Arc<dyn SigningKey>,
) -> Result<(), Fault> {
    let of = |der: &CertificateDer<'static>| match CertifiedKey::new(vec![der.clone()], key.clone())
        .keys_match()
    {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(true),
        Err(Error::InconsistentKeys(_)) => Ok(false),
        Err(error) => Err(error),
    };
    let (first, line) = &chain[0];
    let file = &pair.cert.path;
    match of(first) {
        Ok(true) => return Ok(()),
        Ok(false) => {}
        Err(error) => {
            let sentence = format!("the certificate that starts here cannot be used: {error}");
            return Err(Fault::at(file, *line, sentence));
        }
    }
    let key = pair.key.path.display();
    let other = chain.iter().find(|(der, _)| of(der).unwrap_or(false));
    Err(match other {
        Some((_, line)) => {
            let sentence = format!(
                "the certificate of the key in {key} starts here; expected it first, followed by \
                 its chain"
            );
            Fault::at(file, *line, sentence)
        }
        None => {
            let sentence = format!(
                "the certificate that starts here does not belong to the key in {key}; name \
                 matching files"
            );
            Fault::at(file, *line, sentence)
        }
    })
}

/// Checks that each certificate is issued by the next one (RFC 5246 §7.4.2).
fn check_order(file: &PemFile, chain: &Parsed<'_>) -> Result<(), Fault> {
    for pair in chain.windows(2) {
        let [(below, _), (above, line)] = pair else {
            continue;
        };
        if below.issuer().as_raw() != above.subject().as_raw() {
            let sentence = "the certificate that starts here did not issue the one before it; \
                            expected the chain in order: each followed by its issuer";
            return Err(Fault::at(&file.path, *line, sentence));
        }
    }
    Ok(())
}

/// The host names of a certificate. Without alternative names, the common name is used, as private
/// authorities sometimes need.
fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let names: Vec<String> = match alternative {
        Some(names) => {
            let hosts = names.value.general_names.iter().filter_map(|name| match name {
                GeneralName::DNSName(name) => Some((*name).to_owned()),
                _ => None,
            });
            hosts.collect()
        }
        None => {
            let subject = certificate.subject();
            let names = subject.iter_common_name();
            let names = names.filter_map(|name| Some(name.as_str().ok()?.to_owned()));
            names.collect()
        }
    };
    // A tenant puts any text into a certificate of its own, such as lines for the log.
    let can_be_asked_for = |name: &String| is_host_name(name.strip_prefix("*.").unwrap_or(name));
    let names = names.into_iter().filter(can_be_asked_for);
    names.map(|name| name.to_ascii_lowercase()).collect()
}
