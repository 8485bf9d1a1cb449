//! Processes as /proc tells of them: finding them by title and family, and signalling them.

use std::collections::HashSet;
use std::fs;

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process, kill_process_group};

/// One process, as read from /proc at some moment.
#[derive(Debug, Clone)]
pub struct Process {
    /// Its process id.
    pub pid: i32,
    /// The process id of its parent at that moment.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
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

impl Process {
    /// Reads one process; nothing if there is no such process.
    pub fn read(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, after_name) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
        let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let title = String::from_utf8_lossy(&cmdline).replace('\0', " ").trim().to_owned();
        Some(Self {
            pid,
            parent: number(1)? as i32,
            group: number(2)? as i32,
            started: number(19)?,
            state: fields.first()?.chars().next()?,
            title: if title.is_empty() { stat } else { title },
        })
    }

    /// Whether this very process still runs; a zombie does not, nor does another process with its
    /// pid.
    pub fn is_running(&self) -> bool {
        Self::read(self.pid).is_some_and(|now| now.started == self.started && now.state != 'Z')
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
    let entries = fs::read_dir("/proc").expect("/proc can be listed");
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Process::read).collect()
}

/// The process `root`, its descendants, and the members of its process group; zombies are left out.
pub fn family(root: i32) -> Vec<Process> {
    let all = all();
    let mut members: HashSet<i32> = HashSet::from([root]);
    members.extend(all.iter().filter(|p| p.group == root).map(|p| p.pid));
    loop {
        let is_new = |p: &&Process| members.contains(&p.parent) && !members.contains(&p.pid);
        let children: Vec<i32> = all.iter().filter(is_new).map(|p| p.pid).collect();
        if children.is_empty() {
            break;
        }
        members.extend(children);
    }
    all.into_iter().filter(|p| members.contains(&p.pid) && p.state != 'Z').collect()
}
