//! Basic authentication (RFC 7617). Passwords are verified on another thread, as that takes tens of
//! milliseconds; only a few at a time (`password_turns`), and a verified password is cached for a
//! while.

use std::collections::HashMap;
use std::io::Read;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use maitred_htaccess::user_groups::Groups;
use maitred_http1::Head;
use maitred_os::walk::{self, Rule, printable};
use maitred_rules::htpasswd::{Attempt, UnusableHashes, Users};
use maitred_rules::networks::client_key;
use sha2::{Digest, Sha256};

use crate::runtime::lookup_turns::Tenant;
use crate::site::checked_files::{CheckedFiles, FileToCheck, TakesTooLong};
use crate::site::password_turns::{AT_A_TIME, Applicant, PasswordTurns};

/// Passwords of the `AuthUserFile`s of one site that are verified at a time.
const AT_A_TIME_OF_HTACCESS: usize = 1;
/// Longest password in bytes, as of crypt(3): SHA-crypt takes time by the square of it.
const MAX_PASSWORD_BYTES: usize = 512;
/// Verified passwords that are remembered, and for how long.
const MAX_REMEMBERED: usize = 4096;
const REMEMBERED_FOR: Duration = Duration::from_secs(60);
/// Largest file of a `basic_auth`, in MiB.
const MAX_FILE_MIB: u64 = 16;
/// Largest `AuthUserFile` or `AuthGroupFile`, in MiB: some 50,000 users.
const MAX_HTACCESS_FILE_MIB: u64 = 4;

/// The result of an authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Name and password are right.
    Granted,
    /// They are missing or wrong.
    Unknown,
    /// Too many passwords are being verified.
    Busy,
    /// The users file takes too long to read.
    Late,
    /// The users file is unusable.
    NoUsers,
}

/// A file of users.
#[derive(Debug, Clone, Copy)]
pub enum UsersFile<'a> {
    /// That of a `basic_auth`, which accepts slow hashes alone.
    OfSetting(&'a Path),
    /// An `AuthUserFile`, with Apache's hashes.
    OfHtaccess {
        /// The file.
        path: &'a Path,
        /// The document root of its site.
        root: &'a Path,
    },
}

impl<'a> UsersFile<'a> {
    fn path(self) -> &'a Path {
        match self {
            UsersFile::OfSetting(path) | UsersFile::OfHtaccess { path, .. } => path,
        }
    }

    /// Whose passwords share turns: a tenant may write any number of files.
    fn group(self) -> &'a Path {
        match self {
            UsersFile::OfSetting(path) => path,
            UsersFile::OfHtaccess { root, .. } => root,
        }
    }
}

/// Authenticates users.
#[derive(Debug)]
pub struct Authenticator {
    files: CheckedFiles<Users>,
    htaccess_files: CheckedFiles<Users>,
    groups: CheckedFiles<Groups>,
    /// When each password was verified, by a digest with this process's secret.
    right: Mutex<HashMap<[u8; 32], Instant>>,
    secret: [u8; 32],
    turns: PasswordTurns,
    /// Turns for the hashes of tenants, whose cost is theirs to choose.
    htaccess_turns: PasswordTurns,
}

impl Default for Authenticator {
    fn default() -> Authenticator {
        let mut secret = [0; 32];
        // Without randomness, a reader of the process's memory could at worst guess a remembered
        // password.
        let _ = rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty());
        Authenticator {
            files: CheckedFiles::default(),
            htaccess_files: CheckedFiles::default(),
            groups: CheckedFiles::default(),
            right: Mutex::default(),
            secret,
            turns: PasswordTurns::new(AT_A_TIME),
            htaccess_turns: PasswordTurns::new(AT_A_TIME_OF_HTACCESS),
        }
    }
}

impl Authenticator {
    /// Authenticates a request of `client` against a users file of a site of `tenant`.
    pub async fn admit(
        &self,
        head: &Head,
        file: UsersFile<'_>,
        client: IpAddr,
        tenant: &Arc<Tenant>,
    ) -> Outcome {
        let (users, turns) = match file {
            UsersFile::OfSetting(path) => {
                let file = FileToCheck {
                    path,
                    owner: path,
                    setting: "basic_auth",
                    outlives_removal: true,
                    load,
                    complaint: |_, _| None,
                };
                (self.files.get(file, tenant).await, &self.turns)
            }
            UsersFile::OfHtaccess { path, root } => {
                let file = FileToCheck {
                    path,
                    owner: root,
                    setting: "AuthUserFile",
                    outlives_removal: false,
                    load: load_as_apache,
                    complaint: unusable_hashes,
                };
                (self.htaccess_files.get(file, tenant).await, &self.htaccess_turns)
            }
        };
        let users = match users {
            Ok(Some(users)) => users,
            Ok(None) => return Outcome::NoUsers,
            Err(TakesTooLong) => return Outcome::Late,
        };
        let Some((name, password)) = head.header("authorization").and_then(credentials) else {
            return Outcome::Unknown;
        };
        let Some(attempt) = users.attempt(&name, &password) else {
            return Outcome::Unknown;
        };
        let digest = self.digest(file.path(), &attempt, &name);
        if self.is_remembered(&digest) {
            return Outcome::Granted;
        }
        let applicant = Applicant { group: file.group(), client: client_key(client), digest };
        match turns.verify(applicant, move || attempt.succeeds()).await {
            Some(true) => {
                self.remember(digest);
                Outcome::Granted
            }
            Some(false) => Outcome::Unknown,
            None => Outcome::Busy,
        }
    }

    /// The groups of an `AuthGroupFile`; none if it is unusable. `root` is the document root of the
    /// site.
    ///
    /// # Errors
    /// When it takes too long to read.
    pub async fn groups(
        &self,
        path: &Path,
        root: &Path,
        tenant: &Arc<Tenant>,
    ) -> Result<Option<Arc<Groups>>, TakesTooLong> {
        let file = FileToCheck {
            path,
            owner: root,
            setting: "AuthGroupFile",
            outlives_removal: false,
            load: load_groups,
            complaint: |_, _| None,
        };
        self.groups.get(file, tenant).await
    }

    fn digest(&self, file: &Path, attempt: &Attempt, name: &str) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update(self.secret);
        // The first user's hash is that of an unknown user as well.
        digest.update([u8::from(attempt.is_of_unknown_user())]);
        let file = file.as_os_str().as_encoded_bytes();
        for part in [file, attempt.hash().as_bytes(), name.as_bytes(), attempt.password()] {
            digest.update(part.len().to_le_bytes());
            digest.update(part);
        }
        digest.finalize().into()
    }

    fn is_remembered(&self, digest: &[u8; 32]) -> bool {
        let right = lock(&self.right);
        right.get(digest).is_some_and(|since| since.elapsed() < REMEMBERED_FOR)
    }

    fn remember(&self, digest: [u8; 32]) {
        let mut right = lock(&self.right);
        if right.len() >= MAX_REMEMBERED {
            right.retain(|_, since| since.elapsed() < REMEMBERED_FOR);
        }
        if right.len() < MAX_REMEMBERED {
            right.insert(digest, Instant::now());
        }
    }
}

fn lock<T>(table: &Mutex<T>) -> MutexGuard<'_, T> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads a users file.
///
/// # Errors
/// One sentence, with the file and the line.
pub fn load(file: &Path) -> Result<Users, String> {
    Users::parse(&read(file, MAX_FILE_MIB)?).map_err(|(line, why)| at_line(file, line, &why))
}

/// Reads a users file as Apache does.
fn load_as_apache(file: &Path) -> Result<Users, String> {
    let users = Users::parse_as_apache(&read(file, MAX_HTACCESS_FILE_MIB)?);
    users.map_err(|(line, why)| at_line(file, line, &why))
}

fn unusable_hashes(file: &Path, users: &Users) -> Option<String> {
    let UnusableHashes { first_line, excess, count } = users.unusable()?;
    let others = match count {
        1 => String::new(),
        2 => "; so is one in a later line".to_owned(),
        _ => format!("; so are {} in later lines", count - 1),
    };
    let why = excess.as_deref().unwrap_or(
        "has a hash that is not of a supported kind (bcrypt, argon2, SHA-crypt, MD5, SHA-1)",
    );
    let file = printable(file);
    Some(format!(
        "{file}:{first_line}: this line {why}; no password matches it{others}: create it again \
         with `htpasswd -B {file} NAME`"
    ))
}

fn load_groups(file: &Path) -> Result<Groups, String> {
    Ok(Groups::parse(read(file, MAX_HTACCESS_FILE_MIB)?.as_bytes()))
}

fn at_line(file: &Path, line: usize, why: &str) -> String {
    format!("{}:{line}: this line {why}", printable(file))
}

fn read(file: &Path, most_mib: u64) -> Result<String, String> {
    let name = printable(file);
    let cannot = |error: std::io::Error| format!("{name} cannot be read: {error}");
    let opened = walk::open_to_read(file, Rule::of_reader()).map_err(cannot)?;
    let size = opened.metadata().map_err(cannot)?.len();
    if size > most_mib << 20 {
        return Err(format!("{name} is larger than {most_mib} MiB, the limit of such a file"));
    }
    let mut text = String::new();
    let read = opened.take(most_mib << 20).read_to_string(&mut text);
    read.map_err(cannot)?;
    Ok(text)
}

/// Whether an `Authorization` header has a name and a password.
pub fn has_password(field: Option<&[u8]>) -> bool {
    field.and_then(credentials).is_some()
}

/// The name and the password of `Authorization: Basic …`; none if the password is too long.
fn credentials(field: &[u8]) -> Option<(String, Vec<u8>)> {
    let (scheme, token) = field.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let engine = base64::engine::general_purpose::STANDARD;
    let decoded = engine.decode(token.trim_ascii()).ok()?;
    let colon = memchr::memchr(b':', &decoded)?;
    let name = std::str::from_utf8(&decoded[..colon]).ok()?.to_owned();
    let password = &decoded[colon + 1..];
    (password.len() <= MAX_PASSWORD_BYTES).then(|| (name, password.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_of_more_than_512_bytes_is_none() {
        let with = |length: usize| {
            let token = format!("anna:{}", "a".repeat(length));
            let token = base64::engine::general_purpose::STANDARD.encode(token);
            format!("Basic {token}").into_bytes()
        };
        assert_eq!(credentials(&with(512)).unwrap().1.len(), 512);
        assert_eq!(credentials(&with(513)), None);
        assert_eq!(credentials(&with(47_000)), None);
        assert!(!has_password(Some(&with(513))));
    }
}
