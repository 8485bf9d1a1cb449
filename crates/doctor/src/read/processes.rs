//! Processes, from /proc.

use maitred_os::proc::{self, Rollup};
use maitred_os::schedstat::Schedstat;

use super::world::{MAX_FILE_BYTES, World};
use crate::facts::{Fact, Pool, Process, Unknown, Worker, known};

/// Most workers of a pool whose memory is measured: each measurement walks its pages.
const MAX_MEASURED: usize = 200;

/// The user who may do everything.
pub(super) const ROOT: u32 = 0;

/// A process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Proc {
    pub(super) pid: i32,
    pub(super) parent: i32,
    /// Its program's name.
    pub(super) name: String,
    /// Its command line, or the title it has given itself.
    pub(super) title: String,
    /// Its user, if it is the same in all respects.
    pub(super) user: Option<u32>,
}

/// All processes.
pub(super) fn list(world: &World) -> Fact<Vec<Proc>> {
    let folders = world.glob("/proc/[0-9]*");
    if folders.is_empty() {
        return Unknown::because("/proc shows no processes");
    }
    Ok(folders.iter().filter_map(|folder| one(world, folder)).collect())
}

fn one(world: &World, folder: &str) -> Option<Proc> {
    let pid = folder.rsplit('/').next()?.parse().ok()?;
    let status = world.read(&format!("{folder}/status")).ok()?;
    let line = world.read_locked(pid, "cmdline", proc::COMMAND_LINE_BYTES_MAX);
    let line = line.unwrap_or_default();
    Some(Proc {
        pid,
        parent: i32::try_from(proc::number(&status, "PPid")?).ok()?,
        name: proc::value(&status, "Name")?.to_owned(),
        title: line.replace('\0', " ").trim().to_owned(),
        user: proc::user(&status),
    })
}

/// The user of a pool's workers.
pub(super) fn known_user(pool: &Pool) -> Fact<u32> {
    let unknown = || Unknown(format!("the user of {} is not known", pool.name));
    pool.user.ok_or_else(unknown)
}

/// The user of a server's workers, by the user of its first process: a server that was not started
/// as root cannot change it. `None`: the configuration has it.
pub(super) fn user_of_workers(all: &Fact<Vec<Proc>>, server: Option<i32>) -> Option<u32> {
    let mut all = all.as_ref().ok()?.iter();
    let server = all.find(|process| Some(process.pid) == server)?;
    server.user.filter(|user| *user != ROOT)
}

/// The process of a server with this title. Any user can give a process any title, so it counts
/// only if it is root's or of the user who asks.
pub(super) fn titled(all: &[Proc], title: &str, asking: u32) -> Fact<i32> {
    let found = || all.iter().filter(|process| process.title.trim_end() == title);
    let mut trusted =
        found().filter(|process| process.user.is_some_and(|user| user == ROOT || user == asking));
    match (trusted.next(), trusted.next(), found().next()) {
        (Some(one), None, _) => Ok(one.pid),
        (Some(one), Some(other), _) => Unknown::because(format!(
            "both process {} and process {} are called `{title}`",
            one.pid, other.pid
        )),
        (None, _, Some(foreign)) => Unknown::because(format!(
            "process {} is called `{title}`, but is not root's; if it is php-fpm, run this \
             command as its user",
            foreign.pid
        )),
        (None, _, None) => Unknown::because("php-fpm does not run"),
    }
}

/// Facts about a server's first process.
pub(super) fn process(world: &World, pid: i32) -> Process {
    Process { pid, oom_score_adj: oom_score_adj(world, pid), open_files: open_files(world, pid) }
}

pub(super) fn oom_score_adj(world: &World, pid: i32) -> Fact<i64> {
    let file = format!("/proc/{pid}/oom_score_adj");
    let text = world.read(&file)?;
    text.trim().parse().map_err(|_| Unknown(format!("{file} holds no number")))
}

/// The soft limit.
pub(super) fn open_files(world: &World, pid: i32) -> Fact<u64> {
    let file = format!("/proc/{pid}/limits");
    let text = world.read(&file)?;
    let soft = proc::value(&text, "Max open files");
    let soft = soft.and_then(|limits| limits.split_whitespace().next());
    match soft {
        Some("unlimited") => Ok(u64::MAX),
        Some(number) => number.parse().map_err(|_| Unknown(format!("{file} is odd"))),
        None => Unknown::because(format!("{file} is odd")),
    }
}

/// Swapped-out bytes of a process.
fn swapped(world: &World, pid: i32) -> Fact<f64> {
    let file = format!("/proc/{pid}/status");
    let text = world.read(&file)?;
    // A kernel without swap has no such line.
    Ok(proc::bytes(&text, "VmSwap").unwrap_or(0) as f64)
}

/// The workers among `pids`, before the watch for swapping.
pub(super) fn workers(world: &World, pids: &[i32]) -> Vec<Worker> {
    let measured = pids.iter().take(MAX_MEASURED);
    measured.map(|pid| worker(world, *pid)).collect()
}

/// How many of these workers are not measured.
pub(super) fn further_workers(pids: &[i32]) -> usize {
    pids.len().saturating_sub(MAX_MEASURED)
}

fn worker(world: &World, pid: i32) -> Worker {
    let rollup = world.read_locked(pid, "smaps_rollup", MAX_FILE_BYTES);
    let rollup = rollup.map(|text| Rollup::parse(&text));
    let bytes = |of: fn(Rollup) -> u64| {
        let rollup = known(&rollup)?;
        Ok(rollup.map_or(0, of) as f64)
    };
    let swapped = swapped(world, pid);
    Worker {
        pid,
        private: bytes(|rollup| rollup.private),
        resident: bytes(|rollup| rollup.resident),
        swapped: swapped.map(|swapped| (swapped, swapped)),
        requests: Unknown::because("php-fpm reports it on its status page only"),
        oom_score_adj: oom_score_adj(world, pid),
        cpu: cpu(world, pid),
    }
}

/// Processor time of a process, in seconds (Documentation/scheduler/sched-stats.rst): the ticks of
/// `stat` are longer than a start.
fn cpu(world: &World, pid: i32) -> Fact<f64> {
    let file = format!("/proc/{pid}/schedstat");
    let text = world.read(&file)?;
    Schedstat::parse(&text)
        .map(|times| times.ran as f64 / 1e9)
        .ok_or_else(|| Unknown(format!("{file} is odd")))
}

/// Reads the swapped-out bytes again.
pub(super) fn look_again(world: &World, worker: &mut Worker) {
    let now = swapped(world, worker.pid);
    worker.swapped = match (&worker.swapped, now) {
        (Ok((before, _)), Ok(now)) => Ok((*before, now)),
        (Err(why), _) => Err(why.clone()),
        // It has ended meanwhile.
        (Ok((before, _)), Err(_)) => Ok((*before, *before)),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn this_process_is_found_and_measured() {
        let world = World::new(None, Duration::from_secs(60));
        let pid = i32::try_from(std::process::id()).unwrap();
        let own = list(&world).unwrap().into_iter().find(|one| one.pid == pid).unwrap();
        assert!(own.title.contains("doctor"), "{own:?}");
        let mut worker = workers(&world, &[pid]).remove(0);
        assert!(worker.private.clone().unwrap() > 0.0);
        assert!(worker.resident.clone().unwrap() >= worker.private.clone().unwrap());
        look_again(&world, &mut worker);
        assert!(worker.swapped.is_ok());
        assert!(process(&world, pid).open_files.unwrap() > 0);
        assert!(process(&world, pid).oom_score_adj.is_ok());
    }

    #[test]
    fn a_title_counts_only_on_a_process_of_root_or_of_the_user_who_asks() {
        let title = "php-fpm: master process (/etc/php-fpm.conf)";
        let one = |pid, user| Proc {
            pid,
            parent: 1,
            name: "php-fpm".to_owned(),
            title: title.to_owned(),
            user,
        };
        let find = |all: &[Proc], asking| titled(all, title, asking).map_err(|why| why.0);
        let (real, forged, masked) = (one(850, Some(0)), one(10234, Some(1001)), one(7, None));
        assert_eq!(find(&[masked.clone(), forged.clone(), real.clone()], 0), Ok(850));
        assert_eq!(find(std::slice::from_ref(&forged), 1001), Ok(10234), "its own user's");
        assert!(find(std::slice::from_ref(&forged), 0).unwrap_err().contains("not root's"));
        assert!(find(&[masked], 0).unwrap_err().contains("not root's"));
        assert!(find(&[real.clone(), forged], 1001).unwrap_err().contains("850 and process 10234"));
        assert_eq!(find(&[], 0).unwrap_err(), "php-fpm does not run");
        assert!(find(&[real], 33).is_ok());
    }

    #[test]
    fn a_command_line_is_read_to_a_limit() {
        let root = tempfile::tempdir().unwrap();
        let process = root.path().join("proc/7");
        std::fs::create_dir_all(&process).unwrap();
        std::fs::write(process.join("status"), "Name:\tx\nPPid:\t1\nUid:\t5\t5\t5\t5\n").unwrap();
        std::fs::write(process.join("cmdline"), "x".repeat(1 << 20)).unwrap();
        let world = World::new(Some(root.path()), Duration::from_secs(60));
        let found = list(&world).unwrap().remove(0);
        assert_eq!(found.title.len() as u64, proc::COMMAND_LINE_BYTES_MAX);
    }

    #[test]
    fn a_process_that_is_not_there_is_not_known() {
        let empty = tempfile::tempdir().unwrap();
        let world = World::new(Some(empty.path()), Duration::from_secs(60));
        assert!(list(&world).unwrap_err().0.contains("no processes"));
        assert!(workers(&world, &[1])[0].private.is_err());
        let many = [1; MAX_MEASURED + 100];
        assert_eq!((workers(&world, &many).len(), further_workers(&many)), (MAX_MEASURED, 100));
        assert_eq!(further_workers(&[1]), 0);
        assert!(open_files(&world, 1).is_err());
    }
}
