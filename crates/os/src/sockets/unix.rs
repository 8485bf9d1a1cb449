//! Unix sockets: creating them, their current listener, and access to them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, Uid, XattrFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use serde::{Deserialize, Serialize};

use super::acl::{self, AccessList};
use crate::guarded::Named;
use crate::walk::OpenedPath;

/// Longest path of a Unix socket, in bytes: `sun_path` without the zero at its end (unix(7)).
pub const MAX_PATH_BYTES: usize = 107;

/// The state of a socket's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// It does not exist.
    Nothing,
    /// It exists without a listener.
    Stale,
    /// A listening process; its id, as far as the kernel reports it.
    Living(Option<i32>),
}

/// Access to a Unix socket.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    /// Permission bits.
    pub mode: u32,
    /// The owner, if another than its creator.
    pub owner: Option<u32>,
    /// The group, if another than its creator's.
    pub group: Option<u32>,
    /// Further users.
    pub users: Vec<u32>,
    /// Further groups.
    pub groups: Vec<u32>,
}

/// The file of a Unix socket, whatever is under its name later.
#[derive(Debug)]
pub struct SocketFile {
    file: OwnedFd,
    id: FileId,
}

/// Device and inode of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileId(u64, u64);

/// Removes the file of a socket, if `path` is still a name of it.
pub fn remove_own(path: &Path, id: FileId) {
    if let Ok(named) = Named::at(path)
        && SocketFile::known_as(&named, id).is_ok()
    {
        let _ = named.remove();
    }
}

/// Finds the listener at `path` by connecting to it, without waiting.
///
/// # Errors
/// When it cannot be determined, such as without permission to connect.
pub fn who_listens(path: &Path) -> io::Result<Found> {
    let socket = unix_socket()?;
    match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) => {
            let peer = sockopt::socket_peercred(&socket).ok();
            let pid = peer.map(|peer| peer.pid.as_raw_nonzero().get());
            Ok(Found::Living(pid))
        }
        // Its queue is full, or it is of another type.
        Err(Errno::AGAIN | Errno::PROTOTYPE) => Ok(Found::Living(None)),
        Err(Errno::CONNREFUSED) => Ok(Found::Stale),
        Err(Errno::NOENT) => match std::fs::symlink_metadata(path) {
            Ok(_) => Ok(Found::Stale),
            Err(_) => Ok(Found::Nothing),
        },
        Err(other) => Err(other.into()),
    }
}

/// Removes a socket without a listener, or a link under its name. Anything else stays: it was no
/// server's.
///
/// # Errors
/// When it cannot be removed.
pub fn remove_stale(named: &Named) -> io::Result<()> {
    let found = named.look()?.map(|place| place.facts.kind());
    match found {
        Some(FileType::Socket | FileType::Symlink) => named.remove(),
        Some(_) | None => Ok(()),
    }
}

/// Creates a socket at `path`, which is `named`, that does not listen yet, with permission bits
/// `mode`. Where others may write to the folder, it is created with the rights of the folder's
/// owner, and returned to this process: replacing the folder meanwhile gains nothing, and a socket
/// of another owner that is moved there meanwhile stays unchanged.
///
/// # Errors
/// `AddrInUse` when a file of that name exists; otherwise the error of `bind(2)`.
pub fn bind_unix(path: &Path, named: &Named, mode: u32) -> io::Result<(OwnedFd, SocketFile)> {
    let socket = unix_socket()?;
    let bind = |path: &Path| -> io::Result<()> {
        Ok(rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?)
    };
    // The file gets the mode of its socket, without the bits of the umask (Linux, `unix_bind_bsd`):
    // never more access than requested, not even temporarily, and the umask, which is that of all
    // threads, stays as it is.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode))?;
    let own = rustix::process::geteuid().as_raw();
    let creator = named.creator();
    let bound = match (&creator, named.is_shared()) {
        (Some(creator), _) => match named.with_rights(|| bind(path)) {
            // An owner who may not write to the folder moves nothing in it either.
            Ok(Err(why)) if why.kind() == io::ErrorKind::PermissionDenied => {
                bind(&named.path()).map(|()| own)
            }
            bound => bound.and_then(|bound| bound).map(|()| creator.uid),
        },
        (None, true) => bind(&named.path()).map(|()| own),
        (None, false) => bind(path).map(|()| own),
    };
    let file = SocketFile::made_by(bound?, named)?;
    if creator.is_some() {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        file.give(Some(uid.as_raw()), Some(gid.as_raw()))?;
    }
    if named.is_shared() {
        // A folder's list for new files takes the place of the umask (acl(5)).
        file.deny_others()?;
    }
    if file.mode()? != mode {
        file.set_mode(mode)?;
    }
    Ok((socket, file))
}

fn unix_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let _ = refuse_descriptors(socket.as_fd());
    Ok(socket)
}

/// `SO_PASSRIGHTS` of unix(7), as most architectures number it.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const SO_PASSRIGHTS: libc::c_int = 83;

/// Makes the kernel refuse descriptors that others send to this socket or to one accepted from it.
/// Received ones would have to be closed, which blocks for as long as their sender likes.
///
/// # Errors
/// When the kernel cannot: it is older than Linux 6.16.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub fn refuse_descriptors(socket: BorrowedFd<'_>) -> io::Result<()> {
    let off: libc::c_int = 0;
    let length = libc::socklen_t::try_from(size_of_val(&off)).map_err(io::Error::other)?;
    // SAFETY: the option's value is a number, which lives during the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const off).cast(),
            length,
        )
    };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// As on kernels that cannot.
///
/// # Errors
/// Always.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn refuse_descriptors(_: BorrowedFd<'_>) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Rights {
    /// Whether others than its mode, owner and group allow may connect.
    pub fn has_list(&self) -> bool {
        !self.users.is_empty() || !self.groups.is_empty()
    }
}

impl SocketFile {
    /// The socket at `path`, which is not a link.
    ///
    /// # Errors
    /// When it cannot be reached, or something else is there.
    pub fn at(path: &Path) -> io::Result<SocketFile> {
        SocketFile::of(&Named::at(path)?)
    }

    /// The socket of this name, which is not a link and has no other name.
    ///
    /// # Errors
    /// As [`SocketFile::at`].
    pub fn of(named: &Named) -> io::Result<SocketFile> {
        SocketFile::found(named.look()?.ok_or(Errno::NOENT)?)
    }

    /// The socket at `path`, if it is this one. Its owner may have given it further names.
    ///
    /// # Errors
    /// As [`SocketFile::at`], or when it is another.
    pub fn known(path: &Path, id: FileId) -> io::Result<SocketFile> {
        SocketFile::known_as(&Named::at(path)?, id)
    }

    fn known_as(named: &Named, id: FileId) -> io::Result<SocketFile> {
        let found = SocketFile::of_any_names(named.look()?.ok_or(Errno::NOENT)?)?;
        match found.id == id {
            true => Ok(found),
            false => Err(io::Error::other("the file of its name is not the one we made")),
        }
    }

    /// The socket of this name that `owner` has just created. A user who may write to the folder
    /// can have moved another there since.
    fn made_by(owner: u32, named: &Named) -> io::Result<SocketFile> {
        let place = named.look()?.ok_or(Errno::NOENT)?;
        if named.is_shared() && place.facts.uid != owner {
            return Err(io::Error::other(
                "a socket of another user was moved there while it was made",
            ));
        }
        SocketFile::found(place)
    }

    fn found(place: OpenedPath) -> io::Result<SocketFile> {
        match place.facts.names {
            1 => SocketFile::of_any_names(place),
            _ => Err(io::Error::other("something else lies there")),
        }
    }

    fn of_any_names(place: OpenedPath) -> io::Result<SocketFile> {
        if place.facts.kind() != FileType::Socket {
            return Err(io::Error::other("something else lies there"));
        }
        let (device, inode) = place.facts.id;
        Ok(SocketFile { file: place.fd, id: FileId(device, inode) })
    }

    /// Which file it is.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Gives it to an owner and a group; `None`: unchanged.
    ///
    /// # Errors
    /// When this process may not.
    pub fn give(&self, owner: Option<u32>, group: Option<u32>) -> io::Result<()> {
        let (owner, group) = (owner.map(Uid::from_raw), group.map(Gid::from_raw));
        Ok(rustix::fs::chownat(&self.file, "", owner, group, AtFlags::EMPTY_PATH)?)
    }

    fn mode(&self) -> io::Result<u32> {
        Ok(Mode::from_raw_mode(rustix::fs::fstat(&self.file)?.st_mode).as_raw_mode())
    }

    /// Sets its permission bits.
    ///
    /// # Errors
    /// When this process may not.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        Ok(rustix::fs::chmod(self.reopened(), Mode::from_raw_mode(mode))?)
    }

    /// Lets further users and groups connect.
    ///
    /// # Errors
    /// When this process may not, or the file system keeps no such lists.
    pub fn admit(&self, users: &[u32], groups: &[u32]) -> io::Result<()> {
        let path = self.reopened();
        let mut value = vec![0; acl::MAX_BYTES];
        let mut list = match rustix::fs::getxattr(&path, acl::ATTRIBUTE, &mut value) {
            Ok(length) => AccessList::read(&value[..length])?,
            Err(Errno::NODATA) => AccessList::of_mode(rustix::fs::fstat(&self.file)?.st_mode),
            Err(other) => return Err(other.into()),
        };
        list.admit(users, groups);
        let value = list.to_bytes();
        Ok(rustix::fs::setxattr(&path, acl::ATTRIBUTE, &value, XattrFlags::empty())?)
    }

    /// Removes all access except by its mode.
    ///
    /// # Errors
    /// When this process may not.
    pub fn deny_others(&self) -> io::Result<()> {
        match rustix::fs::removexattr(self.reopened(), acl::ATTRIBUTE) {
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
            Err(other) => Err(other.into()),
        }
    }

    /// A path to this very file: its name may be another's by now, and the calls for the mode and
    /// for attributes take no descriptor of this kind.
    fn reopened(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixListener;
    use std::time::{Duration, Instant};

    #[test]
    fn nobody_can_send_descriptors_where_the_kernel_can_refuse_them() {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("php.sock");
        let named = Named::at(&path).unwrap();
        let (listener, _file) = bind_unix(&path, &named, 0o600).unwrap();
        rustix::net::listen(&listener, 1).unwrap();
        if refuse_descriptors(listener.as_fd()).is_err() {
            return eprintln!("skipped: this kernel is older than Linux 6.16");
        }
        let send = |client: &std::os::unix::net::UnixStream, fds: &[BorrowedFd<'_>]| {
            let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut more = SendAncillaryBuffer::new(&mut space);
            if !fds.is_empty() {
                more.push(SendAncillaryMessage::ScmRights(fds));
            }
            let bytes = [io::IoSlice::new(b"x")];
            sendmsg(client, &bytes, &mut more, SendFlags::NOSIGNAL)
        };
        // Neither before it is accepted nor after.
        let client = std::os::unix::net::UnixStream::connect(&path).unwrap();
        assert_eq!(send(&client, &[folder_of(&path).as_fd()]), Err(Errno::PERM));
        let _accepted = rustix::net::accept(&listener).unwrap();
        assert_eq!(send(&client, &[folder_of(&path).as_fd()]), Err(Errno::PERM));
        assert_eq!(send(&client, &[]), Ok(1));
    }

    fn folder_of(path: &Path) -> std::fs::File {
        std::fs::File::open(path.parent().unwrap()).unwrap()
    }

    #[test]
    fn it_is_seen_who_listens() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("php.sock");
        assert_eq!(who_listens(&path).unwrap(), Found::Nothing);
        let living = UnixListener::bind(&path).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(who_listens(&path).unwrap(), Found::Living(Some(own)));
        drop(living);
        // A process that another test has forked may have it, too, until it calls exec.
        let until = Instant::now() + Duration::from_secs(60);
        while who_listens(&path).unwrap() == Found::Living(Some(own)) && Instant::now() < until {
            std::thread::yield_now();
        }
        assert_eq!(who_listens(&path).unwrap(), Found::Stale);
    }

    #[test]
    fn a_link_to_nothing_is_stale_and_a_file_that_is_no_socket_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (link, file) = (folder.path().join("link"), folder.path().join("file"));
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        assert_eq!(who_listens(&link).unwrap(), Found::Stale);
        remove_stale(&Named::at(&link).unwrap()).unwrap();
        assert!(link.symlink_metadata().is_err());
        std::fs::write(&file, "precious").unwrap();
        assert_eq!(who_listens(&file).unwrap(), Found::Stale);
        remove_stale(&Named::at(&file).unwrap()).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    }

    #[test]
    fn a_link_in_the_place_of_a_socket_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (link, socket) = (folder.path().join("link"), folder.path().join("socket"));
        let _living = UnixListener::bind(&socket).unwrap();
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        assert!(SocketFile::at(&link).is_err());
        assert!(SocketFile::at(&socket).is_ok());
    }

    #[test]
    fn a_socket_in_a_users_folder_is_roots_with_the_mode_that_was_asked_for() {
        if !crate::users::is_root() {
            return eprintln!("skipped: only root can give files to others");
        }
        let folder = tempfile::tempdir().unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        std::os::unix::fs::chown(folder.path(), Some(5001), Some(5001)).unwrap();
        let set = std::process::Command::new("setfacl")
            .args(["-d", "-m", "u:5002:rwx"])
            .arg(folder.path())
            .status();
        assert!(set.unwrap().success(), "the tests need setfacl (package acl)");
        let path = folder.path().join("php.sock");
        let named = Named::at(&path).unwrap();
        let (_socket, _file) = bind_unix(&path, &named, 0o660).unwrap();
        let made = std::fs::metadata(&path).unwrap();
        assert_eq!((made.uid(), made.gid(), made.mode() & 0o777), (0, 0, 0o660));
        let facl = std::process::Command::new("getfacl")
            .args(["-cpn".as_ref(), path.as_os_str()])
            .output();
        assert!(!String::from_utf8_lossy(&facl.unwrap().stdout).contains("5002"));
        let id = SocketFile::at(&path).unwrap().id();
        remove_own(&path, id);
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_of_a_neighbours_that_is_moved_over_a_new_one_is_not_taken_for_it() {
        if !crate::users::is_root() {
            return eprintln!("skipped: only root can give files to others");
        }
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(folder.path(), Some(5001), Some(5001)).unwrap();
        let path = folder.path().join("php.sock");
        let named = Named::at(&path).unwrap();
        let _neighbour = UnixListener::bind(&path).unwrap();
        for (owner, is_its) in [(5002, false), (0, false), (5001, true)] {
            std::os::unix::fs::chown(&path, Some(owner), None).unwrap();
            let found = SocketFile::made_by(5001, &named);
            assert_eq!(found.is_ok(), is_its, "{owner}");
        }
    }

    #[test]
    fn a_list_says_what_getfacl_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("php.sock");
        let named = Named::at(&path).unwrap();
        let (_socket, file) = bind_unix(&path, &named, 0o600).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        file.admit(&[1, 33], &[1]).unwrap();
        let facl = std::process::Command::new("getfacl")
            .args(["-cpn".as_ref(), path.as_os_str()])
            .output()
            .expect("the tests need getfacl (Debian's package acl)");
        assert_eq!(
            String::from_utf8_lossy(&facl.stdout),
            "user::rw-\nuser:1:rw-\nuser:33:rw-\ngroup::---\ngroup:1:rw-\nmask::rw-\n\
             other::---\n\n"
        );
        file.deny_others().unwrap();
        file.set_mode(0o640).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
    }
}
