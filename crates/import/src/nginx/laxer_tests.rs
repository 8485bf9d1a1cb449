//! An imported server never shows what nginx does not, or its import says so.

use std::collections::BTreeMap;
use std::fs;

use super::*;

/// Pools of php-fpm.
const POOLS: &str = "[www]\nlisten = /run/php.sock\npm = static\npm.max_children = 3\n";

/// Scripts run.
const PHP: &str = "location ~ \\.php$ { fastcgi_pass unix:/run/php.sock; }";

/// Files by their paths.
struct NginxFiles(BTreeMap<&'static str, String>);

impl FileReader for NginxFiles {
    fn read(&self, path: &str) -> Result<String, String> {
        self.0.get(path).cloned().ok_or_else(|| "there is none".to_owned())
    }

    fn glob(&self, pattern: &str) -> Vec<String> {
        match pattern.contains('*') {
            true => Vec::new(),
            false => vec![pattern.to_owned()],
        }
    }

    fn resolved(&self, _: &str) -> Option<String> {
        None
    }
}

/// The import of servers, with the snippet `/shared.conf`.
fn of_http(http: &str, shared: &str) -> Imported {
    let files = [
        ("/nginx.conf", format!("http {{ {http} }}")),
        ("/fpm.conf", POOLS.to_owned()),
        ("/shared.conf", shared.to_owned()),
    ];
    let files = NginxFiles(files.into());
    import(&files, "/nginx.conf", &["/fpm.conf".to_owned()]).expect("a site")
}

/// The import of a server with these lines.
fn of_server(lines: &str) -> Imported {
    of_http(&format!("server {{ root /srv/app; {} }}", lines.replace("PHP", PHP)), "")
}

/// The servers report that they are laxer.
fn says_laxer(servers: &[&str]) {
    for lines in servers {
        let imported = of_server(lines);
        assert!(!imported.report.keeps_access(), "{lines}\n{}\n{}", imported.toml, imported.report);
    }
}

/// The servers are as strict as before.
fn says_nothing(servers: &[&str]) {
    for lines in servers {
        let imported = of_server(lines);
        assert!(imported.report.keeps_access(), "{lines}\n{}\n{}", imported.toml, imported.report);
    }
}

#[test]
fn configurations_of_guides_are_no_laxer() {
    let guides = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/nginx-guides");
    for guide in fs::read_dir(guides).expect("there are guides") {
        let path = guide.expect("it can be listed").path();
        // Its look-around has no counterpart.
        if path.ends_with("phpbb.conf") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("it can be read");
        let text = text.replace("unix:FPM", "unix:/run/php.sock").replace("LISTEN", "80");
        let text = text.replace(" ROOT", " /srv/app").replace("HERE", "/srv");
        let imported = of_http(&text.replace("include fastcgi_params;", ""), "");
        assert!(imported.report.keeps_access(), "{}\n{}", path.display(), imported.report);
    }
}

#[test]
fn scripts_in_locations_without_php_do_not_run() {
    for (lines, denied) in [
        ("location / { try_files $uri /index.php; PHP } location /up/ { expires 30d; }", "/up/*"),
        ("location ~ ^/(media|up)/(.+)$ { expires 30d; } PHP", "~^/(media|up)/(.+)$"),
        (
            "location ^~ /app/up/ {} \
             location ~ ^/app/.*\\.php$ { fastcgi_pass unix:/run/php.sock; }",
            "/app/up/*",
        ),
        (
            "location /app/ { location ~ \\.php$ { fastcgi_pass unix:/run/php.sock; } } \
             location /app/up/ {}",
            "/app/up/*",
        ),
    ] {
        let imported = of_server(lines);
        let list =
            imported.toml.split("deny_php = [").nth(1).and_then(|rest| rest.split("\n]").next());
        assert!(list.is_some_and(|list| list.contains(denied)), "{lines}\n{}", imported.toml);
    }
    says_laxer(&["location ~ ^/(?!app/) { expires 30d; } PHP"]);
    says_nothing(&["location ~ ^/(?!app/).*\\.(css|js)$ { expires 30d; } PHP"]);
}
