//! Checks the settings with php-fpm's error messages, in php-fpm's order (`fpm_conf_post_process`,
//! `fpm_conf_process_all_pools`), and adds the file and line where php-fpm has none.

use std::path::Path;
use std::{fs, io};

use maitred_os::walk::{self, Rule};
use maitred_os::{guarded, users};
use nix::libc;

use super::draft::{DEFAULT_BACKLOG, Draft, Globals, PoolDraft};
use super::entries::DEFAULT_FACILITY;
use super::log::{Log, Refused, reason};
use super::options::Options;
use super::paths::{LOCALSTATEDIR, PREFIX, full, full_with_prefix, is_directory};
use crate::model::access_format::AccessFormat;
use crate::model::pool::ProcessManager;

/// `ZLOG_MIN_LIMIT`: the least `log_limit`, in bytes.
const LEAST_LOG_LIMIT: i32 = 512;

/// php-fpm's event mechanisms on Linux; all of them are ignored.
const EVENT_MECHANISMS: [&str; 3] = ["epoll", "poll", "select"];

/// `fpm_conf.c`: the default format of the access log.
const DEFAULT_ACCESS_FORMAT: &str = "%R - %u %t \"%m %r\" %s";

/// Settings of php.ini that are paths (`FPM_PHP_INI_TO_EXPAND`).
const INI_PATHS: [&str; 15] = [
    "error_log",
    "extension_dir",
    "mime_magic.magicfile",
    "sendmail_path",
    "session.cookie_path",
    "session_pgsql.sem_file_name",
    "soap.wsdl_cache_dir",
    "uploadprogress.file.filename_template",
    "xdebug.output_dir",
    "xdebug.profiler_output_dir",
    "xdebug.trace_output_dir",
    "xmms.path",
    "axis2.client_home",
    "blenc.key_file",
    "coin_acceptor.device",
];

/// Interval of status notifications to systemd: `FPM_SYSTEMD_DEFAULT_HEARTBEAT`, in seconds.
pub(super) const DEFAULT_SYSTEMD_INTERVAL: i32 = 10;

/// Checks all settings, fills in defaults, and opens the logs once, which creates them.
pub(super) fn check(draft: &mut Draft, options: &Options, log: &mut Log) -> Result<(), Refused> {
    let prefix = options.prefix_text();
    if options.is_root {
        distrust_groups(&draft.pools);
    }
    check_globals(&mut draft.globals, options, prefix, log)?;
    if draft.pools.is_empty() {
        return Err(log
            .error("No pool defined. at least one pool section must be specified in config file"));
    }
    let mut index = 0;
    while index < draft.pools.len() {
        let status_pool = check_pool(&mut draft.pools[index], options, prefix, log)?;
        draft.pools.extend(status_pool);
        index += 1;
    }
    refuse_shared_addresses(&draft.pools, log)?;
    open_access_logs(&draft.pools, options, log)
}

/// Root trusts no directory for its logs that a pool may write to through its group.
fn distrust_groups(pools: &[PoolDraft]) {
    let users = pools.iter().filter_map(|pool| {
        let user = pool.user.as_deref()?;
        // A missing user is refused later.
        users::look_up(user, pool.group.as_deref()).ok()
    });
    walk::distrust_groups_of(&users.collect::<Vec<_>>());
}

fn check_globals(
    globals: &mut Globals,
    options: &Options,
    prefix: Option<&str>,
    log: &mut Log,
) -> Result<(), Refused> {
    if let Some(pid) = &mut globals.pid {
        *pid = full(pid, &[prefix], LOCALSTATEDIR);
    }
    globals.daemonize = options.daemonize.unwrap_or(globals.daemonize);
    if globals.log_limit < LEAST_LOG_LIMIT {
        return Err(log.error(format!("log_limit must be greater than {LEAST_LOG_LIMIT}")));
    }
    if globals.process_max < 0 {
        let place = globals.place_of("process.max");
        return Err(log.error(format!("process_max can't be negative{place}")));
    }
    if let Some(priority) = globals.process_priority
        && !(-19..=20).contains(&priority)
    {
        let place = globals.place_of("process.priority");
        let error = format!("process.priority must be included into [-19,20]{place}");
        return Err(log.error(error));
    }
    let interval = globals.systemd_interval.get_or_insert(DEFAULT_SYSTEMD_INTERVAL);
    *interval = (*interval).max(0);
    globals.syslog_ident.get_or_insert_with(|| "php-fpm".to_owned());
    globals.syslog_facility.get_or_insert(DEFAULT_FACILITY);
    let error_log = globals.error_log.get_or_insert_with(|| "log/php-fpm.log".to_owned());
    if !error_log.eq_ignore_ascii_case("syslog") {
        *error_log = full(error_log, &[prefix], LOCALSTATEDIR);
        if let Err(error) = open_log(error_log) {
            let error = format!("failed to open error_log ({error_log}): {}", reason(&error));
            return Err(log.error(error));
        }
    }
    if let Some(mechanism) = &globals.events_mechanism {
        let is = |name: &&str| name.eq_ignore_ascii_case(mechanism);
        if !EVENT_MECHANISMS.iter().any(is) {
            let place = globals.place_of("events.mechanism");
            return Err(log.error(format!(
                "event mechanism '{mechanism}' is not available on this system{place}"
            )));
        }
        log.debug(format!(
            "events.mechanism = {mechanism} has no effect: connections are waited for with epoll"
        ));
    }
    Ok(())
}

/// Opens a log like php-fpm: appended to, created if missing, for the owner alone. Unlike there, a
/// FIFO without a reader does not block, and root follows no tenant's symlink.
fn open_log(path: &str) -> io::Result<()> {
    let opened = guarded::append(Path::new(path), 0o600).map(drop);
    opened.map_err(|why| match why.raw_os_error() {
        Some(libc::ENXIO) => io::Error::other("it is a FIFO without a reader"),
        _ => why,
    })
}

/// Whether a pool's log can be opened. Root neither creates it here nor opens it where others may
/// write: the server does, with the privileges of the pool's user where its directory is not
/// root's, and these could not open a file created by root.
fn try_log_of_pool(path: &str, options: &Options) -> io::Result<()> {
    if !options.is_root {
        return open_log(path);
    }
    let path = Path::new(path);
    // A server waits for no lock of a tenant's folder; the error is that of its own open.
    let reached = walk::to_while(path, Rule::Change, walk::only_root_changes);
    if !options.test && reached.is_ok_and(|reached| reached.is_none()) {
        return Ok(());
    }
    let error = match walk::to(path, Rule::Any) {
        Ok(reached) => match (&reached.entry, reached.changed_by_others()) {
            (Some(_), None) => return open_log(&path.to_string_lossy()),
            (Some(_), Some(_)) => return Ok(()),
            (None, _) => io::ErrorKind::NotFound.into(),
        },
        Err(stopped) => io::Error::from(stopped),
    };
    match path.parent() {
        Some(folder) => fs::read_dir(folder).map(drop),
        None => Err(error),
    }
}

/// Checks one pool. Its hidden status pool, if it has one, must be checked as well.
fn check_pool(
    pool: &mut PoolDraft,
    options: &Options,
    prefix: Option<&str>,
    log: &mut Log,
) -> Result<Option<PoolDraft>, Refused> {
    check_prefix(pool, prefix, log)?;
    check_identity_and_address(pool, options, prefix, log)?;
    check_manager(pool, log)?;
    let status_pool = match pool.status_listen {
        Some(_) => {
            pool.status_path.get_or_insert_with(|| "/".to_owned());
            Some(pool.status_pool())
        }
        None => None,
    };
    check_own_paths(pool, log)?;
    check_logs(pool, options, prefix, log)?;
    check_folders(pool, prefix, log)?;
    pool.limit_extensions.get_or_insert_with(|| ".php .phar".to_owned());
    expand_ini_paths(pool, prefix);
    Ok(status_pool)
}

fn check_prefix(pool: &mut PoolDraft, prefix: Option<&str>, log: &mut Log) -> Result<(), Refused> {
    let Some(own) = pool.prefix.as_deref().filter(|own| !own.is_empty()) else {
        return Ok(());
    };
    let own = full(own, &[prefix], PREFIX);
    if !is_directory(&own) {
        return Err(log.error(format!(
            "[pool {}] the prefix '{own}' does not exist or is not a directory{}",
            pool.name,
            pool.place_of("prefix")
        )));
    }
    pool.prefix = Some(own);
    Ok(())
}

fn check_identity_and_address(
    pool: &mut PoolDraft,
    options: &Options,
    prefix: Option<&str>,
    log: &mut Log,
) -> Result<(), Refused> {
    let name = &pool.name;
    if pool.user.is_none() && options.is_root && !options.allow_root {
        let place = pool.place_of("user");
        return Err(log.alert(format!("[pool {name}] user has not been defined{place}")));
    }
    match pool.listen.clone() {
        Some(listen) if !listen.is_empty() => {
            if !is_tcp(&listen) {
                let prefixes = [pool.prefix.as_deref(), prefix];
                pool.listen = Some(full(&listen, &prefixes, PREFIX));
            }
        }
        _ => {
            let place = pool.place_of("listen");
            return Err(
                log.alert(format!("[pool {name}] no listen address have been defined!{place}"))
            );
        }
    }
    if let Some(priority) = pool.process_priority
        && !(-19..=20).contains(&priority)
    {
        let place = pool.place_of("process.priority");
        return Err(log.error(format!(
            "[pool {name}] process.priority must be included into [-19,20]{place}"
        )));
    }
    Ok(())
}

/// Whether an address is a TCP address (`fpm_sockets_domain_from_address`).
pub(super) fn is_tcp(listen: &str) -> bool {
    listen.contains(':') || listen.bytes().all(|byte| byte.is_ascii_digit())
}

fn check_manager(pool: &mut PoolDraft, log: &mut Log) -> Result<(), Refused> {
    let name = &pool.name;
    let Some(manager) = pool.pm else {
        let place = pool.place_of("pm");
        return Err(log.alert(format!(
            "[pool {name}] the process manager is missing (static, dynamic or ondemand){place}"
        )));
    };
    if pool.max_children < 1 {
        let place = pool.place_of("pm.max_children");
        return Err(
            log.alert(format!("[pool {name}] pm.max_children must be a positive value{place}"))
        );
    }
    match manager {
        // `auto` does not exist in php-fpm's files.
        ProcessManager::Static | ProcessManager::Auto => Ok(()),
        ProcessManager::Dynamic => check_spares(pool, log),
        ProcessManager::Ondemand => {
            if pool.process_idle_timeout < 1 {
                let place = pool.place_of("pm.process_idle_timeout");
                return Err(log.alert(format!(
                    "[pool {name}] pm.process_idle_timeout({}s) must be greater than 0s{place}",
                    pool.process_idle_timeout
                )));
            }
            if pool.listen_backlog < DEFAULT_BACKLOG {
                log.warning(format!(
                    "[pool {name}] listen.backlog({}) was too low for the ondemand process \
                     manager. I updated it for you to {DEFAULT_BACKLOG}.",
                    pool.listen_backlog
                ));
                pool.listen_backlog = DEFAULT_BACKLOG;
            }
            (pool.start_servers, pool.min_spare_servers, pool.max_spare_servers) = (0, 0, 0);
            Ok(())
        }
    }
}

fn check_spares(pool: &mut PoolDraft, log: &mut Log) -> Result<(), Refused> {
    let name = &pool.name;
    let (min, max) = (pool.min_spare_servers, pool.max_spare_servers);
    for (setting, value) in [("pm.min_spare_servers", min), ("pm.max_spare_servers", max)] {
        if value <= 0 {
            let place = pool.place_of(setting);
            return Err(log.alert(format!(
                "[pool {name}] {setting}({value}) must be a positive value{place}"
            )));
        }
    }
    if min > pool.max_children || max > pool.max_children {
        let place = pool.place_of("pm.max_children");
        return Err(log.alert(format!(
            "[pool {name}] pm.min_spare_servers({min}) and pm.max_spare_servers({max}) cannot be \
             greater than pm.max_children({}){place}",
            pool.max_children
        )));
    }
    if max < min {
        let place = pool.place_of("pm.max_spare_servers");
        return Err(log.alert(format!(
            "[pool {name}] pm.max_spare_servers({max}) must not be less than \
             pm.min_spare_servers({min}){place}"
        )));
    }
    if pool.start_servers <= 0 {
        pool.start_servers = min + (max - min) / 2;
        log.notice(format!(
            "[pool {name}] pm.start_servers is not set. It's been set to {}.",
            pool.start_servers
        ));
    } else if !(min..=max).contains(&pool.start_servers) {
        let place = pool.place_of("pm.start_servers");
        return Err(log.alert(format!(
            "[pool {name}] pm.start_servers({}) must not be less than pm.min_spare_servers({min}) \
             and not greater than pm.max_spare_servers({max}){place}",
            pool.start_servers
        )));
    }
    if pool.max_spawn_rate < 1 {
        let place = pool.place_of("pm.max_spawn_rate");
        return Err(
            log.alert(format!("[pool {name}] pm.max_spawn_rate must be a positive value{place}"))
        );
    }
    Ok(())
}

fn check_own_paths(pool: &mut PoolDraft, log: &mut Log) -> Result<(), Refused> {
    let status = pool.status_path.as_deref().filter(|path| !path.is_empty());
    if let Some(path) = status {
        let least = match (&pool.status_listen, &pool.status_of) {
            (None, None) => 2,
            _ => 1,
        };
        if let Some(problem) = own_path_problem("status", path, least) {
            let place = pool.place_of("pm.status_path");
            return Err(log.error(format!("[pool {}] {problem}{place}", pool.name)));
        }
    }
    let ping = pool.ping_path.as_deref().filter(|path| !path.is_empty());
    let Some(path) = ping else {
        pool.ping_response = None;
        return Ok(());
    };
    if let Some(problem) = own_path_problem("ping", path, 2) {
        let place = pool.place_of("ping.path");
        return Err(log.error(format!("[pool {}] {problem}{place}", pool.name)));
    }
    let response = pool.ping_response.get_or_insert_with(|| "pong".to_owned());
    if response.is_empty() {
        let place = pool.place_of("ping.response");
        return Err(log.error(format!(
            "[pool {}] the ping response page '' is not long enough{place}",
            pool.name
        )));
    }
    Ok(())
}

fn own_path_problem(what: &str, path: &str, least: usize) -> Option<String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    let problem = if !path.starts_with('/') {
        "must start with a '/'"
    } else if path.len() < least {
        "is not long enough"
    } else if !path.bytes().all(good) {
        "must contain only the following characters '[alphanum]/_-.~'"
    } else {
        return None;
    };
    Some(format!("the {what} path '{path}' {problem}"))
}

fn check_logs(
    pool: &mut PoolDraft,
    options: &Options,
    prefix: Option<&str>,
    log: &mut Log,
) -> Result<(), Refused> {
    let name = &pool.name;
    let prefixes = [pool.prefix.as_deref(), prefix];
    if let Some(path) = pool.access_log.as_mut().filter(|path| !path.is_empty()) {
        *path = full(path, &prefixes, PREFIX);
        pool.access_format.get_or_insert_with(|| DEFAULT_ACCESS_FORMAT.to_owned());
    }
    if let Some(path) = pool.slowlog.as_mut().filter(|path| !path.is_empty()) {
        *path = full(path, &prefixes, PREFIX);
    }
    let slowlog = pool.slowlog.as_deref().filter(|path| !path.is_empty());
    let needs_slowlog = |setting: &str| {
        let place = pool.place_of(setting);
        format!("[pool {name}] 'slowlog' must be specified for use with '{setting}'{place}")
    };
    if pool.request_slowlog_timeout != 0 {
        let Some(slowlog) = slowlog else {
            return Err(log.error(needs_slowlog("request_slowlog_timeout")));
        };
        if let Err(error) = try_log_of_pool(slowlog, options) {
            return Err(log.error(format!(
                "Unable to create or open slowlog({slowlog}): {}",
                reason(&error)
            )));
        }
        let (slow, terminate) = (pool.request_slowlog_timeout, pool.request_terminate_timeout);
        if terminate != 0 && slow > terminate {
            let place = pool.place_of("request_slowlog_timeout");
            return Err(log.error(format!(
                "[pool {name}] 'request_slowlog_timeout' ({slow}) can't be greater than \
                 'request_terminate_timeout' ({terminate}){place}"
            )));
        }
    }
    if pool.request_slowlog_trace_depth == 0 {
        pool.request_slowlog_trace_depth = 20;
        return Ok(());
    }
    if slowlog.is_none() {
        return Err(log.error(needs_slowlog("request_slowlog_trace_depth")));
    }
    if pool.request_slowlog_trace_depth < 0 {
        let place = pool.place_of("request_slowlog_trace_depth");
        return Err(log.error(format!(
            "[pool {name}] 'request_slowlog_trace_depth' ({}) must be a positive value{place}",
            pool.request_slowlog_trace_depth
        )));
    }
    Ok(())
}

fn check_folders(pool: &mut PoolDraft, prefix: Option<&str>, log: &mut Log) -> Result<(), Refused> {
    let name = &pool.name;
    let prefixes = [pool.prefix.as_deref(), prefix];
    if let Some(chroot) = pool.chroot.clone().filter(|path| !path.is_empty()) {
        let place = pool.place_of("chroot");
        let Some(path) = full_with_prefix(&chroot, &prefixes, PREFIX) else {
            log.error(format!("'$prefix' must be use at the beginning of the value{place}"));
            return Err(log.error(format!(
                "[pool {name}] the chroot path '{chroot}' must start with a '/'{place}"
            )));
        };
        if !is_directory(&path) {
            return Err(log.error(format!(
                "[pool {name}] the chroot path '{path}' does not exist or is not a \
                 directory{place}"
            )));
        }
        pool.chroot = Some(path);
    }
    if let Some(chdir) = pool.chdir.clone().filter(|path| !path.is_empty()) {
        let place = pool.place_of("chdir");
        let path = full(&chdir, &prefixes, PREFIX);
        if let Some(chroot) = &pool.chroot {
            let whole = format!("{chroot}/{path}");
            if !is_directory(&whole) {
                return Err(log.error(format!(
                    "[pool {name}] the chdir path '{path}' within the chroot path '{chroot}' \
                     ('{whole}') does not exist or is not a directory{place}"
                )));
            }
        } else if !is_directory(&path) {
            return Err(log.error(format!(
                "[pool {name}] the chdir path '{path}' does not exist or is not a directory{place}"
            )));
        }
        pool.chdir = Some(path);
    }
    Ok(())
}

fn expand_ini_paths(pool: &mut PoolDraft, prefix: Option<&str>) {
    // With a chroot, even an empty one, paths are relative to it.
    if pool.chroot.is_some() {
        return;
    }
    let prefixes = [pool.prefix.as_deref(), prefix];
    let is_path = |key: &str| INI_PATHS.iter().any(|path| path.eq_ignore_ascii_case(key));
    for (key, value) in &mut pool.php_values {
        if is_path(key) {
            *value = full(value, &prefixes, PREFIX);
        }
    }
    for (key, value) in &mut pool.php_admin_values {
        let to_syslog =
            key.eq_ignore_ascii_case("error_log") && value.eq_ignore_ascii_case("syslog");
        if is_path(key) && !to_syslog {
            *value = full(value, &prefixes, PREFIX);
        }
    }
}

fn refuse_shared_addresses(pools: &[PoolDraft], log: &mut Log) -> Result<(), Refused> {
    let mut owners = std::collections::HashMap::new();
    for pool in pools {
        if let Some(first) = owners.insert(&pool.listen, pool) {
            let place = pool.place_of("listen");
            return Err(log.error(format!(
                "[pool {}] unable to set listen address as it's already used in another pool \
                 '{}'{place}",
                pool.name, first.name
            )));
        }
    }
    Ok(())
}

fn open_access_logs(pools: &[PoolDraft], options: &Options, log: &mut Log) -> Result<(), Refused> {
    for pool in pools {
        if let Some(path) = &pool.access_log {
            if let Err(error) = try_log_of_pool(path, options) {
                let error = format!("failed to open access log ({path}): {}", reason(&error));
                return Err(log.error(error));
            }
            log.debug(format!("open access log ({path})"));
        }
    }
    for pool in pools {
        let (Some(_), Some(format)) = (&pool.access_log, &pool.access_format) else {
            continue;
        };
        if let Err(problem) = AccessFormat::parse(format) {
            log.warning(problem);
            let place = pool.place_of("access.format");
            return Err(log.error(format!(
                "[pool {}] wrong format for access.format '{format}'{place}",
                pool.name
            )));
        }
    }
    Ok(())
}
