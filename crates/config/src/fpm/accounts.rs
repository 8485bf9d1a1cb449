//! Users and groups in a configuration (`fpm_unix.c`).

use nix::unistd::{Group, Uid, User};

/// A user of the system.
#[derive(Debug, Clone)]
pub(super) struct Account {
    pub(super) name: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) home: String,
}

impl Account {
    fn of(user: User) -> Account {
        Account {
            name: user.name,
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
            home: user.dir.to_string_lossy().into_owned(),
        }
    }
}

/// The number in `name`, if it is one (`fpm_unix_is_id`).
pub(super) fn number(name: &str) -> Option<u32> {
    let digits = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| name.parse().unwrap_or(u32::MAX))
}

/// The user of this name.
pub(super) fn by_name(name: &str) -> Option<Account> {
    User::from_name(name).ok().flatten().map(Account::of)
}

/// The user of this number.
pub(super) fn by_number(uid: u32) -> Option<Account> {
    let user = User::from_uid(Uid::from_raw(uid));
    user.ok().flatten().map(Account::of)
}

/// The user this process was started as.
pub(super) fn own() -> Option<Account> {
    by_number(Uid::current().as_raw())
}

/// The number of the group of this name.
pub(super) fn group(name: &str) -> Option<u32> {
    let group = Group::from_name(name).ok().flatten();
    group.map(|group| group.gid.as_raw())
}
