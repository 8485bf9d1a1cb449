//! Users and groups, and becoming one of them for good.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::unistd::{Gid, Group, Uid, User};
use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};

/// A user that a process is to run as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Name for messages and for the supplementary groups.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Home folder; `/` if the user has none.
    pub home: String,
}

impl Identity {
    fn of(user: User, gid: Gid) -> Identity {
        let home = user.dir.to_string_lossy().into_owned();
        Identity { name: user.name, uid: user.uid.as_raw(), gid: gid.as_raw(), home }
    }

    fn nameless(uid: u32, gid: u32) -> Identity {
        Identity { name: uid.to_string(), uid, gid, home: "/".to_owned() }
    }
}

/// Whether this process may become any user.
pub fn is_root() -> bool {
    Uid::effective().is_root()
}

/// Whether a process of this user may decide what this one runs: it is root's, or of the same user.
pub fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == Uid::effective().as_raw()
}

/// The user this process runs as now.
pub fn current() -> Identity {
    let (uid, gid) = (Uid::effective(), Gid::effective());
    match User::from_uid(uid) {
        Ok(Some(user)) => Identity::of(user, gid),
        _ => Identity::nameless(uid.as_raw(), gid.as_raw()),
    }
}

/// Looks a user (name or number) up, with another group (name or number) if one is given. A number
/// need not belong to a user, as in a container: without a group given, its group has the same
/// number.
///
/// # Errors
/// One sentence that names the user or group that does not exist.
pub fn look_up(user: &str, group: Option<&str>) -> Result<Identity, String> {
    let number = user.parse::<u32>().ok();
    let found = match number {
        Some(uid) => User::from_uid(Uid::from_raw(uid)),
        None => User::from_name(user),
    };
    let found = found.map_err(|error| format!("user `{user}` could not be looked up: {error}"))?;
    let group = group.map(look_up_group).transpose()?;
    match (found, number) {
        (Some(found), _) => {
            let gid = group.unwrap_or(found.gid);
            Ok(Identity::of(found, gid))
        }
        (None, Some(uid)) => Ok(Identity::nameless(uid, group.map_or(uid, Gid::as_raw))),
        (None, None) => Err(format!("user `{user}` does not exist on this machine")),
    }
}

/// Whether the users of this machine can be looked up now as [`look_up`] does, also one that does
/// not exist: not while a directory of users does not respond.
pub fn can_be_looked_up(user: &str, group: Option<&str>) -> bool {
    let is_found = match user.parse::<u32>() {
        Ok(uid) => User::from_uid(Uid::from_raw(uid)).is_ok(),
        Err(_) => User::from_name(user).is_ok(),
    };
    let is_number = |group: &str| group.parse::<u32>().is_ok();
    is_found && group.is_none_or(|group| is_number(group) || Group::from_name(group).is_ok())
}

/// The ids of a file owner by name or number: a name implies the user's own group, a number need
/// not belong to a user.
///
/// # Errors
/// One sentence that names the user that does not exist.
pub fn owner_named(name: &str) -> Result<(u32, Option<u32>), String> {
    match name.parse::<u32>() {
        Ok(uid) => Ok((uid, None)),
        Err(_) => look_up(name, None).map(|user| (user.uid, Some(user.gid))),
    }
}

/// The id of a group by name or number. A number need not belong to a group.
///
/// # Errors
/// One sentence that names the group that does not exist.
pub fn group_named(name: &str) -> Result<u32, String> {
    look_up_group(name).map(Gid::as_raw)
}

fn look_up_group(group: &str) -> Result<Gid, String> {
    if let Ok(gid) = group.parse::<u32>() {
        return Ok(Gid::from_raw(gid));
    }
    let found = Group::from_name(group)
        .map_err(|error| format!("group `{group}` could not be looked up: {error}"))?;
    Ok(found.ok_or_else(|| format!("group `{group}` does not exist on this machine"))?.gid)
}

/// The owner of a file or folder.
///
/// # Errors
/// When the path cannot be read, or the users of this machine cannot: the owner may have a name,
/// and groups by it.
pub fn owner_of(path: &Path) -> io::Result<Identity> {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata(path)?;
    owner_found(User::from_uid(Uid::from_raw(meta.uid())), meta.uid(), meta.gid())
}

/// The owner `uid` of a file of group `gid`, for what the look-up of that user has found.
fn owner_found(found: nix::Result<Option<User>>, uid: u32, gid: u32) -> io::Result<Identity> {
    let problem = |why| io::Error::other(format!("user {uid} could not be looked up: {why}"));
    Ok(match found.map_err(problem)? {
        Some(user) => {
            let gid = user.gid;
            Identity::of(user, gid)
        }
        None => Identity::nameless(uid, gid),
    })
}

/// The name of a user for messages; the number if the name is unknown.
pub fn name_of(uid: u32) -> String {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => user.name,
        _ => uid.to_string(),
    }
}

/// Groups that no user has and that no file belongs to: -2 as an unsigned number, or, in a user
/// namespace without it, that of `nogroup`.
const NOBODYS_GROUPS: [u32; 2] = [u32::MAX - 1, 65_534];

/// Becomes `identity` for good: supplementary groups, group, user, in that order, and checks that
/// this cannot be undone. This process is shielded from all others of that user then (see
/// [`is_shielded`]) and cannot be inspected.
///
/// # Errors
/// When this process may not, or when it could still become root afterwards.
pub fn become_user(identity: &Identity) -> io::Result<()> {
    take_on(identity)?;
    crate::fork::forbid_inspection()?;
    no_way_back(identity)
}

/// As [`become_user`], but this process can still change its root by
/// [`crate::roots::change_for_good`], and has no other privilege of root. Until then the capability
/// is without effect.
///
/// # Errors
/// As [`become_user`].
pub fn become_user_keeping_chroot(identity: &Identity) -> io::Result<()> {
    nix::sys::prctl::set_keepcaps(true)?;
    take_on(identity)?;
    crate::roots::keep_for_later(CapabilitySet::SYS_CHROOT)?;
    nix::sys::prctl::set_keepcaps(false)?;
    crate::fork::forbid_inspection()?;
    no_way_back(identity)
}

fn take_on(identity: &Identity) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
    let name = std::ffi::CString::new(identity.name.as_str())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "user name holds a NUL"))?;
    nix::unistd::initgroups(&name, gid)?;
    HAS_CHANGED.store(true, Ordering::Relaxed);
    take_on_group(gid)?;
    nix::unistd::setresuid(uid, uid, uid)?;
    Ok(())
}

/// This process has become another user. Otherwise the supervisor has the same user, and nothing
/// needs protection from that user's other processes.
static HAS_CHANGED: AtomicBool = AtomicBool::new(false);

/// Whether this process may be dumpable for a moment: no process can make use of it, or it does not
/// matter.
pub(crate) fn may_be_dumpable() -> bool {
    is_shielded() || !HAS_CHANGED.load(Ordering::Relaxed)
}

/// Sets the group, and as the saved group one that no user has: see [`is_shielded`].
fn take_on_group(gid: Gid) -> io::Result<()> {
    for nobodys in NOBODYS_GROUPS {
        let nobodys = Gid::from_raw(nobodys);
        // A user namespace may not know the number.
        if nobodys != gid && nix::unistd::setresgid(gid, gid, nobodys).is_ok() {
            return Ok(());
        }
    }
    Ok(nix::unistd::setresgid(gid, gid, gid)?)
}

/// Whether no other process without `CAP_SYS_PTRACE` may inspect this one, trace it or take its
/// descriptors, were it dumpable or not.
///
/// The kernel allows that to a process whose group is the real, the effective *and* the saved group
/// of the other (ptrace(2), "access mode checking"). Where those differ there is no such process.
/// Nothing else depends on the saved group, and a program that is started gets another.
pub fn is_shielded() -> bool {
    nix::unistd::getresgid().is_ok_and(|groups| groups.saved != groups.effective)
}

/// Makes the saved group equal to the effective one, as other programs have it. For a process that
/// has nothing to protect from its user's other processes.
pub fn leave_shield() {
    if is_shielded() {
        let gid = Gid::effective();
        // The effective group can always be set.
        let _ = nix::unistd::setresgid(gid, gid, gid);
    }
}

/// Accesses files with the rights of `identity`: neither those of root nor of root's groups apply
/// meanwhile. For a process with one thread.
///
/// # Errors
/// When the groups of that user cannot be set or restored.
pub fn with_rights_of<T>(identity: &Identity, act: impl FnOnce() -> T) -> io::Result<T> {
    let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
    let name = std::ffi::CString::new(identity.name.as_str())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "user name holds a NUL"))?;
    let ours = nix::unistd::getgroups()?;
    nix::unistd::setgroups(&nix::unistd::getgrouplist(&name, gid)?)?;
    let (our_gid, our_uid) = (nix::unistd::setfsgid(gid), nix::unistd::setfsuid(uid));
    crate::fork::renew_end_with_parent();
    let done = act();
    nix::unistd::setfsuid(our_uid);
    nix::unistd::setfsgid(our_gid);
    crate::fork::renew_end_with_parent();
    nix::unistd::setgroups(&ours)?;
    Ok(done)
}

/// Whether files can be created in `folder` with the current rights (see [`with_rights_of`]),
/// access control lists included.
pub fn may_write_to(folder: &Path) -> bool {
    let (may, flags) = (
        nix::unistd::AccessFlags::W_OK | nix::unistd::AccessFlags::X_OK,
        nix::fcntl::AtFlags::AT_EACCESS,
    );
    nix::unistd::faccessat(nix::fcntl::AT_FDCWD, folder, may, flags).is_ok()
}

/// Whether `identity` has group `gid`, among others.
pub fn is_member(identity: &Identity, gid: u32) -> bool {
    // A user that cannot be looked up may have any.
    groups_of(identity).is_none_or(|groups| groups.contains(&gid))
}

/// All groups of a process of `identity`; `None`: unknown.
pub fn groups_of(identity: &Identity) -> Option<Vec<u32>> {
    let name = std::ffi::CString::new(identity.name.as_str()).ok()?;
    let groups = nix::unistd::getgrouplist(&name, Gid::from_raw(identity.gid)).ok()?;
    Some(groups.into_iter().map(Gid::as_raw).collect())
}

fn no_way_back(identity: &Identity) -> io::Result<()> {
    if identity.uid != 0 && nix::unistd::setuid(Uid::from_raw(0)).is_ok() {
        return Err(io::Error::other("root could be regained after giving it up"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An id without a user on test machines.
    const UNKNOWN: &str = "3999999999";

    #[test]
    fn an_owner_without_a_name_has_the_files_group_and_one_that_cannot_be_looked_up_has_none() {
        assert_eq!(owner_found(Ok(None), 1000, 33).unwrap(), Identity::nameless(1000, 33));
        let failed = owner_found(Err(nix::Error::EIO), 1000, 33).unwrap_err().to_string();
        assert!(failed.starts_with("user 1000 could not be looked up: "), "{failed}");
    }

    #[test]
    fn a_number_need_not_be_anybodys_and_a_name_does() {
        let alone = look_up(UNKNOWN, None).expect("a number is accepted");
        assert_eq!((alone.uid, alone.gid), (3_999_999_999, 3_999_999_999));
        assert_eq!(alone.name, UNKNOWN);
        let grouped = look_up(UNKNOWN, Some("0")).expect("a number is accepted");
        assert_eq!((grouped.uid, grouped.gid), (3_999_999_999, 0));
        assert_eq!(look_up("0", None).expect("root is known").name, "root");
        look_up("no-user-of-this-name", None).expect_err("an unknown name");
    }
}
