//! A seccomp filter against holes in memory that is shared with a more trusted process.
//!
//! A process that has mapped a file writable can make holes in it (`MADV_REMOVE`), also without a
//! descriptor, and no seal forbids that without forbidding new mappings. A process that touches a
//! page within a hole that is being made sleeps until it is made, however long that takes
//! (`shmem_falloc_wait`, mm/shmem.c).

use std::io;

use crate::seccomp;

/// A machine whose system calls a process may make (`include/uapi/linux/audit.h`).
struct Machine {
    arch: u32,
    /// Bits of the number of a call that do not say which call it is.
    ignored: u32,
    madvise: u32,
}

/// Calls with one number on all machines (`scripts/syscall.tbl`).
const IO_URING_SETUP: u32 = 425;
const IO_URING_ENTER: u32 = 426;
const PROCESS_MADVISE: u32 = 440;

/// The machines of this program's processes.
#[cfg(target_arch = "x86_64")]
const MACHINES: [Machine; 2] = [
    // The x32 ABI has the same numbers, with one more bit.
    Machine { arch: 0xc000_003e, ignored: 0x4000_0000, madvise: 28 },
    // `int 0x80` works in a process of 64 bits, too.
    Machine { arch: 0x4000_0003, ignored: 0, madvise: 219 },
];
/// The machines of this program's processes.
#[cfg(target_arch = "aarch64")]
const MACHINES: [Machine; 1] = [Machine { arch: 0xc000_00b7, ignored: 0, madvise: 233 }];
/// The machines of this program's processes.
#[cfg(target_arch = "riscv64")]
const MACHINES: [Machine; 1] = [Machine { arch: 0xc000_00f3, ignored: 0, madvise: 233 }];
/// Unknown.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
const MACHINES: [Machine; 0] = [];

// The fields of `struct seccomp_data` (`include/uapi/linux/seccomp.h`).
const CALL: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENTS: u32 = 16;

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const EQUALS: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// Keeps this process and all that it starts from making holes in memory that they have mapped, for
/// good: `MADV_REMOVE` fails with `EOPNOTSUPP`, as for a file system without holes, and io_uring,
/// which can do the same, with `EPERM`, as where the administrator has switched it off. Files can
/// have holes as before. All other calls are allowed without a look at their arguments, so that the
/// kernel does not run the filter for them (since Linux 5.11).
///
/// # Errors
/// As [`seccomp::install`]: the process needs `CAP_SYS_ADMIN` or `no_new_privs`. `Unsupported` on
/// an unknown machine.
pub fn forbid() -> io::Result<()> {
    if MACHINES.is_empty() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    seccomp::install(&program(&MACHINES))
}

fn step(code: u32, otherwise: usize, k: u32) -> libc::sock_filter {
    // All codes and jumps are small.
    let (code, jf) = (code as u16, otherwise as u8);
    libc::sock_filter { code, jt: 0, jf, k }
}

fn fails(error: i32) -> libc::sock_filter {
    step(RETURN, 0, libc::SECCOMP_RET_ERRNO | error.unsigned_abs())
}

/// The program for these machines. What is of no machine is allowed.
fn program(machines: &[Machine]) -> Vec<libc::sock_filter> {
    let allowed = step(RETURN, 0, libc::SECCOMP_RET_ALLOW);
    let mut program = Vec::new();
    for machine in machines {
        let checks = checks(machine);
        program.extend([step(LOAD, 0, ARCH), step(EQUALS, checks.len() + 1, machine.arch)]);
        program.extend(checks);
        program.push(allowed);
    }
    program.push(allowed);
    program
}

/// What is checked of the calls of one machine.
fn checks(machine: &Machine) -> Vec<libc::sock_filter> {
    let allowed = step(RETURN, 0, libc::SECCOMP_RET_ALLOW);
    let mut checks = vec![step(LOAD, 0, CALL), step(AND, 0, !machine.ignored)];
    for call in [IO_URING_SETUP, IO_URING_ENTER] {
        checks.extend([step(EQUALS, 1, call), fails(libc::EPERM)]);
    }
    // The number of the argument with the advice. It is an `int`.
    for (call, argument) in [(machine.madvise, 2), (PROCESS_MADVISE, 3)] {
        let low_half = if cfg!(target_endian = "big") { 4 } else { 0 };
        let advice = ARGUMENTS + 8 * argument + low_half;
        checks.extend([
            step(EQUALS, 4, call),
            step(LOAD, 0, advice),
            step(EQUALS, 1, libc::MADV_REMOVE.unsigned_abs()),
            fails(libc::EOPNOTSUPP),
            allowed,
        ]);
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    const NATIVE: u32 = 0xc000_003e;
    const OLD: u32 = 0x4000_0003;
    const REMOVE: u64 = 9;

    /// What the program says to a call, as the kernel runs it.
    fn run(arch: u32, call: u32, arguments: [u64; 4]) -> u32 {
        let machines = [
            Machine { arch: NATIVE, ignored: 0x4000_0000, madvise: 28 },
            Machine { arch: OLD, ignored: 0, madvise: 219 },
        ];
        let program = program(&machines);
        let (mut at, mut value) = (0, 0);
        loop {
            let libc::sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            match u32::from(code) {
                RETURN => return k,
                AND => value &= k,
                EQUALS => at += usize::from(if value == k { jt } else { jf }),
                LOAD => {
                    value = match k {
                        CALL => call,
                        ARCH => arch,
                        _ => arguments[(k - ARGUMENTS) as usize / 8] as u32,
                    }
                }
                other => panic!("{other}"),
            }
        }
    }

    fn is_allowed(arch: u32, call: u32, arguments: [u64; 4]) -> bool {
        run(arch, call, arguments) == libc::SECCOMP_RET_ALLOW
    }

    #[test]
    fn holes_are_refused_by_every_way_to_make_one_and_nothing_else_is() {
        let no_holes = libc::SECCOMP_RET_ERRNO | libc::EOPNOTSUPP as u32;
        let not_permitted = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        // The kernel looks at the lower half of an `int` alone.
        for advice in [REMOVE, REMOVE | 1 << 32] {
            for (arch, call) in [(NATIVE, 28), (NATIVE, 28 | 0x4000_0000), (OLD, 219)] {
                assert_eq!(run(arch, call, [0, 0, advice, 0]), no_holes);
            }
            for (arch, call) in [(NATIVE, 440), (NATIVE, 440 | 0x4000_0000), (OLD, 440)] {
                assert_eq!(run(arch, call, [0, 0, 0, advice]), no_holes);
            }
        }
        for (arch, call) in [(NATIVE, 425), (NATIVE, 426), (OLD, 425), (OLD, 426)] {
            assert_eq!(run(arch, call, [0; 4]), not_permitted);
        }
        for advice in (0..64).filter(|advice| *advice != REMOVE) {
            assert!(is_allowed(NATIVE, 28, [REMOVE, REMOVE, advice, REMOVE]));
            assert!(is_allowed(OLD, 219, [REMOVE, REMOVE, advice, REMOVE]));
            assert!(is_allowed(NATIVE, 440, [REMOVE, REMOVE, REMOVE, advice]));
        }
        for call in (0..500).filter(|call| ![28, 425, 426, 440].contains(call)) {
            assert!(is_allowed(NATIVE, call, [REMOVE; 4]), "{call}");
        }
        for call in (0..500).filter(|call| ![219, 425, 426, 440].contains(call)) {
            assert!(is_allowed(OLD, call, [REMOVE; 4]), "{call}");
        }
        assert!(is_allowed(0xc000_00b7, 28, [REMOVE; 4]), "of no machine of this program");
    }

    #[test]
    fn calls_have_the_numbers_of_this_machine() {
        for machine in MACHINES.iter().take(1) {
            assert_eq!(i64::from(machine.madvise), libc::SYS_madvise);
        }
        assert_eq!(i64::from(PROCESS_MADVISE), libc::SYS_process_madvise);
        assert_eq!(i64::from(IO_URING_SETUP), libc::SYS_io_uring_setup);
        assert_eq!(i64::from(IO_URING_ENTER), libc::SYS_io_uring_enter);
    }
}
