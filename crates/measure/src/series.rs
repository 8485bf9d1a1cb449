//! A run second by second.

use serde::Serialize;

use crate::latency::Latencies;
use crate::outcome::Class;
use crate::tally::Tally;

/// The counts of a second; latencies are in seconds, from the due times of requests.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Second {
    /// The start of this second, in seconds since the start of the run.
    pub number: u64,
    /// Whether it belongs to the warm-up.
    pub warm_up: bool,
    /// Requests that were sent.
    pub sent: u64,
    /// Requests by outcome.
    pub served: u64,
    #[allow(missing_docs)]
    pub refused: u64,
    #[allow(missing_docs)]
    pub failed: u64,
    #[allow(missing_docs)]
    pub timed_out: u64,
    #[allow(missing_docs)]
    pub wrong: u64,
    /// Requests in flight at its end.
    pub in_flight: u64,
    /// Requests that waited for a connection at its end.
    pub waiting: u64,
    /// Connections at its end.
    pub connections: u64,
    /// Latencies of served requests: the median, …
    pub p50: Option<f64>,
    #[allow(missing_docs)]
    pub p90: Option<f64>,
    #[allow(missing_docs)]
    pub p99: Option<f64>,
    #[allow(missing_docs)]
    pub max: Option<f64>,
    /// Most requests in flight at once.
    #[serde(skip)]
    pub most_in_flight: u64,
    /// Latencies of served requests, until [`Second::sum_up`].
    #[serde(skip)]
    pub latencies: Latencies,
}

impl Second {
    /// Adds the counts of a thread.
    pub fn add(&mut self, tally: &Tally) {
        self.sent += tally.sent;
        self.served += tally.count(Class::Served);
        self.refused += tally.count(Class::Refused);
        self.failed += tally.count(Class::Failed);
        self.timed_out += tally.count(Class::TimedOut);
        self.wrong += tally.count(Class::Wrong);
        let served = &tally.ended[Class::Served.index()];
        self.latencies.add(&served.corrected);
    }

    /// Computes the percentiles, however few samples there are: a second is a small sample anyway.
    pub fn sum_up(&mut self, warm_up_seconds: f64) {
        self.warm_up = (self.number as f64) < warm_up_seconds;
        let latencies = std::mem::take(&mut self.latencies);
        self.p50 = latencies.at(50.0);
        self.p90 = latencies.at(90.0);
        self.p99 = latencies.at(99.0);
        self.max = latencies.max();
    }

    /// Requests that ended, whatever their outcome.
    pub fn ended(&self) -> u64 {
        self.served + self.refused + self.failed + self.timed_out + self.wrong
    }
}

/// As comma-separated values with a header line; latencies in seconds.
pub fn csv(series: &[Second]) -> String {
    let mut text = "second,warm_up,sent,served,refused,failed,timed_out,wrong,in_flight,waiting,\
                    connections,p50,p90,p99,max\n"
        .to_owned();
    let latency = |found: Option<f64>| found.map_or(String::new(), |found| format!("{found:.7}"));
    for second in series {
        let counts = [
            second.number,
            u64::from(second.warm_up),
            second.sent,
            second.served,
            second.refused,
            second.failed,
            second.timed_out,
            second.wrong,
            second.in_flight,
            second.waiting,
            second.connections,
        ];
        let latencies = [second.p50, second.p90, second.p99, second.max];
        let counts = counts.iter().map(u64::to_string);
        let line: Vec<String> = counts.chain(latencies.map(latency)).collect();
        text.push_str(&line.join(","));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_as_many_columns_as_names() {
        let second = Second { number: 3, served: 2, p50: Some(0.25), ..Second::default() };
        let text = csv(&[second.clone(), second]);
        let columns: Vec<usize> = text.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(columns, [15, 15, 15]);
        assert!(text.contains("3,0,0,2,0,0,0,0,0,0,0,0.2500000,,,"), "{text}");
    }
}
