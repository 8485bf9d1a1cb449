//! The store of an authority: the account, and a file for each host with its key and its chain.
//! Every file is written under another name and renamed, and only its owner can read it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use maitred_config::Acme;
use maitred_control::acme::{MAX_ACCOUNT_BYTES, Secret};
use maitred_os::guarded::Named;
use maitred_os::users;
use maitred_os::walk::{self, Rule};
use maitred_tls::{Fault, Pair};

use crate::tls::certificates::read_file;

/// Folder of root's state.
const ROOT_FOLDER: &str = "/var/lib/maitred/acme";

/// Longest name of an authority's folder, in bytes.
const MAX_NAME_BYTES: usize = 120;

/// Modes of our folders and files.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

const ACCOUNT: &str = "account.json";

/// The folder of one authority. Another one (a test authority, say) has its own.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// One in this folder.
    #[cfg(test)]
    pub fn at(folder: &Path) -> Store {
        Store { folder: folder.to_owned() }
    }

    /// The folder for the authority of these settings.
    pub fn of(acme: &Acme) -> Store {
        let folder = acme.folder.clone().unwrap_or_else(default_folder);
        Store { folder: folder.join(authority(&acme.directory)) }
    }

    /// Its path.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file of a host. Host names have no slash.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.pem"))
    }

    /// The stored certificate of a host, if there is one.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn load(&self, name: &str) -> Result<Option<Pair>, Fault> {
        let path = self.file(name);
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            _ => {}
        }
        let both = read_file(&path)?;
        Ok(Some(Pair::new(both.clone(), both)))
    }

    /// Stores a host's key and chain.
    ///
    /// # Errors
    /// When it cannot be written; the file before it stays.
    pub fn save(&self, name: &str, text: &str) -> io::Result<()> {
        self.write(&self.file(name), text)
    }

    /// The stored account.
    pub fn account(&self) -> Option<Secret> {
        let path = self.folder.join(ACCOUNT);
        let file = walk::open_to_read(&path, Rule::of_reader()).ok()?;
        let is_short = file.metadata().ok()?.len() <= MAX_ACCOUNT_BYTES as u64;
        let text = is_short.then(|| io::read_to_string(file).ok()).flatten()?;
        (!text.is_empty()).then_some(Secret(text))
    }

    /// Stores the account.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save_account(&self, Secret(text): &Secret) -> io::Result<()> {
        self.write(&self.folder.join(ACCOUNT), text)
    }

    /// Whether the store is writable: nothing is ordered that would be lost.
    ///
    /// # Errors
    /// Why not.
    pub fn prove_writable(&self) -> io::Result<()> {
        let path = self.folder.join("probe");
        self.write(&path, "")?;
        fs::remove_file(path)
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        if let Some(there) = self.folder.ancestors().find(|folder| folder.exists()) {
            refuse_shared(&there.join(ACCOUNT))?;
        }
        self.make_folder()?;
        refuse_shared(path)?;
        let beside = path.with_extension(format!("new-{}", std::process::id()));
        let written = write_new(&beside, text).and_then(|()| fs::rename(&beside, path));
        if written.is_err() {
            let _ = fs::remove_file(&beside);
        }
        written?;
        File::open(&self.folder)?.sync_all()
    }

    fn make_folder(&self) -> io::Result<()> {
        if self.folder.is_dir() {
            return Ok(());
        }
        let ours = self.folder.parent();
        if let Some(above) = ours.and_then(Path::parent) {
            fs::create_dir_all(above)?;
        }
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(FOLDER_MODE);
        builder.create(&self.folder)
    }
}

/// Root's private keys are not written where other users could remove or redirect them.
fn refuse_shared(path: &Path) -> io::Result<()> {
    match Named::at(path)?.is_shared() {
        false => Ok(()),
        true => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "others than root may write to a folder on the way to it; keep certificates in one \
             that is root's alone",
        )),
    }
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    // A file left by a process of the same number is stale.
    let _ = fs::remove_file(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn default_folder() -> PathBuf {
    if users::is_root() {
        return PathBuf::from(ROOT_FOLDER);
    }
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.filter(|folder| folder.is_absolute());
    let state = state.unwrap_or_else(|| Path::new(&users::current().home).join(".local/state"));
    state.join("maitred/acme")
}

/// An authority's URL as the name of a folder.
fn authority(directory: &str) -> String {
    let rest = directory.strip_prefix("https://").unwrap_or(directory);
    let plain = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' => c,
        _ => '-',
    };
    let name: String = rest.chars().map(plain).take(MAX_NAME_BYTES).collect();
    name.trim_start_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn every_authority_has_a_folder_of_its_own() {
        let name = authority(maitred_config::LETS_ENCRYPT);
        assert_eq!(name, "acme-v02.api.letsencrypt.org-directory");
        assert_eq!(authority("https://../../etc"), "-..-etc");
        assert_eq!(authority("https://127.0.0.1:14000/dir"), "127.0.0.1-14000-dir");
    }

    #[test]
    fn what_is_kept_only_its_owner_can_read_and_nothing_lies_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store { folder: folder.path().join("state/acme/authority") };
        assert_eq!(store.account(), None);
        assert!(store.load("shop.example.com").unwrap().is_none());
        store.prove_writable().unwrap();
        store.save("shop.example.com", "first").unwrap();
        store.save("shop.example.com", "second").unwrap();
        store.save_account(&Secret("account".to_owned())).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(store.folder()), 0o700);
        assert_eq!(mode(&store.file("shop.example.com")), 0o600);
        let kept = store.load("shop.example.com").unwrap().unwrap();
        assert_eq!(kept.key.text, "second");
        assert_eq!(store.account(), Some(Secret("account".to_owned())));
        assert_eq!(fs::read_dir(store.folder()).unwrap().count(), 2);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let store = Store { folder: file.path().join("acme/authority") };
        assert!(store.prove_writable().is_err());
    }
}
