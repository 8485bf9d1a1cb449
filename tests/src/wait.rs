//! Waiting for events: a condition, looked at often, with a deadline that fails the test.

use std::time::{Duration, Instant};

/// How long any single step of a test may take before it counts as hung: as long as it may on a
/// machine that does ten other things, and less than the minute after which the server ends most
/// waits by itself.
pub const DEADLINE: Duration = Duration::from_secs(50);

/// The pause between two looks at a condition.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Looks until `condition` yields something, at most `within`; returns what it yielded, or nothing.
pub fn poll<T>(within: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + within;
    loop {
        if let Some(found) = condition() {
            return Some(found);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
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
