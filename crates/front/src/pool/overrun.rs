//! Timeouts of scripts without a client.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::pool::exchange::Exchange;

/// Enforces the timeouts of a script after its client has disconnected and, with
/// `request_terminate_timeout_track_finished`, after its response is complete.
pub fn watch_left(exchange: Arc<Exchange>) {
    let settings = exchange.pool.settings();
    let limit = |timeout: Duration| Some(timeout).filter(|timeout| !timeout.is_zero());
    let slow = limit(settings.request_slowlog_timeout).filter(|_| !exchange.is_reported_slow());
    let terminate = limit(settings.request_terminate_timeout);
    let is_untracked = exchange.is_detached() && !settings.request_terminate_timeout_track_finished;
    if slow.or(terminate).is_none() || is_untracked || exchange.is_over() {
        return;
    }
    tokio::spawn(async move {
        if let Some(slow) = slow
            && outlives(&exchange, slow).await
        {
            exchange.report_slow();
        }
        if let Some(terminate) = terminate
            && outlives(&exchange, terminate).await
        {
            exchange.end_overrun(false);
        }
    });
}

/// Waits for a script to end, or to have run for `timeout`; true in the latter case.
pub(crate) async fn outlives(exchange: &Arc<Exchange>, timeout: Duration) -> bool {
    let over = poll_fn(|cx| exchange.poll_over(cx));
    let began = exchange.began().unwrap_or_else(Instant::now);
    let deadline = began + timeout;
    tokio::time::timeout_at(deadline.into(), over).await.is_err()
}
