//! Changes the root directory of this process, and gives up the capability to do so.

use std::io;
use std::path::Path;

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// Drops all capabilities of this thread but these, for good. For a process with one thread.
///
/// # Errors
/// When this process does not have them.
pub(crate) fn keep_only(kept: CapabilitySet) -> io::Result<()> {
    let sets =
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    Ok(set_capabilities(None, sets)?)
}

/// Drops all capabilities of this thread but these, which are without effect until they are taken
/// up. For a process with one thread.
///
/// # Errors
/// When this process does not have them.
pub(crate) fn keep_for_later(kept: CapabilitySet) -> io::Result<()> {
    let none = CapabilitySet::empty();
    Ok(set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: kept, inheritable: none },
    )?)
}

/// Makes `root` the root directory of this process and of all its children, moves there, and drops
/// every capability: this cannot be undone, unless a descriptor of a folder outside is open.
///
/// # Errors
/// When this process may not (`CAP_SYS_CHROOT`), when its user may not enter `root`, or when it
/// could change its root again afterwards.
pub fn change_for_good(root: &Path) -> io::Result<()> {
    let held = capabilities(None)?;
    let needed = held.permitted & CapabilitySet::SYS_CHROOT;
    set_capabilities(None, CapabilitySets { effective: held.effective | needed, ..held })?;
    nix::unistd::chroot(root)?;
    nix::unistd::chdir("/")?;
    keep_only(CapabilitySet::empty())?;
    if !capabilities(None)?.permitted.is_empty() {
        return Err(io::Error::other("capabilities are left after giving them up"));
    }
    Ok(())
}
