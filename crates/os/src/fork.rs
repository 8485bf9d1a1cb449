//! Forking a worker so that the supervisor, not the zygote, becomes its parent.
//!
//! The zygote forks an intermediate process, that forks the worker and exits; the kernel gives the
//! orphan to the nearest subreaper, the supervisor. A raw `clone(CLONE_PARENT)` would save one
//! fork, but glibc would keep the zygote's thread id in the child, and `fork` handlers would not
//! run (docs/decisions/0001-who-is-the-workers-parent.md).

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};
use rustix::fs::{Dir, Mode, OFlags};

use crate::users;

/// Which process returned from [`fork_orphan`].
#[derive(Debug, PartialEq, Eq)]
pub enum Side {
    /// The caller, some time after the orphan was created.
    Parent,
    /// The orphan: a new process whose parent is the nearest subreaper.
    Orphan,
}

static FORKED_CHILD: AtomicBool = AtomicBool::new(false);
/// The process between an orphan and its creator.
static BETWEEN: AtomicI32 = AtomicI32::new(0);

/// The parent whose end ends the process [`ENDING`].
static ENDS_WITH: AtomicI32 = AtomicI32::new(0);

/// The process that called [`die_with_parent`] or [`stop_with_parent`], and not one that it has
/// forked; 0: none.
static ENDING: AtomicI32 = AtomicI32::new(0);

/// Whether it called [`stop_with_parent`].
static STOPS: AtomicBool = AtomicBool::new(false);

/// It only has to exit.
const INTERMEDIATE_ENDS: Duration = Duration::from_micros(50);
static HAS_FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_child() {
    FORKED_CHILD.store(true, Ordering::Relaxed);
}

extern "C" fn note_fork() {
    HAS_FORKED.store(true, Ordering::Relaxed);
}

/// From now on, children that this process forks are recognised by [`is_forked_child`]. For
/// workers, whose scripts may fork (`pcntl_fork`): the children have everything the worker has open
/// and must not use it. A child that this process forks for itself calls it again, and is none of
/// those then.
pub fn mark_children() {
    static NOTED: Once = Once::new();
    FORKED_CHILD.store(false, Ordering::Relaxed);
    HAS_FORKED.store(false, Ordering::Relaxed);
    NOTED.call_once(|| {
        // SAFETY: the handlers only store to atomics.
        let _ = unsafe { libc::pthread_atfork(None, Some(note_fork), Some(note_child)) };
    });
}

/// Whether this process was forked by one that called [`mark_children`].
pub fn is_forked_child() -> bool {
    FORKED_CHILD.load(Ordering::Relaxed)
}

/// Whether this process has forked since it called [`mark_children`].
pub fn has_forked() -> bool {
    HAS_FORKED.load(Ordering::Relaxed)
}

/// `/proc/self`, also after a change of the root to one without `/proc`.
///
/// It holds a folder outside of that root: drop it before running untrusted code, or
/// [close](OwnProc::let_go) the folder.
#[derive(Debug)]
pub struct OwnProc {
    folder: Option<OwnedFd>,
    /// The file `status` of the process that opened it: a file has no `..`.
    status: Option<File>,
}

/// Longest `/proc/self/status` in bytes, with a margin.
const STATUS_BYTES: usize = 8192;

impl OwnProc {
    /// Opens `/proc`.
    ///
    /// # Errors
    /// When it is not mounted.
    pub fn open() -> io::Result<OwnProc> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open("/proc", flags, Mode::empty())?;
        Ok(OwnProc { folder: Some(folder), status: None })
    }

    /// Opens `status` for good: it has the number of threads and of descriptors, also after the
    /// folder is closed.
    ///
    /// # Errors
    /// When the system is out of descriptors.
    pub fn keep_status(&mut self) -> io::Result<()> {
        self.status = Some(self.file("status")?);
        Ok(())
    }

    /// Closes the folder. From then on, only [`OwnProc::keep_status`]'s file can be read.
    pub fn let_go(&mut self) {
        self.folder = None;
    }

    /// The number of the folder's descriptor, while it is open.
    pub fn number(&self) -> Option<i32> {
        self.folder.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Opens a file of `/proc/self`, such as `statm`, for reading: that of the calling process.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn file(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let folder = self.folder.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let path = format!("self/{name}");
        Ok(rustix::fs::openat(folder, path, flags, Mode::empty())?.into())
    }

    /// The same for a file that belongs to root if the process is not dumpable (proc(5)), as after
    /// a change of user: it is made dumpable during the open. No other process may inspect this one
    /// meanwhile, since its groups differ ([`users::is_shielded`]); where they do not, the file
    /// stays closed.
    ///
    /// # Errors
    /// When there is no such file, or this process may not open it.
    pub fn own_file(&self, name: &str) -> io::Result<File> {
        match self.file(name) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            opened => return opened,
        }
        if !users::may_be_dumpable() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        nix::sys::prctl::set_dumpable(true)?;
        let opened = self.file(name);
        nix::sys::prctl::set_dumpable(false)?;
        opened
    }

    /// Number of threads of the calling process.
    ///
    /// # Errors
    /// When the system is out of descriptors.
    pub fn threads(&self) -> io::Result<usize> {
        if self.folder.is_none() {
            return self.kept("Threads:");
        }
        let mut count = 0;
        for entry in Dir::new(self.file("task")?)? {
            count += usize::from(!entry?.file_name().to_bytes().starts_with(b"."));
        }
        Ok(count)
    }

    /// An upper bound of the descriptor numbers of the process whose status is open.
    ///
    /// # Errors
    /// When it is not open.
    pub fn descriptors_end(&self) -> io::Result<usize> {
        self.kept("FDSize:")
    }

    /// A number of the open status (proc_pid_status(5)).
    fn kept(&self, name: &str) -> io::Result<usize> {
        let status = self.status.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let mut text = [0; STATUS_BYTES];
        let length = status.read_at(&mut text, 0)?;
        let text = String::from_utf8_lossy(&text[..length]);
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        let value = value.and_then(|value| value.trim().parse().ok());
        value.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

unsafe extern "C" {
    /// `orphan.c`.
    fn maitred_fork_orphan(
        announce: extern "C" fn(*mut c_void, c_int),
        context: *mut c_void,
        between: *mut c_int,
    ) -> c_int;
}

/// What [`maitred_fork_orphan`] returns in the new process.
const ORPHAN: c_int = 1;

/// Creates an orphan. `announce` runs in the intermediate process with the orphan's pid, before it
/// can be collected, so the subreaper learns of a pid no later than of its death. The intermediate
/// process shares this one's memory, and this one waits for it. The orphan is its child until it
/// exits, see [`wait_for_new_parent`].
///
/// # Errors
/// When a second thread runs here (its locks would be copied in an unknown state), or when the
/// system refuses a process.
pub fn fork_orphan<A: FnMut(i32)>(proc: &OwnProc, mut announce: A) -> io::Result<Side> {
    if proc.threads()? != 1 {
        return Err(io::Error::other("a process that forks must have one thread"));
    }
    let mut between = 0;
    // SAFETY: this process has one thread (checked above), so the orphan may run any code. While
    // the intermediate process uses this one's memory, this one is suspended, and it does nothing
    // but call `announce`, which `announced` finds behind its pointer.
    let side = unsafe {
        maitred_fork_orphan(announced::<A>, (&raw mut announce).cast(), &raw mut between)
    };
    match side {
        0 => Ok(Side::Parent),
        ORPHAN => {
            BETWEEN.store(between, Ordering::Relaxed);
            Ok(Side::Orphan)
        }
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

extern "C" fn announced<A: FnMut(i32)>(announce: *mut c_void, pid: c_int) {
    // SAFETY: `fork_orphan` passes its own `announce`, and does not use it during the call.
    let announce = unsafe { &mut *announce.cast::<A>() };
    // A panic must not reach C, and an orphan that cannot be announced is a failure.
    if catch_unwind(AssertUnwindSafe(|| announce(pid))).is_err() {
        exit_now(libc::ECANCELED);
    }
}

/// Which process returned from [`into_background`].
#[derive(Debug, PartialEq, Eq)]
pub enum Half {
    /// The caller, whose own parent waits for it.
    Foreground,
    /// The new process, which has a session of its own.
    Background,
}

/// Makes this process the leader of a process group, which its children inherit: the supervisor
/// finds them by it.
pub fn lead_group() {
    let own = Pid::from_raw(0);
    // It fails only for the leader of a session, which leads its group as well.
    let _ = nix::unistd::setpgid(own, own);
}

/// Creates a child that continues in the background: it leads a session without a terminal.
///
/// # Errors
/// When a second thread runs here (its locks would be copied in an unknown state), or when the
/// system refuses a process.
pub fn into_background() -> io::Result<Half> {
    if OwnProc::open()?.threads()? != 1 {
        return Err(io::Error::other("a process that forks must have one thread"));
    }
    // SAFETY: this process has one thread (checked above), so the child may run any code.
    match unsafe { fork() }? {
        ForkResult::Parent { .. } => Ok(Half::Foreground),
        ForkResult::Child => {
            nix::unistd::setsid()?;
            Ok(Half::Background)
        }
    }
}

/// Ends this process at once: no destructors, no `atexit`, nothing flushed. The only way out for
/// a child that shares its parent's state.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions and does not return.
    unsafe { libc::_exit(code) }
}

/// In an orphan, returns once the intermediate process has exited, so that a parent-death signal
/// requested next is tied to the subreaper and not to the intermediate. Call it as late as
/// possible: usually there is nothing to wait for then.
pub fn wait_for_new_parent() {
    let between = Pid::from_raw(BETWEEN.load(Ordering::Relaxed));
    while Pid::parent() == between {
        std::thread::sleep(INTERMEDIATE_ENDS);
    }
}

/// Makes the kernel send `SIGKILL` to this process when its parent ends, and exits at once if that
/// parent is no longer `expected_parent` (it died before the request took effect).
pub fn die_with_parent(expected_parent: i32) {
    end_with_parent(expected_parent, false);
}

/// Makes the kernel send `SIGTERM` to this process when its parent ends, and sends it at once if
/// that parent is no longer `expected_parent`.
pub fn stop_with_parent(expected_parent: i32) {
    end_with_parent(expected_parent, true);
}

fn end_with_parent(expected_parent: i32, stops: bool) {
    ENDS_WITH.store(expected_parent, Ordering::Relaxed);
    STOPS.store(stops, Ordering::Relaxed);
    ENDING.store(Pid::this().as_raw(), Ordering::Relaxed);
    renew_end_with_parent();
}

/// The same again: the kernel forgets it when a process changes its user, also for a moment
/// (prctl(2), `PR_SET_PDEATHSIG`).
pub(crate) fn renew_end_with_parent() {
    if ENDING.load(Ordering::Relaxed) != Pid::this().as_raw() {
        return;
    }
    let stops = STOPS.load(Ordering::Relaxed);
    let signal = if stops { Signal::SIGTERM } else { Signal::SIGKILL };
    let asked = nix::sys::prctl::set_pdeathsig(signal);
    let parent = Pid::parent().as_raw();
    if asked.is_ok() && parent == ENDS_WITH.load(Ordering::Relaxed) {
        return;
    }
    if !stops {
        exit_now(1);
    }
    let _ = nix::sys::signal::raise(Signal::SIGTERM);
}

/// Makes this process the new parent of orphans below it.
///
/// # Errors
/// Never on the kernels we support (`prctl(2)`, Linux 3.4).
pub fn become_subreaper() -> io::Result<()> {
    Ok(nix::sys::prctl::set_child_subreaper(true)?)
}

/// Keeps other processes of the same user from reading this process's memory or taking its
/// descriptors (`PR_SET_DUMPABLE`, see ptrace(2) "access mode checking").
///
/// # Errors
/// Never on the kernels we support.
pub fn forbid_inspection() -> io::Result<()> {
    Ok(nix::sys::prctl::set_dumpable(false)?)
}

/// Lets other processes of the same user inspect this one, and allows core files: both are disabled
/// by a change of user (php-fpm's `process.dumpable`).
///
/// # Errors
/// Never on the kernels we support.
pub fn allow_inspection() -> io::Result<()> {
    Ok(nix::sys::prctl::set_dumpable(true)?)
}

/// A child that ended, from [`reap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Its process id; the kernel may reuse it from now on.
    pub pid: i32,
    /// How it ended.
    pub how: HowEnded,
    /// It left a core file.
    pub core_dumped: bool,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HowEnded {
    /// By itself, with this exit code.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
}

impl std::fmt::Display for HowEnded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            HowEnded::Exited(code) => write!(f, "exited with code {code}"),
            HowEnded::Signaled(signal) => match nix::sys::signal::Signal::try_from(signal) {
                Ok(name) => write!(f, "was ended by signal {signal} ({name})"),
                Err(_) => write!(f, "was ended by signal {signal}"),
            },
        }
    }
}

/// Collects one child that has ended, if there is one, without waiting.
///
/// # Errors
/// Only a kernel refusal of `waitpid(2)`; "no children" is `Ok(None)`.
pub fn reap() -> io::Result<Option<Ended>> {
    use nix::errno::Errno;
    use nix::sys::wait::{WaitPidFlag, WaitStatus};
    loop {
        return match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) => Ok(Some(Ended {
                pid: pid.as_raw(),
                how: HowEnded::Exited(code),
                core_dumped: false,
            })),
            Ok(WaitStatus::Signaled(pid, signal, core_dumped)) => Ok(Some(Ended {
                pid: pid.as_raw(),
                how: HowEnded::Signaled(signal as i32),
                core_dumped,
            })),
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => Ok(None),
            Ok(_) | Err(Errno::EINTR) => continue,
            Err(error) => Err(error.into()),
        };
    }
}
