//! The clock of all measurements. It is monotonic, so that setting the time of day changes no
//! latency.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;

/// Nanoseconds in a millisecond.
pub const MILLISECOND: u64 = 1_000_000;

/// Nanoseconds since an arbitrary moment (`CLOCK_MONOTONIC`).
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(SECOND).saturating_add(nanos)
}

/// Nanoseconds as seconds.
pub fn seconds(nanos: u64) -> f64 {
    nanos as f64 / SECOND as f64
}

/// Seconds as nanoseconds; 0 for negative values and NaN.
pub fn nanos(seconds: f64) -> u64 {
    // `as` saturates, and makes 0 of NaN.
    (seconds * SECOND as f64) as u64
}
