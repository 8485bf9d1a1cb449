//! What the processes that talk with strangers give up before the first byte of theirs: the front
//! and the process that gets certificates. Neither starts a program, changes its user or looks into
//! another process, so that an attacker who takes one over cannot either.
//!
//! - `no_new_privs` and no capability that could be gained ([`maitred_os::capabilities`]);
//! - a seccomp filter: [`calls`] lists what is allowed, [`filter`] makes the program;
//! - Landlock: [`files`] restricts which files can be read and which folders written.
//!
//! A kernel that lacks one of the last two is no reason not to serve: the log says so. The reasons
//! and the figures are in docs/decisions/0014-sandbox.md.

pub mod calls;
pub mod files;
pub mod filter;
pub mod folders;

use std::path::{Path, PathBuf};

/// The folders that a process needs, beside those of the system.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Needs {
    /// What it reads: of each, the part of the machine that it lies in is readable ([`folders`]).
    pub read: Vec<PathBuf>,
    /// Whether it serves sites, to which a reload may add others.
    pub sites: bool,
    /// Where it makes, writes and removes files.
    pub written: Vec<PathBuf>,
}

/// Which folders the process may read from now on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Readable {
    /// All that the rights of its user allow.
    #[default]
    All,
    /// What lies beneath these.
    Beneath(Vec<Part>),
}

/// A folder that was opened to the process, as it was then. Landlock knows folders by their inodes:
/// a folder of the same name that takes its place, or a file system that is mounted on it, is
/// closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its name.
    pub path: PathBuf,
    /// Device and inode, if they could be read.
    pub id: Option<(u64, u64)>,
    /// Whether files may be written beneath it.
    pub is_written: bool,
}

impl Part {
    /// The folder that has this name now.
    pub fn of(path: &Path, is_written: bool) -> Part {
        Part {
            path: path.to_path_buf(),
            id: id_of(path),
            is_written,
        }
    }

    /// Whether something else has its name now.
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
    /// Whether what lies at `path`, which is absolute, can be read as far as the sandbox is
    /// concerned, unless its part of the machine has been replaced.
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

    /// The part of the machine that has to be what it was for `path`, which is absolute, to be
    /// read, or also written, and is another folder or file system by now.
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

/// Gives up what capabilities a program could gain that this process starts. To be called before it
/// becomes the user that it is to stay, while it has one thread.
///
/// # Errors
/// As [`maitred_os::capabilities::bound_to_none`].
pub fn drop_capabilities() -> std::io::Result<()> {
    // rustix looks this up once, on kernels before 6.4 in a file of `/proc` that belongs to root
    // later on.
    let _ = rustix::param::page_size();
    maitred_os::capabilities::bound_to_none()
}

/// Restricts this process and all threads that it starts, for good. To be called while it has one
/// thread, as the user that it is to stay, and after [`drop_capabilities`]. What the kernel does
/// not offer is logged; `who` names the process there.
///
/// # Errors
/// When `no_new_privs` cannot be set, which every supported kernel offers.
pub fn enter(who: &str, needs: &Needs) -> Result<Readable, String> {
    maitred_os::capabilities::gain_no_more()
        .map_err(|error| format!("no_new_privs cannot be set: {error}"))?;
    // The filter comes last: it refuses the calls that Landlock is set up with.
    let readable = files::restrict(needs).unwrap_or_else(|why| {
        tracing::info!("Landlock does not restrict the files of {who}: {why}");
        Readable::All
    });
    if let Err(why) = filter::install() {
        tracing::warn!("no seccomp filter restricts the system calls of {who}: {why}");
    }
    Ok(readable)
}
