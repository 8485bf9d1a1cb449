//! The control groups of a process, of either version (cgroups(7)): `/proc/PID/cgroup` names them,
//! and `/proc/self/mountinfo` (proc_pid_mountinfo(5)) has the folders that show them.

/// A version of control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy for each controller.
    One,
    /// One hierarchy for all controllers.
    Two,
}

/// The folder of a control group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    /// Decides the names and formats of its files.
    pub version: Version,
    /// Its path.
    pub path: String,
}

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount<'t> {
    /// The folder of the file system that is mounted.
    pub root: String,
    /// The mount point.
    pub at: String,
    /// The type of the file system.
    pub kind: &'t str,
    /// Its options, separated by commas.
    options: &'t str,
}

impl Mount<'_> {
    /// The part of a group's path below this mount; `None` if the mount does not show the group.
    fn below<'g>(&self, group: &'g str) -> Option<&'g str> {
        let below = group.strip_prefix(self.root.trim_end_matches('/'))?;
        let shows = below.is_empty() || below.starts_with('/');
        shows.then(|| below.trim_matches('/'))
    }

    fn folder(&self, below: &str) -> String {
        match below {
            "" => self.at.clone(),
            below => format!("{}/{below}", self.at),
        }
    }
}

/// All mounts of `mountinfo`, in the kernel's order.
pub fn mounts(mountinfo: &str) -> impl Iterator<Item = Mount<'_>> {
    mountinfo.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let (mut before, mut after) = (before.split(' '), after.split(' '));
        Some(Mount {
            root: unescape(before.nth(3)?),
            at: unescape(before.next()?),
            kind: after.next()?,
            options: after.nth(1).unwrap_or_default(),
        })
    })
}

/// The folder of a process's group of version 2, where one is mounted that shows this very group.
pub fn own_folder(groups: &str, mountinfo: &str) -> Option<String> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mut mounts = mounts(mountinfo).filter(|mount| mount.kind == "cgroup2");
    mounts.find_map(|mount| Some(mount.folder(mount.below(group)?)))
}

/// The folders of a process's group for `controller` and of its ancestors, the innermost first, by
/// version. A hierarchy that is not mounted has none.
pub fn folders(groups: &str, mountinfo: &str, controller: &str) -> Vec<Folder> {
    let mut all = Vec::new();
    for (names, group) in memberships(groups) {
        let is_one = names.split(',').any(|name| name == controller);
        let (version, kind) = match names {
            "" => (Version::Two, "cgroup2"),
            _ if is_one => (Version::One, "cgroup"),
            _ => continue,
        };
        let mounted = mounts(mountinfo).find(|mount| {
            let has_controller = || mount.options.split(',').any(|name| name == controller);
            mount.kind == kind && (version == Version::Two || has_controller())
        });
        let Some(mount) = mounted else { continue };
        // A container may see the path of another view: then all that is mounted is its own.
        let mut below = Some(mount.below(group).unwrap_or_default());
        while let Some(path) = below {
            let path_of_folder = mount.folder(path);
            all.push(Folder { version, path: path_of_folder });
            let parent = path.rsplit_once('/').map(|(parent, _)| parent);
            below = parent.or((!path.is_empty()).then_some(""));
        }
    }
    all
}

/// Whether a process is in a group other than the root of a hierarchy with `controller`.
pub fn is_in_group(groups: &str, controller: &str) -> bool {
    memberships(groups).any(|(names, group)| {
        group != "/" && (names.is_empty() || names.split(',').any(|name| name == controller))
    })
}

/// The controllers of each hierarchy, none for version 2, and the group in it.
fn memberships(groups: &str) -> impl Iterator<Item = (&str, &str)> {
    groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        Some((parts.next()?, parts.next()?))
    })
}

/// Blanks, tabs, line feeds and backslashes of a path are written as `\040` and so on.
fn unescape(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code.filter(u8::is_ascii) {
            Some(code) => {
                plain.push(char::from(code));
                plain.push_str(&part[3..]);
            }
            None => {
                plain.push('\\');
                plain.push_str(part);
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "25 1 0:24 / /sys rw - sysfs sysfs rw\n\
        30 25 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
        31 25 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const GROUPS: &str = "4:cpu,cpuacct:/box/web\n0::/system.slice/maitred.service\n";

    fn paths(groups: &str, mounts: &str, controller: &str) -> Vec<String> {
        let all = folders(groups, mounts, controller).into_iter();
        all.map(|folder| folder.path).collect()
    }

    #[test]
    fn a_group_and_its_ancestors_are_found_where_their_file_system_is_mounted() {
        let second = [
            "/sys/fs/cgroup/system.slice/maitred.service",
            "/sys/fs/cgroup/system.slice",
            "/sys/fs/cgroup",
        ];
        assert_eq!(own_folder(GROUPS, MOUNTS).unwrap(), second[0]);
        assert_eq!(own_folder("0::/\n", MOUNTS).unwrap(), "/sys/fs/cgroup");
        assert_eq!(paths(GROUPS, MOUNTS, "memory"), second);
        let first = ["/box/web", "/box", ""].map(|below| format!("/sys/fs/cgroup/cpu{below}"));
        assert_eq!(paths(GROUPS, MOUNTS, "cpu")[..3], first);
        assert!(is_in_group(GROUPS, "cpu") && !is_in_group("0::/\n4:cpu:/x\n", "memory"));
    }

    #[test]
    fn a_mount_that_shows_a_part_shows_what_is_in_it_and_no_more() {
        let mounts = "9 1 0:27 /box /my\\040groups rw - cgroup2 none rw\n";
        let own = |group: &str| own_folder(&format!("0::{group}\n"), mounts);
        assert_eq!(own("/box/a").unwrap(), "/my groups/a");
        assert_eq!(own("/box").unwrap(), "/my groups");
        assert_eq!(own("/boxer"), None);
        assert_eq!(own_folder("4:memory:/other\n", MOUNTS), None);
        assert_eq!(own_folder("0::/\n", "9 1 0:27 / /x rw - cgroup none rw\n"), None);
        assert_eq!(unescape("a\\134b\\0\\999é\\"), "a\\b\\0\\999é\\");
    }

    #[test]
    fn a_container_that_sees_the_path_of_its_host_is_in_what_is_mounted() {
        for group in ["0::/docker/abc\n", "0::/../../elsewhere\n"] {
            let mounts = "31 25 0:27 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup ro\n";
            assert_eq!(paths(group, mounts, "cpu"), ["/sys/fs/cgroup"]);
        }
        assert!(paths(GROUPS, "absurd\n- -\n", "cpu").is_empty());
        assert!(paths("absurd", MOUNTS, "cpu").is_empty());
    }
}
