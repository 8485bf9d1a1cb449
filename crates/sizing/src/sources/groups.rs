//! The control groups that this process is in (cgroups(7)).

use super::Files;

/// A version of control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy for each controller.
    One,
    /// One for all.
    Two,
}

/// The folders of the group for `controller` and of all those around it, the innermost first, by
/// version. Of a hierarchy that is not mounted there are none.
pub fn around(files: &dyn Files, controller: &str) -> Vec<(Version, String)> {
    let (Some(groups), Some(mounts)) = (
        files.read("/proc/self/cgroup"),
        files.read("/proc/self/mountinfo"),
    ) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, Some(names), Some(own)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let version = match names {
            "" => Version::Two,
            names if names.split(',').any(|name| name == controller) => Version::One,
            _ => continue,
        };
        if let Some((mounted_at, below)) = place(&mounts, version, controller, own) {
            all.extend(folders(&mounted_at, &below).map(|folder| (version, folder)));
        }
    }
    all
}

/// Where a hierarchy is mounted that shows the group `own`, and the group's path below that.
fn place(mounts: &str, version: Version, controller: &str, own: &str) -> Option<(String, String)> {
    mounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let dash = fields.iter().position(|field| *field == "-")?;
        let is_it = match version {
            Version::Two => *fields.get(dash + 1)? == "cgroup2",
            Version::One => {
                let mut options = fields.get(dash + 3)?.split(',');
                *fields.get(dash + 1)? == "cgroup" && options.any(|option| option == controller)
            }
        };
        if !is_it {
            return None;
        }
        let (root, mounted_at) = (*fields.get(3)?, *fields.get(4)?);
        // A container may show another's view of the path: then all that is mounted is its own.
        let below = match own.strip_prefix(root.trim_end_matches('/')) {
            Some(below) if below.is_empty() || below.starts_with('/') => below,
            _ => "",
        };
        Some((mounted_at.to_owned(), below.trim_matches('/').to_owned()))
    })
}

fn folders<'p>(mounted_at: &'p str, below: &'p str) -> impl Iterator<Item = String> + 'p {
    let mut left = Some(below);
    std::iter::from_fn(move || {
        let path = left?;
        left = match path.rsplit_once('/') {
            Some((outer, _)) => Some(outer),
            None => (!path.is_empty()).then_some(""),
        };
        Some(match path.is_empty() {
            true => mounted_at.to_owned(),
            false => format!("{mounted_at}/{path}"),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{Fixture, one, two};
    use super::*;

    fn paths(files: &Fixture, controller: &str) -> Vec<String> {
        let all = around(files, controller).into_iter();
        all.map(|(_, folder)| folder).collect()
    }

    #[test]
    fn every_group_around_the_own_one_counts() {
        let expected = [
            "/sys/fs/cgroup/system.slice/maitred.service",
            "/sys/fs/cgroup/system.slice",
            "/sys/fs/cgroup",
        ];
        assert_eq!(paths(&two(), "memory"), expected);
        let expected = [
            "/sys/fs/cgroup/memory/box/web",
            "/sys/fs/cgroup/memory/box",
            "/sys/fs/cgroup/memory",
            "/sys/fs/cgroup/unified",
        ];
        assert_eq!(paths(&one(), "memory"), expected);
    }

    #[test]
    fn a_container_that_sees_its_own_group_as_the_root_is_in_that() {
        let inside = two().with("/proc/self/cgroup", "0::/docker/abc\n").with(
            "/proc/self/mountinfo",
            "31 25 0:27 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup ro\n",
        );
        assert_eq!(paths(&inside, "cpu"), ["/sys/fs/cgroup"]);
        let strange = inside.with("/proc/self/cgroup", "0::/../../elsewhere\n");
        assert_eq!(paths(&strange, "cpu"), ["/sys/fs/cgroup"]);
    }

    #[test]
    fn where_nothing_is_mounted_or_told_there_is_no_group() {
        assert!(around(&Fixture::default(), "cpu").is_empty());
        assert!(around(&two().with("/proc/self/mountinfo", "absurd\n- -\n"), "cpu").is_empty());
        assert!(around(&two().with("/proc/self/cgroup", "absurd"), "cpu").is_empty());
    }
}
