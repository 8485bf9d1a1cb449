//! Starts a program of ours in a role: with chosen descriptors, tied to the life of its parent.

use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::signals::Signal;

/// Number of the first inherited descriptor of a started program.
pub const FIRST_INHERITED_FD: RawFd = 3;

/// Signals that this program ignores and its children must not: PHP's scripts, as with php-fpm.
const IGNORED_HERE: [Signal; 1] = [Signal::SIGXFSZ];

/// A program to start.
#[derive(Debug)]
pub struct Program<'a> {
    /// File to execute.
    pub path: &'a Path,
    /// The process name until it sets its own title.
    pub name: &'a OsStr,
    /// Arguments after the name.
    pub arguments: &'a [&'a OsStr],
    /// The whole environment; nothing is inherited.
    pub environment: &'a [(String, String)],
    /// Descriptors it gets, numbered from [`FIRST_INHERITED_FD`] in this order.
    pub inherit: &'a [BorrowedFd<'a>],
    /// Its standard output and error; `None`: ours.
    pub output: Option<BorrowedFd<'a>>,
    /// The descriptor of its control group's `cgroup.procs`, which it gets after the others. It
    /// enters the group itself ([`enter_group`]): its parent waits for its exec, which takes long
    /// in a group without processor time. `None`: ours.
    pub group: Option<BorrowedFd<'a>>,
}

/// A command that finds every signal unblocked and with its default action, whatever this process
/// awaits or ignores.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    unblock_signals(&mut command);
    command
}

/// Makes the program of `command` find every signal unblocked, whatever this process awaits or
/// ignores.
pub fn unblock_signals(command: &mut Command) {
    // SAFETY: the closure runs in the forked child of a process that may have threads. It makes a
    // few system calls on memory of its own and allocates nothing (sigaction(2) and
    // pthread_sigmask(3) are async-signal-safe).
    unsafe {
        command.pre_exec(|| {
            crate::signals::reset(&IGNORED_HERE);
            Ok(())
        })
    };
}

/// Starts a program and returns its pid. It is killed when this process ends, has every signal
/// unblocked, reads nothing from standard input and has no controlling terminal.
///
/// # Errors
/// When the file cannot be executed.
pub fn start(program: &Program<'_>) -> io::Result<i32> {
    let ours = std::process::id();
    let inherit = program.inherit.iter().chain(&program.group);
    let wanted: Vec<RawFd> = inherit.map(AsRawFd::as_raw_fd).collect();
    let mut command = Command::new(program.path);
    command.arg0(program.name).args(program.arguments).env_clear();
    command.envs(program.environment.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null());
    // SAFETY: the closure runs in the forked child of a process with one thread (callers start
    // programs before any thread exists), so it may allocate and call anything.
    unsafe {
        command.pre_exec(move || {
            crate::signals::reset(&IGNORED_HERE);
            // A session of its own: Ctrl-C is for the supervisor, and a process of another user
            // must not have root's terminal for its controlling one (TIOCSTI, ioctl_tty(2)).
            nix::unistd::setsid()?;
            place_descriptors(&wanted)?;
            crate::fork::die_with_parent(i32::try_from(ours).unwrap_or(0));
            Ok(())
        })
    };
    if let Some(output) = program.output {
        command.stderr(Stdio::from(output.try_clone_to_owned()?));
    }
    let stdout = match program.output {
        Some(output) => Stdio::from(output.try_clone_to_owned()?),
        None => standard_error()?,
    };
    let child = command.stdout(stdout).spawn()?;
    i32::try_from(child.id()).map_err(io::Error::other)
}

fn standard_error() -> io::Result<Stdio> {
    Ok(Stdio::from(io::stderr().as_fd().try_clone_to_owned()?))
}

/// Moves the wanted descriptors to consecutive numbers; the copies survive the exec.
fn place_descriptors(wanted: &[RawFd]) -> io::Result<()> {
    // First out of the way of the target numbers, so that no target is still a source.
    let clear = FIRST_INHERITED_FD + RawFd::try_from(wanted.len()).unwrap_or(0) + 1;
    let mut parked = Vec::with_capacity(wanted.len());
    for &fd in wanted {
        // SAFETY: `fd` is open in the parent and therefore here.
        let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, clear) };
        if copy < 0 {
            return Err(io::Error::last_os_error());
        }
        parked.push(copy);
    }
    for (target, fd) in (FIRST_INHERITED_FD..).zip(parked) {
        // SAFETY: `fd` is a descriptor created above; whatever `target` was is ours to replace,
        // since the new program owns the whole table.
        if unsafe { libc::dup2(fd, target) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // Any other descriptor that the caller left open is not for the program.
    let first_other = FIRST_INHERITED_FD + RawFd::try_from(wanted.len()).unwrap_or(0);
    // SAFETY: marking descriptors to be closed by an exec closes nothing in this process.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first_other as libc::c_uint,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    Ok(())
}

/// Takes over the descriptor that the parent placed at `FIRST_INHERITED_FD + index`.
///
/// # Errors
/// When nothing is open there: the program was started by hand.
pub fn inherited(index: RawFd) -> io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::FromRawFd;
    let fd = FIRST_INHERITED_FD + index;
    // SAFETY: asking for the flags of any number is harmless.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open (checked above) and nothing else in this program owns the
    // numbers its parent filled; each is taken once, at start.
    Ok(unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) })
}

/// Moves this process into its control group, if the parent placed one ([`Program::group`]) after
/// `others` descriptors, and closes that: root has opened it, so it could move other processes as
/// well.
///
/// # Errors
/// When the kernel does not move it.
pub fn enter_group(others: RawFd) -> io::Result<()> {
    match inherited(others) {
        Ok(group) => rustix::io::write(group, b"0").map(drop).map_err(io::Error::from),
        Err(_) => Ok(()),
    }
}

/// Sets whether descriptor `fd` survives an `exec` of this process.
///
/// # Errors
/// When nothing is open there.
pub fn keep_across_exec(fd: RawFd, keep: bool) -> io::Result<()> {
    let flags = if keep { 0 } else { libc::FD_CLOEXEC };
    // SAFETY: changing the flags of any number closes and opens nothing.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, flags) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Takes over descriptor `fd`, which the previous program in this process left open. Each number is
/// taken once.
///
/// # Errors
/// When it is not open, or is one of the standard streams.
pub fn inherited_fd(fd: RawFd) -> io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::FromRawFd;
    if fd < FIRST_INHERITED_FD {
        return Err(io::Error::other("a standard stream cannot be taken"));
    }
    keep_across_exec(fd, false)?;
    // SAFETY: the descriptor is open (checked above), and the previous program recorded its number
    // for us only.
    Ok(unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) })
}

/// Executes `program` in this process, with `arguments` (the first is its name) and our
/// environment. Process id, children, blocked signals and descriptors without close-on-exec stay.
/// Returns only when that failed.
pub fn become_program(program: &Path, arguments: &[std::ffi::OsString]) -> io::Error {
    use std::ffi::CString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let text = |bytes: Vec<u8>| CString::new(bytes).map_err(io::Error::other);
    let environment = std::env::vars_os().map(|(name, value)| {
        let mut line = name.into_vec();
        line.push(b'=');
        line.extend(value.into_vec());
        text(line)
    });
    let prepared = (|| -> io::Result<(CString, Vec<CString>, Vec<CString>)> {
        let arguments = arguments.iter().map(|one| text(one.as_bytes().to_vec()));
        Ok((
            text(program.as_os_str().as_bytes().to_vec())?,
            arguments.collect::<io::Result<_>>()?,
            environment.collect::<io::Result<_>>()?,
        ))
    })();
    match prepared {
        Err(error) => error,
        Ok((program, arguments, environment)) => {
            match nix::unistd::execve(&program, &arguments, &environment) {
                Err(error) => error.into(),
            }
        }
    }
}

/// Starts a program with the standard streams of this process, an empty environment, and `file` as
/// its first inherited descriptor. It leads a session without a terminal: a process of another user
/// could type into root's otherwise (TIOCSTI, ioctl_tty(2)). It is killed when this process ends.
///
/// # Errors
/// When the file cannot be executed.
pub fn start_in_foreground(
    program: &Path,
    argument: &OsStr,
    files: &[BorrowedFd<'_>],
) -> io::Result<std::process::Child> {
    let ours = i32::try_from(std::process::id()).unwrap_or(0);
    let wanted: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
    let mut command = Command::new(program);
    command.arg(argument).env_clear();
    // SAFETY: the closure runs in the forked child of a process with one thread, so it may allocate
    // and call anything.
    unsafe {
        command.pre_exec(move || {
            crate::signals::reset(&IGNORED_HERE);
            nix::unistd::setsid()?;
            place_descriptors(&wanted)?;
            crate::fork::die_with_parent(ours);
            Ok(())
        })
    };
    command.spawn()
}

/// Keeps what is typed from this process and what it starts, if it is root's: its standard streams
/// can write to the terminal, and read nothing from it. Programs of other users have no part in job
/// control in a session of their own: what they leave behind would read the next command of root's
/// shell, or a password. A terminal is usually open for reading as standard output too. To be
/// called before this process becomes another user.
///
/// # Errors
/// When the terminal cannot be opened.
pub fn keep_keyboard() -> io::Result<()> {
    if !crate::users::is_root() {
        return Ok(());
    }
    if io::stdin().is_terminal() {
        rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    }
    if io::stdout().is_terminal() {
        rustix::stdio::dup2_stdout(only_written(io::stdout().as_fd())?)?;
    }
    if io::stderr().is_terminal() {
        rustix::stdio::dup2_stderr(only_written(io::stderr().as_fd())?)?;
    }
    Ok(())
}

fn only_written(terminal: BorrowedFd<'_>) -> io::Result<std::fs::File> {
    let path = format!("/proc/self/fd/{}", terminal.as_raw_fd());
    let mut options = std::fs::OpenOptions::new();
    options.write(true).custom_flags(libc::O_NOCTTY).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::Pid;

    use super::*;

    /// Waits for the end of sh with this script.
    fn run(script: &str) -> WaitStatus {
        let pid = start(&Program {
            path: Path::new("/bin/sh"),
            name: OsStr::new("sh"),
            arguments: &[OsStr::new("-c"), OsStr::new(script)],
            environment: &[],
            inherit: &[],
            output: None,
            group: None,
        });
        waitpid(Pid::from_raw(pid.unwrap()), None).unwrap()
    }

    #[test]
    fn a_started_program_leads_a_session_without_a_terminal() {
        // Fields 1, 6 and 7 of proc(5): process, session, terminal.
        let ended = run("read -r pid _ _ _ _ session tty _ < /proc/$$/stat;\
                         test $pid = $session -a $tty = 0");
        assert!(matches!(ended, WaitStatus::Exited(_, 0)), "{ended:?}");
    }

    #[test]
    fn a_started_program_ignores_no_signal_that_only_this_one_ignores() {
        crate::signals::ignore_sigxfsz();
        let script = "file=$(mktemp); exec 3>$file; rm $file; ulimit -f 0; echo more >&3";
        let ended = run(script);
        let by = Signal::SIGXFSZ;
        assert!(matches!(ended, WaitStatus::Signaled(_, signal, _) if signal == by), "{ended:?}");
        let ended = command("/bin/sh").args(["-c", script]).status().unwrap();
        assert_eq!(ended.signal(), Some(by as i32), "{ended:?}");
    }
}
