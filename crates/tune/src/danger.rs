//! What ends a measurement at once: a machine that runs out of memory.

use std::fs;

/// The kernel's counters (proc_vmstat(5)).
const COUNTERS: &str = "/proc/vmstat";

/// Pages that may go to swap in a measurement: what is never used may go there at any time. 4 MB.
const MOST_SWAPPED: u64 = 1_024;

/// How far the kernel has gone for want of memory until a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Danger {
    killed: Option<u64>,
    swapped: Option<u64>,
}

impl Danger {
    /// As it is now. What the kernel does not say is no danger.
    pub fn now() -> Danger {
        Danger::of(&fs::read_to_string(COUNTERS).unwrap_or_default())
    }

    fn of(text: &str) -> Danger {
        let value = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            let (_, value) = lines.find(|(found, _)| *found == name)?;
            value.trim().parse().ok()
        };
        Danger {
            killed: value("oom_kill"),
            swapped: value("pswpout"),
        }
    }

    /// What has happened since, if it is dangerous to go on.
    pub fn since(&self, before: &Danger) -> Option<&'static str> {
        let more = |now: Option<u64>, then: Option<u64>| {
            now.zip(then)
                .map_or(0, |(now, then)| now.saturating_sub(then))
        };
        if more(self.killed, before.killed) > 0 {
            return Some("the kernel has killed a process for want of memory");
        }
        (more(self.swapped, before.swapped) > MOST_SWAPPED).then_some("memory goes to swap")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(killed: u64, swapped: u64) -> Danger {
        Danger::of(&format!(
            "nr_free_pages 1\npswpin 5\npswpout {swapped}\noom_kill {killed}\n"
        ))
    }

    #[test]
    fn a_killed_process_and_swap_are_dangers_and_what_is_not_said_is_none() {
        let before = counters(3, 100);
        assert_eq!(before.since(&before), None);
        let killed = counters(4, 100).since(&before).unwrap();
        assert!(killed.contains("killed a process"), "{killed}");
        assert_eq!(counters(3, 200).since(&before), None);
        let swapped = counters(3, 100_000).since(&before);
        assert_eq!(swapped, Some("memory goes to swap"));
        assert_eq!(Danger::of("").since(&before), None);
        assert_eq!(counters(9, 9).since(&Danger::of("")), None);
    }
}
