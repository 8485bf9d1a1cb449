//! Statistics of upstream HTTP servers, by name: a reload does not reset them, and several rules
//! with the same server share them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use maitred_control::admin::ProxyServer;
use tokio::time::Instant;

use crate::proxy::error::ProxyError;

/// The results of requests, as label values: a response of this class (`1xx` for a WebSocket), no
/// response, or an incomplete one.
pub const RESULTS: [&str; 10] = [
    "1xx",
    "2xx",
    "3xx",
    "4xx",
    "5xx",
    "unreachable",
    "timeout",
    "invalid_response",
    "body_rejected",
    CLIENT_CLOSED,
];

/// The result of a request whose client has closed the connection.
const CLIENT_CLOSED: &str = "client_closed";

/// The statistics of all servers.
#[derive(Debug, Default)]
pub struct AllProxyStats {
    servers: Mutex<BTreeMap<String, Arc<ProxyStats>>>,
}

/// The statistics of one server, shared by all threads.
#[derive(Debug, Default)]
pub struct ProxyStats {
    results: [AtomicU64; RESULTS.len()],
    micros: AtomicU64,
    active: AtomicU64,
    connections: AtomicU64,
}

impl AllProxyStats {
    /// The statistics of a server. Drops those of servers that no site uses any more.
    pub fn of(&self, server: &str) -> Arc<ProxyStats> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|name, stats| name == server || Arc::strong_count(stats) > 1);
        servers.entry(server.to_owned()).or_default().clone()
    }

    /// The statistics of all servers in use, by name.
    pub fn read(&self) -> Vec<ProxyServer> {
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let used = servers.iter().filter(|(_, stats)| Arc::strong_count(stats) > 1);
        used.map(|(name, stats)| stats.read(name)).collect()
    }
}

impl ProxyStats {
    /// Counts a connection.
    pub fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request as running until the result is dropped.
    pub fn begin(&self) -> RunningProxyRequest<'_> {
        self.active.fetch_add(1, Ordering::Relaxed);
        RunningProxyRequest { stats: self, since: Instant::now(), result: CLIENT_CLOSED }
    }

    fn read(&self, server: &str) -> ProxyServer {
        let counts = self.results.iter().map(|count| count.load(Ordering::Relaxed));
        let names = RESULTS.iter().map(|name| (*name).to_owned());
        let micros = self.micros.load(Ordering::Relaxed);
        ProxyServer {
            server: server.to_owned(),
            requests: names.zip(counts).collect(),
            request_seconds: Duration::from_micros(micros).as_secs_f64(),
            active_requests: self.active.load(Ordering::Relaxed),
            connections: self.connections.load(Ordering::Relaxed),
        }
    }
}

/// A running request. If it is dropped before its end, its client has closed the connection.
#[derive(Debug)]
pub struct RunningProxyRequest<'a> {
    stats: &'a ProxyStats,
    since: Instant,
    result: &'static str,
}

impl RunningProxyRequest<'_> {
    /// When it started.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Counts its outcome, with the status of the response if there is one.
    pub fn ended<T>(&mut self, outcome: &Result<T, ProxyError>, status: u16) {
        self.result = match outcome {
            Ok(_) => class(status),
            Err(ProxyError::Intercepted { status, .. }) => class(*status),
            Err(ProxyError::NoDescriptor | ProxyError::Unreachable(_)) => "unreachable",
            Err(ProxyError::NotAccepted | ProxyError::Silent | ProxyError::Deaf) => "timeout",
            Err(ProxyError::Broken(_)) => "invalid_response",
            Err(
                ProxyError::BodyError(crate::http::body::BodyError::Gone) | ProxyError::ClientLeft,
            ) => CLIENT_CLOSED,
            Err(ProxyError::BodyError(_)) => "body_rejected",
        };
    }
}

impl Drop for RunningProxyRequest<'_> {
    fn drop(&mut self) {
        let at = RESULTS.iter().position(|name| *name == self.result);
        if let Some(count) = at.and_then(|at| self.stats.results.get(at)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        // A WebSocket lasts as long as its client likes: that says nothing about the server.
        if self.result != class(101) {
            let micros = u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.stats.micros.fetch_add(micros, Ordering::Relaxed);
        }
        self.stats.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The class of a status (RFC 9110 §15).
fn class(status: u16) -> &'static str {
    match status / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        _ => "5xx",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_counted_once_by_how_it_ended() {
        let all = AllProxyStats::default();
        let server = all.of("http://a");
        server.connected();
        let outcomes: [(Result<(), ProxyError>, u16); 6] = [
            (Ok(()), 204),
            (Err(ProxyError::Intercepted { status: 404, challenges: Vec::new() }), 0),
            (Err(ProxyError::Silent), 0),
            (Err(ProxyError::Broken(String::new())), 200),
            (Err(ProxyError::ClientLeft), 200),
            (Ok(()), 101),
        ];
        for (outcome, status) in &outcomes {
            server.begin().ended(outcome, *status);
        }
        let given_up = server.begin();
        assert_eq!(all.read()[0].active_requests, 1);
        drop(given_up);
        let read = all.read().remove(0);
        let counted = read.requests.iter().filter(|(_, count)| **count > 0);
        let counted: Vec<(&str, u64)> =
            counted.map(|(name, count)| (name.as_str(), *count)).collect();
        let expected = [
            ("1xx", 1),
            ("2xx", 1),
            ("4xx", 1),
            ("client_closed", 2),
            ("invalid_response", 1),
            ("timeout", 1),
        ];
        assert_eq!(counted, expected);
        assert_eq!((read.active_requests, read.connections), (0, 1));
    }

    #[test]
    fn figures_go_on_as_long_as_a_rule_names_the_server() {
        let all = AllProxyStats::default();
        let before = all.of("http://a");
        before.connected();
        let after = all.of("http://a");
        drop(before);
        assert_eq!(all.read()[0].connections, 1);
        drop(after);
        assert!(all.read().is_empty(), "no rule names it");
        let _other = all.of("http://b");
        let _again = all.of("http://a");
        let counts: Vec<u64> = all.read().iter().map(|server| server.connections).collect();
        assert_eq!(counts, [0, 0]);
    }
}
