//! Opening the admin socket, and accepting commands.

use std::fs::DirBuilder;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use maitred_config::Section;
use maitred_control::admin::default_socket;
use maitred_os::guarded::Named;
use maitred_os::sockets::unix::{self, FileId, Found};
use maitred_os::{sockets, users};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::FileType;
use tracing::{info, warn};

use super::connection::AdminConnection;
use crate::error::Error;
use crate::limits::Moment;
use crate::listen::folder_lock::lock_folder;
use crate::logging::log_files::unwritable_by_us;

/// Mode of the socket.
const OWNERS: u32 = 0o600;

/// The listening socket. Its file is removed with it.
#[derive(Debug)]
pub struct AdminSocket {
    listener: UnixListener,
    path: PathBuf,
    /// The socket's file: another one under that name is not ours to remove.
    file: FileId,
}

/// What is wrong with a configured socket, besides being in use.
pub fn mistake(path: &Path) -> Option<Error> {
    let missing = !path.parent().is_some_and(Path::is_dir);
    missing.then(|| {
        let path = path.display();
        Error::Setting {
            section: Section::Server,
            setting: "admin_socket",
            said: format!(
                "admin_socket {path} cannot be made: its folder does not exist; make it, or \
                 correct admin_socket"
            ),
        }
    })
}

/// Why the user of this process may not make a configured socket.
pub fn unwritable_folder(path: &Path) -> Option<Error> {
    let why = unwritable_by_us(path.parent().filter(|folder| folder.is_dir())?)?;
    let path = path.display();
    Some(Error::Setting {
        section: Section::Server,
        setting: "admin_socket",
        said: format!(
            "admin_socket {path} cannot be made: its folder {why}, or correct admin_socket"
        ),
    })
}

impl AdminSocket {
    /// Makes the socket that the configuration or the command line names.
    ///
    /// # Errors
    /// When a running server uses it, or it cannot be created.
    pub fn open(path: &Path) -> Result<AdminSocket, Error> {
        AdminSocket::take(path).map_err(|why| Error::AdminSocket { path: path.to_owned(), why })
    }

    /// Opens the default socket, or one beside it if a running server uses that. None if that one
    /// is in use too. A `quiet` server logs this as information only: several may run in php-fpm's
    /// place, and the socket was not configured.
    ///
    /// # Errors
    /// One sentence, when it cannot be created.
    pub fn open_default(quiet: bool) -> Result<Option<AdminSocket>, String> {
        let path = default_socket();
        let failed = |path: &Path, why: io::Error| {
            format!("the admin socket {} cannot be made: {why}", path.display())
        };
        let folder = path.parent().unwrap_or(Path::new("/"));
        make_folder(folder).map_err(|why| failed(&path, why))?;
        match AdminSocket::take(&path) {
            Ok(listener) => Ok(Some(listener)),
            Err(why) if why.kind() == ErrorKind::AddrInUse => {
                let own = path.with_file_name(format!("admin-{}.sock", std::process::id()));
                let listener = AdminSocket::take(&own).map_err(|why| failed(&own, why))?;
                let line = format!(
                    "another server has the admin socket {}; reach this one with --admin-socket {}",
                    path.display(),
                    own.display()
                );
                match quiet {
                    true => info!("{line}"),
                    false => warn!("{line}"),
                }
                Ok(Some(listener))
            }
            Err(why) => Err(failed(&path, why)),
        }
    }

    /// Creates the socket `path`. The stale socket of a dead server is replaced; the lock keeps two
    /// servers from taking each other for dead.
    fn take(path: &Path) -> io::Result<AdminSocket> {
        let named = Named::at(path)?;
        let folder = named.open_folder()?;
        let _lock = lock_folder(folder);
        // Never blocks, even if the listener never accepts.
        match unix::who_listens(path) {
            Ok(Found::Living(_)) => return Err(ErrorKind::AddrInUse.into()),
            Ok(Found::Stale) => remove_socket(&named)?,
            Ok(Found::Nothing) | Err(_) => {}
        }
        let (socket, file) = unix::bind_unix(path, &named, OWNERS)?;
        sockets::listen(&socket, sockets::BACKLOG)?;
        let listener = UnixListener::from(socket);
        listener.set_nonblocking(true)?;
        let _ = unix::refuse_descriptors(listener.as_fd());
        Ok(AdminSocket { listener, path: path.to_owned(), file: file.id() })
    }

    /// What to poll.
    pub fn interest(&self) -> PollFd<'_> {
        PollFd::new(&self.listener, PollFlags::IN)
    }

    /// New connections of permitted users.
    pub fn accept(&self, now: Moment) -> impl Iterator<Item = AdminConnection> {
        let accept = || self.listener.accept().ok();
        std::iter::from_fn(accept).filter_map(move |(stream, _)| {
            let peer = rustix::net::sockopt::socket_peercred(&stream).ok()?;
            let uid = peer.uid.as_raw();
            let may = uid == 0 || uid == users::current().uid;
            stream.set_nonblocking(true).ok()?;
            may.then(|| AdminConnection::new(stream, peer.pid.as_raw_nonzero().get(), now))
        })
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        unix::remove_own(&self.path, self.file);
    }
}

/// Removes a socket without a listener. Any other file is left alone.
fn remove_socket(named: &Named) -> io::Result<()> {
    match named.look()?.map(|place| place.facts.kind()) {
        Some(FileType::Socket) => named.remove(),
        Some(_) | None => Ok(()),
    }
}

/// Creates the folder of the default socket, or checks that no other user can have created it.
fn make_folder(folder: &Path) -> io::Result<()> {
    let made = DirBuilder::new().mode(0o755).create(folder);
    match made {
        Err(why) if why.kind() == ErrorKind::AlreadyExists => {
            let meta = std::fs::symlink_metadata(folder)?;
            let ours = meta.uid() == users::current().uid && meta.mode() & 0o022 == 0;
            if ours && meta.is_dir() {
                return Ok(());
            }
            Err(io::Error::other(format!(
                "{} belongs to another user, or others may write to it",
                folder.display()
            )))
        }
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use rustix::fs::{FlockOperation, flock};

    use super::*;

    fn socket(folder: &tempfile::TempDir) -> PathBuf {
        folder.path().join("admin.sock")
    }

    #[test]
    fn the_socket_is_for_its_owner_only_and_goes_with_its_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = socket(&folder);
        let listener = AdminSocket::open(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn a_living_servers_socket_is_not_taken_and_a_dead_ones_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = socket(&folder);
        let living = AdminSocket::open(&path).unwrap();
        let refused = AdminSocket::open(&path).unwrap_err().to_string();
        assert!(refused.contains("another server"), "{refused}");
        // A killed server leaves its file behind without a listener.
        let dead = UnixListener::bind(folder.path().join("dead")).unwrap();
        drop(dead);
        assert!(AdminSocket::open(&folder.path().join("dead")).is_ok());
        // The name has changed hands: the file is not removed with its first owner.
        std::fs::rename(&path, folder.path().join("moved")).unwrap();
        std::fs::write(&path, "").unwrap();
        drop(living);
        assert!(path.exists());
    }

    #[test]
    fn a_listener_that_accepts_nobody_is_not_waited_for() {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, connect, listen};
        let folder = tempfile::tempdir().unwrap();
        let path = socket(&folder);
        let address = SocketAddrUnix::new(&path).unwrap();
        let stream = || rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None);
        let (deaf, waits) = (stream().unwrap(), stream().unwrap());
        bind(&deaf, &address).unwrap();
        listen(&deaf, 0).unwrap();
        // That is all its queue has room for.
        connect(&waits, &address).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let taken = path.clone();
        std::thread::spawn(move || sender.send(AdminSocket::take(&taken).map(drop)));
        let refused = receiver.recv_timeout(Duration::from_secs(30)).unwrap();
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::AddrInUse);
        assert!(path.exists());
    }

    #[test]
    fn a_file_that_is_no_socket_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = socket(&folder);
        std::fs::write(&path, "precious").unwrap();
        assert!(AdminSocket::open(&path).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(folder.path(), open).unwrap();
        assert!(make_folder(folder.path()).is_err());
        assert!(make_folder(&folder.path().join("new")).is_ok());
    }

    #[test]
    fn whoever_keeps_the_folder_locked_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let locked = File::open(folder.path()).unwrap();
        flock(&locked, FlockOperation::LockExclusive).unwrap();
        assert!(AdminSocket::open(&socket(&folder)).is_ok());
    }
}
