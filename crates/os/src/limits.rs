//! Resource limits of a process: its children inherit them.

use std::io;

use nix::sys::resource::{Resource, setrlimit};

/// No limit, as `setrlimit` has it.
pub const UNLIMITED: u64 = libc::RLIM_INFINITY;

/// Most open files this process may ever have.
///
/// # Errors
/// No known error.
pub fn open_files() -> io::Result<u64> {
    let (_, hard) = nix::sys::resource::getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(hard)
}

/// Limits the open files of this process, for good: it cannot raise the limit again by itself.
///
/// # Errors
/// When the limit is beyond the system's (`fs.nr_open`), or beyond this process's own and it may
/// not raise that (`CAP_SYS_RESOURCE`).
pub fn set_open_files(files: u64) -> io::Result<()> {
    Ok(setrlimit(Resource::RLIMIT_NOFILE, files, files)?)
}

/// Limits the core file of this process to `bytes`, irrevocably; see [`UNLIMITED`].
///
/// # Errors
/// When the limit is beyond this process's own and it may not raise that.
pub fn set_core_bytes(bytes: u64) -> io::Result<()> {
    Ok(setrlimit(Resource::RLIMIT_CORE, bytes, bytes)?)
}

/// Sets the nice value of this process; the kernel takes 20 for 19.
///
/// # Errors
/// When the value is lower than before and this process may not lower it (`CAP_SYS_NICE`).
pub fn set_nice(value: i32) -> io::Result<()> {
    Ok(rustix::process::setpriority_process(None, value)?)
}

/// Sets the OOM score of this process (proc_pid_oom_score_adj(5)). Before the process changes its
/// user: afterwards the file is not its own.
///
/// # Errors
/// When the value is lower than before and this process may not lower it (`CAP_SYS_RESOURCE`), or
/// when `/proc` is not mounted.
pub fn set_oom_score_adj(value: i32) -> io::Result<()> {
    std::fs::write("/proc/self/oom_score_adj", value.to_string())
}
