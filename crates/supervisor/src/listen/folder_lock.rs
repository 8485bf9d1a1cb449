//! A lock on the folder of a Unix socket, so that two servers do not take each other's new socket for
//! the stale one of a dead server.

use std::fs::File;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

/// How long another server that makes its socket is waited for, and between two looks.
const LOCK_WAIT: Duration = Duration::from_millis(500);
const LOCK_RETRY: Duration = Duration::from_millis(5);

/// Locks a folder in which sockets are made for as long as the answer lives.
pub fn lock_folder(folder: File) -> File {
    lock(&folder);
    folder
}

/// Locks the folder, unless somebody else keeps it: whoever may read it can, and is not waited for.
/// Without the lock, only servers that are started at the same moment could take each other's
/// socket.
fn lock(folder: &File) {
    let begun = Instant::now();
    while flock(folder, FlockOperation::NonBlockingLockExclusive).is_err()
        && begun.elapsed() < LOCK_WAIT
    {
        std::thread::sleep(LOCK_RETRY);
    }
}
