//! What `php-fpm -tt` prints of the configuration (`fpm_conf_dump`).

use super::check::DEFAULT_LEVEL;
use super::draft::{Draft, Globals, PoolDraft};
use crate::model::pool::ProcessManager;

/// The lines, without their time and level.
pub(super) fn dump(draft: &Draft) -> Vec<String> {
    let mut lines = Vec::new();
    dump_globals(&draft.globals, &mut lines);
    let pools = draft.pools.iter().filter(|pool| pool.status_of.is_none());
    for pool in pools {
        dump_pool(pool, &mut lines);
    }
    lines
}

fn text(value: &Option<String>) -> &str {
    value.as_deref().unwrap_or("undefined")
}

fn switch(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

fn number(value: Option<i32>) -> String {
    value.map_or_else(|| "undefined".to_owned(), |value| value.to_string())
}

fn dump_globals(from: &Globals, lines: &mut Vec<String>) {
    let level = from.log_level.unwrap_or(DEFAULT_LEVEL).name();
    let mechanism = from.events_mechanism.as_deref().unwrap_or("epoll");
    let interval = from.systemd_interval.unwrap_or_default();
    lines.extend([
        "[global]".to_owned(),
        format!("\tpid = {}", text(&from.pid)),
        format!("\terror_log = {}", text(&from.error_log)),
        format!("\tsyslog.ident = {}", text(&from.syslog_ident)),
        format!(
            "\tsyslog.facility = {}",
            from.syslog_facility.unwrap_or_default()
        ),
        format!("\tlog_buffering = {}", switch(from.log_buffering)),
        format!("\tlog_level = {level}"),
        format!("\tlog_limit = {}", from.log_limit),
        format!(
            "\temergency_restart_interval = {}s",
            from.emergency_restart_interval
        ),
        format!(
            "\temergency_restart_threshold = {}",
            from.emergency_restart_threshold
        ),
        format!(
            "\tprocess_control_timeout = {}s",
            from.process_control_timeout
        ),
        format!("\tprocess.max = {}", from.process_max),
        format!("\tprocess.priority = {}", number(from.process_priority)),
        format!("\tdaemonize = {}", switch(from.daemonize)),
        format!("\trlimit_files = {}", from.rlimit_files),
        format!("\trlimit_core = {}", from.rlimit_core),
        format!("\tevents.mechanism = {mechanism}"),
        format!("\tsystemd_interval = {interval}s"),
        " ".to_owned(),
    ]);
}

fn dump_pool(from: &PoolDraft, lines: &mut Vec<String>) {
    let manager = from.pm.map_or("ondemand", ProcessManager::name);
    lines.extend([
        format!("[{}]", from.name),
        format!("\tprefix = {}", text(&from.prefix)),
        format!("\tuser = {}", text(&from.user)),
        format!("\tgroup = {}", text(&from.group)),
        format!("\tlisten = {}", text(&from.listen)),
        format!("\tlisten.backlog = {}", from.listen_backlog),
        format!("\tlisten.acl_users = {}", text(&from.listen_acl_users)),
        format!("\tlisten.acl_groups = {}", text(&from.listen_acl_groups)),
        format!("\tlisten.owner = {}", text(&from.listen_owner)),
        format!("\tlisten.group = {}", text(&from.listen_group)),
        format!("\tlisten.mode = {}", text(&from.listen_mode)),
        format!(
            "\tlisten.allowed_clients = {}",
            text(&from.listen_allowed_clients)
        ),
        format!("\tprocess.priority = {}", number(from.process_priority)),
        format!("\tprocess.dumpable = {}", switch(from.process_dumpable)),
        format!("\tpm = {manager}"),
        format!("\tpm.max_children = {}", from.max_children),
        format!("\tpm.start_servers = {}", from.start_servers),
        format!("\tpm.min_spare_servers = {}", from.min_spare_servers),
        format!("\tpm.max_spare_servers = {}", from.max_spare_servers),
        format!("\tpm.max_spawn_rate = {}", from.max_spawn_rate),
        format!("\tpm.process_idle_timeout = {}", from.process_idle_timeout),
        format!("\tpm.max_requests = {}", from.max_requests),
        format!("\tpm.status_path = {}", text(&from.status_path)),
        format!("\tpm.status_listen = {}", text(&from.status_listen)),
        format!("\tping.path = {}", text(&from.ping_path)),
        format!("\tping.response = {}", text(&from.ping_response)),
        format!("\taccess.log = {}", text(&from.access_log)),
        format!("\taccess.format = {}", text(&from.access_format)),
    ]);
    // php-fpm keeps these lists backwards.
    let paths = from.access_suppress_paths.iter().rev();
    lines.extend(paths.map(|path| format!("\taccess.suppress_path[] = {path}")));
    dump_requests(from, lines);
    let backwards = |name: &str, list: &[(String, String)]| {
        let lines = list.iter().rev();
        let lines = lines.map(|(key, value)| format!("\t{name}[{key}] = {value}"));
        lines.collect::<Vec<_>>()
    };
    lines.extend(backwards("env", &from.env));
    lines.extend(backwards("php_value", &from.php_values));
    lines.extend(backwards("php_admin_value", &from.php_admin_values));
    lines.push(" ".to_owned());
}

fn dump_requests(from: &PoolDraft, lines: &mut Vec<String>) {
    lines.extend([
        format!("\tslowlog = {}", text(&from.slowlog)),
        format!(
            "\trequest_slowlog_timeout = {}s",
            from.request_slowlog_timeout
        ),
        format!(
            "\trequest_slowlog_trace_depth = {}",
            from.request_slowlog_trace_depth
        ),
        format!(
            "\trequest_terminate_timeout = {}s",
            from.request_terminate_timeout
        ),
        format!(
            "\trequest_terminate_timeout_track_finished = {}",
            switch(from.track_finished)
        ),
        format!("\trlimit_files = {}", from.rlimit_files),
        format!("\trlimit_core = {}", from.rlimit_core),
        format!("\tchroot = {}", text(&from.chroot)),
        format!("\tchdir = {}", text(&from.chdir)),
        format!(
            "\tcatch_workers_output = {}",
            switch(from.catch_workers_output)
        ),
        format!(
            "\tdecorate_workers_output = {}",
            switch(from.decorate_workers_output)
        ),
        format!("\tclear_env = {}", switch(from.clear_env)),
        format!(
            "\tsecurity.limit_extensions = {}",
            from.limit_extensions.as_deref().unwrap_or_default()
        ),
    ]);
}
