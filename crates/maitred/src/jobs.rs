//! `maitred commands` and `maitred run`: the commands and schedules of a running server.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use maitred_control::admin::{Reply, Request};
use maitred_control::job_status::JobStatus;
use maitred_control::launch::{ForegroundLaunch, LAUNCH_ROLE, Launch, ServerFile};
use maitred_os::signals::{self, Awaited, Signal};
use maitred_os::{capabilities, fork, proc, shared, spawn, users};
use maitred_scoreboard::is_application_memory;
use rustix::process::{Pid, PidfdGetfdFlags, WaitOptions, WaitStatus, kill_process, pidfd_getfd};

use crate::client::{Client, ServerUser, UNEXPECTED};
use crate::command::Reach;
use crate::exit_code::{EXIT_SUCCESS, complain, fail, refuse};
use crate::report_file::JsonOption;
use crate::view;

/// How long the end of what a command has left behind is waited for.
const REST_ENDS: Duration = Duration::from_secs(2);

/// The pause before it is looked at again.
const PAUSE: Duration = Duration::from_millis(5);

/// Arguments of `maitred commands`.
#[derive(Debug, Args)]
pub struct Commands {
    /// Show only those of this pool
    #[arg(value_name = "POOL")]
    pub pool: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub json: JsonOption,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub reach: Reach,
}

/// Arguments of `maitred run`.
#[derive(Debug, Args)]
pub struct RunOptions {
    /// The pool and the name of the command or the schedule, such as shop/mails
    #[arg(value_name = "POOL/NAME")]
    pub name: String,
    /// Further arguments for it
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub reach: Reach,
}

/// Prints the commands and schedules.
pub fn commands(asked: &Commands) -> ExitCode {
    let pool = asked.pool.clone();
    let reply =
        Client::reach(&asked.reach).and_then(|mut client| client.ask(&Request::Status { pool }));
    match reply {
        Ok(Reply::Status(server)) => {
            let json = serde_json::to_string(&server.jobs).unwrap_or_default();
            match asked.json.publish(&json, || text(&server.jobs)) {
                Ok(()) => ExitCode::from(EXIT_SUCCESS),
                Err(why) => fail(&why),
            }
        }
        Ok(Reply::Refused { why }) => refuse(&why),
        Ok(_) => fail(&UNEXPECTED),
        Err(why) => fail(&why),
    }
}

fn text(jobs: &[JobStatus]) -> String {
    if jobs.is_empty() {
        return "there are no commands and no schedules; [[pools.NAME.commands]] and \
                [[pools.NAME.schedules]] add them"
            .to_owned();
    }
    view::jobs(jobs, view::screen_columns()).join("\n").trim_start().to_owned()
}

/// Runs a command as its pool would run it, and ends with its exit code.
pub fn run(asked: &RunOptions) -> ExitCode {
    let Some((pool, name)) = asked.name.split_once('/') else {
        return refuse(&format!("`{}` is no POOL/NAME; `maitred commands` lists them", asked.name));
    };
    let request = Request::Launch { pool: pool.to_owned(), name: name.to_owned() };
    let mut client = match Client::reach(&asked.reach) {
        Ok(client) => client,
        Err(why) => return fail(&why),
    };
    match client.ask(&request) {
        Ok(Reply::Launch(found)) => {
            if let Err(why) = give_up_terminal_and_rights(client.server_user()) {
                return refuse(&why);
            }
            let ForegroundLaunch { mut launch, program, group, counts } = *found;
            launch.command.extend(asked.arguments.iter().cloned());
            // This user may have no right to copy it: then the run counts nothing.
            let counts = counts.and_then(application_memory);
            let beside = Beside { group, counts };
            match in_foreground(launch, &program, beside) {
                Ok(code) => ExitCode::from(code),
                Err(why) => fail(&format!("{} cannot be started: {why}", asked.name)),
            }
        }
        Ok(Reply::Refused { why }) => refuse(&why),
        Ok(_) => fail(&UNEXPECTED),
        Err(why) => fail(&why),
    }
}

fn give_up_terminal_and_rights(server: ServerUser) -> Result<(), String> {
    spawn::keep_keyboard().map_err(|why| format!("the terminal cannot be opened: {why}"))?;
    take_on_rights_of(server)
}

/// Gives up the rights that the server lacks: it names the program, its user and its files, and any
/// user may run a server. A command of another user's server gains no privileges either.
///
/// # Errors
/// One sentence, for a server of another user, if this user is not root.
fn take_on_rights_of(server: ServerUser) -> Result<(), String> {
    if users::is_trusted(server.uid) {
        return Ok(());
    }
    let name = users::name_of(server.uid);
    if !users::is_root() {
        return Err(format!(
            "the server is of user {name}; run the command as that user or as root"
        ));
    }
    users::look_up(&server.uid.to_string(), Some(&server.gid.to_string()))
        .and_then(|user| users::become_user(&user).map_err(|why| why.to_string()))
        .and_then(|()| capabilities::gain_no_more().map_err(|why| why.to_string()))
        .map_err(|why| format!("the server is of user {name}, who cannot be become: {why}"))
}

/// Copies the descriptor of the memory of an application: one that cannot have holes is opened by
/// no path. What listens on the socket names it, and the command gets it, so nothing else is taken.
fn application_memory(named: ServerFile) -> Option<OwnedFd> {
    if named.pid <= 0 || named.number < 0 {
        return None;
    }
    let server = signals::pidfd(named.pid).ok()?;
    let file = pidfd_getfd(server, named.number, PidfdGetfdFlags::empty()).ok()?;
    is_application_memory(file.as_fd()).then_some(file)
}

/// What a command has beside its settings.
struct Beside {
    /// The file by which it enters its control group.
    group: Option<PathBuf>,
    /// The memory in which its application counts.
    counts: Option<OwnedFd>,
}

/// Starts a command, passes signals on to it, and returns its exit code; that of shells for one
/// that a signal has ended.
fn in_foreground(launch: Launch, program: &Path, beside: Beside) -> io::Result<u8> {
    const OF_SIGNALS: i32 = 128;
    let passed = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];
    let mut taken = passed.to_vec();
    taken.push(Signal::SIGCHLD);
    signals::reset(&taken);
    let awaited = Awaited::take_over(&taken)?;
    let mut launch = launch;
    launch.settings.supervisor = i32::try_from(std::process::id()).unwrap_or(0);
    launch.counts = beside.counts.is_some();
    if let Some(group) = beside.group {
        std::fs::write(&group, "0")?;
    }
    let json = serde_json::to_vec(&launch)?;
    let file = shared::file_with("maitred-launch", &json)?;
    let files: Vec<_> =
        std::iter::once(file.as_fd()).chain(beside.counts.as_ref().map(AsFd::as_fd)).collect();
    // What the command leaves behind becomes ours.
    fork::become_subreaper()?;
    let child = spawn::start_in_foreground(program, OsStr::new(LAUNCH_ROLE), &files)?;
    let pid = i32::try_from(child.id()).unwrap_or(0);
    let pidfd = signals::pidfd(pid)?;
    loop {
        let signal = awaited.wait()?;
        if signal != Signal::SIGCHLD {
            signals::send_to(pidfd.as_fd(), signal)?;
        }
        if let Some(status) = reap(Pid::from_raw(pid)) {
            let by_signal = || OF_SIGNALS + status.terminating_signal().unwrap_or(0);
            let code = status.exit_status().unwrap_or_else(by_signal);
            end_rest();
            return Ok(u8::try_from(code).unwrap_or(u8::MAX));
        }
    }
}

/// Takes note of children that have ended. Returns the status of `child`, if it is one of them.
fn reap(child: Option<Pid>) -> Option<WaitStatus> {
    let mut found = None;
    while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
        found = if Some(pid) == child { Some(status) } else { found };
    }
    found
}

/// Ends what a command has left behind, as a stop of the server would: nothing else would end it.
/// Each process that ends leaves us its own children.
fn end_rest() {
    let until = Instant::now() + REST_ENDS;
    loop {
        reap(None);
        let rest = children();
        if rest.is_empty() {
            return;
        }
        // A child of ours keeps its number until it is reaped.
        for pid in &rest {
            // It may have ended meanwhile.
            let _ = kill_process(*pid, rustix::process::Signal::KILL);
        }
        if Instant::now() > until {
            return complain(&format!("{} processes of it still run, and do not end", rest.len()));
        }
        std::thread::sleep(PAUSE);
    }
}

/// All our children, what others have left to us included.
fn children() -> Vec<Pid> {
    let lists = proc::threads("self")
        .filter_map(|thread| proc::read(format!("self/task/{thread}"), "children"));
    let words = lists
        .flat_map(|list| list.split_ascii_whitespace().map(str::to_owned).collect::<Vec<String>>());
    words.filter_map(|word| Pid::from_raw(word.parse().ok()?)).collect()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use maitred_scoreboard::create_application_memory;

    use super::*;

    #[test]
    fn only_the_memory_of_an_application_is_copied_for_a_command() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let named = |file: &OwnedFd| ServerFile { pid, number: file.as_raw_fd() };
        let memory = create_application_memory("shop").unwrap();
        assert!(application_memory(named(&memory)).is_some());
        let other = shared::file_with("other", b"secret").unwrap();
        assert!(application_memory(named(&other)).is_none());
        let file = OwnedFd::from(tempfile::tempfile().unwrap());
        assert!(application_memory(named(&file)).is_none());
        assert!(application_memory(ServerFile { pid, number: -1 }).is_none());
        assert!(application_memory(ServerFile { pid: i32::MAX, number: 0 }).is_none());
    }
}
