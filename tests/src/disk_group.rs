//! A control group with a slow disk that a server under test is started in.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::control_group::ControlGroup;
use crate::server::Setup;

/// A group whose writes to a disk are slow, which goes when this is dropped: let go of what is in
/// it first.
pub struct DiskGroup(ControlGroup);

impl DiskGroup {
    /// A group that writes this often a second to the disk that `path` is on. None, with a message,
    /// where no group can be created, or `path` is on no disk.
    pub fn with_writes(path: &Path, per_second: u32) -> Option<Self> {
        let disk = disk_of(path);
        let group = disk.and_then(|disk| {
            ControlGroup::beneath([
                (
                    "/sys/fs/cgroup/blkio",
                    "blkio.throttle.write_iops_device",
                    format!("{disk} {per_second}"),
                ),
                ("/sys/fs/cgroup", "io.max", format!("{disk} wiops={per_second}")),
            ])
        });
        if group.is_none() {
            eprintln!("skipped: no control group with a slow disk can be made here");
        }
        group.map(|(group, _)| Self(group))
    }

    /// A server that is started in the group.
    pub fn holds(&self, setup: Setup) -> Setup {
        self.0.holds(setup)
    }
}

/// The whole disk that a path is on, as `MAJOR:MINOR`.
fn disk_of(path: &Path) -> Option<String> {
    let device = fs::metadata(path).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let device = format!("/sys/dev/block/{major}:{minor}");
    let parent = format!("{device}/../dev");
    let is_part = fs::exists(format!("{device}/partition")).unwrap_or(false);
    let file = if is_part { parent } else { format!("{device}/dev") };
    Some(fs::read_to_string(file).ok()?.trim().to_owned())
}
