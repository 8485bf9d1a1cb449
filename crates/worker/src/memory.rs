//! The private memory of a worker, which would be freed by its exit (`Private_Clean` and
//! `Private_Dirty` of proc_pid_smaps(5)).
//!
//! Reading it walks all page tables. So a cheap upper bound is read first: the resident pages that
//! belong to no file (proc_pid_statm(5)). Some of them may still be shared with the zygote.

use std::fs::File;
use std::os::unix::fs::FileExt;

use maitred_os::fork::OwnProc;

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

    /// The private memory in bytes, exact if it may exceed the limit and the exact value is due;
    /// `None` if there is no new value.
    pub fn measure(&mut self) -> Option<u64> {
        let mut figures = [0; FIGURES_BYTES];
        let length = self.statm.as_ref()?.read_at(&mut figures, 0).ok()?;
        let at_most = anonymous_pages(&figures[..length])? * self.page_bytes;
        if at_most <= self.limit {
            return Some(at_most);
        }
        self.since_exact += 1;
        if self.since_exact < EXACT_EVERY {
            return None;
        }
        self.since_exact = 0;
        let length = self.rollup.as_ref()?.read_at(&mut figures, 0).ok()?;
        Some(private_bytes(&figures[..length]))
    }
}

/// Resident pages less those of files and shared memory.
fn anonymous_pages(statm: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(statm).ok()?;
    let mut figures = text.split_ascii_whitespace().skip(1);
    let mut next = || figures.next()?.parse::<u64>().ok();
    let (resident, shared) = (next()?, next()?);
    Some(resident.saturating_sub(shared))
}

fn private_bytes(rollup: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(rollup);
    let private = text.lines().filter(|line| line.starts_with("Private_"));
    let kilobytes =
        private.filter_map(|line| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok());
    kilobytes.sum::<u64>() * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_figures_are_read() {
        assert_eq!(anonymous_pages(b"9000 4000 1500 3 0 700 0\n"), Some(2500));
        assert_eq!(anonymous_pages(b"9000"), None);
        let rollup = b"00400000-7ffd ---p 00000000 00:00 0 [rollup]\nRss: 9 kB\n\
            Private_Clean:         4 kB\nPrivate_Dirty:        12 kB\nPrivate_Hugetlb: 0 kB\n";
        assert_eq!(private_bytes(rollup), 16 * 1024);
    }

    #[test]
    fn a_process_that_grows_beyond_its_limit_notices() {
        let mut memory = Memory::new(1, 4096, &OwnProc::open().unwrap());
        let before = memory.measure().unwrap();
        let block = vec![1_u8; 8 << 20];
        let after = (0..EXACT_EVERY).find_map(|_| memory.measure()).unwrap();
        assert!(after >= before + (7 << 20), "{before} to {after}");
        drop(block);
    }

    #[test]
    fn without_a_limit_nothing_is_measured() {
        assert_eq!(
            Memory::new(0, 4096, &OwnProc::open().unwrap()).measure(),
            None
        );
    }
}
