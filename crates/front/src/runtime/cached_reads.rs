//! Reads of contents that the kernel has in its page cache, which wait for nothing (`RWF_NOWAIT`,
//! preadv2(2)): neither for the disk, nor for the lock of the file, which some file systems take.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::{Errno, ReadWriteFlags, Result, preadv2};

/// Whether an error says nothing about the file: the page cache is not enough, the file is locked,
/// or the file system has no such reads (overlayfs and older tmpfs, for two).
pub fn is_undecided(error: Errno) -> bool {
    matches!(error, Errno::AGAIN | Errno::INTR | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL)
}

/// Reads bytes from `at`, as many as are cached.
///
/// # Errors
/// Those of `preadv2(2)`, and one that [`is_undecided`].
pub fn read(fd: impl AsFd, buffer: &mut [u8], at: u64) -> Result<usize> {
    preadv2(fd, &mut [IoSliceMut::new(buffer)], at, ReadWriteFlags::NOWAIT)
}

/// Reads bytes from `at`, and waits for the file system.
///
/// # Errors
/// Those of `pread(2)`.
pub fn read_now(fd: impl AsFd, buffer: &mut [u8], at: u64) -> Result<usize> {
    rustix::io::retry_on_intr(|| rustix::io::pread(&fd, &mut *buffer, at))
}

/// The first `most` bytes; fewer if the file has become shorter.
///
/// # Errors
/// As [`read`].
pub fn read_all(fd: &OwnedFd, most: u64) -> Result<Vec<u8>> {
    fill(most, |buffer, at| read(fd, buffer, at))
}

/// As [`read_all`], and waits for the file system.
///
/// # Errors
/// Those of `pread(2)`.
pub fn read_all_now(fd: &OwnedFd, most: u64) -> Result<Vec<u8>> {
    fill(most, |buffer, at| read_now(fd, buffer, at))
}

fn fill(most: u64, read: impl Fn(&mut [u8], u64) -> Result<usize>) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(most).unwrap_or(usize::MAX)];
    let mut filled = 0;
    while filled < bytes.len() {
        match read(&mut bytes[filled..], filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}
