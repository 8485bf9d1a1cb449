//! php-fpm's work around its event loop: the pid file, the error log, the waiting starter.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use maitred_config::Config;
use maitred_os::guarded::{self, Named};
use maitred_supervisor::Host;
use rustix::fs::FileType;
use tracing::{error, info};

use super::background::StarterPipe;
use super::system_error::system_error;
use crate::log;

/// Mode of the pid file.
const PID_MODE: u32 = 0o644;

/// Bytes that are read of a pid file: more than any process id has digits.
const PID_BYTES: u64 = 32;

/// A server that was started as php-fpm.
#[derive(Debug)]
pub struct FpmHost {
    /// The pid file.
    pid_file: Option<PathBuf>,
    /// The starting process, if it waits for the server.
    waiting: Option<StarterPipe>,
}

impl FpmHost {
    /// A server that `waiting` waits for.
    pub fn new(waiting: Option<StarterPipe>) -> FpmHost {
        FpmHost { pid_file: None, waiting }
    }
}

impl Host for FpmHost {
    fn set_up(&mut self, config: &Config) -> Result<(), String> {
        if let Some(path) = config.fpm.as_ref().and_then(|fpm| fpm.pid.as_ref()) {
            write_pid(path)?;
            self.pid_file = Some(path.clone());
        }
        let tied = log::fpm::launched();
        tied.map_err(|why| {
            let why = system_error(&why);
            format!("failed to tie stderr fd with error_log fd: dup2(){why}")
        })?;
        info!(target: "fpm", "fpm is running, pid {}", std::process::id());
        Ok(())
    }

    fn serves(&mut self, _: Option<&str>) {
        if let Some(waiting) = self.waiting.take() {
            waiting.tell();
        }
    }

    fn follow(&mut self, config: &Config) -> Option<String> {
        let fpm = config.fpm.as_ref()?;
        log::fpm::follow(config, fpm);
        if fpm.pid != self.pid_file {
            self.remove_pid();
            if let Some(path) = &fpm.pid {
                match write_pid(path) {
                    Ok(()) => self.pid_file = Some(path.clone()),
                    Err(why) => error!(target: "fpm", "{why}"),
                }
            }
        }
        Some(log::as_fpm(fpm.log_level))
    }
}

impl FpmHost {
    /// Removes the pid file, unless another server has put its own there.
    fn remove_pid(&mut self) {
        if let Some(path) = self.pid_file.take()
            && let Ok(named) = Named::at(&path)
            && holds_our_id(&named)
        {
            let _ = named.remove();
        }
    }
}

/// Whether a pid file is the one that this process wrote.
fn holds_our_id(named: &Named) -> bool {
    let Ok(Some(place)) = named.look() else {
        return false;
    };
    place.facts.kind() == FileType::RegularFile
        && read_pid(&place.path()).is_ok_and(|pid| pid == std::process::id().to_string())
}

/// Reads a pid file, as far as it can be a number: a user who can write to its folder may have
/// replaced it by a file larger than memory.
fn read_pid(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = fs::File::open(path)?;
    file.take(PID_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

impl Drop for FpmHost {
    fn drop(&mut self) {
        self.remove_pid();
    }
}

/// Writes the process id to a new file. An existing one is removed, so no link is followed.
fn write_pid(path: &Path) -> Result<(), String> {
    let made = guarded::replace(path, PID_MODE);
    let failed = |why: io::Error| {
        let (path, why) = (path.display(), system_error(&why));
        format!("Unable to create the PID file ({path}).{why}")
    };
    let mut file = made.map_err(failed)?;
    let pid = std::process::id().to_string();
    let written = io::Write::write_all(&mut file, pid.as_bytes());
    written.map_err(|why| format!("Unable to write to the PID file.{}", system_error(&why)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_pid_file_holds_the_number_alone_and_goes_with_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fpm.pid");
        let target = folder.path().join("precious");
        fs::write(&target, "kept").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        write_pid(&path).unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
        let pid = std::process::id().to_string();
        assert_eq!(fs::read_to_string(&path).unwrap(), pid);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777 & !0o644, 0);
        let mut fpm = FpmHost::new(None);
        fpm.pid_file = Some(path.clone());
        drop(fpm);
        assert!(!path.exists());
    }

    #[test]
    fn the_pid_file_of_another_server_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fpm.pid");
        fs::write(&path, "1").unwrap();
        let mut fpm = FpmHost::new(None);
        fpm.pid_file = Some(path.clone());
        drop(fpm);
        assert!(path.exists());
    }

    #[test]
    fn what_is_longer_than_memory_is_no_pid_file_and_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fpm.pid");
        let file = fs::File::create(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        assert_eq!(read_pid(&path).unwrap().len(), 32);
        let mut fpm = FpmHost::new(None);
        fpm.pid_file = Some(path.clone());
        drop(fpm);
        assert!(path.exists());
    }

    #[test]
    fn a_pid_file_that_cannot_be_made_is_said_as_php_fpm_says_it() {
        let why = write_pid(Path::new("/nowhere/at/all.pid")).unwrap_err();
        assert_eq!(
            why,
            "Unable to create the PID file (/nowhere/at/all.pid).: No such file or directory (2)"
        );
    }
}
