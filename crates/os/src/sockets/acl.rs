//! POSIX access control lists in the kernel's attribute `system.posix_acl_access`
//! (include/uapi/linux/posix_acl_xattr.h, acl(5)): a version, then entries of tag, permissions and
//! id, little-endian, by tag and then by id.

use std::io;

/// The attribute that holds a file's list.
pub const ATTRIBUTE: &str = "system.posix_acl_access";

/// The attribute of a folder with the default list of new files in it.
pub const OF_NEW_FILES: &str = "system.posix_acl_default";

/// Largest list that is read, in bytes: that of the largest attribute there can be
/// (`XATTR_SIZE_MAX`, xattr(7)).
pub const MAX_BYTES: usize = 64 << 10;

/// `POSIX_ACL_XATTR_VERSION`.
const VERSION: u32 = 2;
const ENTRY_BYTES: usize = 8;
/// The id of entries without a user or group (`ACL_UNDEFINED_ID`).
const NO_ID: u32 = u32::MAX;
const READ_WRITE: u16 = 0o6;

/// The subject of an entry. The numbers are the kernel's (`ACL_USER_OBJ` and so on).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
enum Tag {
    Owner = 0x01,
    User = 0x02,
    OwningGroup = 0x04,
    Group = 0x08,
    /// The mask: the maximum for all but the owner and others.
    Mask = 0x10,
    Others = 0x20,
}

/// One line of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    tag: Tag,
    id: u32,
    permissions: u16,
}

/// A list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessList(Vec<Entry>);

impl AccessList {
    /// The list equivalent to a file's mode.
    pub fn of_mode(mode: u32) -> AccessList {
        let bits = |shift: u32| ((mode >> shift) & 0o7) as u16;
        let classes = [(Tag::Owner, 6), (Tag::OwningGroup, 3), (Tag::Others, 0)];
        let entries =
            classes.map(|(tag, shift)| Entry { tag, id: NO_ID, permissions: bits(shift) });
        AccessList(entries.to_vec())
    }

    /// Reads the value of the attribute.
    ///
    /// # Errors
    /// `InvalidData` when it is none.
    pub fn read(value: &[u8]) -> io::Result<AccessList> {
        let bad = || io::Error::new(io::ErrorKind::InvalidData, "not an access control list");
        let (version, entries) = value.split_first_chunk::<4>().ok_or_else(bad)?;
        if u32::from_le_bytes(*version) != VERSION || entries.len() % ENTRY_BYTES != 0 {
            return Err(bad());
        }
        let entries = entries.chunks_exact(ENTRY_BYTES).map(|entry| {
            let (tag, rest) = entry.split_first_chunk::<2>()?;
            let (permissions, id) = rest.split_first_chunk::<2>()?;
            Some(Entry {
                tag: Tag::of(u16::from_le_bytes(*tag))?,
                permissions: u16::from_le_bytes(*permissions),
                id: u32::from_le_bytes(id.try_into().ok()?),
            })
        });
        let entries: Option<Vec<Entry>> = entries.collect();
        entries.map(AccessList).ok_or_else(bad)
    }

    /// Grants users and groups read and write access as well, and sets the mask so that all entries
    /// take effect (`acl_calc_mask(3)`).
    pub fn admit(&mut self, users: &[u32], groups: &[u32]) {
        let users = users.iter().map(|&id| (Tag::User, id));
        for (tag, id) in users.chain(groups.iter().map(|&id| (Tag::Group, id))) {
            self.0.retain(|entry| (entry.tag, entry.id) != (tag, id));
            self.0.push(Entry { tag, id, permissions: READ_WRITE });
        }
        self.0.retain(|entry| entry.tag != Tag::Mask);
        let masked = |entry: &&Entry| !matches!(entry.tag, Tag::Owner | Tag::Others);
        let masked = self.0.iter().filter(masked).map(|entry| entry.permissions);
        let permissions = masked.fold(0, |all, one| all | one);
        self.0.push(Entry { tag: Tag::Mask, id: NO_ID, permissions });
        self.0.sort_unstable();
    }

    /// The value of the attribute.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            value.extend((entry.tag as u16).to_le_bytes());
            value.extend(entry.permissions.to_le_bytes());
            value.extend(entry.id.to_le_bytes());
        }
        value
    }
}

impl Tag {
    fn of(number: u16) -> Option<Tag> {
        let all = [Tag::Owner, Tag::User, Tag::OwningGroup, Tag::Group, Tag::Mask, Tag::Others];
        all.into_iter().find(|tag| *tag as u16 == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let mut list = AccessList::of_mode(0o640);
        list.admit(&[33, 1], &[7]);
        assert_eq!(AccessList::read(&list.to_bytes()).unwrap(), list);
    }

    #[test]
    fn whoever_is_admitted_twice_has_one_entry() {
        let mut list = AccessList::of_mode(0o600);
        list.admit(&[33, 33], &[]);
        list.admit(&[33], &[]);
        let mut once = AccessList::of_mode(0o600);
        once.admit(&[33], &[]);
        assert_eq!(list, once);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let good = AccessList::of_mode(0o600).to_bytes();
        let mut wrong_tag = good.clone();
        wrong_tag[4] = 3;
        let mut wrong_version = good.clone();
        wrong_version[0] = 1;
        for bad in [&b""[..], b"\x02\0\0", &good[..9], &wrong_tag, &wrong_version] {
            assert!(AccessList::read(bad).is_err(), "{bad:?}");
        }
    }
}
