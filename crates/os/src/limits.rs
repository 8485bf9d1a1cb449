//! Resource limits of a process: its children inherit them.

use std::io;
use std::time::Duration;

use nix::sys::resource::{Resource, setrlimit};

/// No limit, as `setrlimit` has it.
pub const UNLIMITED: u64 = libc::RLIM_INFINITY;

/// The kernel takes the nice value of one session in a tenth of a second, of all users but root
/// together: how often, and at what interval, it is tried.
const SESSION_NICE_ATTEMPTS: u32 = 10;
const SESSION_NICE_PAUSE: Duration = Duration::from_millis(105);

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

/// The nice value of this process.
///
/// # Errors
/// No known error.
pub fn nice() -> io::Result<i32> {
    Ok(rustix::process::getpriority_process(None)?)
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

/// The nice value of the session of this process; none where the kernel does not group processes by
/// session.
pub fn session_nice() -> Option<i32> {
    // `/autogroup-123 nice 5`
    let text = std::fs::read_to_string("/proc/self/autogroup").ok()?;
    text.rsplit_once(' ')?.1.trim_end().parse().ok()
}

/// Sets the nice value of the session of this process, if the kernel groups processes by session
/// (`autogroup` in sched(7)): there it is what counts between sessions.
pub fn set_session_nice(value: i32) {
    for _ in 0..SESSION_NICE_ATTEMPTS {
        // Without such groups there is no file; in a control group it has no effect.
        match std::fs::write("/proc/self/autogroup", value.to_string()) {
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => {
                std::thread::sleep(SESSION_NICE_PAUSE);
            }
            Ok(()) | Err(_) => return,
        }
    }
}

/// When a process gives way to others, beyond its nice value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GiveWay {
    /// It interrupts no other process when it wakes up (`SCHED_BATCH`).
    AtWakeUp,
    /// It has a processor only while no other process wants it (`SCHED_IDLE`).
    Always,
}

/// Has this process give way to others.
///
/// # Errors
/// No known error.
pub fn give_way(when: GiveWay) -> io::Result<()> {
    let policy = match when {
        GiveWay::AtWakeUp => libc::SCHED_BATCH,
        GiveWay::Always => libc::SCHED_IDLE,
    };
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is valid for the call, which reads it only.
    let done = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A priority of disk accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskPriority {
    /// Only while no other process wants the disk.
    Idle,
    /// From 0, the highest, to 7.
    BestEffort(u8),
}

/// Sets the priority of disk accesses of this process (ioprio_set(2)).
///
/// # Errors
/// For a value that does not exist.
pub fn set_disk_priority(priority: DiskPriority) -> io::Result<()> {
    const WHO_PROCESS: libc::c_int = 1;
    const CLASS_SHIFT: u32 = 13;
    let value = match priority {
        DiskPriority::Idle => 3 << CLASS_SHIFT,
        DiskPriority::BestEffort(level) => 2 << CLASS_SHIFT | libc::c_int::from(level),
    };
    // SAFETY: the call takes three numbers, and no pointer.
    let done = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, value) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
