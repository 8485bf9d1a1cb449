//! The counters of copies of a booted application, for the pool's status and metrics.

use std::sync::atomic::Ordering::Relaxed;

use maitred_os::shared::page_bytes;
use maitred_seat::board::{CopyWords, RewindFailure};

/// One in this many copies measures its private memory before it exits: the kernel walks all page
/// tables for that, which takes a tenth of a copy's cost.
const MEASURED_EACH: u32 = 64;

/// Whether a copy measures itself; the first one of each seat does. A copy with rewinds exits only
/// once in many requests.
pub fn is_measured(incarnation: u32, goes_back: bool) -> bool {
    goes_back || incarnation % MEASURED_EACH == 1
}

/// Adds the private memory of this process, if the kernel reports it.
pub fn measure(words: &CopyWords) {
    let Ok(text) = std::fs::read_to_string("/proc/self/smaps_rollup") else {
        return;
    };
    if let Some(bytes) = written_bytes(&text) {
        words.pages.fetch_add(bytes / page_bytes(), Relaxed);
        words.measured.fetch_add(1, Relaxed);
    }
}

/// Private dirty memory, in `smaps_rollup` (proc(5)).
fn written_bytes(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix("Private_Dirty:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// Counts a rewind, after it is done: a reader must not see more than there were.
pub fn went_back(words: &CopyWords) {
    words.went_back.fetch_add(1, Relaxed);
}

/// Counts an exit because a rewind failed, with its reason.
pub fn has_stayed(words: &CopyWords, why: &str) {
    ends(words, stays(why));
}

/// Counts an exit instead of a rewind.
pub fn ends(words: &CopyWords, why: RewindFailure) {
    words.stayed[why as usize].fetch_add(1, Relaxed);
}

/// The category of a reason from [`maitred_os::rewind::Rewind::back`].
fn stays(why: &str) -> RewindFailure {
    match why {
        "it has forked" | "it has children" => RewindFailure::Forked,
        "it has threads" => RewindFailure::Threads,
        _ if why.starts_with("its signals") => RewindFailure::WorkerState,
        _ if ["memory", "mappings", "heap", "size"]
            .iter()
            .any(|word| why.contains(word)) =>
        {
            RewindFailure::Memory
        }
        _ => RewindFailure::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_its_own_is_found_in_what_the_kernel_says() {
        let text = "5581-7fff ---p 00000000 00:00 0    [rollup]\nRss:  9000 kB\n\
            Private_Clean:        12 kB\nPrivate_Dirty:       340 kB\nReferenced:  1 kB\n";
        assert_eq!(written_bytes(text), Some(340 * 1024));
        assert_eq!(written_bytes("Rss: 1 kB\n"), None);
        assert_eq!(written_bytes("Private_Dirty: many\n"), None);
    }

    #[test]
    fn reasons_are_told_apart_by_what_the_process_says_of_itself() {
        let kinds = [
            ("it has forked", RewindFailure::Forked),
            ("it has children", RewindFailure::Forked),
            ("it has threads", RewindFailure::Threads),
            (
                "its signals, limits, identity or folder are not what they were",
                RewindFailure::WorkerState,
            ),
            ("it has changed too much memory", RewindFailure::Memory),
            ("its heap has become smaller", RewindFailure::Memory),
            ("its mappings cannot be taken away", RewindFailure::Memory),
            ("something new", RewindFailure::Other),
        ];
        for (why, kind) in kinds {
            assert_eq!(stays(why), kind, "{why}");
        }
    }

    #[test]
    fn some_copies_measure_themselves_the_first_of_a_seat_among_them() {
        let measured = (1..=640).filter(|incarnation| is_measured(*incarnation, false));
        assert_eq!(measured.count(), 10);
        assert!(is_measured(1, false));
        assert!(is_measured(2, true));
    }
}
