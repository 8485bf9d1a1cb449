//! The settings of php-fpm's files, before they are checked (`fpm_conf.h`).

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use crate::model::fpm::Level;
use crate::model::pool::ProcessManager;

/// A position in the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FilePosition {
    pub(super) file: Rc<str>,
    pub(super) line: usize,
}

impl fmt::Display for FilePosition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.file, self.line)
    }
}

/// The positions of the settings of a section, by name.
pub(super) type FilePositions = BTreeMap<&'static str, FilePosition>;

/// `-1`: without limit.
pub(super) const UNLIMITED: i32 = -1;

/// The section `[global]`. Numbers are as in php-fpm: 0 is none, times are seconds.
#[derive(Debug, Clone, Default)]
pub(super) struct Globals {
    pub(super) pid: Option<String>,
    pub(super) error_log: Option<String>,
    pub(super) syslog_ident: Option<String>,
    pub(super) syslog_facility: Option<i32>,
    pub(super) log_level: Option<Level>,
    pub(super) log_limit: i32,
    pub(super) log_buffering: bool,
    pub(super) emergency_restart_threshold: i32,
    pub(super) emergency_restart_interval: i32,
    pub(super) process_control_timeout: i32,
    pub(super) process_max: i32,
    pub(super) process_priority: Option<i32>,
    pub(super) daemonize: bool,
    pub(super) rlimit_files: i32,
    pub(super) rlimit_core: i32,
    pub(super) events_mechanism: Option<String>,
    pub(super) systemd_interval: Option<i32>,
    pub(super) places: FilePositions,
}

/// `ZLOG_DEFAULT_LIMIT` of `zlog.h`.
const DEFAULT_LOG_LIMIT: i32 = 1024;

impl Globals {
    pub(super) fn new() -> Globals {
        Globals {
            log_limit: DEFAULT_LOG_LIMIT,
            log_buffering: true,
            daemonize: true,
            ..Globals::default()
        }
    }

    /// The position of `setting`, as the end of a sentence; empty if it is not set.
    pub(super) fn place_of(&self, setting: &str) -> String {
        let place = self.places.get(setting);
        place.map_or_else(String::new, |place| format!(" ({place})"))
    }
}

/// The section of a pool.
#[derive(Debug, Clone, Default)]
pub(super) struct PoolDraft {
    pub(super) name: String,
    /// The pool whose status this hidden pool shows (`pm.status_listen`).
    pub(super) status_of: Option<String>,
    pub(super) prefix: Option<String>,
    pub(super) user: Option<String>,
    pub(super) group: Option<String>,
    pub(super) listen: Option<String>,
    pub(super) listen_backlog: i32,
    pub(super) listen_acl_users: Option<String>,
    pub(super) listen_acl_groups: Option<String>,
    pub(super) listen_owner: Option<String>,
    pub(super) listen_group: Option<String>,
    pub(super) listen_mode: Option<String>,
    pub(super) listen_allowed_clients: Option<String>,
    pub(super) process_priority: Option<i32>,
    pub(super) process_dumpable: bool,
    pub(super) pm: Option<ProcessManager>,
    pub(super) max_children: i32,
    pub(super) start_servers: i32,
    pub(super) min_spare_servers: i32,
    pub(super) max_spare_servers: i32,
    pub(super) max_spawn_rate: i32,
    pub(super) process_idle_timeout: i32,
    pub(super) max_requests: i32,
    pub(super) status_path: Option<String>,
    pub(super) status_listen: Option<String>,
    pub(super) ping_path: Option<String>,
    pub(super) ping_response: Option<String>,
    pub(super) access_log: Option<String>,
    pub(super) access_format: Option<String>,
    pub(super) slowlog: Option<String>,
    pub(super) request_slowlog_timeout: i32,
    pub(super) request_slowlog_trace_depth: i32,
    pub(super) request_terminate_timeout: i32,
    pub(super) track_finished: bool,
    pub(super) rlimit_files: i32,
    pub(super) rlimit_core: i32,
    pub(super) chroot: Option<String>,
    pub(super) chdir: Option<String>,
    pub(super) catch_workers_output: bool,
    pub(super) decorate_workers_output: bool,
    pub(super) clear_env: bool,
    pub(super) limit_extensions: Option<String>,
    pub(super) apparmor_hat: Option<String>,
    /// These four are in the order of the files.
    pub(super) access_suppress_paths: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) php_values: Vec<(String, String)>,
    pub(super) php_admin_values: Vec<(String, String)>,
    pub(super) section: FilePosition,
    pub(super) places: FilePositions,
}

/// `FPM_BACKLOG_DEFAULT` on Linux: the kernel's maximum.
pub(super) const DEFAULT_BACKLOG: i32 = -1;

impl PoolDraft {
    pub(super) fn new(name: &str, section: FilePosition) -> PoolDraft {
        PoolDraft {
            name: name.to_owned(),
            listen_backlog: DEFAULT_BACKLOG,
            max_spawn_rate: 32,
            process_idle_timeout: 10,
            decorate_workers_output: true,
            clear_env: true,
            section,
            ..PoolDraft::default()
        }
    }

    /// The hidden pool at `pm.status_listen` (`fpm_worker_pool_shared_status_alloc`). It does not
    /// inherit settings of php.ini and the prefix.
    pub(super) fn status_pool(&self) -> PoolDraft {
        let of = self.clone();
        PoolDraft {
            status_of: Some(self.name.clone()),
            listen: of.status_listen,
            listen_acl_users: of.listen_acl_users,
            listen_acl_groups: of.listen_acl_groups,
            listen_owner: of.listen_owner,
            listen_group: of.listen_group,
            listen_mode: of.listen_mode,
            listen_allowed_clients: of.listen_allowed_clients,
            user: of.user,
            group: of.group,
            status_path: of.status_path,
            ping_path: of.ping_path,
            ping_response: of.ping_response,
            pm: Some(ProcessManager::Ondemand),
            max_children: 2,
            places: of.places,
            ..PoolDraft::new(&format!("{}_status", self.name), of.section)
        }
    }

    /// The position of `setting`, or else of the section, as the end of a sentence.
    pub(super) fn place_of(&self, setting: &str) -> String {
        format!(" ({})", self.places.get(setting).unwrap_or(&self.section))
    }
}

/// All settings of the files.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    pub(super) globals: Globals,
    pub(super) pools: Vec<PoolDraft>,
}
