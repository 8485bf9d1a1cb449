//! Unix sockets of doors: who may connect, and whose file it is.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use maitred_config::Door;
use maitred_os::guarded;
use maitred_os::sockets;
use maitred_os::sockets::unix::{
    self, FileId, Found, MAX_PATH_BYTES, Rights, SocketFile, bind_unix, remove_stale, who_listens,
};
use maitred_os::users;
use serde::{Deserialize, Serialize};

use super::folder_lock::lock_folder;
use super::{NamedListener, OpenError, backlog, tcp};
use crate::error::Error;

/// The file of a socket that we made. It is removed with this.
#[derive(Debug)]
pub struct OwnFile(FileState);

/// The same, written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileState {
    path: PathBuf,
    /// Another file of that name is not ours to change or remove.
    id: FileId,
    /// Who may connect.
    rights: Rights,
}

impl OwnFile {
    /// The socket that lies at `path`, which others have made for us.
    pub fn found(path: &Path, rights: &Rights) -> Option<OwnFile> {
        let file = SocketFile::at(path).ok()?;
        Some(OwnFile::new(path, &file, rights))
    }

    fn new(path: &Path, file: &SocketFile, rights: &Rights) -> OwnFile {
        OwnFile(FileState {
            path: path.to_owned(),
            id: file.id(),
            rights: rights.clone(),
        })
    }

    /// What the program before us has written down.
    pub fn over(state: FileState) -> OwnFile {
        OwnFile(state)
    }

    /// What the program after us has to know.
    pub fn state(&self) -> FileState {
        self.0.clone()
    }

    /// Whether it still lies under its name.
    pub fn is_there(&self) -> bool {
        SocketFile::at(&self.0.path).is_ok_and(|file| file.id() == self.0.id)
    }

    /// Lets others connect than those who could, if it is others.
    ///
    /// # Errors
    /// When the system does not let us, or the socket has another's file by now.
    pub fn set_rights(&mut self, rights: &Rights) -> io::Result<()> {
        if *rights == self.0.rights {
            return Ok(());
        }
        let file = SocketFile::at(&self.0.path)?;
        if file.id() != self.0.id {
            return Err(io::Error::other(
                "the file of its name is not the one we made",
            ));
        }
        if !self.0.rights.has_list() && !rights.has_list() {
            file.set_mode(rights.mode)?;
        } else {
            // A mode that is set while there is a list changes the list.
            file.admit_nobody_else()?;
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

/// Listens on a Unix socket that is made at `path`. One that somebody listens on is left alone, one
/// that nobody does is replaced.
///
/// # Errors
/// Why that cannot be.
pub fn open(
    named: NamedListener<'_>,
    path: &Path,
    rights: &Rights,
    threads: usize,
) -> Result<(Vec<OwnedFd>, Option<OwnFile>), Error> {
    let failed = |why| named.error(OpenError::Bind(why, None));
    let place = guarded::Named::at(path).map_err(failed)?;
    // Two servers that start at once must not take each other's socket for a dead one's.
    let _lock = place.open_folder().map(lock_folder);
    match who_listens(path) {
        Ok(Found::Nothing) => {}
        Ok(Found::Stale) => remove_stale(&place).map_err(failed)?,
        Ok(Found::Living(pid)) => return Err(named.error(OpenError::Taken(pid.and_then(process)))),
        Err(why) => return Err(failed(why)),
    }
    let (socket, file) = bind_unix(path, &place, rights.mode).map_err(failed)?;
    // From here on it goes again if anything fails.
    let own = OwnFile::new(path, &file, rights);
    give(named, &file, rights)?;
    let listens = sockets::listen(&socket, backlog(named.door));
    let sockets = listens.and_then(|()| sockets::copies(socket, threads));
    let sockets = sockets.map_err(|why| named.error(OpenError::Listen(why)))?;
    Ok((sockets, Some(own)))
}

/// Owner and group, or an access list; its mode it has already.
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

/// Who may connect to a door at `path`, with names looked up. An access list takes the place of owner
/// and group; an owner who is named brings the own group along
/// (`fpm_unix_resolve_socket_permissions`).
///
/// # Errors
/// A path that no socket can have, or the first user or group that there is not.
pub fn rights(named: NamedListener<'_>, path: &Path) -> Result<Rights, Error> {
    use std::os::unix::ffi::OsStrExt;
    let bytes = path.as_os_str().as_bytes().len();
    if bytes > MAX_PATH_BYTES {
        return Err(named.error(OpenError::TooLong(bytes)));
    }
    let Door {
        owner,
        group,
        mode,
        acl_users,
        acl_groups,
        ..
    } = named.door;
    let user = |name: &String| {
        let found = users::owner_named(name);
        found.map_err(|_| named.error(OpenError::NoUser(name.clone())))
    };
    let group_named = |name: &String| {
        let found = users::group_named(name);
        found.map_err(|_| named.error(OpenError::NoGroup(name.clone())))
    };
    let mut rights = Rights {
        mode: *mode,
        ..Rights::default()
    };
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

/// A process, as messages name it.
fn process(pid: i32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(tcp::describe(name.trim(), u32::try_from(pid).ok()?))
}

/// Removes the file of a socket that has been closed, if it is one.
pub fn remove(path: &Path) {
    if let Ok(Found::Stale) = who_listens(path)
        && let Ok(place) = guarded::Named::at(path)
    {
        let _ = unix::remove_stale(&place);
    }
}
