//! The figures of nodes for their dashboards, without Redis: what each peer has announced last.
//! Pure.

use std::net::SocketAddr;

use maitred_control::nodes::{
    KnownNode, KnownNodes, MAX_FIGURES_BYTES, NodeFigures, SILENT_SECONDS,
};
use maitred_control::purge_log::plain_node;

use super::peer_messages::PeerMessage;
use crate::Millis;

/// What a peer has announced.
#[derive(Debug)]
struct Heard {
    name: String,
    text: String,
    at: Millis,
}

/// What this node and its peers have announced.
#[derive(Debug)]
pub struct PeerFigures {
    name: String,
    mine: Option<NodeFigures>,
    addresses: Vec<SocketAddr>,
    heard: Vec<Option<Heard>>,
    /// When this process began to listen.
    began: Millis,
}

impl PeerFigures {
    /// None yet, of this node and the peers at these addresses.
    pub fn new(node: &str, addresses: &[SocketAddr], now: Millis) -> PeerFigures {
        PeerFigures {
            name: plain_node(node),
            mine: None,
            addresses: addresses.to_vec(),
            heard: addresses.iter().map(|_| None).collect(),
            began: now,
        }
    }

    /// Takes those of this node.
    pub fn announce(&mut self, mine: NodeFigures) {
        self.mine = Some(mine);
    }

    /// Those of this node for a peer, if there are any.
    pub fn message(&self) -> Option<PeerMessage> {
        let text = self.mine.as_ref()?.text();
        Some(PeerMessage::Figures { name: self.name.clone(), text })
    }

    /// Takes those of a peer. They are read when they are shown: a peer may send many.
    pub fn take(&mut self, peer: usize, message: PeerMessage, now: Millis) {
        if let PeerMessage::Figures { name, text } = message
            && text.len() <= MAX_FIGURES_BYTES
            && let Some(heard) = self.heard.get_mut(peer)
        {
            *heard = Some(Heard { name, text, at: now });
        }
    }

    /// All nodes, by name: this one, peers that have announced themselves, however long ago, and
    /// those that are not connected. One that is and announces nothing is of an earlier version.
    pub fn nodes(&self, now: Millis, is_connected: impl Fn(usize) -> bool) -> KnownNodes {
        let mine = self.mine.clone().map(|figures| KnownNode {
            name: self.name.clone(),
            is_here: true,
            age: 0,
            figures,
        });
        let mut nodes: Vec<KnownNode> = mine.into_iter().collect();
        for (peer, (heard, address)) in self.heard.iter().zip(&self.addresses).enumerate() {
            let since = heard.as_ref().map_or(self.began, |heard| heard.at);
            let age = now.saturating_sub(since) / 1000;
            let figures = heard.as_ref().and_then(|heard| NodeFigures::read(&heard.text));
            let is_lost = age >= SILENT_SECONDS && !is_connected(peer);
            let Some(figures) = figures.or_else(|| is_lost.then(NodeFigures::default)) else {
                continue;
            };
            let name = heard.as_ref().map(|heard| plain_node(&heard.name)).unwrap_or_default();
            // Names are to differ.
            let is_own = !name.is_empty() && nodes.iter().all(|node| node.name != name);
            let name = if is_own { name } else { address.to_string() };
            nodes.push(KnownNode { name, is_here: false, age, figures });
        }
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        KnownNodes { nodes, more: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(name: &str, text: &str) -> PeerMessage {
        PeerMessage::Figures { name: name.to_owned(), text: text.to_owned() }
    }

    fn of_three() -> PeerFigures {
        let addresses = ["10.0.0.2:7700", "10.0.0.3:7700"].map(|one| one.parse().unwrap());
        PeerFigures::new("b", &addresses, 1000)
    }

    /// Name, age and whether it is this node, of each.
    fn shown(known: &KnownNodes) -> Vec<(&str, u64, bool)> {
        known.nodes.iter().map(|one| (one.name.as_str(), one.age, one.is_here)).collect()
    }

    #[test]
    fn peers_are_shown_with_what_they_say_and_those_that_are_lost_as_silent() {
        let mut all = of_three();
        assert_eq!((all.message(), all.nodes(1000, |_| false)), (None, KnownNodes::default()));
        let mine = NodeFigures { requests: 5, ..NodeFigures::default() };
        all.announce(mine.clone());
        assert_eq!(all.message(), Some(figures("b", &mine.text())));
        all.take(0, figures("a", "{\"requests\":7}"), 4000);
        let known = all.nodes(9000, |_| true);
        assert_eq!(shown(&known), [("a", 5, false), ("b", 0, true)]);
        assert_eq!(known.nodes[0].figures.requests, 7);
        // One that has announced nothing is of an earlier version, or lost.
        assert_eq!(all.nodes(99_000, |_| true).nodes.len(), 2);
        let known = all.nodes(99_000, |_| false);
        assert_eq!(shown(&known), [("10.0.0.3:7700", 98, false), ("a", 95, false), ("b", 0, true)]);
        assert!(!known.nodes[0].figures.ready);
    }

    #[test]
    fn hostile_figures_are_cut_or_left_out_and_take_no_other_name() {
        let mut all = of_three();
        all.announce(NodeFigures::default());
        all.take(0, figures("b", "{\"version\":\"<b>\\u001b[2J\"}"), 1000);
        all.take(1, figures("\x1b[2J", &"x".repeat(MAX_FIGURES_BYTES + 1)), 1000);
        all.take(7, figures("none", "{}"), 1000);
        let known = all.nodes(1000, |_| true);
        assert_eq!(shown(&known), [("10.0.0.2:7700", 0, false), ("b", 0, true)]);
        assert_eq!(known.nodes[0].figures.version, "?b??[2J");
        for wrong in ["", "[", "{\"ready\":1}"] {
            all.take(1, figures("\x1b[2J", wrong), 2000);
            assert_eq!(all.nodes(2000, |_| true).nodes.len(), 2, "{wrong}");
        }
        all.take(1, figures("\x1b[2J", "{}"), 2000);
        assert_eq!(shown(&all.nodes(2000, |_| true))[1], ("?[2J", 0, false));
    }
}
