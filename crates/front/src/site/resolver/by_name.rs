//! Files and scripts by their own names, which `.htaccess` files have found.

use std::sync::Arc;

use rustix::fs::FileType;
use rustix::io::Errno;

use super::{Opened, Refused, Resolver, Script, Target, name_lookups, not_found, refusal};
use crate::runtime::file_identity::Identity;
use crate::site::name_lookups::{FileContent, FoundFile};

/// Which document root an evaluation has seen: how often it was opened again before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RootVersion(u64);

impl RootVersion {
    /// The one that is open.
    pub fn of(resolver: &Resolver) -> RootVersion {
        RootVersion(resolver.reopened())
    }

    /// The one that is open, if no link leads to it: another folder that gets its name has the
    /// names of its scripts then, which PHP opens by them.
    pub fn by_own_name(resolver: &Resolver) -> Option<RootVersion> {
        let is_own = *resolver.real_root == *resolver.place.name;
        is_own.then(|| RootVersion::of(resolver))
    }

    /// Checks that it is still open.
    ///
    /// # Errors
    /// When another one is.
    pub fn check(self, resolver: &Resolver) -> Result<(), Refused> {
        self.is(RootVersion::of(resolver))
    }

    /// Checks that it is the same as another one.
    ///
    /// # Errors
    /// When it is not.
    pub fn is(self, other: RootVersion) -> Result<(), Refused> {
        match self == other {
            true => Ok(()),
            false => Err(Refused::notable(503, "the document root is being replaced")),
        }
    }
}

impl Resolver {
    /// The first `most` bytes of an open file.
    pub(crate) fn content(
        &self,
        name: &[u8],
        opened: &Opened,
        most: u64,
    ) -> rustix::io::Result<FileContent> {
        let root = self.root.as_ref().map_err(|_| Errno::NOENT)?;
        let file = FoundFile { root, path: name, fd: &opened.fd };
        file.read(Identity::of(&opened.stat), most)
    }

    /// The root without symbolic links, and without a trailing slash.
    pub fn real_root(&self) -> &[u8] {
        &self.real_root
    }

    /// Opens the root again if its name leads to another folder. Checked once in an `arrival` of
    /// requests (0: always): what is not cached is looked up below a descriptor, which would be
    /// that of a folder that a deployment has moved away or removed.
    ///
    /// # Errors
    /// When the root cannot be opened.
    pub fn refresh(&mut self, arrival: u64) -> Result<(), Refused> {
        let arrival = name_lookups::at(arrival);
        if arrival == 0 || self.refreshed != arrival || self.root.is_err() {
            self.follow_root()?;
            self.refreshed = self.refreshed.max(arrival);
        }
        Ok(())
    }

    /// How often the root was opened again. What is known of its files holds until this changes.
    pub fn reopened(&self) -> u64 {
        self.reopened
    }

    /// A script, whatever its name: a directive has chosen its handler. `name` is its path below
    /// the root.
    ///
    /// # Errors
    /// When it is no regular file.
    pub fn script_at(&self, name: &[u8], path_info: &[u8]) -> Result<Arc<Script>, Refused> {
        let opened = self.look(name).map_err(refusal)?;
        if opened.kind() != FileType::RegularFile {
            return Err(not_found("the path names no regular file"));
        }
        match self.script(name, path_info, &opened, Vec::new())?.target {
            Target::Script(script) => Ok(script),
            Target::File(_) | Target::Redirect(_) | Target::Nothing => {
                Err(not_found("the path names no script"))
            }
        }
    }
}
