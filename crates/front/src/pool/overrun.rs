//! Scripts that run on although their client has left.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::pool::exchange::Exchange;

/// A script whose client has left still runs no longer than it may, and is told of if it is slow; so
/// does what a script does after its answer where the pool asks for that, as with php-fpm.
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
            exchange.end_overrun();
        }
    });
}

/// Waits for a script to end, or to have run for as long as `timeout`.
pub(crate) async fn outlives(exchange: &Arc<Exchange>, timeout: Duration) -> bool {
    let over = poll_fn(|cx| exchange.poll_over(cx));
    let began = exchange.began().unwrap_or_else(Instant::now);
    let deadline = began + timeout;
    tokio::time::timeout_at(deadline.into(), over)
        .await
        .is_err()
}
