//! Control groups, version 2: limits of several processes together (cgroups(7), and the kernel's
//! Documentation/admin-guide/cgroup-v2.rst).

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::param::page_size;

use crate::forked_task::run_task;
use crate::{proc, title};

/// The file of a group by which a process enters it.
pub const PROCESSES: &str = "cgroup.procs";

/// The title of the process that writes a limit of memory.
const WRITER_TITLE: &str = "maitred: limits";

/// A control group: a folder of the file system `cgroup2`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group(PathBuf);

impl Group {
    /// The group of this process.
    ///
    /// # Errors
    /// `NotFound` when no `cgroup2` is mounted that shows it, and what `/proc` says.
    pub fn of_this_process() -> io::Result<Group> {
        Group::named_in(Path::new("/proc/self"))
    }

    /// The group of the process with this folder of `/proc`, as far as this one shows it.
    fn named_in(process: &Path) -> io::Result<Group> {
        let groups = proc::text(process.join("cgroup"))?;
        let mounts = proc::text(process.join("mountinfo"))?;
        let folder = proc::cgroup::own_folder(&groups, &mounts);
        folder.map(|folder| Group(folder.into())).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "no cgroup2 file system is mounted")
        })
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The parent group.
    pub fn parent(&self) -> Option<Group> {
        self.0.parent().map(|parent| Group(parent.to_owned()))
    }

    /// The child groups whose names begin with `prefix`.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn children(&self, prefix: &str) -> io::Result<Vec<Group>> {
        let mut children = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            let is_child = entry.file_type()?.is_dir();
            if is_child && entry.file_name().to_string_lossy().starts_with(prefix) {
                children.push(Group(entry.path()));
            }
        }
        Ok(children)
    }

    /// Its controllers, such as `memory`.
    ///
    /// # Errors
    /// When the folder is not that of a group.
    pub fn controllers(&self) -> io::Result<Vec<String>> {
        self.names("cgroup.controllers")
    }

    /// The controllers enabled for its child groups.
    ///
    /// # Errors
    /// When the folder is not that of a group.
    pub fn divided_by(&self) -> io::Result<Vec<String>> {
        self.names("cgroup.subtree_control")
    }

    fn names(&self, setting: &str) -> io::Result<Vec<String>> {
        let names = fs::read_to_string(self.0.join(setting))?;
        Ok(names.split_whitespace().map(str::to_owned).collect())
    }

    /// Enables controllers for its child groups.
    ///
    /// # Errors
    /// `ResourceBusy` when processes are in this very group and it is not the root group; otherwise
    /// the system's error.
    pub fn divide_by(&self, controllers: &[&str]) -> io::Result<()> {
        self.control(controllers, '+')
    }

    /// Takes [`divide_by`](Self::divide_by) back.
    ///
    /// # Errors
    /// The system's error.
    pub fn unite(&self, controllers: &[&str]) -> io::Result<()> {
        self.control(controllers, '-')
    }

    fn control(&self, controllers: &[&str], sign: char) -> io::Result<()> {
        let words: Vec<String> =
            controllers.iter().map(|controller| format!("{sign}{controller}")).collect();
        self.set("cgroup.subtree_control", &words.join(" "))
    }

    /// The child group `name`, created if necessary.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn make(&self, name: &str) -> io::Result<Group> {
        let path = self.0.join(name);
        match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(Group(path)),
        }
    }

    /// Writes one of its settings, such as `memory.max`.
    ///
    /// # Errors
    /// When there is no such setting here, or the kernel does not take the value.
    pub fn set(&self, setting: &str, value: &str) -> io::Result<()> {
        self.open(setting)?.write_all(value.as_bytes())
    }

    /// Whether one of its settings has this value. The kernel rounds memory to whole pages.
    pub fn has(&self, setting: &str, value: &str) -> bool {
        let held = fs::read_to_string(self.0.join(setting)).unwrap_or_default();
        let pages = |text: &str| {
            let bytes = text.parse::<u64>().ok().filter(|_| setting.starts_with("memory."));
            bytes.map(|bytes| bytes / page_size() as u64)
        };
        let (held, wanted) = (held.trim(), pages(value));
        held == value || wanted.is_some() && pages(held) == wanted
    }

    /// Writes a limit of memory. What is beyond it the kernel reclaims within the write, for as
    /// long as processes of the group take more: another process writes, for which this one waits
    /// `longest`.
    ///
    /// # Errors
    /// When there is no such setting here, or the kernel does not take the value; `TimedOut`: the
    /// limit was not stored within `longest`.
    pub fn limit_memory(&self, setting: &str, value: &str, longest: Duration) -> io::Result<()> {
        // Since Linux 6.16 the processes of the group reclaim alone then.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let path = self.0.join(setting);
        let mut file = fs::OpenOptions::new().write(true).custom_flags(flags).open(path)?;
        if value == "max" || self.has("memory.current", "0") {
            return file.write_all(value.as_bytes());
        }
        let written = run_task(longest, &[file.as_fd()], || {
            title::set(WRITER_TITLE);
            let written = rustix::io::write(&file, value.as_bytes());
            written.map_or_else(Errno::raw_os_error, |_| 0)
        });
        match written? {
            Some(0) => Ok(()),
            Some(error) => Err(io::Error::from_raw_os_error(error)),
            // The limit comes first.
            None if self.has(setting, value) => Ok(()),
            None => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// The descriptor by which a process that writes `0` moves itself into the group, for
    /// [`Program::group`](crate::spawn::Program::group).
    ///
    /// # Errors
    /// When this process may not move others.
    pub fn entrance(&self) -> io::Result<OwnedFd> {
        Ok(self.open(PROCESSES)?.into())
    }

    fn open(&self, setting: &str) -> io::Result<fs::File> {
        fs::OpenOptions::new().write(true).open(self.0.join(setting))
    }

    /// Moves this process into the group.
    ///
    /// # Errors
    /// When it may not.
    pub fn enter(&self) -> io::Result<()> {
        self.set(PROCESSES, "0")
    }

    /// Its processes.
    ///
    /// # Errors
    /// When the folder is not that of a group.
    pub fn processes(&self) -> io::Result<Vec<i32>> {
        let pids = fs::read_to_string(self.0.join(PROCESSES))?;
        Ok(pids.lines().flat_map(str::parse).collect())
    }

    /// Kills its processes, those that they fork meanwhile included.
    ///
    /// # Errors
    /// `NotFound` before Linux 5.14.
    pub fn kill(&self) -> io::Result<()> {
        self.set("cgroup.kill", "1")
    }

    /// Removes the group, which must be empty.
    ///
    /// # Errors
    /// When it has a process or a child group.
    pub fn remove(&self) -> io::Result<()> {
        fs::remove_dir(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spawn::{self, Program};
    use std::ffi::OsStr;
    use std::os::fd::AsFd;
    use std::time::Duration;

    /// Longer than a start takes.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_mount_point_that_is_not_utf_8_hides_no_group() {
        let process = tempfile::tempdir().unwrap();
        let mounts = b"40 25 0:44 / /home/shop/s\xff/c rw - tmpfs tmpfs rw\n\
            31 25 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
        fs::write(process.path().join("mountinfo"), mounts).unwrap();
        fs::write(process.path().join("cgroup"), "0::/system.slice/maitred.service\n").unwrap();
        let group = Group::named_in(process.path()).unwrap();
        assert_eq!(group.path(), Path::new("/sys/fs/cgroup/system.slice/maitred.service"));
    }

    /// Runs where this process may create groups, and prints if it is skipped.
    #[test]
    fn a_program_whose_group_runs_nothing_is_started_and_enters_it_afterwards() {
        let made = Group::of_this_process()
            .and_then(|own| own.make(&format!("maitred-test-{}", std::process::id())));
        let group = match made {
            Ok(group) => group,
            Err(error) => return eprintln!("skipped: no control group can be made here: {error}"),
        };
        let entrance = group.entrance().unwrap();
        let name = group.path().file_name().unwrap().to_str().unwrap().to_owned();
        group.set("cgroup.freeze", "1").unwrap();
        let (started, pid) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let in_it = format!("echo 0 >&3; grep -q '^0::.*/{name}$' /proc/self/cgroup");
            let pid = spawn::start(&Program {
                path: Path::new("/bin/sh"),
                name: OsStr::new("sh"),
                arguments: &[OsStr::new("-c"), OsStr::new(&in_it)],
                environment: &[("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
                inherit: &[],
                output: None,
                group: Some(entrance.as_fd()),
            });
            // Ends with the thread otherwise, as the program's parent.
            let _ = started.send(pid.unwrap());
            std::thread::park();
        });
        let pid = pid.recv_timeout(LONG);
        group.set("cgroup.freeze", "0").unwrap();
        let pid = nix::unistd::Pid::from_raw(pid.expect("the start waits for the group"));
        let ended = nix::sys::wait::waitpid(pid, None).unwrap();
        group.remove().unwrap();
        assert!(matches!(ended, nix::sys::wait::WaitStatus::Exited(_, 0)), "{ended:?}");
        assert!(!group.path().exists());
    }
}
