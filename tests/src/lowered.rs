//! Limits of processes that run, lowered for a while.

use std::process::Command;

use crate::processes::Process;
use crate::server::is_root;

/// A soft limit of a process that runs, lowered until this is dropped. A user may do that to its
/// own processes; root needs a capability that containers lack.
pub struct Lowered {
    process: Process,
    user: Option<&'static str>,
    option: &'static str,
    before: String,
}

impl Lowered {
    /// Lowers what `/proc/PID/limits` calls `name` and prlimit(1) `option`.
    ///
    /// # Panics
    /// When the process is no more, or may not be limited.
    pub fn new(
        process: Process,
        user: &'static str,
        name: &str,
        option: &'static str,
        to: u64,
    ) -> Self {
        let file = format!("/proc/{}/limits", process.pid);
        let limits = std::fs::read_to_string(file).expect("its limits");
        let line = limits.lines().find_map(|line| line.strip_prefix(name));
        let before = line.and_then(|line| line.split_whitespace().next());
        let before = before.expect("a soft limit").to_owned();
        let user = is_root().then_some(user);
        let lowered = Self {
            process,
            user,
            option,
            before,
        };
        lowered.set(&to.to_string());
        lowered
    }

    fn set(&self, soft: &str) {
        let mut command = match self.user {
            None => Command::new("prlimit"),
            Some(user) => {
                let mut command = Command::new("runuser");
                command.args(["-u", user, "--", "prlimit"]);
                command
            }
        };
        let pid = format!("--pid={}", self.process.pid);
        let limit = format!("{}={soft}:", self.option);
        let done = command.args([pid, limit]).status();
        assert!(done.is_ok_and(|status| status.success()), "{command:?}");
    }
}

impl Drop for Lowered {
    fn drop(&mut self) {
        if self.process.is_running() && !std::thread::panicking() {
            self.set(&self.before);
        }
    }
}
