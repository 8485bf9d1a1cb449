//! Folders for the temporary files and the sessions of pools' users, which no other user can read.
//! The zygote divides its folder, as that user (`worker/src/private_folder.rs`).

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use maitred_config::{Config, Pool, PrivateDir, Section};
use maitred_control::{PrivateFolder, ZygoteSettings};
use maitred_os::users::{self, Identity};
use tracing::{error, warn};

use super::{folder_owner, identity};
use crate::error::Error;

/// The state directory of a service, if systemd has made one.
const STATE_VARIABLE: &str = "STATE_DIRECTORY";

/// The state directory otherwise.
const STATE: &str = "/var/lib/maitred";

/// The folder in it.
const USERS: &str = "users";

/// Modes of the state directory and the folder of all users, and of the folder of one.
const PARENT_MODE: u32 = 0o711;
const FOLDER_MODE: u32 = 0o700;

/// Folders in which packages of PHP have all users' sessions.
const SHARED_SESSIONS: [&str; 2] = ["/var/lib/php/sessions", "/var/lib/php/session"];

/// Most entries of such a folder that are looked at.
const MAX_ENTRIES: usize = 100_000;

/// The folder of a pool's user; none: the pool uses those of PHP's settings. A root directory of
/// the pool's own contains them already, and with php-fpm's configuration all is as with php-fpm.
pub fn of_pool(pool: &Pool, config: &Config, user: Option<&Identity>) -> Option<PrivateFolder> {
    let user = user.filter(|_| config.fpm.is_none() && pool.confinement.chroot.is_none())?;
    let several = config.admin_access.has_several_users;
    let (parent, is_required) = match &config.private_dir {
        PrivateDir::Auto if several => (state_directory().join(USERS), false),
        PrivateDir::At(directory) => (directory.clone(), true),
        PrivateDir::Auto | PrivateDir::Off => return None,
    };
    Some(PrivateFolder { path: parent.join(user.uid.to_string()), is_required })
}

/// The folder with the folders of pools' users that a server with this configuration makes; none:
/// it makes none, or `private_dir` names it. It is made if it is absent.
///
/// # Errors
/// When it cannot be made, or is not root's alone.
pub fn make_users_folder(config: &Config) -> io::Result<Option<PathBuf>> {
    let is_ours = config.private_dir == PrivateDir::Auto && identity::has_several_users(config);
    let folder = Some(state_directory().join(USERS)).filter(|_| is_ours);
    folder.as_deref().map_or(Ok(()), prepare_parent)?;
    Ok(folder)
}

/// A `private_dir` in which no pool's user can have a folder.
pub fn mistakes(config: &Config) -> Vec<Error> {
    let PrivateDir::At(directory) = &config.private_dir else { return Vec::new() };
    let is_used = |pool: &Pool| pool.confinement.chroot.is_none();
    if !users::is_root() || config.fpm.is_some() || !config.pools.iter().any(is_used) {
        return Vec::new();
    }
    let why = match of_root_alone(directory) {
        Ok(()) => return Vec::new(),
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            format!("does not exist; create it with `install -d -m 711 {}`", directory.display())
        }
        Err(why) => format!("cannot be used: {why}"),
    };
    let said = format!("the `private_dir` {} {why}", directory.display());
    vec![Error::Setting { section: Section::Server, setting: "private_dir", said }]
}

/// The folder of the server's state: that of its unit, or else root's.
pub fn state_directory() -> PathBuf {
    // Of several, the first is the one that the unit names first.
    let all = std::env::var_os(STATE_VARIABLE);
    let first = all.as_deref().and_then(|all| std::env::split_paths(OsStr::new(all)).next());
    first.filter(|path| path.is_absolute()).unwrap_or_else(|| STATE.into())
}

/// Makes the folder of a zygote that is about to start, or removes it from the settings. Without a
/// required folder, the zygote does not start PHP.
pub fn provide(settings: &mut ZygoteSettings) {
    let (Some(folder), Some(user)) = (&settings.private_folder, &settings.identity) else {
        return;
    };
    let (path, pool) = (folder.path.display(), &settings.pool);
    match make(folder, user) {
        Ok(true) => warn_of_sessions(&folder.path, user),
        Ok(false) => {}
        Err(why) if folder.is_required => {
            error!("pool `{pool}` has no folder of its own, {path}: {why}");
        }
        Err(why) => {
            warn!(
                "pool `{pool}` has no folder of its own, {path}: {why}; its temporary files and \
                 sessions are in the folders of php.ini, which other users may share; set \
                 `private_dir` to another directory, or to \"off\""
            );
            settings.private_folder = None;
        }
    }
}

/// Makes a user's folder and those above it. True if it did not exist.
fn make(folder: &PrivateFolder, user: &Identity) -> io::Result<bool> {
    let parent = folder.path.parent().unwrap_or(Path::new("/"));
    match folder.is_required {
        true => of_root_alone(parent)?,
        false => prepare_parent(parent)?,
    }
    folder_owner::set_former_aside(&folder.path, user)?;
    let is_new = make_own(folder, user)?;
    folder_owner::note(&folder.path, user);
    Ok(is_new)
}

fn make_own(folder: &PrivateFolder, user: &Identity) -> io::Result<bool> {
    let made = DirBuilder::new().mode(FOLDER_MODE).create(&folder.path);
    match made {
        Ok(()) => {
            std::os::unix::fs::lchown(&folder.path, Some(user.uid), Some(user.gid))?;
            return Ok(true);
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let found = fs::symlink_metadata(&folder.path)?;
    match found.is_dir() && found.uid() == user.uid {
        true => Ok(false),
        false => Err(io::Error::other(format!("it is not a folder of user `{}`", user.name))),
    }
}

/// Makes the folder in the state directory.
fn prepare_parent(parent: &Path) -> io::Result<()> {
    parent.parent().map_or(Ok(()), open_up)?;
    open_up(parent)?;
    of_root_alone(parent)
}

/// Whether a folder belongs to root and no other user can write to it.
fn of_root_alone(folder: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(folder)?;
    match found.is_dir() && found.uid() == 0 && found.mode() & 0o022 == 0 {
        true => Ok(()),
        false => {
            let said = format!("only root may own {} and write to it", folder.display());
            Err(io::Error::other(said))
        }
    }
}

/// Makes a folder of root that users can reach what is below, and cannot list it. Packages before
/// this version made the state directory for root alone.
fn open_up(folder: &Path) -> io::Result<()> {
    match fs::symlink_metadata(folder) {
        Ok(found) if found.uid() != 0 || found.mode() & 0o001 != 0 => return Ok(()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(PARENT_MODE).create(folder)?;
        }
        Err(error) => return Err(error),
    }
    // The mode of a new one depends on the umask.
    fs::set_permissions(folder, Permissions::from_mode(PARENT_MODE))
}

/// Warns of sessions that the user's pools read no longer.
fn warn_of_sessions(folder: &Path, user: &Identity) {
    let is_session = |entry: &fs::DirEntry| {
        entry.file_name().as_encoded_bytes().starts_with(b"sess_")
            && entry.metadata().is_ok_and(|found| found.uid() == user.uid)
    };
    for shared in SHARED_SESSIONS {
        let entries = fs::read_dir(shared).into_iter().flatten().flatten().take(MAX_ENTRIES);
        let count = entries.filter(is_session).count();
        if count > 0 {
            let (name, path) = (&user.name, folder.display());
            warn!(
                "user `{name}` has {count} sessions in {shared}, which PHP reads no longer: those \
                 of its pools are in {path}/sessions from now on, where other users cannot read \
                 them; `find {shared} -name 'sess_*' -user {name} -exec mv -t {path}/sessions \
                 {{}} +` moves them, and `private_dir = \"off\"` undoes the change"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        let text = format!("{text}\n[[sites]]\nhosts = [\"*\"]\nroot = \"/\"\npool = \"a\"");
        let mut config = maitred_config::parse(&text, Path::new("/maitred.toml")).unwrap();
        config.admin_access.has_several_users = config.pools.len() > 1;
        config
    }

    fn user() -> Identity {
        Identity { name: "shop".to_owned(), uid: 1001, gid: 1001, home: "/".to_owned() }
    }

    fn path(config: &Config) -> Option<String> {
        let folder = of_pool(config.pool("a")?, config, Some(&user()))?;
        Some(folder.path.display().to_string())
    }

    #[test]
    fn pools_of_several_users_have_folders_and_those_of_one_user_have_none() {
        let both = config("[pools.a]\n[pools.b]");
        assert_eq!(path(&both).as_deref(), Some("/var/lib/maitred/users/1001"));
        assert_eq!(of_pool(&both.pools[0], &both, None), None, "it is not started as root");
        assert_eq!(path(&config("[pools.a]")), None);
    }

    #[test]
    fn private_dir_says_where_the_folders_are_and_off_that_there_are_none() {
        assert_eq!(path(&config("private_dir = \"/srv\"\n[pools.a]")).unwrap(), "/srv/1001");
        assert_eq!(path(&config("private_dir = \"off\"\n[pools.a]\n[pools.b]")), None);
    }

    /// A folder below a directory of root's; none, with a message, without root.
    fn below(directory: &tempfile::TempDir) -> Option<PrivateFolder> {
        if !users::is_root() {
            eprintln!("skipped: only root makes folders of others");
            return None;
        }
        Some(PrivateFolder { path: directory.path().join("1"), is_required: true })
    }

    /// A user with the number that the user `daemon` has on every machine.
    fn named(name: &str) -> Identity {
        Identity { name: name.to_owned(), uid: 1, gid: 1, home: "/".to_owned() }
    }

    #[test]
    fn sessions_of_a_deleted_user_are_not_those_of_the_next_one_with_its_number() {
        let directory = tempfile::tempdir().unwrap();
        let Some(folder) = below(&directory) else { return };
        let session = |folder: &str| directory.path().join(folder).join("sess_x");
        for (name, former) in [("first-shop", "1.former-1"), ("other-shop", "1.former-3")] {
            assert!(make(&folder, &named(name)).unwrap(), "{name} gets a new one");
            fs::write(session("1"), name).unwrap();
            assert!(!make(&folder, &named(name)).unwrap() && session("1").exists(), "{name}");
            assert!(make(&folder, &named("third-shop")).unwrap());
            assert!(!session("1").exists());
            assert_eq!(fs::read_to_string(session(former)).unwrap(), name);
            let aside = fs::metadata(directory.path().join(former)).unwrap();
            assert_eq!((aside.uid(), aside.mode() & 0o777), (0, 0o700));
        }
        assert_eq!(fs::metadata(&folder.path).unwrap().uid(), 1);
        assert_eq!(fs::metadata(directory.path().join("1.user")).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_user_with_several_names_or_none_and_one_whose_folder_has_no_note_keep_their_sessions() {
        let directory = tempfile::tempdir().unwrap();
        let Some(folder) = below(&directory) else { return };
        for (note, name) in [("daemon", "alias"), ("other-shop", "1"), ("", "shop")] {
            make(&folder, &named(name)).unwrap();
            fs::write(directory.path().join("1.user"), note).unwrap();
            assert!(!make(&folder, &named(name)).unwrap(), "{note}, {name}");
        }
        fs::remove_dir(&folder.path).unwrap();
        assert!(make(&folder, &named("next-shop")).unwrap(), "there was only a note");
        assert_eq!(fs::read_to_string(directory.path().join("1.user")).unwrap(), "next-shop");
    }

    #[test]
    fn a_pool_with_a_root_of_its_own_needs_none() {
        assert_eq!(path(&config("[pools.a]\nchroot = \"/\"\n[pools.b]")), None);
    }
}
