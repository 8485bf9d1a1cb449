//! The amount of memory, and the pressure on it.

use maitred_os::proc::{self, Folder, Version};

use super::{Files, groups, number};
use crate::memory::{MARGIN, Signs};

/// The part of a group's limit that counts as in use of what the kernel can drop and uses again and
/// again, such as the code of programs, and at most half of that: it has a similar part stay in its
/// own figure of available memory (`si_mem_available`).
const STAYS: f64 = 0.05;

/// Memory, and the source of its limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Memory {
    /// The limit, in bytes.
    pub limit: f64,
    /// In use, without what the kernel can drop at once, and with swapped-out memory, which will
    /// come back, in bytes.
    pub used: f64,
    /// Whether it is a control group's limit; otherwise it is the machine's memory.
    pub by_group: bool,
}

impl Memory {
    /// The use as a part of the limit.
    pub fn part(&self) -> f64 {
        self.used / self.limit
    }

    fn left(&self) -> f64 {
        self.limit * (1.0 - MARGIN) - self.used
    }

    /// The tightest of these: the one with least left. A small group with little in it has less to
    /// give than a large machine that is half full.
    pub fn tightest(all: impl IntoIterator<Item = Memory>) -> Option<Memory> {
        let all = all.into_iter();
        all.min_by(|one, other| one.left().total_cmp(&other.left()))
    }
}

/// The tightest memory: of all groups around ours with a limit, and the machine. `None`: none can
/// be read.
pub fn memory(files: &dyn Files) -> Option<Memory> {
    Memory::tightest(all(files))
}

/// Every memory that ours is part of.
fn all(files: &dyn Files) -> impl Iterator<Item = Memory> {
    let groups = groups(files, "memory").into_iter();
    let groups = groups.filter_map(|group| of_group(files, &group));
    groups.chain(of_machine(files))
}

/// The memory of a group of version 2 with a limit, by its folder. `None`: it has none, or cannot
/// be read.
pub fn memory_of_group(files: &dyn Files, folder: &str) -> Option<Memory> {
    let group = Folder { version: Version::Two, path: folder.to_owned() };
    of_group(files, &group)
}

fn of_group(files: &dyn Files, group: &Folder) -> Option<Memory> {
    let of = |name: &str| number(files, &format!("{}/{name}", group.path));
    let stat = files.read(&format!("{}/memory.stat", group.path));
    let stat = |name: &str| proc::number(stat.as_deref()?, name);
    let (limit, used, once, again, swapped) = match group.version {
        Version::Two => {
            let limits = [of("memory.max"), of("memory.high")];
            let least = limits.into_iter().flatten().min()?;
            let once = stat("inactive_file");
            let again = [stat("active_file"), stat("slab_reclaimable")];
            (least, of("memory.current")?, once, again, of("memory.swap.current"))
        }
        Version::One => {
            let limit = of("memory.limit_in_bytes")?;
            let once = stat("total_inactive_file");
            let again = [stat("total_active_file"), None];
            (limit, of("memory.usage_in_bytes")?, once, again, stat("total_swap"))
        }
    };
    let dropped = once.unwrap_or(0).saturating_add(droppable(again, limit));
    let used = used.saturating_sub(dropped);
    let used = used.saturating_add(swapped.unwrap_or(0));
    (limit > 0).then_some(Memory { limit: limit as f64, used: used as f64, by_group: true })
}

/// What the kernel can drop of memory that is used again and again, in bytes.
fn droppable(again: [Option<u64>; 2], limit: u64) -> u64 {
    let all = again.into_iter().flatten().fold(0, u64::saturating_add);
    all - (all / 2).min((limit as f64 * STAYS) as u64)
}

fn of_machine(files: &dyn Files) -> Option<Memory> {
    let text = files.read("/proc/meminfo")?;
    let total = proc::bytes(&text, "MemTotal").filter(|total| *total > 0)?;
    // Kernels without MemAvailable report free memory.
    let available = proc::bytes(&text, "MemAvailable").or_else(|| proc::bytes(&text, "MemFree"))?;
    Some(Memory {
        limit: total as f64,
        used: total.saturating_sub(available) as f64,
        by_group: false,
    })
}

/// The kernel's counters, of which only the growth counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    swapped_in: Option<u64>,
    throttled: Option<u64>,
    at_limit: Option<u64>,
}

impl Counters {
    /// The counters now.
    pub fn read(files: &dyn Files) -> Counters {
        let vmstat = files.read("/proc/vmstat");
        // Those of each group alone: `memory.events` counts a pool that reaches its own limit, or
        // another service, in every group around it.
        let events = of_version_2(files, "memory.events.local");
        let sum = |name: &str| {
            let all = events.iter().filter_map(|text| proc::number(text, name));
            all.reduce(u64::saturating_add)
        };
        Counters {
            swapped_in: vmstat.and_then(|text| proc::number(&text, "pswpin")),
            throttled: sum("high"),
            at_limit: sum("max"),
        }
    }

    /// The signs of pressure, some of them since `before`.
    pub fn signs(&self, before: &Counters, files: &dyn Files) -> Signs {
        let grew = |now: Option<u64>, before: Option<u64>| {
            now.zip(before).is_some_and(|(now, before)| now > before)
        };
        let of_groups = of_version_2(files, "memory.pressure").into_iter().next();
        let pressure = of_groups.or_else(|| files.read("/proc/pressure/memory"));
        let stalled = |line| proc::stalled(pressure.as_deref()?, line, "avg10");
        Signs {
            // The fullest one.
            used: all(files).map(|memory| memory.part()).reduce(f64::max),
            some: stalled("some"),
            full: stalled("full"),
            swaps_in: grew(self.swapped_in, before.swapped_in),
            throttled: grew(self.throttled, before.throttled),
            at_limit: grew(self.at_limit, before.at_limit),
        }
    }
}

/// The texts of a file in all groups of version 2 around ours, the innermost first.
fn of_version_2(files: &dyn Files, name: &str) -> Vec<String> {
    let groups = groups(files, "memory").into_iter();
    let groups = groups.filter(|group| group.version == Version::Two);
    groups.filter_map(|group| files.read(&format!("{}/{name}", group.path))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{Fixture, one, two};
    use super::*;
    use crate::memory::{Level, Pressure};

    const MACHINE: &str = "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable:     600 kB\n";
    const OWN: &str = "/sys/fs/cgroup/system.slice/maitred.service";
    const OUTER: &str = "/sys/fs/cgroup/system.slice";
    const MIB: u64 = 1 << 20;

    fn group(files: Fixture, folder: &str, max: &str, high: &str, current: &str) -> Fixture {
        files
            .with(&format!("{folder}/memory.max"), max)
            .with(&format!("{folder}/memory.high"), high)
            .with(&format!("{folder}/memory.current"), current)
    }

    #[test]
    fn of_all_limits_the_one_that_is_nearest_holds() {
        let files = two().with("/proc/meminfo", MACHINE);
        let machine = memory(&files).unwrap();
        assert_eq!((machine.limit, machine.used), (1_024_000.0, 409_600.0));
        assert!(!machine.by_group);
        let files = group(files, OWN, "max\n", "max\n", "70000\n");
        assert!(!memory(&files).unwrap().by_group, "it has no limit");
        let files = group(files, OUTER, "max\n", "100000\n", "90000\n")
            .with(&format!("{OUTER}/memory.stat"), "anon 5\ninactive_file 20000\n");
        let outer = memory(&files).unwrap();
        assert_eq!((outer.limit, outer.used, outer.by_group), (100_000.0, 70_000.0, true));
        let files = files.with(&format!("{OUTER}/memory.swap.current"), "25000\n");
        assert_eq!(memory(&files).unwrap().used, 95_000.0, "it is to come back");
    }

    #[test]
    fn a_small_group_that_is_nearly_empty_has_less_to_give_than_a_machine_that_is_half_full() {
        let files = two().with("/proc/meminfo", MACHINE);
        let files = group(files, OWN, "100000\n", "max\n", "5000\n");
        let found = memory(&files).unwrap();
        assert_eq!((found.limit, found.used), (100_000.0, 5000.0));
        let signs = Counters::default().signs(&Counters::default(), &files);
        assert_eq!(signs.used, Some(0.4), "the machine is fuller");
    }

    #[test]
    fn groups_of_version_1_have_limits_as_well() {
        let folder = "/sys/fs/cgroup/memory/box";
        let machine = "MemTotal: 1000000 kB\nMemAvailable: 600000 kB\n";
        let files = one()
            .with("/proc/meminfo", machine)
            .with(&format!("{folder}/memory.limit_in_bytes"), "268435456\n")
            .with(&format!("{folder}/memory.usage_in_bytes"), "200000000\n")
            .with(&format!("{folder}/memory.stat"), "cache 1\ntotal_inactive_file 50000000\n");
        let found = memory(&files).unwrap();
        assert_eq!((found.limit, found.used), (268_435_456.0, 150_000_000.0));
        let swapped = "total_inactive_file 50000000\ntotal_swap 90000000\n";
        let files = files.with(&format!("{folder}/memory.stat"), swapped);
        assert_eq!(memory(&files).unwrap().used, 240_000_000.0);
        let active = "active_file 1\ntotal_inactive_file 0\ntotal_active_file 20000000\n";
        let files = files.with(&format!("{folder}/memory.stat"), active);
        assert_eq!(memory(&files).unwrap().used, 190_000_000.0);
    }

    /// A group that its limit of 1000 MiB has been reached in, with such memory in MiB; the rest is
    /// anonymous.
    fn full(active: u64, inactive: u64, slab: u64) -> Fixture {
        let (all, machine) = (1000 * MIB, "MemTotal: 9000000 kB\nMemAvailable: 9000000 kB\n");
        let stat =
            [("active_file", active), ("inactive_file", inactive), ("slab_reclaimable", slab)];
        let stat = stat.map(|(name, mib)| format!("{name} {}\n", mib * MIB)).concat();
        group(two(), OWN, &all.to_string(), "max", &all.to_string())
            .with("/proc/meminfo", machine)
            .with(&format!("{OWN}/memory.stat"), &stat)
    }

    /// The level where events of its limit are counted, and that much of the time tasks stall.
    fn level(files: Fixture, stalls: &str) -> Level {
        let events = |files: Fixture, count: u32| {
            let text = format!("low 0\nhigh {count}\nmax {count}\n");
            files.with(&format!("{OWN}/memory.events.local"), &text)
        };
        let files = files.with(&format!("{OWN}/memory.pressure"), &format!("some avg10={stalls}"));
        let before = Counters::read(&events(files.clone(), 1));
        let files = events(files, 9);
        let signs = Counters::read(&files).signs(&before, &files);
        assert!(signs.at_limit && signs.throttled, "{signs:?}");
        Pressure::default().look(std::time::Duration::ZERO, &signs)
    }

    #[test]
    fn a_limit_that_is_filled_by_files_is_no_lack_of_memory() {
        let part = |active, inactive, slab| memory(&full(active, inactive, slab)).unwrap().part();
        assert!((part(600, 200, 0) - 0.25).abs() < 1e-6, "{}", part(600, 200, 0));
        assert!((part(500, 200, 100) - 0.25).abs() < 1e-6, "{}", part(500, 200, 100));
        assert!((part(20, 0, 0) - 0.99).abs() < 1e-6, "code is used all the time");
        for files in [(600, 200, 0), (100, 200, 500), (240, 0, 0)] {
            let (active, inactive, slab) = files;
            assert_eq!(level(full(active, inactive, slab), "0.80"), Level::Calm, "{files:?}");
        }
    }

    #[test]
    fn a_limit_that_is_filled_by_memory_of_processes_is_a_lack_however_many_files_it_had() {
        assert_eq!(level(full(40, 20, 0), "0.00"), Level::Out);
        assert_eq!(level(full(60, 60, 10), "0.00"), Level::Out);
        assert_eq!(level(full(200, 60, 0), "6.00"), Level::Out, "tasks wait for memory");
        let counted = |files: &Fixture| {
            let signs = Counters::read(files).signs(&Counters::read(files), files);
            Pressure::default().look(std::time::Duration::ZERO, &signs)
        };
        assert_eq!(counted(&full(40, 40, 0)), Level::Short, "without an event");
        assert_eq!(counted(&full(30, 10, 0)), Level::Out, "without an event");
    }

    #[test]
    fn what_is_missing_or_absurd_leaves_the_machine_or_nothing() {
        assert_eq!(memory(&Fixture::default()), None);
        assert_eq!(memory(&two().with("/proc/meminfo", "MemTotal: 0 kB\n")), None);
        let files = two().with("/proc/meminfo", "MemTotal: 10 kB\nMemFree: 4 kB\n");
        assert_eq!(memory(&files).unwrap().used, 6144.0);
        let absurd = group(files, OWN, "0\n", "zero\n", "\n");
        assert!(!memory(&absurd).unwrap().by_group);
    }

    #[test]
    fn what_was_counted_before_is_no_sign() {
        let events = format!("{OWN}/memory.events.local");
        let files = two()
            .with("/proc/vmstat", "pgfault 9\npswpin 5\n")
            .with(&events, "low 0\nhigh 3\nmax 1\noom_kill 0\n");
        let before = Counters::read(&files);
        assert_eq!(before.signs(&before, &files), Signs::default());
        let later = files
            .with("/proc/vmstat", "pgfault 9\npswpin 6\n")
            .with(&events, "low 0\nhigh 4\nmax 2\noom_kill 0\n");
        let signs = Counters::read(&later).signs(&before, &later);
        assert!(signs.swaps_in && signs.throttled && signs.at_limit);
        let first = Counters::read(&later).signs(&Counters::default(), &later);
        assert!(!first.swaps_in, "nothing is known of before");
    }

    #[test]
    fn events_of_the_groups_around_the_server_count_and_not_those_of_groups_inside_them() {
        let text = |count: u32| format!("low 0\nhigh {count}\nmax {count}\noom_kill 0\n");
        let counted = |own: u32, outer: u32, inside: u32| {
            let all = [(OWN, own), (OUTER, outer)];
            all.into_iter().fold(two(), |files, (folder, count)| {
                files
                    .with(&format!("{folder}/memory.events"), &text(count + inside))
                    .with(&format!("{folder}/memory.events.local"), &text(count))
            })
        };
        let before = Counters::read(&counted(1, 1, 1));
        let signs = |files: Fixture| Counters::read(&files).signs(&before, &files);
        assert_eq!(signs(counted(1, 1, 9)), Signs::default(), "a pool has reached its own limit");
        for around in [counted(2, 1, 1), counted(1, 2, 1)] {
            let signs = signs(around);
            assert!(signs.throttled && signs.at_limit, "{signs:?}");
        }
    }

    #[test]
    fn events_of_a_container_s_own_limit_count() {
        let events = |files: Fixture, count: u32| {
            files.with("/sys/fs/cgroup/memory.events.local", &format!("high 0\nmax {count}\n"))
        };
        let container = two().with("/proc/self/cgroup", "0::/maitred-supervisor\n");
        let before = Counters::read(&events(container.clone(), 1));
        let later = events(container, 2);
        assert!(Counters::read(&later).signs(&before, &later).at_limit);
    }

    #[test]
    fn stalls_are_read_of_the_group_or_of_the_machine_or_not_at_all() {
        let text = "some avg10=2.50 avg60=0.00 avg300=0.00 total=12\n\
                    full avg10=1.00 avg60=0.00 avg300=0.00 total=3\n";
        let signs = |files: &Fixture| Counters::default().signs(&Counters::default(), files);
        let machine = two().with("/proc/pressure/memory", text);
        assert_eq!(signs(&machine).some, Some(0.025));
        assert_eq!(signs(&machine).full, Some(0.01));
        let calm = text.replace("2.50", "0.00");
        let group = machine.with(&format!("{OWN}/memory.pressure"), &calm);
        assert_eq!(signs(&group).some, Some(0.0));
        assert_eq!(signs(&two()).some, None);
        for absurd in ["some avg10=-1", "some avg10=NaN", "some", "some avg10=900"] {
            assert_eq!(signs(&two().with("/proc/pressure/memory", absurd)).some, None);
        }
    }
}
