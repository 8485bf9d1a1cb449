//! What is to be measured, and what a measurement has shown.

use serde::Serialize;

/// How the pool is set meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// As it was before anybody tuned anything.
    AsItWas,
    /// `pm = static` with so many workers.
    Workers(u32),
}

impl Setting {
    /// In words.
    pub fn words(self) -> String {
        match self {
            Setting::AsItWas => "as it was".to_owned(),
            Setting::Workers(workers) => format!("static, {workers}"),
        }
    }
}

/// How requests come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Load {
    /// By so many users who wait for each answer and do not think.
    Users(u32),
    /// So many a second, as people come (Poisson).
    Rate(f64),
}

/// A measurement to be made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Task {
    /// What it is for, in words.
    pub what: &'static str,
    /// How the pool is set.
    pub setting: Setting,
    /// How requests come.
    pub load: Load,
    /// How long it is measured, in seconds.
    pub seconds: f64,
    /// How long before that it is not, in seconds.
    pub warm_up: f64,
    /// Only this route is asked for.
    pub route: Option<usize>,
    /// How long it is waited for others.
    pub limits: TaskLimits,
}

/// How long it is waited for others, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TaskLimits {
    /// It is looked whether the server is at rest.
    pub looks: bool,
    /// After a start of workers a second page is asked for, to see how long it takes.
    pub asks_again: bool,
    /// Until what an earlier load has left in queues is gone.
    pub rest: f64,
    /// For an answer that is to show that.
    pub ask: f64,
    /// Until the site answers at all.
    pub answer: f64,
    /// There is no time to wait as long for that as for one that does not answer any more.
    pub is_cut: bool,
    /// For each answer of a measurement.
    pub timeout: f64,
    /// After it, until the server is at rest again; nothing: that is not looked at.
    pub recovery: Option<f64>,
}

/// What a request's time is made of, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeParts {
    /// On a processor.
    pub cpu: f64,
    /// Waiting for one.
    pub queue: f64,
    /// Waiting for others.
    pub waiting: f64,
}

impl TimeParts {
    /// The share of its own time that it computes.
    pub fn share(&self) -> f64 {
        self.cpu / (self.cpu + self.waiting).max(1e-9)
    }
}

impl Measurement {
    /// Memory of a worker beside what PHP itself counts of its scripts: the interpreter's own, and extensions that
    /// take memory from the system.
    pub fn uncounted(&self) -> Option<f64> {
        Some((self.peak? - self.counted?).max(0.0))
    }

    /// The same without its times, which a law calls in question; what was counted and what it takes of
    /// memory stand.
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

    /// What a request's time is made of, where that is known.
    pub fn parts(&self) -> Option<TimeParts> {
        let (mean, cpu) = (self.mean?, self.cpu?);
        let queue = self.core_wait.unwrap_or(0.0);
        Some(TimeParts {
            cpu,
            queue,
            waiting: (mean - cpu - queue).max(0.0),
        })
    }
}

/// What a measurement has shown. Times are in seconds, memory in bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Measurement {
    /// How long was measured.
    pub seconds: f64,
    /// Requests with the answer that was expected.
    pub served: u64,
    /// The same, a second.
    pub rate: f64,
    /// Those a second that were in time for the goal.
    pub goodput: f64,
    /// Requests that were not served, of all.
    pub error_share: f64,
    /// Requests that the server said it cannot serve now, of all.
    pub refused_share: f64,
    /// Those of them that were told when to come again, of the refused ones.
    pub with_retry_after: Option<f64>,
    /// What most of those ended with.
    pub cause: Option<String>,
    /// Whether the goal held.
    pub holds: bool,
    /// Whether the generator itself was late, so that nothing is said about the server.
    pub generator_late: bool,
    /// Latencies from the moment requests were due.
    pub p50: Option<f64>,
    #[allow(missing_docs)]
    pub p90: Option<f64>,
    #[allow(missing_docs)]
    pub p95: Option<f64>,
    #[allow(missing_docs)]
    pub p99: Option<f64>,
    /// 99.9 %.
    pub p999: Option<f64>,
    /// How long answers took on average, from the moment requests were sent.
    pub mean: Option<f64>,
    /// The workers' processor time for each request.
    pub cpu: Option<f64>,
    /// Their waiting for a processor for each request.
    pub core_wait: Option<f64>,
    /// Bytes of a body, on average.
    pub bytes: Option<f64>,
    /// Workers at the end.
    pub workers: u32,
    /// Private memory that 95 of 100 workers do not exceed.
    pub private: Option<f64>,
    /// Private memory that half of them do not exceed.
    pub typical: Option<f64>,
    /// The most private memory that a worker had at any moment since the measurement began, or, where this
    /// user may not have the kernel forget earlier moments, since it was started.
    pub peak: Option<f64>,
    /// The most memory that PHP itself has counted for a script, where one user alone has asked and it tells.
    pub counted: Option<f64>,
    /// Resident memory of a worker, on average.
    pub resident: Option<f64>,
    /// The share of all processors that neither the server nor the generator used.
    pub outside: Option<f64>,
    /// How long it took until the server was at rest again; nothing: it was not, or nobody looked.
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
        let seen = |peak, counted| Measurement {
            peak,
            counted,
            ..Measurement::default()
        };
        assert_eq!(seen(Some(30.0), Some(20.0)).uncounted(), Some(10.0));
        assert_eq!(seen(Some(20.0), Some(30.0)).uncounted(), Some(0.0));
        assert_eq!(seen(Some(20.0), None).uncounted(), None);
    }
}
