//! Users and password hashes in the format of `htpasswd`: one `name:hash` per line.

use std::collections::HashMap;

use argon2::PasswordHash;
use base64::Engine;
use sha1::Digest;

use crate::{apr1, argon2_hash, crypt_hash, hash_cost};

/// Most users in one file.
const MAX_USERS: usize = 100_000;

/// The users of a file.
#[derive(Default)]
pub struct Users {
    by_name: HashMap<String, Hash>,
    /// Dummy hash that is checked for unknown users, so that timing does not reveal which names
    /// exist.
    decoy: Option<Hash>,
    unusable: Option<UnusableHashes>,
}

/// Hashes that no password matches, of a file that was read as Apache does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusableHashes {
    /// The line of the first one, from 1.
    pub first_line: usize,
    /// What is too much about it, as the end of a sentence; none if its kind is not supported.
    pub excess: Option<String>,
    /// Their number.
    pub count: usize,
}

/// A password hash. Not even `Debug` prints it.
#[derive(Clone, PartialEq, Eq)]
enum Hash {
    /// `$2a$`, `$2b$`, `$2y$`.
    Bcrypt(String),
    /// `$argon2id$` and its variants.
    Argon2(String),
    /// `$6$`.
    Sha512(String),
    /// `$5$`.
    Sha256(String),
    /// `$apr1$` and `$1$`.
    Md5(String),
    /// `{SHA}`.
    Sha1(String),
    /// Another one, which no password matches.
    Unknown(String),
}

impl std::fmt::Debug for Users {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} users", self.by_name.len())
    }
}

/// A password to verify against a hash. Verification takes tens of milliseconds by design, and two
/// seconds at most (`hash_cost.rs`): it must not run on a serving thread.
pub struct Attempt {
    hash: Hash,
    password: Vec<u8>,
    /// The user is unknown: verification fails, whatever the password.
    is_unknown_user: bool,
}

impl Users {
    /// Parses a file.
    ///
    /// # Errors
    /// The line, counted from 1, and what is wrong with it, as the end of a sentence.
    pub fn parse(text: &str) -> Result<Users, (usize, String)> {
        let mut users = Users::default();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim_end();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |why: &str| (at + 1, why.to_owned());
            let (name, rest) =
                line.split_once(':').filter(|(name, _)| !name.is_empty()).ok_or_else(|| {
                    wrong("is no user; expected NAME:HASH as `htpasswd -B` writes it")
                })?;
            // Further fields are comments.
            let hash = rest.split(':').next().unwrap_or_default();
            let hash = Hash::read(hash).map_err(|why| wrong(&why))?;
            if users.by_name.len() >= MAX_USERS {
                return Err(wrong(&format!("is one user more than the limit of {MAX_USERS}")));
            }
            users.decoy.get_or_insert_with(|| hash.clone());
            users.by_name.entry(name.to_owned()).or_insert(hash);
        }
        Ok(users)
    }

    /// Parses a file as Apache does: MD5 (`$apr1$`, `$1$`) and SHA-1 (`{SHA}`) are accepted, and
    /// lines without a user are left out. No password matches a hash of another kind, or one whose
    /// cost is beyond the limits, which [`Users::unusable`] reports: DES (`htpasswd -d`), whose
    /// passwords have eight letters at most, and others of crypt(3).
    ///
    /// # Errors
    /// As [`Users::parse`], for too many users.
    pub fn parse_as_apache(text: &str) -> Result<Users, (usize, String)> {
        let mut users = Users::default();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim_end();
            let Some((name, rest)) = line.split_once(':').filter(|_| !line.starts_with('#')) else {
                continue;
            };
            if users.by_name.len() >= MAX_USERS {
                let why = format!("is one user more than the limit of {MAX_USERS}");
                return Err((at + 1, why));
            }
            let text = rest.split(':').next().unwrap_or_default();
            let hash = Hash::read_as_apache(text);
            if matches!(hash, Hash::Unknown(_)) {
                let first = || UnusableHashes {
                    first_line: at + 1,
                    excess: hash_cost::excess(text),
                    count: 0,
                };
                users.unusable.get_or_insert_with(first).count += 1;
            } else {
                users.decoy.get_or_insert_with(|| hash.clone());
            }
            users.by_name.entry(name.to_owned()).or_insert(hash);
        }
        Ok(users)
    }

    /// The hashes that no password matches, if there are any.
    pub fn unusable(&self) -> Option<&UnusableHashes> {
        self.unusable.as_ref()
    }

    /// Number of users.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there are no users.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The verification to do for this user; `None` if the file is empty. For an unknown user it
    /// uses the first user's hash, so that it takes equally long and timing does not reveal which
    /// users exist.
    pub fn attempt(&self, name: &str, password: &[u8]) -> Option<Attempt> {
        let known = self.by_name.get(name);
        Some(Attempt {
            hash: known.or(self.decoy.as_ref())?.clone(),
            password: password.to_vec(),
            is_unknown_user: known.is_none(),
        })
    }
}

impl Attempt {
    /// The hash. It changes with the password.
    pub fn hash(&self) -> &str {
        match &self.hash {
            Hash::Bcrypt(hash)
            | Hash::Argon2(hash)
            | Hash::Sha512(hash)
            | Hash::Sha256(hash)
            | Hash::Md5(hash)
            | Hash::Sha1(hash)
            | Hash::Unknown(hash) => hash,
        }
    }

    /// The password.
    pub fn password(&self) -> &[u8] {
        &self.password
    }

    /// Whether the user is none of the file, and the hash that of another user.
    pub fn is_of_unknown_user(&self) -> bool {
        self.is_unknown_user
    }

    /// Whether the password is right and the user is known.
    pub fn succeeds(&self) -> bool {
        self.is_the_password() && !self.is_unknown_user
    }

    fn is_the_password(&self) -> bool {
        match &self.hash {
            Hash::Bcrypt(hash) => bcrypt::verify(&self.password, hash).unwrap_or(false),
            Hash::Argon2(hash) => argon2_hash::matches(&self.password, hash),
            Hash::Sha512(hash) => crypt_hash::matches_sha512(&self.password, hash),
            Hash::Sha256(hash) => crypt_hash::matches_sha256(&self.password, hash),
            Hash::Md5(hash) => apr1::verify(&self.password, hash),
            Hash::Sha1(hash) => {
                let digest = sha1::Sha1::digest(&self.password);
                let own = base64::engine::general_purpose::STANDARD.encode(digest);
                hash.strip_prefix("{SHA}") == Some(&own)
            }
            Hash::Unknown(_) => false,
        }
    }
}

impl Hash {
    fn read_as_apache(text: &str) -> Hash {
        match text {
            _ if apr1::is_one(text) => Hash::Md5(text.to_owned()),
            _ if text.starts_with("{SHA}") => Hash::Sha1(text.to_owned()),
            _ => Hash::read(text).unwrap_or_else(|_| Hash::Unknown(text.to_owned())),
        }
    }

    fn read(text: &str) -> Result<Hash, String> {
        if let Some(excess) = hash_cost::excess(text) {
            return Err(format!("{excess}: create it again with `htpasswd -B`"));
        }
        let begins = |start: &str| text.starts_with(start);
        if ["$2a$", "$2b$", "$2y$", "$2x$"].iter().any(|start| begins(start)) {
            return match text.parse::<bcrypt::HashParts>() {
                Ok(_) => Ok(Hash::Bcrypt(text.to_owned())),
                Err(_) => Err("has a bcrypt hash that is not complete".to_owned()),
            };
        }
        if begins("$argon2") {
            return match PasswordHash::new(text) {
                Ok(_) => Ok(Hash::Argon2(text.to_owned())),
                Err(_) => Err("has an argon2 hash that is not complete".to_owned()),
            };
        }
        if begins("$6$") {
            return Ok(Hash::Sha512(text.to_owned()));
        }
        if begins("$5$") {
            return Ok(Hash::Sha256(text.to_owned()));
        }
        let kind = match text {
            _ if apr1::is_one(text) => "an MD5 hash (apr1), which is too fast to guess",
            _ if begins("{SHA}") => "an unsalted SHA-1 hash, which is too fast to guess",
            _ => "a plain password, or a crypt(3) hash that is too fast to guess",
        };
        Err(format!(
            "has {kind}; expected bcrypt, argon2 or SHA-crypt: create it again with `htpasswd -B`"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_hash_that_is_taken_knows_its_password() {
        use argon2::{Argon2, PasswordHasher};
        let bcrypt = bcrypt::hash("secret", 4).unwrap();
        let params = argon2::Params::new(64, 1, 1, None).unwrap();
        let hasher = Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params);
        let salt = argon2::password_hash::SaltString::from_b64("c29tZXNhbHRzb21l").unwrap();
        let argon2 = hasher.hash_password(b"secret", &salt).unwrap().to_string();
        // Written by `openssl passwd -6`.
        let sha512 = "$6$rounds=1000$abcdefgh$nhYjN017qxiYztzyUpZtPnUQcnLy62KsunSLHNeLahp2EHPlAKm\
                      FFlrjEwSXGo2kgY5hR2.peKEg2VGUqIJJu1";
        let text = format!("# people\nanna:{bcrypt}\n\nben:{argon2}\ncleo:{sha512}:a remark\n");
        let users = Users::parse(&text).unwrap();
        assert_eq!(users.len(), 3);
        for name in ["anna", "ben", "cleo"] {
            assert!(users.attempt(name, b"secret").unwrap().succeeds(), "{name}");
            assert!(!users.attempt(name, b"Secret").unwrap().succeeds(), "{name}");
        }
        let vain = users.attempt("dora", b"secret").unwrap();
        assert!(vain.is_the_password(), "it is compared");
        assert!(!vain.succeeds(), "the user is unknown");
        assert!(Users::default().attempt("dora", b"secret").is_none());
        assert_eq!(format!("{users:?}"), "3 users");
    }

    #[test]
    fn fast_hashes_are_refused_with_their_line() {
        for (hash, word) in [
            ("$apr1$abc$def", "apr1"),
            ("{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=", "SHA-1"),
            ("rqXexS6ZhobKA", "plain password"),
            ("$2y$05$short", "not complete"),
        ] {
            let (line, why) = Users::parse(&format!("# x\nanna:{hash}\n")).unwrap_err();
            assert_eq!(line, 2);
            assert!(why.contains(word), "{why}");
        }
        assert_eq!(Users::parse("anna").unwrap_err().0, 1);
    }

    #[test]
    fn apaches_hashes_know_their_password_where_they_are_accepted() {
        // Written by `htpasswd -nbm`, `-nbs`, `-nbd` and `openssl passwd -1` with the password
        // `secret`.
        let text = "anna:$apr1$lZL6V/ci$PR6QJXkRFUzdUuaYcwrI//\n\
                    ben:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n\
                    cleo:rqXexS6ZhobKA\nno user\n\
                    dora:$1$saltsalt$9xy1btjgzLYfb7hivXtC//\nemil:$y$j9T$abc$def\n";
        let users = Users::parse_as_apache(text).unwrap();
        assert_eq!(users.len(), 5);
        for name in ["anna", "ben", "dora"] {
            assert!(users.attempt(name, b"secret").unwrap().succeeds(), "{name}");
            assert!(!users.attempt(name, b"Secret").unwrap().succeeds(), "{name}");
        }
        assert!(!users.attempt("cleo", b"secret").unwrap().succeeds());
        let unusable = UnusableHashes { first_line: 3, excess: None, count: 2 };
        assert_eq!(users.unusable(), Some(&unusable));
        assert!(Users::parse(text).is_err());
    }

    const DIGITS: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

    fn argon2(params: &str) -> String {
        format!("$argon2id$v=19${params}$c29tZXNhbHRzb21l${DIGITS}")
    }

    #[test]
    fn a_hash_that_costs_too_much_is_refused_and_no_password_is_verified_with_it() {
        let bcrypt =
            |cost: u32| bcrypt::hash("secret", 4).unwrap().replace("$04$", &format!("${cost}$"));
        for (hash, word) in [
            (argon2("m=4294967295,t=1,p=1"), "m=4294967295; expected at most 262144 KiB"),
            (argon2("m=262145,t=1,p=1"), "m=262145; expected"),
            (argon2("m=8,t=4294967295,p=1"), "m=8 and t=4294967295; expected a product"),
            (argon2("t=4294967295"), "m=19456 and t=4294967295; expected a product"),
            (argon2("m=65536,t=17,p=1"), "m=65536 and t=17; expected a product"),
            (argon2("m=1024,t=1,p=17"), "p=17; expected at most 16"),
            (argon2("m=1024,t=1,p=4294967295"), "p=4294967295; expected at most 16"),
            (bcrypt(16), "of cost 16; expected at most 15"),
            (bcrypt(31), "of cost 31; expected at most 15"),
            (bcrypt(4_294_967_295), "of cost 4294967295; expected at most 15"),
            ("$6$rounds=999999999$salt$x".to_owned(), "of 999999999 rounds; expected at most"),
            ("$5$rounds=1000001$salt$x".to_owned(), "of 1000001 rounds; expected at most 1000000"),
        ] {
            let text = format!("anna:{hash}\nben:$apr1$lZL6V/ci$PR6QJXkRFUzdUuaYcwrI//\n");
            let (line, why) = Users::parse(&text).unwrap_err();
            assert!(line == 1 && why.contains(word), "{why}");
            let users = Users::parse_as_apache(&text).unwrap();
            // Each of them would take hours, or end the process.
            assert!(!users.attempt("anna", b"secret").unwrap().succeeds(), "{hash}");
            assert!(users.attempt("ben", b"secret").unwrap().succeeds());
            let unknown = users.attempt("cleo", b"secret").unwrap();
            assert!(unknown.is_the_password(), "the decoy is a hash that is verified");
            let unusable = users.unusable().unwrap();
            assert!(unusable.excess.as_ref().unwrap().contains(word), "{unusable:?}");
        }
    }

    #[test]
    fn a_hash_at_the_limits_is_taken() {
        let bcrypt = bcrypt::hash("secret", 4).unwrap().replace("$04$", "$15$");
        for hash in [
            argon2("m=262144,t=4,p=16"),
            argon2("m=65536,t=16,p=1"),
            argon2("m=8,t=131072,p=1"),
            bcrypt,
            "$6$rounds=1000000$salt$x".to_owned(),
        ] {
            assert!(Users::parse(&format!("anna:{hash}\n")).is_ok(), "{hash}");
            assert_eq!(Users::parse_as_apache(&format!("anna:{hash}\n")).unwrap().unusable(), None);
        }
    }

    #[test]
    fn each_version_and_variant_of_argon2_knows_its_password() {
        use argon2::{Algorithm, Argon2, Params, PasswordHasher, Version};
        let salt = argon2::password_hash::SaltString::from_b64("c29tZXNhbHRzb21l").unwrap();
        for algorithm in [Algorithm::Argon2d, Algorithm::Argon2i, Algorithm::Argon2id] {
            for version in [Version::V0x10, Version::V0x13] {
                let params = Params::new(64, 2, 2, Some(24)).unwrap();
                let hasher = Argon2::new(algorithm, version, params);
                let hash = hasher.hash_password(b"secret", &salt).unwrap().to_string();
                let users = Users::parse(&format!("anna:{hash}\n")).unwrap();
                assert!(users.attempt("anna", b"secret").unwrap().succeeds(), "{hash}");
                assert!(!users.attempt("anna", b"Secret").unwrap().succeeds(), "{hash}");
            }
        }
    }
}
