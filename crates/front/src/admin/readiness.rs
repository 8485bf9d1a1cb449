//! Whether this node is ready for the requests of a load balancer: `/ready`, `/startup` and `/live`
//! of the admin listener. The decision is pure: the state of the front and its pools in, the
//! verdict out.

use std::sync::atomic::Ordering;
use std::time::Duration;

use maitred_control::admin::Readiness;
use serde_json::json;

use crate::pool::health::{PoolHealth, PoolState};
use crate::pool::status::StatusPage;
use crate::services::Shared;

/// A pool sheds load for this time after it has rejected a request, so that a node whose pool
/// rejects every other request does not come and go.
const SHEDS_FOR: Duration = Duration::from_secs(5);

/// This node, as far as readiness depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeHealth {
    /// The server stops, soon or now.
    pub stops: bool,
    /// Its start is over. A pool that a reload adds later starts beside the others.
    pub has_started: bool,
    /// All pools.
    pub pools: Vec<PoolHealth>,
    /// A pool that sheds load makes the node not ready (`ready_sheds`).
    pub ready_sheds: bool,
}

/// Why a node is not ready, with the name of the pool that it is due to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotReady<'n> {
    /// The server stops, soon or now.
    Stops,
    /// A pool starts for the first time.
    Starts(&'n str),
    /// No pool can serve.
    NoWorker,
    /// A pool rejects requests.
    Sheds(&'n str),
}

impl NotReady<'_> {
    /// For this node's clients.
    fn words(self) -> String {
        match self {
            NotReady::Starts(pool) => format!("pool {pool} is starting"),
            NotReady::Sheds(pool) => format!("pool {pool} sheds load"),
            NotReady::Stops | NotReady::NoWorker => self.kind().to_owned(),
        }
    }

    /// For other nodes, whose clients may not know the names of this one's pools.
    pub fn kind(self) -> &'static str {
        match self {
            NotReady::Stops => "the server stops",
            NotReady::Starts(_) => "a pool is starting",
            NotReady::NoWorker => "no pool has a worker",
            NotReady::Sheds(_) => "a pool sheds load",
        }
    }
}

/// Decides why a node is not ready; `None`: it is. A single pool without a worker is its site's
/// matter: the others are served here as well as anywhere.
pub fn why_not(node: &NodeHealth) -> Option<NotReady<'_>> {
    let first = |is: fn(&PoolHealth) -> bool| node.pools.iter().find(|pool| is(pool));
    let booting = first(|pool| pool.state == PoolState::Booting).filter(|_| !node.has_started);
    let can_serve = first(|pool| pool.state.can_serve());
    let sheds = first(|pool| pool.rejected.is_some_and(|since| since < SHEDS_FOR));
    match (booting, sheds.filter(|_| node.ready_sheds)) {
        _ if node.stops => Some(NotReady::Stops),
        (Some(pool), _) => Some(NotReady::Starts(&pool.name)),
        _ if can_serve.is_none() && !node.pools.is_empty() => Some(NotReady::NoWorker),
        (None, Some(pool)) => Some(NotReady::Sheds(&pool.name)),
        (None, None) => None,
    }
}

/// The verdict on a node, with the state of each pool.
pub fn decide(node: &NodeHealth) -> Readiness {
    let reason = why_not(node).map(NotReady::words);
    let pools = node.pools.iter().map(|pool| (pool.name.clone(), pool.state.name().to_owned()));
    Readiness { ready: reason.is_none(), reason, pools: pools.collect() }
}

/// Whether no pool starts for the first time. Before the front has carried out its introduction
/// (`is_introduced`), it does not know all pools.
pub fn are_started(pools: &[PoolHealth], is_introduced: bool) -> bool {
    is_introduced && pools.iter().all(|pool| pool.state != PoolState::Booting)
}

/// The readiness of this node now.
pub fn of(shared: &Shared) -> Readiness {
    decide(&note(shared))
}

/// This node now. That its start is over is noted for good.
fn note(shared: &Shared) -> NodeHealth {
    let node = look(shared);
    if node.has_started {
        shared.has_started.store(true, Ordering::Relaxed);
    }
    node
}

/// This node now.
pub fn look(shared: &Shared) -> NodeHealth {
    let pools: Vec<_> = shared.pools.all().iter().map(|pool| pool.health()).collect();
    let is_introduced = shared.is_introduced.load(Ordering::Relaxed);
    NodeHealth {
        stops: shared.closes_connections(),
        has_started: shared.has_started.load(Ordering::Relaxed)
            || are_started(&pools, is_introduced),
        pools,
        ready_sheds: shared.ready_sheds.load(Ordering::Relaxed),
    }
}

/// `/ready`.
pub fn ready_page(shared: &Shared) -> StatusPage {
    let readiness = of(shared);
    let body = serde_json::to_string(&readiness).unwrap_or_default();
    page(readiness.ready, body)
}

/// `/startup`. A node that has started once stays so.
pub fn startup_page(shared: &Shared) -> StatusPage {
    let node = note(shared);
    let starts = || "the server is starting".to_owned();
    let reason = (!node.has_started).then(|| decide(&node).reason.unwrap_or_else(starts));
    let body = json!({ "started": node.has_started, "reason": reason });
    page(node.has_started, body.to_string())
}

/// `/live`: that there is a response shows it.
pub fn live_page() -> StatusPage {
    page(true, json!({ "live": true }).to_string())
}

fn page(is_well: bool, body: String) -> StatusPage {
    let status = if is_well { 200 } else { 503 };
    StatusPage::new("application/json", body + "\n").with_status(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(states: &[PoolState]) -> NodeHealth {
        let pools = states.iter().enumerate().map(|(number, state)| PoolHealth {
            name: format!("p{number}"),
            state: *state,
            rejected: None,
        });
        let pools = pools.collect();
        NodeHealth { stops: false, has_started: false, pools, ready_sheds: false }
    }

    fn reason(node: &NodeHealth) -> Option<String> {
        let readiness = decide(node);
        assert_eq!(readiness.ready, readiness.reason.is_none());
        readiness.reason
    }

    #[test]
    fn a_node_is_ready_when_a_pool_can_serve_and_none_starts() {
        use PoolState::*;
        for states in [&[][..], &[Serving], &[Resting], &[Serving, Failed], &[NoWorker, Resting]] {
            assert_eq!(reason(&node(states)), None, "{states:?}");
        }
        for states in [&[Failed][..], &[NoWorker], &[NoWorker, Failed]] {
            assert_eq!(reason(&node(states)).as_deref(), Some("no pool has a worker"));
        }
        let starts = Some("pool p1 is starting".to_owned());
        let starting = node(&[Serving, Booting]);
        assert_eq!(reason(&starting), starts);
        assert!(!are_started(&starting.pools, true) && are_started(&node(&[Failed]).pools, true));
        assert_eq!(reason(&NodeHealth { has_started: true, ..starting }), None);
    }

    #[test]
    fn a_node_has_not_started_before_it_knows_its_pools() {
        use PoolState::*;
        for states in [&[][..], &[Serving]] {
            let pools = node(states).pools;
            assert!(!are_started(&pools, false) && are_started(&pools, true), "{states:?}");
        }
        assert!(!are_started(&node(&[Booting]).pools, true));
    }

    #[test]
    fn other_nodes_learn_the_kind_of_a_reason_without_a_pools_name() {
        let mut one = node(&[PoolState::Serving, PoolState::Booting]);
        let kind = |node: &NodeHealth| why_not(node).map(NotReady::kind);
        assert_eq!(kind(&one), Some("a pool is starting"));
        one.has_started = true;
        assert_eq!(kind(&one), None);
        one.ready_sheds = true;
        one.pools[0].rejected = Some(Duration::ZERO);
        assert_eq!(kind(&one), Some("a pool sheds load"));
        assert_eq!(kind(&node(&[PoolState::Failed])), Some("no pool has a worker"));
    }

    #[test]
    fn a_node_that_stops_is_not_ready_whatever_its_pools_can() {
        let stops = NodeHealth { stops: true, ..node(&[PoolState::Serving]) };
        assert_eq!(reason(&stops).as_deref(), Some("the server stops"));
    }

    #[test]
    fn a_pool_that_sheds_load_counts_only_where_that_is_configured_and_for_a_while() {
        let mut sheds = node(&[PoolState::Serving, PoolState::Serving]);
        sheds.pools[1].rejected = Some(SHEDS_FOR - Duration::from_millis(1));
        assert_eq!(reason(&sheds), None);
        sheds.ready_sheds = true;
        assert_eq!(reason(&sheds).as_deref(), Some("pool p1 sheds load"));
        sheds.pools[1].rejected = Some(SHEDS_FOR);
        assert_eq!(reason(&sheds), None);
    }

    #[test]
    fn the_state_of_each_pool_is_in_the_reply() {
        let readiness = decide(&node(&[PoolState::NoWorker, PoolState::Resting]));
        let pools: Vec<_> = readiness.pools.into_iter().collect();
        let expected = [("p0", "no worker"), ("p1", "resting")];
        assert_eq!(pools, expected.map(|(name, state)| (name.to_owned(), state.to_owned())));
    }
}
