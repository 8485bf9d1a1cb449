//! A control group of memory that a server under test is started in, and that something else fills.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::control_group::ControlGroup;
use crate::server::Setup;

/// Where groups are, the file of the limit and that of what is in use: of version 1, and of version
/// 2.
const KINDS: [(&str, &str, &str); 2] = [
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ("/sys/fs/cgroup", "memory.max", "memory.current"),
];

/// Allocates this number of bytes, reports it, and holds them until its standard input ends.
const HOLDS: &str =
    "import sys\nheld = b'x' * int(sys.argv[1])\nprint(len(held), flush=True)\nsys.stdin.read()";

/// A group with a limit, which goes when this is dropped: let go of what is in it first.
pub struct MemoryGroup {
    group: ControlGroup,
    /// The file of its limit, and of what is in use.
    files: (&'static str, &'static str),
    limit: u64,
}

/// What fills a group, until this is dropped.
pub struct Held(Child);

impl MemoryGroup {
    /// A group with this limit in bytes. None, with a message, where no group can be created.
    pub fn with_limit(bytes: u64) -> Option<Self> {
        let kinds = KINDS.map(|(folder, limit, _)| (folder, limit, bytes.to_string()));
        let Some((group, kind)) = ControlGroup::beneath(kinds) else {
            eprintln!("skipped: no control group of memory can be made here");
            return None;
        };
        let (_, limit, used) = KINDS[kind];
        Some(Self { group, files: (limit, used), limit: bytes })
    }

    /// Gives it another limit, in bytes.
    ///
    /// # Panics
    /// When the kernel does not take it.
    pub fn limit(&mut self, bytes: u64) {
        self.group.set(self.files.0, &bytes.to_string());
        self.limit = bytes;
    }

    /// A server that is started in the group.
    pub fn holds(&self, setup: Setup) -> Setup {
        self.group.holds(setup)
    }

    /// Fills the group until this part of it is in use, what can be dropped at once left out.
    ///
    /// # Panics
    /// When more is in use already, or python3 cannot be started.
    pub fn fill(&self, part: f64) -> Held {
        let aim = (self.limit as f64 * part) as u64;
        let bytes = aim.checked_sub(self.used());
        let bytes = bytes.expect("less of the group is in use");
        let [shell, option, script, name] = self.group.entering();
        let holds = ["python3", "-c", HOLDS, &bytes.to_string()];
        let mut child = Command::new(shell)
            .args([option, script, name])
            .args(holds)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 can be started (apt install python3)");
        let said = child.stdout.take().expect("it has a pipe");
        let held = Held(child);
        let said = BufReader::new(said).lines().next();
        assert!(matches!(said, Some(Ok(_))), "it has so much: {said:?}");
        held
    }

    /// How many of its processes the kernel has killed for lack of memory.
    ///
    /// # Panics
    /// When the group does not tell.
    pub fn killed(&self) -> u64 {
        let told = ["memory.oom_control", "memory.events"]
            .into_iter()
            .find_map(|file| self.group.number(file, "oom_kill "));
        told.expect("a group tells how many were killed")
    }

    /// Bytes of it that are in use, what can be dropped at once left out.
    ///
    /// # Panics
    /// When the group does not tell.
    pub fn used(&self) -> u64 {
        let used = self.group.number(self.files.1, "");
        let stat = |names: [&str; 2]| {
            names.into_iter().find_map(|name| self.group.number("memory.stat", name)).unwrap_or(0)
        };
        let once = stat(["total_inactive_file ", "inactive_file "]);
        let again = stat(["total_active_file ", "active_file "])
            + self.group.number("memory.stat", "slab_reclaimable ").unwrap_or(0);
        let stays = (again / 2).min(self.limit / 20);
        let used = used.expect("a group tells what is in use");
        used.saturating_sub(once + again - stays)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
