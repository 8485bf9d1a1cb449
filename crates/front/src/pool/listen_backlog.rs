//! Connections of web servers in the kernel's listen backlog. Usually there are none; they wait
//! there when the front has reached its limit of connections.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use maitred_os::sockets::waiting::waiting;
use tokio::io::unix::AsyncFd;

/// The sockets of the FastCGI listeners.
#[derive(Debug, Default)]
pub struct ListenBacklog(Mutex<Vec<ListenSocket>>);

#[derive(Debug)]
struct ListenSocket {
    listen: String,
    /// Closed when the listener is.
    socket: Weak<AsyncFd<OwnedFd>>,
}

impl ListenBacklog {
    /// Adds a thread's socket of the listener at `listen`.
    pub fn watch(&self, listen: &str, socket: &Arc<AsyncFd<OwnedFd>>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| one.socket.strong_count() > 0);
        all.push(ListenSocket { listen: listen.to_owned(), socket: Arc::downgrade(socket) });
    }

    /// Number of connections that wait at the listener `listen`. A socket of several threads counts
    /// once.
    pub fn at(&self, listen: &str) -> u32 {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seen = Vec::new();
        let here = all.iter().filter(|one| one.listen == listen);
        let counts = here.filter_map(|one| {
            let socket = one.socket.upgrade()?;
            let inode = rustix::fs::fstat(&*socket).ok()?.st_ino;
            let is_new = !seen.contains(&inode);
            seen.push(inode);
            is_new.then(|| waiting(&*socket).ok())?
        });
        counts.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::readable::readable;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[tokio::test]
    async fn a_socket_of_several_threads_counts_once_and_a_closed_one_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("php.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let threads = [(); 2].map(|()| {
            let socket = OwnedFd::from(listener.try_clone().unwrap());
            Arc::new(readable(socket).unwrap())
        });
        let listen_backlog = ListenBacklog::default();
        for socket in &threads {
            listen_backlog.watch("listener", socket);
        }
        let _clients = [(); 3].map(|()| UnixStream::connect(&path).unwrap());
        assert_eq!(listen_backlog.at("listener"), 3);
        assert_eq!(listen_backlog.at("another"), 0);
        drop(threads);
        assert_eq!(listen_backlog.at("listener"), 0);
    }
}
