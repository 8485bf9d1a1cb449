//! The counters of copies of a booted application, for the pool's status and metrics.

use std::sync::atomic::Ordering::Relaxed;

use maitred_os::proc::Rollup;
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
    if let Some(rollup) = Rollup::of("self") {
        let pages = rollup.private_dirty / page_bytes();
        words.pages.fetch_add(pages, Relaxed);
        words.measured.fetch_add(1, Relaxed);
    }
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
        _ if ["memory", "mappings", "heap", "size"].iter().any(|word| why.contains(word)) => {
            RewindFailure::Memory
        }
        _ => RewindFailure::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
