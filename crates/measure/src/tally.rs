//! Counts of requests: of each thread for a second, and their sums.

use std::collections::BTreeMap;

use crate::latency::Latencies;
use crate::outcome::{Cause, Class};

/// Most distinct causes; the kernel has about 130, HTTP 900.
const MAX_CAUSES: usize = 2_000;

/// Latencies of the requests of one class.
#[derive(Debug, Clone, Default)]
pub struct ClassLatencies {
    /// From the due time of the requests.
    pub corrected: Latencies,
    /// From the moment they were sent.
    pub service: Latencies,
}

/// Requests for one URL.
#[derive(Debug, Clone, Default)]
pub struct UrlTally {
    /// Counts by class.
    pub counts: [u64; Class::ALL.len()],
    /// Latencies of served requests, from their due time.
    pub served: Latencies,
}

/// The end of a request.
#[derive(Debug, Clone, Copy)]
pub struct RequestEnd {
    /// Why it was not served, if it was not.
    pub cause: Option<Cause>,
    /// The response's status, if there is one.
    pub status: Option<u16>,
    /// Whether the response has the `Retry-After` header.
    pub has_retry_after: bool,
    /// The length of its body.
    pub body_bytes: u64,
    /// Nanoseconds since its due time.
    pub corrected: u64,
    /// Nanoseconds since it was sent.
    pub service: u64,
    /// The index of its URL.
    pub row: usize,
}

/// Counts.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Requests that were sent.
    pub sent: u64,
    /// Requests that were sent later than tolerated.
    pub late: u64,
    /// Late requests that had to wait for a free connection.
    pub late_for_connections: u64,
    /// How long after its due time each request was sent.
    pub lateness: Latencies,
    /// Requests that were never sent.
    pub unsent: u64,
    /// Opened connections, and how long that took.
    pub connects: Latencies,
    /// Requests that were sent a second time, since the server had just closed the connection.
    pub resent: u64,
    /// Latencies by class, in the order of [`Class::ALL`].
    pub ended: [ClassLatencies; Class::ALL.len()],
    /// Why requests were not served.
    pub causes: BTreeMap<Cause, u64>,
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Refused requests whose response has the `Retry-After` header.
    pub with_retry_after: u64,
    /// The bodies of responses, in bytes.
    pub body_bytes: u64,
    /// By URL.
    pub rows: Vec<UrlTally>,
}

impl Tally {
    /// Counts a request that is sent this many nanoseconds after its due time.
    pub fn sent(&mut self, lateness: u64, tolerated: u64, for_connection: bool) {
        self.sent += 1;
        self.lateness.record(lateness);
        if lateness > tolerated {
            self.late += 1;
            self.late_for_connections += u64::from(for_connection);
        }
    }

    /// Counts the end of a request.
    pub fn ended(&mut self, end: &RequestEnd) {
        let class = end.cause.map_or(Class::Served, Cause::class);
        let ended = &mut self.ended[class.index()];
        ended.corrected.record(end.corrected);
        ended.service.record(end.service);
        self.body_bytes += end.body_bytes;
        self.with_retry_after += u64::from(class == Class::Refused && end.has_retry_after);
        if let Some(status) = end.status {
            *self.statuses.entry(status).or_default() += 1;
        }
        if let Some(cause) = end.cause
            && (self.causes.len() < MAX_CAUSES || self.causes.contains_key(&cause))
        {
            *self.causes.entry(cause).or_default() += 1;
        }
        if self.rows.len() <= end.row {
            self.rows.resize_with(end.row + 1, UrlTally::default);
        }
        let row = &mut self.rows[end.row];
        row.counts[class.index()] += 1;
        if class == Class::Served {
            row.served.record(end.corrected);
        }
    }

    /// The number of requests of a class that ended.
    pub fn count(&self, class: Class) -> u64 {
        self.ended[class.index()].service.count()
    }

    /// The number of requests that ended.
    pub fn all(&self) -> u64 {
        Class::ALL.into_iter().map(|class| self.count(class)).sum()
    }

    /// Adds the counts of another tally.
    pub fn add(&mut self, other: &Tally) {
        self.sent += other.sent;
        self.late += other.late;
        self.late_for_connections += other.late_for_connections;
        self.lateness.add(&other.lateness);
        self.unsent += other.unsent;
        self.connects.add(&other.connects);
        self.resent += other.resent;
        for (ours, theirs) in self.ended.iter_mut().zip(&other.ended) {
            ours.corrected.add(&theirs.corrected);
            ours.service.add(&theirs.service);
        }
        for (cause, count) in &other.causes {
            *self.causes.entry(*cause).or_default() += count;
        }
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        self.with_retry_after += other.with_retry_after;
        self.body_bytes += other.body_bytes;
        if self.rows.len() < other.rows.len() {
            self.rows.resize_with(other.rows.len(), UrlTally::default);
        }
        for (ours, theirs) in self.rows.iter_mut().zip(&other.rows) {
            for (ours, theirs) in ours.counts.iter_mut().zip(theirs.counts) {
                *ours += theirs;
            }
            ours.served.add(&theirs.served);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(cause: Option<Cause>, row: usize) -> RequestEnd {
        RequestEnd {
            cause,
            status: Some(200),
            has_retry_after: false,
            body_bytes: 10,
            corrected: 2_000_000,
            service: 1_000_000,
            row,
        }
    }

    #[test]
    fn ends_are_counted_apart_and_added_up() {
        let mut one = Tally::default();
        one.sent(0, 10, false);
        one.sent(20, 10, true);
        one.ended(&end(None, 0));
        one.ended(&end(Some(Cause::Status(502)), 2));
        let mut sum = Tally::default();
        sum.add(&one);
        sum.add(&one);
        let counts = Class::ALL.map(|class| sum.count(class));
        assert_eq!(counts, [2, 0, 2, 0, 0]);
        assert_eq!((sum.sent, sum.late, sum.late_for_connections), (4, 2, 2));
        assert_eq!(sum.rows[0].counts[0], 2);
        assert_eq!(sum.rows[2].counts[2], 2);
        assert_eq!(sum.causes[&Cause::Status(502)], 2);
        assert_eq!((sum.all(), sum.body_bytes), (4, 40));
    }
}
