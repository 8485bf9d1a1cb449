//! The files of the local authority, in the user's data folder (XDG Base Directory Specification).

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use maitred_config::CertificateFiles;
use maitred_os::guarded::Named;
use maitred_os::users;
use maitred_tls::{CERTIFICATE_AGE, KeyAndCertificate, LocalAuthority, Pair, PemFile};

/// The authority's certificate, in its folder.
const CERTIFICATE: &str = "ca.pem";

/// Its private key.
const KEY: &str = "ca.key";

/// What the files of certificates for an address begin with.
const LEAF_PREFIX: &str = "localhost-";

/// Most files of the folder that are looked at.
const MAX_LEAVES: usize = 1000;

/// Mode of folders that are made: the user's alone. Temporary files have 0600.
const FOLDER_MODE: u32 = 0o700;

/// Bits of a key's mode that give it to others.
const OF_OTHERS: u32 = 0o077;

/// Most bytes of a file that are read: a certificate has less than a thousand.
const MAX_FILE_BYTES: u64 = 16 << 10;

/// The folder of a user's authority.
#[derive(Debug)]
pub struct AuthorityFolder(PathBuf);

/// An authority, and whether it was made just now.
pub struct Found {
    /// The authority.
    pub authority: LocalAuthority,
    /// It was made just now.
    pub is_new: bool,
}

impl AuthorityFolder {
    /// That of the user of this process: `maitred/authority` in `$XDG_DATA_HOME` or
    /// ~/.local/share.
    pub fn of_user() -> AuthorityFolder {
        let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
        let data = data.filter(|folder| folder.is_absolute());
        let data = data.unwrap_or_else(|| home().join(".local/share"));
        AuthorityFolder(data.join("maitred/authority"))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The file with the authority's certificate.
    pub fn certificate(&self) -> PathBuf {
        self.0.join(CERTIFICATE)
    }

    /// The authority; none if there is none yet.
    ///
    /// # Errors
    /// One sentence, if its files cannot be used.
    pub fn read(&self) -> Result<Option<LocalAuthority>, String> {
        if !self.0.exists() {
            return Ok(None);
        }
        let (cert, key) = (self.certificate(), self.0.join(KEY));
        let pair = Pair::new(read_file(&cert)?, read_file(&key)?);
        let mode = fs::metadata(&key).map_err(|why| unreadable(&key, &why))?.permissions().mode();
        if mode & OF_OTHERS != 0 {
            let key = key.display();
            return Err(format!("{key}: others can read this private key; chmod 600 {key}"));
        }
        let authority = LocalAuthority::read(&pair, SystemTime::now());
        authority.map(Some).map_err(|why| {
            let folder = self.0.display();
            format!("{why}; remove {folder}, and another authority is made at the next start")
        })
    }

    /// The authority, which is made if there is none.
    ///
    /// # Errors
    /// One sentence, if its files cannot be used or written.
    pub fn read_or_make(&self) -> Result<Found, String> {
        if let Some(authority) = self.read()? {
            return Ok(Found { authority, is_new: false });
        }
        let made = LocalAuthority::create(SystemTime::now())?;
        let is_new = self.save(&made).map_err(|why| self.unwritable(&why))?;
        match self.read()? {
            Some(authority) => Ok(Found { authority, is_new }),
            None => Err(self.unwritable(&io::ErrorKind::NotFound.into())),
        }
    }

    /// Issues a certificate for localhost and for the hosts of these addresses, in a file of the
    /// first one.
    ///
    /// # Errors
    /// One sentence, if it cannot be issued or written.
    pub fn issue(
        &self,
        authority: &LocalAuthority,
        addresses: &[SocketAddr],
    ) -> Result<CertificateFiles, String> {
        let hosts: Vec<IpAddr> = addresses.iter().map(|one| one.ip().to_canonical()).collect();
        let KeyAndCertificate { key, certificate } = authority.issue(&hosts, SystemTime::now())?;
        let first = addresses.first().map(ToString::to_string).unwrap_or_default();
        let path = self.0.join(format!("{LEAF_PREFIX}{first}.pem"));
        self.remove_expired();
        let write = || -> io::Result<()> {
            refuse_shared(&path)?;
            let mut file = tempfile::NamedTempFile::new_in(&self.0)?;
            file.write_all([key, certificate].concat().as_bytes())?;
            file.persist(&path)?;
            Ok(())
        };
        write().map_err(|why| self.unwritable(&why))?;
        Ok(CertificateFiles { cert: path.clone(), key: path })
    }

    /// Removes the certificates of addresses that were not used for as long as they are valid.
    fn remove_expired(&self) {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten().take(MAX_LEAVES);
        for entry in entries {
            let is_leaf = entry.file_name().to_string_lossy().starts_with(LEAF_PREFIX);
            let written = entry.metadata().and_then(|found| found.modified());
            let age = written.ok().and_then(|written| written.elapsed().ok());
            if is_leaf && age.is_some_and(|age| age > CERTIFICATE_AGE) {
                // One that stays is of no use, and does no harm.
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Writes a new authority. False if another process has made one meanwhile.
    fn save(&self, made: &KeyAndCertificate) -> io::Result<bool> {
        let parent = self.0.parent().ok_or(io::ErrorKind::InvalidInput)?;
        if let Some(there) = parent.ancestors().find(|folder| folder.exists()) {
            refuse_shared(&there.join(CERTIFICATE))?;
        }
        DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(parent)?;
        let mut folder = tempfile::Builder::new();
        folder.permissions(fs::Permissions::from_mode(FOLDER_MODE));
        let folder = folder.prefix(".authority-").tempdir_in(parent)?;
        for (name, text) in [(KEY, &made.key), (CERTIFICATE, &made.certificate)] {
            let mut file = tempfile::NamedTempFile::new_in(folder.path())?;
            file.write_all(text.as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(folder.path().join(name))?;
        }
        match fs::rename(folder.path(), &self.0) {
            Ok(()) => File::open(parent)?.sync_all().map(|()| true),
            // A folder with files is not replaced (rename(2)).
            Err(why) if why.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(false),
            Err(why) => Err(why),
        }
    }

    fn unwritable(&self, why: &io::Error) -> String {
        format!("the certificate authority in {} cannot be written: {why}", self.0.display())
    }
}

/// The home folder of the user of this process.
pub fn home() -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    home.unwrap_or_else(|| PathBuf::from(users::current().home))
}

/// Root's private keys are not written where other users could remove or redirect them.
fn refuse_shared(path: &Path) -> io::Result<()> {
    match Named::at(path)?.is_shared() {
        false => Ok(()),
        true => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "others than root may write to a folder on the way to it; start the server as the user \
             whose folder it is",
        )),
    }
}

fn read_file(path: &Path) -> Result<PemFile, String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut bytes));
    read.map_err(|why| unreadable(path, &why))?;
    Ok(PemFile::new(path.to_path_buf(), &bytes))
}

fn unreadable(path: &Path, why: &io::Error) -> String {
    let folder = path.parent().unwrap_or(path).display();
    let path = path.display();
    format!("{path} cannot be read: {why}; remove {folder}, and another authority is made")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn an_authority_is_made_once_and_only_its_user_can_read_its_files() {
        let data = tempfile::tempdir().unwrap();
        let folder = AuthorityFolder(data.path().join("share/maitred/authority"));
        assert!(folder.read().unwrap().is_none());
        let Found { authority, is_new } = folder.read_or_make().unwrap();
        assert!(is_new);
        let again = folder.read_or_make().unwrap();
        assert_eq!((again.authority.id(), again.is_new), (authority.id(), false));
        let files = folder.issue(&authority, &["127.0.0.1:8443".parse().unwrap()]).unwrap();
        assert_eq!(files.cert, folder.path().join("localhost-127.0.0.1:8443.pem"));
        let expired = File::open(&files.cert).unwrap();
        expired.set_modified(SystemTime::now() - CERTIFICATE_AGE * 2).unwrap();
        let old = files.cert;
        let files = folder.issue(&authority, &["[::1]:8444".parse().unwrap()]).unwrap();
        assert!(!old.exists());
        assert_eq!(mode(folder.path()), 0o700);
        for file in [files.key, folder.certificate(), folder.path().join(KEY)] {
            assert_eq!(mode(&file), 0o600, "{}", file.display());
        }
        assert_eq!(fs::read_dir(folder.path().parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn an_authority_whose_files_are_damaged_or_readable_is_an_error_with_a_remedy() {
        let data = tempfile::tempdir().unwrap();
        let folder = AuthorityFolder(data.path().join("authority"));
        folder.read_or_make().unwrap();
        let key = folder.path().join(KEY);
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        let why = folder.read().err().unwrap();
        assert!(why.contains("others can read this private key; chmod 600 "), "{why}");
        fs::write(folder.certificate(), "nothing").unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let why = folder.read().err().unwrap();
        assert!(
            why.contains("there is no certificate in it") && why.contains("; remove "),
            "{why}"
        );
        fs::remove_file(key).unwrap();
        assert!(folder.read().err().unwrap().contains("ca.key cannot be read: No such file"));
    }
}
