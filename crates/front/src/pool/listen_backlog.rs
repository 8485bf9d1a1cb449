//! Connections of web servers that the kernel holds and no thread has accepted. Usually there are none;
//! when the front has all the connections it may have, this is where they wait.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use maitred_os::sockets::waiting::waiting;
use tokio::io::unix::AsyncFd;

/// The sockets that doors listen on.
#[derive(Debug, Default)]
pub struct ListenBacklog(Mutex<Vec<ListenSocket>>);

#[derive(Debug)]
struct ListenSocket {
    listen: String,
    /// It is closed when no more clients are taken.
    socket: Weak<AsyncFd<OwnedFd>>,
}

impl ListenBacklog {
    /// A thread accepts from a socket of the door at `listen`.
    pub fn watch(&self, listen: &str, socket: &Arc<AsyncFd<OwnedFd>>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| one.socket.strong_count() > 0);
        all.push(ListenSocket {
            listen: listen.to_owned(),
            socket: Arc::downgrade(socket),
        });
    }

    /// How many connections of the door at `listen` wait to be accepted. A socket that several threads
    /// accept from counts once.
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
            listen_backlog.watch("door", socket);
        }
        let _clients = [(); 3].map(|()| UnixStream::connect(&path).unwrap());
        assert_eq!(listen_backlog.at("door"), 3);
        assert_eq!(listen_backlog.at("another"), 0);
        drop(threads);
        assert_eq!(listen_backlog.at("door"), 0);
    }
}
