//! Settings of the whole server, at the top of the file.

use toml::Spanned;
use toml::de::DeValue;

use super::forwarded_clients::{
    PROXY_PROTOCOL, TRUSTED_HEADERS, TRUSTED_PROXIES, TRUSTED_RECURSIVE,
};
use super::listeners::asked;
use super::user_dirs;
use crate::mistakes::Fault;
use crate::model::admin::{self, AdminToken, TOKEN};
use crate::model::collector::Collector;
use crate::model::config::Config;
use crate::model::listener::Address;
use crate::model::log_format::LogFormat;
use crate::model::log_target::LogTarget;
use crate::read::directive::{Directive, Needs, Preset, store};
use crate::read::directives::purge_log::PURGE_LOG;
use crate::read::listen::parse_listen;
use crate::read::value::{BadValue, Value};
use crate::sources::Sources;

/// Most threads of the front.
const MAX_FRONT_THREADS: u32 = 64;

/// Most `min_request_rate` and `min_response_rate`, in bytes per second: slow links reach no more.
const MAX_MIN_RATE: u32 = 1_000_000;
/// Most `max_connections_per_address`.
const MAX_CONNECTIONS_PER_ADDRESS: u32 = 1_000_000;
/// Most `spare_zygotes`.
const MAX_SPARE_ZYGOTES: u32 = 1000;
const LOG: &str = "a path, \"stderr\", \"syslog\" or \"journald\"";
const LOG_OR_OFF: &str = "a path, \"stderr\", \"syslog\", \"journald\" or \"off\"";

const INCLUDE: &str = "a path or a pattern such as \"sites/*.toml\", or an array of them";

/// The directives at the top of the file.
pub const DIRECTIVES: &[Directive<Config>] = &[
    Directive {
        name: "include",
        default: Preset::Words("none"),
        takes: INCLUDE,
        needs: Needs::Live,
        doc: "Further files of the configuration: paths, or patterns with `*`, `?` and `[a-z]` in \
              names. Paths start from the directory of the file with the `include`; so do all \
              relative paths in an included file from its own. Files are read in the order of \
              their names, each once, and may include others, at most 8 deep and 10,000 in all. \
              An included file has `[pools.NAME]`, `[[sites]]`, `include`, and `[tls]` with \
              `certificates`. A missing file is an error; a pattern may match none, and it does \
              not match names that start with a dot. A reload reads all of them again.",
        example: "\"sites.d/*.toml\"",
        read: |_, value| patterns(value),
    },
    Directive {
        name: "listen",
        default: Preset::Words("`\"127.0.0.1:8080\"`, or nothing if there is a section `[tls]`"),
        takes: "an address and a port such as \"127.0.0.1:8080\", or an array of them",
        needs: Needs::Live,
        doc: "Addresses and ports for plain HTTP. `\":80\"` and `\"80\"` mean all addresses, \
              IPv4 and IPv6, as `\"[::]:80\"` does. With port 0 the system chooses a port.",
        example: "[\"[::]:80\"]",
        read: |config, value| {
            config.listen =
                value.each(|item| parse_listen(item.text()?).map_err(|why| item.refused(&why)))?;
            Ok(())
        },
    },
    Directive {
        name: "access_log",
        default: Preset::Value("\"off\""),
        takes: LOG_OR_OFF,
        needs: Needs::Live,
        doc: "The access log, with one line per request: a file, or `\"syslog\"` or \
              `\"journald\"` as in `error_log`. `\"stderr\"` writes the lines among the server's \
              own messages. With `severity=`, the lines in syslog have another severity than \
              `info`.",
        example: "\"log/access.log\"",
        read: |config, value| {
            config.access_log = match value.text()? {
                "off" => None,
                _ => Some(log_or_collector(value)?),
            };
            Ok(())
        },
    },
    Directive {
        name: "access_log_format",
        default: Preset::Value("\"combined\""),
        takes: "\"combined\", \"json\" or a text with variables such as \"$remote_addr $status\"",
        needs: Needs::Live,
        doc: "The format of the access log: `\"combined\"` is the combined format of Apache and \
              nginx followed by the time in the queue, the run time of the script and the \
              request id; `\"json\"` is one JSON object per line; any other text is a format \
              with [nginx's variables](../guide/logs.md#formats). A format that starts with `{` \
              is JSON.",
        example: "\"$host $remote_addr \\\"$request\\\" $status $request_ms $queue_ms $script_ms\"",
        read: |config, value| {
            let format = LogFormat::parse(value.text()?);
            config.access_log_format = format.map_err(|why| value.refused(&why))?;
            Ok(())
        },
    },
    Directive {
        name: "send_request_id",
        default: Preset::Value("false"),
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether responses have an `X-Request-Id` header. Scripts find the id in \
              `REQUEST_ID`, and the logs have it in any case. If a trusted proxy sends an \
              `X-Request-Id` header, the id is that one.",
        example: "true",
        read: |config, value| store(&mut config.send_request_id, value.boolean()),
    },
    Directive {
        name: "error_log",
        default: Preset::Value("\"stderr\""),
        takes: LOG,
        needs: Needs::Live,
        doc: "The log of the server's own messages, of PHP's error log and of PHP's standard \
              error. `\"syslog\"` is the machine's own; a remote one takes nginx's options, as \
              in `\"syslog:server=192.0.2.1:514,facility=local7,tag=maitred\"` (UDP) or \
              `server=unix:/dev/log`. Lines that cannot be delivered are written to standard \
              error. A change from one kind of log to another needs a restart.",
        example: "\"log/error.log\"",
        read: |config, value| store(&mut config.error_log, log_or_collector(value)),
    },
    Directive {
        name: "admin",
        default: Preset::Value("\"off\""),
        takes: "an address and a port such as \"127.0.0.1:9180\", the path of a Unix socket, or \
                \"off\"",
        needs: Needs::Live,
        doc: "The HTTP listener for Prometheus metrics (`/metrics`), readiness (`/ready`, \
              `/startup`, `/live`), load (`/scale`, `/scale/POOL`), status pages \
              (`/status/POOL`) and pings (`/ping/POOL`). All processes of this machine reach a \
              loopback address, and so do the scripts of all pools: set `admin_token` there, or \
              use a Unix socket (`\"unix:/run/maitred/http.sock\"`). A client without the token, \
              or without rights on the socket, sees no query strings, and where pools run as \
              several users no request paths either.",
        example: "\"127.0.0.1:9180\"",
        read: |config, value| {
            (config.admin, config.admin_access.draft.path) = match value.text()? {
                "off" => (None, None),
                _ => match asked(value)?.address {
                    Address::Tcp(address) => (Some(address), None),
                    Address::Unix(path) => (None, Some(path)),
                },
            };
            Ok(())
        },
    },
    Directive {
        name: "agent_check",
        default: Preset::Value("\"off\""),
        takes: "an address and a port such as \"10.0.0.2:9181\", or \"off\"",
        needs: Needs::Live,
        doc: "The address for HAProxy's agent checks (`agent-check agent-port 9181`): each \
              connection gets one line with the state of this node and its weight, which \
              follows `saturation`, such as `up 63%`; `drain` while the server stops, and \
              `down` while it is not ready. Every client that can connect can read that.",
        example: "\"10.0.0.2:9181\"",
        read: |config, value| {
            config.agent_check = match value.text()? {
                "off" => None,
                _ => match asked(value)?.address {
                    Address::Tcp(address) => Some(address),
                    Address::Unix(_) => return Err(value.wrong()),
                },
            };
            Ok(())
        },
    },
    Directive {
        name: "admin_owner",
        default: Preset::Words("the user who starts the server"),
        takes: "the name or the number of a user",
        needs: Needs::Live,
        doc: "The owner of the Unix socket of `admin`, who may read everything there.",
        example: "\"monitoring\"",
        read: |config, value| {
            store(&mut config.admin_access.draft.owner, value.account().map(Some))
        },
    },
    Directive {
        name: "admin_group",
        default: Preset::Words("that of `admin_owner`"),
        takes: "the name or the number of a group",
        needs: Needs::Live,
        doc: "The group of the Unix socket of `admin`. Processes that run with it as their group \
              may read everything there.",
        example: "\"monitoring\"",
        read: |config, value| {
            store(&mut config.admin_access.draft.group, value.account().map(Some))
        },
    },
    Directive {
        name: "admin_mode",
        default: Preset::Value("\"0660\""),
        takes: "an octal number in quotes such as \"0660\"",
        needs: Needs::Live,
        doc: "The mode of the Unix socket of `admin`: write permission allows to connect. A \
              client gets a 403 if it is neither root, the server's user, of `admin_owner`, \
              `admin_group` or `admin_users`, nor has the token.",
        example: "\"0666\"",
        read: |config, value| {
            let octal = |text: &str| u32::from_str_radix(text, 8).ok();
            let mode = value.text_as(|text| octal(text).filter(|mode| *mode <= 0o777))?;
            config.admin_access.draft.mode = Some(mode);
            Ok(())
        },
    },
    Directive {
        name: "admin_users",
        default: Preset::Words("none"),
        takes: "the name or the number of a user, or an array of them",
        needs: Needs::Live,
        doc: "Further users who may read everything over the Unix socket of `admin`, if its mode \
              lets them connect. The kernel reports the user of each client.",
        example: "\"nobody\"",
        read: |config, value| {
            config.admin_access.users = value.each(|item| {
                let user = admin::user(&item.account()?);
                user.ok_or_else(|| item.refused("is no user of this machine"))
            })?;
            Ok(())
        },
    },
    Directive {
        name: "admin_token",
        default: Preset::Words("none"),
        takes: TOKEN,
        needs: Needs::Live,
        doc: "The bearer token of clients of `admin` (`Authorization: Bearer TOKEN`); requests \
              without it get a 401. `admin_token_file` keeps the token out of this file.",
        example: "\"uHqUJ3tnW6rQ0T1kVbcz\"",
        read: |config, value| {
            store(&mut config.admin_access.token, value.secret(AdminToken::new).map(Some))
        },
    },
    Directive {
        name: "admin_token_file",
        default: Preset::Words("none"),
        takes: "a path",
        needs: Needs::Live,
        doc: "A file with that token, without permissions for other users. It is read at the \
              start and at each reload.",
        example: "\"admin.token\"",
        read: |config, value| {
            let token = AdminToken::in_file(&value.path()?);
            config.admin_access.token = Some(token.map_err(|why| value.refused(&why))?);
            Ok(())
        },
    },
    Directive {
        name: "admin_purge_token_file",
        default: Preset::Words("none: the dashboard changes nothing"),
        takes: "a path",
        needs: Needs::Live,
        doc: "A file with another token, without permissions for other users, with which the \
              dashboard purges cached pages. It is not `admin_token`, which a browser sends by \
              itself.",
        example: "\"purge.token\"",
        read: |config, value| {
            let token = AdminToken::in_file(&value.path()?);
            let token = token.map_err(|why| value.refused(&why))?;
            config.admin_access.purge_token = Some(token);
            Ok(())
        },
    },
    Directive {
        name: "admin_url",
        default: Preset::Words("none: there is no link"),
        takes: "a URL of a host and perhaps a port, such as \"https://node1.example:9180\"",
        needs: Needs::Live,
        doc: "Where a browser reaches the `admin` listener of this node. The dashboards of the \
              other nodes with the same `purge_log` link to it.",
        example: "\"https://node1.example:9180\"",
        read: |config, value| {
            let url = |text: &str| admin::is_origin(text).then(|| text.to_owned());
            store(&mut config.admin_access.url, value.text_as(url).map(Some))
        },
    },
    Directive {
        name: "admin_socket",
        default: Preset::Words(
            "/run/maitred/admin.sock for root; otherwise maitred/admin.sock in $XDG_RUNTIME_DIR, \
             or maitred-UID/admin.sock in the folder for temporary files",
        ),
        takes: "a path",
        needs: Needs::Restart,
        doc: "The Unix socket over which `maitred status`, `top`, `reload`, `stop` and `drain` \
              reach the server; for its user and root only. If it is set, no other server may \
              use it. If another server uses the default, the socket is `admin-PID.sock` beside \
              it.",
        example: "\"/run/maitred/admin.sock\"",
        read: |config, value| store(&mut config.admin_socket, value.path().map(Some)),
    },
    TRUSTED_PROXIES,
    TRUSTED_HEADERS,
    TRUSTED_RECURSIVE,
    PROXY_PROTOCOL,
    Directive {
        name: "min_request_rate",
        default: Preset::Value("500"),
        takes: "a whole number from 0 to 1000000",
        needs: Needs::Live,
        doc: "Least rate in bytes per second of a request body. A slower client has a budget of \
              20 seconds: waiting for it spends the budget, and each second's worth of bytes earns \
              a second back. When it is spent, the client gets a 408. The request header has a \
              timeout of 20 seconds in any case. 0 requires one byte in 20 seconds. A change \
              applies to new connections.",
        example: "1000",
        read: |config, value| store(&mut config.min_request_rate, value.count(0, MAX_MIN_RATE)),
    },
    Directive {
        name: "min_response_rate",
        default: Preset::Value("500"),
        takes: "a whole number from 0 to 1000000",
        needs: Needs::Live,
        doc: "Least rate in bytes per second at which a client reads a response, with a budget \
              of 60 seconds that works like that of `min_request_rate`. Only time spent waiting \
              for the client counts, not that of a script. The connection of a slower client is \
              closed. 0 requires that some bytes are read in 60 seconds. A change applies to new \
              connections.",
        example: "1000",
        read: |config, value| store(&mut config.min_response_rate, value.count(0, MAX_MIN_RATE)),
    },
    Directive {
        name: "max_connections_per_address",
        default: Preset::Value("256"),
        takes: "a whole number from 0 to 1000000",
        needs: Needs::Live,
        doc: "Most simultaneous connections of one client address, or of one /64 of IPv6; \
              further ones are closed. Not limited are `trusted_proxies`, this machine, and \
              private networks (such as `10.0.0.0/8`, `192.168.0.0/16`, `fc00::/7`), where other \
              proxies and containers are. With the PROXY protocol, the address is the client's. \
              0 is no limit.",
        example: "1000",
        read: |config, value| {
            store(
                &mut config.clients.connections_per_address,
                value.count(0, MAX_CONNECTIONS_PER_ADDRESS),
            )
        },
    },
    Directive {
        name: "request_memory",
        default: Preset::Value("\"48M\""),
        takes: "a size from 1048576 on such as \"64M\"",
        needs: Needs::Live,
        doc: "Memory for all requests in flight, which wait for their body or for a worker: their \
              headers, what is encoded for a worker, over HTTP/2 bodies without a file, and pages \
              of the server's own that their client has not read, such as listings. A few bytes \
              of HTTP/2 can decode to a large header. The first 96 KB of each connection are not \
              counted. Bodies use half of it at most; beyond that, they are written to \
              `spool_dir` however small they are. Clients of one address, or of one /64 of IPv6, \
              may use an eighth of it, so that one client cannot cause the rejection of others; \
              `trusted_proxies`, this machine and private networks, which stand for many clients, \
              may use all of it. With the PROXY protocol, the address is the client's. Beyond it, \
              requests are rejected: over HTTP/2 with `REFUSED_STREAM`, so that the client \
              retries, over HTTP/1 with a 503.",
        example: "\"256M\"",
        read: |config, value| store(&mut config.clients.request_memory, value.size(1 << 20)),
    },
    Directive {
        name: "front_user",
        default: Preset::Words(
            "`maitred` where that user exists, as after an installation; else `www-data`",
        ),
        takes: "the name or the number of a user",
        needs: Needs::Restart,
        doc: "The user of the front, the process that talks to clients. It must be able to read \
              the document roots, and should not be the user of a pool, whose scripts could send \
              it signals. Used only if the server is started as root; otherwise everything runs \
              as the user who started it.",
        example: "\"www-data\"",
        read: |config, value| store(&mut config.front_user, value.account()),
    },
    Directive {
        name: "front_sandbox",
        default: Preset::Value("true"),
        takes: "true or false",
        needs: Needs::Restart,
        doc: "Whether the front, and the process that gets certificates, are restricted to the \
              system calls and files that they need (seccomp and Landlock), without a way to \
              gain privileges. Restrictions that the kernel does not support are logged and left \
              out. A sandbox cannot be widened: a reload that adds a site in a new part of the \
              file system warns that the server has to be restarted or upgraded. That is needed, \
              too, when a file system is mounted on `/home`, `/srv` or another such part, or the \
              directory is replaced.",
        example: "false",
        read: |config, value| store(&mut config.front_sandbox, value.boolean()),
    },
    Directive {
        name: "front_threads",
        default: Preset::Value("0"),
        takes: "a whole number from 0 to 64",
        needs: Needs::Restart,
        doc: "Threads of the front. 0 means one for every two cores: the scripts need the rest.",
        example: "4",
        read: |config, value| store(&mut config.front_threads, value.count(0, MAX_FRONT_THREADS)),
    },
    Directive {
        name: "spool_dir",
        default: Preset::Words("the system's directory for temporary files"),
        takes: "the path of a directory",
        needs: Needs::Live,
        doc: "The directory for temporary files: request bodies too large for memory, and \
              responses buffered for slow clients. `front_user` must be able to write there.",
        example: "\"spool\"",
        read: |config, value| store(&mut config.spool_dir, value.directory()),
    },
    Directive {
        name: "spool_max_size",
        default: Preset::Words("three quarters of the space that the file system has free"),
        takes: "a size from 1048576 on such as \"10G\"",
        needs: Needs::Live,
        doc: "Most bytes of all files in `spool_dir`. One pool may have as many of them as are \
              left, so half if no other has any, and there is always space for others; with its \
              request bodies, it may have four times as many as are left. Beyond that, a script \
              waits for its client, and a request body of more than 64 KiB is refused with a \
              503. After an upgrade, the former front has a limit of its own until its last \
              client has left.",
        example: "\"10G\"",
        read: |config, value| store(&mut config.spool_max_size, value.size(1 << 20).map(Some)),
    },
    user_dirs::PRIVATE_DIR,
    Directive {
        name: "cache_memory",
        default: Preset::Value("\"64M\""),
        takes: "a size from 1048576 on such as \"64M\"",
        needs: Needs::Restart,
        doc: "Memory for the cached pages of all sites with a `[sites.cache]`. It is divided by \
              the number of processors, 16 at most, and one page may use a quarter of such a \
              part: with four processors and 64 MB, 4 MB.",
        example: "\"256M\"",
        read: |config, value| store(&mut config.cache_memory, value.size(1 << 20)),
    },
    Directive {
        name: "cache_dir",
        default: Preset::Words("none; pages are cached in memory only"),
        takes: "the path of a directory",
        needs: Needs::Restart,
        doc: "The directory for cached pages, which survive a restart of the server there. \
              `front_user` must be able to write there, and no other user should.",
        example: "\"cache\"",
        read: |config, value| store(&mut config.cache_dir, value.directory().map(Some)),
    },
    PURGE_LOG,
    Directive {
        name: "cache_max_size",
        default: Preset::Value("\"1G\""),
        takes: "a size from 1048576 on such as \"1G\"",
        needs: Needs::Restart,
        doc: "Most bytes of all pages in `cache_dir`, each rounded up to 4 KiB, as file systems \
              store it. Beyond it, the site with the most bytes loses its least recently requested \
              pages.",
        example: "\"10G\"",
        read: |config, value| store(&mut config.cache_max_size, value.size(1 << 20)),
    },
    Directive {
        name: "cache_inactive",
        default: Preset::Value("\"10m\""),
        takes: "a duration such as \"1h\"",
        needs: Needs::Restart,
        doc: "Time without a request after which a page is evicted from `cache_dir`.",
        example: "\"1h\"",
        read: |config, value| store(&mut config.cache_inactive, value.duration()),
    },
    Directive {
        name: "process_control_timeout",
        default: Preset::Value("\"60s\""),
        takes: "a duration of at most 366 days such as \"30s\"",
        needs: Needs::Live,
        doc: "How long a shutdown waits for running requests before it ends them. 0 means not at \
              all, which is php-fpm's default and aborts them. Keep it below `TimeoutStopSec` of \
              systemd, which is 120 seconds in our unit. A second signal ends the server at once.",
        example: "\"30s\"",
        read: |config, value| store(&mut config.process_control_timeout, value.duration()),
    },
    Directive {
        name: "stop_delay",
        default: Preset::Value("0"),
        takes: "a duration of at most 366 days such as \"5s\"",
        needs: Needs::Live,
        doc: "How long a server that gets SIGTERM, SIGQUIT, `maitred stop` or `maitred drain` \
              goes on as before, so that load balancers notice: `/ready` responds with 503, \
              HTTP/1 responses have `Connection: close`, and HTTP/2 clients get GOAWAY. New \
              clients are served, too. Then the shutdown starts (`process_control_timeout`). Set \
              it to more than the interval of the load balancer's check times the number of \
              failures that it needs. Both times together must be less than `TimeoutStopSec` of \
              systemd, or `terminationGracePeriodSeconds` of Kubernetes. A second signal, or \
              SIGINT as the first, ends it.",
        example: "\"5s\"",
        read: |config, value| store(&mut config.stop_delay, value.duration()),
    },
    Directive {
        name: "ready_sheds",
        default: Preset::Value("false"),
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether `/ready` responds with 503 for 5 seconds after a pool has rejected a request \
              for lack of workers. A load balancer then sends the requests of all pools to other \
              nodes; if all nodes are overloaded, it has none left.",
        example: "true",
        read: |config, value| store(&mut config.ready_sheds, value.boolean()),
    },
    Directive {
        name: "require_fixed_php",
        default: Preset::Value("false"),
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether a PHP with known vulnerabilities is refused. Otherwise the server logs a \
              warning and runs it. A running PHP is not stopped when this is set.",
        example: "true",
        read: |config, value| store(&mut config.require_fixed_php, value.boolean()),
    },
    Directive {
        name: "spare_zygotes",
        default: Preset::Value("2"),
        takes: "a whole number from 0 to 1000",
        needs: Needs::Live,
        doc: "How many pools with `pm = \"ondemand\"`, or with `pm = \"auto\"` and \
              `min_spare_servers = 0`, keep their PHP started while they have no worker: the \
              most recently requested pools, and before any request the first ones of the file. \
              The first request to another pool waits until PHP has started, 30 to 100 ms. Each \
              takes about 10 MB, as php-fpm's master does. While memory is short and a pool with \
              `pm = \"auto\"` runs, there is none.",
        example: "0",
        read: |config, value| store(&mut config.spare_zygotes, value.count(0, MAX_SPARE_ZYGOTES)),
    },
];

/// A path, `stderr`, or a log collector.
fn log_or_collector(value: &Value<'_>) -> Result<LogTarget, BadValue> {
    match Collector::parse(value.text()?) {
        Some(Ok(collector)) => Ok(LogTarget::Collector(collector)),
        Some(Err(why)) => Err(value.refused(&why)),
        None => log_target(value),
    }
}

/// A path, or `stderr`.
pub fn log_target(value: &Value<'_>) -> Result<LogTarget, BadValue> {
    match value.text()? {
        "stderr" => Ok(LogTarget::Stderr),
        _ => Ok(LogTarget::File(value.log_path()?)),
    }
}

/// Checks the patterns of `include`. The files have been read before the settings.
fn patterns(value: &Value<'_>) -> Result<(), BadValue> {
    value.each(|item| item.text_as(|text| (!text.is_empty()).then_some(text))).map(drop)
}

/// The faults of an `include` of an included file.
pub(crate) fn include(value: &Spanned<DeValue<'_>>, sources: &Sources) -> Vec<Fault> {
    let value = Value::of("include", INCLUDE, value, sources);
    patterns(&value).map_or_else(BadValue::into_faults, |()| Vec::new())
}
