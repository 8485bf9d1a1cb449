//! The secret of nodes that pass purges on without Redis, and the key that is derived from it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use maitred_config::{Config, PurgeLogPlace, Section};
use maitred_control::acme::Secret;
use maitred_tls::peer_key;

use crate::error::Error;
use crate::system::redis_files::read;

/// Rights of all users.
const OTHERS: u32 = 0o007;

/// The key of the nodes, from a file with their secret.
///
/// # Errors
/// One sentence, when it cannot be read or is too short.
pub fn key_of(path: &Path) -> Result<Secret, String> {
    let key = peer_key(&read(path)?);
    key.map(Secret).map_err(|why| format!("{} {why}", path.display()))
}

fn secret_file(config: &Config) -> Option<&Path> {
    match &config.purge_log.as_ref()?.place {
        PurgeLogPlace::Peers(peers) => Some(&peers.secret_file),
        PurgeLogPlace::Redis { .. } => None,
    }
}

/// The mistake of a secret that cannot be used.
pub fn mistake(config: &Config) -> Option<Error> {
    let said = key_of(secret_file(config)?).err()?;
    let said = format!("`purge_log.secret_file`: {said}");
    Some(Error::Setting { section: Section::Server, setting: "purge_log", said })
}

/// A warning about the file, if users may read or write it who are neither root nor this one.
pub fn note(config: &Config) -> Option<String> {
    let path = secret_file(config)?;
    let file = std::fs::metadata(path).ok()?;
    note_of(
        path,
        Rights { mode: file.mode(), owner: file.uid() },
        rustix::process::geteuid().as_raw(),
    )
}

/// Who may use a file.
struct Rights {
    mode: u32,
    owner: u32,
}

fn note_of(path: &Path, rights: Rights, this_user: u32) -> Option<String> {
    let Rights { mode, owner } = rights;
    let path = path.display();
    if mode & OTHERS != 0 {
        let note =
            format!("every user may use {path}, the secret of all nodes: run `chmod 600 {path}`");
        return Some(note);
    }
    (owner != 0 && owner != this_user).then(|| {
        format!(
            "{path}, the secret of all nodes, belongs to the user {owner}, who may replace it: \
             run `chown root {path}`"
        )
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use maitred_config::{Peers, PurgeLog};

    use super::*;

    #[test]
    fn a_secret_that_is_short_is_a_mistake_and_one_for_every_user_is_warned_of() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let at = |text: &str| text.parse().unwrap();
        let place = PurgeLogPlace::Peers(Peers {
            listen: at("127.0.0.1:1"),
            addresses: vec![at("127.0.0.2:1")],
            secret_file: file.path().to_owned(),
        });
        let (lease, timeout) = (Duration::from_secs(1), Duration::from_secs(1));
        let log = PurgeLog { place, node: None, length: 100, lease, timeout };
        let config = Config { purge_log: Some(log), ..Config::default() };
        let said = mistake(&config).unwrap().to_string();
        assert!(said.contains("holds 0 bytes; expected a random key"), "{said}");
        write(file.path(), "0123456789abcdef0123456789abcdef\n").unwrap();
        assert!(mistake(&config).is_none());
        for (mode, is_warned) in [(0o600, false), (0o640, false), (0o644, true)] {
            set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
            assert_eq!(note(&config).is_some(), is_warned, "{mode:o}");
        }
        for (owner, user, is_warned) in [(0, 33, false), (33, 33, false), (33, 0, true)] {
            let note = note_of(file.path(), Rights { mode: 0o100_600, owner }, user);
            assert_eq!(note.is_some(), is_warned, "{owner} {user}");
        }
    }
}
