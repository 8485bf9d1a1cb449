//! What a reload has to do: which pools are new, changed or removed, and which settings stay. No
//! I/O.

use std::collections::BTreeSet;

use maitred_config::{Config, LogTarget, Pool, PoolUser, RootOwner};
use maitred_os::users::{self, Identity};

use crate::processes::plan::PoolPlan;
use crate::processes::pools::Pools;
use crate::processes::running_pool::RunningPool;
use crate::system::identity;

/// A running pool, as far as a reload has to compare it.
#[derive(Debug)]
pub struct ComparedPool<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether it differs from the new configuration.
    pub differs: bool,
}

/// What the reload does with the pools, by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PoolChanges {
    /// They do not run yet.
    pub added: BTreeSet<String>,
    /// They get a new generation.
    pub restarted: BTreeSet<String>,
    /// They are no longer configured.
    pub removed: BTreeSet<String>,
    /// They run as another user from now on. What runs as the one before gets no request of the new
    /// configuration, so it ends, and the next generation starts at once.
    pub to_other_users: BTreeSet<String>,
    /// They stop: no user may run their scripts now, or the new one cannot.
    pub stopped: BTreeSet<String>,
}

impl PoolChanges {
    /// Stops pools that run.
    pub fn stop(&mut self, names: BTreeSet<String>) {
        self.restarted.retain(|name| !names.contains(name));
        self.to_other_users.retain(|name| !names.contains(name));
        self.stopped = names;
    }

    /// Gives pools that run to other users.
    pub fn change_users(&mut self, names: BTreeSet<String>) {
        self.restarted.retain(|name| !names.contains(name));
        self.to_other_users = names;
    }

    /// Leaves the pools that cannot be started as they are, and stops those of them that would get
    /// another user. Returns those that run on.
    pub fn leave(&mut self, is_stopped: impl Fn(&str) -> bool) -> Vec<String> {
        let changed = std::mem::take(&mut self.to_other_users).into_iter();
        let (stopped, startable) = changed.partition(|name| is_stopped(name));
        self.to_other_users = startable;
        self.stopped.extend::<BTreeSet<String>>(stopped);
        self.added.retain(|name| !is_stopped(name));
        let kept = self.restarted.iter().filter(|name| is_stopped(name));
        let kept: Vec<String> = kept.cloned().collect();
        self.restarted.retain(|name| !is_stopped(name));
        kept
    }
}

impl Pools {
    /// The current generations, compared with a new configuration.
    pub fn compared(&self, config: &Config) -> Vec<ComparedPool<'_>> {
        let compared = self.current().map(|pool| ComparedPool {
            name: pool.name(),
            differs: config
                .pool(pool.name())
                .is_some_and(|wanted| pool.plan.differs(wanted, config)),
        });
        compared.collect()
    }

    /// Has pools that run without `user` keep the owners of their document roots: a tenant can put
    /// another folder in the place of one, or none. Only an administrator can change the root.
    /// `changes_users`: an administrator has asked for it, and the users change to owners that are
    /// known.
    pub fn keep_owners(&self, old: &Config, config: &mut Config, changes_users: bool) {
        let pools = config.pools.iter().filter(|pool| self.current_of(&pool.name).is_some());
        let pools = pools.filter(|pool| !(changes_users && owner_is_known(pool, config)));
        let kept = pools.filter_map(|pool| {
            let owner = old.root_owners.get(&pool.name)?;
            let is_same = identity::root_of(pool, old) == identity::root_of(pool, config);
            let is_kept = is_same && pool.user.is_none() && owner_is_known(pool, old);
            is_kept.then(|| (pool.name.clone(), owner.clone()))
        });
        let kept: Vec<_> = kept.collect();
        config.root_owners.extend(kept);
    }

    /// Has pools that run without `user` keep their users after a program that has handed over no
    /// owners.
    pub fn keep_users(&self, config: &mut Config) {
        for pool in config.pools.iter().filter(|pool| pool.user.is_none()) {
            let running = self.current_of(&pool.name);
            if let Some(user) = running.and_then(|running| running.plan.settings.identity.clone()) {
                let owner = config.root_owners.entry(pool.name.clone());
                owner.or_insert(RootOwner::Known(user));
            }
        }
    }

    /// Looks up the users of all pools of a new configuration. A pool that runs has the one that it
    /// runs as where no administrator has asked for another (`changes_users`), and where its
    /// `user`, or without one the owner of its root, is the same as in `old` and cannot be looked
    /// up now.
    pub fn find_users(&self, old: &Config, config: &mut Config, changes_users: bool) {
        identity::find_users(config);
        let mut found = std::mem::take(&mut config.pools);
        for pool in &mut found {
            let Some(PoolPlan { configured, .. }) = self.current_of(&pool.name).map(|of| &of.plan)
            else {
                continue;
            };
            let is_same = pool.user == configured.user && pool.group == configured.group;
            let is_lost = pool.runs_as == PoolUser::Unknown
                && is_same
                && (pool.user.is_some() || has_same_owner(pool, old, config));
            if is_lost || !changes_users {
                pool.runs_as = configured.runs_as;
            }
        }
        config.pools = found;
    }

    /// The user that a pool runs as, where it has the same one in a new configuration whose users
    /// have been found, and it cannot be looked up now.
    pub fn lost_user(&self, pool: &Pool) -> Option<Identity> {
        let PoolPlan { configured, settings, .. } = &self.current_of(&pool.name)?.plan;
        let user = settings.identity.as_ref().filter(|_| pool.runs_as == configured.runs_as)?;
        let name = pool.user.as_ref().unwrap_or(&user.name);
        let is_lost = !users::can_be_looked_up(name, pool.group.as_deref());
        is_lost.then(|| user.clone())
    }

    /// The pools that run as other users than those of a new configuration.
    pub fn of_other_users(&self, config: &Config) -> BTreeSet<String> {
        let differs = |running: &&RunningPool| {
            let wanted = config.pool(running.name());
            wanted.is_some_and(|wanted| wanted.runs_as != running.plan.configured.runs_as)
        };
        self.current().filter(differs).map(|running| running.name().to_owned()).collect()
    }

    /// The pools that run, and have no generation of this line of fronts.
    pub fn without_line(&self, line: u32) -> BTreeSet<String> {
        let of_line = self.current().filter(|running| running.line == line);
        let of_line: BTreeSet<&str> = of_line.map(RunningPool::name).collect();
        let names = self.current().map(RunningPool::name);
        names.filter(|name| !of_line.contains(name)).map(str::to_owned).collect()
    }

    /// The pools that run, though no user may run the scripts of their document roots now.
    pub fn without_owner(&self, config: &Config) -> BTreeSet<String> {
        let is_unknown = |pool: &&Pool| {
            let owner = config.root_owners.get(&pool.name);
            owner.is_some() && !owner_is_known(pool, config)
        };
        let pools = config.pools.iter().filter(|pool| pool.user.is_none()).filter(is_unknown);
        let running = pools.filter(|pool| self.current_of(&pool.name).is_some());
        running.map(|pool| pool.name.clone()).collect()
    }
}

fn owner_is_known(pool: &Pool, config: &Config) -> bool {
    known_owner(pool, config).is_some()
}

fn known_owner(pool: &Pool, config: &Config) -> Option<u32> {
    match config.root_owners.get(&pool.name) {
        Some(RootOwner::Known(owner)) => Some(owner.uid),
        _ => None,
    }
}

/// Whether a pool has the same document root in both, of the same owner, or none in both.
fn has_same_owner(pool: &Pool, old: &Config, config: &Config) -> bool {
    let (root, owner) = (identity::root_of(pool, config), known_owner(pool, config));
    let is_same_owner = owner == known_owner(pool, old) && (owner.is_some() || root.is_none());
    root == identity::root_of(pool, old) && is_same_owner
}

/// Compares the running pools with the configured names. The pools in `asked` get a new generation
/// even if their settings have not changed.
///
/// # Errors
/// One sentence, if a pool in `asked` is not configured.
pub fn compare(
    running: &[ComparedPool<'_>],
    configured: &[&str],
    asked: &BTreeSet<String>,
) -> Result<PoolChanges, String> {
    if let Some(unknown) = asked.iter().find(|name| !configured.contains(&name.as_str())) {
        let names: Vec<String> = configured.iter().map(|name| format!("`{name}`")).collect();
        return Err(format!("there is no pool `{unknown}`; the pools are {}", names.join(", ")));
    }
    let runs = |name: &str| running.iter().find(|pool| pool.name == name);
    let mut changes = PoolChanges::default();
    for &name in configured {
        match runs(name) {
            None => drop(changes.added.insert(name.to_owned())),
            Some(pool) if pool.differs || asked.contains(name) => {
                changes.restarted.insert(name.to_owned());
            }
            Some(_) => {}
        }
    }
    let gone = running.iter().filter(|pool| !configured.contains(&pool.name));
    changes.removed = gone.map(|pool| pool.name.to_owned()).collect();
    Ok(changes)
}

/// The page cache keeps its settings, since its folder is open. Returns the names of settings that
/// would have changed.
fn keep_cache(old: &Config, config: &mut Config) -> Vec<&'static str> {
    let differs = [
        ("cache_memory", config.cache_memory != old.cache_memory),
        ("cache_dir", config.cache_dir != old.cache_dir),
        ("cache_max_size", config.cache_max_size != old.cache_max_size),
        ("cache_inactive", config.cache_inactive != old.cache_inactive),
        ("purge_log", config.purge_log != old.purge_log),
    ];
    config.cache_memory = old.cache_memory;
    config.cache_dir.clone_from(&old.cache_dir);
    config.cache_max_size = old.cache_max_size;
    config.cache_inactive = old.cache_inactive;
    config.purge_log.clone_from(&old.purge_log);
    let differs = differs.into_iter().filter(|(_, differs)| *differs);
    differs.map(|(name, _)| name).collect()
}

/// Pools keep their root directories: with two, a worker would know one script by two names, and
/// the requests of a site carry one of them. Exceptions are a pool that does not run (`runs`), and
/// one of another user: the former root has the former user's code. The users have been looked up
/// in both configurations. Returns whether a root directory differs.
pub fn keep_chroots(old: &Config, config: &mut Config, runs: impl Fn(&str) -> bool) -> bool {
    let mut differs = false;
    for pool in &mut config.pools {
        let Some(before) = old.pool(&pool.name) else {
            continue;
        };
        let has_same_user = pool.runs_as == before.runs_as && pool.runs_as != PoolUser::Unknown;
        if has_same_user && runs(&pool.name) && pool.confinement.chroot != before.confinement.chroot
        {
            // Its limits are the new ones.
            pool.confinement.chroot.clone_from(&before.confinement.chroot);
            pool.confinement.chdir.clone_from(&before.confinement.chdir);
            differs = true;
        }
    }
    differs
}

/// Settings that cannot change while the server runs keep the values in `old`. Returns their names.
/// The users of the pools have been looked up in both. `runs`: whether a pool runs.
pub fn keep_what_needs_a_restart(
    old: &Config,
    config: &mut Config,
    runs: impl Fn(&str) -> bool,
) -> Vec<&'static str> {
    let mut stays = Vec::new();
    if config.front_user != old.front_user {
        config.front_user.clone_from(&old.front_user);
        // A configuration of php-fpm cannot set it.
        if config.fpm.is_none() {
            stays.push("front_user");
        }
    }
    if config.front_threads != old.front_threads {
        config.front_threads = old.front_threads;
        stays.push("front_threads");
    }
    if config.front_sandbox != old.front_sandbox {
        config.front_sandbox = old.front_sandbox;
        stays.push("front_sandbox");
    }
    stays.extend(keep_cache(old, config));
    if keep_chroots(old, config, runs) {
        stays.push("the chroot of a pool");
    }
    // The log can move from one file to another, or from one collector to another, but not from one
    // kind to the other.
    let kind = |log: &LogTarget| match log {
        LogTarget::File(_) => 0,
        LogTarget::Stderr | LogTarget::Syslog => 1,
        LogTarget::Collector(_) => 2,
    };
    if kind(&config.error_log) != kind(&old.error_log) {
        config.error_log.clone_from(&old.error_log);
        stays.push("error_log");
    }
    if config.admin_socket != old.admin_socket {
        config.admin_socket.clone_from(&old.admin_socket);
        stays.push("admin_socket");
    }
    stays
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNNING: [ComparedPool<'static>; 3] = [
        ComparedPool { name: "blog", differs: false },
        ComparedPool { name: "old", differs: false },
        ComparedPool { name: "shop", differs: true },
    ];

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn pools_are_added_changed_removed_and_left_alone() {
        let changes = compare(&RUNNING, &["blog", "new", "shop"], &set(&[])).unwrap();
        let expected = PoolChanges {
            added: set(&["new"]),
            restarted: set(&["shop"]),
            removed: set(&["old"]),
            ..PoolChanges::default()
        };
        assert_eq!(changes, expected);
    }

    #[test]
    fn a_pool_that_gets_another_user_is_not_left_as_it_is() {
        let mut changes = compare(&RUNNING, &["blog", "old", "shop"], &set(&["blog"])).unwrap();
        changes.change_users(set(&["blog", "shop"]));
        assert_eq!(changes.leave(|name| name == "shop"), [""; 0]);
        let expected = PoolChanges {
            to_other_users: set(&["blog"]),
            stopped: set(&["shop"]),
            ..PoolChanges::default()
        };
        assert_eq!(changes, expected);
        changes.stop(set(&["blog"]));
        let expected = PoolChanges { stopped: set(&["blog"]), ..PoolChanges::default() };
        assert_eq!(changes, expected);
    }

    #[test]
    fn a_pool_that_is_asked_for_gets_a_new_generation_though_nothing_has_changed() {
        let changes = compare(&RUNNING, &["blog", "old", "shop"], &set(&["blog"])).unwrap();
        assert_eq!(changes.restarted, set(&["blog", "shop"]));
    }

    #[test]
    fn pools_that_cannot_be_started_stay_as_they_are() {
        let mut changes = compare(&RUNNING, &["blog", "new", "shop"], &set(&[])).unwrap();
        assert_eq!(changes.leave(|name| name != "blog"), ["shop"]);
        assert_eq!(changes, PoolChanges { removed: set(&["old"]), ..PoolChanges::default() });
    }

    #[test]
    fn a_pool_that_does_not_exist_cannot_be_asked_for() {
        let error = compare(&RUNNING, &["blog", "shop"], &set(&["shpo"])).unwrap_err();
        assert_eq!(error, "there is no pool `shpo`; the pools are `blog`, `shop`");
    }
}
