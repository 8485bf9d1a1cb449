//! The processors that the front uses itself.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Shortest time over which the front's processor time is averaged.
const AVERAGED: Duration = Duration::from_secs(5);

/// The processors that this process uses, averaged between two reads.
#[derive(Debug, Default)]
pub struct OwnCores {
    last: Mutex<CpuSample>,
}

#[derive(Debug, Default, Clone, Copy)]
struct CpuSample {
    at: Option<Duration>,
    used: Duration,
    cores: f64,
}

impl CpuSample {
    /// The sample at `now`, when this much processor time has been used since the start.
    fn next(self, now: Duration, used: Duration) -> CpuSample {
        let passed = self.at.map(|at| now.saturating_sub(at));
        match passed {
            Some(passed) if passed < AVERAGED => self,
            Some(passed) => {
                let more = used.saturating_sub(self.used).as_secs_f64();
                CpuSample { at: Some(now), used, cores: more / passed.as_secs_f64() }
            }
            None => CpuSample { at: Some(now), used, cores: 0.0 },
        }
    }
}

impl OwnCores {
    /// Processors in use, of late.
    pub fn read(&self) -> f64 {
        let (now, used) = (maitred_scoreboard::now(), maitred_os::clock::process_cpu());
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = last.next(now, used);
        last.cores
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fronts_processor_time_is_an_average_between_two_reads() {
        let seconds = Duration::from_secs;
        let first = CpuSample::default().next(seconds(100), seconds(7));
        assert_eq!(first.cores, 0.0);
        let soon = first.next(seconds(104), seconds(11));
        assert_eq!(soon.cores, 0.0, "too soon");
        let later = soon.next(seconds(110), seconds(12));
        assert_eq!(later.cores, 0.5);
    }
}
