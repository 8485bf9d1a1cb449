//! Which symbolic links may be followed on a configured path, and who else than root may change its
//! target. Pure: attributes of files are the input, a decision is the result.

use rustix::fs::FileType;

const GROUP_READS: u32 = 0o040;
const GROUP_WRITES: u32 = 0o020;
const OTHERS_READ: u32 = 0o004;
const OTHERS_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// The group of root. Its members administer the machine.
pub(super) const ROOT_GROUP: u32 = 0;

/// Attributes of a file or folder, read from a descriptor of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The group has untrusted members ([`super::distrust_groups_of`]).
    pub group_counts: bool,
    /// Type and permission bits (`st_mode`).
    pub mode: u32,
    /// Its number of hard links.
    pub names: u64,
    /// Device and inode.
    pub id: (u64, u64),
    /// It has an access control list beyond its mode, or a default one.
    pub has_list: bool,
}

impl Facts {
    /// Regular file, folder, link, …
    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }
}

/// The trusted users besides root, and the strictness of the rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// For a process that only reads: a link of root, or of this process's own user, leads
    /// anywhere; any other link only to files of its own owner.
    Read {
        /// The process's own user.
        own: u32,
    },
    /// For root, who creates and changes files: as above, and a link in a folder where others may
    /// move it counts as theirs.
    Change,
    /// Every link is followed; the caller judges the steps.
    Any,
}

impl Rule {
    /// The rule for this process when it reads.
    pub fn of_reader() -> Rule {
        let own = rustix::process::geteuid().as_raw();
        Rule::Read { own }
    }
}

/// Allowed targets of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Anywhere.
    Anywhere,
    /// Files of one of these two users (often the same twice), or, with `beneath`, inside the
    /// link's own folder.
    Owned {
        /// The owners.
        by: [u32; 2],
        /// Whether any target inside the link's folder is allowed as well.
        beneath: bool,
    },
}

impl Reach {
    /// Whether a link of this reach may lead to `target`, which is or is not inside the link's
    /// folder.
    pub fn holds(self, target: &Facts, is_beneath: bool) -> bool {
        match self {
            Reach::Anywhere => true,
            Reach::Owned { by, beneath } => by.contains(&target.uid) || (beneath && is_beneath),
        }
    }
}

/// The allowed targets of `link` in `folder`.
///
/// The owner of a folder can rename its contents, and so show them under any name there: targets
/// inside the link owner's folder add nothing to that. Any user may have created a second name of a
/// link of root's (`linkat(2)`).
pub fn reach(rule: Rule, folder: &Facts, link: &Facts) -> Reach {
    let trusted = match rule {
        Rule::Any => return Reach::Anywhere,
        Rule::Read { own } => link.uid == 0 || link.uid == own,
        Rule::Change => link.uid == 0,
    };
    let is_safe = only_root_changes(folder, Some(link)) && link.names == 1;
    // Root's own links are judged above, by their folder.
    let is_own = |own: u32| own != 0 && (link.uid == own || folder.uid == own);
    match (trusted, rule) {
        (true, Rule::Read { own }) if is_own(own) => Reach::Anywhere,
        (true, _) if is_safe => Reach::Anywhere,
        (true, Rule::Read { .. }) => Reach::Owned { by: [0, folder.uid], beneath: true },
        (true, _) => Reach::Owned { by: [folder.uid; 2], beneath: true },
        (false, _) => Reach::Owned { by: [link.uid; 2], beneath: folder.uid == link.uid },
    }
}

/// Whether only root can have put `entry` into `folder`, and can replace it. A file of root's in a
/// folder like `/tmp` cannot be replaced by others (inode(7), "sticky"); a missing one can be
/// created by them.
pub fn only_root_changes(folder: &Facts, entry: Option<&Facts>) -> bool {
    if folder.uid != 0 {
        return false;
    }
    let group_writes = folder.mode & GROUP_WRITES != 0 && folder.group_counts;
    if !group_writes && folder.mode & OTHERS_WRITE == 0 && !folder.has_list {
        return true;
    }
    folder.mode & STICKY != 0 && entry.is_some_and(|entry| entry.uid == 0)
}

/// Whether this is a folder such as `/tmp`, in which only the owner of an entry can replace it.
pub(super) fn is_sticky_of_root(folder: &Facts) -> bool {
    folder.uid == 0 && folder.mode & STICKY != 0
}

/// Whether others than root may list a folder of root's, and so hold its lock (getdents(2) into
/// memory that a FUSE file system does not give): the creation of a file waits for that.
pub fn others_list(folder: &Facts) -> bool {
    let group_reads = folder.mode & GROUP_READS != 0 && folder.group_counts;
    group_reads || folder.mode & OTHERS_READ != 0 || folder.has_list
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTORY: u32 = 0o040_000;
    const A: u32 = 5001;
    const B: u32 = 5002;
    const FRONT: u32 = 5000;
    const READ: Rule = Rule::Read { own: FRONT };

    fn folder(uid: u32, mode: u32) -> Facts {
        Facts {
            uid,
            gid: uid,
            group_counts: uid != 0,
            mode: DIRECTORY | mode,
            names: 2,
            id: (1, 1),
            has_list: false,
        }
    }

    fn link(uid: u32) -> Facts {
        Facts {
            uid,
            gid: uid,
            group_counts: uid != 0,
            mode: 0o120_777,
            names: 1,
            id: (1, 2),
            has_list: false,
        }
    }

    fn leads(rule: Rule, within: &Facts, of: &Facts, to: u32) -> bool {
        reach(rule, within, of).holds(&folder(to, 0o755), false)
    }

    #[test]
    fn a_tenants_link_leads_to_the_tenants_own_alone_wherever_it_lies() {
        for within in [folder(A, 0o755), folder(0, 0o755), folder(0, 0o1777)] {
            for rule in [READ, Rule::Change] {
                assert!(leads(rule, &within, &link(A), A), "{within:?}");
                assert!(!leads(rule, &within, &link(A), B), "{within:?}");
                assert!(!leads(rule, &within, &link(A), 0), "{within:?}");
                assert!(!leads(rule, &within, &link(A), FRONT), "{within:?}");
            }
        }
    }

    #[test]
    fn roots_link_leads_anywhere_unless_others_could_have_moved_it_there() {
        for rule in [READ, Rule::Change] {
            assert!(leads(rule, &folder(0, 0o755), &link(0), B));
            assert!(leads(rule, &folder(0, 0o1777), &link(0), B));
            assert!(!leads(rule, &folder(A, 0o755), &link(0), B));
            assert!(leads(rule, &folder(A, 0o755), &link(0), A));
            assert!(!leads(rule, &folder(0, 0o777), &link(0), B));
        }
        assert!(leads(READ, &folder(A, 0o755), &link(0), 0));
        assert!(!leads(Rule::Change, &folder(A, 0o755), &link(0), 0));
        let twice = Facts { names: 2, ..link(0) };
        assert!(!leads(READ, &folder(0, 0o1777), &twice, B));
    }

    #[test]
    fn the_processs_own_link_leads_anywhere_for_it_can_read_no_more_by_it() {
        assert!(leads(READ, &folder(FRONT, 0o755), &link(FRONT), 0));
        assert!(!leads(Rule::Change, &folder(FRONT, 0o755), &link(FRONT), 0));
    }

    #[test]
    fn what_lies_beneath_the_folder_of_the_links_owner_could_be_renamed_as_well() {
        let deployed = folder(B, 0o755);
        assert!(reach(READ, &folder(A, 0o755), &link(A)).holds(&deployed, true));
        assert!(reach(READ, &folder(A, 0o755), &link(0)).holds(&deployed, true));
        assert!(!reach(READ, &folder(0, 0o777), &link(A)).holds(&deployed, true));
    }

    #[test]
    fn a_folder_with_a_list_or_a_group_that_writes_is_not_roots_alone() {
        let listed = Facts { has_list: true, ..folder(0, 0o755) };
        let of_group = Facts { group_counts: true, ..folder(0, 0o775) };
        assert!(only_root_changes(&folder(0, 0o755), None));
        assert!(only_root_changes(&folder(0, 0o775), None));
        assert!(!only_root_changes(&listed, None));
        assert!(!only_root_changes(&of_group, None));
        assert!(!only_root_changes(&folder(A, 0o700), None));
        let of_readers = Facts { group_counts: true, ..folder(0, 0o750) };
        assert!(others_list(&listed) && others_list(&of_readers) && others_list(&folder(0, 0o755)));
        assert!(!others_list(&folder(0, 0o700)) && !others_list(&folder(0, 0o750)));
        let sticky = folder(0, 0o1777);
        assert!(only_root_changes(&sticky, Some(&folder(0, 0o755))));
        assert!(!only_root_changes(&sticky, Some(&folder(A, 0o755))));
        assert!(!only_root_changes(&sticky, None));
    }
}
