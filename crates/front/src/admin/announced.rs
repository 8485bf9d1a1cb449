//! What this node announces to the others with the same purge log, every few seconds, for their
//! dashboards.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use maitred_control::FromFront;
use maitred_control::nodes::{ANNOUNCED_EVERY, NodeFigures};
use maitred_scoreboard::RequestOutcome;

use crate::admin::node_load;
use crate::admin::readiness::{self, NotReady};
use crate::services::Shared;

/// The time over which requests are counted.
const COUNTED: Duration = Duration::from_secs(60);

/// Counters of requests, and of those that failed, over the last minute.
#[derive(Debug, Default)]
struct Counted(VecDeque<(Instant, [u64; 2])>);

impl Counted {
    /// Takes the counters since the start. Returns the requests per minute, and how many failed.
    fn next(&mut self, now: Instant, totals: [u64; 2]) -> [u64; 2] {
        self.0.push_back((now, totals));
        while self.0.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= COUNTED) {
            self.0.pop_front();
        }
        let Some((began, before)) = self.0.front() else { return [0; 2] };
        // The counters of a pool that is no more are gone.
        let [requests, failed] = [0, 1].map(|index| totals[index].saturating_sub(before[index]));
        let passed = now.duration_since(*began).as_secs_f64();
        let rate = requests as f64 / passed.max(1.0) * COUNTED.as_secs_f64();
        [rate.round() as u64, failed]
    }
}

/// Requests, and those of them that failed or were refused, since the start.
fn totals(shared: &Shared) -> [u64; 2] {
    let pools = shared.pools.all();
    let all =
        pools.iter().filter_map(|pool| pool.metrics().map(|metrics| metrics.page().outcomes()));
    all.fold([0; 2], |[requests, bad], outcomes| {
        let is_bad = |one: RequestOutcome| one.is_failure() || one.is_rejection();
        let of_kind = RequestOutcome::ALL.into_iter().zip(outcomes).filter(|(one, _)| is_bad(*one));
        let more = of_kind.map(|(_, count)| count).sum::<u64>();
        [requests + outcomes.iter().sum::<u64>(), bad + more]
    })
}

/// Announces this node, once its front knows its pools, until another front accepts the clients.
pub async fn announce(shared: Arc<Shared>) {
    let mut counted = Counted::default();
    while !shared.has_handed_over() {
        let [requests, failed] = counted.next(Instant::now(), totals(&shared));
        let (load, node) = (node_load::of(&shared), readiness::look(&shared));
        let reason = readiness::why_not(&node).map(NotReady::kind);
        let whole = |number: f64| number.max(0.0).round() as u64;
        let figures = NodeFigures {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ready: reason.is_none(),
            reason: reason.map(str::to_owned),
            saturation: whole(load.saturation * 1e3),
            nearest: load.nearest,
            requests,
            failed,
            queue_micros: whole(load.queue_seconds * 1e6),
            url: shared.nodes.url(),
        };
        shared.supervisor.report(&FromFront::NodeFigures { figures });
        tokio::time::sleep(ANNOUNCED_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_over_the_last_minute() {
        let (start, mut counted) = (Instant::now(), Counted::default());
        let mut at = |seconds: u64, requests: u64, failed: u64| {
            counted.next(start + Duration::from_secs(seconds), [requests, failed])
        };
        assert_eq!(at(0, 1000, 7), [0, 0]);
        assert_eq!(at(5, 1010, 8), [120, 1]);
        assert_eq!(at(60, 1110, 8), [110, 1]);
        assert_eq!(at(65, 1110, 8), [100, 0], "without what is longer ago");
        assert_eq!(at(70, 5, 0), [0, 0], "a pool is no more");
    }
}
