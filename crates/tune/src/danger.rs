//! Detects that the server or the machine runs out of memory, which ends a measurement at once.

use std::fs;

use maitred_doctor::MemoryGroup;
use maitred_os::proc;

/// Counters of the machine (proc_vmstat(5)).
const COUNTERS: &str = "/proc/vmstat";

/// Pages of the machine that may be swapped out during a measurement, since unused pages may be at
/// any time: 4 MB.
const MOST_SWAPPED: u64 = 1_024;

/// The same for the server's control group, in bytes.
const MOST_SWAPPED_OF_GROUP: u64 = 4 << 20;

/// Counters of memory shortage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryDanger {
    group: Counters,
    machine: Counters,
    /// Direct reclaims of the machine. Reclaims because of a control group's limit do not count
    /// (`ALLOCSTALL` in mm/vmscan.c).
    stalls: u64,
}

/// `None` for unknown values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counters {
    killed: Option<u64>,
    swapped: Option<u64>,
}

impl MemoryDanger {
    /// The current counters, for a server in a control group, if it is in one. Values that the
    /// kernel does not report count as no danger.
    pub fn now(group: Option<&MemoryGroup>) -> MemoryDanger {
        let machine = fs::read_to_string(COUNTERS).unwrap_or_default();
        let group = group.map_or_else(Counters::default, |group| Counters {
            killed: group.oom_kills(),
            swapped: group.swapped(),
        });
        MemoryDanger::of(group, &machine)
    }

    fn of(group: Counters, machine: &str) -> MemoryDanger {
        let lines = machine.lines().filter_map(|line| line.split_once(' '));
        let stalls = lines.filter(|(name, _)| name.starts_with("allocstall"));
        MemoryDanger {
            group,
            machine: Counters {
                killed: proc::number(machine, "oom_kill"),
                swapped: proc::number(machine, "pswpout"),
            },
            stalls: stalls.filter_map(|(_, value)| value.trim().parse::<u64>().ok()).sum(),
        }
    }

    /// What has happened since, if it is dangerous to continue.
    ///
    /// The machine's counters include those of other containers at their own limits. They count if
    /// the server's group is unknown, or if the machine itself was short of memory: then the server
    /// may have taken it from others.
    pub fn since(&self, before: &MemoryDanger) -> Option<&'static str> {
        let is_short = self.stalls > before.stalls;
        let (group, machine) = (&self.group, &self.machine);
        if more(group.killed, before.group.killed) > 0 {
            return Some(
                "the kernel has killed a process in the server's control group: it ran out of \
                 memory",
            );
        }
        let counts = is_short || group.killed.is_none();
        if counts && more(machine.killed, before.machine.killed) > 0 {
            return Some("the kernel has killed a process on this machine: it ran out of memory");
        }
        if more(group.swapped, before.group.swapped) > MOST_SWAPPED_OF_GROUP {
            return Some("memory of the server is swapped out");
        }
        let counts = is_short || group.swapped.is_none();
        (counts && more(machine.swapped, before.machine.swapped) > MOST_SWAPPED)
            .then_some("memory is swapped out on this machine")
    }
}

fn more(now: Option<u64>, then: Option<u64>) -> u64 {
    now.zip(then).map_or(0, |(now, then)| now.saturating_sub(then))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::process::ExitStatusExt;
    use std::path::{Path, PathBuf};
    use std::process::{Command, Stdio};

    use super::*;

    const UNKNOWN: Counters = Counters { killed: None, swapped: None };

    fn group(killed: u64, swapped: u64) -> Counters {
        Counters { killed: Some(killed), swapped: Some(swapped) }
    }

    fn danger(group: Counters, killed: u64, swapped: u64, stalls: u64) -> MemoryDanger {
        let machine = format!(
            "nr_free_pages 1\npswpin 5\npswpout {swapped}\nallocstall_dma 0\nallocstall_normal \
             {stalls}\nallocstall_movable 7\noom_kill {killed}\n"
        );
        MemoryDanger::of(group, &machine)
    }

    #[test]
    fn without_a_group_what_befalls_the_machine_is_a_danger_and_what_is_not_said_is_none() {
        let before = danger(UNKNOWN, 3, 100, 0);
        assert_eq!(before.since(&before), None);
        let killed = danger(UNKNOWN, 4, 100, 0).since(&before).unwrap();
        assert!(killed.contains("on this machine"), "{killed}");
        assert_eq!(danger(UNKNOWN, 3, 200, 0).since(&before), None);
        let swapped = danger(UNKNOWN, 3, 100_000, 0).since(&before);
        assert_eq!(swapped, Some("memory is swapped out on this machine"));
        let silent = MemoryDanger::of(UNKNOWN, "");
        assert_eq!(silent.since(&before), None);
        assert_eq!(danger(UNKNOWN, 9, 9, 9).since(&silent), None);
    }

    #[test]
    fn what_befalls_others_within_their_own_limits_is_none_of_the_servers() {
        let before = danger(group(1, 0), 3, 100, 5);
        assert_eq!(danger(group(1, 0), 4, 100_000, 5).since(&before), None);
        let own = danger(group(2, 0), 4, 100, 5).since(&before).unwrap();
        assert!(own.contains("in the server's control group"), "{own}");
        let swapped = danger(group(1, 100 << 20), 3, 100, 5).since(&before);
        assert_eq!(swapped, Some("memory of the server is swapped out"));
        assert_eq!(danger(group(1, 4096), 3, 101, 5).since(&before), None);
    }

    #[test]
    fn a_machine_short_of_memory_is_a_danger_for_all() {
        let before = danger(group(1, 0), 3, 100, 5);
        let killed = danger(group(1, 0), 4, 100, 6).since(&before).unwrap();
        assert!(killed.contains("on this machine"), "{killed}");
        let swapped = danger(group(1, 0), 3, 100_000, 6).since(&before);
        assert_eq!(swapped, Some("memory is swapped out on this machine"));
        assert_eq!(danger(group(1, 0), 3, 100, 9).since(&before), None);
    }

    #[test]
    fn a_kill_and_swap_of_a_group_of_version_2_are_its_own() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let hierarchy = "31 25 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        write("proc/self/mountinfo", hierarchy);
        write("proc/7/cgroup", "0::/php.service\n");
        let tells = |kills: u64, swapped: u64| {
            let events = format!("low 0\nhigh 0\nmax 9\noom 3\noom_kill {kills}\n");
            write("sys/fs/cgroup/php.service/memory.events", &events);
            let swap = "sys/fs/cgroup/php.service/memory.swap.current";
            write(swap, &format!("{swapped}\n"));
        };
        tells(1, 0);
        let group = MemoryGroup::of_root(root.path(), 7).unwrap();
        let before = MemoryDanger::now(Some(&group));
        tells(2, 0);
        let killed = MemoryDanger::now(Some(&group)).since(&before);
        assert!(
            killed.is_some_and(|killed| killed.contains("in the server's control group")),
            "{killed:?}"
        );
        tells(1, 8 << 20);
        let swapped = MemoryDanger::now(Some(&group)).since(&before);
        assert_eq!(swapped, Some("memory of the server is swapped out"));
    }

    /// A control group with little memory, of either version; `None` if this user may not create
    /// one.
    fn small_group() -> Option<PathBuf> {
        let kinds =
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        let mut made = kinds.iter().filter_map(|(at, limit)| {
            let folder = Path::new(at).join(format!("maitred-danger-{}", std::process::id()));
            fs::create_dir(&folder).ok()?;
            let limit = folder.join(limit);
            if !limit.exists() || fs::write(limit, "20000000").is_err() {
                let _ = fs::remove_dir(&folder);
                return None;
            }
            // Swap accounting is not enabled everywhere.
            for swap in ["memory.swap.max", "memory.memsw.limit_in_bytes"] {
                let swap = folder.join(swap);
                if swap.exists() {
                    let _ = fs::write(swap, "20000000");
                }
            }
            Some(folder)
        });
        made.next()
    }

    #[test]
    fn a_process_that_is_killed_is_seen_by_its_own_group_and_by_no_other() {
        let Some(folder) = small_group() else {
            return;
        };
        let enters = "echo $$ > \"$1/cgroup.procs\" && echo in && read go && exec tail /dev/zero";
        let mut child = Command::new("sh")
            .args(["-c", enters, "sh"])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut said).unwrap();
        let its = MemoryGroup::of(i32::try_from(child.id()).unwrap());
        let ours = MemoryGroup::of(i32::try_from(std::process::id()).unwrap());
        let kills = ours.as_ref().and_then(MemoryGroup::oom_kills);
        let before = MemoryDanger::now(its.as_ref());
        let stdin = child.stdin.take().unwrap();
        (&stdin).write_all(b"go\n").unwrap();
        let status = child.wait().unwrap();
        let danger = MemoryDanger::now(its.as_ref()).since(&before);
        // A dead process may be in the group for a moment.
        while fs::remove_dir(&folder).is_err() && folder.exists() {}
        assert_eq!((said.as_str(), status.signal()), ("in\n", Some(9)));
        assert!(danger.is_some_and(|danger| danger.contains("control group")), "{danger:?}");
        assert_eq!(ours.as_ref().and_then(MemoryGroup::oom_kills), kills);
        assert_eq!(its.and_then(|group| group.oom_kills()), None, "it is gone");
    }
}
