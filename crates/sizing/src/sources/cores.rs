//! Available processors.

use maitred_os::proc::{Folder, Version};

use super::{Files, groups, number};

/// A lower quota counts as a mistake in the file.
const LEAST: f64 = 0.01;

/// Processors, and the source of the number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cores {
    /// The number, fractional for a quota.
    pub count: f64,
    /// Whether it is a control group's quota; otherwise it is the processors this process may run
    /// on.
    pub by_quota: bool,
}

/// The `allowed` processors, limited by the lowest quota of all groups.
pub fn cores(files: &dyn Files, allowed: usize) -> Cores {
    let groups = groups(files, "cpu");
    let quotas = groups.iter().filter_map(|group| quota(files, group));
    let least = quotas.fold(f64::INFINITY, f64::min);
    let allowed = allowed.max(1) as f64;
    Cores { count: least.min(allowed), by_quota: least < allowed }
}

fn quota(files: &dyn Files, group: &Folder) -> Option<f64> {
    let folder = &group.path;
    let (quota, period) = match group.version {
        Version::Two => {
            let text = files.read(&format!("{folder}/cpu.max"))?;
            let mut words = text.split_whitespace();
            let mut next = || words.next()?.parse::<u64>().ok();
            (next()?, next()?)
        }
        Version::One => (
            number(files, &format!("{folder}/cpu.cfs_quota_us"))?,
            number(files, &format!("{folder}/cpu.cfs_period_us"))?,
        ),
    };
    let quota = quota as f64 / period as f64;
    (quota.is_finite() && quota >= LEAST).then_some(quota)
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{Fixture, one, two};
    use super::*;

    const OWN: &str = "/sys/fs/cgroup/system.slice/maitred.service/cpu.max";
    const OUTER: &str = "/sys/fs/cgroup/system.slice/cpu.max";

    fn count(files: &Fixture) -> f64 {
        cores(files, 8).count
    }

    #[test]
    fn the_least_quota_of_all_groups_holds() {
        let both = two().with(OWN, "400000 100000\n").with(OUTER, "150000 100000\n");
        assert_eq!(count(&both), 1.5);
        assert!(cores(&both, 8).by_quota);
        assert_eq!(count(&both.with(OUTER, "max 100000\n")), 4.0);
    }

    #[test]
    fn groups_of_version_1_have_quotas_as_well() {
        let folder = "/sys/fs/cgroup/cpu,cpuacct/box";
        let files = one()
            .with(&format!("{folder}/web/cpu.cfs_quota_us"), "-1\n")
            .with(&format!("{folder}/web/cpu.cfs_period_us"), "100000\n")
            .with(&format!("{folder}/cpu.cfs_quota_us"), "50000\n")
            .with(&format!("{folder}/cpu.cfs_period_us"), "100000\n");
        assert_eq!(count(&files), 0.5);
    }

    #[test]
    fn what_is_missing_or_absurd_leaves_the_processors_we_may_run_on() {
        assert_eq!(count(&Fixture::default()), 8.0);
        assert!(!cores(&Fixture::default(), 8).by_quota);
        for absurd in ["", "max", "0 100000", "100000 0", "0 0", "-5 7", "x y", "1"] {
            assert_eq!(count(&two().with(OWN, absurd)), 8.0, "{absurd:?}");
        }
        assert_eq!(count(&two().with(OWN, "9999999999 100000")), 8.0);
        assert_eq!(cores(&Fixture::default(), 0).count, 1.0);
    }
}
