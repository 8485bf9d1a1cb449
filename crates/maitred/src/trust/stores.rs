//! The stores of trusted authorities on this machine: the system's, as Debian and Ubuntu manage it
//! (update-ca-certificates(8)), and the NSS databases of Chromium and Firefox (certutil(1)).

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use maitred_os::guarded;
use maitred_os::users;
use maitred_tls::AUTHORITY_NAME;

use super::limited_command::output;

/// The folder of authorities that the administrator adds to the system's store.
const LOCAL_CERTIFICATES: &str = "/usr/local/share/ca-certificates";

/// The folder with links to all authorities that the system trusts.
const TRUSTED_CERTIFICATES: &str = "/etc/ssl/certs";

/// Where the program that updates the system's store may be: not in the `PATH` of ordinary users.
const UPDATERS: [&str; 2] = ["/usr/sbin/update-ca-certificates", "/usr/bin/update-ca-certificates"];

/// Mode of the certificate in the system's store: every program reads it.
const CERTIFICATE_MODE: u32 = 0o644;

/// The file of an NSS database with its certificates.
const NSS_FILE: &str = "cert9.db";

/// Folders of NSS databases in a home folder: those of Chromium and Chrome, and of Firefox, also
/// as a snap or a flatpak.
const NSS_FOLDERS: [&str; 5] = [
    ".pki/nssdb",
    "snap/chromium/current/.pki/nssdb",
    ".mozilla/firefox/*",
    "snap/firefox/common/.mozilla/firefox/*",
    ".var/app/org.mozilla.firefox/.mozilla/firefox/*",
];

/// Most databases that are changed.
const MAX_DATABASES: usize = 32;

/// Most authorities that are removed from a database: one for each that was made.
const MAX_REMOVED: usize = 32;

/// The package with `certutil` on Debian and Ubuntu.
const CERTUTIL_PACKAGE: &str = "libnss3-tools";

/// The certificate of an authority.
#[derive(Debug, Clone, Copy)]
pub struct TrustedCertificate<'a> {
    /// The authority's name.
    pub name: &'a str,
    /// The identifier in its name.
    pub id: &'a str,
    /// Its file.
    pub file: &'a Path,
}

/// A store of trusted authorities.
#[derive(Debug, PartialEq, Eq)]
pub enum Store {
    /// The system's; the program that updates it.
    System(&'static str),
    /// An NSS database: its folder.
    Browser(PathBuf),
}

/// What has become of a change.
#[derive(Debug, PartialEq, Eq)]
pub enum Change {
    /// It is as wanted.
    Done,
    /// It is for root: a command line.
    ForRoot(String),
}

/// The system's store, if this is a system whose store is known.
pub fn system() -> Option<Store> {
    let updater = UPDATERS.into_iter().find(|path| Path::new(path).exists())?;
    Some(Store::System(updater))
}

/// The stores of browsers with a profile in this home folder.
pub fn browsers(home: &Path) -> Vec<Store> {
    let home = glob::Pattern::escape(&home.to_string_lossy());
    let patterns = NSS_FOLDERS.iter().map(|folder| format!("{home}/{folder}/{NSS_FILE}"));
    let files = patterns.filter_map(|pattern| glob::glob(&pattern).ok()).flatten();
    let folders = files.filter_map(|file| Some(file.ok()?.parent()?.to_path_buf()));
    folders.take(MAX_DATABASES).map(Store::Browser).collect()
}

impl Store {
    /// Its name in messages.
    pub fn title(&self) -> String {
        match self {
            Store::System(_) => "the system's store (curl, PHP and other programs)".to_owned(),
            Store::Browser(folder) => format!("the browser's store {}", folder.display()),
        }
    }

    /// Whether programs that use it trust this authority.
    pub fn trusts(&self, certificate: TrustedCertificate<'_>) -> bool {
        match self {
            Store::System(_) => {
                let link = Path::new(TRUSTED_CERTIFICATES).join(file_name(certificate.id, "pem"));
                link.is_file()
            }
            Store::Browser(folder) => {
                output("certutil", &["-L", "-d", &database(folder), "-n", certificate.name]).is_ok()
            }
        }
    }

    /// Adds an authority.
    ///
    /// # Errors
    /// One sentence.
    pub fn add(&self, certificate: TrustedCertificate<'_>) -> Result<Change, String> {
        let file = certificate.file.to_string_lossy();
        match self {
            Store::System(updater) => {
                let target = local_certificate(certificate.id);
                if !users::is_root() {
                    let target = target.display();
                    return Ok(Change::ForRoot(format!(
                        "sudo install -D -m 644 {} {target} && sudo {updater}",
                        quoted(&file)
                    )));
                }
                let copied = fs::read(certificate.file).and_then(|text| copy(&text, &target));
                copied.map_err(|why| format!("{} cannot be written: {why}", target.display()))?;
                output(updater, &[])?;
            }
            Store::Browser(folder) => {
                let database = database(folder);
                let name = ["-n", certificate.name];
                let trust = ["-A", "-d", &database, "-t", "C,,", "-i", &file];
                output("certutil", &[&trust[..], &name].concat()).map_err(advised)?;
            }
        }
        Ok(Change::Done)
    }

    /// Removes an authority, from the store of a browser all that were added for this user. It is
    /// no error if it has none.
    ///
    /// # Errors
    /// One sentence.
    pub fn remove(&self, id: Option<&str>) -> Result<Change, String> {
        match self {
            Store::System(updater) => match id {
                Some(id) => remove_from_system(updater, &local_certificate(id)),
                None => expect_none(updater),
            },
            Store::Browser(folder) => {
                let database = database(folder);
                let all = output("certutil", &["-L", "-d", &database]).map_err(advised)?;
                for name in names(&all).iter().take(MAX_REMOVED) {
                    output("certutil", &["-D", "-d", &database, "-n", name])?;
                }
                Ok(Change::Done)
            }
        }
    }
}

fn remove_from_system(updater: &str, file: &Path) -> Result<Change, String> {
    if !file.exists() {
        return Ok(Change::Done);
    }
    if !users::is_root() {
        let file = file.display();
        return Ok(Change::ForRoot(format!("sudo rm {file} && sudo {updater} --fresh")));
    }
    let removed = fs::remove_file(file);
    removed.map_err(|why| format!("{} cannot be removed: {why}", file.display()))?;
    // Without this the links to removed certificates stay.
    output(updater, &["--fresh"])?;
    Ok(Change::Done)
}

/// All users share the system's store: without its identifier, this user's authority is not known.
fn expect_none(updater: &str) -> Result<Change, String> {
    let pattern = local_certificate("*");
    let found = glob::glob(&pattern.to_string_lossy()).ok().into_iter().flatten();
    let found: Vec<String> =
        found.take(MAX_REMOVED).flatten().map(|file| file.display().to_string()).collect();
    match found.as_slice() {
        [] => Ok(Change::Done),
        found => Err(format!(
            "which of its authorities was yours is not known without its files; remove {} by hand, \
             and run {updater} --fresh",
            found.join(" or ")
        )),
    }
}

fn copy(text: &[u8], target: &Path) -> io::Result<()> {
    if let Some(folder) = target.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = guarded::replace(target, CERTIFICATE_MODE)?;
    io::Write::write_all(&mut file, text)?;
    // Whatever the umask of this process is.
    file.set_permissions(fs::Permissions::from_mode(CERTIFICATE_MODE))
}

fn local_certificate(id: &str) -> PathBuf {
    Path::new(LOCAL_CERTIFICATES).join(file_name(id, "crt"))
}

fn file_name(id: &str, ending: &str) -> String {
    format!("maitred-development-{id}.{ending}")
}

/// A database as `certutil` names it.
fn database(folder: &Path) -> String {
    format!("sql:{}", folder.display())
}

/// A path as one word of a shell.
fn quoted(path: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@".contains(c);
    match path.chars().all(is_plain) {
        true => path.to_owned(),
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

/// The names of our authorities in a list of `certutil`.
fn names(list: &str) -> Vec<String> {
    let ours = list.lines().filter_map(|line| line.strip_prefix(AUTHORITY_NAME));
    let ids = ours.filter_map(|rest| rest.split_whitespace().next());
    ids.map(|id| format!("{AUTHORITY_NAME} {id}")).collect()
}

/// An error of `certutil`, with the package that has it.
fn advised(why: String) -> String {
    match why.contains("cannot be run: No such file") {
        true => format!("certutil is not installed; apt-get install {CERTUTIL_PACKAGE}"),
        false => why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_are_those_with_a_database_in_the_home_folder() {
        let home = tempfile::tempdir().unwrap();
        let profile = home.path().join(".mozilla/firefox/abc.default [1]");
        for folder in [profile.clone(), home.path().join(".pki/nssdb")] {
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(NSS_FILE), "").unwrap();
        }
        fs::create_dir_all(home.path().join(".mozilla/firefox/empty")).unwrap();
        let found = browsers(home.path());
        assert_eq!(
            found,
            [Store::Browser(home.path().join(".pki/nssdb")), Store::Browser(profile)]
        );
    }

    #[test]
    fn our_authorities_are_found_in_a_list_of_certutil() {
        let list = "\nCertificate Nickname             Trust Attributes\n\
                    \n\
                    maitred development authority 1a2b3c4d       C,,  \n\
                    another authority                            C,,  \n";
        assert_eq!(names(list), ["maitred development authority 1a2b3c4d"]);
    }

    #[test]
    fn a_path_is_one_word_of_a_shell() {
        assert_eq!(quoted("/home/ann/ca.pem"), "/home/ann/ca.pem");
        assert_eq!(quoted("/home/an o'n/ca.pem"), r"'/home/an o'\''n/ca.pem'");
    }
}
