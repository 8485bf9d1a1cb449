//! The reference page of all settings, generated from the directives.

use std::fmt::Write;

use maitred_pagecache::apps::cache_of;
use maitred_rules::apps::App;

use crate::read::directive::{Directive, Preset};
use crate::read::directives::{
    cache, global, jobs, listeners, output, pools, rules, sites, tls, trace_export,
};

const HEAD: &str = r#"# Configuration

<!-- Made from the directives in crates/config/src/read/directives; change them, not this page:
     MAITRED_WRITE_REFERENCE=1 cargo test -p maitred-config reference -->

maitred needs no configuration to serve a directory: `maitred serve public/`. Otherwise it reads a
TOML file, `/etc/maitred/maitred.toml` or the one in `--config`:

```toml
listen = ["[::]:80"]
access_log = "/var/log/maitred/access.log"

[pools.shop]
user = "shop"
max_children = 40
request_terminate_timeout = "30s"
php_admin_value = { memory_limit = "256M" }

[[sites]]
hosts = ["shop.example.com", "*.shop.example.com"]
root = "/srv/shop/public"
pool = "shop"
```

- **Durations** have a unit: `"500ms"`, `"30s"`, `"5m"`, `"1h"`, `"1d"`. A bare number means
  seconds.
- **Sizes** have a unit in powers of 1024: `"8k"`, `"64M"`, `"1G"`. A bare number means bytes.
- **Relative paths** start from the directory of the file they are in.
- **Changes** take effect with `maitred reload` or SIGHUP, without a lost request; settings
  that need a restart say so ([Reload and upgrade](../guide/reload-and-upgrade.md)).
- **Mistakes** are all reported at once, each with its line and column, and the server does not
  start:
  ``maitred.toml:12:1: unknown setting `max_childen` in [pools.shop]; did you mean `max_children`?``
"#;

/// The settings of one section of the configuration file.
#[derive(Debug)]
pub struct SettingGroup {
    /// The section, in Markdown.
    pub title: &'static str,
    /// The section's purpose, in Markdown.
    pub intro: &'static str,
    /// Its settings, in the order of the reference.
    pub settings: Vec<SettingDoc>,
}

/// The documentation of one setting.
#[derive(Debug)]
pub struct SettingDoc {
    /// Its name.
    pub name: &'static str,
    /// One paragraph, in Markdown.
    pub doc: &'static str,
    /// Facts and their values in Markdown: accepted values, default, unit, effect of a change,
    /// example.
    pub facts: Vec<(&'static str, String)>,
}

/// All settings, by section.
pub fn setting_groups() -> Vec<SettingGroup> {
    vec![
        group("Top of the file", "Settings of the whole server.", global::DIRECTIVES),
        SettingGroup {
            title: "`[pool_defaults]`",
            intro: "Settings of every pool that does not set them itself: those of `[pools.NAME]` \
                    below, but for `listen` and `status_listen`. `php_value`, `php_flag`, \
                    `php_admin_value`, `php_admin_flag` and `env` are merged name by name, and \
                    the pool's own value wins, whichever of the four tables of PHP it is in. \
                    Settings of a FastCGI listener apply to pools with `listen`.",
            settings: Vec::new(),
        },
        group("`[tls]`", "Settings of HTTPS; see [TLS](../guide/tls.md).", tls::DIRECTIVES),
        group(
            "`[traces]`",
            "Traces of requests, and their export; see [Traces](../guide/traces.md). An empty \
             section turns them on.",
            trace_export::DIRECTIVES,
        ),
        group(
            "`[pools.NAME]`",
            "Settings of one pool: a set of PHP workers with one configuration. `NAME` is 1 to 32 \
             letters, digits, `_` or `-`, and part of the titles of the pool's processes. The \
             names of the settings are php-fpm's, without the prefix `pm.`.",
            pools::DIRECTIVES,
        ),
        group(
            "`[pools.NAME]`: the FastCGI listener",
            "Settings of the same section: the pool's FastCGI listener for web servers, in \
             php-fpm's names with `_` for `.`. All but `listen` need `listen`.",
            listeners::DIRECTIVES,
        ),
        group(
            "`[[pools.NAME.commands]]`",
            "A program that runs beside the requests of the pool, such as the consumers of a \
             queue; write the section once for each, below that of the pool. See [Commands and \
             schedules](../guide/commands-and-schedules.md).",
            jobs::COMMANDS,
        ),
        group(
            "`[[pools.NAME.schedules]]`",
            "A program that runs at certain times, in place of a line in a crontab. Each has one \
             of `every`, `at` and `cron`.",
            jobs::SCHEDULES,
        ),
        group(
            "`[[sites]]`",
            "Settings of one site; write `[[sites]]` once for each.",
            sites::DIRECTIVES,
        ),
        group(
            "`[[sites]]`: paths and clients",
            "Settings of the same section. A pattern of paths is a path (`\"/a\"`), all below a \
             folder (`\"/a/*\"`), an ending (`\"*.css\"`) or a regular expression \
             (`\"~^/a[0-9]+$\"`), compared with the decoded path without `.`, `..` and doubled \
             slashes.",
            rules::DIRECTIVES,
        ),
        group(
            "`[[sites]]`: responses",
            "Settings of the same section. None of them applies to a FastCGI listener.",
            output::DIRECTIVES,
        ),
        group(
            "`[sites.cache]`",
            "The page cache of the site whose `[[sites]]` stands before it; see [The page \
             cache](../guide/page-cache.md). An empty section turns the cache on.",
            cache::DIRECTIVES,
        ),
    ]
}

fn group<T>(title: &'static str, intro: &'static str, directives: &[Directive<T>]) -> SettingGroup {
    SettingGroup { title, intro, settings: directives.iter().map(setting).collect() }
}

fn setting<T>(directive: &Directive<T>) -> SettingDoc {
    let default = match directive.default {
        Preset::Value(value) => format!("`{value}`"),
        Preset::Words(words) => words.to_owned(),
    };
    let mut facts = vec![("Takes", directive.takes.to_owned()), ("Default", default)];
    let units = [("a duration", "seconds"), ("a size", "bytes")];
    if let Some((_, unit)) = units.iter().find(|(kind, _)| directive.takes.contains(kind)) {
        facts.push(("Unit of a bare number", (*unit).to_owned()));
    }
    facts.push(("A change needs", directive.needs.to_string()));
    facts.push(("Example", format!("`{} = {}`", directive.name, directive.example)));
    SettingDoc { name: directive.name, doc: directive.doc, facts }
}

/// The text of `docs/reference/configuration.md`.
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    for group in setting_groups() {
        section(&mut page, &format!("## {}", group.title), group.intro);
        for setting in &group.settings {
            section(&mut page, &format!("### {}", setting.name), setting.doc);
            page.push('\n');
            for (fact, text) in &setting.facts {
                line(&mut page, &format!("- {fact}: {text}"));
            }
        }
    }
    page
}

fn section(page: &mut String, heading: &str, text: &str) {
    for part in ["", heading, "", text] {
        line(page, part);
    }
}

fn line(page: &mut String, text: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(page, "{text}");
}

const APPLICATIONS_HEAD: &str = r#"# Rules for applications

<!-- Made from the presets in crates/rules/src/apps.rs and crates/pagecache/src/apps.rs;
     change them, not this page:
     MAITRED_WRITE_REFERENCE=1 cargo test -p maitred-config reference -->

`app = "wordpress"` in a site adds the rules below after the site's own: those that the makers of
the application publish for nginx or Apache. The site's own rules take precedence: its redirects and
rewrites are checked first, its headers replace the preset's, and its `front_controller` is used.
Denied paths get a 404. `allow_php` and `deny_php` decide which scripts run; other scripts are never
sent as text. The first match in `deny_php` wins, and a pattern behind a `!` lets scripts run all
the same: `deny_php = "!/wp-content/export.php"` allows that one. Hidden files (`.env`, `.git/`,
`.htaccess`) and PHP source under other names are never served, with or without a preset.

Where the site has a [page cache](page-cache.md), `private_cookies` are the cookies of users, whose
pages are private. Pages of `no_store_paths`, and requests with `no_store_parameters`, are never
cached.

`maitred explain URL` shows the rule for a request.
"#;

/// The text of `docs/guide/applications.md`.
pub fn applications() -> String {
    let of_cache = |app: App| {
        let cache = cache_of(app.name());
        vec![
            ("private_cookies", cache.cookies),
            ("no_store_paths", cache.paths),
            ("no_store_parameters", cache.parameters),
        ]
    };
    format!("{APPLICATIONS_HEAD}{}", maitred_rules::apps::page(of_cache))
}
