//! The settings of php-fpm's files, by name: what each takes, and where it is kept
//! (`ini_fpm_global_options` and `ini_fpm_pool_options` of `fpm_conf.c`).

use super::draft::{Globals, PoolDraft, UNLIMITED};
use super::grammar::atoi;
use crate::model::fpm::Level;
use crate::model::pool::ProcessManager;

/// A setting: its name, and what it takes.
pub(super) struct Entry<T> {
    pub(super) name: &'static str,
    pub(super) slot: Slot<T>,
}

/// What a setting takes, and its place.
pub(super) enum Slot<T> {
    Text(fn(&mut T) -> &mut Option<String>),
    Integer(fn(&mut T) -> &mut i32),
    /// A number that is something else when nobody sets it.
    Number(fn(&mut T) -> &mut Option<i32>),
    /// Seconds.
    Time(fn(&mut T) -> &mut i32),
    /// Seconds, and something else when nobody sets it.
    Interval(fn(&mut T) -> &mut Option<i32>),
    Boolean(fn(&mut T) -> &mut bool),
    CoreSize(fn(&mut T) -> &mut i32),
    Level(fn(&mut T) -> &mut Option<Level>),
    Facility(fn(&mut T) -> &mut Option<i32>),
    Manager(fn(&mut T) -> &mut Option<ProcessManager>),
}

const fn entry<T>(name: &'static str, slot: Slot<T>) -> Entry<T> {
    Entry { name, slot }
}

/// The settings of `[global]`.
pub(super) const GLOBAL: &[Entry<Globals>] = &[
    entry("pid", Slot::Text(|to| &mut to.pid)),
    entry("error_log", Slot::Text(|to| &mut to.error_log)),
    entry("syslog.ident", Slot::Text(|to| &mut to.syslog_ident)),
    entry(
        "syslog.facility",
        Slot::Facility(|to| &mut to.syslog_facility),
    ),
    entry("log_buffering", Slot::Boolean(|to| &mut to.log_buffering)),
    entry("log_level", Slot::Level(|to| &mut to.log_level)),
    entry("log_limit", Slot::Integer(|to| &mut to.log_limit)),
    entry(
        "emergency_restart_threshold",
        Slot::Integer(|to| &mut to.emergency_restart_threshold),
    ),
    entry(
        "emergency_restart_interval",
        Slot::Time(|to| &mut to.emergency_restart_interval),
    ),
    entry(
        "process_control_timeout",
        Slot::Time(|to| &mut to.process_control_timeout),
    ),
    entry("process.max", Slot::Integer(|to| &mut to.process_max)),
    entry(
        "process.priority",
        Slot::Number(|to| &mut to.process_priority),
    ),
    entry("daemonize", Slot::Boolean(|to| &mut to.daemonize)),
    entry("rlimit_files", Slot::Integer(|to| &mut to.rlimit_files)),
    entry("rlimit_core", Slot::CoreSize(|to| &mut to.rlimit_core)),
    entry(
        "events.mechanism",
        Slot::Text(|to| &mut to.events_mechanism),
    ),
    entry(
        "systemd_interval",
        Slot::Interval(|to| &mut to.systemd_interval),
    ),
];

/// The settings of a pool. `listen.setfib` is FreeBSD's, and unknown on Linux.
pub(super) const POOL: &[Entry<PoolDraft>] = &[
    entry("prefix", Slot::Text(|to| &mut to.prefix)),
    entry("user", Slot::Text(|to| &mut to.user)),
    entry("group", Slot::Text(|to| &mut to.group)),
    entry("listen", Slot::Text(|to| &mut to.listen)),
    entry("listen.backlog", Slot::Integer(|to| &mut to.listen_backlog)),
    entry(
        "listen.acl_users",
        Slot::Text(|to| &mut to.listen_acl_users),
    ),
    entry(
        "listen.acl_groups",
        Slot::Text(|to| &mut to.listen_acl_groups),
    ),
    entry("listen.owner", Slot::Text(|to| &mut to.listen_owner)),
    entry("listen.group", Slot::Text(|to| &mut to.listen_group)),
    entry("listen.mode", Slot::Text(|to| &mut to.listen_mode)),
    entry(
        "listen.allowed_clients",
        Slot::Text(|to| &mut to.listen_allowed_clients),
    ),
    entry(
        "process.priority",
        Slot::Number(|to| &mut to.process_priority),
    ),
    entry(
        "process.dumpable",
        Slot::Boolean(|to| &mut to.process_dumpable),
    ),
    entry("pm", Slot::Manager(|to| &mut to.pm)),
    entry("pm.max_children", Slot::Integer(|to| &mut to.max_children)),
    entry(
        "pm.start_servers",
        Slot::Integer(|to| &mut to.start_servers),
    ),
    entry(
        "pm.min_spare_servers",
        Slot::Integer(|to| &mut to.min_spare_servers),
    ),
    entry(
        "pm.max_spare_servers",
        Slot::Integer(|to| &mut to.max_spare_servers),
    ),
    entry(
        "pm.max_spawn_rate",
        Slot::Integer(|to| &mut to.max_spawn_rate),
    ),
    entry(
        "pm.process_idle_timeout",
        Slot::Time(|to| &mut to.process_idle_timeout),
    ),
    entry("pm.max_requests", Slot::Integer(|to| &mut to.max_requests)),
    entry("pm.status_path", Slot::Text(|to| &mut to.status_path)),
    entry("pm.status_listen", Slot::Text(|to| &mut to.status_listen)),
    entry("ping.path", Slot::Text(|to| &mut to.ping_path)),
    entry("ping.response", Slot::Text(|to| &mut to.ping_response)),
    entry("access.log", Slot::Text(|to| &mut to.access_log)),
    entry("access.format", Slot::Text(|to| &mut to.access_format)),
    entry("slowlog", Slot::Text(|to| &mut to.slowlog)),
    entry(
        "request_slowlog_timeout",
        Slot::Time(|to| &mut to.request_slowlog_timeout),
    ),
    entry(
        "request_slowlog_trace_depth",
        Slot::Integer(|to| &mut to.request_slowlog_trace_depth),
    ),
    entry(
        "request_terminate_timeout",
        Slot::Time(|to| &mut to.request_terminate_timeout),
    ),
    entry(
        "request_terminate_timeout_track_finished",
        Slot::Boolean(|to| &mut to.track_finished),
    ),
    entry("rlimit_files", Slot::Integer(|to| &mut to.rlimit_files)),
    entry("rlimit_core", Slot::CoreSize(|to| &mut to.rlimit_core)),
    entry("chroot", Slot::Text(|to| &mut to.chroot)),
    entry("chdir", Slot::Text(|to| &mut to.chdir)),
    entry(
        "catch_workers_output",
        Slot::Boolean(|to| &mut to.catch_workers_output),
    ),
    entry(
        "decorate_workers_output",
        Slot::Boolean(|to| &mut to.decorate_workers_output),
    ),
    entry("clear_env", Slot::Boolean(|to| &mut to.clear_env)),
    entry(
        "security.limit_extensions",
        Slot::Text(|to| &mut to.limit_extensions),
    ),
    entry("apparmor_hat", Slot::Text(|to| &mut to.apparmor_hat)),
];

impl<T> Slot<T> {
    /// Sets the value, or says why it cannot be one. `pool` is what `$pool` stands for.
    pub(super) fn set(
        &self,
        target: &mut T,
        value: &str,
        pool: Option<&str>,
    ) -> Result<(), &'static str> {
        match self {
            Slot::Text(place) => *place(target) = Some(with_pool(value, pool)?),
            Slot::Integer(place) => *place(target) = integer(value)?,
            Slot::Number(place) => *place(target) = Some(integer(value)?),
            Slot::Time(place) => *place(target) = time(value)?,
            Slot::Interval(place) => *place(target) = Some(time(value)?),
            Slot::Boolean(place) => *place(target) = boolean(value)?,
            Slot::CoreSize(place) => *place(target) = core_size(value)?,
            Slot::Level(place) => *place(target) = Some(level(value)?),
            Slot::Facility(place) => *place(target) = Some(facility(value)?),
            Slot::Manager(place) => *place(target) = Some(manager(value)?),
        }
        Ok(())
    }
}

/// `value` with the name of the pool for `$pool` (`fpm_conf_expand_pool_name`).
pub(super) fn with_pool(value: &str, pool: Option<&str>) -> Result<String, &'static str> {
    match pool {
        Some(pool) => Ok(value.replace("$pool", pool)),
        None if value.contains("$pool") => Err("Can't use '$pool' when the pool is not defined"),
        None => Ok(value.to_owned()),
    }
}

/// `fpm_conf_set_boolean`. The scanner has made `1` or nothing of words that are not quoted.
pub(super) fn boolean(value: &str) -> Result<bool, &'static str> {
    match value {
        "1" | "yes" | "true" | "on" => Ok(true),
        "" | "0" | "no" | "none" | "false" | "off" => Ok(false),
        _ => Err("invalid boolean value"),
    }
}

fn integer(value: &str) -> Result<i32, &'static str> {
    let digits = value.strip_prefix('-').unwrap_or(value);
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("is not a valid number (greater or equal than zero)");
    }
    match value.parse() {
        Ok(number) => Ok(number),
        Err(_) if digits.is_empty() => Ok(0),
        Err(_) => Err("is too large; expected at most 2147483647"),
    }
}

fn time(value: &str) -> Result<i32, &'static str> {
    let (number, seconds_per_unit) = match value.as_bytes() {
        [] => return Err("invalid time value"),
        [.., b'm'] => (&value[..value.len() - 1], 60),
        [.., b'h'] => (&value[..value.len() - 1], 60 * 60),
        [.., b'd'] => (&value[..value.len() - 1], 24 * 60 * 60),
        [.., b's'] => (&value[..value.len() - 1], 1),
        [.., last] if last.is_ascii_digit() => (value, 1),
        _ => return Err("unknown suffix used in time value"),
    };
    Ok(atoi(number).saturating_mul(seconds_per_unit))
}

fn core_size(value: &str) -> Result<i32, &'static str> {
    if value.eq_ignore_ascii_case("unlimited") {
        return Ok(UNLIMITED);
    }
    match integer(value)? {
        size if size < 0 => Err("must be greater than zero or 'unlimited'"),
        size => Ok(size),
    }
}

fn level(value: &str) -> Result<Level, &'static str> {
    match value.to_ascii_lowercase().as_str() {
        "debug" => Ok(Level::Debug),
        "notice" => Ok(Level::Notice),
        "warning" | "warn" => Ok(Level::Warning),
        "error" => Ok(Level::Error),
        "alert" => Ok(Level::Alert),
        _ => Err("invalid value for 'log_level'"),
    }
}

fn manager(value: &str) -> Result<ProcessManager, &'static str> {
    match value.to_ascii_lowercase().as_str() {
        "static" => Ok(ProcessManager::Static),
        "dynamic" => Ok(ProcessManager::Dynamic),
        "ondemand" => Ok(ProcessManager::Ondemand),
        _ => Err("invalid process manager (static, dynamic or ondemand)"),
    }
}

/// Facilities in the order of their numbers, from 0 on in steps of eight (`syslog.h`). Those
/// between FTP and LOCAL0 have no use.
const FACILITIES: [&str; 24] = [
    "KERN", "USER", "MAIL", "DAEMON", "AUTH", "SYSLOG", "LPR", "NEWS", "UUCP", "CRON", "AUTHPRIV",
    "FTP", "", "", "", "", "LOCAL0", "LOCAL1", "LOCAL2", "LOCAL3", "LOCAL4", "LOCAL5", "LOCAL6",
    "LOCAL7",
];

/// `LOG_DAEMON`.
pub(super) const DEFAULT_FACILITY: i32 = 3 << 3;

fn facility(value: &str) -> Result<i32, &'static str> {
    let value = value.to_ascii_uppercase();
    let number = FACILITIES.iter().position(|name| *name == value);
    match number.and_then(|number| i32::try_from(number).ok()) {
        Some(number) if !value.is_empty() => Ok(number << 3),
        _ => Err("invalid value"),
    }
}
