//! Measurements: what to measure, and the results.

use serde::Serialize;

use crate::php_terms::php_term::{PhpTerm, PhpTerms};

/// The setting of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// The original one.
    AsItWas,
    /// `pm = static` with this many workers.
    Workers(u32),
    /// The original number of workers, and these settings of PHP.
    Php(PhpTerms),
    /// The original one without OPcache: a generation after it starts with an empty one, as after a
    /// start of the server. (maitred fills it from that of the generation before.)
    OpcacheOff,
}

impl Setting {
    /// A description for people.
    pub fn words(self) -> String {
        match self {
            Setting::AsItWas => "original".to_owned(),
            Setting::Workers(workers) => format!("static, {workers}"),
            Setting::OpcacheOff => "without OPcache".to_owned(),
            Setting::Php(terms) => {
                terms.terms().into_iter().map(PhpTerm::words).collect::<Vec<_>>().join(" and ")
            }
        }
    }
}

/// The load of a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Load {
    /// Closed loop: this many users without think time.
    Users(u32),
    /// Open loop: a Poisson process with this rate, in requests a second.
    Rate(f64),
}

/// A measurement to make.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Task {
    /// Its purpose, for people.
    pub what: &'static str,
    /// The setting of the pool.
    pub setting: Setting,
    /// The load.
    pub load: Load,
    /// The measured time, in seconds.
    pub seconds: f64,
    /// The warm-up before that, in seconds.
    pub warm_up: f64,
    /// Only this route is requested.
    pub route: Option<usize>,
    /// Time limits.
    pub limits: TaskLimits,
}

/// Time limits of a measurement, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TaskLimits {
    /// Check that the server is idle before it.
    pub checks_idle: bool,
    /// After a start of workers, request a second page to time it.
    pub times_second: bool,
    /// How long the queue of an earlier load may take to drain.
    pub rest: f64,
    /// The timeout of the page that shows that.
    pub page: f64,
    /// How long the site may take to respond at all.
    pub response: f64,
    /// That limit is too short to conclude that the site does not respond any more.
    pub is_cut: bool,
    /// The timeout of each response of the measurement.
    pub timeout: f64,
    /// How long the server may take to become idle after it; `None` to skip that.
    pub recovery: Option<f64>,
}

/// The parts of a request's time, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeParts {
    /// On a processor.
    pub cpu: f64,
    /// In the run queue.
    pub queue: f64,
    /// Waiting for anything else.
    pub waiting: f64,
}

impl TimeParts {
    /// The share of its own time that it computes.
    pub fn share(&self) -> f64 {
        self.cpu / (self.cpu + self.waiting).max(1e-9)
    }
}

impl Measurement {
    /// Memory of a worker that PHP's count of its scripts does not contain: the interpreter's own,
    /// and that of extensions that use the system's allocator.
    pub fn uncounted(&self) -> Option<f64> {
        Some((self.peak? - self.counted?).max(0.0))
    }

    /// Removes the times, which break a law; counts and memory are not affected.
    pub fn without_times(self) -> Measurement {
        Measurement {
            p50: None,
            p90: None,
            p95: None,
            p99: None,
            p999: None,
            mean: None,
            cpu: None,
            core_wait: None,
            spectrum: Vec::new(),
            ..self
        }
    }

    /// The parts of a request's time, if known.
    pub fn parts(&self) -> Option<TimeParts> {
        let (mean, cpu) = (self.mean?, self.cpu?);
        let queue = self.core_wait.unwrap_or(0.0);
        Some(TimeParts { cpu, queue, waiting: (mean - cpu - queue).max(0.0) })
    }
}

/// The results of a measurement. Times are in seconds, memory is in bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Measurement {
    /// The measured time.
    pub seconds: f64,
    /// Requests with the expected response.
    pub served: u64,
    /// The same a second.
    pub rate: f64,
    /// Requests a second within the goal's latency.
    pub goodput: f64,
    /// Requests that were not served, of all.
    pub error_share: f64,
    /// Requests that were rejected with 503 or 429, of all.
    pub refused_share: f64,
    /// Rejected requests whose response has the `Retry-After` header, of the rejected ones.
    pub with_retry_after: Option<f64>,
    /// The most frequent cause of requests that were not served.
    pub cause: Option<String>,
    /// Whether the goal held.
    pub holds: bool,
    /// Whether the generator itself was late, so that nothing follows about the server.
    pub generator_late: bool,
    /// Latencies from the due time of requests.
    pub p50: Option<f64>,
    #[allow(missing_docs)]
    pub p90: Option<f64>,
    #[allow(missing_docs)]
    pub p95: Option<f64>,
    #[allow(missing_docs)]
    pub p99: Option<f64>,
    /// 99.9 %.
    pub p999: Option<f64>,
    /// The average latency from the moment requests were sent.
    pub mean: Option<f64>,
    /// The workers' processor time for each request.
    pub cpu: Option<f64>,
    /// The workers' run queue time for each request.
    pub core_wait: Option<f64>,
    /// The average size of a body in bytes.
    pub bytes: Option<f64>,
    /// Workers at the end.
    pub workers: u32,
    /// Private memory of a worker, 95th percentile.
    pub private: Option<f64>,
    /// Private memory of a worker, median.
    pub typical: Option<f64>,
    /// The most private memory of a worker at any moment of the measurement or, if this user may
    /// not reset the kernel's maximum, since its start.
    pub peak: Option<f64>,
    /// The most memory that PHP counted for a script, if one user alone was measured and the server
    /// reports it.
    pub counted: Option<f64>,
    /// Resident memory of a worker, on average.
    pub resident: Option<f64>,
    /// The share of all processors that neither the server nor the generator used.
    pub outside: Option<f64>,
    /// How long it took until the server was idle again; `None` if it was not, or was not checked.
    pub recovery: Option<f64>,
    /// Latencies by percentile, for a chart.
    #[serde(skip)]
    pub spectrum: Vec<(f64, f64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_php_counts_is_no_part_of_what_lies_beside_it() {
        let seen = |peak, counted| Measurement { peak, counted, ..Measurement::default() };
        assert_eq!(seen(Some(30.0), Some(20.0)).uncounted(), Some(10.0));
        assert_eq!(seen(Some(20.0), Some(30.0)).uncounted(), Some(0.0));
        assert_eq!(seen(Some(20.0), None).uncounted(), None);
    }
}
