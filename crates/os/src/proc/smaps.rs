//! Memory of a process: `smaps_rollup` (proc_pid_smaps(5)) and `statm` (proc_pid_statm(5)).

use std::fmt::Display;

use super::{bytes, read};

/// Memory of a process by kind, in bytes. The kernel walks all page tables to count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rollup {
    /// Resident pages, private and shared.
    pub resident: u64,
    /// Resident pages that no other process maps.
    pub private: u64,
    /// Those of the private ones that were written to.
    pub private_dirty: u64,
    /// Its proportional share of swapped-out pages.
    pub swapped: u64,
}

impl Rollup {
    /// `None` for the empty file of a kernel thread, or of a process that is ending.
    pub fn parse(text: &str) -> Option<Rollup> {
        let sum = |names: &[&str]| names.iter().filter_map(|name| bytes(text, name)).sum();
        let rollup = Rollup {
            resident: sum(&["Rss"]),
            private: sum(&["Private_Clean", "Private_Dirty", "Private_Hugetlb"]),
            private_dirty: sum(&["Private_Dirty"]),
            swapped: sum(&["SwapPss"]),
        };
        (rollup.resident > 0).then_some(rollup)
    }

    /// Counts the memory of a process now.
    pub fn of(pid: impl Display) -> Option<Rollup> {
        Rollup::parse(&read(pid, "smaps_rollup")?)
    }

    /// Resident pages that other processes map too, in bytes.
    pub fn shared(&self) -> u64 {
        self.resident.saturating_sub(self.private)
    }
}

/// Resident memory of a process in pages, which costs the kernel no walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statm {
    /// Pages of no file and no shared memory. Some may still be shared with the parent of a fork.
    pub anonymous: u64,
    /// Pages of files and of shared memory.
    pub shared: u64,
}

impl Statm {
    /// The second and the third number: resident, and the shared part of it.
    pub fn parse(text: &str) -> Option<Statm> {
        let mut pages = text.split_ascii_whitespace().skip(1);
        let mut next = || pages.next()?.parse::<u64>().ok();
        let (resident, shared) = (next()?, next()?);
        Some(Statm { anonymous: resident.saturating_sub(shared), shared })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_pages_are_added_up_and_the_rest_is_shared() {
        let text = "55d0-7ffe ---p 00000000 00:00 0    [rollup]\nRss:    9460 kB\nPss: 2108 kB\n\
                    Pss_Dirty: 1 kB\nShared_Clean: 8000 kB\nShared_Dirty: 300 kB\n\
                    Private_Clean:       160 kB\nPrivate_Dirty:      1000 kB\n\
                    Private_Hugetlb:      0 kB\nSwap: 90 kB\nSwapPss:      40 kB\n";
        let rollup = Rollup::parse(text).unwrap();
        assert_eq!((rollup.private, rollup.private_dirty), (1160 << 10, 1000 << 10));
        assert_eq!((rollup.shared(), rollup.swapped), (8300 << 10, 40 << 10));
        assert_eq!(Rollup::parse(""), None);
        assert_eq!(Rollup::parse("Rss: many\n"), None);
        let own = Rollup::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(own.private > 0 && own.resident >= own.private, "{own:?}");
    }

    #[test]
    fn resident_pages_are_told_apart() {
        let statm = Statm::parse("9000 4000 1500 3 0 700 0\n").unwrap();
        assert_eq!((statm.anonymous, statm.shared), (2500, 1500));
        assert_eq!(Statm::parse("9000"), None);
    }
}
