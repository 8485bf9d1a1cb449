//! Who may read metrics and status pages over HTTP (`admin`).

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::libc::O_NONBLOCK;
use nix::unistd::{Group, User};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::model::listener::Door;

/// Bounds of a token's length in characters. Sixteen random ones are more than anybody tries out.
const TOKEN_CHARS: std::ops::RangeInclusive<usize> = 16..=256;

/// Most bytes of a file with a token: line ends and spaces after it are not part of it.
const TOKEN_FILE_BYTES: u64 = 4096;

/// The rights of everybody who is neither the owner of a file nor of its group.
const RIGHTS_OF_OTHERS: u32 = 0o007;

/// What a token consists of (RFC 6750 §2.1), for sentences.
pub(crate) const TOKEN: &str = "16 to 256 letters, digits or characters of -._~+/=";

/// Who may read what over the admin listener.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdminAccess {
    /// The Unix socket, where `admin` is the path of one.
    pub socket: Option<Door>,
    /// Users who may read everything over the socket, beside root.
    pub users: Vec<u32>,
    /// A group whose processes may, too.
    pub group: Option<u32>,
    /// What else shows that a client may read everything.
    pub token: Option<AdminToken>,
    /// Pools run as more than one user: one may be no concern of another's.
    pub has_several_users: bool,
    #[serde(skip)]
    /// The settings as they are read; nothing is in it once they have been.
    pub draft: AdminDraft,
}

/// The settings as they are read, one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdminDraft {
    pub(crate) path: Option<PathBuf>,
    pub(crate) owner: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) mode: Option<u32>,
}

/// A token, of which only the hash is stored: neither a log nor a copy of the settings shows it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdminToken([u8; 32]);

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken")
    }
}

impl AdminToken {
    /// The token, if it is fit for one.
    pub fn new(text: &str) -> Option<AdminToken> {
        let fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        let is_fit = TOKEN_CHARS.contains(&text.len()) && text.bytes().all(fit);
        is_fit.then(|| AdminToken(Sha256::digest(text).into()))
    }

    /// The hash (SHA-256).
    pub fn hash(&self) -> &[u8; 32] {
        &self.0
    }

    /// The token in a file, which not everybody may read.
    ///
    /// # Errors
    /// Why there is none; it continues "`admin_token_file` is PATH, which", and shows none of the file.
    pub(crate) fn in_file(path: &Path) -> Result<AdminToken, String> {
        let text = read_small(path).map_err(|why| match why.kind() {
            io::ErrorKind::PermissionDenied if why.raw_os_error().is_none() => why.to_string(),
            _ => format!("cannot be read: {why}"),
        })?;
        AdminToken::new(text.trim_ascii_end())
            .ok_or_else(|| format!("holds no token; expected {TOKEN}, and nothing else"))
    }
}

fn read_small(path: &Path) -> io::Result<String> {
    let mut options = File::options();
    // A FIFO has no end that is waited for.
    let file = options.read(true).custom_flags(O_NONBLOCK).open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    if meta.permissions().mode() & RIGHTS_OF_OTHERS != 0 {
        let why = "everybody may use; take that right away (chmod o= on it)";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    let mut text = String::new();
    file.take(TOKEN_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// The number of a user, by name or number.
pub(crate) fn user(name: &str) -> Option<u32> {
    let by_name = || User::from_name(name).ok().flatten();
    let number = name.parse().ok();
    number.or_else(|| by_name().map(|user| user.uid.as_raw()))
}

pub(crate) fn group(name: &str) -> Option<u32> {
    let by_name = || Group::from_name(name).ok().flatten();
    let number = name.parse().ok();
    number.or_else(|| by_name().map(|group| group.gid.as_raw()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "correct-horse-battery";

    #[test]
    fn a_token_is_shown_nowhere() {
        let token = AdminToken::new(TOKEN).unwrap();
        let shown = format!("{token:?}") + &serde_json::to_string(&token).unwrap();
        assert!(!shown.contains("horse"), "{shown}");
    }

    #[test]
    fn what_can_be_guessed_or_cannot_be_sent_is_no_token() {
        assert!(AdminToken::new("short").is_none());
        assert!(AdminToken::new(&"x".repeat(257)).is_none());
        assert!(AdminToken::new("with a space in its middle").is_none());
    }

    #[test]
    fn a_file_that_everybody_may_read_holds_no_secret() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, format!("{TOKEN}\n")).unwrap();
        let set = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        set(0o644);
        let why = AdminToken::in_file(&path).unwrap_err();
        assert!(why.contains("chmod") && !why.contains("horse"), "{why}");
        set(0o640);
        assert_eq!(
            AdminToken::in_file(&path),
            Ok(AdminToken::new(TOKEN).unwrap())
        );
    }
}
