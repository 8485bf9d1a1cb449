//! The control groups of a process and their ancestors (cgroups(7)).

use std::path::Path;
use std::time::Duration;

use maitred_os::proc::{self, Folder, Version, cgroup};

use super::world::World;
use crate::facts::{Fact, Group, Throttled, Unknown, known};

/// Version 1's value for no limit: the largest number of pages, in bytes.
const NO_LIMIT_BYTES: f64 = 1e18;

/// The groups of process `whose`; of this process without `pid`.
pub(super) fn group(world: &World, whose: &str, pid: Option<i32>) -> Group {
    let process = pid.map_or("self".to_owned(), |pid| pid.to_string());
    let whose = match pid {
        Some(_) => whose.to_owned(),
        None => "this command, since the server does not run".to_owned(),
    };
    let memory = around(world, &process, "memory");
    let cpu = around(world, &process, "cpu");
    let own = known(&memory);
    let own = own.map(|all| all.first());
    let limit = known(&memory).and_then(|all| memory_limit(world, all));
    Group {
        whose,
        used: limit.clone().and_then(|limit| match limit {
            Some((_, place)) => memory_use(world, &place).map(Some),
            None => Ok(None),
        }),
        memory: limit,
        cores: known(&cpu).and_then(|all| quota(world, all)),
        throttled: cpu.and_then(|all| throttled(world, &all)),
        kills_all: own.as_ref().is_ok_and(|own| {
            own.is_some_and(|own| world.number(&format!("{}/memory.oom.group", own.path)) == Ok(1))
        }),
        oom_kills: own.and_then(|own| own.map_or(Ok(None), |own| oom_kills(world, own))),
    }
}

/// The folders of the group for `controller` and its ancestors, the innermost first. A system
/// without control groups has none.
fn around(world: &World, process: &str, controller: &str) -> Fact<Vec<Folder>> {
    let Some(groups) = world.read_or_none(&format!("/proc/{process}/cgroup"))? else {
        return Ok(Vec::new());
    };
    let mounts = world.read("/proc/self/mountinfo")?;
    let all = cgroup::folders(&groups, &mounts, controller);
    if all.is_empty() && cgroup::is_in_group(&groups, controller) {
        return Unknown::because("its control groups are not mounted here (/sys/fs/cgroup)");
    }
    Ok(all)
}

/// The smaller value, with its file.
fn smaller(least: Option<(f64, String)>, value: f64, file: String) -> Option<(f64, String)> {
    match least {
        Some((least, place)) if least <= value => Some((least, place)),
        _ => Some((value, file)),
    }
}

fn memory_limit(world: &World, all: &[Folder]) -> Fact<Option<(f64, String)>> {
    let mut least = None;
    for group in all {
        let names: &[&str] = match group.version {
            Version::Two => &["memory.max", "memory.high"],
            Version::One => &["memory.limit_in_bytes"],
        };
        for name in names {
            let file = format!("{}/{name}", group.path);
            let text = world.read_or_none(&file)?;
            let limit = text.and_then(|text| text.trim().parse::<f64>().ok());
            if let Some(limit) = limit.filter(|limit| *limit < NO_LIMIT_BYTES) {
                least = smaller(least, limit, file);
            }
        }
    }
    Ok(least)
}

/// Memory in use of the group whose limit is in a file. Both versions include pages of files, which
/// the kernel drops when memory runs short (Documentation/admin-guide/cgroup-v2.rst and
/// cgroup-v1/memory.rst).
fn memory_use(world: &World, limit: &str) -> Fact<f64> {
    let (folder, name) = limit.rsplit_once('/').unwrap_or(("", limit));
    let (file, pages) = match name {
        "memory.limit_in_bytes" => {
            ("memory.usage_in_bytes", ["total_active_file", "total_inactive_file"])
        }
        _ => ("memory.current", ["active_file", "inactive_file"]),
    };
    let all = world.number(&format!("{folder}/{file}"))?;
    let stat = world.read(&format!("{folder}/memory.stat"))?;
    let files = pages.iter().filter_map(|name| proc::number(&stat, name));
    Ok(all.saturating_sub(files.sum()) as f64)
}

/// A group's quota in processors, and its file.
fn cores(world: &World, group: &Folder) -> Fact<Option<(f64, String)>> {
    let file = |name: &str| format!("{}/{name}", group.path);
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| *number > 0.0);
    let (quota, period, place) = if group.version == Version::Two {
        let place = file("cpu.max");
        let Some(text) = world.read_or_none(&place)? else {
            return Ok(None);
        };
        let (quota, period) = text.trim().split_once(' ').unwrap_or((text.trim(), "100000"));
        (number(quota), number(period), place)
    } else {
        let place = file("cpu.cfs_quota_us");
        let quota = world.read_or_none(&place)?.and_then(|text| number(&text));
        let period = world.read_or_none(&file("cpu.cfs_period_us"))?;
        (quota, period.and_then(|text| number(&text)), place)
    };
    Ok(quota.zip(period).map(|(quota, period)| (quota / period, place)))
}

fn quota(world: &World, all: &[Folder]) -> Fact<Option<(f64, String)>> {
    let mut least = None;
    for group in all {
        if let Some((cores, place)) = cores(world, group)? {
            least = smaller(least, cores, place);
        }
    }
    Ok(least)
}

/// Of the innermost group that has a quota.
fn throttled(world: &World, all: &[Folder]) -> Fact<Option<Throttled>> {
    for group in all {
        if cores(world, group)?.is_none() {
            continue;
        }
        let stat = world.read(&format!("{}/cpu.stat", group.path))?;
        return Ok(Some(Throttled {
            periods: proc::number(&stat, "nr_periods").unwrap_or(0),
            throttled: proc::number(&stat, "nr_throttled").unwrap_or(0),
            seconds: None,
        }));
    }
    Ok(None)
}

/// The innermost control group of a process that accounts for memory, for repeated reads.
pub struct MemoryGroup {
    world: World,
    folder: Folder,
}

impl MemoryGroup {
    /// The group of a process. `None` if there is no such group, as for the root of version 2.
    pub fn of(pid: i32) -> Option<MemoryGroup> {
        MemoryGroup::below(World::new(None, Duration::ZERO), &pid.to_string())
    }

    /// As [`MemoryGroup::of`], below another root, for tests.
    pub fn of_root(root: &Path, pid: i32) -> Option<MemoryGroup> {
        MemoryGroup::below(World::new(Some(root), Duration::ZERO), &pid.to_string())
    }

    fn below(world: World, process: &str) -> Option<MemoryGroup> {
        let mut all = around(&world, process, "memory").ok()?.into_iter();
        let folder = all.find(|folder| matches!(oom_kills(&world, folder), Ok(Some(_))))?;
        Some(MemoryGroup { world, folder })
    }

    /// Number of its processes that were killed for lack of memory, by its own limit or the
    /// machine's. `None` once the group is removed.
    pub fn oom_kills(&self) -> Option<u64> {
        oom_kills(&self.world, &self.folder).ok()?
    }

    /// Its swapped-out bytes. `None` if the kernel does not account for them.
    pub fn swapped(&self) -> Option<u64> {
        let of = |name: &str| format!("{}/{name}", self.folder.path);
        match self.folder.version {
            Version::Two => self.world.number(&of("memory.swap.current")).ok(),
            Version::One => proc::number(&self.world.read(&of("memory.stat")).ok()?, "swap"),
        }
    }
}

fn oom_kills(world: &World, own: &Folder) -> Fact<Option<u64>> {
    let name = match own.version {
        Version::Two => "memory.events",
        Version::One => "memory.oom_control",
    };
    let text = world.read_or_none(&format!("{}/{name}", own.path))?;
    Ok(text.and_then(|text| proc::number(&text, "oom_kill")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    fn read(root: &Path) -> Group {
        group(&World::new(Some(root), Duration::from_secs(1)), "it", None)
    }

    const SECOND: (&str, &str) =
        ("proc/self/mountinfo", "31 25 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");

    #[test]
    fn the_smallest_limit_around_counts() {
        let root = root(&[
            SECOND,
            ("proc/self/cgroup", "0::/system.slice/web.service\n"),
            ("sys/fs/cgroup/system.slice/web.service/memory.max", "max\n"),
            ("sys/fs/cgroup/system.slice/web.service/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/system.slice/web.service/cpu.stat", "nr_periods 10\nnr_throttled 4\n"),
            ("sys/fs/cgroup/system.slice/web.service/memory.events", "oom 3\noom_kill 2\n"),
            ("sys/fs/cgroup/system.slice/web.service/memory.oom.group", "1\n"),
            ("sys/fs/cgroup/system.slice/memory.max", "1073741824\n"),
            ("sys/fs/cgroup/system.slice/memory.high", "536870912\n"),
            ("sys/fs/cgroup/system.slice/memory.current", "400000000\n"),
            (
                "sys/fs/cgroup/system.slice/memory.stat",
                "anon 200000000\nfile 160000000\ninactive_file 90000000\nactive_file 10000000\n",
            ),
        ]);
        let group = read(root.path());
        let place = "/sys/fs/cgroup/system.slice/memory.high".to_owned();
        assert_eq!(group.memory, Ok(Some((536870912.0, place))));
        assert_eq!(group.used, Ok(Some(300000000.0)));
        assert_eq!(group.cores.unwrap().unwrap().0, 1.5);
        assert_eq!(group.throttled.unwrap().unwrap().throttled, 4);
        assert_eq!(group.oom_kills, Ok(Some(2)));
        assert!(group.kills_all);
    }

    #[test]
    fn the_first_version_is_read_as_well() {
        let root = root(&[
            ("proc/self/cgroup", "4:memory:/box\n3:cpu,cpuacct:/box\n0::/\n"),
            (
                "proc/self/mountinfo",
                "1 0 0:1 / /cg/memory rw - cgroup cgroup rw,memory\n\
                 2 0 0:2 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n",
            ),
            ("cg/memory/box/memory.limit_in_bytes", "268435456\n"),
            ("cg/memory/box/memory.usage_in_bytes", "100000000\n"),
            (
                "cg/memory/box/memory.stat",
                "inactive_file 5\ntotal_inactive_file 20000000\ntotal_active_file 10000000\n",
            ),
            ("cg/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("cg/memory/box/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"),
            ("cg/cpu/box/cpu.cfs_quota_us", "-1\n"),
            ("cg/cpu/box/cpu.cfs_period_us", "100000\n"),
        ]);
        let group = read(root.path());
        assert_eq!(group.memory.unwrap().unwrap().0, 268435456.0);
        assert_eq!(group.used, Ok(Some(70000000.0)));
        assert_eq!((group.cores, group.throttled), (Ok(None), Ok(None)));
        assert_eq!(group.oom_kills, Ok(Some(1)));
    }

    #[test]
    fn without_groups_there_is_no_limit_and_what_is_not_mounted_is_not_known() {
        let none = read(root(&[]).path());
        assert_eq!((none.memory, none.oom_kills), (Ok(None), Ok(None)));
        assert_eq!(none.used, Ok(None));
        let hidden = root(&[("proc/self/cgroup", "0::/web\n"), ("proc/self/mountinfo", "")]);
        assert!(read(hidden.path()).memory.unwrap_err().0.contains("not mounted"));
        let odd = root(&[SECOND, ("proc/self/cgroup", "absurd\n")]);
        assert_eq!(read(odd.path()).memory, Ok(None));
        let folder = root(&[
            SECOND,
            ("proc/self/cgroup", "0::/web\n"),
            ("sys/fs/cgroup/web/memory.max/not-a-file", ""),
        ]);
        assert!(read(folder.path()).memory.is_err());
    }

    fn memory_group(root: &Path) -> Option<MemoryGroup> {
        let world = World::new(Some(root), Duration::from_secs(1));
        MemoryGroup::below(world, "self")
    }

    #[test]
    fn the_innermost_group_with_memory_is_looked_at_again_and_again() {
        let second = root(&[
            SECOND,
            ("proc/self/cgroup", "0::/system.slice/web.service/plain\n"),
            ("sys/fs/cgroup/system.slice/memory.events", "oom_kill 9\n"),
            ("sys/fs/cgroup/system.slice/web.service/memory.events", "oom 3\noom_kill 2\n"),
            ("sys/fs/cgroup/system.slice/web.service/memory.swap.current", "8192\n"),
        ]);
        let group = memory_group(second.path()).unwrap();
        assert_eq!((group.oom_kills(), group.swapped()), (Some(2), Some(8192)));
        let events = "sys/fs/cgroup/system.slice/web.service/memory.events";
        std::fs::write(second.path().join(events), "oom_kill 3\n").unwrap();
        assert_eq!(group.oom_kills(), Some(3));
        std::fs::remove_file(second.path().join(events)).unwrap();
        assert_eq!(group.oom_kills(), None);

        let first = root(&[
            ("proc/self/cgroup", "4:memory:/box\n0::/\n"),
            (
                "proc/self/mountinfo",
                "1 0 0:1 / /cg/memory rw - cgroup cgroup rw,memory\n\
                 2 0 0:2 / /cg/unified rw - cgroup2 cgroup2 rw\n",
            ),
            ("cg/memory/memory.oom_control", "oom_kill 7\n"),
            ("cg/memory/box/memory.oom_control", "under_oom 0\noom_kill 1\n"),
            ("cg/memory/box/memory.stat", "swap 4096\ntotal_swap 9\n"),
        ]);
        let group = memory_group(first.path()).unwrap();
        assert_eq!((group.oom_kills(), group.swapped()), (Some(1), Some(4096)));

        let outermost = root(&[SECOND, ("proc/self/cgroup", "0::/\n")]);
        assert!(memory_group(outermost.path()).is_none());
        assert!(memory_group(root(&[]).path()).is_none());
    }
}
