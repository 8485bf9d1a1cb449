//! Control groups, version 2: limits of several processes together (cgroups(7), and the kernel's
//! Documentation/admin-guide/cgroup-v2.rst).

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A control group: a folder of the file system `cgroup2`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group(PathBuf);

impl Group {
    /// The group of this process.
    ///
    /// # Errors
    /// `NotFound` when no `cgroup2` is mounted that shows it, and what `/proc` says.
    pub fn of_this_process() -> io::Result<Group> {
        let groups = fs::read("/proc/self/cgroup")?;
        let mounts = fs::read("/proc/self/mountinfo")?;
        let folder = own_group(&groups).and_then(|own| place(&mounts, own));
        folder.map(Group).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "no cgroup2 file system is mounted")
        })
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The group that this one is a part of.
    pub fn parent(&self) -> Option<Group> {
        self.0.parent().map(|parent| Group(parent.to_owned()))
    }

    /// What can be limited in it, such as `memory`.
    ///
    /// # Errors
    /// When the folder is none of a group.
    pub fn controllers(&self) -> io::Result<Vec<String>> {
        self.names("cgroup.controllers")
    }

    /// What can be limited in the groups inside of it.
    ///
    /// # Errors
    /// When the folder is none of a group.
    pub fn divided_by(&self) -> io::Result<Vec<String>> {
        self.names("cgroup.subtree_control")
    }

    fn names(&self, setting: &str) -> io::Result<Vec<String>> {
        let names = fs::read_to_string(self.0.join(setting))?;
        Ok(names.split_whitespace().map(str::to_owned).collect())
    }

    /// Lets groups inside of this one be limited in these ways.
    ///
    /// # Errors
    /// `ResourceBusy` when processes are in this very group, which may then only be divided if it
    /// is the machine's own; what the system says otherwise.
    pub fn divide_by(&self, controllers: &[&str]) -> io::Result<()> {
        self.control(controllers, '+')
    }

    /// Takes [`divide_by`](Self::divide_by) back.
    ///
    /// # Errors
    /// What the system says.
    pub fn unite(&self, controllers: &[&str]) -> io::Result<()> {
        self.control(controllers, '-')
    }

    fn control(&self, controllers: &[&str], sign: char) -> io::Result<()> {
        let words: Vec<String> = controllers
            .iter()
            .map(|controller| format!("{sign}{controller}"))
            .collect();
        self.set("cgroup.subtree_control", &words.join(" "))
    }

    /// The group `name` inside of this one, made unless it is there.
    ///
    /// # Errors
    /// When it cannot be made.
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

    /// Where a process that writes `0` moves itself into the group: what
    /// [`Program::group`](crate::spawn::Program::group) is given.
    ///
    /// # Errors
    /// When this process may not move others.
    pub fn entrance(&self) -> io::Result<OwnedFd> {
        Ok(self.open("cgroup.procs")?.into())
    }

    fn open(&self, setting: &str) -> io::Result<fs::File> {
        fs::OpenOptions::new()
            .write(true)
            .open(self.0.join(setting))
    }

    /// Moves this process into the group.
    ///
    /// # Errors
    /// When it may not.
    pub fn enter(&self) -> io::Result<()> {
        self.set("cgroup.procs", "0")
    }

    /// Removes the group, in which no process is left.
    ///
    /// # Errors
    /// When one is, or another group is inside.
    pub fn remove(&self) -> io::Result<()> {
        fs::remove_dir(&self.0)
    }
}

/// The group of version 2 in `/proc/self/cgroup`: the line that begins with `0::`.
fn own_group(groups: &[u8]) -> Option<&Path> {
    let mut lines = groups.split(|byte| *byte == b'\n');
    let path = lines.find_map(|line| line.strip_prefix(b"0::"))?;
    Some(Path::new(OsStr::from_bytes(path)))
}

/// The folder in which `/proc/self/mountinfo` (proc_pid_mountinfo(5)) shows the group `own`.
fn place(mounts: &[u8], own: &Path) -> Option<PathBuf> {
    mounts.split(|byte| *byte == b'\n').find_map(|line| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let dash = fields.iter().position(|field| *field == b"-")?;
        if *fields.get(dash + 1)? != b"cgroup2" {
            return None;
        }
        let root = PathBuf::from(unescape(fields.get(3)?));
        let mounted_at = PathBuf::from(unescape(fields.get(4)?));
        let below = own.strip_prefix(root).ok()?;
        Some(match below.as_os_str().is_empty() {
            true => mounted_at,
            false => mounted_at.join(below),
        })
    })
}

/// Blanks, tabs, line feeds and backslashes are written as `\040` and so on.
fn unescape(field: &[u8]) -> OsString {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| byte == b'\\');
        let code = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                plain.push(code);
                rest = &after[3..];
            }
            None => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    OsString::from_vec(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spawn::{self, Program};
    use std::os::fd::AsFd;

    const MOUNTS: &[u8] = b"25 1 0:24 / /sys rw - sysfs sysfs rw\n\
        30 25 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        31 25 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn a_group_is_found_where_its_file_system_is_mounted() {
        let own = own_group(b"4:memory:/other\n0::/system.slice/maitred.service\n").unwrap();
        assert_eq!(
            place(MOUNTS, own).unwrap(),
            Path::new("/sys/fs/cgroup/system.slice/maitred.service")
        );
        assert_eq!(
            place(MOUNTS, Path::new("/")).unwrap(),
            Path::new("/sys/fs/cgroup")
        );
    }

    #[test]
    fn a_mount_that_shows_a_part_shows_what_is_in_it_and_no_more() {
        let mounts = b"9 1 0:27 /box /my\\040groups rw - cgroup2 none rw\n";
        let found = |own: &str| place(mounts, Path::new(own));
        assert_eq!(found("/box/a"), Some("/my groups/a".into()));
        assert_eq!(found("/box"), Some("/my groups".into()));
        assert_eq!(found("/boxer"), None);
        assert_eq!(own_group(b"4:memory:/other\n"), None);
        assert_eq!(
            place(b"9 1 0:27 / /x rw - cgroup none rw\n", Path::new("/")),
            None
        );
    }

    /// Runs where this process may make groups, and says so where not.
    #[test]
    fn a_started_program_is_in_its_group_from_the_first_and_an_empty_group_can_be_removed() {
        let made = Group::of_this_process()
            .and_then(|own| own.make(&format!("maitred-test-{}", std::process::id())));
        let group = match made {
            Ok(group) => group,
            Err(error) => return eprintln!("skipped: no control group can be made here: {error}"),
        };
        let entrance = group.entrance().unwrap();
        let name = group.path().file_name().unwrap().to_str().unwrap();
        let pid = spawn::start(&Program {
            path: Path::new("/bin/sh"),
            name: OsStr::new("sh"),
            arguments: &[
                OsStr::new("-c"),
                OsStr::new(&format!("grep -q '^0::.*/{name}$' /proc/self/cgroup")),
            ],
            environment: &[("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
            inherit: &[],
            output: None,
            group: Some(entrance.as_fd()),
        })
        .unwrap();
        let ended = nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(pid), None).unwrap();
        group.remove().unwrap();
        assert!(
            matches!(ended, nix::sys::wait::WaitStatus::Exited(_, 0)),
            "{ended:?}"
        );
        assert!(!group.path().exists());
    }
}
