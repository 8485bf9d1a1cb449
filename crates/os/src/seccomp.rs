//! Installing a seccomp filter (seccomp(2)).

use std::io;

/// Installs a filter in every thread of this process, for good; children inherit it.
///
/// `SECCOMP_FILTER_FLAG_SPEC_ALLOW` leaves the processor's speculative store bypass unchanged:
/// kernels before 5.16 disable it for a process with a filter, which slows all of its code down,
/// and is meant for programs that run untrusted code next to secrets in one address space.
///
/// # Errors
/// When the kernel has no seccomp filters, `no_new_privs` is not set, or the program is refused.
pub fn install(program: &[libc::sock_filter]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    let flags = libc::SECCOMP_FILTER_FLAG_TSYNC | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: the kernel copies `len` instructions from `filter`, which is as long, and writes
    // nothing.
    let done = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    };
    match done {
        0 => Ok(()),
        thread if thread > 0 => {
            Err(io::Error::other(format!("thread {thread} has another filter already")))
        }
        _ => Err(io::Error::last_os_error()),
    }
}
