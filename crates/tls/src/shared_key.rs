//! What nodes share by way of others is sealed: AES-256-GCM with a key that all nodes were given.
//!
//! A sealed text is base64 of the version, a random nonce, and the encrypted text with its tag. The
//! version and the name of the record are authenticated: no record can be put in place of another.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;

/// Fewest bytes of a key.
pub const MIN_KEY_BYTES: usize = 32;

/// Most bytes of a key.
pub const MAX_KEY_BYTES: usize = 4096;

/// The version of sealed texts.
const VERSION: &[u8; 8] = b"maitred1";

/// Bytes of an AES key.
const AES_KEY_BYTES: usize = 32;

/// Bytes of the seed of an Ed25519 key.
const SEED_BYTES: usize = 32;

/// The beginning of an Ed25519 key in PKCS #8: version and algorithm (RFC 8410 §7).
const ED25519_PKCS8: [u8; 16] =
    [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// The key that all nodes have.
pub struct SharedKey(RandomizedNonceKey);

impl SharedKey {
    /// The key in a file with this text, without the end of its line.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence.
    pub fn of(text: &str) -> Result<SharedKey, String> {
        let key: [u8; AES_KEY_BYTES] = derived(text, b"certificates")?;
        let key = RandomizedNonceKey::new(&AES_256_GCM, &key);
        key.map(SharedKey).map_err(|_| UNUSABLE.to_owned())
    }

    /// Seals a record of this name.
    pub fn seal(&self, name: &str, text: &str) -> Option<String> {
        let mut sealed = text.as_bytes().to_vec();
        let nonce = self.0.seal_in_place_append_tag(about(name), &mut sealed).ok()?;
        let whole = [VERSION, nonce.as_ref().as_slice(), &sealed].concat();
        Some(STANDARD_NO_PAD.encode(whole))
    }

    /// Opens a record of this name. None of anything else.
    pub fn open(&self, name: &str, sealed: &str) -> Option<String> {
        let whole = STANDARD_NO_PAD.decode(sealed).ok()?;
        let rest = whole.strip_prefix(VERSION)?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let mut text = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self.0.open_in_place(nonce, about(name), &mut text).ok()?.len();
        text.truncate(length);
        String::from_utf8(text).ok()
    }
}

/// What is said of a key that cannot be used.
const UNUSABLE: &str = "holds no usable key";

/// A key for one purpose, derived from the text of a file, without the end of its line.
fn derived(text: &str, purpose: &[u8]) -> Result<[u8; 32], String> {
    let secret = text.trim_end().as_bytes();
    if secret.len() < MIN_KEY_BYTES || secret.len() > MAX_KEY_BYTES {
        return Err(format!(
            "holds {} bytes; expected a random key of {MIN_KEY_BYTES} to {MAX_KEY_BYTES}, such as \
             that of `openssl rand -base64 32`",
            secret.len()
        ));
    }
    let mut key = [0; 32];
    let extracted = Salt::new(HKDF_SHA256, VERSION).extract(secret);
    let purpose = [purpose];
    let filled = extracted.expand(&purpose, HKDF_SHA256).and_then(|okm| okm.fill(&mut key));
    filled.map(|()| key).map_err(|_| UNUSABLE.to_owned())
}

/// The private key by which nodes of a purge log know each other, of the secret in a file with this
/// text: an Ed25519 key as PKCS #8 in base64, the same on all nodes.
///
/// # Errors
/// What is wrong with the secret, as the end of a sentence.
pub fn peer_key(text: &str) -> Result<String, String> {
    let seed: [u8; SEED_BYTES] = derived(text, b"purge log")?;
    Ok(STANDARD_NO_PAD.encode([ED25519_PKCS8.as_slice(), &seed].concat()))
}

fn about(name: &str) -> Aad<Vec<u8>> {
    Aad::from([VERSION, name.as_bytes()].concat())
}

impl fmt::Debug for SharedKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SharedKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn what_is_sealed_is_opened_under_its_name_with_its_key_only() {
        let key = SharedKey::of(&format!("{KEY}\n")).unwrap();
        let sealed = key.seal("certificate.a.com", "secret").unwrap();
        assert_eq!(key.open("certificate.a.com", &sealed).as_deref(), Some("secret"));
        assert_eq!(key.open("certificate.b.com", &sealed), None);
        assert_ne!(key.seal("certificate.a.com", "secret").unwrap(), sealed, "the nonce differs");
        let other = SharedKey::of(&KEY.replace('0', "1")).unwrap();
        assert_eq!(other.open("certificate.a.com", &sealed), None);
        assert!(!format!("{key:?}{sealed}").contains("secret"));
    }

    #[test]
    fn no_changed_byte_and_no_garbage_is_opened() {
        let key = SharedKey::of(KEY).unwrap();
        let sealed = key.seal("a", "secret").unwrap();
        let whole = STANDARD_NO_PAD.decode(&sealed).unwrap();
        for at in 0..whole.len() {
            let mut wrong = whole.clone();
            wrong[at] ^= 1;
            assert_eq!(key.open("a", &STANDARD_NO_PAD.encode(&wrong)), None, "{at}");
            assert_eq!(key.open("a", &STANDARD_NO_PAD.encode(&whole[..at])), None, "{at}");
        }
        for wrong in ["", "!", "bWFpdHJlZDE", "maitred1"] {
            assert_eq!(key.open("a", wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_key_of_nodes_is_one_of_ed25519_that_only_the_secret_gives() {
        let key = peer_key(&format!("{KEY}\n")).unwrap();
        let der = STANDARD_NO_PAD.decode(&key).unwrap();
        aws_lc_rs::signature::Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der).unwrap();
        assert_eq!(peer_key(KEY).unwrap(), key);
        assert_ne!(peer_key(&KEY.replace('0', "1")).unwrap(), key);
        assert!(peer_key("short").is_err());
    }

    #[test]
    fn a_short_key_is_refused() {
        assert!(SharedKey::of("short").unwrap_err().contains("expected a random key"));
    }
}
