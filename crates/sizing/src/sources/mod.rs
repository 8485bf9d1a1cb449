//! Processors and memory, from the text of the kernel's files.
//!
//! The caller reads the files ([`Files`]); nothing is opened here. Limits of every control group
//! around the server's own count, of version 2 or 1, since the least of them applies. A missing
//! value has a fallback, and each result names its source.

mod cores;
mod memory;

use maitred_os::proc::{Folder, cgroup};

pub use cores::{Cores, cores};
pub use memory::{Counters, Memory, memory, memory_of_group};

/// The kernel's files, by path; `None` for one that is missing or unreadable.
pub trait Files {
    /// The text of a file.
    fn read(&self, path: &str) -> Option<String>;
}

/// A file that is one number; `None` for `max` and other text.
fn number(files: &dyn Files, path: &str) -> Option<u64> {
    files.read(path)?.trim().parse().ok()
}

/// The control groups around this process for a controller, the innermost first.
fn groups(files: &dyn Files, controller: &str) -> Vec<Folder> {
    let (groups, mounts) = (files.read("/proc/self/cgroup"), files.read("/proc/self/mountinfo"));
    let both = groups.zip(mounts);
    both.map_or_else(Vec::new, |(groups, mounts)| cgroup::folders(&groups, &mounts, controller))
}

#[cfg(test)]
mod fixtures {
    use super::Files;
    use std::collections::BTreeMap;

    /// Files of a fictional machine.
    #[derive(Debug, Default, Clone)]
    pub struct Fixture(BTreeMap<String, String>);

    impl Fixture {
        /// With one more, or with another text.
        pub fn with(mut self, path: &str, text: &str) -> Fixture {
            self.0.insert(path.to_owned(), text.to_owned());
            self
        }
    }

    impl Files for Fixture {
        fn read(&self, path: &str) -> Option<String> {
            self.0.get(path).cloned()
        }
    }

    /// In a nested group of version 2.
    pub fn two() -> Fixture {
        Fixture::default().with("/proc/self/cgroup", "0::/system.slice/maitred.service\n").with(
            "/proc/self/mountinfo",
            "31 25 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n",
        )
    }

    /// The same of version 1.
    pub fn one() -> Fixture {
        Fixture::default()
            .with("/proc/self/cgroup", "5:memory:/box/web\n4:cpu,cpuacct:/box/web\n0::/\n")
            .with(
                "/proc/self/mountinfo",
                "30 25 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                 31 25 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                 32 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
            )
    }
}
