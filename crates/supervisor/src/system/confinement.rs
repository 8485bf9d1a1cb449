//! Resource limits and root directory of a pool's processes.

use std::os::fd::OwnedFd;

use maitred_config::{Config, CoreSize, NoNewPrivileges, Pool, Section};
use maitred_control::Confinement;
use maitred_os::folder_lookups::look_up;
use maitred_os::users::Identity;
use maitred_os::{capabilities, limits, shared, users};

use crate::error::Error;
use crate::system::faults::Examined;

/// Where distribution packages of PHP read time zones, beneath the root.
const TIME_ZONES: &str = "usr/share/zoneinfo";

/// Settings that need root, where we are not root.
pub fn mistakes(config: &Config, examined: &Examined) -> Vec<Error> {
    if users::is_root() {
        return Vec::new();
    }
    examined
        .pools(config)
        .filter(|pool| pool.confinement.chroot.is_some())
        .map(|pool| Error::Setting {
            section: Section::Pool(pool.name.clone()),
            setting: "chroot",
            said: format!(
                "pool `{}` has a `chroot`, which only root can arrange; start maitred as root, or \
                 leave `chroot` out",
                pool.name
            ),
        })
        .collect()
}

/// Files that are missing in a chroot: the PHP of Debian and Ubuntu reads time zones from the
/// system, and crashes in date functions without them, under php-fpm too.
pub fn warnings(config: &Config) -> impl Iterator<Item = String> {
    let pools = config.pools.iter();
    pools.filter_map(|pool| {
        let zones = pool.confinement.chroot.as_ref()?.join(TIME_ZONES);
        // The owner of the root may hold the lock of a folder in it.
        let is_folder = look_up(&zones, || zones.metadata()).is_ok_and(|found| found.is_dir());
        (!is_folder).then(|| {
            format!(
                "pool `{}` has no {} in its `chroot`, without which PHP as Debian and Ubuntu \
                 package it crashes in date functions; copy it there or mount it",
                pool.name,
                zones.display()
            )
        })
    })
}

/// Whether the processes of a pool with this user can make no holes in the memory that they share
/// with the front: there are pools of others, which the front serves as well.
pub fn forbids_holes(config: &Config, identity: Option<&Identity>) -> bool {
    identity.is_some() && config.admin_access.has_several_users
}

/// Has the system refuse holes in a pool's shared memory, if its processes are to make none and its
/// zygote has not the right to refuse them. Then the front cannot give memory back, either.
pub fn make_solid(memory: &OwnedFd, confinement: &mut Confinement) {
    let may_filter = confinement.no_new_privileges == Some(true) || capabilities::may_filter();
    // If it cannot be, the zygote says so.
    confinement.has_solid_memory =
        confinement.forbids_holes && !may_filter && shared::forbid_holes(memory).is_ok();
}

/// The limits of a pool, for its zygote.
pub fn of_pool(pool: &Pool, config: &Config, identity: Option<&Identity>) -> Confinement {
    let wanted = &pool.confinement;
    Confinement {
        chroot: wanted.chroot.clone(),
        chdir: wanted.chdir.clone(),
        rlimit_files: wanted.rlimit_files,
        rlimit_core: wanted.rlimit_core.map(|size| match size {
            CoreSize::Unlimited => limits::UNLIMITED,
            CoreSize::Bytes(bytes) => bytes,
        }),
        process_priority: wanted.process_priority,
        oom_score_adj: wanted.oom_score_adj,
        no_new_privileges: match wanted.no_new_privileges {
            // The owner of its root decides which programs there are in it.
            NoNewPrivileges::Auto => wanted.chroot.is_some().then_some(true),
            NoNewPrivileges::Yes => Some(true),
            NoNewPrivileges::No => Some(false),
        },
        forbids_holes: forbids_holes(config, identity),
        has_solid_memory: false,
    }
}
