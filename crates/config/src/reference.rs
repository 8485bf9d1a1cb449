//! The reference page of all settings, made from the directives.

use std::fmt::Write;

use maitred_pagecache::apps::cache_of;
use maitred_rules::apps::App;

use crate::directive::{Directive, Preset};
use crate::directives::{cache, doors, output, pools, rules, sites, tls, top};

const HEAD: &str = r#"# Configuration

<!-- Made from the directives in crates/config/src/directives; change them, not this page:
     MAITRED_WRITE_REFERENCE=1 cargo test -p maitred-config reference -->

maitred needs no configuration to serve a folder: `maitred serve public/`. For more than that it
reads a TOML file, `/etc/maitred/maitred.toml` unless `--config` names another:

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
- **Paths** that are relative are relative to the folder of the configuration file.
- **Changes** take effect with `maitred reload` or SIGHUP, without a lost request; what needs a
  restart is said with the setting ([Reload and upgrade](../guide/reload-and-upgrade.md)).
- **Mistakes** are all reported at once, each with its line and column, and nothing is started:
  ``maitred.toml:12:1: unknown setting `max_childen` in [pools.shop]; did you mean `max_children`?``
"#;

/// The text of `docs/reference/configuration.md`.
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    group(
        &mut page,
        "Top of the file",
        "Settings of the whole server.",
        top::DIRECTIVES,
    );
    let intro = "How the sites are served over HTTPS; see [TLS](../guide/tls.md).";
    group(&mut page, "`[tls]`", intro, tls::DIRECTIVES);
    let intro = "Settings of one pool: a set of PHP workers with one configuration. `NAME` is 1 \
                 to 32 letters, digits, `_` or `-`, and part of the titles of the pool's \
                 processes. The names of the settings are php-fpm's, without the prefix `pm.`.";
    group(&mut page, "`[pools.NAME]`", intro, pools::DIRECTIVES);
    let intro = "Settings of the same section: where web servers reach the pool over FastCGI, in \
                 php-fpm's names with `_` for `.`. All but `listen` are for a pool that has it.";
    group(
        &mut page,
        "`[pools.NAME]`: the FastCGI door",
        intro,
        doors::DIRECTIVES,
    );
    let intro = "Settings of one site; write `[[sites]]` once for each.";
    group(&mut page, "`[[sites]]`", intro, sites::DIRECTIVES);
    let intro = "Settings of the same section. A pattern of paths is a path (`\"/a\"`), all below a \
                 folder (`\"/a/*\"`), an ending (`\"*.css\"`) or a regular expression \
                 (`\"~^/a[0-9]+$\"`), compared with the path decoded and without `.`, `..` and \
                 doubled slashes.";
    group(
        &mut page,
        "`[[sites]]`: paths and clients",
        intro,
        rules::DIRECTIVES,
    );
    let intro =
        "Settings of the same section. Nothing of this concerns web servers at a FastCGI door.";
    group(
        &mut page,
        "`[[sites]]`: how answers leave",
        intro,
        output::DIRECTIVES,
    );
    let intro = "The page cache of the site whose `[[sites]]` stands before it; see \
                 [The page cache](../guide/page-cache.md). The section alone, with nothing in it, \
                 turns the cache on.";
    group(&mut page, "`[sites.cache]`", intro, cache::DIRECTIVES);
    page
}

fn group<T>(page: &mut String, title: &str, intro: &str, directives: &[Directive<T>]) {
    section(page, &format!("## {title}"), intro);
    for directive in directives {
        section(page, &format!("### {}", directive.name), directive.doc);
        let default = match directive.default {
            Preset::Value(value) => format!("`{value}`"),
            Preset::Words(words) => words.to_owned(),
        };
        let mut facts = vec![("Takes", directive.takes.to_owned()), ("Default", default)];
        if !directive.unit.is_empty() {
            facts.push(("Unit of a bare number", directive.unit.to_owned()));
        }
        facts.push(("A change needs", directive.needs.to_string()));
        facts.push((
            "Example",
            format!("`{} = {}`", directive.name, directive.example),
        ));
        page.push('\n');
        for (fact, text) in facts {
            line(page, &format!("- {fact}: {text}"));
        }
    }
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

<!-- Made from the presets in crates/rules/src/apps.rs and crates/pagecache/src/apps.rs; change them, not this page:
     MAITRED_WRITE_REFERENCE=1 cargo test -p maitred-config reference -->

`app = "wordpress"` in a site has the rules below follow the site's own: what the makers of the
application publish for nginx or Apache. What the site says itself goes first: a redirect or a
rewrite of its own is looked at before, a header of its own replaces the preset's, and its
`front_controller` holds. What is denied is answered with 404. `allow_php` and `deny_php` say which
scripts run; others are never sent as text. Of `deny_php`, the first that matches decides, and one behind
a `!` has scripts run all the same: `deny_php = "!/wp-content/export.php"` lets that one. Hidden files
(`.env`, `.git/`, `.htaccess`) and PHP source under other names are never served, with or without a preset.

Where the site has a [page cache](page-cache.md), `private_cookies` are those by which the application
knows people, whose pages are theirs alone. `no_store_paths`, and what is asked for with
`no_store_parameters`, are never kept.

`maitred explain URL` shows which rule a request meets.
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
