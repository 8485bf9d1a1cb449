//! Control groups that some processes of the server are in for a while: frozen, or short of memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use maitred_tests::processes::Process;
use maitred_tests::wait;

/// A kind of group.
#[derive(Debug, Clone, Copy)]
struct GroupKind {
    /// The folder in which it is made.
    parent: &'static str,
    /// The file that makes it what it is.
    file: &'static str,
    /// What is written to that.
    value: &'static str,
    /// What is written to it at the end.
    end: Option<&'static str>,
}

/// Frozen groups: of version 2, also beside version 1, and of version 1.
const FROZEN: [GroupKind; 3] = [
    frozen("/sys/fs/cgroup/unified", "cgroup.freeze", ["1", "0"]),
    frozen("/sys/fs/cgroup", "cgroup.freeze", ["1", "0"]),
    frozen("/sys/fs/cgroup/freezer", "freezer.state", ["FROZEN", "THAWED"]),
];
/// Groups with a limit for what is allocated in them.
const SHORT: [GroupKind; 2] = [
    short("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
    short("/sys/fs/cgroup", "memory.max"),
];
/// That limit, in bytes.
const SHORT_BYTES: &str = "67108864";

const fn frozen(parent: &'static str, file: &'static str, values: [&'static str; 2]) -> GroupKind {
    let [value, end] = values;
    GroupKind { parent, file, value, end: Some(end) }
}

const fn short(parent: &'static str, file: &'static str) -> GroupKind {
    GroupKind { parent, file, value: SHORT_BYTES, end: None }
}

/// How long processes may take to leave a group.
const LEAVES: Duration = Duration::from_secs(10);

/// A group with processes, which are back where they were when this is dropped.
#[derive(Debug)]
pub struct Group {
    folder: PathBuf,
    kind: GroupKind,
    /// The group that the processes came from.
    home: PathBuf,
}

impl Group {
    /// Freezes processes; none where that is not possible.
    pub fn frozen(victims: &[Process]) -> Option<Group> {
        FROZEN.into_iter().find_map(|kind| {
            let group = Group::with(kind, victims)?;
            group.set(kind.value).then_some(group)
        })
    }

    /// Limits the memory that processes allocate from now on; none where that is not possible.
    pub fn short(victims: &[Process]) -> Option<Group> {
        SHORT.into_iter().find_map(|kind| {
            let group = Group::with(kind, &[])?;
            group.set(kind.value).then(|| group.holding(victims))
        })
    }

    fn with(kind: GroupKind, victims: &[Process]) -> Option<Group> {
        let parent = Path::new(kind.parent);
        let folder = parent.join(format!("maitred-torture-{}", std::process::id()));
        fs::create_dir(&folder).ok()?;
        let group = Group { folder, kind, home: parent.to_owned() };
        // A group in which the controller is off lacks the file.
        group.folder.join(kind.file).exists().then(|| group.holding(victims))
    }

    fn holding(mut self, victims: &[Process]) -> Group {
        if let Some(first) = victims.first() {
            self.home = home(self.kind.parent, first);
        }
        victims.iter().for_each(|victim| enter(&self.folder, &victim.pid.to_string()));
        self
    }

    fn set(&self, value: &str) -> bool {
        fs::write(self.folder.join(self.kind.file), value).is_ok()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(end) = self.kind.end {
            self.set(end);
        }
        // A process may be forked meanwhile, and one that has ended leaves a moment later.
        wait::poll(LEAVES, || {
            let members = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
            members.lines().for_each(|pid| enter(&self.home, pid));
            fs::remove_dir(&self.folder).ok()
        });
    }
}

/// A process may have ended, which is all the same.
fn enter(group: &Path, pid: &str) {
    let _ = fs::write(group.join("cgroup.procs"), pid);
}

/// The group below `parent` that a process is in.
fn home(parent: &str, victim: &Process) -> PathBuf {
    let controller = parent.rsplit('/').next().unwrap_or_default();
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", victim.pid)).unwrap_or_default();
    // A line is `NUMBER:CONTROLLERS:PATH`; that of version 2 has no controller.
    let line = groups.lines().find(|line| {
        let controllers = line.split(':').nth(1).unwrap_or_default();
        controllers.split(',').any(|one| one == controller) || controllers.is_empty()
    });
    let path = line.and_then(|line| line.splitn(3, ':').nth(2)).unwrap_or("/");
    Path::new(parent).join(path.trim_start_matches('/'))
}
