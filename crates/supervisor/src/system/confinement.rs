//! What a pool's processes may use and where they live, as its zygote is told.

use maitred_config::{Config, CoreSize, NoNewPrivileges, Pool, Section};
use maitred_control::Confinement;
use maitred_os::{limits, users};

use crate::error::Error;

/// Where those packages of PHP look for time zones, beneath the root.
const TIME_ZONES: &str = "usr/share/zoneinfo";

/// What only root can arrange, and is asked for though we are not root.
pub fn mistakes(config: &Config) -> Vec<Error> {
    if users::is_root() {
        return Vec::new();
    }
    let pools = config.pools.iter();
    pools
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

/// What a pool's scripts will miss in their chroot: Debian's and Ubuntu's PHP reads time zones from
/// the machine, and crashes in date functions where they are not, under php-fpm too.
pub fn warnings(config: &Config) -> impl Iterator<Item = String> {
    let pools = config.pools.iter();
    pools.filter_map(|pool| {
        let zones = pool.confinement.chroot.as_ref()?.join(TIME_ZONES);
        (!zones.is_dir()).then(|| {
            format!(
                "pool `{}` has no {} in its `chroot`, without which PHP as Debian and Ubuntu \
                 package it crashes in date functions; copy it there or mount it",
                pool.name,
                zones.display()
            )
        })
    })
}

/// What the zygote of a pool is told.
pub fn of_pool(pool: &Pool) -> Confinement {
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
            NoNewPrivileges::Auto => None,
            NoNewPrivileges::Yes => Some(true),
            NoNewPrivileges::No => Some(false),
        },
    }
}
