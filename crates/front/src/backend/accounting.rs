//! Counts the outcome and the times of a request on its pool's scoreboard.

use std::sync::Arc;
use std::time::Duration;

use maitred_scoreboard::{RequestOutcome, RequestTimes};
use maitred_seat::Spent;

use crate::backend::Backend;
use crate::backend::progress::ScriptProgress;
use crate::backend::run::Run;
use crate::pool::exchange::Exchange;
use crate::pool::health::is_shed;
use crate::pool::metrics::PoolMetrics;
use crate::runtime::background;

/// Counts a request that has ended, on a thread of the front.
pub fn count(run: &Run<'_>, thread: u32, outcome: RequestOutcome, progress: &ScriptProgress) {
    let Backend::Pool(pool) = run.backend else {
        return;
    };
    let Some(metrics) = pool.metrics() else {
        return;
    };
    metrics.page().thread(thread).count(outcome);
    if is_shed(outcome) {
        pool.last_rejection.note();
    }
    let waited =
        if outcome.is_end_of_wait() { Some(progress.began.elapsed()) } else { progress.queued };
    let Some(waited) = waited else { return };
    // A part of the wait, by a time that the worker may have set to any.
    let boot = progress.boot.unwrap_or_default().min(waited);
    let took = RequestTimes { boot, ..took(waited, progress.script, progress.spent) };
    match &progress.going_on {
        None => metrics.observe(thread, run.target, &took),
        Some(exchange) => observe_later(exchange, metrics, thread, run.target, took),
    }
}

/// Counts a script that continues after its response once it has ended: all of it belongs to its
/// request.
fn observe_later(
    exchange: &Exchange,
    metrics: &Arc<PoolMetrics>,
    thread: u32,
    target: &str,
    until_response: RequestTimes,
) {
    let (metrics, target, end) = (metrics.clone(), target.to_owned(), exchange.at_end());
    background::write(async move {
        let took = match end.await {
            Ok(Some(all)) => RequestTimes {
                boot: until_response.boot,
                ..took(until_response.waited, Some(all.held), Some(all))
            },
            // Its worker died.
            Ok(None) | Err(_) => until_response,
        };
        metrics.observe(thread, &target, &took);
    });
}

fn took(waited: Duration, script: Option<Duration>, spent: Option<Spent>) -> RequestTimes {
    let mut took = RequestTimes { waited, script, ..RequestTimes::default() };
    if let Some(spent) = &spent {
        (took.cpu, took.children) = (Some(spent.cpu), spent.children);
        (took.core_wait, took.blocked) = (spent.core_wait, spent.blocked());
        took.peak_memory = spent.peak_memory;
    }
    took
}
