//! The nodes with the same purge log, for the dashboard.

use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwapOption;
use maitred_config::Config;
use maitred_control::nodes::KnownNodes;

/// What is known of the nodes.
#[derive(Debug)]
pub struct NodesSeen {
    /// The nodes, as they were last known.
    pub known: KnownNodes,
    /// When that was.
    pub at: Instant,
    /// Why it is not known by now.
    pub problem: Option<String>,
}

/// The nodes.
#[derive(Debug, Default)]
pub struct Nodes {
    /// `admin_url`.
    url: ArcSwapOption<String>,
    /// None: there is no purge log, or no report of it yet.
    seen: ArcSwapOption<NodesSeen>,
}

impl Nodes {
    /// Follows a configuration.
    pub fn follow(&self, config: &Config) {
        self.url.store(config.admin_access.url.clone().map(Arc::new));
    }

    /// Where browsers reach this node's admin listener.
    pub fn url(&self) -> Option<String> {
        self.url.load().as_ref().map(|url| url.to_string())
    }

    /// Takes a report. Without one, the nodes before stay, and grow old.
    pub fn take(&self, outcome: Result<KnownNodes, String>) {
        let seen = match outcome {
            Ok(known) => NodesSeen { known, at: Instant::now(), problem: None },
            Err(why) => {
                let before = self.seen.load();
                let known = before.as_ref().map(|seen| seen.known.clone()).unwrap_or_default();
                let at = before.as_ref().map_or_else(Instant::now, |seen| seen.at);
                NodesSeen { known, at, problem: Some(why) }
            }
        };
        self.seen.store(Some(Arc::new(seen)));
    }

    /// What is known; none: there is no purge log.
    pub fn seen(&self) -> Option<Arc<NodesSeen>> {
        self.seen.load_full()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_stay_while_the_purge_log_is_not_reached() {
        let nodes = Nodes::default();
        assert!(nodes.seen().is_none());
        nodes.take(Ok(KnownNodes { more: 3, ..KnownNodes::default() }));
        nodes.take(Err("Connection refused".to_owned()));
        let seen = nodes.seen().unwrap();
        assert_eq!((seen.known.more, seen.problem.as_deref()), (3, Some("Connection refused")));
        nodes.take(Ok(KnownNodes::default()));
        let seen = nodes.seen().unwrap();
        assert_eq!((seen.known.more, &seen.problem), (0, &None));
    }
}
