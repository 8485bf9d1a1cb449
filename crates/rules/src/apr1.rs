//! MD5 hashes of passwords: Apache's `$apr1$SALT$HASH` (`apr_md5_encode`), and that of crypt(3),
//! `$1$SALT$HASH`, which differs by what it begins with alone.

use md5::{Digest, Md5};

/// What a hash begins with.
const STARTS: [&str; 2] = ["$apr1$", "$1$"];

/// Longest salt in bytes.
const MAX_SALT: usize = 8;

/// Rounds of the hash.
const ROUNDS: u32 = 1000;

/// The digits of the hash: six bits each.
const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The bytes of the digest in the order in which the hash has them, three for four digits.
const ORDER: [[usize; 3]; 5] = [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]];

/// Whether a text is such a hash.
pub fn is_one(text: &str) -> bool {
    STARTS.iter().any(|start| text.starts_with(start))
}

/// Whether a password matches a hash.
pub fn verify(password: &[u8], hash: &str) -> bool {
    let parts = STARTS.iter().find_map(|start| Some((*start, hash.strip_prefix(start)?)));
    let Some((start, rest)) = parts else { return false };
    let Some((salt, digits)) = rest.split_once('$') else { return false };
    let salt = &salt.as_bytes()[..salt.len().min(MAX_SALT)];
    digits.as_bytes() == encode(&digest(password, start, salt))
}

fn digest(password: &[u8], start: &str, salt: &[u8]) -> [u8; 16] {
    let inner = Md5::new().chain_update(password).chain_update(salt).chain_update(password);
    let inner: [u8; 16] = inner.finalize().into();
    let mut outer = Md5::new().chain_update(password).chain_update(start).chain_update(salt);
    for part in password.chunks(inner.len()) {
        outer.update(&inner[..part.len()]);
    }
    let mut length = password.len();
    while length > 0 {
        match length & 1 {
            1 => outer.update([0]),
            _ => outer.update(&password[..1]),
        }
        length >>= 1;
    }
    let mut last: [u8; 16] = outer.finalize().into();
    for round in 0..ROUNDS {
        let (is_odd, mut next) = (round & 1 == 1, Md5::new());
        next.update(if is_odd { password } else { &last });
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        next.update(if is_odd { &last[..] } else { password });
        last = next.finalize().into();
    }
    last
}

fn encode(digest: &[u8; 16]) -> Vec<u8> {
    let digits = |value: u32, count: u32| {
        (0..count).map(move |at| DIGITS[((value >> (6 * at)) & 63) as usize])
    };
    let three = |[first, second, third]: [usize; 3]| {
        [first, second, third].iter().fold(0, |value, at| (value << 8) | u32::from(digest[*at]))
    };
    let groups = ORDER.iter().flat_map(|group| digits(three(*group), 4));
    groups.chain(digits(u32::from(digest[11]), 2)).collect()
}
