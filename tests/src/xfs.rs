//! A mounted XFS file system, whose reads take the lock of a file.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::server::{is_root, public_folder};

/// Bytes of the image; mkfs.xfs(8) wants at least 300 MB. It has only what is written to it.
const IMAGE_BYTES: u64 = 512 << 20;

/// The mounted file system. Dropping it unmounts it.
#[derive(Debug)]
pub struct Xfs {
    folder: TempDir,
    _image: TempDir,
}

impl Xfs {
    /// Creates and mounts it; none where that is not possible.
    pub fn mount() -> Option<Xfs> {
        if !is_root() {
            return None;
        }
        let (folder, image) = (public_folder(), public_folder());
        let path = image.path().join("image");
        File::create(&path).and_then(|file| file.set_len(IMAGE_BYTES)).ok()?;
        let made = Command::new("mkfs.xfs").arg("-q").arg(&path).status();
        let is_made = made.is_ok_and(|status| status.success());
        let is_mounted = is_made && mount_image(&path, folder.path());
        is_mounted.then_some(Xfs { folder, _image: image })
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Xfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.folder.path()).status();
    }
}

fn mount_image(image: &Path, folder: &Path) -> bool {
    let mounted = Command::new("mount").args(["-o", "loop"]).arg(image).arg(folder).output();
    mounted.is_ok_and(|output| output.status.success())
}
