//! Changes the root directory of this process, and gives up the capability to do so.

use std::io;
use std::path::Path;

use rustix::fs::FileType;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::walk::{self, OpenedPath, Rule};

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
/// every capability: this cannot be undone, unless a descriptor of a folder outside is open. No
/// symbolic link is followed: the owner of a folder above can put one in the place of `root`, even
/// to `/`.
///
/// # Errors
/// When this process may not (`CAP_SYS_CHROOT`), when its user may not enter `root`, when a link is
/// on the path, or when it could change its root again afterwards.
pub fn change_for_good(root: &Path) -> io::Result<()> {
    let held = capabilities(None)?;
    let needed = held.permitted & CapabilitySet::SYS_CHROOT;
    set_capabilities(None, CapabilitySets { effective: held.effective | needed, ..held })?;
    // No descriptor of a folder outside stays open.
    rustix::process::fchdir(without_links(root)?.fd)?;
    nix::unistd::chroot(".")?;
    nix::unistd::chdir("/")?;
    keep_only(CapabilitySet::empty())?;
    if !capabilities(None)?.permitted.is_empty() {
        return Err(io::Error::other("capabilities are left after giving them up"));
    }
    Ok(())
}

/// The folder at the end of a path without symbolic links.
fn without_links(path: &Path) -> io::Result<OpenedPath> {
    let reached = walk::to(path, Rule::Any)?;
    let mut entries = reached.steps.iter().filter_map(|step| step.entry);
    if entries.any(|entry| entry.kind() == FileType::Symlink) {
        return Err(io::Error::other("a symbolic link is on the path, and none is followed"));
    }
    Ok(reached.entry.ok_or(io::ErrorKind::NotFound)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn a_root_directory_is_entered_by_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        let jail = real.join("jail");
        std::fs::create_dir(&jail).unwrap();
        let found = without_links(&jail).unwrap();
        assert_eq!(found.facts.id.1, jail.metadata().unwrap().ino());
        symlink("/", real.join("link")).unwrap();
        symlink("jail", jail.with_extension("link")).unwrap();
        for path in ["link", "jail.link", "link/etc", "jail.link/../jail"] {
            let refused = without_links(&real.join(path)).unwrap_err().to_string();
            assert!(refused.contains("a symbolic link is on the path"), "{path}: {refused}");
        }
        let missing = without_links(&real.join("missing")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
