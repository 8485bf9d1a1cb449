//! The settings of php-fpm's files: the name, type and field of each
//! (`ini_fpm_global_options` and `ini_fpm_pool_options` of `fpm_conf.c`).

use super::draft::{Globals, PoolDraft, UNLIMITED};
use super::grammar::atoi;
use crate::model::fpm::Level;
use crate::model::pool::ProcessManager;

/// A setting: its name, its type and its field.
pub(super) struct FpmSetting<T> {
    pub(super) name: &'static str,
    slot: Slot<T>,
}

/// The field of a setting, by its type.
enum Slot<T> {
    Text(fn(&mut T) -> &mut Option<String>),
    Integer(fn(&mut T) -> &mut i32),
    /// A number with a default other than 0.
    Number(fn(&mut T) -> &mut Option<i32>),
    /// Seconds.
    Time(fn(&mut T) -> &mut i32),
    /// Seconds with a default other than 0.
    Interval(fn(&mut T) -> &mut Option<i32>),
    Boolean(fn(&mut T) -> &mut bool),
    CoreSize(fn(&mut T) -> &mut i32),
    Level(fn(&mut T) -> &mut Option<Level>),
    Facility(fn(&mut T) -> &mut Option<i32>),
    Manager(fn(&mut T) -> &mut Option<ProcessManager>),
}

macro_rules! entries {
    ($($name:literal => $slot:ident $field:ident,)*) => {
        &[$(FpmSetting { name: $name, slot: Slot::$slot(|draft| &mut draft.$field) },)*]
    };
}

/// The settings of `[global]`, in the order of `php-fpm -tt`.
pub(super) const GLOBAL: &[FpmSetting<Globals>] = entries! {
    "pid" => Text pid,
    "error_log" => Text error_log,
    "syslog.ident" => Text syslog_ident,
    "syslog.facility" => Facility syslog_facility,
    "log_buffering" => Boolean log_buffering,
    "log_level" => Level log_level,
    "log_limit" => Integer log_limit,
    "emergency_restart_interval" => Time emergency_restart_interval,
    "emergency_restart_threshold" => Integer emergency_restart_threshold,
    "process_control_timeout" => Time process_control_timeout,
    "process.max" => Integer process_max,
    "process.priority" => Number process_priority,
    "daemonize" => Boolean daemonize,
    "rlimit_files" => Integer rlimit_files,
    "rlimit_core" => CoreSize rlimit_core,
    "events.mechanism" => Text events_mechanism,
    "systemd_interval" => Interval systemd_interval,
};

/// The settings of a pool, in the same order. `listen.setfib` is FreeBSD's, and unknown on Linux.
pub(super) const POOL: &[FpmSetting<PoolDraft>] = entries! {
    "prefix" => Text prefix,
    "user" => Text user,
    "group" => Text group,
    "listen" => Text listen,
    "listen.backlog" => Integer listen_backlog,
    "listen.acl_users" => Text listen_acl_users,
    "listen.acl_groups" => Text listen_acl_groups,
    "listen.owner" => Text listen_owner,
    "listen.group" => Text listen_group,
    "listen.mode" => Text listen_mode,
    "listen.allowed_clients" => Text listen_allowed_clients,
    "process.priority" => Number process_priority,
    "process.dumpable" => Boolean process_dumpable,
    "pm" => Manager pm,
    "pm.max_children" => Integer max_children,
    "pm.start_servers" => Integer start_servers,
    "pm.min_spare_servers" => Integer min_spare_servers,
    "pm.max_spare_servers" => Integer max_spare_servers,
    "pm.max_spawn_rate" => Integer max_spawn_rate,
    "pm.process_idle_timeout" => Time process_idle_timeout,
    "pm.max_requests" => Integer max_requests,
    "pm.status_path" => Text status_path,
    "pm.status_listen" => Text status_listen,
    "ping.path" => Text ping_path,
    "ping.response" => Text ping_response,
    "access.log" => Text access_log,
    "access.format" => Text access_format,
    "slowlog" => Text slowlog,
    "request_slowlog_timeout" => Time request_slowlog_timeout,
    "request_slowlog_trace_depth" => Integer request_slowlog_trace_depth,
    "request_terminate_timeout" => Time request_terminate_timeout,
    "request_terminate_timeout_track_finished" => Boolean track_finished,
    "rlimit_files" => Integer rlimit_files,
    "rlimit_core" => CoreSize rlimit_core,
    "chroot" => Text chroot,
    "chdir" => Text chdir,
    "catch_workers_output" => Boolean catch_workers_output,
    "decorate_workers_output" => Boolean decorate_workers_output,
    "clear_env" => Boolean clear_env,
    "security.limit_extensions" => Text limit_extensions,
    "apparmor_hat" => Text apparmor_hat,
};

impl<T> FpmSetting<T> {
    /// Sets the value. The error is the reason why it is invalid. `pool` is the value of `$pool`.
    pub(super) fn set(
        &self,
        target: &mut T,
        value: &str,
        pool: Option<&str>,
    ) -> Result<(), &'static str> {
        match self.slot {
            Slot::Text(field) => *field(target) = Some(with_pool(value, pool)?),
            Slot::Integer(field) => *field(target) = integer(value)?,
            Slot::Number(field) => *field(target) = Some(integer(value)?),
            Slot::Time(field) => *field(target) = time(value)?,
            Slot::Interval(field) => *field(target) = Some(time(value)?),
            Slot::Boolean(field) => *field(target) = boolean(value)?,
            Slot::CoreSize(field) => *field(target) = core_size(value)?,
            Slot::Level(field) => *field(target) = Some(level(value)?),
            Slot::Facility(field) => *field(target) = Some(facility(value)?),
            Slot::Manager(field) => *field(target) = Some(manager(value)?),
        }
        Ok(())
    }

    /// The line of the setting in `php-fpm -tt`.
    pub(super) fn line(&self, draft: &mut T) -> String {
        let text = |value: Option<String>| value.unwrap_or_else(|| "undefined".to_owned());
        let value = match self.slot {
            Slot::Text(field) => text(field(draft).clone()),
            Slot::Integer(field) | Slot::CoreSize(field) => field(draft).to_string(),
            Slot::Number(field) => text(field(draft).map(|number| number.to_string())),
            Slot::Time(field) => format!("{}s", field(draft)),
            Slot::Interval(field) => format!("{}s", field(draft).unwrap_or_default()),
            Slot::Boolean(field) => if *field(draft) { "yes" } else { "no" }.to_owned(),
            Slot::Level(field) => field(draft).unwrap_or(DEFAULT_LEVEL).name().to_owned(),
            Slot::Facility(field) => field(draft).unwrap_or_default().to_string(),
            Slot::Manager(field) => {
                field(draft).map_or("ondemand", ProcessManager::name).to_owned()
            }
        };
        format!("\t{} = {value}", self.name)
    }
}

/// The level of the log where none is set.
pub(super) const DEFAULT_LEVEL: Level = Level::Notice;

/// `value` with the name of the pool for `$pool` (`fpm_conf_expand_pool_name`).
pub(super) fn with_pool(value: &str, pool: Option<&str>) -> Result<String, &'static str> {
    match pool {
        Some(pool) => Ok(value.replace("$pool", pool)),
        None if value.contains("$pool") => Err("Can't use '$pool' when the pool is not defined"),
        None => Ok(value.to_owned()),
    }
}

/// `fpm_conf_set_boolean`. The scanner turns unquoted words into `1` or an empty text.
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

/// Facilities in the order of their numbers, from 0 in steps of eight (`syslog.h`). Those between
/// FTP and LOCAL0 are unused.
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
