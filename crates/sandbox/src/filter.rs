//! The seccomp filter, compiled from the lists in [`crate::calls`].
//!
//! A filter of seccompiler has one action for all calls that it does not name. So there are two
//! filters in one program: calls that the first does not name go on to the second.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use crate::calls;

/// `PR_SET_VMA` (include/uapi/linux/prctl.h): glibc and Rust name their memory by it.
const PR_SET_VMA: u64 = 0x5356_4d41;

/// `PR_GET_AUXV` (the same): rustix looks the page size up in it.
const PR_GET_AUXV: u64 = 0x4155_5856;

/// Requests of ioctl(2) that the C library, tokio and name resolution use.
// Their type is another one with musl.
#[allow(clippy::unnecessary_cast)]
const REQUESTS: [u64; 9] = [
    libc::FIONREAD as u64,
    libc::FIONBIO as u64,
    libc::FIOCLEX as u64,
    libc::TCGETS as u64,
    libc::TIOCGWINSZ as u64,
    libc::TIOCOUTQ as u64,
    libc::SIOCGIFINDEX as u64,
    libc::SIOCGIFNAME as u64,
    libc::SIOCGIFFLAGS as u64,
];

/// Operations of prctl(2) on the process's own name, memory and state.
const OPERATIONS: [u64; 8] = [
    libc::PR_SET_NAME as u64,
    libc::PR_GET_NAME as u64,
    libc::PR_GET_DUMPABLE as u64,
    libc::PR_GET_NO_NEW_PRIVS as u64,
    libc::PR_CAPBSET_READ as u64,
    libc::PR_GET_PDEATHSIG as u64,
    PR_SET_VMA,
    PR_GET_AUXV,
];

/// Commands of fcntl(2) on descriptors, locks, seals and pipes. Others have the kernel send signals
/// to any process of the same user (`F_SETOWN` and `F_SETSIG`, leases, `F_NOTIFY`).
const DESCRIPTOR_COMMANDS: [u64; 16] = [
    libc::F_DUPFD as u64,
    libc::F_DUPFD_CLOEXEC as u64,
    libc::F_GETFD as u64,
    libc::F_SETFD as u64,
    libc::F_GETFL as u64,
    libc::F_SETFL as u64,
    libc::F_GETLK as u64,
    libc::F_SETLK as u64,
    libc::F_SETLKW as u64,
    libc::F_OFD_GETLK as u64,
    libc::F_OFD_SETLK as u64,
    libc::F_OFD_SETLKW as u64,
    libc::F_ADD_SEALS as u64,
    libc::F_GET_SEALS as u64,
    libc::F_SETPIPE_SZ as u64,
    libc::F_GETPIPE_SZ as u64,
];

/// Socket families: for clients, other servers and log collectors.
const FAMILIES: [u64; 3] = [libc::AF_UNIX as u64, libc::AF_INET as u64, libc::AF_INET6 as u64];

/// Netlink protocols: for the machine's addresses in name resolution, and for the queue length of a
/// Unix socket.
const NETLINK: [u64; 2] = [libc::NETLINK_ROUTE as u64, libc::NETLINK_SOCK_DIAG as u64];

/// Installs the filter in every thread of this process, permanently.
///
/// # Errors
/// When the kernel rejects it, or the architecture is not supported.
pub fn install() -> Result<(), String> {
    let program = program(std::process::id()).map_err(|error| error.to_string())?;
    let program: Vec<libc::sock_filter> = program
        .iter()
        .map(|line| libc::sock_filter { code: line.code, jt: line.jt, jf: line.jf, k: line.k })
        .collect();
    maitred_os::seccomp::install(&program).map_err(|error| error.to_string())
}

/// The program for process `pid`. Allowed calls come first: kernels without an action cache (before
/// 5.11) run it for each call.
fn program(pid: u32) -> Result<BpfProgram, seccompiler::BackendError> {
    let arch = std::env::consts::ARCH.try_into()?;
    let always = |calls: &[&[i64]]| -> BTreeMap<i64, Vec<SeccompRule>> {
        let all = calls.iter().copied().flatten();
        all.map(|&call| (call, Vec::new())).collect()
    };
    let unknown = SeccompAction::Errno(libc::ENOSYS as u32);
    let mut allowed = always(&[calls::ALLOWED, calls::ALLOWED_HERE]);
    allowed.extend(conditional(pid)?);
    let allowed = SeccompFilter::new(allowed, unknown.clone(), SeccompAction::Allow, arch)?;
    let refused = SeccompFilter::new(
        always(&[calls::REFUSED, calls::REFUSED_HERE]),
        unknown,
        SeccompAction::Errno(libc::EPERM as u32),
        arch,
    )?;
    let (mut program, refused): (BpfProgram, BpfProgram) =
        (allowed.try_into()?, refused.try_into()?);
    // Its last instruction is the action for calls that it does not name. Jumps are relative: jumps
    // to it lead to the second filter.
    program.pop();
    program.extend(refused);
    Ok(program)
}

/// Calls that depend on arguments. None of them is made for every request.
fn conditional(pid: u32) -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::BackendError> {
    let mut sockets = any_of(0, &FAMILIES)?;
    for protocol in NETLINK {
        let family = equals(0, libc::AF_NETLINK as u64)?;
        sockets.push(SeccompRule::new(vec![family, equals(2, protocol)?])?);
    }
    let thread = libc::CLONE_THREAD as u64;
    let threads_only =
        SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(thread), thread)?;
    Ok(BTreeMap::from([
        (libc::SYS_socket, sockets),
        (libc::SYS_fcntl, any_of(1, &DESCRIPTOR_COMMANDS)?),
        (libc::SYS_ioctl, any_of(1, &REQUESTS)?),
        (libc::SYS_prctl, any_of(0, &OPERATIONS)?),
        // The arguments of `clone3` are in memory, which a filter cannot read: since it fails with
        // `ENOSYS`, the C library starts threads with `clone`.
        (libc::SYS_clone, vec![SeccompRule::new(vec![threads_only])?]),
        // abort() and the like.
        (libc::SYS_tgkill, any_of(0, &[u64::from(pid)])?),
        (libc::SYS_prlimit64, any_of(0, &[0, u64::from(pid)])?),
    ]))
}

/// The argument has this value.
fn equals(index: u8, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
}

/// The argument has one of these values.
fn any_of(index: u8, values: &[u64]) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let rule = |&value: &u64| SeccompRule::new(vec![equals(index, value)?]);
    values.iter().map(rule).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_call_is_both_allowed_and_refused_or_listed_twice() {
        let lists = [calls::ALLOWED, calls::ALLOWED_HERE, calls::REFUSED, calls::REFUSED_HERE];
        let conditional = conditional(1).unwrap();
        let mut seen = HashSet::new();
        for call in lists.into_iter().flatten().chain(conditional.keys()) {
            assert!(seen.insert(*call), "system call {call} is listed twice");
        }
    }

    #[test]
    fn no_command_of_fcntl_is_allowed_by_which_the_kernel_signals_another_process() {
        // include/uapi/asm-generic/fcntl.h
        const F_SETSIG: i32 = 10;
        const F_SETOWN_EX: i32 = 15;
        let signalling = [libc::F_SETOWN, F_SETSIG, F_SETOWN_EX, libc::F_SETLEASE, libc::F_NOTIFY];
        let rules = conditional(1).unwrap();
        assert_eq!(rules[&libc::SYS_fcntl], any_of(1, &DESCRIPTOR_COMMANDS).unwrap());
        for command in signalling {
            assert!(!DESCRIPTOR_COMMANDS.contains(&(command as u64)), "{command}");
        }
    }

    #[test]
    fn the_filter_fits_into_what_the_kernel_takes() {
        assert!(program(1).unwrap().len() < libc::BPF_MAXINSNS as usize);
    }
}
