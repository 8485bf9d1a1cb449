//! A control group of processor time that a server under test is started in.

use crate::control_group::ControlGroup;
use crate::server::Setup;

/// Where groups are, and the file of the quota: of version 1, and of version 2.
const FOLDERS: [(&str, &str); 2] =
    [("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us"), ("/sys/fs/cgroup", "cpu.max")];

/// What the kernel hands out a quota for if nothing else is said, in microseconds.
const PERIOD: f64 = 100_000.0;

/// A group with a quota, which goes when this is dropped: let go of what is in it first.
pub struct ProcessorGroup {
    group: ControlGroup,
    file: &'static str,
}

impl ProcessorGroup {
    /// A group with this number of processors. None, with a message, where no group can be created.
    pub fn with_cores(cores: f64) -> Option<Self> {
        let kinds = FOLDERS.map(|(folder, file)| (folder, file, quota(cores)));
        let Some((group, kind)) = ControlGroup::beneath(kinds) else {
            eprintln!("skipped: no control group of processor time can be made here");
            return None;
        };
        let (_, file) = FOLDERS[kind];
        Some(Self { group, file })
    }

    /// Changes its number of processors.
    ///
    /// # Panics
    /// When the kernel does not take it.
    pub fn cores(&self, cores: f64) {
        self.group.set(self.file, &quota(cores));
    }

    /// A server that is started in the group.
    pub fn holds(&self, setup: Setup) -> Setup {
        self.group.holds(setup)
    }
}

/// In microseconds of each period, whose length stays as it is.
fn quota(cores: f64) -> String {
    format!("{}", (cores * PERIOD) as u64)
}
