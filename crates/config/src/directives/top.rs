//! Settings of the whole server, at the top of the file.

use maitred_rules::forwarded::ForwardedHeader;

use super::doors::asked;
use super::rule_items::networks;
use crate::admin::{self, AdminToken, TOKEN};
use crate::collector::Collector;
use crate::directive::{Directive, Needs, Preset};
use crate::door::Address;
use crate::listen::parse_listen;
use crate::log_format::LogFormat;
use crate::settings::{Config, LogTarget};
use crate::value::{Value, Wrong};

/// Most threads of the front.
const MAX_FRONT_THREADS: u32 = 64;

/// Highest least rate of clients, in bytes per second: of a client that is far away, not more can be asked.
const MAX_MIN_RATE: u32 = 1_000_000;
/// Highest limit of connections of one address.
const MAX_CONNECTIONS_PER_ADDRESS: u32 = 1_000_000;
/// Most pools whose PHP is kept started for nobody.
const MAX_SPARE_ZYGOTES: u32 = 1000;
const LOG: &str = "a path, \"stderr\", \"syslog\" or \"journald\"";
const LOG_OR_OFF: &str = "a path, \"stderr\", \"syslog\", \"journald\" or \"off\"";

/// The directives at the top of the file.
pub const DIRECTIVES: &[Directive<Config>] = &[
    Directive {
        name: "listen",
        default: Preset::Words("`\"127.0.0.1:8080\"`, or nothing if there is a section `[tls]`"),
        unit: "",
        takes: "an address and a port such as \"127.0.0.1:8080\", or an array of them",
        needs: Needs::Live,
        doc: "Where plain HTTP is answered. `\":80\"` and `\"80\"` mean all addresses, IPv4 and \
              IPv6, as `\"[::]:80\"` does. Port 0 lets the system choose a port.",
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
        unit: "",
        takes: LOG_OR_OFF,
        needs: Needs::Live,
        doc: "Where a line goes for each request: a file, or `\"syslog\"` or `\"journald\"` as for \
              `error_log`. `\"stderr\"` writes the lines among the server's own messages. With \
              `severity=` a line to syslog says how important it is (`info`).",
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
        unit: "",
        takes: "\"combined\", \"json\" or a text with variables such as \"$remote_addr $status\"",
        needs: Needs::Live,
        doc: "How a request is logged: `\"combined\"` is the combined format of Apache and nginx \
              followed by the time the request waited, the time its script ran and its id; \
              `\"json\"` is one JSON object; and any other text has \
              [nginx's variables](../guide/logs.md#formats) in it. One that begins with `{` is \
              JSON.",
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
        unit: "",
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether answers carry the request's id in `X-Request-Id`. Scripts find it in \
              `REQUEST_ID`, and the logs have it in any case. It is that of a trusted proxy, if \
              one has sent an `X-Request-Id`.",
        example: "true",
        read: |config, value| {
            config.send_request_id = value.boolean()?;
            Ok(())
        },
    },
    Directive {
        name: "error_log",
        default: Preset::Value("\"stderr\""),
        unit: "",
        takes: LOG,
        needs: Needs::Live,
        doc: "Where the server's own messages go, and what PHP writes to its error log and to \
              standard error. `\"syslog\"` is the machine's own; nginx's options say more, as in \
              `\"syslog:server=192.0.2.1:514,facility=local7,tag=maitred\"` (UDP) or \
              `server=unix:/dev/log`. What nobody collects is written to standard error. From one \
              kind to another needs a restart.",
        example: "\"log/error.log\"",
        read: |config, value| {
            config.error_log = log_or_collector(value)?;
            Ok(())
        },
    },
    Directive {
        name: "admin",
        default: Preset::Value("\"off\""),
        unit: "",
        takes: "an address and a port such as \"127.0.0.1:9180\", the path of a Unix socket, or \
                \"off\"",
        needs: Needs::Live,
        doc: "Where metrics for Prometheus (`/metrics`), status pages (`/status/POOL`) and pings \
              (`/ping/POOL`) are answered over HTTP. Every process of this machine reaches a \
              loopback address, and so do the scripts of all pools: set `admin_token` there, or \
              use a Unix socket (`\"unix:/run/maitred/http.sock\"`). A client that neither has \
              the token nor is known by the socket is not shown query strings, and where pools \
              run as several users none of what requests ask for.",
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
        name: "admin_owner",
        default: Preset::Words("the user who starts the server"),
        unit: "",
        takes: "the name or the number of a user",
        needs: Needs::Live,
        doc: "The owner of the Unix socket of `admin`, who may read everything there.",
        example: "\"monitoring\"",
        read: |config, value| {
            config.admin_access.draft.owner = Some(value.account()?);
            Ok(())
        },
    },
    Directive {
        name: "admin_group",
        default: Preset::Words("that of `admin_owner`"),
        unit: "",
        takes: "the name or the number of a group",
        needs: Needs::Live,
        doc: "The group of the Unix socket of `admin`. Processes that run with it as their group \
              may read everything there.",
        example: "\"monitoring\"",
        read: |config, value| {
            config.admin_access.draft.group = Some(value.account()?);
            Ok(())
        },
    },
    Directive {
        name: "admin_mode",
        default: Preset::Value("\"0660\""),
        unit: "",
        takes: "an octal number in quotes such as \"0660\"",
        needs: Needs::Live,
        doc: "The mode of the Unix socket of `admin`: who may write to it may connect. Who has \
              connected and is neither root, the server's user, of `admin_owner`, `admin_group` \
              or `admin_users`, nor has the token is answered with a 403.",
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
        unit: "",
        takes: "the name or the number of a user, or an array of them",
        needs: Needs::Live,
        doc: "Further users who may read everything over the Unix socket of `admin`, if its mode \
              lets them connect: the system says who a client is.",
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
        unit: "",
        takes: TOKEN,
        needs: Needs::Live,
        doc: "What a client of `admin` has to send (`Authorization: Bearer TOKEN`); all others are \
              answered with a 401. `admin_token_file` leaves it out of this file.",
        example: "\"uHqUJ3tnW6rQ0T1kVbcz\"",
        read: |config, value| {
            config.admin_access.token = Some(value.secret(AdminToken::new)?);
            Ok(())
        },
    },
    Directive {
        name: "admin_token_file",
        default: Preset::Words("none"),
        unit: "",
        takes: "a path",
        needs: Needs::Live,
        doc: "A file with that token, which not everybody may read. It is read at the start and \
              at each reload.",
        example: "\"admin.token\"",
        read: |config, value| {
            let token = AdminToken::in_file(&value.path()?);
            config.admin_access.token = Some(token.map_err(|why| value.refused(&why))?);
            Ok(())
        },
    },
    Directive {
        name: "admin_socket",
        default: Preset::Words(
            "/run/maitred/admin.sock for root; otherwise maitred/admin.sock in $XDG_RUNTIME_DIR, \
             or maitred-UID/admin.sock in the folder for temporary files",
        ),
        unit: "",
        takes: "a path",
        needs: Needs::Restart,
        doc: "The Unix socket over which `maitred status`, `top`, `reload`, `stop` and `drain` \
              reach the server; for its user and root only. One that is set must be free. If another server \
              has the default, `admin-PID.sock` beside it is used.",
        example: "\"/run/maitred/admin.sock\"",
        read: |config, value| {
            config.admin_socket = Some(value.path()?);
            Ok(())
        },
    },
    Directive {
        name: "trusted_proxies",
        default: Preset::Words("none"),
        unit: "",
        takes: "an address such as \"192.0.2.1\", a network such as \"192.0.2.0/24\", or an array \
                of them",
        needs: Needs::Live,
        doc: "Proxies in front of this server that are believed what they say of their clients in \
              `trusted_headers`. The client is the last address they name that is no trusted \
              proxy; if that cannot be read, the request gets a 400. A request of theirs that \
              names no client is their own. Nobody else is believed.",
        example: "[\"10.0.0.0/8\"]",
        read: |config, value| {
            config.trusted_proxies = networks(value)?;
            Ok(())
        },
    },
    Directive {
        name: "trusted_headers",
        default: Preset::Value("[\"X-Forwarded-For\", \"X-Forwarded-Proto\"]"),
        unit: "",
        takes: "the name of a header field such as \"X-Forwarded-For\", or an array of names",
        needs: Needs::Live,
        doc: "The header fields by which `trusted_proxies` speak of their clients: \
              `X-Forwarded-Proto`, `X-Forwarded-Host`, `Forwarded` (RFC 7239), and any other name \
              holds addresses in the form of `X-Forwarded-For`. Name only what the proxy sets or \
              takes away on every request: what it lets pass is the client's own word.",
        example: "[\"CF-Connecting-IP\", \"X-Forwarded-Proto\"]",
        read: |config, value| {
            config.trusted_headers = value.each(|item| item.text_as(ForwardedHeader::named))?;
            Ok(())
        },
    },
    Directive {
        name: "proxy_protocol",
        default: Preset::Value("false"),
        unit: "",
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether every connection to `listen`, and to that of `[tls]`, begins with the PROXY \
              protocol (version 1 or 2), which says whose it is. Only connections of `trusted_proxies` are taken then.",
        example: "false",
        read: |config, value| {
            config.proxy_protocol = value.boolean()?;
            Ok(())
        },
    },
    Directive {
        name: "min_request_rate",
        default: Preset::Value("500"),
        unit: "bytes per second",
        takes: "a whole number from 0 to 1000000",
        needs: Needs::Live,
        doc: "How fast a client has to send a request's body. One that is slower is waited for as long as its \
              20 seconds last: to wait uses them up, and what it sends gives some back, a second for this many \
              bytes. Then it gets a 408. The head has 20 seconds in any case. 0 asks for one byte in 20 \
              seconds. For connections that begin after a change.",
        example: "1000",
        read: |config, value| {
            config.min_request_rate = value.count(0, MAX_MIN_RATE)?;
            Ok(())
        },
    },
    Directive {
        name: "min_answer_rate",
        default: Preset::Value("500"),
        unit: "bytes per second",
        takes: "a whole number from 0 to 1000000",
        needs: Needs::Live,
        doc: "How fast a client has to take its answer; counted as `min_request_rate` is, with 60 seconds. Only \
              the time counts in which the client is waited for, not that of a script. A client that is slower \
              is cut off. 0 asks for something to be taken in 60 seconds. For connections that begin after a \
              change.",
        example: "1000",
        read: |config, value| {
            config.min_answer_rate = value.count(0, MAX_MIN_RATE)?;
            Ok(())
        },
    },
    Directive {
        name: "max_connections_per_address",
        default: Preset::Value("256"),
        unit: "connections",
        takes: "a whole number from 0 to 1000000",
        needs: Needs::Live,
        doc: "How many connections clients of one address, or of one /64 of IPv6, may have at once; one more is closed. \
              Not counted are `trusted_proxies`, this machine, and private networks (such as `10.0.0.0/8`, \
              `192.168.0.0/16`, `fc00::/7`), where other proxies and containers are. With the PROXY protocol \
              it is the client's address that counts. 0 is no limit.",
        example: "1000",
        read: |config, value| {
            config.clients.connections_per_address = value.count(0, MAX_CONNECTIONS_PER_ADDRESS)?;
            Ok(())
        },
    },
    Directive {
        name: "request_memory",
        default: Preset::Value("\"48M\""),
        unit: "bytes",
        takes: "a size from 1048576 on such as \"64M\"",
        needs: Needs::Live,
        doc: "Memory that all requests in hand may hold with their heads: those that wait for their body or for a \
              worker. A few bytes of HTTP/2 can be a large head. The first 96 KB of each connection are not \
              counted. Clients of one address, or of one /64 of IPv6, may hold an eighth of it, so that one \
              cannot have the requests of others refused; `trusted_proxies`, this machine and private networks, \
              which many clients come from, may hold all of it. With the PROXY protocol it is the client's \
              address that counts. A request that finds no room is refused: over HTTP/2 so that the client sends it again \
              (`REFUSED_STREAM`), over HTTP/1 with a 503.",
        example: "\"256M\"",
        read: |config, value| {
            config.clients.request_memory = value.size(1 << 20)?;
            Ok(())
        },
    },
    Directive {
        name: "front_user",
        default: Preset::Words(
            "`maitred` where that user exists, as after an installation; else `www-data`",
        ),
        unit: "",
        takes: "the name or the number of a user",
        needs: Needs::Restart,
        doc: "The user of the front, the process that talks to clients. It needs to read the \
              document roots, and should be no pool's user, whose scripts could send it signals. \
              Used only if the server is started as root; otherwise everything runs as the user \
              who started it.",
        example: "\"www-data\"",
        read: |config, value| {
            config.front_user = value.account()?;
            Ok(())
        },
    },
    Directive {
        name: "front_sandbox",
        default: Preset::Value("true"),
        unit: "",
        takes: "true or false",
        needs: Needs::Restart,
        doc: "Whether the front, and the process that gets certificates, are restricted to the \
              system calls and files that they need (seccomp and Landlock), and can gain no \
              rights. What the kernel does not offer is logged, and left out. A restriction cannot \
              be widened: a reload that adds a site in a part of the machine where none lay before \
              warns that the server has to be restarted or upgraded, and so it has to be when a \
              file system is mounted on `/home`, `/srv` or another such part, or a folder takes \
              its place.",
        example: "false",
        read: |config, value| {
            config.front_sandbox = value.boolean()?;
            Ok(())
        },
    },
    Directive {
        name: "front_threads",
        default: Preset::Value("0"),
        unit: "threads",
        takes: "a whole number from 0 to 64",
        needs: Needs::Restart,
        doc: "Threads of the front. 0 means one for every two cores: the scripts need the rest.",
        example: "4",
        read: |config, value| {
            config.front_threads = value.count(0, MAX_FRONT_THREADS)?;
            Ok(())
        },
    },
    Directive {
        name: "spool_dir",
        default: Preset::Words("the system's folder for temporary files"),
        unit: "",
        takes: "the path of a directory",
        needs: Needs::Live,
        doc: "The folder for temporary files: request bodies too large for memory, and answers \
              that a slow client has not taken yet. `front_user` must be able to write there.",
        example: "\"spool\"",
        read: |config, value| {
            config.spool_dir = value.directory()?;
            Ok(())
        },
    },
    Directive {
        name: "cache_memory",
        default: Preset::Value("\"64M\""),
        unit: "bytes",
        takes: "a size from 1048576 on such as \"64M\"",
        needs: Needs::Restart,
        doc: "Memory for the pages that all sites with a `[sites.cache]` keep. It is divided by the number \
              of processors, 16 at most, and one page may take a quarter of such a part: on four, and \
              with 64 MB, 4 MB.",
        example: "\"256M\"",
        read: |config, value| {
            config.cache_memory = value.size(1 << 20)?;
            Ok(())
        },
    },
    Directive {
        name: "cache_dir",
        default: Preset::Words("none; pages are kept in memory only"),
        unit: "",
        takes: "the path of a directory",
        needs: Needs::Restart,
        doc: "The folder for the pages that are kept, which they are still when the server has been \
              restarted. `front_user` must be able to write there, and nobody else should.",
        example: "\"cache\"",
        read: |config, value| {
            config.cache_dir = Some(value.directory()?);
            Ok(())
        },
    },
    Directive {
        name: "cache_max_size",
        default: Preset::Value("\"1G\""),
        unit: "bytes",
        takes: "a size from 1048576 on such as \"1G\"",
        needs: Needs::Restart,
        doc: "The most that the files in `cache_dir` may have together. What was not asked for in the \
              longest time goes first.",
        example: "\"10G\"",
        read: |config, value| {
            config.cache_max_size = value.size(1 << 20)?;
            Ok(())
        },
    },
    Directive {
        name: "cache_inactive",
        default: Preset::Value("\"10m\""),
        unit: "seconds",
        takes: "a duration such as \"1h\"",
        needs: Needs::Restart,
        doc: "After how long a page goes from `cache_dir` that nobody asked for.",
        example: "\"1h\"",
        read: |config, value| {
            config.cache_inactive = value.duration()?;
            Ok(())
        },
    },
    Directive {
        name: "process_control_timeout",
        default: Preset::Value("\"60s\""),
        unit: "seconds",
        takes: "a duration of at most 366 days such as \"30s\"",
        needs: Needs::Live,
        doc: "How long a stop waits for requests that run before it ends them. 0 means not at \
              all, which is php-fpm's default and cuts them off. Keep it below `TimeoutStopSec` \
              of systemd, which is 90 seconds. A second signal ends the server at once.",
        example: "\"30s\"",
        read: |config, value| {
            config.process_control_timeout = value.duration()?;
            Ok(())
        },
    },
    Directive {
        name: "require_fixed_php",
        default: Preset::Value("false"),
        unit: "",
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether a PHP with known vulnerabilities is refused. Otherwise the server warns \
              about it and runs it. What runs already goes on when this is set.",
        example: "true",
        read: |config, value| {
            config.require_fixed_php = value.boolean()?;
            Ok(())
        },
    },
    Directive {
        name: "spare_zygotes",
        default: Preset::Value("2"),
        unit: "",
        takes: "a whole number from 0 to 1000",
        needs: Needs::Live,
        doc: "How many pools with `pm = \"ondemand\"`, or with `pm = \"auto\"` and \
              `min_spare_servers = 0`, keep their PHP started while they have no worker: those that \
              were asked last, and before that the first of the file. The first request to another \
              waits until PHP has started, 30 to 100 ms. Each takes about 10 MB, as php-fpm's master \
              does. While memory is short and a pool with `pm = \"auto\"` runs, none is kept.",
        example: "0",
        read: |config, value| {
            config.spare_zygotes = value.count(0, MAX_SPARE_ZYGOTES)?;
            Ok(())
        },
    },
];

/// A path, `stderr`, or who collects logs.
fn log_or_collector(value: &Value<'_>) -> Result<LogTarget, Wrong> {
    match Collector::parse(value.text()?) {
        Some(Ok(collector)) => Ok(LogTarget::Collector(collector)),
        Some(Err(why)) => Err(value.refused(&why)),
        None => log_target(value),
    }
}

/// A path, or `stderr`.
pub fn log_target(value: &Value<'_>) -> Result<LogTarget, Wrong> {
    match value.text()? {
        "stderr" => Ok(LogTarget::Stderr),
        _ => Ok(LogTarget::File(value.path()?)),
    }
}
