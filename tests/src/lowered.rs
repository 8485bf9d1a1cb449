//! Limits of processes that run, lowered for a while.

use std::process::Command;

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

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
        let resource = match self.option {
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
        let pid = Pid::from_raw(self.process.pid);
        ptrace::attach(pid).expect("the process can be traced");
        waitpid(pid, Some(WaitPidFlag::__WALL)).expect("it stops");
        let result = prlimit_within(pid, resource, [soft, hard]);
        ptrace::detach(pid, None).expect("it continues");
        assert_eq!(result, Ok(0), "the process sets its limit");
    }
}

/// The number of prlimit64(2) on x86-64.
#[cfg(target_arch = "x86_64")]
const PRLIMIT64: u64 = 302;

/// Has a stopped process call prlimit(2) on itself. gdb would do so as well, but cannot on processors with
/// AMX, whose state it does not know.
#[cfg(target_arch = "x86_64")]
fn prlimit_within(pid: Pid, resource: u64, limit: [u64; 2]) -> nix::Result<u64> {
    const SYSCALL: i64 = 0x050f;
    let before = ptrace::getregs(pid)?;
    let at = |address: u64| address as ptrace::AddressType;
    // Far below what the stopped thread uses of the stack.
    let place = (before.rsp - 8192) & !15;
    for (index, word) in (0..).zip(limit) {
        ptrace::write(pid, at(place + 8 * index), word.cast_signed())?;
    }
    let code = ptrace::read(pid, at(before.rip))?;
    ptrace::write(pid, at(before.rip), (code & !0xffff) | SYSCALL)?;
    let mut regs = before;
    (regs.rax, regs.orig_rax) = (PRLIMIT64, u64::MAX);
    (regs.rdi, regs.rsi, regs.rdx, regs.r10) = (0, resource, place, 0);
    ptrace::setregs(pid, regs)?;
    ptrace::step(pid, None)?;
    waitpid(pid, Some(WaitPidFlag::__WALL))?;
    let result = ptrace::getregs(pid)?.rax;
    ptrace::write(pid, at(before.rip), code)?;
    // With these, a system call that was interrupted starts again.
    ptrace::setregs(pid, before)?;
    Ok(result)
}

#[cfg(not(target_arch = "x86_64"))]
fn prlimit_within(_: Pid, _: u64, _: [u64; 2]) -> nix::Result<u64> {
    panic!("where prlimit(1) may not lower limits, this test knows x86-64 alone")
}

impl Drop for Lowered {
    fn drop(&mut self) {
        if self.process.is_running() && !std::thread::panicking() {
            self.set(&self.before);
        }
    }
}
