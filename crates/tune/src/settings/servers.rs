//! The settings of each server, in the order of the report.

use super::{
    DEFAULT_MEMORY_LIMIT, GUIDE_RESERVE, Recommendation, ScriptLimit, Server, SettingInputs,
    limits, megabytes, resources, setting,
};

/// Threads of a child of Apache's event MPM.
const THREADS_PER_CHILD: u32 = 25;

pub(super) fn php_fpm(inputs: &SettingInputs) -> Vec<Recommendation> {
    let server = Server::PhpFpm;
    let pm = setting(server, "pm", "pm_static", "static", "all workers fit into memory at once");
    let spares =
        setting(server, "pm.start_servers, min_spare, max_spare", "spares", "none", "pm = static");
    let idle = setting(server, "pm.process_idle_timeout", "idle_timeout", "none", "pm = static");
    let queue = format!("{:.0}", inputs.queue());
    let backlog = setting(server, "listen.backlog", "backlog", queue, inputs.rate_and_limit());
    let waiting = 8_192.0 / inputs.rate.max(1e-9);
    vec![
        Recommendation { is_proven: inputs.is_proven, ..pm },
        workers(server, "pm.max_children", inputs),
        Recommendation { guide: guides_spares(inputs.workers), ..spares },
        idle,
        max_requests(server, "pm.max_requests", inputs),
        limits::wall(server, "request_terminate_timeout", inputs),
        limits::processor(server, "php_value[max_execution_time]", inputs),
        Recommendation {
            why: format!(
                "8192 are {waiting:.1} s of waiting here; php-fpm runs requests whose clients have \
                 left (W19)"
            ),
            ..backlog
        },
        limits::memory(server, "php_value[memory_limit]", inputs),
        resources::open_files(server, "rlimit_files", inputs),
        resources::opcache(server, "opcache.memory_consumption (php.ini)", inputs),
        resources::strings(server, "opcache.interned_strings_buffer (php.ini)", inputs),
        resources::scripts(server, "opcache.max_accelerated_files (php.ini)", inputs),
        limits::reload(server, "process_control_timeout", inputs),
    ]
}

pub(super) fn nginx(inputs: &SettingInputs) -> Vec<Recommendation> {
    let server = Server::Nginx;
    let connections = inputs.connections();
    let count = format!("{connections:.0}");
    let name = "worker_connections";
    vec![
        limits::web_server(server, "fastcgi_read_timeout", "s", inputs),
        setting(server, name, name, &count, inputs.rate_and_limit()),
        setting(
            server,
            "worker_rlimit_nofile",
            "worker_rlimit_nofile",
            format!("{:.0}", 2.0 * connections + 64.0),
            format!("worker_connections {count}"),
        ),
    ]
}

pub(super) fn apache(inputs: &SettingInputs) -> Vec<Recommendation> {
    let server = Server::Apache;
    let busy = (inputs.queue() + f64::from(inputs.workers)) as u32;
    let children = busy.div_ceil(THREADS_PER_CHILD).max(1);
    let threads = children * THREADS_PER_CHILD;
    let name = "MaxRequestWorkers (event, with php-fpm)";
    let per_child = "ThreadsPerChild";
    vec![
        setting(server, name, "max_request_workers", threads, inputs.rate_and_limit()),
        setting(server, "ServerLimit (event)", "server_limit", children, "MaxRequestWorkers"),
        setting(server, per_child, "threads_per_child", THREADS_PER_CHILD, "nothing"),
        Recommendation {
            is_proven: false,
            ..workers(server, "MaxRequestWorkers (prefork, with mod_php)", inputs)
        },
        max_requests(server, "MaxConnectionsPerChild (prefork)", inputs),
        limits::web_server(server, "ProxyTimeout", "", inputs),
    ]
}

pub(super) fn sysctl(inputs: &SettingInputs) -> Vec<Recommendation> {
    let backlog = inputs.queue();
    let now = inputs.somaxconn.unwrap_or(0) as f64;
    let value = format!("{:.0}", backlog.max(now));
    let measured = format!("it is {now:.0}, and a backlog of {backlog:.0} is wanted");
    vec![setting(Server::Sysctl, "net.core.somaxconn", "somaxconn", value, measured)]
}

pub(super) fn maitred(inputs: &SettingInputs) -> Vec<Recommendation> {
    let server = Server::Maitred;
    let rate = || inputs.rate_and_limit();
    let timeout = format!("{:.0}ms", inputs.limit * 1e3);
    let length = format!("{:.0}", inputs.queue());
    let opcache = "php_admin_value.\"opcache.memory_consumption\"";
    let strings = "php_admin_value.\"opcache.interned_strings_buffer\"";
    let scripts = "php_admin_value.\"opcache.max_accelerated_files\"";
    vec![
        setting(server, "pm", "pm_auto", "auto", "throughput of fixed numbers of workers"),
        workers(server, "max_children", inputs),
        setting(server, "request_queue_timeout", "queue_timeout", timeout, rate()),
        setting(server, "request_queue_length", "queue_length", length, rate()),
        limits::wall(server, "request_terminate_timeout", inputs),
        limits::processor(server, "php_value.max_execution_time", inputs),
        max_requests(server, "max_requests", inputs),
        limits::memory(server, "php_value.memory_limit", inputs),
        resources::most_private(server, inputs),
        resources::memory_max(server, inputs),
        resources::spawn_rate(server, inputs),
        resources::open_files(server, "rlimit_files", inputs),
        resources::opcache(server, opcache, inputs),
        resources::strings(server, strings, inputs),
        resources::scripts(server, scripts, inputs),
        resources::page_cache(server, inputs),
    ]
}

fn workers(server: Server, name: &'static str, inputs: &SettingInputs) -> Recommendation {
    let (private, resident) = (megabytes(inputs.private), megabytes(inputs.resident));
    let measured = format!(
        "throughput by number of workers; a worker's own memory is {private}, its RSS {resident}"
    );
    Recommendation {
        formula: format!(
            "the fewest that serve {:.0} % of the highest throughput; binding: {}",
            inputs.enough * 100.0,
            inputs.binding
        ),
        guide: guides_workers(inputs),
        is_proven: inputs.is_proven,
        ..setting(server, name, "workers", inputs.workers, measured)
    }
}

/// The numbers of workers that guides would compute (R21, R24, R65).
fn guides_workers(inputs: &SettingInputs) -> String {
    let mut found = Vec::new();
    if let Some(rest) = inputs.total.map(|total| total - GUIDE_RESERVE) {
        let fits = |each: f64| (rest / each).max(0.0).floor();
        let limit = match inputs.memory_limit {
            ScriptLimit::Unknown => Some(DEFAULT_MEMORY_LIMIT),
            known => known.bounds(),
        };
        found.push(match limit {
            Some(limit) => format!("{:.0} by memory_limit (R21)", fits(limit)),
            None => "none by memory_limit, which is no limit (R21)".to_owned(),
        });
        if let Some(resident) = inputs.resident.filter(|resident| *resident > 0.0) {
            found.push(format!("{:.0} by RSS (R24)", fits(resident)));
        }
    }
    let (least, most) = (inputs.cores * 2.0, inputs.cores * 4.0);
    found.push(format!("{least:.0} to {most:.0} by processors (R65)"));
    found.join(", ")
}

fn guides_spares(workers: u32) -> String {
    let workers = f64::from(workers);
    let (min, max) = ((workers * 0.2).round(), (workers * 0.6).round());
    format!("{:.0}, {min:.0}, {max:.0}", min + (workers - min) / 2.0)
}

fn max_requests(server: Server, name: &'static str, inputs: &SettingInputs) -> Recommendation {
    let value = format!("{:.0}", inputs.max_requests().unwrap_or(0.0));
    let measured = match inputs.leak {
        Some(leak) => format!("a worker grows by {:.1} kB with each request", leak / 1_024.0),
        None => "no growth of workers was seen".to_owned(),
    };
    setting(server, name, "max_requests", value, measured)
}
