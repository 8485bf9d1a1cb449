//! Requests to the supervisor to measure the memory of the pools and their OPcaches. A client of
//! the admin listener can cause any number, and a measurement reads all processes of the pools.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Least time between two requests: Prometheus and its standby need not both have memory measured.
pub const FRESH: Duration = Duration::from_secs(1);

/// The last request of any client.
#[derive(Debug, Default)]
pub struct Measurements {
    /// Its time in microseconds; 0: there was none.
    last: AtomicU64,
}

impl Measurements {
    /// Whether a measurement may be requested at this time. If so, it counts as requested.
    pub fn begin(&self, now: Duration) -> bool {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let now = micros(now).max(1);
        let next =
            |last: u64| (last == 0 || now >= last.saturating_add(micros(FRESH))).then_some(now);
        self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }

    /// The time of the last request.
    pub fn last(&self) -> Duration {
        Duration::from_micros(self.last.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_clients_ask_one_measurement_is_requested_in_a_second() {
        let measurements = Measurements::default();
        let begun = |from_ms: u64| {
            let times = (0..200).map(|number| Duration::from_millis(from_ms + number * 5));
            times.filter(|now| measurements.begin(*now)).count()
        };
        assert_eq!((begun(1000), begun(2000)), (1, 1));
        assert_eq!(measurements.last(), Duration::from_millis(2000));
    }
}
