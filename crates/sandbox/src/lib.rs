//! The sandbox of the processes that talk to clients and ACME servers, entered before they receive
//! the first byte: the front and the ACME process. Neither starts a program, changes its user or
//! reads another process, so an attacker who takes one over cannot either.
//!
//! - `no_new_privs`, and no capability can be gained ([`maitred_os::capabilities`]);
//! - a seccomp filter: [`calls`] lists the allowed calls, [`filter`] compiles it;
//! - Landlock: [`files`] restricts which files can be read and which folders written.
//!
//! If the kernel lacks one of the last two, the server runs without it and logs that. The reasons
//! and measurements are in docs/decisions/0014-sandbox.md.

pub mod calls;
pub mod files;
pub mod filter;
pub mod folders;

use maitred_os::users::{self, Identity};
use maitred_os::{capabilities, fork};
use std::path::{Path, PathBuf};

/// The folders that a process needs, beside those of the system.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Needs {
    /// Paths that it reads: the part of the file system that contains each one is readable
    /// ([`folders`]).
    pub read: Vec<PathBuf>,
    /// Whether it serves sites, of which a reload may add more.
    pub sites: bool,
    /// Folders in which it creates, writes and removes files.
    pub written: Vec<PathBuf>,
}

/// The folders that the process can read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Readable {
    /// All that its user may read.
    #[default]
    All,
    /// Only files below these.
    Beneath(Vec<Part>),
}

/// A folder that the process may access, as it was at startup. Landlock identifies folders by
/// inode: a folder that replaces it, or a file system that is mounted on it, is not accessible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its path.
    pub path: PathBuf,
    /// Device and inode, if known.
    pub id: Option<(u64, u64)>,
    /// Whether files below it may be written.
    pub is_written: bool,
}

impl Part {
    /// The folder that has this path now.
    pub fn of(path: &Path, is_written: bool) -> Part {
        Part { path: path.to_path_buf(), id: id_of(path), is_written }
    }

    /// Whether another folder has its path now.
    fn is_replaced(&self) -> bool {
        let now = id_of(&self.path);
        self.id.is_some() && now.is_some() && now != self.id
    }
}

fn id_of(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let found = path.metadata().ok()?;
    Some((found.dev(), found.ino()))
}

impl Readable {
    /// Whether the sandbox allows reading `path`, which is absolute, unless its part has been
    /// replaced.
    pub fn has(&self, path: &Path) -> bool {
        match self {
            Readable::All => true,
            Readable::Beneath(parts) => {
                let real = path.canonicalize();
                let path = real.as_deref().unwrap_or(path);
                parts.iter().any(|part| path.starts_with(&part.path))
            }
        }
    }

    /// The part that must be unchanged for `path`, which is absolute, to be readable (or writable),
    /// but that is another folder or file system by now.
    pub fn replaced(&self, path: &Path, is_written: bool) -> Option<&Path> {
        let Readable::Beneath(parts) = self else {
            return None;
        };
        let real = path.canonicalize();
        let path = real.as_deref().unwrap_or(path);
        let holds = |part: &&Part| path.starts_with(&part.path) && (part.is_written || !is_written);
        let mut first = None;
        for part in parts.iter().filter(holds) {
            if !part.is_replaced() {
                return None;
            }
            first = first.or(Some(part.path.as_path()));
        }
        first
    }
}

/// Drops the capabilities that a program started by this process could gain. To be called before it
/// switches to its final user, while it has one thread.
///
/// # Errors
/// As [`maitred_os::capabilities::bound_to_none`].
pub fn drop_capabilities() -> std::io::Result<()> {
    // rustix reads this once, on kernels before 6.4 from a file in `/proc` that belongs to root
    // later on.
    let _ = rustix::param::page_size();
    capabilities::bound_to_none()
}

/// What a process of the server becomes before it reads anything of others.
#[derive(Debug, Clone, Copy)]
pub struct LessTrusted<'a> {
    /// The process with which it ends.
    pub supervisor: i32,
    /// Its final user; none: it stays the one that it is.
    pub identity: Option<&'a Identity>,
    /// Whether it drops its capabilities, as before [`enter`].
    pub restricted: bool,
}

impl LessTrusted<'_> {
    /// Gives up what the process does not need. To be called while it has one thread.
    ///
    /// # Errors
    /// One sentence, when it may not, or could take something back.
    pub fn settle(self) -> Result<(), String> {
        if self.restricted {
            drop_capabilities().map_err(|error| format!("it cannot drop capabilities: {error}"))?;
        }
        if let Some(identity) = self.identity {
            users::become_user(identity)
                .map_err(|error| format!("it cannot become user {}: {error}", identity.name))?;
        }
        // A change of user clears the parent-death signal.
        fork::die_with_parent(self.supervisor);
        fork::forbid_inspection().map_err(|error| error.to_string())
    }
}

/// Restricts this process and all threads that it starts, permanently. To be called while it has
/// one thread, as its final user, and after [`drop_capabilities`]. Features that the kernel lacks
/// are logged; `who` names the process.
///
/// # Errors
/// When `no_new_privs` cannot be set, which every supported kernel supports.
pub fn enter(who: &str, needs: &Needs) -> Result<Readable, String> {
    gain_no_more()?;
    // The filter is last: it denies the calls that set up Landlock.
    let readable = files::restrict(needs).unwrap_or_else(|why| {
        tracing::info!("Landlock does not restrict the files of {who}: {why}");
        Readable::All
    });
    filter_calls(who);
    Ok(readable)
}

/// The same for a process that looks at those of other users: it keeps its user, so that none of
/// them can signal it, and of the capabilities the one for that. Landlock would forbid it to look
/// at others (`hook_ptrace_access_check` in the kernel's `security/landlock/task.c`).
///
/// # Errors
/// When capabilities cannot be dropped, and as [`enter`].
pub fn enter_to_inspect(who: &str) -> Result<(), String> {
    let dropped = drop_capabilities().and_then(|()| capabilities::keep_only_inspection());
    dropped.map_err(|error| format!("it cannot drop capabilities: {error}"))?;
    gain_no_more()?;
    filter_calls(who);
    Ok(())
}

fn gain_no_more() -> Result<(), String> {
    let done = capabilities::gain_no_more();
    done.map_err(|error| format!("no_new_privs cannot be set: {error}"))
}

fn filter_calls(who: &str) {
    if let Err(why) = filter::install() {
        tracing::warn!("no seccomp filter restricts the system calls of {who}: {why}");
    }
}
