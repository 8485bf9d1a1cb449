//! Paths that the imported server serves to more clients than nginx does are found by comparing.

use super::laxer_tests::{PHP, expanded, of_http, of_server, says_laxer, says_nothing};
use crate::Imported;
use crate::written_site::{Behind, WrittenSites};

/// Servers, and a path of each that nginx does not serve to any client.
const LAXER: [(&str, &str); 30] = [
    (r"FALLBACK INDEX location ~* \.(php|sql|bak|log)$ { return 404; }", "/a.sql"),
    (r"FALLBACK INDEX location ~ ^/(config|data|.*\.php) { deny all; }", "/data/x"),
    (r"PHP location ~ \.(php|inc|sql)$ { deny all; }", "/a.sql"),
    (
        "if ($request_filename !~ (js|css|images|robots.txt|index.php.*)) \
         { rewrite ^/(.*)$ /index.php/$1 last; } PHP",
        "/application/logs/a.log",
    ),
    (
        "if ($request_uri !~ \"^/admin\") { return 301 https://b.example$request_uri; } PHP",
        "/a.txt",
    ),
    ("rewrite \"^/(?!admin)(.*)$\" https://www.example.com/$1 permanent; PHP", "/a.txt"),
    ("location /private/ { rewrite ^ https://$portal/login permanent; } PHP", "/private/a.txt"),
    (
        "FALLBACK location ~ \\.php$ { fastcgi_param SCRIPT_FILENAME $document_root/index.php; \
         fastcgi_pass unix:/run/php.sock; }",
        "/uploads/a.php",
    ),
    (
        "location / { try_files $uri @q; } location @q { rewrite ^/(.*)$ /index.php?q=$1 last; } \
         location ~ \\.php$ { fastcgi_param SCRIPT_FILENAME $document_root/index.php; \
         fastcgi_pass unix:/run/php.sock; }",
        "/uploads/a.php",
    ),
    (
        "location / { try_files $uri @php; } location @php { fastcgi_param SCRIPT_FILENAME \
         $app/index.php; fastcgi_pass unix:/run/php.sock; }",
        "/a.php",
    ),
    (r"location ~ ^/(app|admin)/ { PHP } location ~ \.php$ { return 404; }", "/a.php"),
    (
        "location ^~ /files/ { location = /files/get.php { fastcgi_pass unix:/run/php.sock; } } \
         PHP",
        "/files/a.php",
    ),
    ("location /app/ { location ^~ /app/up/ { expires 1d; } PHP }", "/app/up/a.php"),
    ("location ^~/uploads/ { expires 30d; } PHP", "/uploads/a.php"),
    ("if ($uri ~ ^/private/) { rewrite ^ /denied.html last; } PHP", "/private/a.txt"),
    ("if ($uri !~ ^/public/) { rewrite ^ /denied.html last; } PHP", "/private/a.txt"),
    ("rewrite ^/(?!public/|denied).* /denied.html last; PHP", "/private/a.txt"),
    ("location / { rewrite ^/(?!public/)(.*)$ /public/$1 last; }", "/composer.json"),
    ("if ($uri ~ ^/private/) { rewrite ^(.*)$ /denied$1 last; }", "/private/a.txt"),
    ("location = /secret.pdf { rewrite ^(.*)$ /login.html last; } PHP", "/secret.pdf"),
    (r"location ~ ^/(a|b)/ { rewrite ^/a/ /denied.html break; } PHP", "/a/a.txt"),
    (r"location / { NODE } location ~ /\.(?!well-known) { deny all; }", "/.zz9"),
    (r"location /a/ { NODE } location ~ ^/a/(?!open)x { return 404; }", "/a/x"),
    ("location ~ /c/ { expires 1d; } location ~ ^/b/.*/$ { NODE }", "/b/c/"),
    ("NODES location ~ ^/b/.*/$ { try_files $uri $uri/ =404; }", "/b/zz9/"),
    (
        "location ~ ^/a/(?!b/f) {} location /a/ { rewrite ^/(?!b) /none.html redirect; }",
        "/a/b/f.txt",
    ),
    (r"location ~ /c/ { NODE } location ^~ /a/b/ { expires 1d; }", "/a/b/c/zz9"),
    (r"location /a/ { NODE } location ~ ^/a/b/ { try_files $uri =404; }", "/a/b/x"),
    (r"NODES location ~ ^/(?!open) { auth_basic x; auth_basic_user_file /f; NODE }", "/a"),
    (
        r"location /blog/ { location ~ \.(sql|bak)$|^/blog/data/ { deny all; } } PHP",
        "/blog/data/a.txt",
    ),
];

/// Lines of servers that change nothing about who may see what.
const BESIDE: [&str; 4] = [
    "",
    "if (!-e $request_filename) { rewrite ^/(.*)$ /index.php?q=$1 last; }",
    "server_name a.example www.a.example; \
     if ($host = www.a.example) { return 301 https://a.example$request_uri; }",
    "if (-f $document_root/system/maintenance.html) \
     { rewrite ^(.*)$ /system/maintenance.html break; }",
];

#[test]
fn scripts_that_run_beside_rewrites_of_missing_files_are_named() {
    let missing = "location / { try_files $uri @q; } \
                   location @q { rewrite ^/(.*)$ /index.php?q=$1 last; }";
    let front = PHP.replace('}', "fastcgi_param SCRIPT_FILENAME $document_root/index.php; }");
    let written = of_server(&format!("{missing} {front}")).toml;
    assert!(written.contains("scripts are not rewritten"), "{written}");
    let inner = "location ^~ /files/ { \
                 location = /files/get.php { fastcgi_pass unix:/run/php.sock; } }";
    says_laxer(&[&format!("{missing} {front}"), &format!("{missing} {inner} PHP")]);
    says_nothing(&[&format!("{missing} PHP")]);
}

#[test]
fn a_path_that_is_served_to_more_clients_is_named_whatever_causes_it() {
    for (beside, (lines, path)) in BESIDE.iter().flat_map(|one| LAXER.map(|laxer| (one, laxer))) {
        let Imported { toml, report, .. } = of_server(&format!("{beside} {}", expanded(lines)));
        let written = WrittenSites::of_toml(&toml, &written_from(&toml));
        let served = written.from("/nginx.conf:1").map(|site| site.serve(path));
        let is_refused = served.is_some_and(|served| served.behind == Behind::Nothing);
        assert!(is_refused || !report.keeps_access(), "{beside} {lines}: {path}\n{toml}\n{report}");
    }
    for beside in BESIDE {
        let report = of_server(&format!("{beside} {}", expanded("FALLBACK INDEX"))).report;
        assert!(report.keeps_access(), "{beside}\n{report}");
    }
}

/// The places of all sites: they have one line.
fn written_from(toml: &str) -> Vec<&'static str> {
    vec!["/nginx.conf:1"; toml.matches("[[sites]]").count()]
}

#[test]
fn files_and_scripts_of_a_folder_are_those_that_nginx_has_there() {
    let app = |inner: &str| format!("location /app/ {{ root /srv/sub; {inner} }} PHP");
    let of = |path: &str| PHP.replace(r"\.php$", path);
    let some = of_server(&app(&of(r"^/app/(index|get)\.php(/|$)")));
    let written = WrittenSites::of_toml(&some.toml, &written_from(&some.toml));
    let site = written.from("/nginx.conf:1").expect("a site");
    for (path, behind) in [
        ("/app/index.php", Behind::Script),
        ("/app/get.php", Behind::Script),
        ("/app/uploads/evil.php", Behind::Nothing),
        ("/app/indexz.php", Behind::Nothing),
        ("/evil.php", Behind::Script),
    ] {
        assert_eq!(site.serve(path).behind, behind, "{path}\n{}", some.toml);
    }
    assert!(some.report.keeps_access(), "{}", some.report);
    let docs = "location /docs/ { alias /srv/docs/; }";
    says_laxer(&[
        &app(&of(r"^/app/[a-z]+\.php$")),
        &app(r"location ~ ^/app/(?!uploads/).*\.php$ { fastcgi_pass unix:/run/php.sock; }"),
        &format!(r"{docs} location ~* \.(pdf|zip)$ {{ expires 1d; }} PHP"),
        &app(&PHP.replace('}', "fastcgi_param SCRIPT_FILENAME /srv/app$fastcgi_script_name; }")),
        "location /app { root /srv/sub; location ~ x { root /srv/app; } }",
        "location /docs/ { alias /srv/docs; } PHP",
    ]);
    says_nothing(&[
        &app(PHP),
        &app(&PHP.replace('}', "fastcgi_param SCRIPT_FILENAME $request_filename; }")),
        &app(&of(r"^/app/.*\.php$")),
        &app("location = /app/get.php { fastcgi_pass unix:/run/php.sock; }"),
        &format!(r"{docs} location ~* ^/img/.*\.(gif|png)$ {{ expires 1d; }} PHP"),
        r"location ^~ /docs/ { alias /srv/docs/; } location ~ \.zip$ {} PHP",
        &format!("location /docs/ {{ alias /srv/docs/; PHP }} {}", of(r"/old\.php$")),
        "location /docs { alias /srv/docs; } PHP",
        "location /docs { alias /srv/docs/; } PHP",
        "location /docs { root /srv; } PHP",
    ]);
}

#[test]
fn the_report_says_of_how_many_paths_those_compared_are_part() {
    let report = |locations: usize| {
        let of = |at: usize| format!("location /a{at}/ {{ location = /a{at}/b{at} {{}} }} ");
        let report = of_server(&(0..locations).map(of).collect::<String>()).report;
        assert!(report.keeps_access(), "{report}");
        report.to_string()
    };
    let (few, many) = (report(1), report(30));
    assert!(few.contains(" paths that the old server's rules make"), "{few}");
    assert!(many.contains(" paths of about "), "{many}");
}

#[test]
fn hidden_paths_that_nginx_denies_reach_no_other_server() {
    let deny = r"location ~ /\.(?!well-known) { deny all; }";
    let Imported { toml, report, .. } = of_server(&expanded(&format!("NODES {deny} PHP")));
    let written = WrittenSites::of_toml(&toml, &written_from(&toml));
    let site = written.from("/nginx.conf:1").expect("a site");
    let behind = |path: &str| site.serve(path).behind;
    for path in ["/.git/config", "/a/.env", "/.well-knownx"] {
        assert_eq!(behind(path), Behind::Nothing, "{path}\n{toml}");
    }
    for path in ["/.well-known/acme-challenge/x", "/a/.well-known", "/a.b"] {
        assert_eq!(behind(path), Behind::Server, "{path}\n{toml}");
    }
    assert!(report.keeps_access(), "{report}");
    let files_alone = of_server(&format!("{deny} PHP")).toml;
    assert!(!files_alone.contains("deny = "), "{files_alone}");
}

#[test]
fn the_users_of_an_inner_location_are_those_of_its_paths() {
    let imported = of_server(
        "auth_basic x; auth_basic_user_file /etc/group; PHP \
         location /admin/ { auth_basic_user_file /etc/passwd; PHP }",
    );
    let written = WrittenSites::of_toml(&imported.toml, &written_from(&imported.toml));
    let site = written.from("/nginx.conf:1").expect("a site");
    for (path, users) in
        [("/admin/a.php", "/etc/passwd"), ("/admin/a.txt", "/etc/passwd"), ("/a.php", "/etc/group")]
    {
        let served = site.serve(path);
        assert_eq!(served.users.as_deref(), Some(std::path::Path::new(users)), "{path}");
    }
    assert!(imported.report.keeps_access(), "{}", imported.report);
}

#[test]
fn sites_are_compared_whatever_files_are_on_this_machine() {
    let users = "location /z/ { auth_basic x; auth_basic_user_file /nonexistent/users; PHP }";
    let laxer = "location ~ /c/ { expires 1d; } location ~ ^/b/.*/$ { NODE }";
    let report = of_server(&expanded(&format!("{users} {laxer} PHP"))).report.to_string();
    assert!(report.contains("at paths such as"), "{report}");
    says_nothing(&[&format!("{users} PHP")]);
}

#[test]
fn a_result_that_cannot_be_compared_is_named() {
    let name = "x".repeat(300);
    let http = format!("server {{ server_name {name}.example; root /srv/app; }}");
    let report = of_http(&http, "").report.to_string();
    assert!(report.contains("the result could not be compared"), "{report}");
}

#[test]
fn a_file_that_nginx_passes_to_php_is_not_sent() {
    let php = |path: &str| PHP.replace(r"\.php$", path);
    says_laxer(&[
        &php(r"\.(php|html?)$"),
        &php(r"\.(html|php)(/|$)"),
        &php("^/phpmyadmin/"),
        &php("^/(php-app|x)/"),
        &format!("PHP {}", php("^/(status|ping)")),
        &format!("PHP {}", php("^/(status|ping)/$")),
        &format!("PHP {}", php(r"^/(contact\.html|ping)$")),
        &format!("PHP {}", php("/contact.html").replace('~', "=")),
    ]);
    says_nothing(&[
        &php(r"\.php(/|$)"),
        &php(r"[^/]\.php(/|$)"),
        &php(r"\.(php|phar)(/|$)"),
        &php(r"\.ph(p[3457]?|t|tml)$"),
        &php(r"\.php$|^/update.php"),
        &format!("PHP {}", php("/fpm-status").replace('~', "=")),
        "PHP location ~ ^/(status|ping)$ { allow 127.0.0.1; deny all; \
         fastcgi_pass unix:/run/php.sock; }",
    ]);
}

#[test]
fn a_refusal_has_the_paths_below_a_script_that_runs_by_its_exact_name() {
    let below = |path: &str| {
        let toml = of_server(&format!(
            "location / {{ return 403; }} \
             location {path} {{ fastcgi_pass unix:/run/php.sock; }}"
        ))
        .toml;
        let written = WrittenSites::of_toml(&toml, &written_from(&toml));
        let site = written.from("/nginx.conf:1").expect("a site");
        assert_eq!(site.serve("/index.php").behind, Behind::Script, "{toml}");
        site.serve("/index.php/admin").behind
    };
    assert_eq!(below("= /index.php"), Behind::Nothing);
    assert_ne!(below(r"~ ^/index\.php(/|$)"), Behind::Nothing);
}

#[test]
fn scripts_run_by_a_named_location_that_try_files_leads_all_of_them_to() {
    let of_lines = |lines: &str, file: &str, more: &str, own: &str| {
        of_server(&format!(
            "{lines} location ~ \\.php$ {{ {more} try_files {file} @php; }} \
             location @php {{ {own} try_files $uri =404; \
             fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; \
             fastcgi_pass unix:/run/php.sock; }}"
        ))
    };
    let of = |file: &str, more: &str| of_lines("", file, more, "");
    let unused = "/b371a339cb6c1a4d0a8b6e0a3ea5ee2c.htm";
    let imported = of(unused, "");
    assert!(imported.report.keeps_access(), "{}\n{}", imported.toml, imported.report);
    let written = WrittenSites::of_toml(&imported.toml, &written_from(&imported.toml));
    let site = written.from("/nginx.conf:1").expect("a site");
    assert_eq!(site.serve("/a.php").behind, Behind::Script, "{}", imported.toml);
    // That file is there or may be later, or is one of the paths; or others are let in.
    for (file, more) in
        [("/maintenance.html", ""), ("/closed.html", ""), ("/c$uri.htm", ""), (unused, "deny all;")]
    {
        let imported = of(file, more);
        let report = imported.report.to_string();
        assert!(!report.contains("none of its files"), "{file} {more}\n{report}");
    }
    // Its folder is not there, or the rules of both locations apply.
    for (lines, own) in [
        ("root /srv/$host;", ""),
        ("root /srv/gone;", ""),
        ("auth_basic x; auth_basic_user_file /u;", "auth_basic off;"),
        ("allow 10.0.0.0/8; deny all;", "allow all;"),
        ("", "internal;"),
    ] {
        let imported = of_lines(lines, unused, "", own);
        let Imported { toml, report, .. } = &imported;
        assert!(!report.keeps_access(), "{lines} {own}\n{toml}\n{report}");
    }
}
