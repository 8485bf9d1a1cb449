//! The server's state as text, for a screen with a number of columns.

mod aligned_table;
mod cache;
mod cells;
mod copies;
mod jobs;
mod node_table;
mod pool_details;
mod pool_table;
mod proxies;
mod routes;
mod running_scripts;
mod size;
mod split;

use std::io::IsTerminal;

use crossterm::terminal;
use maitred_control::admin::{CertificateStatus, ServerStatus};
use maitred_control::purge_log::PurgeLogStatus;
use maitred_text::humanize::{duration, shorten};

pub use cache::page_cache;
pub use cells::fitting;
pub use copies::copies;
pub use jobs::jobs;
pub use node_table::nodes;
pub use pool_details::details;
pub use pool_table::{PoolOrder, PoolView, pool_table};
pub use proxies::proxies;
pub use routes::routes;
pub use running_scripts::RunningScripts;
pub use size::advice;
pub use split::split;

use aligned_table::{Table, limited};

/// Most running scripts that `maitred status` shows.
pub const MAX_RUNNING_LINES: usize = 10;

/// Most hosts that `maitred status` shows: those whose certificates fail come first.
const MAX_HOST_LINES: usize = 20;

/// Columns of an output that is no terminal.
const COLUMNS: usize = 100;

/// Fewest and most columns of a terminal that are used.
const MIN_COLUMNS: usize = 40;
const MAX_COLUMNS: usize = 200;

/// Columns of hosts with certificates.
const CERTIFICATES: &str = "CERTIFICATE -30 | EXPIRES 10 | NEXT 11 | PROBLEM 0";

/// The number of columns of standard output.
pub fn screen_columns() -> usize {
    let is_terminal = std::io::stdout().is_terminal();
    let size = is_terminal.then(terminal::size).and_then(Result::ok);
    let columns = size.map(|(columns, _)| usize::from(columns).clamp(MIN_COLUMNS, MAX_COLUMNS));
    columns.unwrap_or(COLUMNS)
}

/// One line for the server.
pub fn server_line(server: &ServerStatus, columns: usize) -> String {
    let ServerStatus { version, pid, phase, .. } = server;
    let up = duration(server.uptime_seconds);
    let listen = server.listen.join(", ");
    shorten(&format!("maitred {version}, process {pid}, {phase} for {up} on {listen}"), columns)
}

/// What single sites and pools lack.
pub fn faults(server: &ServerStatus) -> Vec<String> {
    let head = ["".to_owned(), "FAULTS".to_owned()];
    let faults = server.faults.iter().cloned();
    head.into_iter().filter(|_| !server.faults.is_empty()).chain(faults).collect()
}

/// The hosts whose certificates are got by ACME; `now` in seconds since 1970.
pub fn certificates(server: &ServerStatus, now: u64, columns: usize) -> Vec<String> {
    let mut hosts: Vec<&CertificateStatus> = server.certificates.iter().collect();
    if hosts.is_empty() {
        return Vec::new();
    }
    hosts.sort_by_key(|host| (host.error.is_none(), host.expires));
    let table = Table::new(CERTIFICATES, hosts.iter().map(|host| &*host.name), columns);
    let mut lines = Vec::from(table.head());
    let row = |host: &&CertificateStatus| vec![table.row(certificate(host, now))];
    lines.extend(limited(&hosts, MAX_HOST_LINES, row));
    lines
}

fn certificate(host: &CertificateStatus, now: u64) -> [String; 4] {
    let until = |time: u64| duration(time.saturating_sub(now) as f64);
    let expires = match host.expires {
        None => "none yet".to_owned(),
        Some(past) if past <= now => "expired".to_owned(),
        Some(time) => until(time),
    };
    let next = match host.next {
        Some(time) if time > now => until(time),
        _ => "now".to_owned(),
    };
    let failed = match host.failures {
        0 => String::new(),
        1 => "failed once: ".to_owned(),
        times => format!("failed {times} times: "),
    };
    let problem = host.error.as_ref();
    let problem = problem.map(|error| format!("{failed}{error}"));
    [host.name.clone(), expires, next, problem.unwrap_or_default()]
}

/// The purge log: whether it is reached, and the other nodes.
pub fn purge_log(server: &ServerStatus) -> Vec<String> {
    let Some(log) = &server.purge_log else {
        return Vec::new();
    };
    let since = duration(log.since_seconds as f64);
    if !log.peers.is_empty() {
        return purge_peers(log, &since);
    }
    let mut line = match (log.connected, &log.error) {
        (true, _) => format!("purge log: {} is connected for {since}", log.node),
        (false, None) => format!("purge log: {} is not connected for {since}", log.node),
        (false, Some(why)) => {
            format!("purge log: {} is not connected for {since} ({why})", log.node)
        }
    };
    match log.node_count {
        0 => line.push_str(", no other node"),
        1 => line.push_str(", 1 other node: "),
        count => line.push_str(&format!(", {count} other nodes: ")),
    }
    let named = log.nodes.iter().take(MAX_HOST_LINES).map(String::as_str);
    line.push_str(&named.collect::<Vec<_>>().join(" "));
    if let Some(id) = &log.last_id {
        line.push_str(&format!(", entry {id}"));
    }
    if log.waiting > 0 {
        line.push_str(&format!(", {} purges wait", log.waiting));
    }
    match (log.connected, log.lease_seconds) {
        (true, _) => {}
        (false, 0) => line.push_str(NOT_SERVED),
        (false, left) => {
            let left = duration(left as f64);
            line.push_str(&format!(", cached pages are served for {left} more"));
        }
    }
    vec![line]
}

/// What is said of a node without a lease.
const NOT_SERVED: &str = ", cached pages are not served";

/// A purge log without Redis: a line for it, and one for each peer.
fn purge_peers(log: &PurgeLogStatus, since: &str) -> Vec<String> {
    let connected = log.peers.iter().filter(|peer| peer.connected).count();
    let mut line =
        format!("purge log: {}, {connected} of {} peers connected", log.node, log.peers.len());
    line.push_str(&format!(" for {since}"));
    if let Some(id) = &log.last_id {
        line.push_str(&format!(", purge {id}"));
    }
    if log.lease_seconds == 0 {
        line.push_str(NOT_SERVED);
    }
    let peers = log.peers.iter().map(|peer| {
        let mut line = match (&peer.error, peer.connected) {
            (_, true) => format!("  {} is connected", peer.address),
            (None, false) => format!("  {} is not connected", peer.address),
            (Some(why), false) => format!("  {} is not connected ({why})", peer.address),
        };
        match peer.applied {
            Some(applied) => line.push_str(&format!(", has applied purge {applied}")),
            None => line.push_str(", what it has applied is not known"),
        }
        match peer.behind {
            0 => {}
            1 => line.push_str(", 1 purge behind"),
            behind => line.push_str(&format!(", {behind} purges behind")),
        }
        line
    });
    [line].into_iter().chain(peers).collect()
}

#[cfg(test)]
mod tests {
    use maitred_control::purge_log::PeerState;

    use super::*;

    #[test]
    fn a_log_that_is_not_reached_says_what_waits_and_for_how_long_pages_are_served() {
        let mut server = ServerStatus::default();
        assert!(purge_log(&server).is_empty());
        let log = PurgeLogStatus {
            node: "n0".to_owned(),
            connected: true,
            since_seconds: 61,
            last_id: Some("5-1".to_owned()),
            nodes: vec!["n1".to_owned(), "n2".to_owned()],
            node_count: 2,
            ..PurgeLogStatus::default()
        };
        server.purge_log = Some(log.clone());
        let said = "purge log: n0 is connected for 61 s, 2 other nodes: n1 n2, entry 5-1";
        assert_eq!(purge_log(&server), [said]);
        let error = Some("it is gone".to_owned());
        let lost = PurgeLogStatus { connected: false, error, waiting: 3, node_count: 0, ..log };
        server.purge_log = Some(PurgeLogStatus { nodes: Vec::new(), ..lost });
        let said = "purge log: n0 is not connected for 61 s (it is gone), no other node, entry \
                    5-1, 3 purges wait, cached pages are not served";
        assert_eq!(purge_log(&server), [said]);
    }

    #[test]
    fn a_log_without_redis_has_a_line_for_each_peer() {
        let peer = |address: &str, connected, applied, behind, error: Option<&str>| PeerState {
            address: address.parse().unwrap(),
            connected,
            applied,
            behind,
            error: error.map(str::to_owned),
        };
        let log = PurgeLogStatus {
            node: "n0".to_owned(),
            since_seconds: 61,
            lease_seconds: 9,
            last_id: Some("7".to_owned()),
            peers: vec![
                peer("10.0.0.2:7700", true, Some(7), 0, None),
                peer("10.0.0.3:7700", false, Some(5), 2, Some("Connection refused")),
            ],
            ..PurgeLogStatus::default()
        };
        let server = ServerStatus { purge_log: Some(log), ..ServerStatus::default() };
        let said = [
            "purge log: n0, 1 of 2 peers connected for 61 s, purge 7",
            "  10.0.0.2:7700 is connected, has applied purge 7",
            "  10.0.0.3:7700 is not connected (Connection refused), has applied purge 5, 2 purges \
             behind",
        ];
        assert_eq!(purge_log(&server), said);
    }

    #[test]
    fn hosts_whose_certificates_fail_come_first() {
        let host = |name: &str, expires: Option<u64>| CertificateStatus {
            name: name.to_owned(),
            expires,
            next: Some(30 * 86_400),
            ..CertificateStatus::default()
        };
        let mut server = ServerStatus::default();
        assert!(certificates(&server, 0, 100).is_empty());
        server.certificates = vec![
            host("shop.example.com", Some(60 * 86_400)),
            CertificateStatus {
                failures: 2,
                next: Some(150),
                error: Some("the authority refuses the order: no".to_owned()),
                ..host("away.example.com", None)
            },
        ];
        let lines = certificates(&server, 0, 100);
        let expected = [
            "",
            "CERTIFICATE         EXPIRES        NEXT PROBLEM",
            "away.example.com   none yet    2 m 30 s failed 2 times: the authority refuses the \
             order: no",
            "shop.example.com       60 d        30 d",
        ];
        assert_eq!(lines, expected);
        server.certificates = vec![host("shop.example.com", None); 25];
        let lines = certificates(&server, 0, 100);
        assert_eq!((lines.len(), lines[22].as_str()), (23, "and 5 more"));
    }
}
