//! SHA-crypt hashes of passwords, as crypt(3) reads them: `$6$[rounds=N$]SALT$HASH`, and `$5$` for
//! SHA-256 (<https://www.akkadia.org/drepper/SHA-crypt.txt>).

use sha_crypt::{ROUNDS_DEFAULT, ROUNDS_MAX, ROUNDS_MIN, Sha256Params, Sha512Params};
use subtle::ConstantTimeEq;

/// What the number of rounds begins with.
const ROUNDS: &str = "rounds=";

/// Longest salt in bytes; the rest is ignored.
const MAX_SALT: usize = 16;

/// The parts of a hash after its kind.
struct Parts<'a> {
    rounds: usize,
    salt: &'a [u8],
    digits: &'a str,
}

impl<'a> Parts<'a> {
    fn read(text: &'a str, kind: &str) -> Option<Parts<'a>> {
        let rest = text.strip_prefix(kind)?;
        let (rounds, rest) = match rest.strip_prefix(ROUNDS) {
            Some(rest) => {
                let (number, rest) = rest.split_once('$')?;
                (number.parse().ok()?, rest)
            }
            None => (ROUNDS_DEFAULT, rest),
        };
        let (salt, digits) = rest.split_once('$')?;
        let salt = &salt.as_bytes()[..salt.len().min(MAX_SALT)];
        Some(Parts { rounds: rounds.clamp(ROUNDS_MIN, ROUNDS_MAX), salt, digits })
    }
}

/// The number of rounds of a hash that begins with `$5$` or `$6$`; none if it is not complete.
pub fn rounds(hash: &str) -> Option<usize> {
    let parts = Parts::read(hash, "$6$").or_else(|| Parts::read(hash, "$5$"))?;
    Some(parts.rounds)
}

/// Whether a password matches a hash that begins with `$6$`.
pub fn matches_sha512(password: &[u8], hash: &str) -> bool {
    let Some(parts) = Parts::read(hash, "$6$") else { return false };
    let digits = Sha512Params::new(parts.rounds)
        .and_then(|params| sha_crypt::sha512_crypt_b64(password, parts.salt, &params));
    digits.is_ok_and(|digits| digits.as_bytes().ct_eq(parts.digits.as_bytes()).into())
}

/// Whether a password matches a hash that begins with `$5$`.
pub fn matches_sha256(password: &[u8], hash: &str) -> bool {
    let Some(parts) = Parts::read(hash, "$5$") else { return false };
    let digits = Sha256Params::new(parts.rounds)
        .and_then(|params| sha_crypt::sha256_crypt_b64(password, parts.salt, &params));
    digits.is_ok_and(|digits| digits.as_bytes().ct_eq(parts.digits.as_bytes()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Password and hash: vectors of the specification, and `openssl passwd` has the same.
    const VECTORS: [(&str, &str); 5] = [
        (
            "Hello world!",
            "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcb\
             YEdFCoEOfaS35inz1",
        ),
        ("Hello world!", "$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5"),
        (
            "Hello world!",
            "$6$rounds=10000$saltstringsaltstring$OW1/O6BYHV6BcXZu8QVeXbDWra3Oeqh0sbHbbMCVNSnCM/\
             UrjmM0Dp8vOuZeHBy/YTBmSK6H9qs/y3RnOaw5v.",
        ),
        (
            "the minimum number is still observed",
            "$5$rounds=10$roundstoolow$yfvwcWrQ8l/K0DAWyuPMDNHpIVlTQebY9l/gL972bIC",
        ),
        (
            "the minimum number is still observed",
            "$6$rounds=10$roundstoolow$kUMsbe306n21p9R.FRkW3IGn.S9NPN0x50YhH1xhLsPuWGsUSklZt58ja\
             TfF4ZEQpyUNGc0dqbpBYYBaHHrsX.",
        ),
    ];

    fn matches(password: &[u8], hash: &str) -> bool {
        matches_sha512(password, hash) || matches_sha256(password, hash)
    }

    #[test]
    fn a_hash_of_the_specification_has_its_password_and_no_other() {
        for (password, hash) in VECTORS {
            assert!(matches(password.as_bytes(), hash), "{hash}");
            assert!(!matches(b"Hello World!", hash), "{hash}");
        }
    }

    #[test]
    fn a_hash_that_is_not_complete_has_no_password() {
        for (password, hash) in VECTORS {
            for end in 0..hash.len() {
                assert!(!matches(password.as_bytes(), &hash[..end]), "{}", &hash[..end]);
            }
            assert!(!matches(password.as_bytes(), &format!("{hash}$")), "{hash}$");
        }
        assert!(!matches(b"", "$6$rounds=many$salt$"));
    }

    #[test]
    fn a_password_need_not_be_text() {
        let digits =
            sha_crypt::sha256_crypt_b64(b"\xff\xfe", b"salt", &Sha256Params::new(1000).unwrap());
        let hash = format!("$5$rounds=1000$salt${}", digits.unwrap());
        assert!(matches_sha256(b"\xff\xfe", &hash));
    }
}
