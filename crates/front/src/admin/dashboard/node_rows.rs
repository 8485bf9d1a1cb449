//! The nodes with the same purge log, on the dashboard.

use maitred_config::is_origin;
use maitred_control::nodes::{NodeStatus, NodesStatus};
use serde_json::{Value, json};

/// The time of silence is rounded to this, in seconds: each change of it is sent.
const SILENCE_STEP: u64 = 5;

/// The nodes as JSON. Requests are per minute, the wait is in milliseconds.
pub fn nodes(nodes: &NodesStatus) -> Value {
    let row = |node: &NodeStatus| {
        json!({
            "name": node.name,
            "here": node.here.then_some(true),
            "silent": node.silent.then_some(node.age_seconds / SILENCE_STEP * SILENCE_STEP),
            "version": node.version,
            "ready": node.ready,
            "reason": node.reason,
            "saturation": node.saturation,
            "nearest": node.nearest,
            "requests": node.requests_per_minute,
            "failed": node.failed_per_minute,
            "wait": node.queue_seconds * 1e3,
            "url": node.url.as_deref().filter(|url| is_origin(url)),
        })
    };
    json!({
        "list": nodes.list.iter().map(row).collect::<Vec<_>>(),
        "more": nodes.more,
        "problem": nodes.problem,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_not_heard_is_silent_and_a_strange_address_is_no_link() {
        let row = |age_seconds: u64, silent: bool, url: &str| {
            let url = Some(url.to_owned());
            let node = NodeStatus { age_seconds, silent, url, ..NodeStatus::default() };
            nodes(&NodesStatus { list: vec![node], ..NodesStatus::default() })["list"][0].clone()
        };
        assert!(row(14, false, "")["silent"].is_null());
        assert_eq!(row(38, true, "")["silent"], 35);
        assert_eq!(row(1, false, "https://n.example:9180")["url"], "https://n.example:9180");
        assert!(row(1, false, "javascript:alert(1)")["url"].is_null());
    }
}
