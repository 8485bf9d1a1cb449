//! Access rights for metrics and status pages over HTTP (`admin`).

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::libc::O_NONBLOCK;
use nix::unistd::{Group, User};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::model::listener::FastcgiListener;

/// Bounds of a token's length in characters. Sixteen random ones cannot be guessed.
const TOKEN_CHARS: std::ops::RangeInclusive<usize> = 16..=256;

/// Most bytes of a file with a token; whitespace at its end is not part of the token.
const TOKEN_FILE_BYTES: u64 = 4096;

/// The permissions of other users.
const RIGHTS_OF_OTHERS: u32 = 0o007;

/// The syntax of a token (RFC 6750 §2.1), for error texts.
pub(crate) const TOKEN: &str = "16 to 256 letters, digits or characters of -._~+/=";

/// Longest `admin_url`, in bytes.
const MAX_URL_BYTES: usize = 160;

/// Whether this is `http` or `https`, a host and perhaps a port, and nothing else: a browser can do
/// no more with it than open it.
pub fn is_origin(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    let is_host = |rest: &str| {
        rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[')
            && rest.chars().all(is_plain)
    };
    url.len() <= MAX_URL_BYTES && rest.is_some_and(is_host)
}

/// Access rights on the admin listener.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdminAccess {
    /// The Unix socket, if `admin` is a path.
    pub socket: Option<FastcgiListener>,
    /// Users other than root with access to everything over the socket.
    pub users: Vec<u32>,
    /// A group with access to everything over the socket.
    pub group: Option<u32>,
    /// The token that allows a client to read everything.
    pub token: Option<AdminToken>,
    /// The token that allows a client of the dashboard to purge cached pages.
    pub purge_token: Option<AdminToken>,
    /// Where browsers reach the admin listener, for links of other nodes' dashboards.
    pub url: Option<String>,
    /// Whether pools run as different users: their requests must stay hidden from each other.
    pub has_several_users: bool,
    #[serde(skip)]
    /// The draft of the settings; empty once they are settled.
    pub draft: AdminDraft,
}

/// The draft of the settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdminDraft {
    pub(crate) path: Option<PathBuf>,
    pub(crate) owner: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) mode: Option<u32>,
}

/// A token. Only its hash is stored, so no log and no copy of the settings reveals it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdminToken([u8; 32]);

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken")
    }
}

impl AdminToken {
    /// The token, if `text` is a valid one.
    pub fn new(text: &str) -> Option<AdminToken> {
        let fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        let is_fit = TOKEN_CHARS.contains(&text.len()) && text.bytes().all(fit);
        is_fit.then(|| AdminToken(Sha256::digest(text).into()))
    }

    /// The hash (SHA-256).
    pub fn hash(&self) -> &[u8; 32] {
        &self.0
    }

    /// The token in a file without permissions for other users.
    ///
    /// # Errors
    /// The reason; it continues "`admin_token_file` is PATH, which", and reveals nothing of the
    /// file.
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
    // Do not wait for the writer of a FIFO.
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

/// The user id, by name or number.
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
    fn only_a_plain_origin_is_an_address() {
        for good in ["http://10.0.0.11:9180", "https://node1.example", "http://[2001:db8::1]:80"] {
            assert!(is_origin(good), "{good}");
        }
        let long = format!("http://{}", "x".repeat(MAX_URL_BYTES));
        let wrong = ["", "http://", "https:/a", "//a", "ftp://a", "http://a/", "http://a@b"];
        let also = ["http://a b", "http://:80", "javascript:alert(1)", "http://a?b", "http://a\"b"];
        for wrong in wrong.into_iter().chain(also).chain([long.as_str()]) {
            assert!(!is_origin(wrong), "{wrong}");
        }
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
        assert_eq!(AdminToken::in_file(&path), Ok(AdminToken::new(TOKEN).unwrap()));
    }
}
