//! Capabilities that a process, and what it starts, can never gain again (capabilities(7)).

use std::io;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, no_new_privs,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// Highest possible capability number: they are 64 bits.
const MOST: u32 = 63;

/// Empties the bounding, the ambient and the inheritable set: no program started later gains a
/// capability, not even as root. Does nothing in a process without `CAP_SETPCAP`, which has none to
/// give up. Call it before the process becomes another user, in one with one thread.
///
/// # Errors
/// When the kernel refuses it for another reason.
pub fn bound_to_none() -> io::Result<()> {
    // Supported since Linux 4.3.
    let _ = clear_ambient_capability_set();
    let held = capabilities(None)?;
    set_capabilities(None, CapabilitySets { inheritable: CapabilitySet::empty(), ..held })?;
    for number in 0..=MOST {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            Ok(()) => {}
            // The kernel has no further one, or this process may not.
            Err(Errno::INVAL | Errno::PERM) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Whether this process may install filters of system calls (seccomp(2)).
pub fn may_filter() -> bool {
    let administers = |sets: CapabilitySets| sets.effective.contains(CapabilitySet::SYS_ADMIN);
    no_new_privs().unwrap_or(false) || capabilities(None).is_ok_and(administers)
}

/// Drops all capabilities of this process, ambient ones included. For a process with one thread.
///
/// # Errors
/// Never on the kernels we support: a process may always give capabilities up.
pub fn hold_none() -> io::Result<()> {
    // An ambient capability goes with the inheritable one.
    crate::roots::keep_only(CapabilitySet::empty())
}

/// Drops all capabilities of this process but that to look at processes of other users
/// (`CAP_SYS_PTRACE`), if it has it. For a process with one thread.
///
/// # Errors
/// Never on the kernels we support: a process may always give capabilities up.
pub fn keep_only_inspection() -> io::Result<()> {
    let kept = capabilities(None)?.permitted & CapabilitySet::SYS_PTRACE;
    crate::roots::keep_only(kept)
}

/// Drops all capabilities of this process but those to look into folders of other users, with its
/// own rights or with theirs. For a process with one thread.
///
/// # Errors
/// Never on the kernels we support: a process may always give capabilities up.
pub fn keep_only_lookups() -> io::Result<()> {
    let looks = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
    let becomes = CapabilitySet::SETUID | CapabilitySet::SETGID;
    crate::roots::keep_only(capabilities(None)?.permitted & (looks | becomes))
}

/// Keeps programs that this process starts from gaining privileges by set-user-ID, set-group-ID or
/// file capabilities (`PR_SET_NO_NEW_PRIVS`). It cannot be undone. For a process with one thread.
///
/// # Errors
/// Never on the kernels we support.
pub fn gain_no_more() -> io::Result<()> {
    Ok(set_no_new_privs(true)?)
}
