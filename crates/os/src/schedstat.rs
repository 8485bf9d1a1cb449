//! Time of a process on a processor, and waiting for one: `/proc/PID/schedstat`
//! (Documentation/scheduler/sched-stats.rst), of the main thread.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Longest such file in bytes: three numbers of at most 20 digits.
const BYTES: usize = 64;

/// The kernel's counters since the start of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedstat {
    /// Time on a processor, in nanoseconds; up to a tick of the clock (4 ms) may be missing.
    pub ran: u64,
    /// Time of being runnable without a processor, in nanoseconds.
    pub waited: u64,
}

impl Schedstat {
    /// From an open file. `None` if the kernel does not count.
    pub fn read(file: &File) -> Option<Schedstat> {
        let mut text = [0; BYTES];
        let length = file.read_at(&mut text, 0).ok()?;
        parse(&text[..length])
    }

    /// From the text of such a file.
    pub fn parse(text: &str) -> Option<Schedstat> {
        parse(text.as_bytes())
    }

    /// Of the calling thread.
    pub fn of_this_thread() -> Option<Schedstat> {
        Schedstat::read(&File::open("/proc/thread-self/schedstat").ok()?)
    }

    /// Of a process. `None` also if there is no process with this id.
    pub fn of(pid: i32) -> Option<Schedstat> {
        Schedstat::read(&File::open(format!("/proc/{pid}/schedstat")).ok()?)
    }
}

/// A kernel that does not count reports that the process never had a processor. One that does
/// reports no time of a young process until the next tick of the clock: `0 66029 1`.
fn parse(text: &[u8]) -> Option<Schedstat> {
    let mut numbers = text.split(|byte| byte.is_ascii_whitespace());
    let mut next = || std::str::from_utf8(numbers.next()?).ok()?.parse::<u64>().ok();
    let (ran, waited, times) = (next()?, next()?, next()?);
    (ran > 0 || times > 0).then_some(Schedstat { ran, waited })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_figures_are_read_and_one_that_does_not_count_is_noticed() {
        let (ran, waited) = (742_622, 4_923_493);
        assert_eq!(parse(b"742622 4923493 3\n"), Some(Schedstat { ran, waited }));
        for other in [&b"0 0 0\n"[..], b"742622", b"742622 x 3\n", b""] {
            assert_eq!(parse(other), None);
        }
        let young = parse(b"0 66029 1\n");
        let (ran, waited) = (0, 66_029);
        assert_eq!(young, Some(Schedstat { ran, waited }), "before a tick");
    }

    #[test]
    fn a_process_is_told_of_by_its_number() {
        let pid = i32::try_from(std::process::id()).unwrap();
        assert!(Schedstat::of(pid).is_some_and(|figures| figures.ran > 0));
        assert_eq!(Schedstat::of(i32::MAX), None);
    }
}
