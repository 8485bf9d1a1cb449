//! Waiting for events: a condition, looked at often, with a deadline that fails the test.

use std::time::{Duration, Instant};

/// How long any single step of a test may take before it counts as hung: as long as it may on a
/// machine that does ten other things, and less than the minute after which the server ends most
/// waits by itself.
pub const DEADLINE: Duration = Duration::from_secs(50);

/// The pauses between two looks at a condition.
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(25);

/// The pauses grow with the wait, so that what is waited for is seen this part of the wait late.
const LATE: u32 = 16;

/// The same after looks that take long, such as a program that is run: processors are few, and a
/// look takes them from what it waits for.
const LATE_AFTER_LONG_LOOKS: u32 = 8;

/// Pauses after such looks, in looks.
const PAUSE_IN_LOOKS: u32 = 3;

/// Looks until `condition` yields something, at most `within`; returns what it yielded, or nothing.
pub fn poll<T>(within: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        let looked = Instant::now();
        if let Some(found) = condition() {
            return Some(found);
        }
        let waited = begun.elapsed();
        if waited >= within {
            return None;
        }
        std::thread::sleep(pause(waited, looked.elapsed()));
    }
}

/// The pause after so long a wait, whose latest look took so long.
fn pause(waited: Duration, look: Duration) -> Duration {
    let pause = (waited / LATE).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
    pause.max((look * PAUSE_IN_LOOKS).min(waited / LATE_AFTER_LONG_LOOKS))
}

/// Looks until `condition` yields something.
///
/// # Panics
/// When `within` has passed; `what` names what was waited for.
pub fn until_within<T>(what: &str, within: Duration, condition: impl FnMut() -> Option<T>) -> T {
    poll(within, condition).unwrap_or_else(|| panic!("waited {within:?} in vain for {what}"))
}

/// As [`until_within`], with [`DEADLINE`].
pub fn until<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    until_within(what, DEADLINE, condition)
}

/// Waits until `condition` holds.
///
/// # Panics
/// When [`DEADLINE`] has passed.
pub fn until_true(what: &str, mut condition: impl FnMut() -> bool) {
    until(what, || condition().then_some(()));
}
