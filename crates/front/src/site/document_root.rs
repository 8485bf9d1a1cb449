//! Opens the document root of a resolver.
//!
//! A user with write access to a folder above the root can replace it by a symbolic link, and the
//! front can read more than that user. So the path to the root is walked by the same rule as the
//! paths below it ([`maitred_os::walk`]), each time the name leads to another folder.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use maitred_os::walk::{self, Rule, Stopped};
use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;

use crate::site::logged_paths::{LogTurn, LoggedPaths};

/// Interval between two log lines about a refused root.
const LOGGED_EVERY: Duration = Duration::from_secs(60);

static LOGGED: LoggedPaths = LoggedPaths::every(LOGGED_EVERY);

/// An open document root.
#[derive(Debug)]
pub struct Root {
    /// A descriptor opened with `O_PATH`.
    pub fd: OwnedFd,
    /// Its configured path.
    pub path: PathBuf,
    /// Device and inode.
    pub id: (u64, u64),
    /// The name without symbolic links.
    pub real: Arc<[u8]>,
}

impl Root {
    /// Opens a root for a front that runs as the user `own`; `name` is used if the system cannot
    /// report the real path.
    ///
    /// # Errors
    /// When there is no folder, the front may not enter it, or a link leads to it that must not be
    /// followed.
    pub fn open(root: &Path, name: &[u8], own: u32) -> Result<Root, Stopped> {
        let place = walk::look(root, Rule::Read { own })?;
        if place.facts.kind() != FileType::Directory {
            let why = Errno::NOTDIR.into();
            return Err(Stopped::System(root.to_path_buf(), why));
        }
        // A folder can be opened that must not be entered.
        rustix::fs::statat(&place.fd, ".", AtFlags::empty())
            .map_err(|why| Stopped::System(root.to_path_buf(), why.into()))?;
        let (path, real) = (root.to_path_buf(), real_name(&place.fd, name));
        Ok(Root { path, real, id: place.facts.id, fd: place.fd })
    }
}

/// Logs that a root is refused, unless it was logged recently.
pub fn log_refused(root: &Path, why: &Stopped) {
    let subject = root.as_os_str().as_bytes();
    if LOGGED.turn(root, subject, Instant::now()) == LogTurn::Subject {
        let root = root.display();
        tracing::error!(
            "the folder {root} of a site is not served, and requests for it get a 503: {why}"
        );
    }
}

/// The name of an open folder without symbolic links, or `name` where the system cannot report it.
fn real_name(folder: &OwnedFd, name: &[u8]) -> Arc<[u8]> {
    use std::os::fd::AsRawFd;
    let link = format!("/proc/self/fd/{}", folder.as_raw_fd());
    match std::fs::read_link(link) {
        Ok(path) if path.is_absolute() => path.into_os_string().into_vec().into(),
        _ => name.into(),
    }
}

/// The path of `root` inside `chroot`, for scripts; none if it is not below that.
pub fn beneath_chroot(root: &Arc<[u8]>, chroot: Option<&Path>) -> Option<Arc<[u8]>> {
    let Some(chroot) = chroot else {
        return Some(Arc::clone(root));
    };
    let below = Path::new(OsStr::from_bytes(root)).strip_prefix(chroot).ok()?;
    let below = below.as_os_str().as_bytes();
    let slash: &[u8] = if below.is_empty() { b"" } else { b"/" };
    Some([slash, below].concat().into())
}
