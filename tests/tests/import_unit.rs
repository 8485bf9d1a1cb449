//! `maitred import unit`: the PHP examples of Unit's documentation, reduced, are served as Unit
//! documents it.

use std::fs;
use std::path::Path;

use maitred_tests::http::{self, Request};
use maitred_tests::imported::{SCRIPT, serve};
use maitred_tests::outside::{self, text};
use maitred_tests::ports;
use maitred_tests::server::{give_to_web_user, public_folder, write_file};

/// An example, the exit code of its import, and what its addresses show: a script by its name,
/// `file`, or a status.
struct Example {
    name: &'static str,
    code: i32,
    shows: &'static [(&'static str, &'static str)],
}

/// Exit code if something is left out that decides who may see what.
const ACCESS: i32 = 3;

/// What all examples with a front controller in the document root have in common.
const WITH_INDEX: [(&str, &str); 4] = [
    ("/", "/index.php"),
    ("/a/b?c=d", "/index.php"),
    ("/style.css", "file"),
    ("/missing.php", "/index.php"),
];

const EXAMPLES: [Example; 20] = [
    Example {
        name: "cakephp",
        code: 0,
        shows: &[("/other.php", "/other.php"), ("/index.php/a", "/index.php")],
    },
    Example { name: "codeigniter", code: 0, shows: &[("/other.php", "403")] },
    Example { name: "laravel", code: 0, shows: &[("/other.php", "403")] },
    Example { name: "lumen", code: 0, shows: &[("/other.php", "403")] },
    Example {
        name: "dokuwiki",
        code: 0,
        shows: &[
            ("/", "/doku.php"),
            ("/doku.php?id=a", "/doku.php"),
            ("/lib/exe.php", "/lib/exe.php"),
            ("/a/b", "404"),
            ("/style.css", "file"),
            ("/data/a.txt", "404"),
            ("/conf/a.php", "404"),
            ("/inc/a.php", "404"),
        ],
    },
    Example {
        name: "drupal",
        code: 0,
        shows: &[
            ("/update.php", "/update.php"),
            ("/update.php/selection", "/update.php"),
            ("/core/install.php", "/core/install.php"),
            ("/other.php", "403"),
            ("/vendor/a.txt", "404"),
            ("/core/a.yml", "404"),
            ("/dump.sql", "404"),
            ("/composer.json", "404"),
        ],
    },
    Example {
        name: "joomla",
        code: 0,
        shows: &[
            ("/administrator/", "/administrator/index.php"),
            ("/administrator/index.php?a", "/administrator/index.php"),
            ("/other.php/a", "/other.php"),
        ],
    },
    Example {
        name: "wordpress",
        code: 0,
        shows: &[("/wp-admin/", "/wp-admin/index.php"), ("/wp-login.php", "/wp-login.php")],
    },
    Example { name: "symfony", code: 0, shows: &[("/other.php", "/other.php")] },
    Example {
        name: "matomo",
        code: ACCESS,
        shows: &[
            ("/", "/index.php"),
            ("/matomo.php", "/matomo.php"),
            ("/js/", "/js/index.php"),
            ("/other.php", "403"),
            ("/config/a.txt", "404"),
            ("/style.css", "file"),
            ("/libs/a.css", "file"),
        ],
    },
    Example {
        name: "mediawiki",
        code: ACCESS,
        shows: &[
            ("/index.php/Page", "/index.php"),
            ("/api.php?a", "/api.php"),
            ("/wiki/Page", "/index.php"),
            ("/maintenance/a.php", "404"),
            ("/images/a.png", "file"),
            ("/other.php", "403"),
            ("/mw-config/index.php", "/mw-config/index.php"),
        ],
    },
    Example {
        name: "modx",
        code: 0,
        shows: &[("/", "/index.php"), ("/other.php", "/other.php"), ("/core/a.php", "404")],
    },
    Example {
        name: "nextcloud",
        code: 0,
        shows: &[
            ("/remote.php/dav", "/remote.php"),
            ("/ocs/v1.php/a", "/ocs/v1.php"),
            ("/ocs-provider/", "/ocs-provider/index.php"),
            ("/updater/", "/updater/index.php"),
            ("/config/a.txt", "404"),
            ("/data/a.txt", "404"),
            ("/occ", "404"),
            ("/other.php", "403"),
        ],
    },
    Example {
        name: "phpbb",
        code: 0,
        shows: &[
            ("/", "/index.php"),
            ("/viewtopic.php?t=1", "/viewtopic.php"),
            ("/a/b", "/app.php"),
            ("/config.php", "404"),
            ("/includes/a.php", "404"),
            ("/style.css", "file"),
        ],
    },
    Example {
        name: "phpmyadmin",
        code: ACCESS,
        shows: &[("/", "/index.php"), ("/index.php?a", "/index.php"), ("/style.css", "file")],
    },
    Example {
        name: "roundcube",
        code: 0,
        shows: &[
            ("/", "/index.php"),
            ("/installer/", "/installer/index.php"),
            ("/style.css", "file"),
            ("/a/b", "404"),
        ],
    },
    Example {
        name: "yii",
        code: 0,
        shows: &[("/other.php", "/other.php"), ("/assets/a.php", "403")],
    },
    Example {
        name: "yii-1",
        code: 0,
        shows: &[("/protected/a.php", "403"), ("/themes/a.php", "403")],
    },
    Example {
        name: "sample",
        code: ACCESS,
        shows: &[("/", "/index.php"), ("/other.php", "/other.php"), ("/a/b", "404")],
    },
    Example {
        name: "php-page",
        code: 0,
        shows: &[("/admin/users", "/admin.php"), ("/admin/", "/admin.php"), ("/other.php", "403")],
    },
];

/// Folders of applications whose document root is below them.
const BELOW: [(&str, &str); 8] = [
    ("cakephp", "webroot"),
    ("codeigniter", "public"),
    ("drupal", "web"),
    ("laravel", "public"),
    ("lumen", "public"),
    ("php-page", "public"),
    ("symfony", "public"),
    ("yii", "web"),
];

/// Files below each document root.
const FILES: [&str; 43] = [
    "index.php",
    "doku.php",
    "app.php",
    "admin.php",
    "other.php",
    "api.php",
    "matomo.php",
    "remote.php",
    "update.php",
    "viewtopic.php",
    "wp-login.php",
    "config.php",
    "style.css",
    "dump.sql",
    "composer.json",
    "occ",
    "administrator/index.php",
    "assets/a.php",
    "conf/a.php",
    "config/a.txt",
    "core/a.php",
    "core/a.yml",
    "core/install.php",
    "data/a.txt",
    "images/a.png",
    "inc/a.php",
    "includes/a.php",
    "installer/index.php",
    "js/index.php",
    "lib/exe.php",
    "libs/a.css",
    "maintenance/a.php",
    "mw-config/index.php",
    "ocs/v1.php",
    "ocs-provider/index.php",
    "protected/a.php",
    "themes/a.php",
    "updater/index.php",
    "vendor/a.txt",
    "wp-admin/index.php",
    "php.ini",
    "well/a.txt",
    "z.txt",
];

/// What an address shows.
fn shown(address: std::net::SocketAddr, target: &str) -> String {
    let response = http::ask(address, &Request::new("GET", target).header("Host", "a.example"));
    match (response.status, response.header("X-Script")) {
        (200, Some(script)) => script.to_owned(),
        (200, None) => response.text().chars().skip(2).collect(),
        (status, _) => status.to_string(),
    }
}

fn differences(example: &Example) -> Vec<String> {
    let folder = public_folder();
    let below = BELOW.iter().find(|(name, _)| *name == example.name).map(|(_, below)| *below);
    let outer = folder.path().join("app");
    let root = outer.join(below.unwrap_or_default());
    for name in FILES {
        let content = if name.ends_with(".php") { SCRIPT } else { "a file" };
        let content = if name == "php.ini" { "" } else { content };
        let (inner, file) = name.rsplit_once('/').unwrap_or(("", name));
        write_file(&root.join(inner), file, content.as_bytes());
    }
    write_file(&outer, "php.ini", b"");
    give_to_web_user(&outer);
    let address = ports::free_address();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/unit-howtos");
    let fixture = fs::read_to_string(fixture.join(format!("{}.json", example.name)));
    let fixture = fixture.expect("the fixture is there");
    let config = fixture
        .replace("LISTEN", &address.to_string())
        .replace("ROOT", outer.to_str().expect("it is text"));
    let file = folder.path().join("unit.json");
    fs::write(&file, config).expect("a file can be written");
    let imported = outside::maitred(&["import", "unit", file.to_str().expect("it is text")]);
    let (toml, report) = (text(&imported.stdout), text(&imported.stderr));
    let mut found = Vec::new();
    if imported.status.code() != Some(example.code) {
        found.push(format!("exit code {:?}", imported.status.code()));
    }
    let server = serve(&toml, &outer, address);
    let has_own = example.shows.iter().any(|(target, _)| *target == "/");
    let common = if has_own { &[][..] } else { &WITH_INDEX[..] };
    let common = if example.code == 0 { common } else { &[] };
    for (target, expected) in common.iter().chain(example.shows) {
        let seen = shown(maitred_tests::Target::address(&server), target);
        if seen != *expected {
            found.push(format!("{target}: {expected} expected, {seen} seen"));
        }
    }
    if !found.is_empty() {
        found.insert(0, format!("{}:\n{toml}\n{report}", example.name));
    }
    found
}

#[test]
fn the_php_examples_of_units_documentation_are_imported_and_served_as_documented() {
    let found: Vec<String> = EXAMPLES.iter().flat_map(differences).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}
