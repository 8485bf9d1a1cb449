//! The machine: memory, processors, the kernel's settings.

use std::time::Instant;

use maitred_os::proc;

use super::world::World;
use crate::facts::{Fact, Machine, Memory, Pressure, Socket, SwappedIn, Unknown};

/// Counters of which only the growth is meaningful.
pub(super) struct Counters {
    at: Instant,
    swapped_in: Fact<u64>,
}

impl Counters {
    pub(super) fn read(world: &World) -> Counters {
        Counters { at: Instant::now(), swapped_in: vmstat(world, "pswpin") }
    }

    fn since(self, before: Counters) -> Fact<SwappedIn> {
        Ok(SwappedIn {
            pages: self.swapped_in?.saturating_sub(before.swapped_in?),
            seconds: self.at.duration_since(before.at).as_secs_f64(),
        })
    }
}

fn vmstat(world: &World, name: &str) -> Fact<u64> {
    let text = world.read("/proc/vmstat")?;
    proc::number(&text, name).ok_or_else(|| Unknown(format!("/proc/vmstat has no {name}")))
}

/// Everything of it; `before` was read at the start.
pub(super) fn machine(world: &World, before: Counters) -> Machine {
    let sysctl = |name: &str| world.number(&format!("/proc/sys/{name}"));
    Machine {
        memory: memory(world),
        processors: processors(world, "/sys/devices/system/cpu/online"),
        allowed_processors: allowed(world),
        pressure: pressure(world),
        swappiness: sysctl("vm/swappiness"),
        swaps: swaps(world),
        swapped_in: Counters::read(world).since(before),
        somaxconn: sysctl("net/core/somaxconn"),
        kernel: kernel(world),
        files: files(world),
        tasks: tasks(world),
        oom_kills: vmstat(world, "oom_kill"),
        last_kill: super::kernel_log::last_kill(world),
        sockets: sockets(world),
        mounts: mounts(world),
        syn_backlog_set_in: syn_backlog(world),
    }
}

fn memory(world: &World) -> Fact<Memory> {
    let text = world.read("/proc/meminfo")?;
    let bytes = |name: &str| {
        let bytes = proc::bytes(&text, name).map(|bytes| bytes as f64);
        bytes.ok_or_else(|| Unknown(format!("/proc/meminfo has no {name}")))
    };
    Ok(Memory {
        total: bytes("MemTotal")?,
        available: bytes("MemAvailable")?,
        swap: bytes("SwapTotal")?,
    })
}

/// The length of a list such as `0-3,8`.
fn count(list: &str) -> Option<u32> {
    list.trim().split(',').try_fold(0_u32, |sum, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

fn processors(world: &World, file: &str) -> Fact<u32> {
    let text = world.read(file)?;
    count(&text).ok_or_else(|| Unknown(format!("{file} is no list of processors")))
}

fn allowed(world: &World) -> Fact<u32> {
    let text = world.read("/proc/self/status")?;
    let number = proc::value(&text, "Cpus_allowed_list").and_then(count);
    number.ok_or_else(|| Unknown("/proc/self/status has no Cpus_allowed_list".to_owned()))
}

fn pressure(world: &World) -> Fact<Pressure> {
    let file = "/proc/pressure/memory";
    let missing = "the kernel has none (CONFIG_PSI, psi=1 at its start)";
    let Some(text) = world.read_or_none(file)? else {
        return Unknown::because(missing);
    };
    let average = |line| proc::stalled(&text, line, "avg60");
    let (Some(some), Some(full)) = (average("some"), average("full")) else {
        return Unknown::because(missing);
    };
    let opened = std::fs::OpenOptions::new().write(true).open(world.path(file));
    Ok(Pressure { some, full, can_watch: opened.is_ok() || !world.is_here() })
}

/// Swap devices, and why they are slow.
fn swaps(world: &World) -> Fact<Vec<(String, Option<String>)>> {
    let text = world.read("/proc/swaps")?;
    let names = text.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    Ok(names.map(|name| (name.to_owned(), slowness(world, name))).collect())
}

fn slowness(world: &World, device: &str) -> Option<String> {
    let name = device.strip_prefix("/dev/")?;
    if name.starts_with("nbd") {
        return Some("a disk of the network".to_owned());
    }
    // A partition is named after its disk: sda2, nvme0n1p2.
    let digits = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let disks = [name, digits, digits.strip_suffix('p').unwrap_or(digits)];
    let rotates = disks
        .iter()
        .find_map(|disk| world.number(&format!("/sys/block/{disk}/queue/rotational")).ok());
    (rotates == Some(1)).then(|| "a rotating disk".to_owned())
}

fn kernel(world: &World) -> Fact<(u32, u32)> {
    let text = world.read("/proc/sys/kernel/osrelease")?;
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next()?.parse().ok();
    next().zip(next()).ok_or_else(|| Unknown("the kernel's version is odd".to_owned()))
}

/// The fourth word of /proc/loadavg is running and all tasks (proc_loadavg(5)). Each has a process
/// id, and the kernel limits both.
fn tasks(world: &World) -> Fact<(u64, u64)> {
    let file = "/proc/loadavg";
    let text = world.read(file)?;
    let word = text.split_whitespace().nth(3);
    let all = word.and_then(|word| word.split_once('/')?.1.parse().ok());
    let all = all.ok_or_else(|| Unknown(format!("{file} is odd")))?;
    let most = |name: &str| world.number(&format!("/proc/sys/kernel/{name}"));
    Ok((all, most("pid_max")?.min(most("threads-max")?)))
}

fn files(world: &World) -> Fact<(u64, u64)> {
    let file = "/proc/sys/fs/file-nr";
    let text = world.read(file)?;
    let numbers: Vec<u64> = text.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    match numbers[..] {
        [open, _, most] => Ok((open, most)),
        _ => Unknown::because(format!("{file} is odd")),
    }
}

/// By ss, which shows the backlog in force.
fn sockets(world: &World) -> Fact<Vec<Socket>> {
    let text = world.run("ss", &["-Hlntx"])?;
    Ok(text.lines().filter_map(socket).collect())
}

/// `u_str LISTEN 0 4096 /run/x.sock 123 * 0`, `tcp LISTEN 0 511 127.0.0.1:9000 0.0.0.0:*`.
fn socket(line: &str) -> Option<Socket> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "LISTEN")?;
    Some(Socket {
        waiting: words.get(at + 1)?.parse().ok()?,
        limit: words.get(at + 2)?.parse().ok()?,
        address: words.get(at + 3)?.replace("*:", "0.0.0.0:"),
    })
}

fn mounts(world: &World) -> Fact<Vec<(String, String)>> {
    let text = world.read("/proc/self/mountinfo")?;
    let all = proc::cgroup::mounts(&text);
    let mut all: Vec<_> = all.map(|mount| (mount.at, mount.kind.to_owned())).collect();
    // Of several mounts at one folder the last is visible.
    all.reverse();
    all.sort_by_key(|(at, _)| std::cmp::Reverse(at.len()));
    Ok(all)
}

fn syn_backlog(world: &World) -> Option<String> {
    let folders = ["/etc/sysctl.d/*.conf", "/etc/sysctl.conf"];
    let mut files = folders.iter().flat_map(|pattern| world.glob(pattern));
    files.find(|file| {
        let text = world.read(file).unwrap_or_default();
        text.lines().any(|line| line.trim_start().starts_with("net.ipv4.tcp_max_syn_backlog"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn lists_of_processors_are_counted() {
        assert_eq!(count("0-3,8\n"), Some(5));
        assert_eq!(count("0"), Some(1));
        assert_eq!(count("3-1"), None);
        assert_eq!(count(""), None);
    }

    #[test]
    fn sockets_are_read_as_ss_lists_them() {
        let unix = socket("u_str LISTEN 2 4096 /run/php/www.sock 46703189 * 0").unwrap();
        assert_eq!((unix.waiting, unix.limit), (2, 4096));
        assert_eq!(unix.address, "/run/php/www.sock");
        let tcp = socket("tcp   LISTEN 0 511  127.0.0.1:9000 0.0.0.0:*").unwrap();
        assert_eq!(tcp.address, "127.0.0.1:9000");
        assert_eq!(socket("tcp ESTAB 0 0 a b"), None);
    }

    #[test]
    fn this_machine_is_known() {
        let world = World::new(None, Duration::from_secs(60));
        let machine = machine(&world, Counters::read(&world));
        assert!(machine.memory.unwrap().total > 0.0);
        assert!(machine.processors.unwrap() >= 1);
        assert!(machine.allowed_processors.unwrap() >= 1);
        assert!(!machine.mounts.unwrap().is_empty());
        assert!(machine.kernel.unwrap() >= (5, 0));
        assert!(machine.files.is_ok() && machine.swaps.is_ok());
    }
}
