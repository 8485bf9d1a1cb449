//! Reads a piece of a file where `sendfile` is not possible.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::http::body::blocking;
use crate::site::files::{Residency, residency};

/// Reads up to `count` bytes of the file from `at`; another thread reads bytes that are not in the
/// page cache.
///
/// # Errors
/// When the file cannot be read; `UnexpectedEof` when it has become shorter.
pub async fn read_piece(fd: &Arc<OwnedFd>, at: u64, count: usize) -> io::Result<Vec<u8>> {
    if residency(fd.as_ref(), at, count as u64) == Residency::Resident {
        return read(fd, at, count);
    }
    let fd = fd.clone();
    blocking(move || read(&fd, at, count)).await
}

fn read(fd: &OwnedFd, at: u64, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(count);
    loop {
        match rustix::io::pread(fd, rustix::buffer::spare_capacity(&mut bytes), at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => return Ok(bytes),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
