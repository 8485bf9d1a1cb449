//! What a pool may use and where it lives: its settings, and what must hold between them.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::de::DeTable;

use crate::mistakes::Fault;
use crate::model::config::Pool;
use crate::model::site::Site;
use crate::read::value::directory_problem;

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

/// Checks a pool's confinement. A setting that is wrong by itself has been told already.
pub(crate) fn settle_confinement(pool: &Pool, settings: &DeTable<'_>) -> Vec<Fault> {
    let at = |name: &str| settings.get(name).map_or(0..0, |value| value.span());
    let confinement = &pool.confinement;
    let mut faults = Vec::new();
    let broken_chroot = settings.contains_key("chroot") && confinement.chroot.is_none();
    if let Some(chdir) = confinement.chdir.as_deref().filter(|_| !broken_chroot) {
        let inside = match &confinement.chroot {
            Some(chroot) => chroot.join(chdir.strip_prefix("/").unwrap_or(chdir)),
            None => chdir.to_owned(),
        };
        if let Some(problem) = directory_problem(&inside) {
            let (chdir, inside) = (chdir.display(), inside.display());
            let sentence = match &confinement.chroot {
                Some(_) => format!(
                    "`chdir` is {chdir}, which is {inside} outside of the chroot, but that {problem}"
                ),
                None => format!("`chdir` is {chdir}, but it {problem}"),
            };
            faults.push(Fault::new(at("chdir"), sentence));
        }
    }
    let Together {
        memory_max,
        memory_high,
        pids_max,
        ..
    } = confinement.together;
    if let (Some(max), Some(high)) = (memory_max, memory_high)
        && high > max
    {
        let sentence = format!(
            "`memory_high` is {high} bytes, which is more than `memory_max`, {max}, and would \
             never be reached"
        );
        faults.push(Fault::new(at("memory_high"), sentence));
    }
    if let (Some(pids), Some(workers)) = (pids_max, pool.max_children)
        && pids < workers.saturating_add(PIDS_BESIDES_WORKERS)
    {
        let least = workers.saturating_add(PIDS_BESIDES_WORKERS);
        let sentence = format!(
            "`pids_max` is the number {pids}, which is too few for `max_children`, {workers}; \
             expected {least} at least, and one more for each program that scripts start"
        );
        faults.push(Fault::new(at("pids_max"), sentence));
    }
    faults
}

/// What is wrong with a site of a pool that has a `chroot`, if anything is: the pool's scripts see
/// nothing that does not lie beneath it.
pub(crate) fn outside_of_chroot(site: &Site, pool: &Pool) -> Option<String> {
    let chroot = pool.confinement.chroot.as_deref()?;
    let aliases = site
        .rules
        .aliases
        .iter()
        .map(|alias| ("aliases", &alias.folder));
    let mut folders = std::iter::once(("root", &site.root)).chain(aliases);
    folders.find_map(|(setting, named)| {
        let folder = named.canonicalize();
        let folder: &Path = folder.as_deref().unwrap_or(named);
        (!folder.starts_with(chroot)).then(|| {
            format!(
                "`{setting}` is {}, which does not lie beneath {}, the `chroot` of pool `{}`; move \
                 the site there, or give it another pool",
                folder.display(),
                chroot.display(),
                pool.name
            )
        })
    })
}
