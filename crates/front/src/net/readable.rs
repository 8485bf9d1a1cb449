//! Waits until a descriptor is readable.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Wraps a descriptor to wait on. tokio's newer constructors are unsafe, for types that may change
/// their descriptor; an `OwnedFd` cannot.
#[allow(deprecated)]
pub fn readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, Interest::READABLE)
}
