//! Settings of a site about paths and clients, in `[[sites]]`.

use maitred_rules::Pattern;
use maitred_rules::apps::App;
use maitred_rules::settings::Alias;

use super::classic::{CLASSIC_PATHS, CLASSIC_POOL};
use super::proxy_item::read_proxy;
use super::rule_items::{
    NETWORKS, networks, patterns, php_rules, read_basic_auth, read_deny, read_expires,
    read_headers, read_path, read_rate_limit, read_redirect, read_rewrite, site_path,
};
use crate::read::directive::{Directive, Needs, Preset, store};
use crate::read::drafts::RulesDraft;

const PATTERNS: &str = "a path (\"/a\"), a folder (\"/a/*\"), an ending (\"*.css\"), a regular \
                        expression (\"~^/a[0-9]+$\"), or an array of them";

/// Most requests of one client at a time.
const MAX_CONNECTIONS: u32 = 1_000_000;

/// The directives of a site that are about paths and clients.
pub const DIRECTIVES: &[Directive<RulesDraft>] = &[
    Directive {
        name: "app",
        default: Preset::Words("none"),
        unit: "",
        takes: "\"wordpress\", \"laravel\", \"symfony\", \"drupal\", \"nextcloud\" or \"mediawiki\"",
        needs: Needs::Live,
        doc: "The application that the site is, whose rules follow the site's own: its front \
              controller, what nobody gets, where PHP does not run. The guide has them all in \
              [a table](../guide/applications.md).",
        example: "\"wordpress\"",
        read: |site, value| store(&mut site.app, value.text_as(App::named).map(Some)),
    },
    Directive {
        name: "redirects",
        default: Preset::Words("none"),
        unit: "",
        takes: "an array of tables such as { from = \"/old\", to = \"/new\" }",
        needs: Needs::Live,
        doc: "Addresses that lead elsewhere; the first that matches holds. In `to`, `$1` is what \
              the `*` of a folder stands for or the first group of a regular expression, `$0` the \
              whole path, and `$host` and `$scheme` are the request's. The query is kept, unless \
              `to` ends in `?`. `status` is 301, 302, 303, 307 or 308, and 301 if it is absent.",
        example: "[{ from = \"/blog/*\", to = \"/news/$1\", status = 302 }]",
        read: |site, value| {
            let places = &mut site.spans;
            places.push(("redirects", value.span()));
            site.rules.redirects = value.each(read_redirect)?;
            Ok(())
        },
    },
    Directive {
        name: "rewrite",
        default: Preset::Words("none"),
        unit: "",
        takes: "an array of tables such as { from = \"/api/*\", to = \"/api.php?path=$1\" }",
        needs: Needs::Live,
        doc: "Paths that stand for others, unseen by the client; `to` is written as in \
              `redirects`, and is a path. When one has matched, the list is gone through again \
              from its beginning, until none matches or one with `end = true` has; a request that \
              is rewritten more than 10 times gets a 500. Scripts see the address that was asked \
              for in `REQUEST_URI`.",
        example: "[{ from = \"~^/user/([a-z]+)$\", to = \"/user.php?name=$1\", end = true }]",
        read: |site, value| {
            site.spans.push(("rewrite", value.span()));
            site.rules.rewrite = value.each(read_rewrite)?;
            Ok(())
        },
    },
    Directive {
        name: "allow",
        default: Preset::Words("all clients"),
        unit: "",
        takes: NETWORKS,
        needs: Needs::Live,
        doc: "The clients that the site answers; all others get a 403.",
        example: "[\"192.0.2.0/24\", \"2001:db8::/32\"]",
        read: |site, value| store(&mut site.rules.allow, networks(value)),
    },
    Directive {
        name: "deny",
        default: Preset::Words("none"),
        unit: "",
        takes: "a pattern of paths, an address or a network, a table such as { path = \
                \"/admin/*\", except = \"10.0.0.0/8\" }, or an array of them",
        needs: Needs::Live,
        doc: "What is refused. A pattern is refused to everybody, an address or a network gets \
              nothing of the site, and a table refuses `path` (all paths if it is absent) to the \
              clients in `from` (all if it is absent) but not to those in `except`, with `status` \
              403, 404 or 410. It holds for what was asked for, for what that is rewritten to, and \
              for the script that runs.",
        example: "[\"/private/*\", \"*.sql\", { path = \"/admin/*\", except = [\"10.0.0.0/8\"] }]",
        read: |site, value| store(&mut site.rules.deny, value.each(read_deny)),
    },
    Directive {
        name: "allow_php",
        default: Preset::Words("all scripts"),
        unit: "",
        takes: PATTERNS,
        needs: Needs::Live,
        doc: "The scripts that may run, by their names as in `SCRIPT_NAME`. All others are a 403.",
        example: "[\"/index.php\"]",
        read: |site, value| store(&mut site.rules.allow_php, patterns(value)),
    },
    Directive {
        name: "deny_php",
        default: Preset::Words("none"),
        unit: "",
        takes: PATTERNS,
        needs: Needs::Live,
        doc: "Where scripts do not run, such as folders that people upload to. They are a 403, \
              and never sent as text. The first pattern that matches decides; behind a `!` it \
              has scripts run all the same, also where the rules of `app` say otherwise.",
        example: "[\"!/uploads/report.php\", \"/uploads/*\"]",
        read: |site, value| store(&mut site.rules.deny_php, php_rules(value)),
    },
    Directive {
        name: "basic_auth",
        default: Preset::Words("none"),
        unit: "",
        takes: "a table such as { path = \"/admin/*\", users = \"users\" }, or an array of them",
        needs: Needs::Live,
        doc: "Paths (all if `path` is absent) that need a name and a password out of the file \
              `users`, which `htpasswd -B` writes. Hashes are bcrypt, argon2 or SHA-crypt; MD5 \
              and SHA-1 are refused. `front_user` has to be able to read the file; a changed file \
              is read again within a second. `realm` is what the browser shows. Scripts get the \
              name in `REMOTE_USER`.",
        example: "{ path = \"/admin/*\", users = \"users\", realm = \"Staff\" }",
        read: |site, value| store(&mut site.rules.basic_auth, value.each(read_basic_auth)),
    },
    Directive {
        name: "headers",
        default: Preset::Words("none"),
        unit: "",
        takes: "a table of header fields such as { X-Frame-Options = \"DENY\" }, or an array of \
                tables such as { path = \"/api/*\", set = { … }, add = { … }, unset = [ … ] }",
        needs: Needs::Live,
        doc: "Header fields of all answers, errors and those of scripts included. `set` replaces \
              fields of the name, `add` leaves them there, `unset` takes them away. All tables \
              whose `path` matches (all paths if it is absent) count together; a later one goes \
              over an earlier one.",
        example: "{ Strict-Transport-Security = \"max-age=31536000\" }",
        read: |site, value| store(&mut site.rules.headers, value.each(read_headers)),
    },
    Directive {
        name: "expires",
        default: Preset::Words("none; browsers decide for themselves"),
        unit: "",
        takes: "an array of tables such as { type = \"image/*\", after = \"30d\" }",
        needs: Needs::Live,
        doc: "How long browsers and proxies may keep answers, as `Cache-Control` and `Expires`; the \
              first that matches `path` and `type` holds. `\"0s\"` is `no-cache`: not without asking. \
              `immutable = true` says that a file never changes under its name. An answer that \
              says so itself is left alone, and so are errors.",
        example: "[{ path = \"/build/*\", after = \"365d\", immutable = true }]",
        read: |site, value| store(&mut site.rules.expires, value.each(read_expires)),
    },
    Directive {
        name: "error_pages",
        default: Preset::Words("none; a line of text"),
        unit: "",
        takes: "a table of statuses and paths such as { 404 = \"/404.html\" }",
        needs: Needs::Live,
        doc: "Pages in place of the server's own words, by status from 400 to 599: a file or a \
              script of the site. The answer keeps its status. A script finds it in \
              `REDIRECT_STATUS`, and the address that was asked for in `REQUEST_URI`.",
        example: "{ 404 = \"/404.html\", 503 = \"/sorry.php\" }",
        read: |site, value| {
            for page in value.entries("a path of the site such as \"/404.html\"")? {
                let status = page
                    .name
                    .parse()
                    .ok()
                    .filter(|status| (400..=599).contains(status));
                let status = status
                    .ok_or_else(|| page.misnamed("is no status; expected one from 400 to 599"))?;
                let path = page.value.text_as(site_path)?;
                site.rules.error_pages.insert(status, path);
            }
            Ok(())
        },
    },
    Directive {
        name: "intercept_errors",
        default: Preset::Value("false"),
        unit: "",
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether `error_pages` replace the errors that scripts answer with, too.",
        example: "true",
        read: |site, value| store(&mut site.rules.intercept_errors, value.boolean()),
    },
    Directive {
        name: "autoindex",
        default: Preset::Value("false"),
        unit: "",
        takes: "true, false, a pattern of paths or an array of patterns",
        needs: Needs::Live,
        doc: "Where the files of a folder without an index are listed. Hidden files and PHP \
              source are not.",
        example: "[\"/downloads/*\"]",
        read: |site, value| {
            site.rules.autoindex = match value.boolean() {
                Ok(true) => vec![Pattern::all()],
                Ok(false) => Vec::new(),
                Err(_) => patterns(value)?,
            };
            Ok(())
        },
    },
    Directive {
        name: "aliases",
        default: Preset::Words("none"),
        unit: "",
        takes: "a table of paths and folders such as { \"/docs/\" = \"/usr/share/doc\" }",
        needs: Needs::Live,
        doc: "Folders beside the document root, by what their paths begin with. Scripts in them \
              run, unless `deny_php` says otherwise; what is not in them is a 404.",
        example: "{ \"/manual/\" = \"manual\" }",
        read: |site, value| {
            for alias in value.entries("the path of a directory")? {
                let path = format!("{}/", alias.name.trim_end_matches('/'));
                if path == "/" || Pattern::parse(&format!("{path}*")).is_err() {
                    return Err(alias.misnamed("is no path; expected one such as \"/docs/\""));
                }
                let folder = alias.value.directory()?;
                site.rules.aliases.push(Alias { path, folder });
            }
            Ok(())
        },
    },
    Directive {
        name: "paths",
        default: Preset::Words("none"),
        unit: "",
        takes: "an array of tables such as { path = \"/api/*\", pool = \"api\" }",
        needs: Needs::Live,
        doc: "Settings that hold for some paths in place of the site's: `pool` and \
              `max_body_size`; with `urgent = true` their scripts get workers before those of other \
              paths (see `reserved_workers`). The first whose `path` matches holds.",
        example: "[{ path = \"/import/*\", pool = \"shop\", max_body_size = \"2G\" }]",
        read: |site, value| {
            let read = value.each(read_path)?;
            let named = read.into_iter().map(|(settings, span)| {
                if let Some((pool, span)) = settings.pool.clone().zip(span) {
                    site.pools.push((pool, span));
                }
                settings
            });
            site.rules.paths = named.collect();
            Ok(())
        },
    },
    CLASSIC_PATHS,
    CLASSIC_POOL,
    Directive {
        name: "proxy",
        default: Preset::Words("none; paths are files and scripts"),
        unit: "",
        takes: "a table such as { path = \"/app/*\", to = \"http://127.0.0.1:3000\" }, or an array \
                of them",
        needs: Needs::Live,
        doc: "HTTP servers that answer for some paths (all if `path` is absent) in place of files \
              and scripts, WebSocket included; the first that matches holds. `to` is one server, \
              `http://HOST:PORT` or `unix:/PATH`. It is asked for the path as it came, or with \
              `strip_prefix = true` for what follows the folder, and told the client's host, or \
              `host`. `connect_timeout` (5 s if it is absent), `read_timeout` and `send_timeout` \
              (60 s) are how long it may take to accept a connection, to say something and to take \
              something; `read_timeout` is also how long a WebSocket may be quiet. The \
              [guide](../guide/proxy.md) says more.",
        example: "[{ path = \"/app/*\", to = \"http://127.0.0.1:3000\", read_timeout = \"5m\" }]",
        read: |site, value| store(&mut site.rules.proxy, value.each(read_proxy)),
    },
    Directive {
        name: "rate_limit",
        default: Preset::Words("none"),
        unit: "",
        takes: "a table such as { path = \"/login\", rate = \"5/m\", burst = 5 }, or an array of \
                them",
        needs: Needs::Live,
        doc: "How often one client may ask for something (all paths if `path` is absent): `rate` \
              is requests in a second, a minute or an hour, and `burst` how many more may come at \
              once. What is beyond gets a 429 with Retry-After. A client is an IPv4 address or a \
              /64 of IPv6. All that match hold, and each counts a request once. That of a script holds \
              for every path that runs it, such as `/wp-login.php/x`, and so does that of what a path is \
              rewritten to, or of a folder's index; that of the front controller holds for its own name \
              alone.",
        example: "{ path = \"/wp-login.php\", rate = \"10/m\", burst = 5 }",
        read: |site, value| store(&mut site.rules.rate_limit, value.each(read_rate_limit)),
    },
    Directive {
        name: "connection_limit",
        default: Preset::Words("none"),
        unit: "requests",
        takes: "a whole number from 1 to 1000000",
        needs: Needs::Live,
        doc: "How many requests of one client are answered at a time; those beyond get a 429. \
              Over HTTP/2 each request counts.",
        example: "20",
        read: |site, value| {
            store(
                &mut site.rules.connection_limit,
                value.count(1, MAX_CONNECTIONS).map(Some),
            )
        },
    },
];
