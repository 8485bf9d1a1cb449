//! Proxied HTTP servers (`proxy`) as text.

use maitred_control::admin::{ProxyServer, ServerStatus};

use maitred_text::humanize::{compact_count, compact_time};

use super::aligned_table::{Table, limited};
use super::cells::sum;

/// Most servers that are shown: those with the most requests.
const MAX_SERVER_LINES: usize = 20;

/// Columns of the servers.
const SERVERS: &str = "PROXY -34 | REQUESTS 8 | NOW 6 | ERRORS 8 | FAILED 8 | LEFT 8? | AVERAGE 9";

/// Results of requests to each proxied server; empty if no site has one.
pub fn proxies(server: &ServerStatus, columns: usize) -> Vec<String> {
    if server.proxies.is_empty() {
        return Vec::new();
    }
    let mut servers: Vec<&ProxyServer> = server.proxies.iter().collect();
    servers.sort_by_key(|server| std::cmp::Reverse(sum(&server.requests, |_| true)));
    let table = Table::new(SERVERS, servers.iter().map(|server| &*server.server), columns);
    let mut lines = Vec::from(table.head());
    let row = |server: &&ProxyServer| vec![table.row(row(server))];
    lines.extend(limited(&servers, MAX_SERVER_LINES, row));
    lines
}

fn row(server: &ProxyServer) -> [String; 7] {
    let all = &server.requests;
    let timed = sum(all, |result| result != "1xx");
    let failed = ["unreachable", "timeout", "invalid_response"];
    [
        server.server.clone(),
        compact_count(sum(all, |_| true), 8),
        compact_count(server.active_requests, 6),
        compact_count(sum(all, |result| result == "5xx"), 8),
        compact_count(sum(all, |result| failed.contains(&result)), 8),
        compact_count(sum(all, |result| result == "client_closed"), 8),
        compact_time(server.request_seconds / timed.max(1) as f64),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str, count: u64) -> ServerStatus {
        let results = ["1xx", "2xx", "5xx", "invalid_response", "client_closed", "timeout"];
        let counts = results.iter().map(|result| ((*result).to_owned(), count));
        ServerStatus {
            proxies: vec![ProxyServer {
                server: name.to_owned(),
                requests: counts.collect(),
                request_seconds: 1.0,
                active_requests: count,
                connections: count,
            }],
            ..ServerStatus::default()
        }
    }

    #[test]
    fn a_server_is_a_line() {
        assert_eq!(
            proxies(&server("http://127.0.0.1:8080", 20), 100).join("\n"),
            "\n\
             PROXY                 REQUESTS    NOW   ERRORS   FAILED     LEFT   AVERAGE\n\
             http://127.0.0.1:8080      120     20       20       40       20      10ms"
        );
        assert!(proxies(&ServerStatus::default(), 100).is_empty());
    }

    #[test]
    fn nothing_makes_a_line_too_wide() {
        for line in proxies(&server(&"x".repeat(300), u64::MAX / 4), 80) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
