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
        let lowered = Self {
            process,
            user,
            option,
            before,
            hard,
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
        let done = command.args([pid, limit]).output();
        if !done.is_ok_and(|output| output.status.success()) {
            self.set_from_within(soft);
        }
    }

    /// Has the process set its own limit. The saved group of a process that has changed its user is
    /// an unused one, so prlimit(2) needs a capability, which containers lack, even from its user.
    fn set_from_within(&self, soft: &str) {
        let number = match self.option {
            // RLIMIT_FSIZE, RLIMIT_NPROC and RLIMIT_NOFILE, as most architectures number them.
            "--fsize" => 1,
            "--nproc" => 6,
            "--nofile" => 7,
            other => panic!("{other} has no number here"),
        };
        let [soft, hard] = [soft, &self.hard].map(|limit| match limit {
            "unlimited" => "-1",
            number => number,
        });
        // Far below what the stopped thread and the call itself use of the stack.
        let place = "($sp - 8192)";
        let output = Command::new("timeout")
            .args(["--signal=KILL", "60", "gdb", "-nx", "-batch", "-p"])
            .arg(self.process.pid.to_string())
            .args(["-ex", "set language c"])
            .args(["-ex", &format!("set $limit = (unsigned long *){place}")])
            .args(["-ex", &format!("set $limit[0] = {soft}")])
            .args(["-ex", &format!("set $limit[1] = {hard}")])
            .args([
                "-ex",
                &format!("print (int)prlimit(0, {number}, $limit, 0)"),
            ])
            .output()
            .expect("gdb runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("$1 = 0"), "{output:?}");
    }
}

impl Drop for Lowered {
    fn drop(&mut self) {
        if self.process.is_running() && !std::thread::panicking() {
            self.set(&self.before);
        }
    }
}
