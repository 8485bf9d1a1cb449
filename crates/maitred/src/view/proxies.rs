//! Servers behind (`proxy`) as lines for people.

use maitred_control::admin::{ProxyServer, ServerStatus};
use maitred_text::humanize::{compact_count, compact_time, shorten};

use super::cut;

/// Most servers that are shown: those with the most requests.
const MAX_SERVER_LINES: usize = 20;

/// Most characters of a server's name.
const SERVER_COLUMNS: usize = 34;

/// What came of requests to each server; nothing if no site has one.
pub fn proxies(server: &ServerStatus) -> Vec<String> {
    if server.proxies.is_empty() {
        return Vec::new();
    }
    let mut servers: Vec<&ProxyServer> = server.proxies.iter().collect();
    servers.sort_by_key(|server| std::cmp::Reverse(sum(server, |_| true)));
    let names = servers.iter().map(|server| server.server.chars().count());
    let wide = names.max().unwrap_or(0).clamp(5, SERVER_COLUMNS);
    let mut lines = vec![
        String::new(),
        format!(
            "{:wide$} {:>8} {:>6} {:>8} {:>8} {:>8} {:>9}",
            "PROXY", "REQUESTS", "NOW", "ERRORS", "FAILED", "LEFT", "AVERAGE"
        ),
    ];
    let shown = servers.iter().take(MAX_SERVER_LINES);
    lines.extend(shown.map(|server| cut(&row(server, wide))));
    match servers.len().saturating_sub(MAX_SERVER_LINES) {
        0 => {}
        more => lines.push(format!("and {more} more")),
    }
    lines
}

fn row(server: &ProxyServer, wide: usize) -> String {
    let timed = sum(server, |result| result != "1xx");
    let failed = ["unreachable", "timeout", "broken"];
    format!(
        "{:wide$} {:>8} {:>6} {:>8} {:>8} {:>8} {:>9}",
        shorten(&server.server, wide),
        compact_count(sum(server, |_| true), 8),
        compact_count(server.active, 6),
        compact_count(sum(server, |result| result == "5xx"), 8),
        compact_count(sum(server, |result| failed.contains(&result)), 8),
        compact_count(sum(server, |result| result == "client_left"), 8),
        compact_time(server.seconds / timed.max(1) as f64),
    )
}

fn sum(server: &ProxyServer, counts: impl Fn(&str) -> bool) -> u64 {
    let counted = server.requests.iter().filter(|(result, _)| counts(result));
    counted.fold(0, |sum, (_, count)| sum.saturating_add(*count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::COLUMNS;

    fn server(name: &str, count: u64) -> ServerStatus {
        let results = ["1xx", "2xx", "5xx", "broken", "client_left", "timeout"];
        let counts = results.iter().map(|result| ((*result).to_owned(), count));
        ServerStatus {
            proxies: vec![ProxyServer {
                server: name.to_owned(),
                requests: counts.collect(),
                seconds: 1.0,
                active: count,
                connections: count,
            }],
            ..ServerStatus::default()
        }
    }

    #[test]
    fn a_server_is_a_line() {
        assert_eq!(
            proxies(&server("http://127.0.0.1:8080", 20)).join("\n"),
            "\n\
             PROXY                 REQUESTS    NOW   ERRORS   FAILED     LEFT   AVERAGE\n\
             http://127.0.0.1:8080      120     20       20       40       20      10ms"
        );
        assert!(proxies(&ServerStatus::default()).is_empty());
    }

    #[test]
    fn nothing_makes_a_line_too_wide() {
        for line in proxies(&server(&"x".repeat(300), u64::MAX / 4)) {
            assert!(line.chars().count() <= COLUMNS, "{line}");
        }
    }
}
