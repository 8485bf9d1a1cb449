//! System calls that a process is made to call by ptrace(2). gdb can call functions in a process as
//! well, but not on processors with AMX, whose state it does not know.

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::processes::Process;

/// An argument of a system call.
#[derive(Debug, Clone)]
pub enum Argument {
    /// A number.
    Number(u64),
    /// A pointer to these bytes, which the process gets on its stack.
    Bytes(Vec<u8>),
}

impl From<u64> for Argument {
    fn from(number: u64) -> Argument {
        Argument::Number(number)
    }
}

impl From<&str> for Argument {
    /// As a string of C.
    fn from(text: &str) -> Argument {
        Argument::Bytes([text.as_bytes(), &[0]].concat())
    }
}

/// A system call, by its number on x86-64, with at most four arguments.
#[derive(Debug, Clone)]
pub struct Syscall {
    /// Its number.
    pub number: u64,
    /// Its arguments.
    pub arguments: Vec<Argument>,
}

impl Syscall {
    /// A call.
    pub fn new(number: u64, arguments: impl IntoIterator<Item = Argument>) -> Syscall {
        Syscall { number, arguments: arguments.into_iter().collect() }
    }
}

/// Has the first thread of a process make system calls. Returns their results: a negative number is
/// an error (errno(3)).
///
/// # Panics
/// When the process cannot be traced, or on another architecture than x86-64.
pub fn inject(process: &Process, calls: &[Syscall]) -> Vec<i64> {
    let pid = Pid::from_raw(process.pid);
    ptrace::attach(pid).expect("the process can be traced");
    waitpid(pid, Some(WaitPidFlag::__WALL)).expect("it stops");
    let results: nix::Result<Vec<i64>> = calls.iter().map(|call| make(pid, call)).collect();
    ptrace::detach(pid, None).expect("it continues");
    results.expect("the process makes the calls")
}

#[cfg(target_arch = "x86_64")]
fn make(pid: Pid, call: &Syscall) -> nix::Result<i64> {
    const SYSCALL: i64 = 0x050f;
    let before = ptrace::getregs(pid)?;
    let at = |address: u64| address as ptrace::AddressType;
    // Far below what the stopped thread uses of the stack.
    let mut place = (before.rsp - 64 * 1024) & !15;
    let mut numbers = [0; 4];
    for (number, argument) in numbers.iter_mut().zip(&call.arguments) {
        *number = match argument {
            Argument::Number(number) => *number,
            Argument::Bytes(bytes) => {
                let start = place;
                for word in bytes.chunks(8) {
                    let mut padded = [0; 8];
                    padded[..word.len()].copy_from_slice(word);
                    ptrace::write(pid, at(place), i64::from_ne_bytes(padded))?;
                    place += 8;
                }
                start
            }
        };
    }
    let code = ptrace::read(pid, at(before.rip))?;
    ptrace::write(pid, at(before.rip), (code & !0xffff) | SYSCALL)?;
    let mut regs = before;
    (regs.rax, regs.orig_rax) = (call.number, u64::MAX);
    [regs.rdi, regs.rsi, regs.rdx, regs.r10] = numbers;
    ptrace::setregs(pid, regs)?;
    ptrace::step(pid, None)?;
    waitpid(pid, Some(WaitPidFlag::__WALL))?;
    let result = ptrace::getregs(pid)?.rax.cast_signed();
    ptrace::write(pid, at(before.rip), code)?;
    // With these, a system call that was interrupted starts again.
    ptrace::setregs(pid, before)?;
    Ok(result)
}

#[cfg(not(target_arch = "x86_64"))]
fn make(_: Pid, _: &Syscall) -> nix::Result<i64> {
    panic!("this test knows the system calls of x86-64 alone")
}
