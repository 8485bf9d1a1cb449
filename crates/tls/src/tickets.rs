//! Session tickets (RFC 5077, RFC 8446 §4.6.1) let clients resume sessions without a full
//! handshake. Their key changes every six hours, and old keys are forgotten.
//!
//! All keys are derived from one secret. Each period's secret is derived from the previous one, and
//! not vice versa: the current secret opens no older tickets (forward secrecy). Two fronts with the
//! same secret, as during an upgrade, open each other's tickets.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Prk};
use aws_lc_rs::rand;
use rustls::server::ProducesTickets;
use serde::{Deserialize, Serialize};

/// The period of one key for sealing tickets. It opens them for another period.
pub const PERIOD: Duration = Duration::from_secs(6 * 60 * 60);

/// Most periods a secret advances at once; after a larger jump of the clock, fronts may disagree.
const MAX_STEPS: u64 = 100_000;

/// Most periods that a secret may be ahead of the clock. If it is further ahead, the clock was in
/// the future, and the secret begins again at the present: else the keys would not change until
/// then.
const MAX_AHEAD: u64 = 2;

/// Bytes of a secret and of a key.
const SECRET_BYTES: usize = 32;

/// Bytes of a ticket's period number.
const PERIOD_BYTES: usize = 8;

/// The secret for the keys of a period and later ones.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret {
    /// Periods since 1970.
    period: u64,
    bytes: [u8; SECRET_BYTES],
}

impl Secret {
    /// A new secret.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn new(now: SystemTime) -> Result<Secret, String> {
        let mut bytes = [0; SECRET_BYTES];
        rand::fill(&mut bytes).map_err(|_| "the system has no random numbers".to_owned())?;
        // Start one period earlier, so that its tickets can be opened.
        let period = period_at(now).saturating_sub(1);
        Ok(Secret { period, bytes })
    }

    /// Advances to the previous period, and forgets older ones. A clock that was set back by more
    /// than [`MAX_AHEAD`] periods gets a secret that opens none of the earlier tickets; fronts with
    /// one secret still get the same one.
    pub fn move_on(&mut self, now: SystemTime) {
        let wanted = period_at(now).saturating_sub(1);
        if wanted.saturating_add(MAX_AHEAD) < self.period {
            self.bytes = derive(&self.bytes, &[b"back", &wanted.to_be_bytes()]);
            self.period = wanted;
            return;
        }
        let steps = wanted.saturating_sub(self.period).min(MAX_STEPS);
        for _ in 0..steps {
            self.bytes = derive(&self.bytes, &[b"next"]);
        }
        self.period = self.period.max(wanted);
    }

    fn next(&self) -> Secret {
        Secret { period: self.period + 1, bytes: derive(&self.bytes, &[b"next"]) }
    }

    fn key(&self) -> Option<RandomizedNonceKey> {
        let key = derive(&self.bytes, &[b"ticket"]);
        RandomizedNonceKey::new(&AES_256_GCM, &key).ok()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Secret(of period {})", self.period)
    }
}

fn period_at(now: SystemTime) -> u64 {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs() / PERIOD.as_secs()
}

/// HKDF-Expand (RFC 5869) to the length of a secret. It fails only for longer outputs.
fn derive(secret: &[u8; SECRET_BYTES], info: &[&[u8]]) -> [u8; SECRET_BYTES] {
    let mut out = [0; SECRET_BYTES];
    let secret = Prk::new_less_safe(HKDF_SHA256, secret);
    let filled = secret.expand(info, HKDF_SHA256).and_then(|okm| okm.fill(&mut out));
    debug_assert!(filled.is_ok(), "HKDF gives this much");
    out
}

/// The current keys.
#[derive(Debug)]
struct TicketKeys {
    period: u64,
    now: Option<RandomizedNonceKey>,
    before: Option<RandomizedNonceKey>,
}

/// Seals and opens tickets.
pub struct Tickets {
    secret: Mutex<Secret>,
    keys: ArcSwap<TicketKeys>,
}

impl Tickets {
    /// Tickets sealed with keys of `secret`.
    pub fn new(mut secret: Secret, now: SystemTime) -> Tickets {
        secret.move_on(now);
        let keys = ArcSwap::from_pointee(keys(&secret));
        Tickets { secret: Mutex::new(secret), keys }
    }

    fn at(&self, now: SystemTime) -> arc_swap::Guard<std::sync::Arc<TicketKeys>> {
        let keys = self.keys.load();
        let current = period_at(now);
        if (current..=current.saturating_add(MAX_AHEAD)).contains(&keys.period) {
            return keys;
        }
        let mut secret = self.secret.lock().unwrap_or_else(PoisonError::into_inner);
        secret.move_on(now);
        self.keys.store(std::sync::Arc::new(self::keys(&secret)));
        self.keys.load()
    }

    fn seal(&self, plain: &[u8], now: SystemTime) -> Option<Vec<u8>> {
        let keys = self.at(now);
        let key = keys.now.as_ref()?;
        let period = keys.period.to_be_bytes();
        let mut sealed = plain.to_vec();
        let nonce = key.seal_in_place_append_tag(Aad::from(period), &mut sealed).ok()?;
        let mut ticket = Vec::with_capacity(PERIOD_BYTES + NONCE_LEN + sealed.len());
        ticket.extend_from_slice(&period);
        ticket.extend_from_slice(nonce.as_ref());
        ticket.extend_from_slice(&sealed);
        Some(ticket)
    }

    fn open(&self, ticket: &[u8], now: SystemTime) -> Option<Vec<u8>> {
        let (period, rest) = ticket.split_first_chunk::<PERIOD_BYTES>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let keys = self.at(now);
        let number = u64::from_be_bytes(*period);
        let key = match keys.period.checked_sub(number)? {
            0 => keys.now.as_ref()?,
            1 => keys.before.as_ref()?,
            _ => return None,
        };
        let mut plain = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = key.open_in_place(nonce, Aad::from(*period), &mut plain).ok()?.len();
        plain.truncate(length);
        Some(plain)
    }
}

fn keys(secret: &Secret) -> TicketKeys {
    let now = secret.next();
    TicketKeys { period: now.period, now: now.key(), before: secret.key() }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        u32::try_from(PERIOD.as_secs()).unwrap_or(u32::MAX)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal(plain, SystemTime::now())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.open(ticket, SystemTime::now())
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Tickets")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(periods: u64) -> SystemTime {
        UNIX_EPOCH + PERIOD * u32::try_from(periods).unwrap() + Duration::from_secs(1)
    }

    fn tickets(secret: &Secret, now: SystemTime) -> Tickets {
        Tickets::new(secret.clone(), now)
    }

    #[test]
    fn a_ticket_is_opened_in_its_period_and_the_next_and_no_longer() {
        let secret = Secret::new(at(1000)).unwrap();
        let tickets = tickets(&secret, at(1000));
        let ticket = tickets.seal(b"session", at(1000)).unwrap();
        assert!(!ticket.windows(7).any(|seven| seven == b"session"));
        for period in [1000, 1001] {
            let opened = tickets.open(&ticket, at(period));
            assert_eq!(opened.as_deref(), Some(&b"session"[..]));
        }
        assert_eq!(tickets.open(&ticket, at(1002)), None);
    }

    #[test]
    fn fronts_with_one_secret_open_each_others_tickets_whenever_they_began() {
        let mut secret = Secret::new(at(1000)).unwrap();
        let old = tickets(&secret, at(1000));
        let ticket = old.seal(b"session", at(1004)).unwrap();
        secret.move_on(at(1005));
        let new = tickets(&secret, at(1005));
        assert!(new.open(&ticket, at(1005)).is_some());
        let ticket = new.seal(b"session", at(1005)).unwrap();
        assert!(old.open(&ticket, at(1005)).is_some());
    }

    #[test]
    fn a_secret_that_has_moved_on_opens_nothing_of_before() {
        let mut secret = Secret::new(at(1000)).unwrap();
        let ticket = tickets(&secret, at(1000)).seal(b"session", at(1000));
        secret.move_on(at(1002));
        let later = tickets(&secret, at(1002));
        // The clock is set back, too.
        assert_eq!(later.open(&ticket.unwrap(), at(1000)), None);
    }

    #[test]
    fn keys_change_again_after_a_clock_that_was_in_the_future() {
        let secret = Secret::new(at(1000)).unwrap();
        let [ours, others] = [0, 1].map(|_| tickets(&secret, at(1000)));
        let future = ours.seal(b"session", at(1000)).unwrap();
        let ticket = ours.seal(b"session", at(10)).unwrap();
        for period in [10, 11] {
            assert!(ours.open(&ticket, at(period)).is_some(), "{period}");
        }
        assert!(others.open(&ticket, at(10)).is_some());
        assert_eq!(ours.open(&future, at(11)), None);
        assert_eq!(ours.open(&ticket, at(13)), None);
        let later = ours.seal(b"session", at(13)).unwrap();
        assert_ne!(later[..PERIOD_BYTES], ticket[..PERIOD_BYTES]);
        assert!(ours.open(&later, at(13)).is_some());
    }

    #[test]
    fn a_ticket_of_another_secret_or_a_damaged_one_is_not_opened() {
        let [ours, others] = [0, 1].map(|_| tickets(&Secret::new(at(1000)).unwrap(), at(1000)));
        let mut ticket = ours.seal(b"session", at(1000)).unwrap();
        assert_eq!(others.open(&ticket, at(1000)), None);
        for length in 0..ticket.len() {
            assert_eq!(ours.open(&ticket[..length], at(1000)), None);
        }
        for at_byte in 0..ticket.len() {
            ticket[at_byte] ^= 1;
            assert_eq!(ours.open(&ticket, at(1000)), None, "byte {at_byte}");
            ticket[at_byte] ^= 1;
        }
        assert!(ours.open(&ticket, at(1000)).is_some());
    }

    #[test]
    fn a_secret_shows_nothing_of_itself() {
        let secret = Secret::new(at(1000)).unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(of period 999)");
    }
}
