//! Ownership of the disk tier's directory: one process contains the lock on its file `lock` at a
//! time, and the kernel releases it when that process exits.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

/// The lock of a directory, taken or not. Dropping it releases it.
#[derive(Debug)]
pub struct FolderLock(File);

impl FolderLock {
    /// Opens the lock file without locking it.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn open(dir: &Path) -> io::Result<FolderLock> {
        // A FIFO that nothing reads is an error then, and no wait.
        let at_once = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let how = OFlags::CREATE | OFlags::WRONLY | at_once;
        let file = rustix::fs::open(dir.join("lock"), how, Mode::RUSR | Mode::WUSR)?;
        Ok(FolderLock(file.into()))
    }

    /// Takes the lock, unless another process has it.
    ///
    /// # Errors
    /// When the file system has no locks.
    pub fn try_lock(self) -> io::Result<Option<FolderLock>> {
        match flock(&self.0, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(self)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes the lock, and waits until it is free.
    ///
    /// # Errors
    /// When the file system has no locks.
    pub fn lock(self) -> io::Result<FolderLock> {
        loop {
            match flock(&self.0, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(self),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
