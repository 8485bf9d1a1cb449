//! The folder of the disk tier belongs to one process at a time: its file `lock` says whose it is, and
//! the kernel frees it when that process is no more.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

/// The lock of a folder, taken or not. It is let go of when this is dropped.
#[derive(Debug)]
pub struct FolderLock(File);

impl FolderLock {
    /// Opens the lock of a folder, and takes nothing yet.
    ///
    /// # Errors
    /// When its file cannot be made.
    pub fn open(dir: &Path) -> io::Result<FolderLock> {
        let how = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(dir.join("lock"), how, Mode::RUSR | Mode::WUSR)?;
        Ok(FolderLock(file.into()))
    }

    /// Takes it, unless another process has it.
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

    /// Takes it, as soon as no other process has it.
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
