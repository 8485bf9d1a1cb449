//! Lookups of names that the kernel has cached, which wait for nothing (`RESOLVE_CACHED`,
//! openat2(2)).

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use rustix::fs::{self, AtFlags, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::{Errno, Result};

/// Flags to read metadata: no read permission needed, and no effect on a FIFO or a device.
pub const LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Whether the kernel has `RESOLVE_CACHED` (from 5.12), and the system allows `openat2`. Without
/// it, serving threads wait for the file system.
static IS_SUPPORTED: OnceLock<bool> = OnceLock::new();

/// Whether such lookups are possible.
pub fn are_supported() -> bool {
    *IS_SUPPORTED.get_or_init(|| {
        let root = fs::openat2(fs::CWD, "/", LOOK, Mode::empty(), ResolveFlags::CACHED);
        matches!(root, Ok(_) | Err(Errno::AGAIN | Errno::MFILE | Errno::NFILE))
    })
}

/// Whether an error says nothing about the file: the cache is not enough, or there is no
/// descriptor, which `stat` does not need.
pub fn is_undecided(error: Errno) -> bool {
    matches!(error, Errno::AGAIN | Errno::MFILE | Errno::NFILE)
}

/// `stat`, or `lstat` with `SYMLINK_NOFOLLOW`, of a name that is cached.
///
/// # Errors
/// Those of `stat(2)`, and one that [`is_undecided`].
pub fn stat(path: &CStr, flags: AtFlags) -> Result<Stat> {
    if !are_supported() {
        return fs::statat(fs::CWD, path, flags);
    }
    let follows = match flags.contains(AtFlags::SYMLINK_NOFOLLOW) {
        true => OFlags::NOFOLLOW,
        false => OFlags::empty(),
    };
    let fd = fs::openat2(fs::CWD, path, LOOK | follows, Mode::empty(), ResolveFlags::CACHED)?;
    fs::fstat(fd)
}

/// Opens a directory that is no symbolic link, and whose name is cached.
///
/// # Errors
/// Those of `open(2)`, and one that [`is_undecided`].
pub fn open_directory(path: &CStr) -> Result<OwnedFd> {
    let flags = LOOK | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    match are_supported() {
        true => fs::openat2(fs::CWD, path, flags, Mode::empty(), ResolveFlags::CACHED),
        false => fs::open(path, flags, Mode::empty()),
    }
}
