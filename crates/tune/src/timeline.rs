//! The timeline of a tuning, for a chart.

use std::fs;
use std::time::Instant;

use maitred_measure::series::Second;
use maitred_os::proc;
use serde::Serialize;

/// A second. Latencies are in seconds, shares are of 1, memory is in bytes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TimelinePoint {
    /// Seconds since the start of the tuning.
    pub at: f64,
    /// Requests with the expected response.
    pub served: f64,
    /// Their latencies.
    pub p50: Option<f64>,
    #[allow(missing_docs)]
    pub p99: Option<f64>,
    /// Requests that wait for a response or for a connection.
    pub waiting: f64,
    /// The pool's workers.
    pub workers: f64,
    /// The share of all processors in use.
    pub busy: Option<f64>,
    /// What tasks waited for.
    pub stalls: Stalls,
    /// Memory in use.
    pub memory: Option<f64>,
}

/// Shares of the last ten seconds in which tasks were stalled (Documentation/accounting/psi.rst);
/// `None` if the kernel does not report them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Stalls {
    /// Some tasks waited for a processor.
    pub cpu: Option<f64>,
    /// Some tasks waited for memory.
    pub memory: Option<f64>,
    /// All tasks waited for memory.
    pub all_for_memory: Option<f64>,
}

impl Stalls {
    /// The current shares.
    pub fn now() -> Stalls {
        let read = |what: &str| fs::read_to_string(format!("/proc/pressure/{what}"));
        let (cpu, memory) = (read("cpu").ok(), read("memory").ok());
        let share = |text: &Option<String>, line| proc::stalled(text.as_deref()?, line, "avg10");
        Stalls {
            cpu: share(&cpu, "some"),
            memory: share(&memory, "some"),
            all_for_memory: share(&memory, "full"),
        }
    }
}

/// Takes a sample every second.
#[derive(Debug)]
pub struct Timeline {
    began: Instant,
    processors: Option<(u64, u64)>,
    /// The samples.
    pub moments: Vec<TimelinePoint>,
}

impl Timeline {
    /// Starts now.
    pub fn begin() -> Timeline {
        Timeline { began: Instant::now(), processors: processors(), moments: Vec::new() }
    }

    /// A second is over; the pool has this many workers.
    pub fn see(&mut self, second: &Second, workers: usize) {
        let now = processors();
        let busy = now.zip(self.processors).and_then(|(now, then)| {
            let all = now.0.checked_sub(then.0).filter(|all| *all > 0)?;
            Some(now.1.saturating_sub(then.1) as f64 / all as f64)
        });
        self.processors = now;
        self.moments.push(TimelinePoint {
            at: self.began.elapsed().as_secs_f64(),
            served: second.served as f64,
            p50: second.p50,
            p99: second.p99.or(second.max),
            waiting: (second.in_flight + second.waiting) as f64,
            workers: workers as f64,
            busy,
            stalls: Stalls::now(),
            memory: memory_in_use(),
        });
    }
}

/// Total ticks of all processors, and used ones (proc_stat(5)).
fn processors() -> Option<(u64, u64)> {
    ticks(&fs::read_to_string("/proc/stat").ok()?)
}

fn ticks(text: &str) -> Option<(u64, u64)> {
    let ticks = proc::cpu_ticks(text)?;
    let all: u64 = ticks.iter().sum();
    // Idle, and idle while the disk works.
    let idle = ticks[3] + ticks[4];
    Some((all, all - idle))
}

/// Memory of the machine that is in use, in bytes.
pub fn memory_in_use() -> Option<f64> {
    in_use(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn in_use(text: &str) -> Option<f64> {
    let of = |name| Some(proc::bytes(text, name)? as f64);
    Some(of("MemTotal")? - of("MemAvailable")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_of_a_moment_is_understood() {
        let stat = "cpu  10 0 20 60 10 0 0 0 0 0\ncpu0 1 1 1 1\n";
        assert_eq!(ticks(stat), Some((100, 30)));
        let memory = "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\n";
        assert_eq!(in_use(memory), Some(600.0 * 1_024.0));
        assert_eq!((ticks(""), in_use("")), (None, None));
    }

    #[test]
    fn each_second_is_a_moment() {
        let mut watch = Timeline::begin();
        let second = Second { served: 7, in_flight: 2, waiting: 3, ..Second::default() };
        watch.see(&second, 4);
        let moment = &watch.moments[0];
        assert_eq!((moment.served, moment.waiting, moment.workers), (7.0, 5.0, 4.0));
        assert!(moment.at >= 0.0 && moment.memory.is_some_and(|bytes| bytes > 0.0));
    }
}
