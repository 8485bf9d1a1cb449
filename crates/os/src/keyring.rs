//! The kernel's keys (keyrings(7)).

use std::io;

/// `KEYCTL_JOIN_SESSION_KEYRING` (include/uapi/linux/keyctl.h).
const JOIN_SESSION: libc::c_long = 1;

/// Gives this process a new, empty session keyring, shared with its children, instead of that of
/// its parent.
///
/// # Errors
/// When the kernel has no keys, or a container forbids them: then none can be shared.
pub fn begin_session() -> io::Result<()> {
    let no_name = std::ptr::null::<libc::c_char>();
    // SAFETY: a null name requests an anonymous keyring; the kernel reads and writes no memory.
    let done = unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION, no_name) };
    match done {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
