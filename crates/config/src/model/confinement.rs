//! What a pool may use and where it lives: its settings, and what must hold between them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Processes of a pool besides its workers that `pids_max` must have room for: the zygote, and the
/// process between it and a worker that is being forked.
pub(crate) const PIDS_BESIDES_WORKERS: u32 = 2;

/// What a pool may use and where it lives. Everything is as the system has it unless it is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// The folder that is `/` for the pool's scripts: a real path, without symbolic links.
    pub chroot: Option<PathBuf>,
    /// The folder each request starts in: an absolute path, beneath `chroot` if there is one.
    pub chdir: Option<PathBuf>,
    /// Open files of each process.
    pub rlimit_files: Option<u64>,
    /// The largest core file, in bytes.
    pub rlimit_core: Option<CoreSize>,
    /// The nice value, from -19 (first) to 20 (last).
    pub process_priority: Option<i32>,
    /// How readily the kernel ends the pool's processes when memory is short: -1000 (never) to
    /// 1000 (first).
    pub oom_score_adj: Option<i32>,
    /// Whether programs that scripts start may gain rights.
    #[serde(default)]
    pub no_new_privileges: NoNewPrivileges,
    /// Limits of all processes of the pool together.
    pub together: Together,
}

/// Whether programs that a pool's scripts start may gain rights, as by a set-user-ID bit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoNewPrivileges {
    /// They may where PHP's mail() would start a program that is there: most mailers gain a group or root.
    #[default]
    Auto,
    /// They may not.
    Yes,
    /// They may.
    No,
}

/// Limits of all processes of a pool together, which a control group keeps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Together {
    /// Bytes of memory beyond which the kernel ends a process of the pool.
    pub memory_max: Option<u64>,
    /// Bytes of memory beyond which the pool's processes are slowed down and memory is taken back.
    pub memory_high: Option<u64>,
    /// Thousandths of a core that may be used.
    pub cpu_max: Option<u32>,
    /// Processes and threads.
    pub pids_max: Option<u32>,
}

impl Together {
    /// Whether nothing is limited.
    pub fn is_unlimited(&self) -> bool {
        *self == Together::default()
    }
}

/// The largest core file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CoreSize {
    /// As large as it gets.
    Unlimited,
    /// So many bytes; none are written for 0.
    Bytes(u64),
}
