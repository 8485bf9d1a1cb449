//! Settings of web servers and the kernel.

use super::{Recommendation, Server, SettingInputs, limits, line, max_requests, rate_of, workers};

/// Threads of a child of Apache's event MPM.
const THREADS_PER_CHILD: u32 = 25;

pub(super) fn nginx(inputs: &SettingInputs) -> Vec<Recommendation> {
    let server = Server::Nginx;
    let connections = inputs.connections();
    vec![
        limits::web_server(
            server,
            "fastcgi_read_timeout",
            "s",
            &["R70", "R127"],
            inputs,
        ),
        line(
            server,
            "worker_connections",
            format!("{connections:.0}"),
            &["R139", "R211"],
        )
        .measured(
            rate_of(inputs),
            "2 x (workers + rate x limit), up to the next power of two",
        )
        .guide(
            "768 to 1024",
            "a request that waits for PHP has two connections",
        ),
        line(
            server,
            "worker_rlimit_nofile",
            format!("{:.0}", 2.0 * connections + 64.0),
            &["R1", "R211"],
        )
        .measured(
            format!("worker_connections {connections:.0}"),
            "2 x that + 64",
        )
        .guide("65535", "more does no harm and is of no use"),
    ]
}

pub(super) fn apache(inputs: &SettingInputs) -> Vec<Recommendation> {
    let server = Server::Apache;
    let busy = (inputs.queue() + f64::from(inputs.workers)) as u32;
    let children = busy.div_ceil(THREADS_PER_CHILD).max(1);
    vec![
        line(
            server,
            "MaxRequestWorkers (event, with php-fpm)",
            children * THREADS_PER_CHILD,
            &["R160"],
        )
        .measured(rate_of(inputs), "workers + rate x limit, in whole children")
        .guide(
            "150 to 400",
            "its threads only wait for php-fpm, whose workers are what is scarce",
        ),
        line(server, "ServerLimit (event)", children, &["R160", "R161"])
            .measured("MaxRequestWorkers", "MaxRequestWorkers / ThreadsPerChild")
            .guide("16", "the guides' formula is right"),
        line(server, "ThreadsPerChild", THREADS_PER_CHILD, &["R160"])
            .measured("nothing", "Apache's default")
            .guide("25", "the same"),
        workers(server, "MaxRequestWorkers (prefork, with mod_php)", inputs).proven(false),
        max_requests(server, "MaxConnectionsPerChild (prefork)", inputs),
        limits::web_server(server, "ProxyTimeout", "", &["R70"], inputs),
    ]
}

pub(super) fn sysctl(inputs: &SettingInputs) -> Vec<Recommendation> {
    let backlog = inputs.queue();
    let now = inputs.somaxconn.unwrap_or(0) as f64;
    let value = backlog.max(now);
    vec![
        line(
            Server::Sysctl,
            "net.core.somaxconn",
            format!("{value:.0}"),
            &["R84", "R85", "R211"],
        )
        .measured(
            format!("it is {now:.0}, and a backlog of {backlog:.0} is wanted"),
            "no less than the backlog, and as it is if it is no less",
        )
        .guide(
            "4000 to 65535",
            "the kernel's default is 4096 since 5.4; a longer queue is a later answer",
        ),
    ]
}
