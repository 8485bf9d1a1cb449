//! The nodes with the same purge log, on the dashboard.

use std::time::Instant;

use maitred_config::is_origin;
use maitred_control::nodes::KnownNode;
use serde_json::{Value, json};

use crate::services::known_nodes::NodesSeen;

/// A node is silent from here on, in seconds: it has missed two announcements.
const SILENT_SECONDS: u64 = 15;

/// The time of silence is rounded to this, in seconds: each change of it is sent.
const SILENCE_STEP: u64 = 5;

/// The nodes as JSON. Requests are per minute, the wait is in milliseconds.
pub fn nodes(seen: &NodesSeen, now: Instant) -> Value {
    let more = now.saturating_duration_since(seen.at).as_secs();
    let row = |node: &KnownNode| {
        let (figures, age) = (&node.figures, node.age.saturating_add(more));
        json!({
            "name": node.name,
            "here": node.is_here.then_some(true),
            "silent": (age >= SILENT_SECONDS).then_some(age / SILENCE_STEP * SILENCE_STEP),
            "version": figures.version,
            "ready": figures.ready,
            "reason": figures.reason,
            "saturation": figures.saturation as f64 / 1e3,
            "nearest": figures.nearest,
            "requests": figures.requests,
            "failed": figures.failed,
            "wait": figures.queue_micros as f64 / 1e3,
            "url": figures.url.as_deref().filter(|url| is_origin(url)),
        })
    };
    json!({
        "list": seen.known.nodes.iter().map(row).collect::<Vec<_>>(),
        "more": seen.known.more,
        "problem": seen.problem,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use maitred_control::nodes::{KnownNodes, NodeFigures};

    use super::*;

    #[test]
    fn a_node_that_is_not_heard_is_silent_and_a_strange_address_is_no_link() {
        let node = |age: u64, url: &str| KnownNode {
            name: "n".to_owned(),
            is_here: false,
            age,
            figures: NodeFigures { url: Some(url.to_owned()), ..NodeFigures::default() },
        };
        let nodes_of = |age: u64, url: &str, passed: u64| {
            let known = KnownNodes { nodes: vec![node(age, url)], more: 0 };
            let seen = NodesSeen { known, at: Instant::now(), problem: None };
            let now = seen.at + Duration::from_secs(passed);
            nodes(&seen, now)["list"][0].clone()
        };
        assert!(nodes_of(4, "", 10)["silent"].is_null());
        assert_eq!(nodes_of(4, "", 34)["silent"], 35);
        assert_eq!(nodes_of(1, "https://n.example:9180", 0)["url"], "https://n.example:9180");
        assert!(nodes_of(1, "javascript:alert(1)", 0)["url"].is_null());
    }
}
