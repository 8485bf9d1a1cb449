//! Connects to the Unix sockets of FastCGI and HTTP servers. The check of a socket's path takes a
//! dozen system calls, so its result is cached for a moment, as a descriptor of the very socket
//! that was checked, whatever has its name by now.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use maitred_os::sockets::unix::refuse_descriptors;
use maitred_os::walk::{self, OpenedPath, Rule, Stopped};
use rustix::fs::AtFlags;
use tokio::net::UnixSocket;

use crate::backend::fastcgi_upstream::ByteStream;
use crate::net::descriptor_guard::WaryStream;
use crate::runtime::cached_names;
use crate::runtime::file_identity::Identity;
use crate::runtime::lookup_turns::{AllTurns, Deadline};

/// The time for which a socket is used without another check of its path.
const CACHED_FOR: Duration = Duration::from_secs(1);

/// Most sockets that a thread caches, each with a descriptor.
const MAX_CACHED: usize = 64;

thread_local! {
    static SOCKETS: RefCell<HashMap<PathBuf, CachedSocket>> = RefCell::default();
}

struct CachedSocket {
    place: Arc<OpenedPath>,
    /// The file with the path's last name before the check, which may be a symlink.
    name: Identity,
    since: Instant,
}

/// Who looks up paths of sockets, by path: one may be in a folder of a tenant.
static TURNS: LazyLock<AllTurns> = LazyLock::new(AllTurns::default);

/// The file with this name, if the kernel has cached that; a symlink is not followed.
fn cached_identity(path: &Path) -> Option<Identity> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let stat = cached_names::stat(&path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(Identity::of(&stat))
}

/// Connects to the socket at `path`. A symlink of a tenant cannot lead to a pool of another one,
/// which would run the tenant's script.
///
/// # Errors
/// The system's error.
pub async fn connect(path: &Path) -> io::Result<Box<dyn ByteStream>> {
    if let Some(place) = cached(path) {
        let connected = connect_to(&place).await;
        let is_refused = |why: &io::Error| why.kind() == io::ErrorKind::ConnectionRefused;
        // A restarted server listens on another socket of this name.
        if !connected.as_ref().is_err_and(is_refused) {
            return connected;
        }
    }
    connect_to(&*look(path).await?).await
}

/// The socket of the last check, if that is recent.
fn cached(path: &Path) -> Option<Arc<OpenedPath>> {
    SOCKETS.with_borrow(|sockets| {
        let cached = sockets.get(path)?;
        let is_good =
            cached.since.elapsed() < CACHED_FOR && cached_identity(path) == Some(cached.name);
        is_good.then(|| Arc::clone(&cached.place))
    })
}

/// A path that was checked.
struct LookedAt {
    name: Option<Identity>,
    walked: Result<OpenedPath, Stopped>,
}

/// Checks the path, and caches its socket.
async fn look(path: &Path) -> io::Result<Arc<OpenedPath>> {
    let own = path.to_path_buf();
    let turns = TURNS.of(&path.to_string_lossy());
    let looked = turns.look_up(Deadline::start(), move || {
        // Before the check: a name that changes meanwhile has another identity later.
        let name = rustix::fs::lstat(&own).ok().map(|stat| Identity::of(&stat));
        LookedAt { name, walked: walk::look(&own, Rule::of_reader()) }
    });
    let LookedAt { name, walked } = looked.await.ok_or(io::ErrorKind::TimedOut)?;
    SOCKETS.with_borrow_mut(|sockets| {
        // Closes the descriptors of sockets that may be gone.
        sockets.retain(|other, cached| other != path && cached.since.elapsed() < CACHED_FOR);
        let place = Arc::new(walked?);
        if let Some(name) = name
            && sockets.len() < MAX_CACHED
        {
            let cached = CachedSocket { place: Arc::clone(&place), name, since: Instant::now() };
            sockets.insert(path.to_path_buf(), cached);
        }
        Ok(place)
    })
}

/// Connects so that the server cannot send descriptors: closing one may block for as long as the
/// server likes. Before Linux 6.16 the kernel cannot refuse them, and the stream discards them.
async fn connect_to(place: &OpenedPath) -> io::Result<Box<dyn ByteStream>> {
    let socket = UnixSocket::new_stream()?;
    Ok(match refuse_descriptors(socket.as_fd()) {
        Ok(()) => Box::new(socket.connect(place.path()).await?),
        Err(_) => Box::new(WaryStream::connect(socket, &place.path()).await?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use tokio::net::UnixListener;

    #[tokio::test]
    async fn a_server_that_was_started_again_is_found_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("a.sock"), folder.path().join("link"));
        symlink(&path, &link).unwrap();
        let old = UnixListener::bind(&path).unwrap();
        for path in [&path, &link] {
            connect(path).await.unwrap();
        }
        std::fs::remove_file(&path).unwrap();
        drop(old);
        for path in [&path, &link] {
            let gone = connect(path).await.err().unwrap();
            assert_eq!(gone.kind(), io::ErrorKind::NotFound);
        }
        let new = UnixListener::bind(&path).unwrap();
        for path in [&path, &link] {
            connect(path).await.unwrap();
            new.accept().await.unwrap();
        }
        // Even while the old one still listens.
        std::fs::remove_file(&path).unwrap();
        let newest = UnixListener::bind(&path).unwrap();
        connect(&path).await.unwrap();
        newest.accept().await.unwrap();
    }

    #[tokio::test]
    async fn a_name_that_leads_elsewhere_is_walked_along_again() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b, link] = ["a", "b", "link"].map(|name| folder.path().join(name));
        let [first, second] = [&a, &b].map(|path| UnixListener::bind(path).unwrap());
        symlink(&a, &link).unwrap();
        connect(&link).await.unwrap();
        first.accept().await.unwrap();
        std::fs::remove_file(&link).unwrap();
        symlink(&b, &link).unwrap();
        connect(&link).await.unwrap();
        second.accept().await.unwrap();
    }

    #[tokio::test]
    async fn a_thread_keeps_no_more_sockets_than_it_may() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..MAX_CACHED + 2 {
            let path = folder.path().join(number.to_string());
            let _listener = UnixListener::bind(&path).unwrap();
            connect(&path).await.unwrap();
        }
        SOCKETS.with_borrow(|sockets| assert!(sockets.len() <= MAX_CACHED));
    }
}
