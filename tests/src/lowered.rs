//! Limits of processes that run, lowered for a while.

use std::process::Command;

use crate::injected::{Argument, Syscall, inject};
use crate::processes::Process;
use crate::server::is_root;

/// A soft limit of a process that runs, lowered until this is dropped. A user may do that to its
/// own processes; root needs a capability that containers lack.
pub struct Lowered {
    process: Process,
    user: Option<&'static str>,
    option: &'static str,
    before: String,
    hard: String,
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
        let mut limits = line.expect("the limit is listed").split_whitespace();
        let mut next = || limits.next().expect("a soft and a hard limit").to_owned();
        let (before, hard) = (next(), next());
        let user = is_root().then_some(user);
        let lowered = Self { process, user, option, before, hard };
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
        let done = command.args([pid, limit]).output();
        if !done.is_ok_and(|output| output.status.success()) {
            self.set_from_within(soft);
        }
    }

    /// Has the process set its own limit. The saved group of a process that has changed its user is
    /// an unused one, so prlimit(2) needs a capability, which containers lack, even from its user.
    fn set_from_within(&self, soft: &str) {
        let resource: u64 = match self.option {
            // RLIMIT_FSIZE, RLIMIT_NPROC and RLIMIT_NOFILE, as most architectures number them.
            "--fsize" => 1,
            "--nproc" => 6,
            "--nofile" => 7,
            other => panic!("{other} has no number here"),
        };
        let [soft, hard] = [soft, &self.hard].map(|limit| match limit {
            "unlimited" => u64::MAX,
            number => number.parse().expect("a number"),
        });
        let limit = [soft.to_ne_bytes(), hard.to_ne_bytes()].concat();
        let arguments = [0.into(), resource.into(), Argument::Bytes(limit), 0.into()];
        let results = inject(&self.process, &[Syscall::new(PRLIMIT64, arguments)]);
        assert_eq!(results, [0], "the process sets its limit");
    }
}

/// The number of prlimit64(2) on x86-64.
const PRLIMIT64: u64 = 302;

impl Drop for Lowered {
    fn drop(&mut self) {
        if self.process.is_running() && !std::thread::panicking() {
            self.set(&self.before);
        }
    }
}
