//! Unix sockets of FastCGI listeners: the file, its owner and who may connect.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use maitred_config::FastcgiListener;
use maitred_os::folder_lookups::look_up;
use maitred_os::guarded;
use maitred_os::sockets;
use maitred_os::sockets::unix::{
    self, FileId, Found, MAX_PATH_BYTES, Rights, SocketFile, bind_unix, remove_stale, who_listens,
};
use maitred_os::users;
use maitred_os::walk::OpenedPath;
use rustix::fs::FileType;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::folder_lock::lock_folder;
use super::{NamedListener, OpenError, backlog, tcp};
use crate::error::Error;

/// The file of a socket that this server made. It is removed on drop.
#[derive(Debug)]
pub struct OwnFile(FileState);

/// The same in serialized form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileState {
    path: PathBuf,
    /// Device and inode. Another file of that name is not ours to change or remove.
    id: FileId,
    /// Who may connect.
    rights: Rights,
}

impl OwnFile {
    /// The socket at `path`, which another program made for this server.
    pub fn found(path: &Path, rights: &Rights) -> Option<OwnFile> {
        let file = SocketFile::at(path).ok()?;
        Some(OwnFile::new(path, &file, rights))
    }

    fn new(path: &Path, file: &SocketFile, rights: &Rights) -> OwnFile {
        OwnFile(FileState { path: path.to_owned(), id: file.id(), rights: rights.clone() })
    }

    /// Restores what the program before an upgrade has written.
    pub fn over(state: FileState) -> OwnFile {
        OwnFile(state)
    }

    /// What the next program of an upgrade needs.
    pub fn state(&self) -> FileState {
        self.0.clone()
    }

    /// Whether the file still exists under its name.
    pub fn is_there(&self) -> bool {
        SocketFile::known(&self.0.path, self.0.id).is_ok()
    }

    /// Changes who may connect, if that differs from the present access.
    ///
    /// # Errors
    /// When the system refuses, or the name belongs to another file by now.
    pub fn set_rights(&mut self, rights: &Rights) -> io::Result<()> {
        if *rights == self.0.rights {
            return Ok(());
        }
        let file = SocketFile::known(&self.0.path, self.0.id)?;
        if !self.0.rights.has_list() && !rights.has_list() {
            file.set_mode(rights.mode)?;
        } else {
            // A mode that is set while there is an access list changes the list.
            file.deny_others()?;
            file.set_mode(rights.mode)?;
        }
        let us = users::current();
        file.give(rights.owner.or(Some(us.uid)), rights.group.or(Some(us.gid)))?;
        if rights.has_list() {
            file.admit(&rights.users, &rights.groups)?;
        }
        self.0.rights = rights.clone();
        Ok(())
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        unix::remove_own(&self.0.path, self.0.id);
    }
}

/// Listens on a Unix socket that is made at `path`. An existing socket is replaced if no process
/// listens on it.
///
/// # Errors
/// Why that is impossible.
pub fn open(
    named: NamedListener<'_>,
    path: &Path,
    rights: &Rights,
    threads: usize,
) -> Result<(Vec<OwnedFd>, Option<OwnFile>), Error> {
    let failed = |why| named.error(OpenError::Bind(why, None));
    let place = guarded::Named::at(path).map_err(failed)?;
    // Two servers that start at once must not take each other's socket for a stale one.
    let _lock = place.open_folder().map(lock_folder);
    if is_stale(named, path)? {
        remove_stale(&place).map_err(failed)?;
    }
    let (socket, file) = bind_unix(path, &place, rights.mode).map_err(failed)?;
    // From here on the file is removed if anything fails.
    let own = OwnFile::new(path, &file, rights);
    give(named, &file, rights)?;
    let listens = sockets::listen(&socket, backlog(named.listener));
    let sockets = listens.and_then(|()| sockets::copies(socket, threads));
    let sockets = sockets.map_err(|why| named.error(OpenError::Listen(why)))?;
    Ok((sockets, Some(own)))
}

/// Why no socket can be made at `path`, as far as that is seen without making one.
pub fn obstacle(named: NamedListener<'_>, path: &Path) -> Option<Error> {
    let failed = |why| named.error(OpenError::Bind(why, None));
    let there = look_up(path, || guarded::Named::at(path)?.look()).map_err(failed);
    let is_socket =
        |there: &OpenedPath| matches!(there.facts.kind(), FileType::Socket | FileType::Symlink);
    match there {
        Err(why) => Some(why),
        Ok(Some(there)) if !is_socket(&there) => Some(failed(Errno::ADDRINUSE.into())),
        Ok(_) => is_stale(named, path).err(),
    }
}

/// Whether a socket is at `path` on which no process listens.
fn is_stale(named: NamedListener<'_>, path: &Path) -> Result<bool, Error> {
    match who_listens(path) {
        Ok(Found::Nothing) => Ok(false),
        Ok(Found::Stale) => Ok(true),
        Ok(Found::Living(pid)) => Err(named.error(OpenError::Taken(pid.and_then(process)))),
        Err(why) => Err(named.error(OpenError::Bind(why, None))),
    }
}

/// Sets owner and group, or an access list. The mode is set already.
fn give(named: NamedListener<'_>, file: &SocketFile, rights: &Rights) -> Result<(), Error> {
    if rights.has_list() {
        let admitted = file.admit(&rights.users, &rights.groups);
        return admitted.map_err(|why| named.error(OpenError::AccessList(why)));
    }
    if rights.owner.is_none() && rights.group.is_none() {
        return Ok(());
    }
    let given = file.give(rights.owner, rights.group);
    given.map_err(|why| named.error(OpenError::Owner(why)))
}

/// Who may connect to a listener at `path`, with names looked up. An access list replaces owner and
/// group; an owner without a group brings its primary group
/// (`fpm_unix_resolve_socket_permissions`).
///
/// # Errors
/// A path that is too long for a socket, or the first user or group that does not exist.
pub fn rights(named: NamedListener<'_>, path: &Path) -> Result<Rights, Error> {
    use std::os::unix::ffi::OsStrExt;
    let bytes = path.as_os_str().as_bytes().len();
    if bytes > MAX_PATH_BYTES {
        return Err(named.error(OpenError::TooLong(bytes)));
    }
    let FastcgiListener { owner, group, mode, acl_users, acl_groups, .. } = named.listener;
    let user = |name: &String| {
        let found = users::owner_named(name);
        found.map_err(|_| named.error(OpenError::NoUser(name.clone())))
    };
    let group_named = |name: &String| {
        let found = users::group_named(name);
        found.map_err(|_| named.error(OpenError::NoGroup(name.clone())))
    };
    let mut rights = Rights { mode: *mode, ..Rights::default() };
    if !acl_users.is_empty() || !acl_groups.is_empty() {
        for name in acl_users {
            rights.users.push(user(name)?.0);
        }
        for name in acl_groups {
            rights.groups.push(group_named(name)?);
        }
        return Ok(rights);
    }
    if let Some(name) = owner {
        let (uid, gid) = user(name)?;
        (rights.owner, rights.group) = (Some(uid), gid);
    }
    if let Some(name) = group {
        rights.group = Some(group_named(name)?);
    }
    Ok(rights)
}

/// A process, as log lines name it.
fn process(pid: i32) -> Option<String> {
    let name = maitred_os::proc::read(pid, "comm")?;
    Some(tcp::describe(name.trim(), pid))
}

/// Removes the file of a closed socket, if it is a socket.
pub fn remove(path: &Path) {
    if let Ok(Found::Stale) = who_listens(path)
        && let Ok(place) = guarded::Named::at(path)
    {
        let _ = unix::remove_stale(&place);
    }
}
