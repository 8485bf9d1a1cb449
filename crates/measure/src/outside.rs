//! Processor time that other processes used while a server was measured: all processor time except
//! that of the generator, of the server, and of processes that the user named.

use std::collections::HashMap;
use std::fs;

use maitred_os::proc;

use crate::endpoints;
use crate::plan::{Address, Endpoint};
use crate::watched::{ProcessStat, descendants, processes};

/// The processor time of the machine until a moment, in clock ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct CpuTicks {
    /// Total time.
    all: u64,
    /// Time of processes, and time that the hypervisor gave to others.
    used: u64,
}

/// Processes that do not count as others, with all their descendants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnProcesses {
    roots: Vec<i32>,
}

/// A point in time to compare with.
#[derive(Debug)]
pub struct CpuSnapshot {
    machine: CpuTicks,
    ours: u64,
}

impl OwnProcesses {
    /// This process, those that listen at these endpoints, and `with`. `None` if an endpoint is on
    /// this machine and its listener is not visible: only the same user and root may see it.
    pub fn of(endpoints: &[Endpoint], with: &[i32]) -> Option<OwnProcesses> {
        let mut roots = vec![i32::try_from(std::process::id()).ok()?];
        roots.extend(with);
        for endpoint in endpoints {
            if endpoints::is_here(&endpoint.address) {
                let listeners = listeners(&endpoint.address);
                if listeners.is_empty() {
                    return None;
                }
                roots.extend(listeners);
            }
        }
        Some(OwnProcesses { roots })
    }

    /// Takes the first snapshot; `None` if `/proc` cannot be read.
    pub fn look(&self) -> Option<CpuSnapshot> {
        let machine = machine(&fs::read_to_string("/proc/stat").ok()?)?;
        let ours = ticks(&processes()?, &self.roots);
        Some(CpuSnapshot { machine, ours })
    }

    /// The share of all processors that others have used since `before`; `None` if it is not known.
    pub fn outside(&self, before: &CpuSnapshot) -> Option<f64> {
        share(before, &self.look()?)
    }
}

/// The share of all processors that others used between two snapshots.
fn share(before: &CpuSnapshot, after: &CpuSnapshot) -> Option<f64> {
    let all = after.machine.all.checked_sub(before.machine.all)?;
    let used = after.machine.used.saturating_sub(before.machine.used);
    // The time of an ended process is lost if its parent did not collect it.
    let ours = after.ours.saturating_sub(before.ours);
    (all > 0).then(|| used.saturating_sub(ours) as f64 / all as f64)
}

/// The line `cpu` of `/proc/stat` (proc_stat(5)). Interrupts do not count as used, since a server's
/// network traffic is among them.
fn machine(text: &str) -> Option<CpuTicks> {
    let ticks = proc::cpu_ticks(text)?;
    let (user, nice, system, stolen) = (ticks[0], ticks[1], ticks[2], ticks[7]);
    Some(CpuTicks { all: ticks.iter().sum(), used: user + nice + system + stolen })
}

/// The processor time of these processes and their descendants, in clock ticks.
fn ticks(processes: &HashMap<i32, ProcessStat>, roots: &[i32]) -> u64 {
    let family = descendants(processes, roots);
    family.iter().map(|stat| stat.ticks).sum()
}

/// The processes that own a socket listening at this address.
fn listeners(address: &Address) -> Vec<i32> {
    match address {
        Address::Tcp(address) => proc::listeners::tcp_listeners(address.port()),
        Address::Unix(path) => proc::listeners::unix_listeners(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    fn look(all: u64, used: u64, ours: u64) -> CpuSnapshot {
        let machine = CpuTicks { all, used };
        CpuSnapshot { machine, ours }
    }

    #[test]
    fn what_is_not_ours_is_others() {
        let before = look(1_000, 400, 300);
        assert_eq!(share(&before, &look(1_200, 500, 360)), Some(0.2));
        assert_eq!(share(&before, &look(1_200, 500, 420)), Some(0.0), "ticks are coarse");
        assert_eq!(share(&before, &look(1_000, 400, 300)), None);
    }

    #[test]
    fn the_machine_says_what_was_used() {
        let text = "cpu  100 20 30 4000 50 6 7 8 90 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        let expected = CpuTicks { all: 4221, used: 158 };
        assert_eq!(machine(text), Some(expected));
        assert_eq!(machine("cpu  1 2 3\n"), None, "a kernel that does not say");
        assert_eq!(machine("intr 1\n"), None);
    }

    #[test]
    fn a_process_tree_is_counted_once() {
        let stat = |pid, parent, ticks| (pid, ProcessStat { pid, parent, ticks });
        let stats =
            HashMap::from([stat(1, 0, 1_000), stat(2, 1, 100), stat(3, 2, 10), stat(4, 1, 1)]);
        assert_eq!(ticks(&stats, &[2]), 110);
        assert_eq!(ticks(&stats, &[3, 2, 4, 9]), 111);
    }

    #[test]
    fn who_listens_is_found_and_belongs_to_what_is_measured() {
        let folder = std::env::temp_dir().join(format!("outside-{}", std::process::id()));
        let (tcp, unix) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), UnixListener::bind(&folder).unwrap());
        let ours = i32::try_from(std::process::id()).unwrap();
        let address = tcp.local_addr().unwrap();
        for address in [Address::Tcp(address), Address::Unix(folder.clone())] {
            assert!(listeners(&address).contains(&ours), "{address}");
            let endpoint = Endpoint { address, tls: None };
            let us = OwnProcesses::of(std::slice::from_ref(&endpoint), &[]).expect("we are seen");
            let before = us.look().expect("a look");
            assert!(us.look().expect("another").machine.all >= before.machine.all);
        }
        drop((tcp, unix));
        std::fs::remove_file(&folder).unwrap();
        let endpoint = Endpoint { address: Address::Unix(folder), tls: None };
        assert_eq!(OwnProcesses::of(&[endpoint], &[]), None, "no listener");
    }
}
