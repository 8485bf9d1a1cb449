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
use crate::read::value::Value;

const PATTERNS: &str = "a path (\"/a\"), a folder (\"/a/*\"), an ending (\"*.css\"), a regular \
                        expression (\"~^/a[0-9]+$\"), or an array of them";

/// Most `connection_limit`.
const MAX_CONNECTIONS: u32 = 1_000_000;

/// The directives of a site's paths and clients.
pub const DIRECTIVES: &[Directive<RulesDraft>] = &[
    Directive {
        name: "app",
        default: Preset::Words("none"),
        takes: "\"wordpress\", \"laravel\", \"symfony\", \"drupal\", \"nextcloud\" or \
                \"mediawiki\"",
        needs: Needs::Live,
        doc: "The application of the site. Its rules follow the site's own: its front \
              controller, denied paths, paths without PHP. The guide lists them in [a \
              table](../guide/applications.md).",
        example: "\"wordpress\"",
        read: |site, value| store(&mut site.app, value.text_as(app_named).map(Some)),
    },
    Directive {
        name: "app_cron",
        default: Preset::Value("false"),
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether the pool of the site runs what the makers of its `app` would have cron run, \
              as a [schedule](../guide/commands-and-schedules.md#recipes): `wp-cron.php` of \
              WordPress each minute, `artisan schedule:run` of Laravel each minute, `cron.php` of \
              Nextcloud each five minutes. Its name is `cron-` and the site's first host. A \
              run that takes more than 12 hours is ended: otherwise one that hangs would have all \
              later ones left out. For WordPress, `define('DISABLE_WP_CRON', true);` in \
              `wp-config.php` has visitors run it no more.",
        example: "true",
        read: |site, value| store(&mut site.app_cron, value.boolean()),
    },
    Directive {
        name: "redirects",
        default: Preset::Words("none"),
        takes: "an array of tables such as { from = \"/old\", to = \"/new\" }",
        needs: Needs::Live,
        doc: "Redirects; the first match wins. In `to`, `$1` is the part matched by the `*` of a \
              folder or the first group of a regular expression, `$0` the whole path, and \
              `$host` and `$scheme` are the request's. The query is appended, unless `to` ends \
              in `?`. `status` is 301, 302, 303, 307 or 308, and 301 if it is absent.",
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
        takes: "an array of tables such as { from = \"/api/*\", to = \"/api.php?path=$1\" }",
        needs: Needs::Live,
        doc: "Internal rewrites of paths, invisible to the client; `to` is a path, written as in \
              `redirects`. After a match the list starts over, until none matches or one with \
              `end = true` does; a request with more than 10 rewrites gets a 500. Scripts see \
              the original address in `REQUEST_URI`.",
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
        takes: NETWORKS,
        needs: Needs::Live,
        doc: "The clients that may use the site; all others get a 403.",
        example: "[\"192.0.2.0/24\", \"2001:db8::/32\"]",
        read: |site, value| store(&mut site.rules.allow, networks(value)),
    },
    Directive {
        name: "deny",
        default: Preset::Words("none"),
        takes: "a pattern of paths, an address or a network, a table such as { path = \
                \"/admin/*\", except = \"10.0.0.0/8\" }, or an array of them",
        needs: Needs::Live,
        doc: "What is denied. A pattern is denied to all clients, an address or a network gets \
              nothing of the site, and a table denies `path` (all paths if it is absent) to the \
              clients in `from` (all if it is absent) but not to those in `except`, with \
              `status` 403, 404 or 410. It applies to the requested path, to the rewritten path, \
              and to the script that runs.",
        example: "[\"/private/*\", \"*.sql\", { path = \"/admin/*\", except = [\"10.0.0.0/8\"] }]",
        read: |site, value| store(&mut site.rules.deny, value.each(read_deny)),
    },
    Directive {
        name: "allow_php",
        default: Preset::Words("all scripts"),
        takes: PATTERNS,
        needs: Needs::Live,
        doc: "The scripts that may run, by their names as in `SCRIPT_NAME`. All others are a \
              403.",
        example: "[\"/index.php\"]",
        read: |site, value| store(&mut site.rules.allow_php, patterns(value)),
    },
    Directive {
        name: "deny_php",
        default: Preset::Words("none"),
        takes: PATTERNS,
        needs: Needs::Live,
        doc: "Paths without PHP, such as directories for uploads. Scripts there are a 403, and \
              never sent as text. The first match wins; a pattern behind a `!` lets scripts run \
              all the same, also against the rules of `app`.",
        example: "[\"!/uploads/report.php\", \"/uploads/*\"]",
        read: |site, value| store(&mut site.rules.deny_php, php_rules(value)),
    },
    Directive {
        name: "basic_auth",
        default: Preset::Words("none"),
        takes: "a table such as { path = \"/admin/*\", users = \"users\" }, or an array of them",
        needs: Needs::Live,
        doc: "Paths (all if `path` is absent) that need a user name and a password from the file \
              `users`, which `htpasswd -B` writes. Hashes are bcrypt, argon2 or SHA-crypt; MD5 \
              and SHA-1 are refused, and so is a hash that takes more than a second or two to \
              verify (see [Users](../guide/paths-and-clients.md#users)). `front_user` must be able \
              to read the file; a changed file is read again within a second. `realm` is shown by \
              the browser. Scripts get the name in `REMOTE_USER`.",
        example: "{ path = \"/admin/*\", users = \"users\", realm = \"Staff\" }",
        read: |site, value| store(&mut site.rules.basic_auth, value.each(read_basic_auth)),
    },
    Directive {
        name: "headers",
        default: Preset::Words("none"),
        takes: "a table of headers such as { X-Frame-Options = \"DENY\" }, or an array of \
                tables such as { path = \"/api/*\", set = { … }, add = { … }, unset = [ … ] }",
        needs: Needs::Live,
        doc: "Headers of all responses, including errors and those of scripts. `set` replaces \
              headers of the same name, `add` keeps them, `unset` removes them. All tables whose \
              `path` matches (all paths if it is absent) apply; a later one overrides an earlier \
              one. The page cache stores no response that is `private`, `no-store` or `no-cache` \
              by them, or has a `Set-Cookie`, and heeds their `Vary`.",
        example: "{ Strict-Transport-Security = \"max-age=31536000\" }",
        read: |site, value| store(&mut site.rules.headers, value.each(read_headers)),
    },
    Directive {
        name: "expires",
        default: Preset::Words("none; browsers decide for themselves"),
        takes: "an array of tables such as { type = \"image/*\", after = \"30d\" }",
        needs: Needs::Live,
        doc: "How long browsers and proxies may cache responses, as `Cache-Control` and \
              `Expires` headers; the first match of `path` and `type` wins. `\"0s\"` is \
              `no-cache`: only with revalidation. `immutable = true` says that a file never \
              changes under its name. A response with such headers of its own is not changed, \
              and neither are errors.",
        example: "[{ path = \"/build/*\", after = \"365d\", immutable = true }]",
        read: |site, value| store(&mut site.rules.expires, value.each(read_expires)),
    },
    Directive {
        name: "error_pages",
        default: Preset::Words("none; a line of text"),
        takes: "a table of statuses and paths such as { 404 = \"/404.html\" }",
        needs: Needs::Live,
        doc: "Error pages in place of the server's own text, by status from 400 to 599: a file \
              or a script of the site. The response keeps its status. A script finds it in \
              `REDIRECT_STATUS`, and the original address in `REQUEST_URI`.",
        example: "{ 404 = \"/404.html\", 503 = \"/sorry.php\" }",
        read: |site, value| {
            for page in value.entries("a path of the site such as \"/404.html\"")? {
                let status = page.name.parse().ok().filter(|status| (400..=599).contains(status));
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
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether `error_pages` replace the errors of scripts, too.",
        example: "true",
        read: |site, value| store(&mut site.rules.intercept_errors, value.boolean()),
    },
    Directive {
        name: "htaccess",
        default: Preset::Value("false"),
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether `.htaccess` files in the document root apply, as in Apache 2.4 with \
              `AllowOverride All`. They come after the site's own rules. `front_controller` does \
              not apply then, and `index` does where no `DirectoryIndex` is set. A change of \
              a file applies to the next request.",
        example: "true",
        read: |site, value| store(&mut site.rules.htaccess, value.boolean()),
    },
    Directive {
        name: "htaccess_unknown",
        default: Preset::Value("\"error\""),
        takes: "\"error\" or \"ignore\"",
        needs: Needs::Live,
        doc: "Unknown directives in `.htaccess` files: \"error\" responds with 500, as in \
              Apache; \"ignore\" leaves them out, as in LiteSpeed. A line about access that \
              cannot be understood denies.",
        example: "\"ignore\"",
        read: |site, value| {
            site.rules.htaccess_ignores_unknown = value.text_as(|text| match text {
                "error" => Some(false),
                "ignore" => Some(true),
                _ => None,
            })?;
            Ok(())
        },
    },
    Directive {
        name: "htaccess_override",
        default: Preset::Words("all"),
        takes: "names of Apache's groups of directives (\"AuthConfig\", \"FileInfo\", \"Indexes\", \
                \"Limit\", \"Options\", \"Options=Indexes,MultiViews\", \"All\"), of single \
                directives, and \"Nonfatal=Override\", \"Nonfatal=Unknown\" or \"Nonfatal=All\"",
        needs: Needs::Live,
        doc: "The directives that `.htaccess` files may have: Apache's `AllowOverride` and \
              `AllowOverrideList` in one. A file with another one is a mistake: its requests get \
              a 500, and the log has file and line. `Nonfatal=…` leaves such directives out \
              (`Override`), or unknown ones (`Unknown`), those about access as well.",
        example: "[\"FileInfo\", \"Indexes\", \"Require\"]",
        read: |site, value| {
            let name = |text: &str| is_override(text).then(|| text.to_owned());
            store(&mut site.rules.htaccess_override, value.each(|item| item.text_as(name)))
        },
    },
    Directive {
        name: "htaccess_users",
        default: Preset::Words("none"),
        takes: "a path, or an array of paths",
        needs: Needs::Live,
        doc: "Files and folders outside the document root that `AuthUserFile` and `AuthGroupFile` \
              in `.htaccess` files may name. Those in the document root may always be named.",
        example: "\"/home/anna/.htpasswds\"",
        read: |site, value| store(&mut site.rules.htaccess_users, value.each(Value::path)),
    },
    Directive {
        name: "autoindex",
        default: Preset::Value("false"),
        takes: "true, false, a pattern of paths or an array of patterns",
        needs: Needs::Live,
        doc: "Directories without an index whose files are listed. Hidden files and PHP source \
              are left out. With `htaccess = true` they have `Options +Indexes` above the files in \
              the document root, which can turn it off, and deny or hide names.",
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
        takes: "a table of paths and folders such as { \"/docs/\" = \"/usr/share/doc\" }",
        needs: Needs::Live,
        doc: "Directories outside of the document root, by the prefix of their paths. Scripts in \
              them run, unless `deny_php` forbids it; a missing file is a 404.",
        example: "{ \"/manual/\" = \"manual\" }",
        read: |site, value| {
            for alias in value.entries("the path of a directory")? {
                let path = format!("{}/", alias.name.trim_end_matches('/'));
                if path == "/" || Pattern::parse(&format!("{path}*")).is_err() {
                    return Err(alias.misnamed("is no path; expected one such as \"/docs/\""));
                }
                let folder = alias.value.path()?;
                site.rules.aliases.push(Alias { path, folder });
            }
            Ok(())
        },
    },
    Directive {
        name: "paths",
        default: Preset::Words("none"),
        takes: "an array of tables such as { path = \"/api/*\", pool = \"api\" }",
        needs: Needs::Live,
        doc: "Settings of some paths in place of the site's: `pool` and `max_body_size`; with \
              `urgent = true` their scripts get workers before those of other paths (see \
              `reserved_workers`). Each setting is that of the first match of `path` that has it.",
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
        takes: "a table such as { path = \"/app/*\", to = \"http://127.0.0.1:3000\" }, or an array \
                of them",
        needs: Needs::Live,
        doc: "HTTP servers (WebSocket included) that serve some paths (all if `path` is absent) \
              in place of files and scripts; the first match wins. `to` is one server, \
              `http://HOST:PORT` or `unix:/PATH`. It gets the original path, or with \
              `strip_prefix = true` the path without the folder, and the client's `Host` header, \
              or `host`. `connect_timeout` (5 s if it is absent) is the timeout of the \
              connection, `read_timeout` and `send_timeout` (60 s) those between two reads and \
              two writes; `read_timeout` also applies to a silent WebSocket. See the \
              [guide](../guide/proxy.md).",
        example: "[{ path = \"/app/*\", to = \"http://127.0.0.1:3000\", read_timeout = \"5m\" }]",
        read: |site, value| store(&mut site.rules.proxy, value.each(read_proxy)),
    },
    Directive {
        name: "rate_limit",
        default: Preset::Words("none"),
        takes: "a table such as { path = \"/login\", rate = \"5/m\", burst = 5 }, or an array of \
                them",
        needs: Needs::Live,
        doc: "Rate limits of clients, by path (all if `path` is absent): `rate` is requests per \
              second, minute or hour, and `burst` the number of further requests at once. Beyond \
              it, requests get a 429 with a `Retry-After` header. A client is an IPv4 address or \
              a /64 of IPv6. All matching limits apply, and each counts a request once. The \
              limit of a script applies to every path that runs it, such as `/wp-login.php/x`, \
              and so does that of a rewritten path, or of a directory's index; that of the front \
              controller applies to its own name alone.",
        example: "{ path = \"/wp-login.php\", rate = \"10/m\", burst = 5 }",
        read: |site, value| store(&mut site.rules.rate_limit, value.each(read_rate_limit)),
    },
    Directive {
        name: "connection_limit",
        default: Preset::Words("none"),
        takes: "a whole number from 1 to 1000000",
        needs: Needs::Live,
        doc: "Most simultaneous requests of one client; further ones get a 429. Over HTTP/2 each \
              request counts.",
        example: "20",
        read: |site, value| {
            store(&mut site.rules.connection_limit, value.count(1, MAX_CONNECTIONS).map(Some))
        },
    },
];

/// The application of this name in any case.
fn app_named(name: &str) -> Option<App> {
    App::named(&name.to_ascii_lowercase())
}

/// Whether a word is one of `AllowOverride` or `AllowOverrideList`.
fn is_override(word: &str) -> bool {
    /// What `Options=` and `Nonfatal=` list (`set_allow_opts` and `set_override` of Apache's core).
    const OPTIONS: [&str; 10] = [
        "all",
        "none",
        "indexes",
        "includes",
        "includesnoexec",
        "followsymlinks",
        "symlinksifownermatch",
        "execcgi",
        "multiviews",
        "runscripts",
    ];
    const NONFATAL: [&str; 3] = ["all", "override", "unknown"];
    let is_one = |value: &str, all: &[&str]| all.contains(&&value.to_ascii_lowercase()[..]);
    match word.split_once('=') {
        None => !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'),
        Some((name, list)) if name.eq_ignore_ascii_case("options") => {
            list.split(',').all(|option| is_one(option, &OPTIONS))
        }
        Some((name, value)) => name.eq_ignore_ascii_case("nonfatal") && is_one(value, &NONFATAL),
    }
}
