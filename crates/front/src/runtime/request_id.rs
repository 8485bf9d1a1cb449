//! The id of a request in every log, and for its script (`REQUEST_ID`).
//!
//! An id of maitred's is 128 bits in hexadecimal, as nginx's `$request_id`, and made without a
//! system call: a counter, spread over 64 bits so that ids of a thread differ and any part tells
//! requests apart, and 64 random bits of the thread. It is no secret.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

use maitred_http1::Head;
use rustix::rand::{GetRandomFlags, getrandom};

/// Longest id that is accepted from a proxy, in bytes.
const MAX_BYTES: usize = 64;

/// Digits of an own id.
const OUR_BYTES: usize = 32;

/// The odd number nearest to 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The header of request ids, from proxies and in responses.
pub const HEADER: &str = "X-Request-Id";

/// A request's id: letters, digits and a few characters that need no escaping.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RequestId {
    bytes: [u8; MAX_BYTES],
    length: u8,
}

thread_local! {
    /// The counter, and the thread's own half.
    static NEXT: Cell<Option<(u64, u64)>> = const { Cell::new(None) };
}

impl RequestId {
    /// A new id.
    pub fn next() -> RequestId {
        let (counter, own) = NEXT.get().unwrap_or_else(by_chance);
        NEXT.set(Some((counter.wrapping_add(GOLDEN), own)));
        let mut bytes = [0; MAX_BYTES];
        let (first, second) = bytes[..OUR_BYTES].split_at_mut(OUR_BYTES / 2);
        write_hex(first, spread(counter));
        write_hex(second, own);
        RequestId { bytes, length: OUR_BYTES as u8 }
    }

    /// The id that a trusted proxy has assigned; none without one, with several, or with characters
    /// that a log would have to escape.
    pub fn received(head: &Head) -> Option<RequestId> {
        let mut values = head.values(HEADER);
        let value = values.next().filter(|_| values.next().is_none())?;
        let good = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(byte);
        let length = u8::try_from(value.len()).ok().filter(|length| *length > 0)?;
        let mut bytes = [0; MAX_BYTES];
        bytes.get_mut(..value.len())?.copy_from_slice(value);
        value.iter().all(good).then_some(RequestId { bytes, length })
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        let text = self.bytes.get(..usize::from(self.length));
        text.and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default()
    }
}

impl std::fmt::Debug for RequestId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.as_str())
    }
}

fn by_chance() -> (u64, u64) {
    let mut bytes = [0; 16];
    if getrandom(&mut bytes, GetRandomFlags::empty()) == Ok(bytes.len()) {
        let both = u128::from_ne_bytes(bytes);
        return ((both >> 64) as u64, both as u64);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_nanos()) as u64;
    (now, spread(now ^ u64::from(std::process::id())))
}

/// Maps consecutive numbers to numbers that look unrelated, one to one (the end of SplitMix64).
fn spread(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn write_hex(out: &mut [u8], number: u64) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (at, byte) in number.to_be_bytes().into_iter().enumerate() {
        out[2 * at] = DIGITS[usize::from(byte >> 4)];
        out[2 * at + 1] = DIGITS[usize::from(byte & 15)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maitred_http1::{HeadParser, Limits};
    use std::collections::HashSet;

    #[test]
    fn ids_are_128_bits_in_hexadecimal_and_no_two_are_the_same() {
        let ids: HashSet<String> =
            (0..100_000).map(|_| RequestId::next().as_str().to_owned()).collect();
        assert_eq!(ids.len(), 100_000);
        let digits = |id: &String| id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit());
        assert!(ids.iter().all(digits));
        let beginnings: HashSet<&str> = ids.iter().map(|id| &id[..12]).collect();
        assert!(beginnings.len() > 99_000, "a part tells them apart");
        let elsewhere = std::thread::spawn(|| RequestId::next().as_str().to_owned());
        assert!(!ids.contains(&elsewhere.join().unwrap()));
    }

    #[test]
    fn a_proxy_s_id_is_taken_as_it_is_or_not_at_all() {
        let received = |fields: &str| {
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            let mut bytes = bytes::BytesMut::from(text.as_str());
            let parsed = HeadParser::new().parse(&mut bytes, &Limits::default());
            RequestId::received(&parsed.unwrap().unwrap()).map(|id| id.as_str().to_owned())
        };
        let received_one = |id: &str| received(&format!("X-Request-ID: {id}\r\n"));
        for good in ["a", "7f1c-_.:/+=@", &"x".repeat(64)] {
            assert_eq!(received_one(good).as_deref(), Some(good));
        }
        for bad in ["", "a b", "a\"", "a,b", "\u{e9}", &"x".repeat(65)] {
            assert_eq!(received_one(bad), None, "{bad}");
        }
        assert_eq!(received("X-Request-Id: a\r\nX-Request-Id: b\r\n"), None);
        assert_eq!(received(""), None);
    }
}
