//! The nodes with the same purge log, for the dashboard and the metrics.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use maitred_config::Config;
use maitred_control::nodes::{KnownNodes, NodesSeen, NodesStatus};
use maitred_os::clock::since_boot_millis;

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

    /// Takes a report.
    pub fn take(&self, outcome: Result<KnownNodes, String>) {
        let before = self.seen.load();
        let seen = NodesSeen::after(before.as_deref(), outcome, since_boot_millis());
        self.seen.store(Some(Arc::new(seen)));
    }

    /// The nodes as they are now; none: there is no purge log, or no report of it yet.
    pub fn status(&self) -> Option<NodesStatus> {
        self.seen.load().as_ref().map(|seen| seen.status(since_boot_millis()))
    }
}
