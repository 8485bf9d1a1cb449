//! How long the `.htaccess` files of a site may be evaluated for a request.
//!
//! Other requests of the front's thread wait meanwhile, also those for other sites.

use std::cell::Cell;
use std::time::{Duration, Instant};

use maitred_os::clock::thread_cpu;

/// Most processor time beyond an equal time of the wall clock, within which it is not looked at.
const MOST_TIME: Duration = Duration::from_millis(50);

/// The time of an evaluation.
#[derive(Debug)]
pub struct EvaluationTime {
    began: Instant,
    /// The thread's processor time when the wall clock said that it might be late.
    looked: Cell<Option<Duration>>,
}

impl EvaluationTime {
    /// An evaluation begins.
    pub fn start() -> EvaluationTime {
        EvaluationTime { began: Instant::now(), looked: Cell::default() }
    }

    /// Whether it has taken too long. On a busy machine it is the thread's own time that counts.
    pub fn is_over(&self) -> bool {
        if self.began.elapsed() < MOST_TIME {
            return false;
        }
        let now = thread_cpu();
        let looked = self.looked.get().unwrap_or_else(|| {
            self.looked.set(Some(now));
            now
        });
        now.saturating_sub(looked) >= MOST_TIME
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_evaluation_is_over_once_its_thread_has_worked_for_that_long() {
        let time = EvaluationTime::start();
        assert!(!time.is_over());
        let before = thread_cpu();
        while !time.is_over() {
            assert!(thread_cpu().saturating_sub(before) < 20 * MOST_TIME);
        }
        assert!(thread_cpu().saturating_sub(before) >= MOST_TIME);
    }
}
