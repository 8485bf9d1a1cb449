//! The latest slow and failed requests, and the latest stacks of slow scripts, in memory for the
//! dashboard. Remembered only while there is an admin listener.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use maitred_control::front::{CertificateFailures, SlowStack};
use serde::Serialize;

/// Most requests that are remembered; with all their lines they take at most 0.5 MB.
const MAX_REQUESTS: usize = 64;

/// Least time between two requests without a script, in milliseconds: under overload, thousands are
/// refused each second, and would leave none of the others.
const WITHOUT_SCRIPT_EVERY: u64 = 1000;

/// Most stacks that are remembered; each is at most a message of the supervisor.
const MAX_STACKS: usize = 16;

/// A slow or failed request. Times are in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RequestDetail {
    /// Its start, in milliseconds since 1970.
    pub at: u64,
    /// The pool that ran its script.
    pub pool: Option<String>,
    /// Its method and its path without the query.
    pub request: String,
    /// The status sent.
    pub status: u16,
    /// From its complete header to the last byte.
    pub took: f64,
    /// In the queue.
    pub queue: Option<f64>,
    /// The part of that in which the worker was starting.
    pub boot: Option<f64>,
    /// In the script.
    pub script: Option<f64>,
    /// The script on a processor.
    pub cpu: Option<f64>,
    /// The script waiting for a processor.
    pub core_wait: Option<f64>,
    /// The script blocked.
    pub blocked: Option<f64>,
    /// Processor time of the script's child processes.
    pub children: Option<f64>,
    /// Peak memory of the script in bytes.
    pub memory: Option<u64>,
    /// The result of the page cache.
    pub cache: Option<&'static str>,
    /// The upstream server.
    pub upstream: Option<String>,
    /// Its id in the logs.
    pub id: Option<String>,
    /// Its trace.
    pub trace: Option<String>,
    /// The first log lines about it.
    pub lines: Vec<String>,
}

/// What is remembered.
#[derive(Debug, Default)]
pub struct RecentRequests {
    is_wanted: AtomicBool,
    /// When a request without a script was remembered last, in milliseconds.
    without_script_at: AtomicU64,
    rings: Mutex<Rings>,
}

#[derive(Debug, Default)]
struct Rings {
    /// The number of the next request.
    next: u64,
    /// With their numbers, the oldest first.
    requests: VecDeque<(u64, RequestDetail)>,
    stacks: VecDeque<SlowStack>,
    failures: CertificateFailures,
}

impl RecentRequests {
    /// Remembers requests from now on, or no longer.
    pub fn want(&self, is_wanted: bool) {
        self.is_wanted.store(is_wanted, Ordering::Relaxed);
        if !is_wanted {
            *self.lock() = Rings::default();
        }
    }

    /// Whether requests are remembered.
    pub fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// Whether a request that ran no script is remembered at this time of the monotonic clock.
    pub fn takes_without_script(&self, now: Duration) -> bool {
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let last = self.without_script_at.load(Ordering::Relaxed);
        let is_due = last == 0 || now.saturating_sub(last) >= WITHOUT_SCRIPT_EVERY;
        let swap = || {
            self.without_script_at.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
        };
        is_due && swap().is_ok()
    }

    /// Remembers a request in place of the oldest one.
    pub fn add(&self, request: RequestDetail) {
        let mut rings = self.lock();
        let number = rings.next;
        rings.next += 1;
        if rings.requests.len() == MAX_REQUESTS {
            rings.requests.pop_front();
        }
        rings.requests.push_back((number, request));
    }

    /// Remembers a stack in place of the oldest one.
    pub fn add_stack(&self, stack: SlowStack) {
        let mut rings = self.lock();
        if self.is_wanted() {
            if rings.stacks.len() == MAX_STACKS {
                rings.stacks.pop_front();
            }
            rings.stacks.push_back(stack);
        }
    }

    /// Replaces the certificates that could not be got.
    pub fn set_failures(&self, failures: CertificateFailures) {
        self.lock().failures = failures;
    }

    /// The certificates that could not be got.
    pub fn failures(&self) -> CertificateFailures {
        self.lock().failures.clone()
    }

    /// The latest requests with their numbers, the newest first.
    pub fn latest(&self, most: usize) -> Vec<(u64, RequestDetail)> {
        self.lock().requests.iter().rev().take(most).cloned().collect()
    }

    /// The request with this number, if it is still remembered.
    pub fn find(&self, number: u64) -> Option<RequestDetail> {
        let rings = self.lock();
        let mut all = rings.requests.iter();
        all.find(|(known, _)| *known == number).map(|(_, request)| request.clone())
    }

    /// The latest stacks, the newest first.
    pub fn stacks(&self) -> Vec<SlowStack> {
        self.lock().stacks.iter().rev().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Rings> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_request_is_forgotten_first() {
        let recent = RecentRequests::default();
        recent.want(true);
        for status in 0..100 {
            recent.add(RequestDetail { status, ..RequestDetail::default() });
        }
        let latest: Vec<u64> = recent.latest(2).into_iter().map(|(number, _)| number).collect();
        assert_eq!(latest, [99, 98]);
        assert!(recent.find(35).is_none());
        assert_eq!(recent.find(36).map(|request| request.status), Some(36));
        recent.want(false);
        assert!(recent.latest(1).is_empty() && !recent.is_wanted());
    }
}
