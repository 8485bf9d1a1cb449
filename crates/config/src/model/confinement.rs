//! Resource limits, root directory and privileges of a pool.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Processes of a pool that `pids_max` counts besides the workers: the zygote, and the process
/// between it and a worker during a fork.
pub(crate) const PIDS_BESIDES_WORKERS: u32 = 2;

/// Resource limits, root directory and privileges of a pool. Unset ones are the system's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// The directory that is `/` for the pool's scripts: a real path, without symbolic links,
    /// unless it could not be found.
    pub chroot: Option<PathBuf>,
    /// The working directory of each request: an absolute path, below `chroot` if there is one.
    pub chdir: Option<PathBuf>,
    /// Open files of each process.
    pub rlimit_files: Option<u64>,
    /// The largest core file, in bytes.
    pub rlimit_core: Option<CoreSize>,
    /// The nice value, from -19 (first) to 20 (last).
    pub process_priority: Option<i32>,
    /// The kernel's preference to kill the pool's processes when memory is short: -1000 (never) to
    /// 1000 (first).
    pub oom_score_adj: Option<i32>,
    /// Whether programs started by scripts may gain privileges.
    #[serde(default)]
    pub no_new_privileges: NoNewPrivileges,
    /// Limits on the sum of all processes of the pool.
    pub together: GroupLimits,
}

/// Whether programs started by a pool's scripts may gain privileges, as by a set-user-ID bit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoNewPrivileges {
    /// They may if PHP's mail() has a mail program: most mail programs gain a group or root.
    #[default]
    Auto,
    /// They may not gain privileges.
    Yes,
    /// They may gain privileges.
    No,
}

/// Limits of all processes of a pool together, enforced by a control group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupLimits {
    /// Bytes of memory beyond which the kernel kills a process of the pool.
    pub memory_max: Option<u64>,
    /// Bytes of memory beyond which the pool's processes are slowed down and memory is reclaimed.
    pub memory_high: Option<u64>,
    /// Processor time in thousandths of a core.
    pub cpu_max: Option<u32>,
    /// Processes and threads.
    pub pids_max: Option<u32>,
}

impl GroupLimits {
    /// Whether there is no limit.
    pub fn is_unlimited(&self) -> bool {
        *self == GroupLimits::default()
    }
}

/// The largest core file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CoreSize {
    /// No limit.
    Unlimited,
    /// This number of bytes; 0: no core files.
    Bytes(u64),
}
