//! The users of the front and the pools.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use maitred_config::{
    Config, Destination, Pool, PoolUser, RootOwner, Section, Site, directory_problem,
};
use maitred_os::users::{self, Identity};
use maitred_os::walk;

use crate::error::Error;
use crate::system::faults::Examined;
use crate::system::{path_trust, site_folders};

/// The device of file systems in user space (fuse(4)).
const FUSE: &str = "/dev/fuse";

/// Default user of PHP where the document root is owned by root.
const DEFAULT_USER: &str = "www-data";

/// The pools whose users cannot be used on this machine, and why.
pub fn mistakes<'a>(
    config: &'a Config,
    examined: &'a Examined,
) -> impl Iterator<Item = (&'a str, Error)> {
    let pools = examined.pools(config);
    pools.filter_map(|pool| Some((pool.name.as_str(), of_pool(pool, config).err()?)))
}

/// Has this process distrust files that the users of a configuration can write to by their groups,
/// from now on. Call it before a log or a socket of that configuration is opened.
pub fn distrust_groups(config: &Config) {
    if !users::is_root() {
        return;
    }
    let pools = config.pools.iter().map(|pool| of_pool(pool, config));
    // A missing user is a mistake, which is reported elsewhere.
    let all = pools.chain([of_front(config)]).filter_map(Result::ok);
    let mut all: Vec<Identity> = all.flatten().collect();
    all.sort_by_key(|user| (user.uid, user.gid));
    all.dedup();
    walk::distrust_groups_of(&all);
}

/// The user of the front; none: that of this process.
///
/// # Errors
/// One sentence, for a user that does not exist or is root.
pub fn of_front(config: &Config) -> Result<Option<Identity>, Error> {
    if !users::is_root() {
        return Ok(None);
    }
    let identity = users::look_up(&config.front_user, None);
    let identity = identity.map_err(|why| Error::Setting {
        section: Section::Server,
        setting: "front_user",
        said: format!("{why}; set front_user to a user that does"),
    })?;
    not_root("the front", Section::Server, "front_user", &identity)?;
    Ok(Some(identity))
}

/// A warning if the front runs as the user of some pools, whose scripts can send signals to it, and
/// serves others, too. If all pools have one user, they can harm only themselves.
pub fn shared_with_front(config: &Config) -> Option<String> {
    let front = of_front(config).ok()??;
    let is_its = |pool: &Pool| {
        let user = of_pool(pool, config).ok().flatten();
        user.is_some_and(|user| user.uid == front.uid)
    };
    let (its, others): (Vec<_>, Vec<_>) = config.pools.iter().partition(|pool| is_its(pool));
    let named = its.iter().map(|pool| format!("`{}`", pool.name));
    let named: Vec<String> = named.filter(|_| !others.is_empty()).collect();
    let remedy = match config.fpm {
        Some(_) => "",
        None => ", or the front another `front_user`",
    };
    (!named.is_empty()).then(|| {
        format!(
            "the front runs as user `{}`, as these pools do: {}; their scripts can send signals to \
             it, which serves all pools; give them a `user` of their own{remedy}",
            front.name,
            named.join(", ")
        )
    })
}

/// Whether pools run as more than one user, so that one may have secrets from another.
pub fn has_several_users(config: &Config) -> bool {
    let users = config.pools.iter().map(|pool| {
        let identity = of_pool(pool, config).ok().flatten();
        identity.map(|identity| identity.uid)
    });
    let users: BTreeSet<_> = users.collect();
    users.len() > 1
}

/// A warning if `admin` shows scripts the pools of other users, or if other machines can reach it.
pub fn admin_is_open(config: &Config) -> Option<String> {
    let admin = config.admin.filter(|_| config.admin_access.token.is_none())?;
    let remedy = "set `admin_token_file`, or let `admin` be a Unix socket";
    if !admin.ip().to_canonical().is_loopback() {
        let shown = match has_several_users(config) {
            true => "",
            false => ", and the URLs of requests without their query strings",
        };
        return Some(format!(
            "admin = \"{admin}\" can be reached from other machines; a client there can read the \
             names and the load of the pools{shown}: {remedy}"
        ));
    }
    has_several_users(config).then(|| {
        format!(
            "admin = \"{admin}\" has no token, and pools run as several users: the scripts of each \
             can read there the names and the load of all pools; {remedy}"
        )
    })
}

/// A warning if pools run as several users and each may provide a file system of its own: one that
/// does not respond stops processes that look into folders which that user has locked by it.
pub fn fuse_is_open(config: &Config) -> Option<String> {
    let device = fs::metadata(FUSE).ok()?;
    let is_risk = users::is_root() && is_open_to_others(device.mode()) && has_several_users(config);
    is_risk.then(|| {
        format!(
            "pools run as several users, and {FUSE} is open to all of them: a user whose file \
             system does not respond can hold the locks of files and folders, for which other \
             processes wait; `chmod 600 {FUSE}` now, and write the line `z {FUSE} \
             0600 root root` to /etc/tmpfiles.d/fuse.conf for later starts of the system"
        )
    })
}

fn is_open_to_others(mode: u32) -> bool {
    mode & 0o006 != 0
}

/// Looks up the owners of the document roots of these pools, if they have no `user`: a tenant may
/// hold the lock of a folder that leads there, so the supervisor uses what was found.
pub fn find_root_owners(config: &mut Config, examined: &Examined) {
    let is_needed = |pool: &&Pool| users::is_root() && pool.user.is_none();
    let found = examined
        .pools(config)
        .filter(is_needed)
        .filter_map(|pool| Some((pool.name.clone(), look_owner_up(root_of(pool, config)?))));
    let found: Vec<_> = found.collect();
    config.root_owners.extend(found);
}

fn look_owner_up(root: &Path) -> RootOwner {
    if let Some(problem) = directory_problem(root) {
        return RootOwner::NoDirectory(problem);
    }
    match path_trust::owner_of(root) {
        Ok(owner) => RootOwner::Known(owner),
        Err(why) => RootOwner::Unusable(why.to_string()),
    }
}

/// Looks up the users of all pools of a configuration, by which the front knows them.
pub fn find_users(config: &mut Config) {
    let user = |pool: &Pool| match of_pool(pool, config) {
        Ok(identity) => PoolUser::of(identity.as_ref()),
        Err(_) => PoolUser::Unknown,
    };
    let users: Vec<PoolUser> = config.pools.iter().map(user).collect();
    for (pool, user) in config.pools.iter_mut().zip(users) {
        pool.runs_as = user;
    }
}

/// The user of a pool's zygote; none: that of this process.
///
/// Started as root, a pool without `user` runs as the owner of its document root (that of the first
/// site it serves), or as `www-data` if that is root. Not started as root, it cannot change its
/// user, and a `user` is an error rather than a surprise. A server that was started as php-fpm
/// ignores `user` then, as php-fpm does, and only `--allow-to-run-as-root` makes PHP run as root.
///
/// # Errors
/// One sentence, for a user that does not exist, is root, or cannot be adopted.
pub fn of_pool(pool: &Pool, config: &Config) -> Result<Option<Identity>, Error> {
    let asked = pool.user.as_deref().map(|user| look_up(pool, user)).transpose()?;
    if !users::is_root() {
        return match config.fpm {
            Some(_) => Ok(None),
            None => stays_who_we_are(pool, asked).map(|()| None),
        };
    }
    if config.fpm.as_ref().is_some_and(|fpm| fpm.allow_root) {
        return Ok(asked);
    }
    let identity = match asked {
        Some(asked) => asked,
        None => of_root(pool, config)?,
    };
    let who = format!("pool `{}`", pool.name);
    not_root(&who, Section::Pool(pool.name.clone()), "user", &identity)?;
    Ok(Some(identity))
}

/// The owner of the pool's document root. It need not be in the user database (in a container,
/// say), unless a group has to be looked up as well. Where the owner is unknown, or another user's
/// link leads to the root, no user may run the scripts: their author may be anyone.
fn of_root(pool: &Pool, config: &Config) -> Result<Identity, Error> {
    let Some((number, Site { root, .. })) = first_site(pool, config) else {
        return look_up(pool, DEFAULT_USER);
    };
    let known = config.root_owners.get(&pool.name).cloned();
    let owner = match known.unwrap_or_else(|| look_owner_up(root)) {
        RootOwner::Known(owner) => owner,
        RootOwner::NoDirectory(problem) => {
            return Err(site_folders::wrong(number, "root", root, &problem));
        }
        RootOwner::Unusable(why) => {
            let said = format!(
                "pool `{}` has no `user`, and the owner of its document root {} cannot be its \
                 user: {why}; set `user`, or correct the root",
                pool.name,
                root.display()
            );
            return Err(wrong(pool, "user", said));
        }
    };
    match owner.uid {
        0 => look_up(pool, DEFAULT_USER),
        _ if pool.group.is_none() => Ok(owner),
        _ => look_up(pool, &owner.name),
    }
}

fn look_up(pool: &Pool, user: &str) -> Result<Identity, Error> {
    users::look_up(user, pool.group.as_deref()).map_err(|why| {
        let setting = match users::look_up(user, None) {
            Ok(_) => "group",
            Err(_) => "user",
        };
        let said = format!("pool `{}`: {why}; set `user` and `group` to ones that do", pool.name);
        wrong(pool, setting, said)
    })
}

fn wrong(pool: &Pool, setting: &'static str, said: String) -> Error {
    Error::Setting { section: Section::Pool(pool.name.clone()), setting, said }
}

fn stays_who_we_are(pool: &Pool, asked: Option<Identity>) -> Result<(), Error> {
    let ours = users::current();
    match asked {
        Some(asked) if asked.uid != ours.uid => {
            let said = format!(
                "pool `{}` is to run as user `{}`, which only root can arrange; start maitred as \
                 root, or leave `user` out to run as `{}`",
                pool.name, asked.name, ours.name
            );
            Err(wrong(pool, "user", said))
        }
        Some(_) | None => Ok(()),
    }
}

fn not_root(
    who: &str,
    section: Section,
    setting: &'static str,
    identity: &Identity,
) -> Result<(), Error> {
    if identity.uid != 0 {
        return Ok(());
    }
    let said = format!(
        "{who} is to run as root, which maitred never does; set `{setting}` to another user"
    );
    Err(Error::Setting { section, setting, said })
}

/// The document root whose owner is the default user of a pool: that of the first site it serves.
pub fn root_of<'a>(pool: &Pool, config: &'a Config) -> Option<&'a Path> {
    first_site(pool, config).map(|(_, site)| site.root.as_path())
}

/// The first site that a pool serves, and its number.
fn first_site<'a>(pool: &Pool, config: &'a Config) -> Option<(usize, &'a Site)> {
    let serves = |destination: &Destination| match destination {
        Destination::Pool(name) => *name == pool.name,
        Destination::Upstream(_) => false,
    };
    let mut sites = config.sites.iter().enumerate();
    sites.find(|(_, site)| serves(&site.destination))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(user: &str) -> Config {
        let text =
            format!("[pools.www]\nuser = \"{user}\"\n[[sites]]\nhosts = [\"*\"]\nroot = \"/\"");
        maitred_config::parse(&text, Path::new("/maitred.toml")).unwrap()
    }

    #[test]
    fn a_device_is_open_if_others_may_read_or_write_it() {
        let open = [0o600, 0o660, 0o666, 0o622, 0o604].map(is_open_to_others);
        assert_eq!(open, [false, false, true, true, true]);
    }

    #[test]
    fn a_user_that_does_not_exist_is_named_with_its_pool() {
        let config = config("no-such-user");
        let error = of_pool(&config.pools[0], &config).unwrap_err();
        assert!(error.is_configuration());
        assert_eq!(
            error.to_string(),
            "pool `www`: user `no-such-user` does not exist on this machine; set `user` and \
             `group` to ones that do"
        );
    }

    #[test]
    fn pools_that_run_as_the_fronts_user_beside_others_are_named() {
        let mut both = config("www-data");
        assert_eq!(shared_with_front(&both), None, "there are no others");
        both.pools.extend(config("nobody").pools);
        let shared = shared_with_front(&both);
        match users::is_root() {
            true => assert!(shared.unwrap().contains("as these pools do: `www`;")),
            false => assert_eq!(shared, None, "all run as one"),
        }
        assert_eq!(shared_with_front(&config("nobody")), None);
    }

    #[test]
    fn nobody_runs_php_as_root() {
        let config = config("root");
        assert!(of_pool(&config.pools[0], &config).unwrap_err().is_configuration());
    }

    #[test]
    fn a_root_of_roots_is_served_by_www_data_if_we_are_root_and_by_ourselves_if_not() {
        let mut config = config("root");
        config.pools[0].user = None;
        let identity = of_pool(&config.pools[0], &config).unwrap();
        match users::is_root() {
            true => assert_eq!(identity.unwrap().name, DEFAULT_USER),
            false => assert_eq!(identity, None),
        }
    }
}
