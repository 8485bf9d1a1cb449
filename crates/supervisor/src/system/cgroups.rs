//! A control group for each pool that has limits for all of its processes together.
//!
//! They are created inside the group that the supervisor was started in, which must be delegated:
//! by systemd with `Delegate=yes`, or as a container with a writable `cgroup2`. A group with
//! subgroups must hold no process itself, so the supervisor moves into a subgroup first.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use maitred_config::{Config, GroupLimits, Pool};
use maitred_os::cgroup::Group;
use maitred_os::proc;

use crate::limits::{LATE_LIMIT_WRITE, LATE_LIMIT_WRITES, LIMIT_WRITE_LEAST, LIMIT_WRITES, Moment};
use crate::system::identity;

/// The subgroup of supervisor and front, if they had to move.
const OWN_GROUP: &str = "maitred-supervisor";

/// Prefix of a pool's group.
const POOL_GROUP: &str = "maitred-pool-";

/// The controllers that pools are limited by.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

/// Interval of the attempts to remove the groups of removed pools.
const LEFT_TRIED_EVERY: Duration = Duration::from_secs(1);

/// How many processes of a removed pool are looked at when there is a pool of its name again.
const LEFT_LOOKED_AT: usize = 64;

/// The period of `cpu_max`, in microseconds: the kernel's default.
const CPU_PERIOD_MICROS: u64 = 100_000;

/// Why pools run without their limits, as one sentence.
pub type Warning = String;

/// The control groups of a server; removed when this is dropped.
#[derive(Debug)]
pub struct Groups {
    base: Group,
    controllers: BTreeSet<&'static str>,
    /// Controllers that were not enabled for subgroups before.
    divided: Vec<&'static str>,
    /// The subgroup of the supervisor.
    own: Option<Group>,
    pools: BTreeMap<String, PoolGroup>,
    /// Those of removed pools, until they are empty.
    left: Vec<Group>,
    /// When these were last tried to be removed.
    tried: Moment,
}

#[derive(Debug)]
struct PoolGroup {
    group: Group,
    entrance: OwnedFd,
}

/// A setting of a control group: its controller, name and value.
type Setting = (&'static str, &'static str, String);

/// All settings for a pool: an existing group may have others.
fn settings(limits: &GroupLimits) -> [Setting; 4] {
    let or_max = |limit: Option<u64>| limit.map_or("max".to_owned(), |limit| limit.to_string());
    let quota = limits.cpu_max.map(|thousandths| u64::from(thousandths) * CPU_PERIOD_MICROS / 1000);
    let cpu = format!("{} {CPU_PERIOD_MICROS}", or_max(quota));
    [
        ("memory", "memory.max", or_max(limits.memory_max)),
        ("memory", "memory.high", or_max(limits.memory_high)),
        ("cpu", "cpu.max", cpu),
        ("pids", "pids.max", or_max(limits.pids_max.map(u64::from))),
    ]
}

/// Controllers for the limits of a pool, with the directives.
fn needed(limits: &GroupLimits) -> Vec<(&'static str, &'static str)> {
    let all = [
        ("memory", "memory_max", limits.memory_max.is_some()),
        ("memory", "memory_high", limits.memory_high.is_some()),
        ("cpu", "cpu_max", limits.cpu_max.is_some()),
        ("pids", "pids_max", limits.pids_max.is_some()),
    ];
    let set = all.into_iter().filter(|(_, _, is_set)| *is_set);
    set.map(|(controller, directive, _)| (controller, directive)).collect()
}

fn limited(config: &Config) -> impl Iterator<Item = &Pool> {
    let pools = config.pools.iter();
    pools.filter(|pool| !pool.confinement.together.is_unlimited())
}

/// The controllers for all pools of `config`.
fn controllers(config: &Config) -> BTreeSet<&'static str> {
    let needs = limited(config).flat_map(|pool| needed(&pool.confinement.together));
    needs.map(|(controller, _)| controller).collect()
}

/// Why this machine cannot limit pools, however the server is started; none if it can.
pub fn obstacle(config: &Config) -> Option<Warning> {
    let wanted = controllers(config);
    if wanted.is_empty() {
        return None;
    }
    let group = match Group::of_this_process() {
        Ok(group) => group,
        Err(error) => return Some(warning(config, &no_group(&error))),
    };
    // The outermost visible group has all controllers of the machine, or of the container.
    let mut group = group;
    while let Some(outer) = group.parent().filter(|outer| outer.controllers().is_ok()) {
        group = outer;
    }
    lacking(&group, &wanted).map(|why| warning(config, &why))
}

impl Groups {
    /// Creates the groups of the pools with limits, or applies the limits of another configuration
    /// to them.
    ///
    /// # Errors
    /// Why the limits cannot be applied.
    pub fn arrange(groups: &mut Option<Groups>, config: &Config) -> Result<(), Warning> {
        let arranged = match groups {
            Some(groups) => groups.follow(config),
            None if controllers(config).is_empty() => Ok(()),
            None => Group::of_this_process()
                .map_err(|error| no_group(&error))
                .and_then(|own| Groups::inside(own, config))
                .map(|made| *groups = Some(made)),
        };
        arranged.map_err(|why| warning(config, &why))
    }

    /// Creates the groups of the pools that a reload adds, whose processes start before the
    /// configuration is used. Those of the others keep their limits until then: the reload may be
    /// refused. What fails is found again by [`Groups::arrange`].
    pub fn arrange_added(groups: &mut Option<Groups>, config: &Config, added: &BTreeSet<String>) {
        let mut config = config.clone();
        config.pools.retain(|pool| added.contains(&pool.name));
        let _ = Groups::arrange(groups, &config);
    }

    fn inside(present: Group, config: &Config) -> Result<Groups, String> {
        // A program that takes over is in the right group already.
        let is_own = present.path().file_name() == Some(OWN_GROUP.as_ref());
        let base = present.parent().filter(|_| is_own);
        let mut groups = Groups {
            own: base.is_some().then(|| present.clone()),
            base: base.unwrap_or(present),
            controllers: BTreeSet::new(),
            divided: Vec::new(),
            pools: BTreeMap::new(),
            left: Vec::new(),
            tried: Moment::ZERO,
        };
        if is_own {
            groups.take_over(config);
        }
        groups.follow(config)?;
        Ok(groups)
    }

    /// Takes over what the program before this one has made: its controllers, and the groups of
    /// pools that are not in use any more.
    fn take_over(&mut self, config: &Config) {
        let divided = self.base.divided_by().unwrap_or_default();
        let is_ours = |name: &&str| divided.iter().any(|divided| divided == name);
        self.divided = CONTROLLERS.into_iter().filter(is_ours).collect();
        self.left = self.base.children(POOL_GROUP).unwrap_or_default();
        let used: Vec<OsString> = limited(config).map(|pool| group_name(pool).into()).collect();
        self.left.retain(|group| {
            let name = group.path().file_name();
            !used.iter().any(|used| name == Some(used.as_os_str()))
        });
    }

    /// Creates missing groups for `config`, and sets each limit that differs.
    fn follow(&mut self, config: &Config) -> Result<(), String> {
        let wanted = controllers(config);
        if let Some(why) = lacking(&self.base, &wanted) {
            return Err(why);
        }
        if !wanted.is_subset(&self.controllers) {
            self.controllers.extend(wanted);
            self.divide()?;
        }
        let is_freed = |pool: &&Pool| {
            pool.confinement.together.is_unlimited() && self.pools.contains_key(&pool.name)
        };
        let freed = config.pools.iter().filter(is_freed);
        let pools: Vec<&Pool> = limited(config).chain(freed).collect();
        let until = Instant::now() + LIMIT_WRITES;
        for pool in pools {
            let made = self.add(pool, config, until);
            made.map_err(|(what, error)| refused(&self.base, &what, &error))?;
        }
        Ok(())
    }

    fn divide(&mut self) -> Result<(), String> {
        let names: Vec<&'static str> = self.controllers.iter().copied().collect();
        let before = self.base.divided_by().unwrap_or_default();
        let is_new = |name: &&str| !before.iter().any(|before| before == name);
        self.divided.extend(names.iter().filter(|name| is_new(name)));
        let divided = match self.base.divide_by(&names) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && self.own.is_none() => {
                self.move_out().and_then(|()| self.base.divide_by(&names))
            }
            divided => divided,
        };
        divided.map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => format!(
                "the control group {} holds other processes as well; start maitred in one of its \
                 own, with systemd as a service with Delegate=yes",
                self.base.path().display()
            ),
            _ => refused(&self.base, "divided", &error),
        })
    }

    fn move_out(&mut self) -> io::Result<()> {
        let own = self.base.make(OWN_GROUP)?;
        let moved = own.enter();
        self.own = Some(own);
        moved
    }

    /// Makes the group of a pool, and sets its limits. `until`: the end of the time for all writes.
    fn add(
        &mut self,
        pool: &Pool,
        config: &Config,
        until: Instant,
    ) -> Result<(), (String, io::Error)> {
        let group = self.base.make(&group_name(pool));
        let group = group.map_err(|error| ("given groups".to_owned(), error))?;
        if self.left.contains(&group) {
            self.left.retain(|left| *left != group);
            end_others(&group, pool, config);
        }
        let entrance = group.entrance().map_err(|error| ("given processes".to_owned(), error))?;
        let added = PoolGroup { group, entrance };
        let group = self.pools.entry(pool.name.clone()).or_insert(added);
        for (controller, setting, value) in settings(&pool.confinement.together) {
            if self.controllers.contains(controller) {
                set_limit(&group.group, setting, &value, until)
                    .map_err(|error| (format!("limited by {setting} = {value}"), error))?;
            }
        }
        Ok(())
    }

    /// Removes the groups of pools that are not in use any more, once they are empty: processes of
    /// commands may end later than the pool.
    pub fn keep(&mut self, is_used: impl Fn(&str) -> bool) {
        let left = &mut self.left;
        self.pools.retain(|name, pool| {
            let is_used = is_used(name);
            left.extend((!is_used).then(|| pool.group.clone()));
            is_used
        });
        self.remove_left();
    }

    /// Tries again to remove groups that were not empty, now and then.
    pub fn try_again(&mut self, now: Moment) {
        if now >= self.tried + LEFT_TRIED_EVERY {
            self.tried = now;
            self.remove_left();
        }
    }

    fn remove_left(&mut self) {
        let is_gone = |removed: io::Result<()>| match removed {
            Ok(()) => true,
            Err(why) => why.kind() == io::ErrorKind::NotFound,
        };
        self.left.retain(|group| !is_gone(group.remove()));
    }

    /// The descriptor by which a process enters the group of this pool, if it has one.
    pub fn entrance(&self, pool: &str) -> Option<BorrowedFd<'_>> {
        Some(self.pools.get(pool)?.entrance.as_fd())
    }

    /// The file of that descriptor.
    pub fn entrance_file(&self, pool: &str) -> Option<PathBuf> {
        Some(self.pools.get(pool)?.group.path().join(maitred_os::cgroup::PROCESSES))
    }

    /// The folder of this pool's group, if memory can be limited there.
    pub fn memory_folder(&self, pool: &str) -> Option<&Path> {
        let group = self.pools.get(pool)?;
        let can_be = self.controllers.contains("memory");
        can_be.then(|| group.group.path())
    }

    /// The processor time that this pool is limited to, in thousandths of a core.
    pub fn cpu_max(&self, pool: &Pool) -> Option<u32> {
        let is_limited = self.pools.contains_key(&pool.name) && self.controllers.contains("cpu");
        pool.confinement.together.cpu_max.filter(|_| is_limited)
    }

    /// The folders of all pools' groups, if memory can be limited there.
    pub fn memory_folders(&self) -> impl Iterator<Item = &Path> {
        self.pools.keys().filter_map(|pool| self.memory_folder(pool))
    }
}

impl Drop for Groups {
    /// A group that cannot be removed stays: it is empty, and used by the next start.
    fn drop(&mut self) {
        for group in self.pools.values().map(|pool| &pool.group).chain(&self.left) {
            let _ = group.remove();
        }
        // The machine's root group, which no process has to leave, may have other subgroups than
        // ours, which need its controllers.
        if let Some(own) = &self.own {
            let _ = self.base.unite(&self.divided);
            let _ = self.base.enter();
            let _ = own.remove();
        }
    }
}

fn group_name(pool: &Pool) -> String {
    format!("{POOL_GROUP}{}", pool.name)
}

/// Sets a limit that differs. By one of memory that is the same, too, the kernel would reclaim what
/// is beyond it.
fn set_limit(group: &Group, setting: &str, value: &str, until: Instant) -> io::Result<()> {
    if group.has(setting, value) {
        return Ok(());
    }
    if !setting.starts_with("memory.") {
        return group.set(setting, value);
    }
    let left = |until: Instant| until.saturating_duration_since(Instant::now());
    let written = group.limit_memory(setting, value, left(until).max(LIMIT_WRITE_LEAST));
    let late = left(until + LATE_LIMIT_WRITES).min(LATE_LIMIT_WRITE);
    match written {
        Err(error) if error.kind() == io::ErrorKind::TimedOut && !late.is_zero() => {
            group.limit_memory(setting, value, late)
        }
        written => written,
    }
}

/// Kills what another user's pool of the same name has left in the group: it would count against
/// the limits of this one. Commands of the same user have their time to stop.
fn end_others(group: &Group, pool: &Pool, config: &Config) {
    let Ok(Some(user)) = identity::of_pool(pool, config) else { return };
    let left = group.processes().unwrap_or_default().into_iter();
    let mut statuses = left.take(LEFT_LOOKED_AT).filter_map(|pid| proc::read(pid, "status"));
    if statuses.any(|status| proc::user(&status) != Some(user.uid)) {
        // Before Linux 5.14 it stays until it ends by itself.
        let _ = group.kill();
    }
}

fn no_group(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no control groups of version 2 are mounted here; boot with \
                                    systemd.unified_cgroup_hierarchy=1, or give the container \
                                    /sys/fs/cgroup"
            .to_owned(),
        _ => format!("the control group of this process cannot be found: {error}"),
    }
}

fn lacking(group: &Group, wanted: &BTreeSet<&'static str>) -> Option<String> {
    let there = group.controllers().unwrap_or_default();
    let lacks: Vec<&str> =
        wanted.iter().copied().filter(|name| !there.iter().any(|there| there == name)).collect();
    (!lacks.is_empty()).then(|| {
        format!(
            "the control group {} cannot limit {}; with systemd, set Delegate=yes for the service, \
             and where the kernel still has control groups of version 1, boot with \
             systemd.unified_cgroup_hierarchy=1",
            group.path().display(),
            lacks.join(" and ")
        )
    })
}

fn refused(group: &Group, what: &str, error: &io::Error) -> String {
    format!(
        "the control group {} cannot be {what}: {error}; with systemd, set Delegate=yes for the \
         service, and make /sys/fs/cgroup writable in a container",
        group.path().display()
    )
}

fn warning(config: &Config, why: &str) -> Warning {
    let pools = limited(config).map(|pool| {
        let directives = needed(&pool.confinement.together);
        let names: Vec<&str> = directives.iter().map(|(_, directive)| *directive).collect();
        format!("{} of pool `{}`", names.join(", "), pool.name)
    });
    let pools: Vec<String> = pools.collect();
    format!("{} cannot be kept: {why}", pools.join("; "))
}

#[cfg(test)]
#[path = "cgroups_tests.rs"]
mod tests;
