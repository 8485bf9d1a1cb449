//! The log files. They are opened here, as root if the server runs as root, and opened again on
//! SIGUSR1 after they were renamed. The front has dropped its privileges and gets the descriptors
//! that it writes to.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use maitred_config::{Config, LogTarget, Section, SiteLog};
use maitred_control::log_opening::{LogToOpen, LogUse};
use maitred_os::guarded;
use maitred_os::users::{self, Identity};
use maitred_os::walk::{self, Rule};
use rustix::fs::Access;
use rustix::io::Errno;

use crate::error::Error;
use crate::system::faults::Examined;
use crate::system::path_trust;

/// Mode of a new log file: tenants may not read it, and the URLs in it can contain secrets.
pub const LOG_MODE: u32 = 0o640;

/// Mode of a new log file in php-fpm mode.
const FPM_LOG_MODE: u32 = 0o600;

/// Names of standard error, which may be something that cannot be opened, such as a socket.
const STANDARD_ERROR: [&str; 3] = ["/dev/stderr", "/dev/fd/2", "/proc/self/fd/2"];

/// Whether this is a name of standard error.
pub fn is_standard_error(path: &Path) -> bool {
    STANDARD_ERROR.iter().any(|name| path == Path::new(name))
}

/// The logs of a configuration that are files, with the settings that name them.
fn configured(config: &Config) -> Vec<(Section, &'static str, PathBuf)> {
    let file = |log: &LogTarget| match log {
        LogTarget::File(path) => Some(path.clone()),
        _ => None,
    };
    let access_log = config.access_log.as_ref().and_then(file);
    let servers = [
        (Section::Server, "error_log", file(&config.error_log)),
        (Section::Server, "access_log", access_log),
    ];
    let pools = config.pools.iter().map(|pool| {
        let section = Section::Pool(pool.name.clone());
        (section, "slowlog", pool.slowlog.as_ref().and_then(file))
    });
    let sites = config.sites.iter().enumerate().map(|(number, site)| {
        let path = match &site.access_log {
            SiteLog::File(path) => Some(path.clone()),
            SiteLog::Server | SiteLog::Off => None,
        };
        (Section::Site(number), "access_log", path)
    });
    let listeners = config.pools.iter().map(|pool| {
        let section = Section::Pool(pool.name.clone());
        // php-fpm has a sentence of its own.
        let log = pool.pool_access_log.as_ref().filter(|_| config.fpm.is_none());
        let path = log.map(|log| log.path.clone());
        (section, "access_log", path.filter(|path| !is_standard_error(path)))
    });
    let logs = servers.into_iter().chain(pools).chain(listeners).chain(sites);
    logs.filter_map(|(section, setting, path)| Some((section, setting, path?))).collect()
}

/// Logs that are a directory, or whose directory does not exist, as far as no lock of a tenant's
/// folder is needed to see that.
pub fn mistakes(config: &Config, examined: &Examined) -> Vec<Error> {
    mistakes_where(config, |section, path| examined.has(section) && !leads_through_others(path))
}

/// The mistakes that [`mistakes`] leaves out, for a process that may wait for tenants.
pub fn mistakes_of_tenants(config: &Config) -> Vec<Error> {
    mistakes_where(config, |_, path| leads_through_others(path))
}

/// Whether the path of a log leads through a folder that others than root may change.
fn leads_through_others(path: &Path) -> bool {
    let reached = walk::to_while(path, Rule::Change, walk::only_root_changes);
    users::is_root() && reached.is_ok_and(|reached| reached.is_none())
}

fn mistakes_where(config: &Config, is_examined: impl Fn(&Section, &Path) -> bool) -> Vec<Error> {
    let logs = configured(config).into_iter();
    let logs = logs.filter(|(section, _, path)| is_examined(section, path));
    let unusable = logs.filter_map(|(section, setting, path)| {
        let remedy = if path.is_dir() {
            format!("it is a directory; name a file in {setting}")
        } else if path.parent().is_some_and(Path::is_dir) {
            return None;
        } else {
            format!("its folder does not exist; make it, or correct {setting}")
        };
        let said = format!("{setting} {} cannot be written: {remedy}", path.display());
        Some(Error::Setting { section, setting, said })
    });
    unusable.collect()
}

/// Logs that the user of this process may not write, or not make. Nothing is opened: a check leaves
/// no files. Root may write everywhere but where the file system is read-only.
pub fn unwritable(config: &Config) -> Vec<Error> {
    let unusable = configured(config).into_iter().filter_map(|(section, setting, path)| {
        let folder = path.parent().filter(|folder| folder.is_dir() && !path.is_dir())?;
        let (target, what) = match path.exists() {
            true => (path.as_path(), "it"),
            false => (folder, "its folder"),
        };
        let why = unwritable_by_us(target)?;
        let path = path.display();
        let said =
            format!("{setting} {path} cannot be written: {what} {why}, or correct {setting}");
        Some(Error::Setting { section, setting, said })
    });
    unusable.collect()
}

/// Why this process may not write to a file or make files in a folder, and what to do.
pub fn unwritable_by_us(path: &Path) -> Option<String> {
    let needed = match path.is_dir() {
        true => Access::WRITE_OK | Access::EXEC_OK,
        false => Access::WRITE_OK,
    };
    let why = rustix::fs::access(path, needed).err()?;
    let user = users::name_of(users::current().uid);
    Some(match why {
        Errno::ROFS => "is on a read-only file system; mount it writable".to_owned(),
        _ => format!("is not writable for user {user}; make it so"),
    })
}

/// Opens a log for appending, and creates it if needed. Neither this nor a write blocks: a FIFO
/// without a reader is refused, and a full one takes no more. Where users other than root may
/// write, root opens only a regular file with a single link ([`guarded::append`]).
///
/// # Errors
/// The error of `open(2)`, worded for the author of the configuration.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(path, LOG_MODE)
}

/// Opens a log of a server that was started as php-fpm, as [`open`], and creates it as php-fpm
/// does: readable for its owner only.
///
/// # Errors
/// The error of `open(2)`, worded for the author of the configuration.
pub fn open_as_fpm(path: &Path) -> io::Result<File> {
    open_with(path, FPM_LOG_MODE)
}

/// Opens the error log of a server with this configuration.
///
/// # Errors
/// As [`open`].
pub fn open_error_log(path: &Path, config: &Config) -> io::Result<File> {
    match config.fpm {
        Some(_) => open_as_fpm(path),
        None => open(path),
    }
}

fn open_with(path: &Path, mode: u32) -> io::Result<File> {
    in_words(guarded::append(path, mode))
}

fn in_words(opened: io::Result<File>) -> io::Result<File> {
    opened.map_err(worded)
}

/// An error of `open(2)` for a log, worded for the author of the configuration.
pub fn worded(why: io::Error) -> io::Error {
    match Errno::from_io_error(&why) {
        Some(Errno::NXIO) => io::Error::other("it is a FIFO without a reader"),
        _ => why,
    }
}

/// The user of a pool that may place links on the path of its log, where this is root: the name
/// may point anywhere.
pub fn tenant_of<'a>(path: &Path, identity: Option<&'a Identity>) -> Option<&'a Identity> {
    let is_tenants = |identity: &&Identity| !path_trust::leads_where_root_says(path, identity);
    identity.filter(|_| users::is_root()).filter(is_tenants)
}

/// Opens the access log of a FastCGI listener of a pool that runs as `identity`, and creates it as
/// php-fpm does: readable for its owner only. Where users other than root can place links, it is
/// opened with the rights of the pool's user, and what this process has open is not reached.
///
/// # Errors
/// As [`open`].
pub fn open_of_listener(path: &Path, identity: Option<&Identity>) -> io::Result<File> {
    match tenant_of(path, identity) {
        Some(tenant) => {
            let open = || guarded::append_to_file_with_their_rights(path, FPM_LOG_MODE);
            users::with_rights_of(tenant, || in_words(open()))?
        }
        None => open_as_fpm(path),
    }
}

/// Opens the access log of a site or a FastCGI listener.
///
/// # Errors
/// As [`open`].
pub fn open_log(log: &LogToOpen) -> io::Result<File> {
    match &log.use_of {
        LogUse::Site => open(&log.path),
        LogUse::Listener(identity) => open_of_listener(&log.path, identity.as_ref()),
    }
}

/// As [`open_log`]; none, where that may wait for a tenant.
///
/// # Errors
/// As [`open`].
pub fn open_log_at_once(log: &LogToOpen) -> io::Result<Option<File>> {
    match guarded::waits_for_others(&log.path)? {
        true => Ok(None),
        false => open_log(log).map(Some),
    }
}

/// Opens the access log, if it is configured as a file.
///
/// # Errors
/// When the file cannot be opened.
pub fn open_access_log(config: &Config) -> Result<Option<File>, Error> {
    let Some(LogTarget::File(path)) = &config.access_log else {
        return Ok(None);
    };
    open(path).map(Some).map_err(|why| {
        Error::Configuration(format!(
            "the access log {} cannot be opened: {why}; correct access_log or the rights of its \
             folder",
            path.display()
        ))
    })
}

/// Logs that users other than root can replace because they may write to a folder on the path: one
/// sentence each.
pub fn warnings(config: &Config) -> Vec<String> {
    let file = |target: &LogTarget| match target {
        LogTarget::File(path) => Some(path.clone()),
        LogTarget::Stderr | LogTarget::Syslog | LogTarget::Collector(_) => None,
    };
    let of_sites = config.sites.iter().filter_map(|site| match &site.access_log {
        SiteLog::File(path) => Some(("access_log", path.clone())),
        SiteLog::Server | SiteLog::Off => None,
    });
    let own = [
        ("error_log", file(&config.error_log)),
        ("access_log", config.access_log.as_ref().and_then(file)),
    ];
    let own = own.into_iter().filter_map(|(setting, path)| Some((setting, path?)));
    let all: BTreeSet<_> = own.chain(of_sites).collect();
    let said = all.iter().filter_map(|(setting, path)| {
        let why = guarded::warning_of(path)?;
        Some(format!("{setting}: {why}"))
    });
    said.filter(|_| users::is_root()).collect()
}

/// The sentence for a log that could not be reopened.
pub fn not_reopened(which: &str, name: &impl std::fmt::Display, why: &io::Error) -> String {
    format!(
        "the {which} log {name} cannot be opened again: {why}; lines still go to the file that was \
         opened before; mend it and send SIGUSR1 once more"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::OFlags;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_log_is_nothing_for_everybody_to_read_and_is_appended_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        open(&path).unwrap().write_all(b"one\n").unwrap();
        open(&path).unwrap().write_all(b"two\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one\ntwo\n");
        let mode = std::fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o137, 0);
    }

    #[test]
    fn a_pools_log_that_is_a_link_to_what_the_supervisor_has_open_is_refused() {
        use std::os::fd::AsRawFd;
        use std::os::unix::fs::{lchown, symlink};
        if !users::is_root() {
            return eprintln!("skipped: only root opens logs with the rights of others");
        }
        let tenant = users::look_up("nobody", None).unwrap();
        let folder = tempfile::tempdir().unwrap();
        lchown(folder.path(), Some(tenant.uid), Some(tenant.gid)).unwrap();
        // As the memory of another pool that is not sealed: its mode lets everyone write.
        let memory = maitred_os::shared::writable_file("test").unwrap();
        let log = folder.path().join("slow.log");
        let lead_to = |target: &str| {
            let _ = std::fs::remove_file(&log);
            symlink(target, &log).unwrap();
            lchown(&log, Some(tenant.uid), Some(tenant.gid)).unwrap();
        };
        for process in ["self".to_owned(), "thread-self".to_owned(), std::process::id().to_string()]
        {
            lead_to(&format!("/proc/{process}/fd/{}", memory.as_raw_fd()));
            let refused = open_of_listener(&log, Some(&tenant)).unwrap_err();
            assert_eq!(Errno::from_io_error(&refused), Some(Errno::LOOP), "{process}: {refused}");
        }
        assert_eq!(memory.metadata().unwrap().len(), 0);
        // A link of their own to a log of their own is followed as before.
        lead_to("other.log");
        open_of_listener(&log, Some(&tenant)).unwrap().write_all(b"slow\n").unwrap();
        assert_eq!(std::fs::read(folder.path().join("other.log")).unwrap(), b"slow\n");
    }

    #[test]
    fn a_fifo_that_nobody_reads_is_refused_at_once_and_one_that_is_full_waits_for_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
        let refused = open(&path).unwrap_err().to_string();
        assert!(refused.contains("without a reader"), "{refused}");
        let flags = OFlags::NONBLOCK | OFlags::RDONLY;
        let _reader = rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).unwrap();
        let mut log = open(&path).unwrap();
        let full =
            std::iter::repeat_with(|| log.write_all(&[b'x'; 4096])).find_map(Result::err).unwrap();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    }
}
