//! The text files of `/proc` and of control groups: the only place that knows their formats.
//!
//! Parsers take the text, since it may come from a descriptor opened earlier, from below another
//! root or from a test. The kernel adds lines and columns over time, so an unknown or odd one is
//! skipped.

pub mod cgroup;
pub mod held_locks;
pub mod listeners;
pub mod smaps;
pub mod stat;

pub use cgroup::{Folder, Version};
pub use smaps::{Rollup, Statm};
pub use stat::{Stat, cpu_ticks};

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Bytes in the unit `kB` of the kernel's files.
const KILOBYTE: u64 = 1024;

/// Most bytes of a command line that are read. A process may have any of its memory be its command
/// line (prctl(2): `PR_SET_MM`), many gigabytes.
pub const COMMAND_LINE_BYTES_MAX: u64 = 4096;

/// Most bytes that the kernel gives of a list of `/proc` in one read: a page.
const READ_BYTES: usize = 4096;

/// The text beside a name, in a file of lines such as `name 123`, `name: 123 kB` or `name\t: text`.
pub fn value<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?;
        let value = rest.trim_start_matches([':', ' ', '\t']);
        (value.len() < rest.len()).then(|| value.trim_end())
    })
}

/// The first number beside a name.
pub fn number(text: &str, name: &str) -> Option<u64> {
    let mut words = value(text, name)?.split_ascii_whitespace();
    words.next()?.parse().ok()
}

/// The number beside a name that the kernel gives in kB, in bytes.
pub fn bytes(text: &str, name: &str) -> Option<u64> {
    number(text, name)?.checked_mul(KILOBYTE)
}

/// The user of a process, by its `status`: `None` where its real, effective, saved and file system
/// user are not one and the same. (The owner of its files in `/proc` is root if it may not be
/// inspected.)
pub fn user(status: &str) -> Option<u32> {
    let mut ids = value(status, "Uid")?.split_ascii_whitespace();
    let real = ids.next()?;
    ids.all(|id| id == real).then(|| real.parse().ok()).flatten()
}

/// The share of the time in which tasks waited for a resource (Documentation/accounting/psi.rst):
/// `line` is `some` or `full`, `window` is `avg10`, `avg60` or `avg300`.
pub fn stalled(text: &str, line: &str, window: &str) -> Option<f64> {
    let mut averages = value(text, line)?.split_ascii_whitespace();
    let percent = averages.find_map(|word| word.strip_prefix(window)?.strip_prefix('='))?;
    let percent: f64 = percent.parse().ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

/// The text of a file of the kernel. Any user can have bytes that are not UTF-8 be in one, by the
/// name of a process, of a folder above a mount point or of a socket: they are replaced, so that
/// what others have in the same file is still read.
///
/// # Errors
/// The system's error.
pub fn text(path: impl AsRef<Path>) -> io::Result<String> {
    fs::read(path).map(lossy)
}

fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// A file of a process, by its id or as `self`: `stat`, `status`, `smaps_rollup`. `None` for a
/// process that has ended, and for a file that this user may not read.
pub fn read(pid: impl Display, file: &str) -> Option<String> {
    text(format!("/proc/{pid}/{file}")).ok()
}

/// The start of such a file, as the kernel gives it in one read: of a list, whole entries that fit
/// into a page. The kernel lists those before again in each further read.
pub fn read_once(pid: impl Display, file: &str) -> Option<String> {
    let mut page = [0; READ_BYTES];
    let length = File::open(format!("/proc/{pid}/{file}")).ok()?.read(&mut page).ok()?;
    Some(lossy(page[..length].to_vec()))
}

/// The start of a process's command line, or of the title that it has given itself. Empty for a
/// process that has ended.
pub fn command_line(pid: impl Display) -> Vec<u8> {
    let mut line = Vec::new();
    if let Ok(file) = File::open(format!("/proc/{pid}/cmdline")) {
        // After an error the line is what has been read.
        let _ = file.take(COMMAND_LINE_BYTES_MAX).read_to_end(&mut line);
    }
    line
}

/// The kernel's function in which a process sleeps (`/proc/PID/wchan`, proc_pid_wchan(5)). `None`
/// for one that runs, and where this user may not trace it.
pub fn wait_channel(pid: impl Display) -> Option<String> {
    read(pid, "wchan").filter(|name| !name.is_empty() && name != "0")
}

/// The ids of the threads of a process; none of one that has ended.
pub fn threads(pid: impl Display) -> impl Iterator<Item = i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The ids of all processes that `/proc` shows.
pub fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_by_its_whole_name() {
        let text =
            "MemTotal:  1000 kB\nSwapTotal: 0 kB\noom 3\noom_kill 2\nmodel name\t: A B\nodd: x\n";
        assert_eq!(bytes(text, "MemTotal"), Some(1_024_000));
        assert_eq!((number(text, "oom"), number(text, "oom_kill")), (Some(3), Some(2)));
        assert_eq!(value(text, "model name"), Some("A B"), "/proc/cpuinfo");
        assert_eq!((number(text, "Mem"), number(text, "odd")), (None, None));
        assert_eq!(bytes("x 99999999999999999999 kB", "x"), None);
    }

    #[test]
    fn a_process_has_one_user_or_none_that_counts() {
        assert_eq!(user("Name:\tx\nUid:\t33\t33\t33\t33\nGid:\t1\t1\t1\t1\n"), Some(33));
        for other in ["Uid:\t33\t0\t33\t33\n", "Uid:\n", "Uid:\tx\tx\n", ""] {
            assert_eq!(user(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_share_of_stalls_is_read_and_an_absurd_one_is_not() {
        let text =
            "some avg10=12.50 avg60=1.00 avg300=0.10 total=5\nfull avg10=0.50 avg60=0 total=1\n";
        assert_eq!(stalled(text, "some", "avg10"), Some(0.125));
        assert_eq!(stalled(text, "full", "avg10"), Some(0.005));
        assert_eq!(stalled(text, "some", "avg60"), Some(0.01));
        for absurd in ["", "some", "some avg10=-1", "some avg10=NaN", "some avg10=900"] {
            assert_eq!(stalled(absurd, "some", "avg10"), None, "{absurd}");
        }
    }

    #[test]
    fn a_process_that_runs_has_no_wait_channel_and_one_that_sleeps_has() {
        assert_eq!((wait_channel("thread-self"), wait_channel(i32::MAX)), (None, None));
        let mut sleeps = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut tries = (0..10_000).map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            wait_channel(sleeps.id())
        });
        let found = tries.any(|channel| channel.is_some_and(|name| name.contains("nanosleep")));
        sleeps.kill().and_then(|()| sleeps.wait().map(drop)).unwrap();
        assert!(found);
    }

    /// `struct prctl_mm_map` of linux/prctl.h.
    #[repr(C)]
    struct MemoryMap {
        /// `start_code` to `start_stack`.
        segments: [u64; 7],
        arg_start: u64,
        arg_end: u64,
        env_start: u64,
        env_end: u64,
        auxv: u64,
        auxv_size: u32,
        exe_fd: u32,
    }

    /// Has this process's command line be as much untouched memory, and waits for a signal. It
    /// makes system calls only, for it is a child of a process of several threads.
    fn wait_with_command_line_of(bytes: usize) -> ! {
        let (protection, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the mapping is new, and what the kernel reads lives until it returns.
        unsafe {
            let start = libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) as u64;
            let map = MemoryMap {
                segments: [start, start + 1, start, start + 1, start, start, start],
                arg_start: start,
                arg_end: start + bytes as u64,
                env_start: start,
                env_end: start,
                auxv: 0,
                auxv_size: 0,
                exe_fd: u32::MAX,
            };
            let size = size_of::<MemoryMap>();
            let kind = libc::PR_SET_MM_MAP;
            if libc::prctl(libc::PR_SET_MM, kind, &raw const map, size, 0) == 0 {
                libc::pause();
            }
            libc::_exit(1);
        }
    }

    #[test]
    fn a_command_line_without_end_is_read_to_a_limit() {
        use nix::sys::{signal, wait};
        use nix::unistd::{ForkResult, fork};
        // SAFETY: the child makes system calls only.
        let child = match unsafe { fork() }.unwrap() {
            ForkResult::Child => wait_with_command_line_of(64 << 20),
            ForkResult::Parent { child } => child,
        };
        let own = command_line("self");
        let mut lines = (0..10_000).map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            command_line(child)
        });
        let line = lines.find(|line| *line != own).unwrap();
        let ended = wait::waitpid(child, Some(wait::WaitPidFlag::WNOHANG)).unwrap();
        if ended != wait::WaitStatus::StillAlive {
            println!("skipped: this kernel has no PR_SET_MM_MAP");
            return;
        }
        signal::kill(child, signal::Signal::SIGKILL).unwrap();
        wait::waitpid(child, None).unwrap();
        assert_eq!(line.len() as u64, COMMAND_LINE_BYTES_MAX);
    }

    #[test]
    fn a_process_whose_name_is_not_utf_8_has_a_status_like_any_other() {
        let named = |file: &str| {
            let mut file = File::options().write(true).open(file).unwrap();
            std::io::Write::write_all(&mut file, b"\xff) S 9\xd0").unwrap();
            let own = format!("self/task/{}", nix::unistd::gettid());
            let status = read(&own, "status").unwrap();
            let stat = Stat::parse(&read(&own, "stat").unwrap()).unwrap();
            let comm = read_once(&own, "comm").unwrap();
            (user(&status), value(&status, "State").is_some(), stat.parent(), comm)
        };
        let own = std::thread::spawn(move || named("/proc/thread-self/comm")).join().unwrap();
        let parent = Some(nix::unistd::getppid().as_raw());
        let name = "\u{fffd}) S 9\u{fffd}\n".to_owned();
        assert_eq!(own, (Some(nix::unistd::getuid().as_raw()), true, parent, name));
    }

    #[test]
    fn this_process_is_among_all() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(pids().any(|pid| pid == own));
        assert!(read(own, "status").is_some() && read(i32::MAX, "status").is_none());
    }
}
