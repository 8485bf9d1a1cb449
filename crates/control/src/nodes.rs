//! The figures of a node that the nodes with one purge log show each other, for their dashboards.
//! All of them are whole numbers.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::purge_log::plain_node;

/// The time between two announcements of a node.
pub const ANNOUNCED_EVERY: Duration = Duration::from_secs(5);

/// A node is silent from here on, in seconds: it has missed two announcements.
pub const SILENT_SECONDS: u64 = 15;

/// Most nodes that are shown.
pub const MAX_NODES_SHOWN: usize = 64;

/// Longest list of them, in bytes of JSON: it is sent in one message.
pub const MAX_SHOWN_BYTES: usize = 48 * 1024;

/// Longest figures of a node, in bytes of JSON.
pub const MAX_FIGURES_BYTES: usize = 1024;

/// Longest reason, in characters.
const MAX_REASON_CHARS: usize = 60;

/// Longest address, in bytes.
const MAX_URL_BYTES: usize = 160;

/// Longest version and name of a limit, in characters.
const MAX_WORD_CHARS: usize = 20;

/// Most of a figure: it is exact in JavaScript.
const MAX_FIGURE: u64 = 1 << 53;

/// What a node says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeFigures {
    /// Its version.
    pub version: String,
    /// Whether it is ready for clients.
    pub ready: bool,
    /// Why it is not.
    pub reason: Option<String>,
    /// What its requests need of the nearest limit, in thousandths.
    pub saturation: u64,
    /// That limit ([`crate::scale::NodeScale::nearest`]).
    pub nearest: String,
    /// Requests to scripts, per minute, within the last minute.
    pub requests: u64,
    /// Requests within the last minute that failed or were refused.
    pub failed: u64,
    /// 95 of a hundred requests have waited less for a worker, in microseconds.
    pub queue_micros: u64,
    /// Where a browser reaches its admin listener. That of another node may be any text.
    pub url: Option<String>,
}

impl NodeFigures {
    /// The figures of another node, as it has written them; none: they are no figures. Texts are
    /// cut, and a long address is left out.
    pub fn read(text: &str) -> Option<NodeFigures> {
        let is_short = text.len() <= MAX_FIGURES_BYTES;
        let parsed: NodeFigures = serde_json::from_str(text).ok().filter(|_| is_short)?;
        let word = |word: &str| plain_node(word).chars().take(MAX_WORD_CHARS).collect();
        let sentence = |text: String| -> String {
            let text = text.chars().take(MAX_REASON_CHARS);
            text.map(|c| if c.is_control() { ' ' } else { c }).collect()
        };
        let figure = |figure: u64| figure.min(MAX_FIGURE);
        Some(NodeFigures {
            version: word(&parsed.version),
            ready: parsed.ready,
            reason: parsed.reason.map(sentence),
            saturation: figure(parsed.saturation),
            nearest: word(&parsed.nearest),
            requests: figure(parsed.requests),
            failed: figure(parsed.failed),
            queue_micros: figure(parsed.queue_micros),
            url: parsed.url.filter(|url| url.len() <= MAX_URL_BYTES),
        })
    }

    /// As other nodes read it.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// A node that has announced itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownNode {
    /// Its name in the purge log.
    pub name: String,
    /// Whether it is this one.
    pub is_here: bool,
    /// Seconds since its last announcement.
    pub age: u64,
    /// What it says.
    pub figures: NodeFigures,
}

/// The nodes with one purge log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownNodes {
    /// By name, at most [`MAX_NODES_SHOWN`] and [`MAX_SHOWN_BYTES`].
    pub nodes: Vec<KnownNode>,
    /// How many more there are.
    pub more: usize,
}

impl KnownNodes {
    /// These nodes, as many as are shown.
    pub fn of(nodes: Vec<KnownNode>) -> KnownNodes {
        KnownNodes { nodes, more: 0 }.shortened()
    }

    fn shortened(mut self) -> KnownNodes {
        let mut bytes = 0;
        let first = self.nodes.iter().take(MAX_NODES_SHOWN);
        let shown = first.take_while(|node| {
            let json = serde_json::to_vec(node).map_or(MAX_SHOWN_BYTES, |json| json.len());
            bytes += json + 1;
            bytes <= MAX_SHOWN_BYTES
        });
        let shown = shown.count();
        self.more = self.more.saturating_add(self.nodes.len() - shown);
        self.nodes.truncate(shown);
        self
    }

    /// These within all limits, as of a process that is less trusted.
    pub fn bounded(mut self) -> KnownNodes {
        for node in self.nodes.iter_mut().take(MAX_NODES_SHOWN) {
            node.name = plain_node(&node.name);
            node.figures = NodeFigures::read(&node.figures.text()).unwrap_or_default();
        }
        self.shortened()
    }
}

/// What is known of the nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodesSeen {
    /// The nodes, as they were last known.
    pub known: KnownNodes,
    /// When that was, in milliseconds of the machine's clock since its start.
    pub at: u64,
    /// Why it is not known by now.
    pub problem: Option<String>,
}

impl NodesSeen {
    /// What is known after a report at this time. Without one, the nodes of `before` stay, and grow
    /// old.
    pub fn after(
        before: Option<&NodesSeen>,
        outcome: Result<KnownNodes, String>,
        now: u64,
    ) -> NodesSeen {
        match outcome {
            Ok(known) => NodesSeen { known, at: now, problem: None },
            Err(why) => {
                let known = before.map(|seen| seen.known.clone()).unwrap_or_default();
                NodesSeen { known, at: before.map_or(now, |seen| seen.at), problem: Some(why) }
            }
        }
    }

    /// The nodes at this time.
    pub fn status(&self, now: u64) -> NodesStatus {
        let more = now.saturating_sub(self.at) / 1000;
        let status = |node: &KnownNode| NodeStatus::of(node, node.age.saturating_add(more));
        NodesStatus {
            list: self.known.nodes.iter().map(status).collect(),
            more: self.known.more,
            problem: self.problem.clone(),
        }
    }
}

/// The nodes with one purge log, as the status has them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodesStatus {
    /// By name, at most [`MAX_NODES_SHOWN`].
    pub list: Vec<NodeStatus>,
    /// How many more there are.
    pub more: usize,
    /// Why the list is not current.
    pub problem: Option<String>,
}

/// A node, as the status has it: what it says of itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// Its name in the purge log.
    pub name: String,
    /// Whether it is this one.
    pub here: bool,
    /// Seconds since it last announced itself.
    pub age_seconds: u64,
    /// Whether that is too long ago ([`SILENT_SECONDS`]).
    pub silent: bool,
    /// Its version.
    pub version: String,
    /// Whether it is ready for clients.
    pub ready: bool,
    /// Why it is not.
    pub reason: Option<String>,
    /// What its requests need as a part of its nearest limit.
    pub saturation: f64,
    /// That limit.
    pub nearest: String,
    /// Requests to scripts within the last minute.
    pub requests_per_minute: u64,
    /// Those of them that failed or were refused.
    pub failed_per_minute: u64,
    /// 95 of a hundred requests have waited less for a worker.
    pub queue_seconds: f64,
    /// Where a browser reaches its admin listener; of another node, any text.
    pub url: Option<String>,
}

impl NodeStatus {
    fn of(node: &KnownNode, age: u64) -> NodeStatus {
        let figures = node.figures.clone();
        NodeStatus {
            name: node.name.clone(),
            here: node.is_here,
            age_seconds: age,
            silent: age >= SILENT_SECONDS,
            version: figures.version,
            ready: figures.ready,
            reason: figures.reason,
            saturation: figures.saturation as f64 / 1e3,
            nearest: figures.nearest,
            requests_per_minute: figures.requests,
            failed_per_minute: figures.failed,
            queue_seconds: figures.queue_micros as f64 / 1e6,
            url: figures.url,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_stay_and_grow_old_while_there_is_no_report() {
        let node = |name: &str| KnownNode {
            name: name.to_owned(),
            is_here: false,
            age: 4,
            figures: NodeFigures { saturation: 630, queue_micros: 2500, ..NodeFigures::default() },
        };
        let known = KnownNodes { nodes: vec![node("n")], more: 3 };
        let seen = NodesSeen::after(None, Ok(known), 1000);
        let status = seen.status(11_900);
        assert_eq!((status.list[0].age_seconds, status.list[0].silent), (14, false));
        assert_eq!((status.list[0].saturation, status.list[0].queue_seconds), (0.63, 0.0025));
        let seen = NodesSeen::after(Some(&seen), Err("Connection refused".to_owned()), 12_000);
        let status = seen.status(12_000);
        assert_eq!((status.more, status.problem.as_deref()), (3, Some("Connection refused")));
        assert_eq!((status.list[0].age_seconds, status.list[0].silent), (15, true));
        let seen = NodesSeen::after(Some(&seen), Ok(KnownNodes::default()), 13_000);
        assert_eq!(seen.status(13_000), NodesStatus::default());
        let none = NodesSeen::after(None, Err("no".to_owned()), 5);
        assert_eq!((none.at, none.status(7).list), (5, Vec::new()));
    }

    #[test]
    fn figures_are_read_as_they_are_written_and_hostile_ones_do_no_harm() {
        let figures = NodeFigures {
            version: "0.1.0".to_owned(),
            reason: Some("no pool has a worker".to_owned()),
            saturation: 630,
            nearest: "max_children".to_owned(),
            url: Some("https://node1.example:9180".to_owned()),
            ..NodeFigures::default()
        };
        assert_eq!(NodeFigures::read(&figures.text()), Some(figures));
        let hostile = NodeFigures {
            version: "<b>\x1b[2J".repeat(9),
            reason: Some("\u{1f40c}\n".repeat(40)),
            requests: u64::MAX,
            url: Some("http://".repeat(40)),
            ..NodeFigures::default()
        };
        let read = NodeFigures::read(&hostile.text()).unwrap();
        assert_eq!((read.version.as_str(), read.url), ("?b??[2J?b??[2J?b??[2", None));
        assert_eq!(read.reason.map(|reason| reason.chars().count()), Some(MAX_REASON_CHARS));
        assert_eq!(read.requests, MAX_FIGURE);
        for wrong in ["", "{\"requests\":-1}", "{\"ready\":\"yes\"}", "{", "1e400"] {
            assert_eq!(NodeFigures::read(wrong), None, "{wrong}");
        }
        assert_eq!(NodeFigures::read("{}"), Some(NodeFigures::default()), "of another version");
        let long = format!("{{\"version\":\"{}\"}}", "x".repeat(MAX_FIGURES_BYTES));
        assert_eq!(NodeFigures::read(&long), None);
    }
}
