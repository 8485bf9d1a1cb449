//! The nodes with the same purge log as text.

use maitred_control::admin::ServerStatus;
use maitred_control::nodes::NodeStatus;
use maitred_text::humanize::{compact_count, compact_time, duration, percent, printable, shorten};

use super::aligned_table::Table;

/// Columns of the nodes.
const NODES: &str = "NODE -30 | LOAD 6 | NEAREST -12? | REQ/MIN 8 | FAILED 7 | WAIT 8 | STATE -24 \
                     | VERSION 0?";

/// What each node says of itself; empty without a purge log.
pub fn nodes(server: &ServerStatus, columns: usize) -> Vec<String> {
    let Some(nodes) = &server.nodes else {
        return Vec::new();
    };
    let names: Vec<String> = nodes.list.iter().map(name).collect();
    let table = Table::new(NODES, names.iter().map(String::as_str), columns);
    let mut lines = Vec::from(table.head());
    lines.extend(nodes.list.iter().zip(names).map(|(node, name)| table.row(row(node, name))));
    if nodes.more > 0 {
        lines.push(format!("and {} more", nodes.more));
    }
    if let Some(why) = &nodes.problem {
        let said = format!("this is not current: the purge log is not reached ({why})");
        lines.push(shorten(&printable(&said), columns));
    }
    lines
}

fn name(node: &NodeStatus) -> String {
    let here = if node.here { " (here)" } else { "" };
    format!("{}{here}", printable(&node.name))
}

fn row(node: &NodeStatus, name: String) -> [String; 8] {
    let state = match &node.reason {
        _ if node.silent => format!("silent for {}", duration(node.age_seconds as f64)),
        _ if node.ready => "ready".to_owned(),
        Some(reason) => printable(reason),
        None => "not ready".to_owned(),
    };
    [
        name,
        percent(node.saturation),
        printable(&node.nearest),
        compact_count(node.requests_per_minute, 8),
        compact_count(node.failed_per_minute, 7),
        compact_time(node.queue_seconds),
        state,
        printable(&node.version),
    ]
}

#[cfg(test)]
mod tests {
    use maitred_control::nodes::NodesStatus;

    use super::*;

    fn node(name: &str) -> NodeStatus {
        NodeStatus {
            name: name.to_owned(),
            version: "0.1.0".to_owned(),
            ready: true,
            saturation: 0.63,
            nearest: "max_children".to_owned(),
            requests_per_minute: 1200,
            failed_per_minute: 3,
            queue_seconds: 0.0025,
            ..NodeStatus::default()
        }
    }

    #[test]
    fn a_node_is_a_line_and_says_what_is_wrong_with_it() {
        let mut server = ServerStatus::default();
        assert!(nodes(&server, 100).is_empty());
        let reason = Some("no pool has a worker".to_owned());
        let list = vec![
            NodeStatus { here: true, ..node("n1") },
            NodeStatus { ready: false, reason, ..node("n2") },
            NodeStatus { silent: true, age_seconds: 95, ..node("n3") },
        ];
        let problem = Some("Connection refused".to_owned());
        server.nodes = Some(NodesStatus { list, more: 2, problem });
        let expected = "
NODE        LOAD NEAREST       REQ/MIN  FAILED     WAIT STATE                    VERSION
n1 (here)   63 % max_children     1200       3    2.5ms ready                    0.1.0
n2          63 % max_children     1200       3    2.5ms no pool has a worker     0.1.0
n3          63 % max_children     1200       3    2.5ms silent for 95 s          0.1.0
and 2 more
this is not current: the purge log is not reached (Connection refused)";
        assert_eq!(nodes(&server, 100).join("\n"), expected);
    }

    #[test]
    fn nothing_that_a_node_says_writes_to_a_terminal_or_makes_a_line_too_wide() {
        let hostile = NodeStatus {
            reason: Some("\x1b[2J\u{202e}".repeat(40)),
            nearest: "\x1b".repeat(20),
            ready: false,
            requests_per_minute: u64::MAX,
            saturation: 1e12,
            ..node(&"\x1b]0;x\x07".repeat(80))
        };
        let list = vec![hostile];
        let server = ServerStatus {
            nodes: Some(NodesStatus { list, ..NodesStatus::default() }),
            ..ServerStatus::default()
        };
        for columns in [60, 100, 200] {
            for line in nodes(&server, columns) {
                assert!(line.chars().count() <= columns, "{line}");
                assert!(!line.contains(['\x1b', '\u{202e}', '\x07']), "{line:?}");
            }
        }
    }
}
