//! Settings of a pool, in `[pools.NAME]`. Names are php-fpm's, without the `pm.` prefix.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::pool::{MAX_CHILDREN_PER_POOL, Pool, ProcessManager};
use crate::read::directive::{Directive, Needs, Preset, store};
use crate::read::directives::global::log_target;
use crate::read::directives::{booted, confinement, mode, queue};
use crate::read::foreign::foreign_name;
use crate::read::value::{BadValue, TableEntry, Value, for_each};

/// Most `request_slowlog_trace_depth`: a stack is sent in one message.
const MAX_SLOWLOG_TRACE_DEPTH: u32 = 100;

/// The accepted entries of a table of php.ini settings, and their parser.
struct IniKind {
    takes: &'static str,
    read: fn(&Value<'_>) -> Result<String, BadValue>,
}

const INI_VALUE: IniKind =
    IniKind { takes: "a string, a number, true or false", read: |value| value.ini_value() };
const INI_FLAG: IniKind =
    IniKind { takes: "true or false (also \"on\" and \"off\")", read: |value| value.ini_flag() };

/// The directives of a pool.
pub const DIRECTIVES: &[Directive<Pool>] = &[
    Directive {
        name: "pm",
        default: Preset::Value("\"auto\""),
        takes: "\"static\", \"dynamic\", \"ondemand\" or \"auto\"",
        needs: Needs::NewZygote,
        doc: "How the number of workers is decided. `\"static\"` always has `max_children` \
              workers. `\"dynamic\"` has the busy ones, and between `min_spare_servers` and \
              `max_spare_servers` idle ones. `\"ondemand\"` has none until a request arrives, \
              and ends workers that were idle for `process_idle_timeout`; after the same time \
              without workers, the pool's PHP ends as well. A request without an idle worker \
              starts one at once, up to `max_children`; shrinking ends at most one worker a \
              second, the one that was idle longest. `\"auto\"` finds the number: as many as the \
              load needs, but no more than keep the processors busy and fit into memory (see the \
              guide's page on the number of workers).",
        example: "\"ondemand\"",
        read: |pool, value| store(&mut pool.pm, process_manager(value)),
    },
    mode::MODE,
    mode::SCRIPT,
    mode::BOOT_TIMEOUT,
    Directive {
        name: "max_children",
        default: Preset::Words(
            "with `pm = \"auto\"` 64 per core, but at most 128 or two per core; otherwise two per \
             core",
        ),
        takes: "a whole number from 1 to 10000",
        needs: Needs::NewZygote,
        doc: "Most workers of the pool, which is also the number of requests that run at a time.",
        example: "40",
        read: |pool, value| {
            store(&mut pool.max_children, value.count(1, MAX_CHILDREN_PER_POOL).map(Some))
        },
    },
    Directive {
        name: "start_servers",
        default: Preset::Words("the middle of `min_spare_servers` and `max_spare_servers`"),
        takes: "a whole number from 1 to 10000",
        needs: Needs::NewZygote,
        doc: "Workers of a dynamic pool at its start, from `min_spare_servers` to \
              `max_spare_servers`. Ignored in other pools.",
        example: "4",
        read: |pool, value| {
            store(&mut pool.start_servers, value.count(1, MAX_CHILDREN_PER_POOL).map(Some))
        },
    },
    Directive {
        name: "min_spare_servers",
        default: Preset::Words("none; a dynamic pool needs it"),
        takes: "a whole number from 0 to 10000",
        needs: Needs::NewZygote,
        doc: "Fewest idle workers of a dynamic pool, 1 or more: below it, the pool starts \
              workers as far as `max_children` allows. With `pm = \"auto\"` and 0, the last \
              worker ends after five minutes without a request, and the pool's PHP after another \
              `process_idle_timeout`. Ignored in other pools.",
        example: "2",
        read: |pool, value| {
            store(&mut pool.min_spare_servers, value.count(0, MAX_CHILDREN_PER_POOL).map(Some))
        },
    },
    Directive {
        name: "max_spare_servers",
        default: Preset::Words("none; a dynamic pool needs it"),
        takes: "a whole number from 1 to 10000",
        needs: Needs::NewZygote,
        doc: "Most idle workers of a dynamic pool, from `min_spare_servers` to `max_children`: \
              beyond it, one ends each second. Ignored in other pools.",
        example: "6",
        read: |pool, value| {
            store(&mut pool.max_spare_servers, value.count(1, MAX_CHILDREN_PER_POOL).map(Some))
        },
    },
    Directive {
        name: "max_spawn_rate",
        default: Preset::Value("32"),
        takes: "a whole number from 1 to 10000",
        needs: Needs::NewZygote,
        doc: "Most workers that a dynamic or ondemand pool starts within any one second, besides \
              `start_servers`. Up to that number they are started at once: unlike php-fpm, which \
              starts one, two, four … per second up to this rate, and in dynamic pools only. An \
              auto pool starts workers for all waiting requests at once, as far as memory and \
              processors allow.",
        example: "64",
        read: |pool, value| store(&mut pool.max_spawn_rate, value.count(1, MAX_CHILDREN_PER_POOL)),
    },
    Directive {
        name: "process_idle_timeout",
        default: Preset::Value("\"10s\""),
        takes: "a duration from 1 second to 366 days such as \"30s\"",
        needs: Needs::NewZygote,
        doc: "Idle time after which a worker of an ondemand pool ends, in whole seconds, and \
              after which its PHP without workers ends, also that of a pool with `pm = \"auto\"` \
              and `min_spare_servers = 0`. Ignored in other pools.",
        example: "\"60s\"",
        read: |pool, value| {
            let timeout = value.duration()?;
            if timeout < Duration::from_secs(1) {
                return Err(value.wrong());
            }
            pool.process_idle_timeout = timeout;
            Ok(())
        },
    },
    Directive {
        name: "pool_idle_timeout",
        default: Preset::Value("\"1h\""),
        takes: "a duration of at most 366 days such as \"1h\"; 0 is never",
        needs: Needs::NewZygote,
        doc: "Time without a request after which a pool with `pm = \"auto\"` ends its last worker; \
              after another `process_idle_timeout`, its PHP ends as well, unless it is among the \
              `spare_zygotes`. The next request starts both in 30 to 100 ms; a script that boots \
              once boots again. Ignored in other pools, and where `min_spare_servers` is set.",
        example: "\"0\"",
        read: |pool, value| store(&mut pool.pool_idle_timeout, value.duration()),
    },
    Directive {
        name: "user",
        default: Preset::Words("the owner of the document root, or `www-data` if that is root"),
        takes: "the name or the number of a user",
        needs: Needs::NewZygote,
        doc: "The user that PHP runs as. Used only if the server is started as root; otherwise \
              everything runs as the user who started it. A pool needs it where a symbolic link \
              leads to the document root, unless the link belongs to root or to the root's owner. \
              Where others than root can replace the document root, set it: a reload runs PHP as \
              the owner that the folder has then.",
        example: "\"shop\"",
        read: |pool, value| store(&mut pool.user, value.account().map(Some)),
    },
    Directive {
        name: "group",
        default: Preset::Words("the user's group"),
        takes: "the name or the number of a group",
        needs: Needs::NewZygote,
        doc: "The group that PHP runs as. Used only if the server is started as root.",
        example: "\"shop\"",
        read: |pool, value| store(&mut pool.group, value.account().map(Some)),
    },
    Directive {
        name: "php",
        default: Preset::Words("that of the program `maitred-php`"),
        takes: "a PHP version in quotes such as \"8.2\"",
        needs: Needs::NewZygote,
        doc: "The PHP version that runs the pool's scripts: that of the program `maitred-php8.2` \
              beside `maitred` or in `../libexec/maitred`, or of `maitred-php` if it has the \
              same version.",
        example: "\"8.2\"",
        read: |pool, value| store(&mut pool.php, value.text_as(php_version).map(Some)),
    },
    Directive {
        name: "php_ini",
        default: Preset::Words("`/etc/php/X.Y/fpm/php.ini` if it exists, or else PHP's own"),
        takes: "the path of a file",
        needs: Needs::NewZygote,
        doc: "The php.ini of the pool.",
        example: "\"php/shop.ini\"",
        read: |pool, value| store(&mut pool.php_ini, value.path().map(Some)),
    },
    Directive {
        name: "php_ini_scan_dir",
        default: Preset::Words("`/etc/php/X.Y/fpm/conf.d` if it exists, or else PHP's own"),
        takes: "the path of a directory",
        needs: Needs::NewZygote,
        doc: "The directory of further INI files, in which distributions load extensions.",
        example: "\"php/conf.d\"",
        read: |pool, value| store(&mut pool.php_ini_scan_dir, value.path().map(Some)),
    },
    Directive {
        name: "php_value",
        default: Preset::Value("{}"),
        takes: "a table of php.ini settings such as { memory_limit = \"256M\" }",
        needs: Needs::NewZygote,
        doc: "php.ini settings that scripts and `.user.ini` may change. Names with a dot may be \
              written with or without quotes.",
        example: "{ memory_limit = \"256M\", session.gc_maxlifetime = 3600 }",
        read: |pool, value| ini_table(&mut pool.php_value, value, &INI_VALUE),
    },
    Directive {
        name: "php_admin_value",
        default: Preset::Value("{}"),
        takes: "a table of php.ini settings such as { memory_limit = \"256M\" }",
        needs: Needs::NewZygote,
        doc: "php.ini settings that neither scripts nor `.user.ini` can change.",
        example: "{ open_basedir = \"/srv/shop\" }",
        read: |pool, value| ini_table(&mut pool.php_admin_value, value, &INI_VALUE),
    },
    Directive {
        name: "php_flag",
        default: Preset::Value("{}"),
        takes: "a table of php.ini switches such as { display_errors = false }",
        needs: Needs::NewZygote,
        doc: "As `php_value`, for settings that are on or off.",
        example: "{ display_errors = false }",
        read: |pool, value| ini_table(&mut pool.php_value, value, &INI_FLAG),
    },
    Directive {
        name: "php_admin_flag",
        default: Preset::Value("{}"),
        takes: "a table of php.ini switches such as { display_errors = false }",
        needs: Needs::NewZygote,
        doc: "As `php_admin_value`, for settings that are on or off.",
        example: "{ log_errors = true }",
        read: |pool, value| ini_table(&mut pool.php_admin_value, value, &INI_FLAG),
    },
    Directive {
        name: "env",
        default: Preset::Value("{}"),
        takes: "a table of environment variables such as { APP_ENV = \"prod\" }",
        needs: Needs::NewZygote,
        doc: "Environment variables of the pool's PHP, taken literally: `$` has no meaning in a \
              value. PHP gets nothing else of the server's own environment, but \
              for `pass_env`.",
        example: "{ APP_ENV = \"prod\" }",
        read: |pool, value| {
            for_each(value.entries(INI_VALUE.takes)?, |entry| {
                if entry.name.is_empty() || entry.name.contains(['=', '\0']) {
                    return Err(entry.misnamed("cannot be the name of an environment variable"));
                }
                pool.env.push((entry.name, entry.value.ini_value()?));
                Ok(())
            })
        },
    },
    Directive {
        name: "pass_env",
        default: Preset::Value("\"none\""),
        takes: "\"none\", \"all\", a name such as \"DB_*\", or an array of names",
        needs: Needs::NewZygote,
        doc: "Variables of the server's own environment that the pool's PHP gets, as with \
              php-fpm's `clear_env = no`; a `*` stands for any letters. It is for containers, \
              whose settings are variables. `env` takes precedence. Never passed are `MAITRED_…` \
              and what systemd sets for the service.",
        example: "[\"DB_*\", \"APP_KEY\"]",
        read: |pool, value| {
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '*';
            let is_name = |name: &str| !name.is_empty() && name.chars().all(is_part);
            let names =
                value.each(|item| item.text_as(|name| is_name(name).then(|| name.to_owned())))?;
            pool.pass_env = match names.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["none"] => Vec::new(),
                ["all"] => vec!["*".to_owned()],
                _ => names,
            };
            Ok(())
        },
    },
    confinement::CHROOT,
    confinement::CHDIR,
    confinement::RLIMIT_FILES,
    confinement::RLIMIT_CORE,
    confinement::PROCESS_PRIORITY,
    confinement::OOM_SCORE_ADJ,
    confinement::NO_NEW_PRIVILEGES,
    confinement::MEMORY_MAX,
    confinement::MEMORY_HIGH,
    confinement::CPU_MAX,
    confinement::PIDS_MAX,
    booted::REQUESTS_PER_CHILD,
    booted::REWINDS_PER_CHILD,
    booted::BOOT_CONNECTIONS,
    booted::SAPI_NAME,
    booted::WATCH,
    booted::WARM_REQUESTS,
    booted::OPCACHE_MEMORY_MAX,
    Directive {
        name: "max_requests",
        default: Preset::Value("0"),
        takes: "a whole number from 0 to 4294967295",
        needs: Needs::NewZygote,
        doc: "Requests after which a worker is replaced, against memory leaks. Its replacement \
              is started a little before, at a different time for each worker, and takes over \
              when it is ready, so that no request waits for it. 0 means never.",
        example: "1000",
        read: |pool, value| {
            pool.max_requests = value.count(0, u32::MAX)?.into();
            Ok(())
        },
    },
    Directive {
        name: "max_private_memory",
        default: Preset::Value("0"),
        takes: "a size such as \"64M\"",
        needs: Needs::NewZygote,
        doc: "Private memory of an idle worker beyond which it is replaced, against memory \
              leaks. Memory shared with other processes (PHP itself, OPcache, pages inherited \
              from its zygote) does not count. 0 means no limit.",
        example: "\"96M\"",
        read: |pool, value| store(&mut pool.max_private_memory, value.size(0)),
    },
    Directive {
        name: "request_terminate_timeout",
        default: Preset::Value("0"),
        takes: "a duration of at most 366 days such as \"30s\"",
        needs: Needs::NewZygote,
        doc: "Timeout of a running script: its worker is ended and the client gets a 504, also \
              when the client has disconnected. A script that continues after \
              fastcgi_finish_request() is not ended, as in php-fpm by default. A worker that takes \
              none of its requests for that long is ended, too; without a timeout, after 10 s. 0 \
              means none.",
        example: "\"30s\"",
        read: |pool, value| store(&mut pool.request_terminate_timeout, value.duration()),
    },
    Directive {
        name: "request_slowlog_timeout",
        default: Preset::Value("0"),
        takes: "a duration of at most 366 days such as \"30s\"",
        needs: Needs::NewZygote,
        doc: "Run time of a script after which its stack is written to `slowlog`: once for each \
              request, also when the client has disconnected, but not after \
              fastcgi_finish_request(). The script is neither stopped nor slowed down. Not more \
              than `request_terminate_timeout`. 0 means never.",
        example: "\"5s\"",
        read: |pool, value| store(&mut pool.request_slowlog_timeout, value.duration()),
    },
    Directive {
        name: "slowlog",
        default: Preset::Value("\"off\""),
        takes: "a path, \"stderr\" or \"off\"",
        needs: Needs::NewZygote,
        doc: "The file to which the PHP stacks of slow scripts are appended, in php-fpm's format \
              with class names added to methods. Several pools may share one. The server creates \
              it, readable by the user who starts the server and its group. An entry that cannot \
              be written is lost; nothing waits for it.",
        example: "\"log/slow.log\"",
        read: |pool, value| {
            pool.slowlog = match value.text()? {
                "off" => None,
                _ => Some(log_target(value)?),
            };
            Ok(())
        },
    },
    Directive {
        name: "request_slowlog_trace_depth",
        default: Preset::Value("20"),
        takes: "a whole number from 1 to 100",
        needs: Needs::NewZygote,
        doc: "Most calls of a stack in `slowlog`, counted from the innermost.",
        example: "50",
        read: |pool, value| {
            store(&mut pool.request_slowlog_trace_depth, value.count(1, MAX_SLOWLOG_TRACE_DEPTH))
        },
    },
    Directive {
        name: "request_accounting",
        default: Preset::Value("true"),
        takes: "true or false",
        needs: Needs::NewZygote,
        doc: "Whether the time of each request is measured by its cause: processor time, waiting \
              for a processor, waiting for anything else, and processor time of child processes. \
              It costs less than a microsecond per request. A pool with `pm = \"auto\"`, the \
              default, measures in any case. See the guide's page on request times.",
        example: "false",
        read: |pool, value| store(&mut pool.request_accounting, value.boolean()),
    },
    Directive {
        name: "direct_calls",
        default: Preset::Value("true"),
        takes: "true or false",
        needs: Needs::NewZygote,
        doc: "Whether PHP's library calls its own functions directly, as php-fpm's program does, \
              instead of through its procedure linkage table: scripts take some per cent less \
              processor time. All pools share one copy of the library's code for it (4 MB). \
              Turn it off to trace functions of the library with `perf` or `bpftrace`. Only on \
              x86-64.",
        example: "false",
        read: |pool, value| store(&mut pool.direct_calls, value.boolean()),
    },
    Directive {
        name: "preload",
        default: Preset::Value("false"),
        takes: "true or false",
        needs: Needs::NewZygote,
        doc: "In `mode = \"classic\"`, whether PHP preloads the classes that the pool uses: once \
              its OPcache has them, the pool gets another generation of workers, whose PHP has \
              linked them at its start (`opcache.preload`). It pays where classes are \
              autoloaded, as with Composer. Only scripts that declare one class and nothing \
              else are preloaded. A change of one of their files, `opcache_reset()`, a request \
              for a script in a new folder, and a reload each start again without preloading, \
              and the pool learns again; so does a crash or a conflict of names, once and for \
              all until the next reload. `maitred status POOL` shows the state.",
        example: "true",
        read: |pool, value| store(&mut pool.preload, value.boolean()),
    },
    Directive {
        name: "server_timing",
        default: Preset::Value("false"),
        takes: "true or false",
        needs: Needs::NewZygote,
        doc: "Whether responses of scripts have a `Server-Timing` header with the times of \
              `request_accounting`, which browsers show. All clients see it. A response that \
              starts before its script has ended has none.",
        example: "true",
        read: |pool, value| store(&mut pool.server_timing, value.boolean()),
    },
    queue::REQUEST_QUEUE_TIMEOUT,
    queue::REQUEST_QUEUE_LENGTH,
    queue::REQUEST_DEADLINE_HEADER,
    queue::RESERVED_WORKERS,
    Directive {
        name: "spool_limit",
        default: Preset::Value("\"1G\""),
        takes: "a size such as \"64M\"",
        needs: Needs::NewZygote,
        doc: "Most bytes of one response that are buffered for a slow client, first in memory, \
              then in a file in `spool_dir`. Beyond it, and beyond the pool's share of \
              `spool_max_size`, the script waits.",
        example: "\"256M\"",
        read: |pool, value| store(&mut pool.spool_limit, value.size(0)),
    },
    Directive {
        name: "status_path",
        default: Preset::Value("\"\""),
        takes: OWN_PATH,
        needs: Needs::NewZygote,
        doc: "The path of php-fpm's status page on every site of the pool, also while all \
              workers are busy: as text, or with `?html`, `?json`, `?xml` or `?openmetrics`, and \
              each of them with `&full`. It takes precedence over a file of that name. All \
              clients of the site can read it. `\"\"` means none.",
        example: "\"/status\"",
        read: |pool, value| store(&mut pool.status_path, value.text_as(own_path)),
    },
    Directive {
        name: "ping_path",
        default: Preset::Value("\"\""),
        takes: OWN_PATH,
        needs: Needs::NewZygote,
        doc: "The path that responds with `ping_response` on every site of the pool, also while \
              all workers are busy. It takes precedence over `status_path`, and over a file of \
              that name. `\"\"` means none.",
        example: "\"/ping\"",
        read: |pool, value| store(&mut pool.ping_path, value.text_as(own_path)),
    },
    Directive {
        name: "ping_response",
        default: Preset::Value("\"pong\""),
        takes: "a text that is not empty",
        needs: Needs::NewZygote,
        doc: "The response of `ping_path`, as plain text.",
        example: "\"alive\"",
        read: |pool, value| {
            store(
                &mut pool.ping_response,
                value.text_as(|text| (!text.is_empty()).then(|| text.to_owned())),
            )
        },
    },
];

/// The characters of php-fpm's `pm.status_path` and `ping.path` (`fpm_conf.c`): none of them has
/// two spellings in a request.
const OWN_PATH: &str =
    "a path such as \"/status\" of letters, digits and the characters /-_.~, or \"\" for none";

fn own_path(text: &str) -> Option<Option<String>> {
    if text.is_empty() {
        return Some(None);
    }
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    let taken = text.starts_with('/') && text.len() > 1 && text.bytes().all(good);
    taken.then(|| Some(text.to_owned()))
}

fn process_manager(value: &Value<'_>) -> Result<ProcessManager, BadValue> {
    if value.is_table() {
        return for_each(value.entries(INI_VALUE.takes)?, |entry| {
            let name = format!("pm.{}", entry.name);
            Err(match foreign_name(&name) {
                Some(sentence) => entry.fault(sentence),
                None => entry.misnamed("is unknown; leave the prefix `pm.` out"),
            })
        })
        .and_then(|()| Err(value.wrong()));
    }
    match value.text()? {
        "static" => Ok(ProcessManager::Static),
        "dynamic" => Ok(ProcessManager::Dynamic),
        "ondemand" => Ok(ProcessManager::Ondemand),
        "auto" => Ok(ProcessManager::Auto),
        _ => Err(value.wrong()),
    }
}

fn php_version(text: &str) -> Option<String> {
    let is_number = |part: &str| {
        (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    let (major, minor) = text.split_once('.')?;
    (is_number(major) && is_number(minor)).then(|| text.to_owned())
}

fn ini_table(
    into: &mut BTreeMap<String, String>,
    table: &Value<'_>,
    kind: &IniKind,
) -> Result<(), BadValue> {
    for_each(table.entries(kind.takes)?, |entry| ini_entry(into, "", entry, kind))
}

/// Reads one entry. In TOML `session.gc_divisor = 5` is a nested table, so the parts of a name are
/// joined again here; TOML itself bounds the nesting.
fn ini_entry(
    into: &mut BTreeMap<String, String>,
    prefix: &str,
    entry: TableEntry<'_>,
    kind: &IniKind,
) -> Result<(), BadValue> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if entry.name.is_empty() || !entry.name.bytes().all(good) {
        return Err(entry.misnamed("cannot be the name of a php.ini setting"));
    }
    let name = format!("{prefix}{}", entry.name);
    if entry.value.is_table() {
        let prefix = format!("{name}.");
        return for_each(entry.value.entries(kind.takes)?, |inner| {
            ini_entry(into, &prefix, inner, kind)
        });
    }
    let value = (kind.read)(&entry.value)?;
    if into.contains_key(&name) {
        return Err(entry.misnamed("is set twice in this pool; leave one out"));
    }
    into.insert(name, value);
    Ok(())
}
