//! The private memory of a worker, which would be freed by its exit (`Private_Clean` and
//! `Private_Dirty` of proc_pid_smaps(5)).
//!
//! Reading it walks all page tables. So a cheap upper bound is read first: the resident pages that
//! belong to no file (proc_pid_statm(5)). Some of them may still be shared with the zygote.

use std::fs::File;
use std::os::unix::fs::FileExt;

use maitred_os::fork::OwnProc;
use maitred_os::proc::{Rollup, Statm};

/// Fewest requests between two exact measurements.
const EXACT_EVERY: u32 = 16;
/// Longest `/proc/self/statm` and `/proc/self/smaps_rollup` in bytes, with room to spare.
const FIGURES_BYTES: usize = 4096;

/// Measures this process between requests.
pub struct Memory {
    limit: u64,
    page_bytes: u64,
    /// Kept open: opening costs more than reading.
    statm: Option<File>,
    rollup: Option<File>,
    /// Requests since the last exact measurement.
    since_exact: u32,
}

impl Memory {
    /// Checks against a limit of `limit` bytes; 0: does not measure.
    pub fn new(limit: u64, page_bytes: u64, proc: &OwnProc) -> Memory {
        let open = |name| (limit > 0).then(|| proc.file(name).ok()).flatten();
        Memory {
            limit,
            page_bytes,
            statm: open("statm"),
            rollup: open("smaps_rollup"),
            since_exact: EXACT_EVERY,
        }
    }

    /// The requests since the last exact measurement, which must survive a rewind of the process.
    pub fn since_exact(&self) -> u64 {
        self.since_exact.into()
    }

    /// Restores them after a rewind of the process.
    pub fn go_on(&mut self, since_exact: u64) {
        self.since_exact = u32::try_from(since_exact).unwrap_or(EXACT_EVERY).min(EXACT_EVERY);
    }

    /// The private memory in bytes, exact if it may exceed the limit and the exact value is due;
    /// `None` if there is no new value.
    pub fn measure(&mut self) -> Option<u64> {
        let mut figures = [0; FIGURES_BYTES];
        let statm = Statm::parse(text(self.statm.as_ref()?, &mut figures)?)?;
        let at_most = statm.anonymous * self.page_bytes;
        if at_most <= self.limit {
            return Some(at_most);
        }
        self.since_exact += 1;
        if self.since_exact < EXACT_EVERY {
            return None;
        }
        self.since_exact = 0;
        let rollup = Rollup::parse(text(self.rollup.as_ref()?, &mut figures)?)?;
        Some(rollup.private)
    }
}

/// The text of an open file of `/proc`.
fn text<'b>(file: &File, buffer: &'b mut [u8; FIGURES_BYTES]) -> Option<&'b str> {
    let length = file.read_at(buffer, 0).ok()?;
    std::str::from_utf8(&buffer[..length]).ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const BLOCK_BYTES: usize = 8 << 20;

    /// Set in the process that grows.
    const GROWS: &str = "MAITRED_TEST_GROWS";

    /// In a process of its own: other tests of this one give memory back meanwhile.
    #[test]
    fn a_process_that_grows_beyond_its_limit_notices() {
        if std::env::var_os(GROWS).is_some() {
            return grow();
        }
        let name = "memory::tests::a_process_that_grows_beyond_its_limit_notices";
        let mut alone = Command::new(std::env::current_exe().unwrap());
        let output = alone.args([name, "--exact", "--nocapture"]).env(GROWS, "1").output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && printed.contains("1 passed"), "{output:?}");
    }

    fn grow() {
        let mut memory = Memory::new(1, 4096, &OwnProc::open().unwrap());
        let before = memory.measure().unwrap();
        let block = vec![1_u8; BLOCK_BYTES];
        let after = (0..EXACT_EVERY).find_map(|_| memory.measure()).unwrap();
        assert!(after >= before + BLOCK_BYTES as u64, "{before} to {after}");
        drop(block);
    }

    #[test]
    fn a_rewind_makes_no_measurement_exact() {
        let new = || Memory::new(1, 4096, &OwnProc::open().unwrap());
        let mut before = new();
        assert!(before.measure().is_some());
        for _ in 1..EXACT_EVERY {
            let mut rewound = new();
            rewound.go_on(before.since_exact());
            assert_eq!(rewound.measure(), None);
            before = rewound;
        }
        assert!(before.measure().is_some());
    }

    #[test]
    fn without_a_limit_nothing_is_measured() {
        assert_eq!(Memory::new(0, 4096, &OwnProc::open().unwrap()).measure(), None);
    }
}
