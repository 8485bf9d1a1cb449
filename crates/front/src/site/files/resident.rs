//! Checks whether a piece of a file can be sent without waiting for the disk.

use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::runtime::cached_reads;

/// The state of a piece of a file in the kernel's page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residency {
    /// It is in memory.
    Resident,
    /// It has to be read from the disk.
    Cold,
    /// The file system cannot report it (overlayfs and older tmpfs, for two).
    Unknown,
}

/// Probes the first and the last byte of the piece, without waiting (`RWF_NOWAIT` of preadv2(2)).
///
/// Read-ahead fills the page cache from front to back, so a piece whose last byte is there is
/// complete as a rule. This is a hint; memory pressure may evict the pages at any time: after one
/// read-ahead of a piece, send it.
pub fn residency(fd: impl AsFd, offset: u64, len: u64) -> Residency {
    let Some(last) = len.checked_sub(1).and_then(|more| offset.checked_add(more)) else {
        return Residency::Resident;
    };
    match probe(&fd, offset) {
        Residency::Resident if last != offset => probe(&fd, last),
        other => other,
    }
}

fn probe(fd: &impl AsFd, offset: u64) -> Residency {
    let mut byte = [0];
    match cached_reads::read(fd, &mut byte, offset) {
        // Zero bytes: the position is at or after the end.
        Ok(_) => Residency::Resident,
        Err(Errno::AGAIN | Errno::INTR) => Residency::Cold,
        Err(_) => Residency::Unknown,
    }
}
