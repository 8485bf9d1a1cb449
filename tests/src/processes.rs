//! Processes as /proc tells of them: finding them by title and family, and signalling them.

use std::collections::HashSet;
use std::fs;

use rustix::io::Errno;
pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process, kill_process_group, test_kill_process_group};

/// One process, as read from /proc at some moment.
#[derive(Debug, Clone)]
pub struct Process {
    /// Its process id.
    pub pid: i32,
    /// The process id of its parent at that moment.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Its session, by the process id of the leader.
    pub session: i32,
    /// When it started, in clock ticks since boot; with the pid it names a process for good.
    pub started: u64,
    /// Its state letter: `R`, `S`, `Z` for a zombie, …
    pub state: char,
    /// Its command line with blanks between arguments, or its name if it has none.
    pub title: String,
}

/// The same process, whatever it is doing at the moment.
impl PartialEq for Process {
    fn eq(&self, other: &Process) -> bool {
        (self.pid, self.started) == (other.pid, other.started)
    }
}

impl Eq for Process {}

impl std::hash::Hash for Process {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.pid, self.started).hash(state);
    }
}

/// What /proc/PID/stat says of a process (proc_pid_stat(5)).
#[derive(Debug, Clone, Copy)]
struct Stat {
    pid: i32,
    parent: i32,
    group: i32,
    session: i32,
    started: u64,
    state: char,
}

impl Stat {
    /// Nothing if there is no such process. All processes are read at each look at a family: this
    /// has to be quick also as it is built for tests.
    fn read(pid: i32) -> Option<Self> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The name may have blanks and brackets.
        let end_of_name = stat.iter().rposition(|byte| *byte == b')')?;
        let mut fields = stat.get(end_of_name + 2..)?.split(|byte| *byte == b' ');
        let state = char::from(*fields.next()?.first()?);
        let parent = number(fields.next()?)? as i32;
        let group = number(fields.next()?)? as i32;
        let session = number(fields.next()?)? as i32;
        // The rest up to `starttime`, the 22nd field of all.
        let started = number(fields.nth(15)?)?;
        Some(Self { pid, parent, group, session, started, state })
    }

    /// The process, with its title.
    fn with_title(self) -> Process {
        let Self { pid, parent, group, session, started, state } = self;
        let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut title = String::from_utf8_lossy(&cmdline).replace('\0', " ").trim().to_owned();
        if title.is_empty() {
            title = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        }
        Process { pid, parent, group, session, started, state, title }
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

impl Process {
    /// Reads one process; nothing if there is no such process.
    pub fn read(pid: i32) -> Option<Self> {
        Stat::read(pid).map(Stat::with_title)
    }

    /// Whether this very process still runs; a zombie does not, nor does another process with its
    /// pid.
    pub fn is_running(&self) -> bool {
        Stat::read(self.pid).is_some_and(|now| now.started == self.started && now.state != 'Z')
    }

    /// A size in bytes of its `/proc/PID/status`, as `VmHWM` (proc_pid_status(5)).
    ///
    /// # Panics
    /// When it has ended, or the file has no such size.
    pub fn memory(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.pid);
        let text = fs::read_to_string(path).expect("its status can be read");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.unwrap_or_else(|| panic!("no {name} in {text}")) * 1024
    }

    /// Sends it a signal; nothing happens if it has ended.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = self.is_running().then(|| Pid::from_raw(self.pid)).flatten() {
            let _ = kill_process(pid, signal);
        }
    }
}

/// Sends every process of a group a signal; nothing happens if there is none.
pub fn signal_group(group: i32, signal: Signal) {
    if let Some(group) = Pid::from_raw(group) {
        let _ = kill_process_group(group, signal);
    }
}

/// All processes of the machine.
pub fn all() -> Vec<Process> {
    stats().into_iter().map(Stat::with_title).collect()
}

fn stats() -> Vec<Stat> {
    let entries = fs::read_dir("/proc").expect("/proc can be listed");
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Stat::read).collect()
}

/// The processes of a group; zombies are left out.
pub fn in_group(group: i32) -> Vec<Process> {
    // Without any, there is no need to read all processes, which takes milliseconds.
    let is_empty = |group| test_kill_process_group(group) == Err(Errno::SRCH);
    if Pid::from_raw(group).is_some_and(is_empty) {
        return Vec::new();
    }
    let all = stats().into_iter().filter(|stat| stat.group == group && stat.state != 'Z');
    all.map(Stat::with_title).collect()
}

/// The process `root`, its descendants, and the members of its process group; zombies are left out.
pub fn family(root: i32) -> Vec<Process> {
    let all = stats();
    let mut members: HashSet<i32> = HashSet::from([root]);
    members.extend(all.iter().filter(|stat| stat.group == root).map(|stat| stat.pid));
    loop {
        let before = members.len();
        for stat in &all {
            if members.contains(&stat.parent) {
                members.insert(stat.pid);
            }
        }
        if members.len() == before {
            break;
        }
    }
    let living = all.into_iter().filter(|stat| members.contains(&stat.pid) && stat.state != 'Z');
    living.map(Stat::with_title).collect()
}
