//! Why a FastCGI listener cannot be opened: in php-fpm's words if the server was started as
//! php-fpm, and what to do.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use maitred_config::Address;
use maitred_os::sockets::unix::MAX_PATH_BYTES;

use super::{NamedListener, tcp};
use crate::error::Error;

/// Lower ports are for root (`net.ipv4.ip_unprivileged_port_start`).
const FIRST_FREE_PORT: u16 = 1024;

/// Why a FastCGI listener cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    /// Another process listens on the Unix socket; its name, as far as known.
    Taken(Option<String>),
    /// The address is in use or not available; the name of the process that uses it, as far as
    /// known.
    Bind(io::Error, Option<String>),
    /// It cannot be listened on.
    Listen(io::Error),
    /// Its owner cannot be set.
    Owner(io::Error),
    /// Its access list cannot be set.
    AccessList(io::Error),
    /// Length of its path, in bytes.
    TooLong(usize),
    /// Name of a user that does not exist.
    NoUser(String),
    /// Name of a group that does not exist.
    NoGroup(String),
}

impl OpenError {
    /// A TCP address that is not available.
    pub fn bind(why: io::Error, address: SocketAddr) -> OpenError {
        let taken = why.kind() == io::ErrorKind::AddrInUse;
        let holder = taken.then(|| tcp::holder(address)).flatten();
        OpenError::Bind(why, holder)
    }

    /// The error.
    pub fn of(self, named: &NamedListener<'_>) -> Error {
        let said = match named.fpm {
            true => self.as_php_fpm(named),
            false => self.as_ours(named),
        };
        let remedy = self.remedy(named);
        match (self, remedy) {
            // Mistakes on any machine.
            (
                OpenError::TooLong(_) | OpenError::NoUser(_) | OpenError::NoGroup(_),
                Some(remedy),
            ) if !named.fpm => Error::Configuration(format!("{said}; {remedy}")),
            (_, remedy) => Error::FastcgiListener { said, remedy, fpm: named.fpm },
        }
    }

    /// In the words of `fpm_sockets.c` and `fpm_unix.c`; for a path that is too long, of PHP 8.4.
    fn as_php_fpm(&self, named: &NamedListener<'_>) -> String {
        let (asked, pool) = (&named.listener.asked, named.pool);
        match self {
            OpenError::Taken(_) => {
                format!("Another FPM instance seems to already listen on {asked}")
            }
            OpenError::Bind(why, _) => {
                format!("unable to bind listening socket for address '{asked}': {}", errno(why))
            }
            OpenError::Listen(why) => {
                format!("failed to listen to address '{asked}': {}", errno(why))
            }
            OpenError::Owner(why) => {
                format!("[pool {pool}] failed to chown() the socket '{asked}': {}", errno(why))
            }
            OpenError::AccessList(why) => format!(
                "[pool {pool}] failed to write the ACL of the socket '{asked}': {}",
                errno(why)
            ),
            OpenError::TooLong(bytes) => format!(
                "[pool {pool}] cannot bind to UNIX socket '{asked}' as path is too long (found \
                 length: {bytes}, maximal length: {MAX_PATH_BYTES})"
            ),
            OpenError::NoUser(user) => format!("[pool {pool}] cannot get uid for user '{user}'"),
            OpenError::NoGroup(group) => {
                format!("[pool {pool}] cannot get gid for group '{group}'")
            }
        }
    }

    fn as_ours(&self, named: &NamedListener<'_>) -> String {
        let why = match self {
            OpenError::Taken(_) => "another process listens there already".to_owned(),
            OpenError::Bind(why, _) | OpenError::Listen(why) => why.to_string(),
            OpenError::Owner(why) => format!("its owner or group cannot be set: {why}"),
            OpenError::AccessList(why) => format!("its access list cannot be set: {why}"),
            OpenError::TooLong(bytes) => format!(
                "its path has {bytes} bytes, and that of a Unix socket has {MAX_PATH_BYTES} at most"
            ),
            OpenError::NoUser(user) => format!("there is no user `{user}`"),
            OpenError::NoGroup(group) => format!("there is no group `{group}`"),
        };
        format!("{} cannot be listened on: {why}", named.listener.asked)
    }

    /// What the operator can do.
    fn remedy(&self, named: &NamedListener<'_>) -> Option<String> {
        let folder = match &named.listener.listen {
            Address::Unix(path) => path.parent().map(Path::to_owned),
            Address::Tcp(_) => None,
        };
        let taken = |holder: &Option<String>| {
            let holder = holder.as_deref().unwrap_or("another program");
            format!("{holder} listens there; stop it, or choose another address")
        };
        Some(match (self, folder) {
            (OpenError::Taken(holder), _) => taken(holder),
            (OpenError::Bind(why, holder), folder) => match (why.kind(), folder) {
                (io::ErrorKind::NotFound, Some(folder)) => format!(
                    "the folder {} does not exist; make it, or correct listen",
                    folder.display()
                ),
                (io::ErrorKind::AddrInUse, Some(_)) => {
                    "a file that is no socket lies there; remove it, or choose another path"
                        .to_owned()
                }
                (io::ErrorKind::AddrInUse, None) => taken(holder),
                (io::ErrorKind::AddrNotAvailable, None) => {
                    "no network interface of this machine has that address; correct listen"
                        .to_owned()
                }
                (io::ErrorKind::PermissionDenied, Some(folder)) => format!(
                    "the user of this server may not make a socket in {}; allow it, or choose \
                     another folder",
                    folder.display()
                ),
                (io::ErrorKind::PermissionDenied, None) => format!(
                    "ports below {FIRST_FREE_PORT} need root or CAP_NET_BIND_SERVICE; choose \
                     another port, start the server with that right, or lower \
                     net.ipv4.ip_unprivileged_port_start"
                ),
                _ => return None,
            },
            (OpenError::Owner(_), _) => {
                "only root may give a socket to another user; leave listen.owner and listen.group \
                 out, or start the server as root"
                    .to_owned()
            }
            (OpenError::AccessList(_), _) => {
                "the file system of its folder may have no access lists; use listen.owner, \
                 listen.group and listen.mode instead"
                    .to_owned()
            }
            (OpenError::TooLong(_), _) => "choose a shorter path".to_owned(),
            (OpenError::NoUser(_), _) => "correct the name, or make the user".to_owned(),
            (OpenError::NoGroup(_), _) => "correct the name, or make the group".to_owned(),
            (OpenError::Listen(_), _) => return None,
        })
    }
}

/// An error as php-fpm ends its lines: `Address already in use (98)`.
fn errno(why: &io::Error) -> String {
    let text = why.to_string();
    match why.raw_os_error() {
        Some(number) => {
            let text = text.split(" (os error").next().unwrap_or_default();
            format!("{text} ({number})")
        }
        None => text,
    }
}
