//! What a copy of a booted application counts of itself, for the pool's status and metrics.

use std::sync::atomic::Ordering::Relaxed;

use maitred_os::proc::Rollup;
use maitred_os::shared::page_bytes;
use maitred_seat::board::{CopyWords, Stays};

/// One copy in so many looks how much memory it has for itself before it ends: the kernel goes through
/// all of its page tables for that, which takes a tenth of what a copy costs.
const MEASURED_EACH: u32 = 64;

/// Whether a copy is one of those that measure themselves, the first of each seat among them. One that
/// goes back ends once in many requests.
pub fn is_measured(incarnation: u32, goes_back: bool) -> bool {
    goes_back || incarnation % MEASURED_EACH == 1
}

/// Counts the memory that this process has for itself, if the kernel tells.
pub fn measure(words: &CopyWords) {
    if let Some(rollup) = Rollup::of("self") {
        let pages = rollup.private_dirty / page_bytes();
        words.pages.fetch_add(pages, Relaxed);
        words.measured.fetch_add(1, Relaxed);
    }
}

/// A copy has gone back. Not counted before that is so: who looks in between must see no more than there is.
pub fn went_back(words: &CopyWords) {
    words.went_back.fetch_add(1, Relaxed);
}

/// It has not, for this reason, and ends.
pub fn has_stayed(words: &CopyWords, why: &str) {
    ends(words, stays(why));
}

/// It ends for this reason instead of going back.
pub fn ends(words: &CopyWords, why: Stays) {
    words.stayed[why as usize].fetch_add(1, Relaxed);
}

/// The kind of a reason that [`maitred_os::rewind::Rewind::back`] gives.
fn stays(why: &str) -> Stays {
    match why {
        "it has forked" | "it has children" => Stays::Forked,
        "it has threads" => Stays::Threads,
        _ if why.starts_with("its signals") => Stays::Process,
        _ if ["memory", "mappings", "heap", "size"]
            .iter()
            .any(|word| why.contains(word)) =>
        {
            Stays::Memory
        }
        _ => Stays::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_told_apart_by_what_the_process_says_of_itself() {
        let kinds = [
            ("it has forked", Stays::Forked),
            ("it has children", Stays::Forked),
            ("it has threads", Stays::Threads),
            (
                "its signals, limits, identity or folder are not what they were",
                Stays::Process,
            ),
            ("it has changed too much memory", Stays::Memory),
            ("its heap has become smaller", Stays::Memory),
            ("its mappings cannot be taken away", Stays::Memory),
            ("something new", Stays::Other),
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
