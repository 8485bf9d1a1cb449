//! The kernel's keys (keyrings(7)).

use std::io;

/// `KEYCTL_JOIN_SESSION_KEYRING` (include/uapi/linux/keyctl.h).
const JOIN_SESSION: libc::c_long = 1;

/// `KEYCTL_SETPERM`.
const SET_PERMISSIONS: libc::c_long = 5;

/// `KEY_SPEC_SESSION_KEYRING`.
const OWN_SESSION: libc::c_long = -3;

/// Those of a new session keyring, without the permissions to link it into another one and to
/// change its attributes (include/linux/key.h): it ends with its processes then.
const PERMISSIONS: libc::c_long = 0x0f03_0000;

/// Gives this process a new, empty session keyring, shared with its children, instead of that of
/// its parent, at the cost of the keys of its user. The right of a process to its session keyring
/// does not depend on its user, who can change afterwards. Does nothing where the kernel has no
/// keys, or a container forbids them: then none can be shared.
///
/// # Errors
/// [`io::ErrorKind::QuotaExceeded`] when the quota of this user is used up (keyrings(7)).
pub fn begin_session() -> io::Result<()> {
    // Address 0 stands for no name.
    if keyctl(JOIN_SESSION, 0, 0)? {
        keyctl(SET_PERMISSIONS, OWN_SESSION, PERMISSIONS)?;
    }
    Ok(())
}

/// Whether it was done; it was not where the kernel has no keys, or a container forbids them.
fn keyctl(operation: libc::c_long, first: libc::c_long, second: libc::c_long) -> io::Result<bool> {
    // SAFETY: both operations take numbers, but for the name of a keyring, which is a null pointer.
    let done = unsafe { libc::syscall(libc::SYS_keyctl, operation, first, second) };
    if done != -1 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EPERM | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}
