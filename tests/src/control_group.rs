//! A control group of Linux that a server under test is started in.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::server::Setup;
use crate::wait;

/// Numbers the groups of this process.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A group, which goes when this is dropped: let go of what is in it first.
pub struct ControlGroup {
    folder: PathBuf,
}

impl ControlGroup {
    /// A group beneath the first of these folders where this file of it takes this text, and which
    /// one that is. None where there is no such folder.
    pub fn beneath<const KINDS: usize>(
        kinds: [(&str, &str, String); KINDS],
    ) -> Option<(Self, usize)> {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("maitred-test-{}-{number}", std::process::id());
        let mut kinds = kinds.into_iter().enumerate();
        kinds.find_map(|(kind, (parent, file, text))| {
            let folder = Path::new(parent).join(&name);
            fs::create_dir(&folder).ok()?;
            if fs::write(folder.join(file), text).is_ok() {
                return Some((Self { folder }, kind));
            }
            let _ = fs::remove_dir(&folder);
            None
        })
    }

    /// Writes to one of its files.
    ///
    /// # Panics
    /// When the kernel does not take it.
    pub fn set(&self, file: &str, text: &str) {
        let written = fs::write(self.folder.join(file), text);
        written.unwrap_or_else(|why| panic!("{file} takes {text}: {why}"));
    }

    /// The number behind a name at the beginning of a line of one of its files.
    pub fn number(&self, file: &str, name: &str) -> Option<u64> {
        let text = fs::read_to_string(self.folder.join(file)).ok()?;
        let mut lines = text.lines();
        let number = lines.find_map(|line| line.strip_prefix(name))?;
        number.trim().parse().ok()
    }

    /// A server that is started in the group.
    pub fn holds(&self, setup: Setup) -> Setup {
        setup.under(&self.entering().each_ref().map(String::as_str))
    }

    /// What has a program run in the group.
    pub fn entering(&self) -> [String; 4] {
        let enter = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.folder.display());
        ["/bin/sh".into(), "-c".into(), enter, "sh".into()]
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // Processes that have ended leave it a moment later.
        let gone = wait::poll(wait::DEADLINE, || fs::remove_dir(&self.folder).ok());
        if gone.is_none() && !std::thread::panicking() {
            panic!("something is left in {}", self.folder.display());
        }
    }
}
