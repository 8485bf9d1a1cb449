//! Groups with an untrusted member: a user that PHP or the front runs as. A folder that only other
//! groups may write to, such as `/var/log` of `root:syslog`, is the administrator's.

use std::collections::BTreeSet;
use std::sync::{PoisonError, RwLock};

use serde::{Deserialize, Serialize};

use super::rule::ROOT_GROUP;
use crate::users::{self, Identity};

/// Those of this process. Until its users are known, every group is untrusted.
static UNTRUSTED: RwLock<Untrusted> = RwLock::new(Untrusted::All);

/// Untrusted groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Untrusted {
    /// All but root's.
    All,
    /// These.
    Of(BTreeSet<u32>),
}

impl Untrusted {
    /// Those of this process.
    pub fn current() -> Untrusted {
        UNTRUSTED.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes them those of this process: another process of the server, or the program before an
    /// upgrade, knows its users.
    pub fn apply(self) {
        *UNTRUSTED.write().unwrap_or_else(PoisonError::into_inner) = self;
    }

    fn has(&self, gid: u32) -> bool {
        match self {
            Untrusted::All => gid != ROOT_GROUP,
            Untrusted::Of(groups) => gid != ROOT_GROUP && groups.contains(&gid),
        }
    }

    /// Adds these. Known groups stay: a process of a pool that is no longer configured may have
    /// them yet. `groups` is `None` where they are unknown.
    fn with(&self, groups: Option<BTreeSet<u32>>) -> Untrusted {
        match (self, groups) {
            (_, None) => Untrusted::All,
            (Untrusted::All, Some(groups)) => Untrusted::Of(groups),
            (Untrusted::Of(known), Some(groups)) => Untrusted::Of(known | &groups),
        }
    }
}

/// From now on, the groups of these users are untrusted by this process, and other groups are
/// trusted, except those of users that were named before.
pub fn distrust_groups_of(identities: &[Identity]) {
    let mut untrusted = UNTRUSTED.write().unwrap_or_else(PoisonError::into_inner);
    *untrusted = untrusted.with(groups_of(identities));
}

/// Whether `gid` has an untrusted member.
pub fn is_untrusted(gid: u32) -> bool {
    let untrusted = UNTRUSTED.read().unwrap_or_else(PoisonError::into_inner);
    untrusted.has(gid)
}

/// All groups of these users: the primary one, which `group` of a pool may have replaced, and the
/// others. Root can write anyway.
fn groups_of(identities: &[Identity]) -> Option<BTreeSet<u32>> {
    let mut groups = BTreeSet::new();
    for identity in identities.iter().filter(|identity| identity.uid != 0) {
        groups.extend(users::groups_of(identity)?);
        let usual = users::look_up(&identity.uid.to_string(), None).ok()?;
        groups.insert(usual.gid);
    }
    Some(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYSLOG: u32 = 103;
    const POOL: u32 = 5001;
    const OTHER_POOL: u32 = 5002;

    fn user(uid: u32, gid: u32) -> Identity {
        Identity { name: uid.to_string(), uid, gid, home: "/".to_owned() }
    }

    #[test]
    fn every_group_but_roots_counts_until_users_are_known_and_then_theirs_alone() {
        assert!(Untrusted::All.has(SYSLOG) && !Untrusted::All.has(ROOT_GROUP));
        let first = Untrusted::All.with(groups_of(&[user(POOL, POOL)]));
        assert!(first.has(POOL) && !first.has(SYSLOG) && !first.has(OTHER_POOL));
        let second = first.with(groups_of(&[user(OTHER_POOL, SYSLOG), user(0, 0)]));
        assert!(second.has(POOL) && second.has(SYSLOG) && !second.has(ROOT_GROUP));
        assert!(second.has(OTHER_POOL), "its usual group");
        assert!(second.with(None).has(104), "groups that cannot be told");
    }
}
