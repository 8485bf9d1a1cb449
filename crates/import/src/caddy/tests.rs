use std::collections::BTreeMap;

use super::*;
use crate::Imported;

/// Files by their paths.
struct Files(BTreeMap<String, String>);

impl FileReader for Files {
    fn read(&self, path: &str) -> Result<String, String> {
        self.0.get(path).cloned().ok_or_else(|| "it does not exist".to_owned())
    }

    fn glob(&self, pattern: &str) -> Vec<String> {
        match pattern.split_once('*') {
            None => vec![pattern.to_owned()],
            Some((start, end)) => {
                let is_one = |path: &&String| path.starts_with(start) && path.ends_with(end);
                self.0.keys().filter(is_one).cloned().collect()
            }
        }
    }

    fn resolved(&self, _path: &str) -> Option<String> {
        None
    }
}

fn of_files(files: &[(&str, &str)]) -> Result<Imported, String> {
    let all = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
    let files = Files(all.collect());
    import(&CaddySource {
        files: &files,
        main: "/etc/caddy/Caddyfile",
        php_fpm: &["/fpm.conf".to_owned()],
        environment: &|name| (name == "SITE").then(|| "env.example".to_owned()),
    })
}

/// The result for a Caddyfile beside a php-fpm at `/run/php.sock`.
pub(super) fn of(text: &str) -> Imported {
    with_pools(text, "[www]\nlisten = /run/php.sock\npm = static\npm.max_children = 3\n")
}

/// The result for a Caddyfile beside these pools of php-fpm.
pub(super) fn with_pools(text: &str, pools: &str) -> Imported {
    of_files(&[("/etc/caddy/Caddyfile", text), ("/fpm.conf", pools)]).expect("it can be imported")
}

fn has(imported: &Imported, lines: &[&str]) {
    for line in lines {
        assert!(imported.toml.contains(line), "{line}\n{}\n{}", imported.toml, imported.report);
    }
    // The script of a worker and the file of users have to exist.
    if imported.toml.contains("mode = \"worker\"") || !imported.user_files.is_empty() {
        return;
    }
    let parsed = maitred_config::parse(&imported.toml, std::path::Path::new("/x/maitred.toml"));
    if let Err(mistakes) = parsed {
        panic!("{mistakes}\n{}", imported.toml);
    }
}

const PHP: &str = "root * /srv/a\nphp_fastcgi unix//run/php.sock\nfile_server";

#[test]
fn a_site_with_php_gets_a_certificate_a_pool_and_a_front_controller() {
    let imported =
        of(&format!("{{\n email a@b.example\n}}\na.example, www.a.example {{\n{PHP}\n}}"));
    has(
        &imported,
        &[
            "hosts = [\"a.example\", \"www.a.example\"]  # /etc/caddy/Caddyfile:4",
            "acme = { email = \"a@b.example\", terms_agreed = true }",
            "redirect = 308",
            "pool = \"www\"  # /etc/caddy/Caddyfile:6",
            "front_controller = \"/index.php\"",
            "root = \"/srv/a\"",
            "compression = false",
            "access_log = \"off\"",
        ],
    );
    assert!(imported.report.keeps_access(), "{}", imported.report);
}

#[test]
fn rules_about_access_have_the_paths_of_caddy_or_more() {
    let imported = of(&format!(
        ":80 {{\n{PHP}\n@hidden path /private/* *.sql\nrespond @hidden 403\n\
         @far not remote_ip private_ranges\nrespond /admin/* 401\n\
         @office {{\npath /office/*\nnot client_ip 192.0.2.0/24\n}}\nabort @office\n\
         basic_auth /staff/* bcrypt Staff {{\nanna $2a$14$abc\n}}\nerror /gone 410\n}}"
    ));
    has(
        &imported,
        &[
            "\"~(?i)^/private/\"",
            "\"*.sql\"",
            "except = [\"192.0.2.0/24\"]",
            "users = \"maitred-users\", realm = \"Staff\"",
            "status = 410",
        ],
    );
    let lists = of(&format!(
        ":80 {{\n{PHP}\n@x not {{\nremote_ip 10.0.0.0/8\nremote_ip 192.0.2.0/24\n}}\nabort @x\n}}"
    ));
    has(&lists, &["except = [\"10.0.0.0/8\", \"192.0.2.0/24\"]"]);
    assert_eq!(imported.user_files[0].text, "anna:$2a$14$abc\n");
    let report = imported.report.to_string();
    assert!(report.contains("the status is 403, and not 401"), "{report}");
    assert!(imported.report.keeps_access(), "{report}");
}

#[test]
fn blocks_of_paths_exclude_each_other() {
    let imported =
        of(":80 {\nroot * /srv/a\nhandle_path /api/* {\nreverse_proxy 127.0.0.1:3000\n}\n\
         handle /docs/* {\nroot * /srv/manual\nfile_server\n}\n\
         handle_path /old/* {\nroot * /srv/archive\nfile_server\n}\n\
         handle {\nrespond 404\n}\n}");
    has(
        &imported,
        &[
            "path = \"/api/*\", to = \"http://127.0.0.1:3000\", strip_prefix = true",
            "aliases.\"/docs/\" = \"/srv/manual/docs\"",
            "aliases.\"/old/\" = \"/srv/archive\"",
            "status = 404",
        ],
    );
    assert!(imported.report.keeps_access(), "{}", imported.report);
}

#[test]
fn redirects_and_rewrites_keep_the_query_where_caddy_does() {
    let imported = of(&format!(
        "http://a.example {{\n{PHP}\nredir /old /new permanent\n\
         redir /b/* https://b.example{{uri}}\n@p path_regexp p ^/p/(\\d+)$\n\
         redir @p /?product={{re.p.1}}\nrewrite /api/* /api.php?p={{path}}\n}}\n\
         http://www.a.example {{\nredir https://a.example{{uri}} 308\n}}"
    ));
    has(
        &imported,
        &[
            "from = \"/old\", to = \"/new?\", status = 301",
            "from = \"/b/*\", to = \"https://b.example$0\", status = 302",
            "to = \"/?product=$1?\"",
            "to = \"/api.php?p=$0?\", end = true",
            "from = \"/*\", to = \"https://a.example$0\", status = 308",
        ],
    );
    assert!(imported.report.keeps_access(), "{}", imported.report);
}

#[test]
fn hosts_that_a_matcher_tells_apart_are_sites_of_their_own() {
    let imported = of("{\nauto_https off\n}\n*.a.example {\n@x host x.a.example\n\
         handle @x {\nroot * /srv/x\nfile_server\n}\nhandle {\nabort\n}\n}");
    has(
        &imported,
        &["hosts = [\"x.a.example\"]", "hosts = [\"*.a.example\"]", "root = \"/srv/x\""],
    );
    let (_, rest) = imported.toml.split_once("hosts = [\"*.a.example\"]").expect("a site");
    assert!(rest.contains("\"/*\","), "{}", imported.toml);
    assert!(imported.report.keeps_access(), "{}", imported.report);
}

#[test]
fn snippets_files_and_variables_are_those_of_caddy() {
    let main = "(common) {\nheader {\nX-A {args[0]}\n-Server\n}\nencode zstd gzip\n}\n\
                {$SITE} {\nimport common yes\nimport php.conf\n}\n\
                import sites/*\n";
    let imported = of_files(&[
        ("/etc/caddy/Caddyfile", main),
        ("/etc/caddy/php.conf", PHP),
        ("/etc/caddy/sites/b", "http://{$OTHER:b.example} {\nroot * /srv/b\nfile_server browse\n}"),
    ]);
    let imported = imported.expect("it can be imported");
    has(
        &imported,
        &[
            "hosts = [\"env.example\"]",
            "set = { X-A = \"yes\" }",
            "unset = [\"Server\"]",
            "compression = [\"zstd\", \"gzip\"]",
            "upstream = \"unix:/run/php.sock\"  # /etc/caddy/php.conf:2",
            "hosts = [\"b.example\"]  # /etc/caddy/sites/b:1",
            "autoindex = true",
        ],
    );
}

#[test]
fn what_is_unknown_or_not_fixed_is_named_with_its_place_and_decides_access() {
    let cases = [
        ("frobnicate on", "Caddyfile:5: frobnicate on"),
        ("@x header X-Key y\nrespond @x 403", "Caddyfile:6: respond @x 403"),
        ("@x expression `{method} == 'GET'`\nhandle @x {\nabort\n}", "Caddyfile:6: handle @x"),
        ("forward_auth b.example {\nuri /check\n}", "Caddyfile:5: forward_auth b.example"),
        ("request_header X-User root", "Caddyfile:5: request_header X-User root"),
        ("@x not remote_ip 10.0.0.0/8\nredir @x /no", "Caddyfile:6: redir @x /no"),
        ("@x not remote_ip 10.0.0.0/8\nrewrite @x /no.html", "Caddyfile:6: rewrite @x /no.html"),
        ("@x not remote_ip 10.0.0.0/8\nrespond @x no 200", "Caddyfile:6: respond @x no 200"),
        ("@x not header Cookie *s=1*\nredir @x /login", "Caddyfile:6: redir @x /login"),
        ("@x not query key=1\nredir @x /login", "Caddyfile:6: redir @x /login"),
        ("@x header_regexp X-Token ^a$\nrewrite @x /a", "Caddyfile:6: rewrite @x /a"),
        ("rewrite /a/* {http.request.header.X-To}", "Caddyfile:5: rewrite /a/*"),
        (
            "handle /b/* {\nphp_fastcgi unix//b.sock {\nheader_up X-User a\n}\n}",
            "Caddyfile:7: header_up X-User a",
        ),
        ("reverse_proxy /b/* :81 {\nheader_up -X-Token\n}", "Caddyfile:6: header_up -X-Token"),
        (
            "@x not {\nremote_ip 10.0.0.0/8\nclient_ip 192.0.2.0/24\n}\nrespond @x 403",
            "respond @x 403",
        ),
        ("respond @missing 403", "Caddyfile:5: respond @missing 403"),
        ("@x not method GET POST\nrespond @x 405", "Caddyfile:6: respond @x 405"),
        (
            "handle /b/* {\nphp_fastcgi unix//b.sock {\nsplit .html\n}\n}",
            "Caddyfile:7: split .html",
        ),
        ("file_server /x/* {\nfrobnicate\n}", "Caddyfile:6: frobnicate"),
        ("root * /srv/{host}", "Caddyfile:5: root * /srv/{host}"),
        ("respond /a {$UNSET}", "Caddyfile:5: {$UNSET}"),
    ];
    for (lines, expected) in cases {
        let imported = of(&format!(":80 {{\n{PHP}\n{lines}\n}}"));
        let report = imported.report.to_string();
        let (_, left) = report.split_once("decides who may see what (").unwrap_or_else(|| {
            panic!("{lines}\n{report}\n{}", imported.toml);
        });
        assert!(left.contains(expected), "{lines}\n{report}");
    }
}

#[test]
fn redirects_that_are_not_about_the_client_decide_nothing_about_access() {
    for lines in [
        "@x header User-Agent *Mobile*\nredir @x /mobile",
        "@x header_regexp lang Accept-Language ^de\nredir @x /de/",
        "@x protocol http\nredir @x /a",
        "@x {\nheader Connection *Upgrade*\nheader Upgrade websocket\n}\nreverse_proxy @x :6001",
        "@x query p=1\nredir @x /new",
        "@x method POST\nredir @x /new",
        "reverse_proxy /b/* :81 {\nheader_up Host {host}\nheader_up X-Real-IP {remote_host}\n\
         header_up X-Forwarded-Proto https\nheader_up -Accept-Encoding\n}",
    ] {
        let imported = of(&format!(":80 {{\n{PHP}\n{lines}\n}}"));
        assert!(imported.report.keeps_access(), "{lines}\n{}", imported.report);
    }
    let imported = of(&format!(":80 {{\n{PHP}\nredir /private/* /login 401\n}}"));
    has(&imported, &["\"~(?i)^/private/\", status = 404"]);
}

#[test]
fn a_mistake_is_named_with_its_line() {
    for (text, expected) in [
        (":80 {\nroot * /a\n", "Caddyfile:2: a `{` has no `}`"),
        (":80 {\n}\n}", "Caddyfile:3: a `}` without its `{`"),
        (":80 {\nrespond \"a\n}", "Caddyfile:2: `\"` has no end"),
    ] {
        let why = of_files(&[("/etc/caddy/Caddyfile", text)]).expect_err("it has a mistake");
        assert!(why.contains(expected), "{why}");
    }
}

#[test]
fn a_log_without_a_file_is_that_of_the_server() {
    let imported = of("a.example {\nlog\n}\nb.example {\nlog {\noutput stdout\n}\n}\n\
         c.example {\nlog {\noutput net 192.0.2.1:5000\n}\n}\n\
         d.example {\nlog {\noutput file /d.log\n}\n}\ne.example {\nfile_server\n}");
    let logs: Vec<&str> =
        imported.toml.lines().filter(|line| line.starts_with("access_log")).collect();
    let values: Vec<&str> = logs.iter().filter_map(|line| line.split("  #").next()).collect();
    assert_eq!(
        values,
        [
            "access_log = \"stderr\"",
            "access_log = \"off\"",
            "access_log = \"/d.log\"",
            "access_log = \"off\"",
        ],
    );
    let report = imported.report.to_string();
    assert!(report.contains("2: log: the site has the log of the server"), "{report}");
    assert!(report.contains("log: set `access_log`; it takes a file"), "{report}");
}

#[test]
fn frankenphp_becomes_pools_with_its_threads_and_workers() {
    let imported = of("{\nfrankenphp {\nnum_threads 8\nphp_ini memory_limit 99M\n}\n}\n\
         :80 {\nroot public/\nencode zstd br gzip\nphp_server {\nenv APP_ENV prod\n}\n}");
    has(
        &imported,
        &[
            "[pools.frankenphp]",
            "max_children = 8",
            "php_value.memory_limit = \"99M\"",
            "env.APP_ENV = \"prod\"",
            "root = \"/etc/caddy/public\"",
            "front_controller = \"/index.php\"",
            "pool = \"frankenphp\"",
        ],
    );
    assert!(imported.report.keeps_access(), "{}", imported.report);
    let imported =
        of(":80 {\nroot * /app/public\nphp_server {\nworker /app/public/worker.php 4\n}\n}");
    has(
        &imported,
        &["mode = \"worker\"", "script = \"/app/public/worker.php\"", "max_children = 4"],
    );
    assert_eq!(imported.toml.matches("[pools.").count(), 1, "{}", imported.toml);
}

#[test]
fn php_without_a_file_server_is_a_difference_about_access() {
    let imported = of(":80 {\nroot * /srv/a\nphp_fastcgi unix//run/php.sock\n}");
    assert!(!imported.report.keeps_access(), "{}", imported.report);
}

#[test]
fn a_damaged_configuration_ends_in_an_error_or_a_result() {
    const ROUNDS: u64 = 400;
    let whole = format!(
        "{{\nemail a@b.example\nservers {{\ntrusted_proxies static private_ranges\n}}\n}}\n\
         (s) {{\nheader X-A {{args[0]}}\n}}\na.example, b.example {{\n{PHP}\nimport s yes\n\
         @m {{\npath /a/* *.sql\nnot remote_ip 10.0.0.0/8\n}}\nrespond @m \"no\" 403\n\
         handle_path /api/* {{\nreverse_proxy localhost:9000\n}}\nhandle {{\nredir /x /y 301\n}}\n\
         basic_auth /b* {{\nanna $2a$05$x\n}}\nlog {{\noutput file /a.log\n}}\n}}\n"
    );
    let words: Vec<&str> = whole.split_inclusive([' ', '\n']).collect();
    let mut state: u64 = 29;
    let mut next = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap_or_default() % below
    };
    for _ in 0..ROUNDS {
        let mut damaged = words.clone();
        for _ in 0..=next(3) {
            let (from, to) = (next(damaged.len()), next(damaged.len()));
            match next(3) {
                0 => drop(damaged.remove(from)),
                1 => damaged.insert(to, damaged[from]),
                _ => damaged.swap(from, to),
            }
        }
        let imported = of_files(&[("/etc/caddy/Caddyfile", &damaged.concat())]);
        if let Ok(imported) = imported {
            assert!(!imported.report.findings().is_empty());
        }
    }
}

#[test]
fn the_times_of_a_stop_are_imported() {
    let site = format!("a.example {{\n{PHP}\n}}\n");
    let imported = of(&format!("{{\nshutdown_delay 10s\ngrace_period 1m30s\n}}\n{site}"));
    has(&imported, &["stop_delay = \"10s\"", "process_control_timeout = \"90s\""]);
    // No limit, and a time that is not understood.
    let imported = of(&format!("{{\nshutdown_delay 1.5h\ngrace_period 0\n}}\n{site}"));
    for name in ["stop_delay", "process_control_timeout"] {
        assert!(!imported.toml.contains(name), "{}", imported.toml);
        assert!(imported.report.to_string().contains(name), "{}", imported.report);
    }
}

#[test]
fn a_script_for_all_paths_hides_no_files_here() {
    let of_files = |files: &str| of(&format!("a.example {{\n{PHP}\ntry_files {files}\n}}"));
    let imported = of_files("/index.php");
    assert!(!imported.report.keeps_access(), "{}\n{}", imported.toml, imported.report);
    assert!(of_files("{path} /index.php").report.keeps_access());
}

#[test]
fn the_first_of_two_pools_that_has_a_script_runs_it() {
    let pool = |user: &str| format!("[{user}]\nlisten = /run/{user}.sock\nuser = {user}\n");
    let pools = pool("a") + &pool("b");
    let rules = |lines: &[&str]| {
        let text = format!(":80 {{\nroot * /srv/a\n{}\nfile_server\n}}\n", lines.join("\n"));
        let files = [("/etc/caddy/Caddyfile", text.as_str()), ("/fpm.conf", pools.as_str())];
        let imported = of_files(&files).expect("it can be imported");
        assert!(imported.report.keeps_access(), "{}", imported.report);
        imported.toml.lines().filter(|line| line.contains("pool = ")).count().to_string()
            + imported.toml.split_once("pool = ").map_or("", |(_, rest)| rest)
    };
    let (some, all) = ("php_fastcgi /api/* unix//run/b.sock", "php_fastcgi unix//run/a.sock");
    // Without a matcher, it keeps its place.
    let first = rules(&[all, some]);
    assert!(first.starts_with("1\"a\""), "{first}");
    let first = rules(&[some, all]);
    assert!(first.starts_with("3\"b\""), "{first}");
    let (own, others) = (first.find("path = \"/api/*\", pool = \"b\""), first.find("\"/*\""));
    assert!(own.is_some() && own < others, "{first}");
}
