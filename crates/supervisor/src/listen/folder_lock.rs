//! A lock on the folder of a Unix socket, so that two servers do not take each other's new socket
//! for the stale one of a dead server.

use std::fs::File;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

/// How long another server that creates its socket is waited for, and between two tries.
const LOCK_WAIT: Duration = Duration::from_millis(500);
const LOCK_RETRY: Duration = Duration::from_millis(5);

/// Locks a folder in which sockets are created, for as long as the result lives.
pub fn lock_folder(folder: File) -> File {
    lock(&folder);
    folder
}

/// Locks the folder, unless another process holds the lock: every user that can read the folder
/// can, and is not waited for. Without the lock, only servers that start at the same moment could
/// take each other's socket.
fn lock(folder: &File) {
    let begun = Instant::now();
    while flock(folder, FlockOperation::NonBlockingLockExclusive).is_err()
        && begun.elapsed() < LOCK_WAIT
    {
        std::thread::sleep(LOCK_RETRY);
    }
}
