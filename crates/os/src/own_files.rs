//! Files in a folder that is this process's own: what another user or another program has put there
//! under their names is neither read nor waited for.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid, getgroups};

/// The user and the group of root.
const ROOT: u32 = 0;

/// Opens a regular file of this process's user. It does not block on a FIFO, and follows no link.
///
/// # Errors
/// When there is none; see [`is_foreign`] for one of another type or user.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let meta = file.metadata()?;
    let is_own = meta.is_file() && meta.uid() == geteuid().as_raw();
    if is_own { Ok(file) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Whether the error says that the path is no regular file of this user: a link, a FIFO, a socket,
/// another user's file, other content.
pub fn is_foreign(error: &io::Error) -> bool {
    let of_others = [Errno::LOOP, Errno::NXIO].map(|errno| Some(errno.raw_os_error()));
    error.kind() == io::ErrorKind::InvalidData || of_others.contains(&error.raw_os_error())
}

/// The content of such a file; none if there is no file.
///
/// # Errors
/// When it cannot be read, or has more than `most` bytes.
pub fn read(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(Some(bytes))
}

/// Creates a new file with mode 0600. An existing one with this name is left over from an earlier
/// process, and is replaced.
///
/// # Errors
/// When it cannot be created.
pub fn create(path: &Path) -> io::Result<File> {
    let open = || {
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o600).open(path)
    };
    match open() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => fs::remove_file(path)?,
        other => return other,
    }
    open()
}

/// Replaces the content of a file as a whole.
///
/// # Errors
/// When it cannot be written; the content before stays.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    create(&new)?.write_all(content)?;
    fs::rename(&new, path)
}

/// Checks that no other user can put files into a folder.
///
/// # Errors
/// When one can, or there is no folder.
pub fn check_folder(dir: &Path) -> io::Result<()> {
    let meta = fs::metadata(dir)?;
    let (uid, gid) = (meta.uid(), meta.gid());
    let has_group = gid == getegid().as_raw()
        || getgroups().is_ok_and(|groups| groups.iter().any(|group| group.as_raw() == gid));
    // Only root gives a folder to root's group, as images for any user have it.
    let is_owned = [ROOT, geteuid().as_raw()].contains(&uid) || gid == ROOT;
    let is_closed = meta.mode() & 0o002 == 0;
    let is_of_group = meta.mode() & 0o020 == 0 || has_group || gid == ROOT;
    if is_owned && is_closed && is_of_group {
        return Ok(());
    }
    let mode = meta.mode() & 0o7777;
    Err(io::Error::other(format!(
        "another user may write there (owner {uid}, group {gid}, mode {mode:04o})"
    )))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    #[test]
    fn only_a_regular_file_of_this_user_is_read_and_no_fifo_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        assert_eq!(read(&path, 5).unwrap(), None);
        replace(&path, b"12345").unwrap();
        assert_eq!(read(&path, 5).unwrap().unwrap(), b"12345");
        assert_eq!(read(&path, 4).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        let link = dir.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(is_foreign(&read(&link, 5).unwrap_err()));
        let fifo = dir.path().join("fifo");
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(is_foreign(&read(&fifo, 5).unwrap_err()));
        if geteuid().is_root() {
            chown(&path, Some(12345), None).unwrap();
            assert!(is_foreign(&read(&path, 5).unwrap_err()));
        }
    }

    #[test]
    fn a_name_that_another_takes_is_replaced_and_not_written_through() {
        let dir = tempfile::tempdir().unwrap();
        let [path, secret] = ["file", "secret"].map(|name| dir.path().join(name));
        fs::write(&secret, "secret").unwrap();
        symlink(&secret, dir.path().join("file.new")).unwrap();
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read(&secret).unwrap(), b"secret");
    }

    #[test]
    fn a_folder_that_another_user_may_write_to_is_none_of_our_own() {
        let dir = tempfile::tempdir().unwrap();
        let with = |mode| {
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
            check_folder(dir.path())
        };
        assert!(with(0o700).is_ok() && with(0o755).is_ok() && with(0o775).is_ok());
        let why = with(0o777).unwrap_err().to_string();
        assert!(why.contains("mode 0777"), "{why}");
        if geteuid().is_root() {
            chown(dir.path(), None, Some(12345)).unwrap();
            assert!(with(0o755).is_ok() && with(0o775).is_err());
            chown(dir.path(), Some(12345), None).unwrap();
            assert!(with(0o755).is_err());
            chown(dir.path(), None, Some(ROOT)).unwrap();
            assert!(with(0o775).is_ok());
        }
    }
}
