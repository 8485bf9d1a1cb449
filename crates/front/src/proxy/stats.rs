//! What is counted of servers behind, by their names: a reload that keeps one leaves its counters
//! alone, and one that several rules name is counted once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use maitred_control::admin::ProxyServer;
use tokio::time::Instant;

use crate::proxy::error::Failure;

/// How requests end: with an answer of this class (that of a WebSocket is `1xx`), or without one, or
/// with half of one.
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

/// The result of a request whose client has gone.
const CLIENT_CLOSED: &str = "client_closed";

/// The figures of all servers.
#[derive(Debug, Default)]
pub struct AllFigures {
    servers: Mutex<BTreeMap<String, Arc<Figures>>>,
}

/// The figures of one server, which all threads share.
#[derive(Debug, Default)]
pub struct Figures {
    results: [AtomicU64; RESULTS.len()],
    micros: AtomicU64,
    active: AtomicU64,
    connections: AtomicU64,
}

impl AllFigures {
    /// Those of a server. Servers that no site names any more are forgotten.
    pub fn of(&self, server: &str) -> Arc<Figures> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|name, figures| name == server || Arc::strong_count(figures) > 1);
        servers.entry(server.to_owned()).or_default().clone()
    }

    /// Those of all servers that are in use, by name.
    pub fn read(&self) -> Vec<ProxyServer> {
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let used = servers
            .iter()
            .filter(|(_, figures)| Arc::strong_count(figures) > 1);
        used.map(|(name, figures)| figures.read(name)).collect()
    }
}

impl Figures {
    /// A connection to the server was opened.
    pub fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// A request is on its way, until what is returned is dropped.
    pub fn begin(&self) -> Begun<'_> {
        self.active.fetch_add(1, Ordering::Relaxed);
        Begun {
            figures: self,
            since: Instant::now(),
            result: CLIENT_CLOSED,
        }
    }

    fn read(&self, server: &str) -> ProxyServer {
        let counts = self
            .results
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
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

/// A request on its way. Whose client is not waited for to its end has left.
#[derive(Debug)]
pub struct Begun<'a> {
    figures: &'a Figures,
    since: Instant,
    result: &'static str,
}

impl Begun<'_> {
    /// Since when it is on its way.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// What has come of it, with this status if there is one.
    pub fn ended<T>(&mut self, outcome: &Result<T, Failure>, status: u16) {
        self.result = match outcome {
            Ok(_) => class(status),
            Err(Failure::Intercepted(status)) => class(*status),
            Err(Failure::Unreachable(_)) => "unreachable",
            Err(Failure::NotAccepted | Failure::Silent | Failure::Deaf) => "timeout",
            Err(Failure::Broken(_)) => "invalid_response",
            Err(Failure::NoBody(crate::http::body::NoBody::Gone) | Failure::ClientLeft) => {
                CLIENT_CLOSED
            }
            Err(Failure::NoBody(_)) => "body_rejected",
        };
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let at = RESULTS.iter().position(|name| *name == self.result);
        if let Some(count) = at.and_then(|at| self.figures.results.get(at)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        // A WebSocket lasts as long as its client likes: that says nothing of the server.
        if self.result != class(101) {
            let micros = u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.figures.micros.fetch_add(micros, Ordering::Relaxed);
        }
        self.figures.active.fetch_sub(1, Ordering::Relaxed);
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
        let all = AllFigures::default();
        let server = all.of("http://a");
        server.connected();
        let outcomes: [(Result<(), Failure>, u16); 6] = [
            (Ok(()), 204),
            (Err(Failure::Intercepted(404)), 0),
            (Err(Failure::Silent), 0),
            (Err(Failure::Broken(String::new())), 200),
            (Err(Failure::ClientLeft), 200),
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
        let counted: Vec<(&str, u64)> = counted
            .map(|(name, count)| (name.as_str(), *count))
            .collect();
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
        let all = AllFigures::default();
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
