//! What the imported configuration never shows or runs, and Caddy does not.

use maitred_config::Config;

use super::tests::{of, with_pools};
use crate::Imported;

fn config(imported: &Imported) -> Config {
    let parsed = maitred_config::parse(&imported.toml, std::path::Path::new("/x/maitred.toml"));
    parsed.unwrap_or_else(|why| panic!("{why}\n{}", imported.toml))
}

/// Whether all clients are refused a path.
fn is_denied(imported: &Imported, path: &str) -> bool {
    let config = config(imported);
    config.sites[0].rules.deny.iter().any(|rule| rule.path.matches(path.as_bytes()))
}

/// Whether a script runs.
fn runs(imported: &Imported, script: &str) -> bool {
    let rules = &config(imported).sites[0].rules;
    let is_in = |path: &maitred_rules::Pattern| path.matches(script.as_bytes());
    (rules.allow_php.is_empty() || rules.allow_php.iter().any(is_in))
        && !rules.deny_php.iter().any(|rule| is_in(&rule.path))
}

const FPM: &str = "php_fastcgi unix//run/php.sock";

#[test]
fn no_script_runs_in_paths_that_php_is_not_for() {
    for lines in [
        &format!("handle /uploads/* {{\nfile_server\n}}\nhandle {{\n{FPM}\nfile_server\n}}"),
        &format!("@php not path /uploads/*\n{}\nfile_server", FPM.replace("i ", "i @php ")),
        &format!(
            "handle /uploads/* {{\nhandle /uploads/run/* {{\n{FPM}\nfile_server\n}}\n\
             file_server\n}}\nhandle {{\n{FPM}\nfile_server\n}}"
        ),
    ] {
        let imported = of(&format!(":80 {{\nroot * /srv/app\n{lines}\n}}"));
        assert!(imported.report.keeps_access(), "{lines}\n{}", imported.report);
        assert!(!runs(&imported, "/uploads/x.php"), "{lines}\n{}", imported.toml);
        assert!(
            !runs(&imported, "/Uploads/x.php") || lines.contains("/uploads/run/"),
            "{}",
            imported.toml
        );
        assert!(runs(&imported, "/index.php"), "{lines}\n{}", imported.toml);
        let is_part = lines.contains("/uploads/run/");
        assert_eq!(runs(&imported, "/uploads/run/x.php"), is_part, "{}", imported.toml);
    }
    let part = of(&format!(
        ":80 {{\nroot * /srv/app\nhandle /api/* {{\n@x not path /api/local/*\n\
         reverse_proxy @x :81\n}}\nhandle {{\n{FPM}\nfile_server\n}}\n}}"
    ));
    assert!(!runs(&part, "/api/local/x.php"), "{}", part.toml);
    let all = of(&format!(
        ":80 {{\nroot * /srv/app\nhandle /a/* {{\n{FPM}\nfile_server\n}}\nhandle /api/* {{\n\
         reverse_proxy :81\n}}\nhandle /a.css {{\nfile_server\n}}\n\
         handle {{\n{FPM}\nfile_server\n}}\n}}"
    ));
    assert!(!all.toml.contains("deny_php"), "{}", all.toml);
    assert!(all.report.keeps_access(), "{}", all.report);
}

#[test]
fn files_are_sent_where_a_file_server_is() {
    let cases = [
        ("@public not path /private/*\nfile_server @public", "/private/a", "/a"),
        ("handle /x/* {\n@j path *.jpg\nfile_server @j\n}\nhandle {\nfile_server\n}", "/x/a", "/a"),
        (
            "handle /x/* {\n@y not path /x/y/*\nfile_server @y\n}\nhandle {\nfile_server\n}",
            "/x/y/a",
            "/x/a",
        ),
        (
            "handle_path /x/* {\nroot * /srv/x\n@y not path /y/*\nfile_server @y\n}\n\
             handle {\nfile_server\n}",
            "/x/y/a",
            "/y/a",
        ),
        ("@y {\npath /x/*\nnot path /x/y/*\n}\nfile_server @y", "/x/y/a", "/x/a"),
        ("file_server /x/*", "/a", "/x/a"),
    ];
    for (lines, denied, sent) in cases {
        let imported = of(&format!(":80 {{\nroot * /srv/app\n{lines}\n}}"));
        assert!(is_denied(&imported, denied), "{lines}\n{}\n{}", imported.toml, imported.report);
        assert!(!is_denied(&imported, sent), "{lines}\n{}\n{}", imported.toml, imported.report);
    }
    for lines in [
        &format!(
            "handle /api/* {{\n{FPM}\n}}\nhandle {{\ntry_files {{path}} /a.html\nfile_server\n}}"
        ),
        &format!("@public not path /private/*\n{FPM}\nfile_server @public"),
        &format!("handle /api/* {{\nroot * /srv/api\n{FPM}\n}}\nhandle {{\nfile_server\n}}"),
    ] {
        let imported = of(&format!(":80 {{\nroot * /srv/app\n{lines}\n}}"));
        assert!(!imported.report.keeps_access(), "{lines}\n{}", imported.toml);
    }
    let source =
        of(&format!(":80 {{\nroot * /srv/app\n@f not path *.php\n{FPM}\nfile_server @f\n}}"));
    assert!(source.report.keeps_access(), "{}", source.report);
    let refused = of(&format!(
        ":80 {{\nroot * /srv/app\nhandle /data/* {{\nrespond 403\n}}\n\
         handle {{\n{FPM}\nfile_server\n}}\n}}"
    ));
    assert!(refused.report.keeps_access(), "{}", refused.report);
    assert!(!refused.toml.contains("no `file_server`"), "{}", refused.toml);
}

#[test]
fn users_of_an_inner_block_are_those_of_its_paths() {
    let of_users = |inner: &str, outer: &str| {
        of(&format!(
            ":80 {{\nroot * /srv/app\nbasic_auth {{\n{outer}\n}}\n\
             handle /admin/* {{\nbasic_auth {{\n{inner}\n}}\n{FPM}\nfile_server\n}}\n\
             handle {{\n{FPM}\nfile_server\n}}\n}}"
        ))
    };
    let (alice, bob) = ("alice $2a$14$abc", "bob $2a$14$def");
    let imported = of_users(bob, &format!("{alice}\n{bob}"));
    assert!(imported.report.keeps_access(), "{}", imported.report);
    let rules: Vec<&str> = imported.toml.lines().filter(|line| line.contains("users = ")).collect();
    assert_eq!(rules.len(), 2, "{}", imported.toml);
    let is_first = rules[0].contains("path = \"~(?i)^/admin/\", users = \"maitred-users-2\"");
    assert!(is_first, "{}", imported.toml);
    assert_eq!(imported.user_files[1].text, "bob:$2a$14$def\n");
    // Caddy wants a user of both lists.
    assert!(!of_users(alice, bob).report.keeps_access());
    let met = of(&format!(
        ":80 {{\n{FPM}\nfile_server\n@pdf path *.pdf\nbasic_auth @pdf {{\n{alice}\n}}\n\
         basic_auth /docs/* {{\n{bob}\n}}\n}}"
    ));
    assert!(!met.report.keeps_access(), "{}", met.toml);
    let apart = of(&format!(
        ":80 {{\nroot * /srv/app\nhandle /a/* {{\nbasic_auth {{\n{alice}\n}}\nfile_server\n}}\n\
         handle {{\nbasic_auth {{\n{bob}\n}}\nfile_server\n}}\n}}"
    ));
    assert!(apart.report.keeps_access(), "{}", apart.report);
}

#[test]
fn hidden_files_of_a_folder_are_hidden_where_clients_see_it() {
    let imported = of(":80 {\nroot * /srv/app\nhandle_path /dl/* {\nroot * /srv/dl\n\
         file_server {\nhide /srv/dl/private\n}\n}\nhandle {\nfile_server\n}\n}");
    assert!(is_denied(&imported, "/dl/private/a"), "{}", imported.toml);
    assert!(!is_denied(&imported, "/private/a"), "{}", imported.toml);
}

#[test]
fn an_expression_within_handle_path_is_for_the_rest_of_the_path() {
    let of_files = |matcher: &str| {
        of(&format!(
            ":80 {{\nroot * /srv/app\nhandle_path /dl/* {{\nroot * /srv/dl\n@x not {matcher}\n\
             file_server @x\n}}\nhandle {{\nfile_server\n}}\n}}"
        ))
    };
    for matcher in ["path_regexp ^/private/", "path /*/private"] {
        let imported = of_files(matcher);
        assert!(is_denied(&imported, "/dl/private/private"), "{matcher}\n{}", imported.toml);
    }
    let imported = of_files("path *.sql");
    assert!(is_denied(&imported, "/dl/a.sql"), "{}", imported.toml);
    assert!(!is_denied(&imported, "/dl/a"), "{}", imported.toml);
}

#[test]
fn headers_for_scripts_are_named_that_clients_can_send() {
    let report =
        |lines: &str| of(&format!(":80 {{\nroot * /srv/app\n{lines}\nfile_server\n}}")).report;
    for name in ["X-Forwarded-User", "X-Real-IP"] {
        let of_php = report(&format!("{FPM} {{\nheader_up {name} a\n}}"));
        assert!(!of_php.keeps_access(), "{name}\n{of_php}");
        let proxied = report(&format!("reverse_proxy /a/* :81 {{\nheader_up {name} a\n}}"));
        assert!(proxied.keeps_access(), "{name}\n{proxied}");
    }
    let harmless = report(&format!("{FPM} {{\nheader_up X-Forwarded-Proto https\n}}"));
    assert!(harmless.keeps_access(), "{harmless}");
}

#[test]
fn paths_of_a_snippet_are_those_of_its_arguments() {
    let of_snippet = |snippet: &str| {
        of(&format!(
            "(closed) {{\n@closed path {snippet}\nrespond @closed 403\n}}\n\
             :80 {{\nroot * /srv/app\nimport closed /a/* /b/* /c/*\nfile_server\n}}"
        ))
    };
    for (snippet, first, denied) in
        [("{args[0:]}", true, "/b/a"), ("{args[1:]}", false, "/c/a"), ("{args[:2]}", true, "/b/a")]
    {
        let imported = of_snippet(snippet);
        assert!(imported.report.keeps_access(), "{}", imported.report);
        assert!(is_denied(&imported, denied), "{snippet}\n{}", imported.toml);
        assert_eq!(is_denied(&imported, "/a/a"), first, "{snippet}\n{}", imported.toml);
    }
    for snippet in ["{args[2:9]}", "{args[7]}", "{env.PRIVATE}/*"] {
        assert!(!of_snippet(snippet).report.keeps_access(), "{snippet}");
    }
    let inline = of(":80 {\nroot * /srv/app\nrespond /{env.PRIVATE}/* 403\nfile_server\n}");
    assert!(!inline.report.keeps_access(), "{}", inline.toml);
}

#[test]
fn a_matcher_of_hosts_ignores_their_case_and_has_wildcards() {
    let site = |names: &str, matcher: &str| {
        of(&format!(
            "{{\nauto_https off\n}}\n{names} {{\nroot * /srv/app\n@x host {matcher}\n\
             respond @x 403\nfile_server\n}}"
        ))
    };
    for matcher in ["A.Example.com", "*.example.com"] {
        let imported = site("a.example.com", matcher);
        assert!(imported.report.keeps_access(), "{}", imported.report);
        assert!(is_denied(&imported, "/a"), "{matcher}\n{}", imported.toml);
    }
    assert!(!site("a.example.com, b.example.org", "*.example.com").report.keeps_access());
    assert!(!site("a.example.com", "{env.NAME}").report.keeps_access());
    let other = site("a.example.com", "*.example.org");
    assert!(other.report.keeps_access() && !is_denied(&other, "/a"), "{}", other.toml);
}

#[test]
fn paths_of_a_handle_with_exceptions_are_none_of_later_ones() {
    for (lines, script) in [
        (
            format!(
                "@up {{\npath /uploads/*\nnot path /uploads/app/*\n}}\n\
                 handle @up {{\nfile_server\n}}\nhandle {{\n{FPM}\nfile_server\n}}"
            ),
            "/uploads/x.php",
        ),
        (
            format!(
                "handle /app/* {{\n@n not path /app/api/*\nhandle @n {{\nfile_server\n}}\n\
                 handle {{\n{FPM}\n}}\n}}\nhandle {{\nfile_server\n}}"
            ),
            "/app/up/x.php",
        ),
        (
            format!("@n not path /api/*\nhandle @n {{\nfile_server\n}}\nhandle {{\n{FPM}\n}}"),
            "/up/x.php",
        ),
    ] {
        let imported = of(&format!(":80 {{\nroot * /srv/app\n{lines}\n}}"));
        let is_laxer = runs(&imported, script);
        assert!(
            !is_laxer || !imported.report.keeps_access(),
            "{lines}\n{}\n{}",
            imported.toml,
            imported.report
        );
    }
    let files = of(&format!(
        ":80 {{\nroot * /srv/app\n@api {{\npath /api/*\nnot path /api/doc/*\n}}\n\
         handle @api {{\n{FPM}\n}}\nhandle {{\nfile_server\n}}\n}}"
    ));
    let is_refused = is_denied(&files, "/api/app.sqlite");
    assert!(is_refused || !files.report.keeps_access(), "{}\n{}", files.toml, files.report);
}

#[test]
fn scripts_of_a_folder_whose_files_are_sent_do_not_run() {
    let imported = of(&format!(
        ":80 {{\nroot * /srv/app\n{FPM}\nfile_server /dl/* {{\nroot /srv/dl\n}}\nfile_server\n}}"
    ));
    assert!(!runs(&imported, "/dl/x.php") && runs(&imported, "/index.php"), "{}", imported.toml);
}

fn says_laxer(lines: &str) {
    let imported = of(&format!(":80 {{\n{lines}\n}}"));
    assert!(!imported.report.keeps_access(), "{lines}\n{}\n{}", imported.toml, imported.report);
}

fn is_strict(lines: &str) {
    let imported = of(&format!(":80 {{\n{lines}\n}}"));
    assert!(imported.report.keeps_access(), "{lines}\n{}\n{}", imported.toml, imported.report);
}

#[test]
fn scripts_that_another_server_ran_in_some_paths_are_named() {
    let two = |first: &str, second: &str| {
        format!(
            "root * /srv/app\nhandle /admin/* {{\nphp_fastcgi {first}\nfile_server\n}}\n\
             handle {{\nphp_fastcgi {second}\nfile_server\n}}"
        )
    };
    says_laxer(&two("unix//run/php.sock", "unix//run/other.sock"));
    says_laxer(&two("10.0.0.1:9000", "10.0.0.2:9000"));
    is_strict(&two("10.0.0.1:9000", "10.0.0.1:9000"));
    is_strict(&two("unix//run/php.sock", "unix//run/php.sock"));
    is_strict(&two("unix//run/other.sock", "unix//run/php.sock"));
    says_laxer(&format!(
        "root * /srv/app\n@a not path *.php5\n{}\nphp_fastcgi 10.0.0.1:9000\nfile_server",
        FPM.replace("i ", "i @a ")
    ));
}

#[test]
fn the_user_of_frankenphp_is_named() {
    let imported = of(":80 {\nroot * /srv/app\nphp_server\n}");
    assert!(imported.report.to_string().contains("set `user` of the pool"), "{}", imported.report);
    assert!(imported.report.keeps_access(), "{}", imported.report);
}

#[test]
fn blocks_and_refusals_that_have_no_pattern_within_a_block_are_named() {
    let inside = |lines: &str| {
        format!(
            "root * /srv/app\nhandle /app/* {{\n@s path *.sql *.bak\n@r path_regexp ^/app/.*a$\n\
             {lines}\n}}\nhandle {{\nfile_server\n}}"
        )
    };
    for guarded in ["respond 403", "basic_auth {\nanna $2a$14$abc\n}", "abort", "error 404"] {
        for block in ["handle @s", "route @s", "handle @r"] {
            let block = format!("{block} {{\n{guarded}\n}}");
            says_laxer(&inside(&format!("{block}\nfile_server")));
        }
    }
    for line in ["redir @s /login", "reverse_proxy @s :81", "rewrite @s /none"] {
        says_laxer(&inside(&format!("{line}\nfile_server")));
    }
    // No request reaches it.
    is_strict(&inside("handle /other/* {\nrespond 403\n}\nhandle {\nfile_server\n}"));
    is_strict(&inside("header @s X-A b\nfile_server"));
    says_laxer(&inside("rewrite /app/x/* /x{path}\nhandle /x/* {\nabort\n}\nfile_server"));
}

#[test]
fn scripts_of_another_folder_than_that_of_the_files_are_named() {
    says_laxer(&format!("root * /srv/public\n{FPM} {{\nroot /srv/private\n}}\nfile_server"));
    says_laxer(&format!("{FPM}\nfile_server {{\nroot /srv/public\n}}"));
    is_strict(&format!("root * /srv/public\n{FPM}\nfile_server"));
}

#[test]
fn escaped_paths_are_those_that_clients_ask_for() {
    for path in ["/my%20docs/*", "/my%20docs*", "*/my%20docs/a", "/my%20docs/a"] {
        let imported = of(&format!(":80 {{\nroot * /srv/app\nrespond {path} 403\nfile_server\n}}"));
        let report = &imported.report;
        assert!(is_denied(&imported, "/my docs/a"), "{path}\n{}\n{report}", imported.toml);
        assert!(report.keeps_access(), "{path}\n{report}");
    }
    let named = of(":80 {\nroot * /srv/app\n@a path /d%C3%A9j%c3%a0/*\nrespond @a 403\n\
         respond /Ä/* 403\nfile_server\n}");
    assert!(is_denied(&named, "/déjà/a") && is_denied(&named, "/ä/a"), "{}", named.toml);
    for path in ["/a%2Fb", "/a%25", "/%61dmin/*", "/a%*", "/a%ff"] {
        says_laxer(&format!("root * /srv/app\nrespond {path} 403\nfile_server"));
    }
    let alias = of(":80 {\nroot * /srv/app\nhandle_path /my%20docs/* {\nroot * /srv/docs\n\
         file_server\n}\nhandle {\nfile_server\n}\n}");
    assert!(alias.toml.contains("aliases.\"/my docs/\" = \"/srv/docs\""), "{}", alias.toml);
}

#[test]
fn changes_of_paths_without_a_counterpart_are_named() {
    for line in [
        "uri replace /public/ /private/",
        "uri path_regexp ^/a /b",
        "uri strip_prefix /my%20docs",
        "handle /app/* {\nuri strip_prefix /app\nrespond /secret/* 403\nfile_server\n}",
    ] {
        says_laxer(&format!("root * /srv/app\n{line}\nfile_server"));
    }
    is_strict("root * /srv/app\nuri query a b\nuri strip_prefix /api\nfile_server");
}

#[test]
fn sites_as_guides_give_them_are_no_laxer() {
    let basic = "basicauth /admin/* {\nanna $2a$14$abc\n}\n";
    let root = format!("root * /srv/app\n{FPM}\nfile_server");
    for lines in [
        format!("{root}\nencode zstd gzip"),
        format!(
            "{root}\n@forbidden path /.htaccess /data/* /config/* /db_structure /occ\n\
             respond @forbidden 404\nredir /.well-known/carddav /remote.php/dav 301"
        ),
        format!(
            "{root}\n@disallowed path /xmlrpc.php *.sql /wp-content/uploads/*.php\n\
             rewrite @disallowed /index.php"
        ),
        format!("{root}\n@blocked path *.txt *.md /content/* /.*\nredir @blocked /"),
        format!("{basic}{root}\n@missing not file {{path}}\nrewrite @missing /index.php?{{query}}"),
        "handle /api/* {\nreverse_proxy localhost:3000\n}\nhandle {\nroot * /srv/dist\n\
         try_files {path} /index.html\nfile_server\n}"
            .to_owned(),
        "root public/\nphp_server {\nindex worker.php\ntry_files {path} worker.php\n}".to_owned(),
    ] {
        is_strict(&lines);
    }
}

#[test]
fn the_first_document_root_of_a_block_that_has_a_request_is_its_own() {
    let of_lines = |lines: &str| of(&format!(":80 {{\n{lines}\n}}"));
    // By the order of directives, longer paths are first.
    let shared =
        of_lines(&format!("root * /srv/a\nroot /assets/* /srv/shared\n{FPM}\nfile_server"));
    assert!(shared.report.keeps_access(), "{}", shared.report);
    assert!(shared.toml.contains("\"/assets/\" = \"/srv/shared/assets\""), "{}", shared.toml);
    // In a route, the written order is that of Caddy.
    let roots = ["root * /srv/pub", "root /x/* /srv/priv"];
    let route = of_lines(&format!("route {{\n{}\n{}\nfile_server\n}}", roots[0], roots[1]));
    assert!(route.report.keeps_access(), "{}", route.report);
    assert!(!route.toml.contains("/srv/priv"), "{}", route.toml);
    let route = of_lines(&format!("route {{\n{}\n{}\nfile_server\n}}", roots[1], roots[0]));
    assert!(route.report.keeps_access(), "{}", route.report);
    assert!(route.toml.contains("/srv/priv/x"), "{}", route.toml);
    let twice = of_lines("root * /srv/a\nroot * /srv/b\nfile_server");
    assert!(twice.toml.contains("root = \"/srv/a\""), "{}", twice.toml);
    assert!(twice.report.keeps_access(), "{}", twice.report);
}

#[test]
fn a_block_for_several_paths_stays_before_later_ones() {
    let imported = of(":80 {\nroot * /srv/app\n@closed path /a/x/* /b/x/*\n\
         handle @closed {\nrespond 403\n}\nhandle /a/* {\nfile_server\n}\n\
         handle {\nfile_server\n}\n}");
    assert!(is_denied(&imported, "/a/x/y"), "{}", imported.toml);
    assert!(imported.report.keeps_access(), "{}", imported.report);
    let later = of(":80 {\nroot * /srv/app\n@closed path /a/x/* /b/x/*\n\
         handle /a/* {\nfile_server\n}\nhandle @closed {\nrespond 403\n}\n\
         handle {\nfile_server\n}\n}");
    assert!(!is_denied(&later, "/a/x/y") && is_denied(&later, "/b/x/y"), "{}", later.toml);
}

#[test]
fn more_paths_than_can_be_compared_are_named() {
    let of_count = |count: usize| {
        let line = |at| format!("file_server /f{at}/*\n");
        let lines: String = (0..count).map(line).collect();
        of(&format!(":80 {{\nroot * /srv/app\n{lines}file_server\n}}"))
    };
    let few = of_count(20).report.to_string();
    assert!(!few.contains("there are too many paths"), "{few}");
    let many = of_count(300).report.to_string();
    assert!(many.contains("there are too many paths without a `file_server`"), "{many}");
}

#[test]
fn scripts_run_in_the_pool_that_caddy_chooses() {
    let of_admin = |user: &str, lines: &str| {
        let pool = |name: &str, user: &str| {
            format!("[{name}]\nlisten = /run/{name}.sock\nuser = {user}\npm = ondemand\n")
        };
        let lines = lines.replace("ADMIN", "unix//run/admin.sock");
        let lines = lines.replace("WWW", "unix//run/www.sock");
        let text = format!(":80 {{\nroot * /srv/app\n{lines}\nfile_server\n}}");
        with_pools(&text, &(pool("admin", user) + &pool("www", "www")))
    };
    let sized = "handle /admin/* {\nphp_fastcgi ADMIN\nfile_server\n}\nhandle {\n\
                 request_body {\nmax_size 10MB\n}\nphp_fastcgi WWW\nfile_server\n}";
    let imported = of_admin("admin", sized);
    let site = config(&imported).sites.remove(0);
    let rules = maitred_rules::SiteRules::compile(&site.rules).expect("they are right");
    assert_eq!(rules.path_settings(b"/x.php").pool, Some("www"), "{}", imported.toml);
    assert_eq!(rules.path_settings(b"/admin/x.php").pool, None, "{}", imported.toml);
    assert!(imported.report.keeps_access(), "{}", imported.report);
    for lines in [
        // The front controller is that of all paths, and not of the pool of its path.
        "try_files {path} /index.php\nphp_fastcgi /admin/* ADMIN\nphp_fastcgi WWW",
        // A path is rewritten to a script of all paths.
        "handle /admin/* {\nrewrite /admin/x /index.php\nphp_fastcgi ADMIN\nfile_server\n}\n\
         handle {\nphp_fastcgi WWW\nfile_server\n}",
        // Files that no pool belongs to.
        "handle /files/* {\nfile_server\n}\nhandle /admin/* {\nphp_fastcgi ADMIN\nfile_server\n\
         }\nhandle {\nphp_fastcgi WWW\nfile_server\n}",
    ] {
        let other = of_admin("admin", lines);
        assert!(!other.report.keeps_access(), "{lines}\n{}\n{}", other.toml, other.report);
        let same = of_admin("www", lines);
        assert!(same.report.keeps_access(), "{lines}\n{}\n{}", same.toml, same.report);
    }
}

#[test]
fn a_matcher_of_a_block_is_none_of_those_around_it() {
    let imported = of(":80 {\nroot * /srv/app\n@out not remote_ip 10.1.2.0/24\n\
         handle /status/* {\n@out not remote_ip 10.0.0.0/8\nrespond @out 403\nfile_server\n}\n\
         handle {\nrespond @out 403\nfile_server\n}\n}");
    let denied: Vec<&str> =
        imported.toml.lines().filter(|line| line.contains("except = ")).collect();
    assert_eq!(denied.len(), 2, "{}", imported.toml);
    for line in denied {
        let network = if line.contains("status") { "10.0.0.0/8" } else { "10.1.2.0/24" };
        assert!(line.contains(network), "{line}");
    }
    assert!(imported.report.keeps_access(), "{}", imported.report);
}

#[test]
fn a_server_that_is_not_reached_over_plain_http_is_not_proxied() {
    let of_transport = |transport: &str| {
        of(&format!(
            ":80 {{\nroot * /srv/app\nreverse_proxy /api/* 10.0.0.1:443 {{\n{transport}\n}}\n\
             file_server\n}}"
        ))
    };
    for transport in [
        "transport http {\ntls\n}",
        "transport http {\ntls_insecure_skip_verify\n}",
        "transport http {\ntls_client_auth /a.pem /a.key\n}",
        "transport http {\nproxy_protocol v2\n}",
        "transport http {\nversions h2c\n}",
        "transport http {\nfrobnicate\n}",
        "transport fastcgi {\nsplit .php\n}",
    ] {
        let imported = of_transport(transport);
        assert!(!imported.toml.contains("to = "), "{transport}\n{}", imported.toml);
        assert!(is_denied(&imported, "/api/a"), "{transport}\n{}", imported.toml);
        let report = imported.report.to_string();
        let (_, left) = report.split_once("Left out").expect("it is named");
        assert!(left.contains("is no plain HTTP"), "{transport}\n{left}");
    }
    for transport in ["transport http", "transport http {\nversions 1.1\nread_timeout 5s\n}"] {
        let imported = of_transport(transport);
        assert!(imported.toml.contains("to = \"http://10.0.0.1:443\""), "{}", imported.toml);
        assert!(!is_denied(&imported, "/api/a"), "{transport}\n{}", imported.toml);
    }
}

#[test]
fn hidden_names_without_a_pattern_and_templates_are_named() {
    let files = |hide: &str| format!("root * /srv/app\nfile_server {{\nhide {hide}\n}}");
    says_laxer(&files("[Bb]ackup*"));
    says_laxer(&files("a\\*b"));
    is_strict(&files("backup* *.b?k"));
    says_laxer("root * /srv/app\ntemplates\nfile_server");
}

#[test]
fn headers_that_caddy_sets_for_scripts_are_named() {
    let imported = of(&format!(":80 {{\nroot * /srv/app\n{FPM}\nfile_server\n}}"));
    let report = imported.report.to_string();
    assert!(report.contains("Caddy sets `X-Forwarded-For`"), "{report}");
    assert!(imported.report.keeps_access(), "{report}");
}
