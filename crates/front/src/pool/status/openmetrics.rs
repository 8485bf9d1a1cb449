//! php-fpm's OpenMetrics format: the same metrics with the same help texts, so that existing
//! dashboards work. About the pool only, even with `full`.

use std::fmt::Write;

use crate::pool::status::Status;

/// The metric whose two comments php-fpm has in reverse order.
const TYPE_FIRST: &str = "listen_queue_length";

struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: u64,
}

/// The pool's metrics.
pub fn openmetrics(status: &Status) -> String {
    let (pool, manager) = (&status.pool, status.process_manager);
    let mut out = format!(
        "# HELP phpfpm_up Could pool {pool} using a {manager} PM on PHP-FPM be reached?\n\
         # TYPE phpfpm_up gauge\nphpfpm_up 1\n"
    );
    for metric in metrics(status) {
        let Metric { name, kind, help, value } = metric;
        let help = format!("# HELP phpfpm_{name} {help}\n");
        let kind = format!("# TYPE phpfpm_{name} {kind}\n");
        let (first, second) = match name {
            TYPE_FIRST => (kind, help),
            _ => (help, kind),
        };
        let _ = writeln!(out, "{first}{second}phpfpm_{name} {value}");
    }
    out.push_str("# EOF\n");
    out
}

fn counter(name: &'static str, help: &'static str, value: u64) -> Metric {
    let kind = "counter";
    Metric { name, kind, help, value }
}

fn gauge(name: &'static str, help: &'static str, value: impl Into<u64>) -> Metric {
    let (kind, value) = ("gauge", value.into());
    Metric { name, kind, help, value }
}

fn metrics(status: &Status) -> Vec<Metric> {
    let figures = &status.figures;
    let mut metrics = vec![
        counter("start_since", "The number of seconds since FPM has started.", figures.start_since),
        counter(
            "accepted_connections",
            "The number of requests accepted by the pool.",
            figures.accepted,
        ),
        gauge(
            "listen_queue",
            "The number of requests in the queue of pending connections.",
            figures.queued,
        ),
        counter(
            "max_listen_queue",
            "The maximum number of requests in the queue of pending connections since FPM has \
             started.",
            figures.max_queued.into(),
        ),
        gauge(
            "listen_queue_length",
            "The size of the socket queue of pending connections.",
            figures.queue_limit,
        ),
        gauge("idle_processes", "The number of idle processes.", figures.idle),
        gauge("active_processes", "The number of active processes.", figures.active),
        gauge(
            "total_processes",
            "The number of idle + active processes.",
            figures.idle.saturating_add(figures.active),
        ),
        counter(
            "max_active_processes",
            "The maximum number of active processes since FPM has started.",
            figures.max_active.into(),
        ),
        counter(
            "max_children_reached",
            "The number of times, the process limit has been reached, when pm tries to start more \
             children (works only for pm 'dynamic' and 'ondemand').",
            figures.max_children_reached.into(),
        ),
        counter(
            "slow_requests",
            "The number of requests that exceeded your 'request_slowlog_timeout' value.",
            figures.slow,
        ),
    ];
    if status.shows_memory_peak {
        let help = "The memory usage peak since FPM has started.";
        metrics.push(gauge("memory_peak", help, figures.memory_peak));
    }
    metrics
}
