//! Converts checked php-fpm settings to the server's settings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::accounts::{self, Account};
use super::address;
use super::draft::{Draft, Globals, PoolDraft, UNLIMITED};
use super::entries::{DEFAULT_FACILITY, DEFAULT_LEVEL};
use super::log::{Log, Refused};
use super::options::Options;
use crate::model::config::Config;
use crate::model::confinement::{Confinement, CoreSize, NoNewPrivileges};
use crate::model::fpm::{Fpm, Level};
use crate::model::listener::Address;
use crate::model::log_target::LogTarget;
use crate::model::pool::{MAX_CHILDREN_PER_POOL, Pool, PoolAccessLog, ProcessManager};
use crate::read::units::MAX_DURATION;

/// Longest name of a pool in bytes.
const MAX_POOL_NAME_BYTES: usize = 64;

/// `request_queue_timeout`. With php-fpm, requests wait in the kernel, without limit.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// `request_queue_length` without `listen.backlog`: the length of the kernel's queue of connections
/// (`net.core.somaxconn` of Linux).
const QUEUE_LENGTH: u32 = 4096;
const MAX_QUEUE_LENGTH: u32 = 1_000_000;

/// Most frames of a slow script's stack.
const MAX_TRACE_DEPTH: u32 = 100;

/// Paths of a process's own standard error output.
const STANDARD_ERROR: [&str; 3] = ["/dev/stderr", "/dev/fd/2", "/proc/self/fd/2"];

/// Settings of php.ini that disable something. Their values add up, while of other settings php-fpm
/// takes the first value.
const ADDING_UP: [&str; 2] = ["disable_functions", "disable_classes"];

/// Why `name` is no valid name of a pool: it is part of process titles and paths.
pub(super) fn name_problem(name: &str) -> Option<String> {
    let shown = crate::mistakes::quoted(name);
    let good = |c: char| c != '/' && !c.is_control();
    if (1..=MAX_POOL_NAME_BYTES).contains(&name.len()) && name.chars().all(good) {
        return None;
    }
    Some(format!(
        "the pool name '{shown}' cannot be used; expected 1 to {MAX_POOL_NAME_BYTES} bytes \
         without '/'"
    ))
}

/// Builds the configuration. php-fpm detects the errors of this step at its start, after its
/// configuration test.
pub(super) fn settle(draft: &Draft, options: &Options, log: &mut Log) -> Result<Config, Refused> {
    let mut config = Config { listen: Vec::new(), ..Config::new() };
    let globals = &draft.globals;
    config.error_log = match globals.error_log.as_deref().unwrap_or_default() {
        path if path.eq_ignore_ascii_case("syslog") => LogTarget::Syslog,
        path => log_target(path),
    };
    if let timeout @ 1.. = globals.process_control_timeout {
        config.process_control_timeout = seconds(timeout);
    }
    if accounts::by_name(&config.front_user).is_none() {
        config.front_user = "nobody".to_owned();
    }
    if globals.process_priority.is_some() && !options.is_root && !options.test {
        let ignored = "'process.priority' directive is ignored when FPM is not running as root";
        log.notice(ignored.to_owned());
    }
    let mut said_when_ready: BTreeMap<String, Vec<(Level, String)>> = BTreeMap::new();
    let mut owners: BTreeMap<Address, &str> = BTreeMap::new();
    for from in &draft.pools {
        let who = identity(from, options, log)?;
        let mut said = Vec::new();
        let listener = address::listener(from, options, &mut said, log)?;
        if !said.is_empty() {
            let pool = from.status_of.as_ref().unwrap_or(&from.name);
            said_when_ready.entry(pool.clone()).or_default().extend(said);
        }
        // php-fpm detects it only if both have the same spelling.
        if let Some(first) = owners.insert(listener.listen.clone(), &from.name) {
            let place = from.place_of("listen");
            return Err(log.error(format!(
                "[pool {}] unable to set listen address as it's already used in another pool \
                 '{first}'{place}",
                from.name
            )));
        }
        match &from.status_of {
            Some(name) => {
                let shown = config.pools.iter_mut().find(|pool| pool.name == *name);
                if let Some(pool) = shown {
                    pool.status_listener = Some(listener);
                }
            }
            None => {
                let mut pool = pool(from, options, who, log);
                pool.listener = Some(listener);
                config.pools.push(pool);
            }
        }
    }
    config.fpm = Some(fpm(globals, options, said_when_ready));
    Ok(config)
}

fn fpm(
    from: &Globals,
    options: &Options,
    said_when_ready: BTreeMap<String, Vec<(Level, String)>>,
) -> Fpm {
    let root_only = |value| if options.is_root { value } else { None };
    Fpm {
        file: options.file.clone(),
        pid: from.pid.as_ref().map(PathBuf::from),
        log_level: from.log_level.unwrap_or(DEFAULT_LEVEL),
        log_limit: usize::try_from(from.log_limit).unwrap_or_default(),
        log_buffering: from.log_buffering,
        syslog_ident: from.syslog_ident.clone().unwrap_or_default(),
        syslog_facility: from.syslog_facility.unwrap_or(DEFAULT_FACILITY),
        emergency_restart_threshold: count(from.emergency_restart_threshold),
        emergency_restart_interval: seconds(from.emergency_restart_interval),
        process_max: count(from.process_max),
        process_priority: root_only(from.process_priority),
        rlimit_files: files(from.rlimit_files),
        rlimit_core: core_size(from.rlimit_core),
        daemonize: from.daemonize,
        systemd_interval: seconds(from.systemd_interval.unwrap_or_default()),
        allow_root: options.allow_root,
        force_stderr: options.force_stderr,
        said_when_ready,
    }
}

fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or_default()
}

fn seconds(number: i32) -> Duration {
    Duration::from_secs(count(number).into()).min(MAX_DURATION)
}

/// `rlimit_files`, which php-fpm does not set if it is 0.
fn files(number: i32) -> Option<u64> {
    u64::try_from(number).ok().filter(|number| *number > 0)
}

fn core_size(number: i32) -> Option<CoreSize> {
    match number {
        0 => None,
        UNLIMITED => Some(CoreSize::Unlimited),
        size => u64::try_from(size).ok().map(CoreSize::Bytes),
    }
}

fn log_target(path: &str) -> LogTarget {
    if STANDARD_ERROR.contains(&path) {
        LogTarget::Stderr
    } else {
        LogTarget::File(PathBuf::from(path))
    }
}

/// The user for the environment variables USER and HOME, if there is one: `fpm_unix_conf_wp`, and
/// with `-t` `fpm_unix_test_config`.
fn identity(
    from: &PoolDraft,
    options: &Options,
    log: &mut Log,
) -> Result<Option<Account>, Refused> {
    let name = &from.name;
    let user = from.user.as_deref().filter(|user| !user.is_empty());
    let group = from.group.as_deref().filter(|group| !group.is_empty());
    if !options.is_root && !options.test {
        let ignored = [
            ("user", user.is_some()),
            ("group", group.is_some()),
            ("chroot", from.chroot.as_deref().is_some_and(|path| !path.is_empty())),
            ("process.priority", from.process_priority.is_some()),
        ];
        for (setting, _) in ignored.iter().filter(|(_, is_set)| *is_set) {
            log.notice(format!(
                "[pool {name}] '{setting}' directive is ignored when FPM is not running as root"
            ));
        }
        return Ok(accounts::own());
    }
    let mut who = None;
    // A user given by number is not in the environment.
    let mut named = None;
    if let Some(user) = user {
        who = match accounts::number(user) {
            Some(uid) => accounts::by_number(uid).or(Some(Account {
                name: String::new(),
                uid,
                gid: 0,
                home: String::new(),
            })),
            None => {
                named = accounts::by_name(user);
                if named.is_none() {
                    let error = format!("[pool {name}] cannot get uid for user '{user}'");
                    return Err(log.error(error));
                }
                named.clone()
            }
        };
    }
    let mut gid = who.as_ref().map_or(0, |who| who.gid);
    if let Some(group) = group {
        gid = match accounts::number(group).or_else(|| accounts::group(group)) {
            Some(gid) => gid,
            None => {
                let error = format!("[pool {name}] cannot get gid for group '{group}'");
                return Err(log.error(error));
            }
        };
    }
    if !options.is_root {
        return Ok(accounts::own());
    }
    let uid = who.as_ref().map_or(0, |who| who.uid);
    if (uid == 0 || gid == 0) && !options.allow_root {
        return Err(
            log.error(format!("[pool {name}] please specify user and group other than root"))
        );
    }
    Ok(named)
}

fn pool(from: &PoolDraft, options: &Options, who: Option<Account>, log: &mut Log) -> Pool {
    let owned = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let as_root = |text| if options.is_root { text } else { None };
    let backlog = u32::try_from(from.listen_backlog).ok();
    let mut pool = Pool {
        user: as_root(owned(&from.user)),
        group: as_root(owned(&from.group)),
        env: environment(from, options, who),
        confinement: confinement(from, options),
        max_requests: count(from.max_requests).into(),
        request_terminate_timeout: seconds(from.request_terminate_timeout),
        request_slowlog_timeout: seconds(from.request_slowlog_timeout),
        request_slowlog_trace_depth: count(from.request_slowlog_trace_depth).min(MAX_TRACE_DEPTH),
        // php-fpm has no output with it; `%C` is measured separately.
        request_accounting: false,
        slowlog: match from.request_slowlog_timeout {
            1.. => owned(&from.slowlog).map(|path| log_target(&path)),
            _ => None,
        },
        request_queue_timeout: QUEUE_TIMEOUT,
        request_queue_length: backlog
            .map_or(QUEUE_LENGTH, |backlog| backlog.clamp(1, MAX_QUEUE_LENGTH)),
        status_path: owned(&from.status_path),
        ping_path: owned(&from.ping_path),
        limit_extensions: from
            .limit_extensions
            .iter()
            .flat_map(|list| list.split([' ', '\t']))
            .filter(|extension| !extension.is_empty())
            .map(str::to_owned)
            .collect(),
        pool_access_log: owned(&from.access_log).map(|path| PoolAccessLog {
            path: PathBuf::from(path),
            format: from.access_format.clone().unwrap_or_default(),
            suppress_path: from.access_suppress_paths.clone(),
        }),
        catch_workers_output: from.catch_workers_output,
        decorate_workers_output: from.decorate_workers_output,
        clear_env: from.clear_env,
        defines: options.defines.clone(),
        no_php_ini: options.no_php_ini,
        request_terminate_timeout_track_finished: from.track_finished,
        process_dumpable: from.process_dumpable,
        direct_calls: true,
        preload: false,
        apparmor_hat: owned(&from.apparmor_hat),
        ..Pool::named(&from.name)
    };
    if let Some(response) = &from.ping_response {
        pool.ping_response.clone_from(response);
    }
    set_manager(&mut pool, from, log);
    set_ini_values(&mut pool, from);
    pool.php_ini = ini_file(options);
    pool
}

fn set_manager(pool: &mut Pool, from: &PoolDraft, log: &mut Log) {
    let asked = count(from.max_children);
    if asked > MAX_CHILDREN_PER_POOL {
        log.warning(format!(
            "[pool {}] pm.max_children({asked}) is more than there can be. I updated it for you to \
             {MAX_CHILDREN_PER_POOL}.",
            from.name
        ));
    }
    let at_most = |number| count(number).min(MAX_CHILDREN_PER_POOL);
    pool.pm = from.pm.unwrap_or(ProcessManager::Static);
    pool.max_children = Some(at_most(from.max_children));
    pool.max_spawn_rate = count(from.max_spawn_rate).max(1);
    pool.process_idle_timeout = seconds(from.process_idle_timeout);
    if pool.pm == ProcessManager::Dynamic {
        pool.start_servers = Some(at_most(from.start_servers));
        pool.min_spare_servers = Some(at_most(from.min_spare_servers));
        pool.max_spare_servers = Some(at_most(from.max_spare_servers));
    }
}

fn confinement(from: &PoolDraft, options: &Options) -> Confinement {
    let folder = |path: &Option<String>| {
        let path = path.as_deref().filter(|path| !path.is_empty());
        path.map(PathBuf::from)
    };
    let real = |path: PathBuf| path.canonicalize().unwrap_or(path);
    Confinement {
        chroot: folder(&from.chroot).filter(|_| options.is_root).map(real),
        chdir: folder(&from.chdir),
        rlimit_files: files(from.rlimit_files),
        rlimit_core: core_size(from.rlimit_core),
        process_priority: from.process_priority.filter(|_| options.is_root),
        // As in php-fpm, scripts may start mailers and sudo.
        no_new_privileges: NoNewPrivileges::No,
        ..Confinement::default()
    }
}

/// The environment of the workers (`fpm_env_init_child`, `fpm_env_conf_wp`), in php-fpm's order: it
/// prepends each setting. So of duplicate names, the first one wins.
fn environment(from: &PoolDraft, options: &Options, who: Option<Account>) -> Vec<(String, String)> {
    let mut all = if from.clear_env { Vec::new() } else { options.variables() };
    for (name, value) in from.env.iter().rev() {
        let value = match value.strip_prefix('$') {
            Some(variable) => options.variable(variable).unwrap_or_default(),
            None => value.clone(),
        };
        set_variable(&mut all, name, value);
    }
    let is_given = |name: &str| from.env.iter().any(|(given, _)| given == name);
    if let Some(who) = who {
        for (name, value) in [("USER", who.name), ("HOME", who.home)] {
            if !is_given(name) {
                set_variable(&mut all, name, value);
            }
        }
    }
    all
}

/// As `setenv(3)`: an existing variable keeps its position.
fn set_variable(all: &mut Vec<(String, String)>, name: &str, value: String) {
    match all.iter_mut().find(|(known, _)| known == name) {
        Some((_, old)) => *old = value,
        None => all.push((name.to_owned(), value)),
    }
}

fn set_ini_values(pool: &mut Pool, from: &PoolDraft) {
    let lists = [
        (&from.php_values, &mut pool.php_value),
        (&from.php_admin_values, &mut pool.php_admin_value),
    ];
    let mut added: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (list, into) in lists {
        // php-fpm loads the last ones first.
        for (_, extension) in list.iter().rev().filter(|(key, _)| key == "extension") {
            if !extension.is_empty() && !pool.extensions.contains(extension) {
                pool.extensions.push(extension.clone());
            }
        }
        for (key, value) in list.iter().filter(|(key, _)| key != "extension") {
            match ADDING_UP.iter().find(|name| *name == key) {
                Some(name) => added.entry(name).or_default().push(value),
                None => {
                    into.entry(key.clone()).or_insert_with(|| value.clone());
                }
            }
        }
    }
    for (key, values) in added {
        pool.php_admin_value.insert(key.to_owned(), values.join(","));
    }
}

/// The php.ini of the command line or the environment.
fn ini_file(options: &Options) -> Option<PathBuf> {
    let set = options.variable("PHPRC").filter(|value| !value.is_empty());
    let asked = options.php_ini.clone().or_else(|| set.map(PathBuf::from))?;
    if asked.is_dir() { ini_in(&asked) } else { Some(asked) }
}

/// The php.ini in a directory (`php_init_config`): the one with the program's own name first.
fn ini_in(folder: &Path) -> Option<PathBuf> {
    let names = ["php-fpm-fcgi.ini", "php.ini"];
    let files = names.iter().map(|name| folder.join(name));
    files.into_iter().find(|file| file.is_file())
}
