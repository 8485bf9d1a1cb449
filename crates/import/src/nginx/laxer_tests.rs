//! An imported server never shows what nginx does not, or its import says so.

use std::collections::BTreeMap;
use std::fs;

use super::*;

/// Pools of php-fpm: that of the sites, one of another user, and one with the rights of the first.
const POOLS: &str = "[www]\nlisten = /run/php.sock\npm = static\npm.max_children = 3\n\
    php_admin_value[open_basedir] = /srv\n\
    [other]\nlisten = /run/other.sock\npm = static\npm.max_children = 3\nuser = other\n\
    chroot = /srv\nphp_admin_value[open_basedir] = /srv\n\
    [same]\nlisten = /run/same.sock\npm = static\npm.max_children = 3\n\
    php_admin_value[open_basedir] = /srv\n\
    [inner]\nlisten = /run/inner.sock\npm = static\npm.max_children = 3\nchroot = /srv/app\n";

/// Scripts run.
pub(super) const PHP: &str = "location ~ \\.php$ { fastcgi_pass unix:/run/php.sock; }";

/// The names in the document root.
const NAMES: [&str; 6] = ["a", "app", "b", "files", "index.php", "uploads"];

/// Files by their paths.
struct NginxFiles(BTreeMap<&'static str, String>);

impl FileReader for NginxFiles {
    fn read(&self, path: &str) -> Result<String, String> {
        self.0.get(path).cloned().ok_or_else(|| "there is none".to_owned())
    }

    fn glob(&self, pattern: &str) -> Vec<String> {
        match pattern.split_once('*') {
            Some(("/srv/app/", "")) => NAMES.map(|name| format!("/srv/app/{name}")).into(),
            Some(_) => Vec::new(),
            None => vec![pattern.to_owned()],
        }
    }

    fn resolved(&self, path: &str) -> Option<String> {
        let is_folder = path.starts_with("/srv/") && !path.contains('.') && path != "/srv/gone";
        (is_folder || path.ends_with("/maintenance.html")).then(|| path.to_owned())
    }
}

/// The import of servers, with the snippet `/shared.conf`.
pub(super) fn of_http(http: &str, shared: &str) -> Imported {
    let files = [
        ("/nginx.conf", format!("http {{ {http} }}")),
        ("/fpm.conf", POOLS.to_owned()),
        ("/shared.conf", shared.to_owned()),
    ];
    let files = NginxFiles(files.into());
    import(&files, "/nginx.conf", &["/fpm.conf".to_owned()]).expect("a site")
}

/// The import of a server with these lines.
pub(super) fn of_server(lines: &str) -> Imported {
    of_http(&format!("server {{ root /srv/app; {} }}", lines.replace("PHP", PHP)), "")
}

/// The servers report that they are laxer.
pub(super) fn says_laxer(servers: &[&str]) {
    for lines in servers {
        let imported = of_server(lines);
        assert!(!imported.report.keeps_access(), "{lines}\n{}\n{}", imported.toml, imported.report);
    }
}

/// The servers are as strict as before.
pub(super) fn says_nothing(servers: &[&str]) {
    for lines in servers {
        let imported = of_server(lines);
        assert!(imported.report.keeps_access(), "{lines}\n{}\n{}", imported.toml, imported.report);
    }
}

/// Lines with the abbreviations of several servers.
pub(super) fn expanded(lines: &str) -> String {
    lines
        .replace("FALLBACK", "location / { try_files $uri /index.php; }")
        .replace("NODES", "location / { NODE }")
        .replace("NODE", "proxy_pass http://127.0.0.1:3000;")
        .replace("INDEX", r"location ~ ^/index\.php(/|$) { fastcgi_pass unix:/run/php.sock; }")
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
    says_nothing(&[
        "location ~ ^/(?!app/).*\\.(css|js)$ { expires 30d; } PHP",
        "location / { try_files $uri @php; } location ~ ^/(?!app/) { expires 30d; } \
         location @php { fastcgi_pass unix:/run/php.sock; }",
    ]);
}

#[test]
fn the_root_of_the_location_for_all_paths_is_that_of_the_site() {
    let of_all = "location / { root /srv/app/public; try_files $uri =404; }";
    let imported = of_server(of_all);
    assert!(imported.toml.contains("root = \"/srv/app/public\""), "{}", imported.toml);
    let alias = of_server("location / { alias /srv/app/public; }");
    assert!(alias.toml.contains("root = \"/srv/app/public\""), "{}", alias.toml);
    says_nothing(&[of_all, "location / { root /srv/app; } PHP"]);
    says_laxer(&[&format!("{of_all} PHP"), &format!("{of_all} location /up/ {{}}")]);
    for lines in [
        "location ~ ^/a/ { root /srv/other; }",
        "location ~ ^/a/(.*)$ { alias /srv/other/$1; }",
        "location ~ ^/a/ { root /srv/app/$host; }",
        "location / { location ~ ^/a/ { root /srv/other; } }",
        "location ^~ /a/ { root /srv/$host; }",
    ] {
        let toml = of_server(lines).toml;
        assert!(toml.contains("status = 404"), "{lines}\n{toml}");
    }
}

#[test]
fn an_intranet_site_beside_a_public_one_is_named() {
    let inner = "server { listen 10.0.0.5:443 ssl; server_name a.example; root /srv/a; }";
    for other in ["203.0.113.1:443 ssl", "443 ssl", "[::]:443 ssl"] {
        let other = format!("server {{ listen {other}; server_name b.example; root /srv/b; }}");
        let imported = of_http(&format!("{inner} {other}"), "");
        assert!(!imported.report.keeps_access(), "{other}\n{}", imported.report);
    }
    let usual = "server { listen 80; listen [::]:80; server_name a.example; root /srv/a; }\n\
                 server { listen 80; listen 443 ssl; server_name b.example; root /srv/b; }";
    assert!(of_http(usual, "").report.keeps_access());
}

#[test]
fn hosts_that_only_an_expression_names_are_those_of_the_site_for_all() {
    let other = |name: &str, line: &str| {
        format!("\nserver {{ server_name {name}; root /srv/app; {line} {PHP} }}")
    };
    let default = other("a.example", "listen 80 default_server;");
    let closed = "server { listen 80 default_server; return 444; }\n\
                  server { server_name a.example; root /srv/a; }";
    for name in [r"~^staging\d*\.", "admin.*", "b.example ~^b", "$hostname"] {
        for line in ["auth_basic x; auth_basic_user_file /etc/passwd;", "return 444;"] {
            let http = default.clone() + &other(name, line);
            let report = of_http(&http, "").report;
            assert!(!report.keeps_access(), "{http}\n{report}");
        }
        for http in [closed.to_owned() + &other(name, ""), other(name, "")] {
            let report = of_http(&http, "").report;
            assert!(report.keeps_access(), "{http}\n{report}");
        }
    }
}

#[test]
fn a_server_for_unknown_names_at_addresses_of_its_own_is_named() {
    let of = |listen: &str, lines: &str| {
        format!("server {{ listen {listen}; server_name _; {lines} }}\n")
    };
    let app = "root /srv/app; auth_basic x; auth_basic_user_file /etc/passwd;";
    for [first, second] in [
        ["80 default_server", "443 ssl default_server"],
        ["80 default_server", "443 ssl"],
        ["203.0.113.1:80", "203.0.113.2:80"],
    ] {
        let report = |lines: &str| of_http(&(of(first, "root /srv/a;") + &of(second, lines)), "");
        let named = report(app).report;
        assert!(named.leaves_access_out(|place| place.line == 2), "{second}\n{named}");
        let others = ["return 444;", "return 301 https://a.example;", "ssl_reject_handshake on;"];
        for lines in others {
            let named = report(lines).report;
            assert!(named.keeps_access(), "{second} {lines}\n{named}");
        }
    }
    // nginx has no use for it.
    let never = of_http(&(of("80", "root /srv/a;") + &of("80", app)), "").report;
    assert!(never.keeps_access(), "{never}");
}

#[test]
fn a_server_that_is_no_site_hides_nothing_of_one_with_the_same_snippet() {
    let site = "server { listen 443 ssl; server_name a.example; root /srv/a; \
                include /shared.conf; }";
    let closed = "server { listen 443 ssl default_server; include /shared.conf; return 444; }";
    let redirect = "server { listen 80; server_name a.example; include /shared.conf; \
                    return 301 https://$host$request_uri; }";
    for other in [closed, redirect] {
        for line in ["ssl_verify_client on;", "auth_request /check;"] {
            let imported = of_http(&format!("{other}\n{site}"), line);
            assert!(!imported.report.keeps_access(), "{other}\n{}", imported.report);
            let alone = of_http(
                &format!(
                    "{other}\nserver {{ listen 443 ssl; server_name a.example; \
                                          root /srv/a; }}"
                ),
                line,
            );
            assert!(alone.report.keeps_access(), "{other}\n{}", alone.report);
        }
    }
}

#[test]
fn files_that_nginx_does_not_send_are_named() {
    says_laxer(&[
        "location / { try_files /nonexistent @php; } location @php { rewrite ^ /index.php last; }",
        "location / { try_files /index.php =404; } PHP",
        "location / { try_files $uri /index.php; } PHP \
         location /storage/ { try_files /dummy /index.php?$args; }",
        "location / { try_files $uri /index.php; fastcgi_pass unix:/run/php.sock; }",
        "location ~ ^/(?!assets/) { proxy_pass http://127.0.0.1:3000; }",
        "location = /secret.pdf { try_files /a/$host.html =404; }",
        "location = /secret.pdf { try_files /login.html @php; } PHP",
        "location / { try_files /public$uri /public/index.php?$query_string; } PHP",
        "location / { try_files $uri.html $uri/index.html =404; }",
        "location / { try_files $request_filename /index.php; } PHP",
        "try_files /public$uri =404;",
    ]);
    let two = ["a", "b"].map(|name| format!("location = /{name}.pdf {{ include /shared.conf; }}"));
    let servers = format!("server {{ root /srv/app; {} }}", two.concat());
    let written = of_http(&servers, "try_files /login.html =404;").toml;
    for name in ["a", "b"] {
        let rewrite = format!("from = \"/{name}.pdf\", to = \"/login.html\"");
        assert!(written.contains(&rewrite), "{written}");
    }
    says_nothing(&[
        r"location / { proxy_pass http://127.0.0.1:3000; } location ~* \.(css|js)$ { expires 1d; }",
        "location = /health { try_files /health.txt =404; }",
        "location = /health { try_files /a/$host.txt /health.txt =404; }",
        "location / { try_files /cache/$host/index.html $uri $uri/ /index.php?$args; } PHP",
    ]);
}

#[test]
fn what_redirects_clients_or_leads_to_a_script_is_a_gate() {
    says_laxer(&[
        r#"if ($remote_addr !~ "^10\.") { return 302 https://www.example.com/; }"#,
        r#"if ($cookie_auth != "x") { rewrite ^ /login.html last; }"#,
        "if ($request_method = POST) { rewrite ^ /405.html last; }",
        "if ($request_method = POST) { return 302 /; }",
        "if ($http_user_agent ~ curl) { rewrite ^ /denied.html last; }",
        "if ($uri ~ ^/private/) { rewrite ^ /denied.html?from=$uri last; }",
        "location / { if ($uri ~ ^/a/) { proxy_pass http://127.0.0.1:3000; } }",
        "location ~ \\.php$ { if ($uri ~ ^/a/) { fastcgi_pass unix:/run/other.sock; } \
         fastcgi_pass unix:/run/php.sock; }",
        "location / { if ($host ~ ^a) { root /srv/a; } }",
        "location /a/ { if ($uri ~ \\.pdf$) { rewrite ^ /denied.html last; } }",
        "location /a/ { if ($allowed = 0) { return 302 /login; } }",
        "rewrite ^/members/(.*)$ /auth.php?f=$1&u=$remote_user last;",
        "location / { rewrite ^/(?!public/)(.*)$ /public/$1 last; }",
        "if ($host ~ ^(.+)\\.example\\.com$) { set $sub $1; } rewrite ^(.*)$ /$sub$1 break;",
        "if ($uri ~ ^/private/) { rewrite ^(.*)$ /denied$1 last; }",
        "if ($uri ~ ^/private/) { rewrite ^ $login_page last; }",
        "if ($host ~ ^(.+)\\.example$) { rewrite ^ /$1$uri break; }",
        "rewrite ^/private/(.*)$ denied/$1 last;",
        "location /a/ { if ($scheme = http) { return 301 https://$host$request_uri; } }",
        "location /a/ { if ($server_port != 443) { rewrite ^ https://a.example/ redirect; } }",
    ]);
    says_nothing(&[
        "if ($http_x_forwarded_proto = http) { return 301 https://$host$request_uri; }",
        "if ($http_user_agent ~ bot) { return 302 /bots; }",
        "location /a/ { if ($scheme = https) { return 301 http://$host$request_uri; } }",
        "rewrite ^/members/(.*)$ /members.php?f=$1 last;",
        "location ~ ^/static/v1/ { rewrite ^/static/v1/(.*)$ /static/$1 last; }",
        "rewrite ^/favicon\\.ico$ /img/favicon.ico last;",
        "location = /favicon.ico { rewrite ^(.*)$ /img/favicon.ico last; }",
        "if (-f $document_root/maintenance.html) { rewrite ^ /maintenance.html last; }",
        "location / { rewrite ^/static/(?!v2)v1/(.*)$ /static/$1 last; }",
        "if ($http_accept ~ webp) { rewrite ^/img/(.*)\\.png$ /img/$1.webp break; }",
    ]);
}

#[test]
fn headers_that_name_the_user_are_those_of_clients() {
    let proxy = "location /a/ { proxy_pass http://127.0.0.1:3000; proxy_set_header";
    for header in [
        "X-Remote-User $remote_user",
        "X-User \"\"",
        "X-Verify $ssl_client_verify",
        "X-Forwarded-Host $server_name",
        "X-Forwarded-Host a.example",
    ] {
        says_laxer(&[&format!("{proxy} {header}; }}")]);
    }
    for header in [
        "Host $host",
        "X-Forwarded-Proto $scheme",
        "X-NginX-Proxy true",
        "Proxy \"\"",
        "X-Api-Key $http_x_api_key",
        "X-Forwarded-Host $host",
        "X-Real-IP $remote_addr",
    ] {
        says_nothing(&[&format!("{proxy} {header}; }}")]);
    }
    let php = PHP.replace('}', "fastcgi_param");
    for param in ["HTTP_X_REMOTE_USER \"\"", "HTTP_X_DN $ssl_client_s_dn", "HTTP_X_ADMIN 0"] {
        says_laxer(&[&format!("{php} {param}; }}")]);
    }
    for param in ["HTTP_PROXY \"\"", "HTTP_HOST $host", "HTTP_AUTHORIZATION $http_authorization"] {
        says_nothing(&[&format!("{php} {param}; }}")]);
    }
}

#[test]
fn a_path_in_another_encoding_is_named() {
    says_laxer(&["PHP location /gesch\u{fffd}tzt/ { deny all; }", "root /srv/\u{fffd};"]);
    says_nothing(&["# gesch\u{fffd}tzt\nPHP add_header X-Title \"B\u{fffd}cher\";"]);
}

#[test]
fn an_upstream_server_gets_the_host_that_it_gets_from_nginx() {
    let of = |pass: &str, header: &str| {
        of_http(
            &format!(
                "upstream backend {{ server 127.0.0.1:8080; }} \
                 upstream of_app {{ server 127.0.0.1:8081; }} \
                 server {{ listen 80 default_server; return 444; }}\n\
                 server {{ server_name a.example; \
                 location / {{ proxy_pass http://{pass}; {header} }} }}"
            ),
            "",
        )
    };
    for (pass, header, host) in [
        ("backend", "", Some("backend")),
        ("backend", "proxy_set_header Host $proxy_host;", Some("backend")),
        ("of_app", "", Some("of_app")),
        ("127.0.0.1:3000", "", Some("127.0.0.1:3000")),
        ("unix:/run/a.sock", "", Some("localhost")),
        ("backend", "proxy_set_header Host $server_name;", Some("a.example")),
        ("backend", "proxy_set_header Host b.example;", Some("b.example")),
        ("backend", "proxy_set_header Host ${host};", None),
    ] {
        let Imported { toml, report, .. } = of(pass, header);
        let expected = host.map(|host| format!("host = \"{host}\""));
        let is_right = match &expected {
            Some(host) => toml.contains(host),
            None => toml.contains("to = \"http://127.0.0.1:8080\"") && !toml.contains("host = "),
        };
        assert!(is_right, "{pass} {header}\n{toml}");
        assert!(report.keeps_access(), "{pass} {header}\n{report}");
    }
    for value in ["$http_x_forwarded_host", "$host:8080", "app.$host"] {
        let Imported { toml, report, .. } =
            of("backend", &format!("proxy_set_header Host {value};"));
        assert!(toml.contains("status = 404") && !toml.contains("to = \"http://"), "{toml}");
        assert!(report.to_string().contains("is not fixed"), "{report}");
    }
    let report = of("backend", "proxy_set_header X-Real-IP $remote_addr;").report;
    assert!(report.to_string().contains("gets no such header"), "{report}");
    let report = of("backend", "proxy_set_header X-Forwarded-Host $server_name;").report;
    assert!(report.keeps_access(), "{report}");
}

#[test]
fn internal_locations_are_so_with_those_in_them_and_their_scripts() {
    let inner = of_server("location /p/ { internal; location /p/img/ { expires 1d; } }");
    assert!(inner.toml.contains("path = \"/p/img/*\", status = 404"), "{}", inner.toml);
    let front = "location / { try_files $uri /index.php; }";
    let php = |text: &str| {
        format!("{front} location {text} {{ internal; fastcgi_pass unix:/run/php.sock; }}")
    };
    says_laxer(&[&php("~ ^/inner/.*\\.php$"), &php("~ ^/(index|admin)\\.php$")]);
    says_nothing(&[&php("~ ^/index\\.php(/|$)"), &php("= /index.php")]);
}

#[test]
fn what_confines_scripts_is_that_of_nginx() {
    let php = |value: &str| {
        PHP.replace('}', &format!("fastcgi_param PHP_ADMIN_VALUE \"open_basedir={value}\"; }}"))
    };
    let server = |name: &str, lines: &str| {
        format!("server {{ server_name {name}; root /srv/{name}; {lines} }}")
    };
    let imported = of_http(&server("blog", &php("/srv/blog")), "");
    let toml = &imported.toml;
    assert!(toml.contains("php_admin_value.open_basedir = \"/srv/blog\""), "{toml}");
    assert!(imported.report.keeps_access(), "{}", imported.report);
    let two = server("a", &php("/srv/a")) + &server("b", &php("/srv/b"));
    let upstream = server("a", &php("/srv/a").replace("unix:/run/php.sock", "127.0.0.1:9000"));
    let shared = server("a", &php("/srv/a")) + &server("b", PHP);
    for http in [two, upstream, shared] {
        let imported = of_http(&http, "");
        assert!(!imported.report.keeps_access(), "{http}\n{}", imported.report);
    }
}

#[test]
fn folders_that_nginx_does_not_list_are_named() {
    says_laxer(&[
        "location /files/ { autoindex on; location ~ /private/ { autoindex off; } }",
        "location /files/ { autoindex on; location ~ ^/files/private { autoindex off; } }",
        "location /files/ { autoindex on; } location ~ /private/ { expires 1d; }",
        "location ~ ^/private/ {} location ~ ^/ { autoindex on; }",
        "location ^~ /a/b/ { expires 1d; } location ~ /c/ { autoindex on; }",
        "autoindex on; location / { try_files $uri /index.php; } PHP",
        "autoindex on; try_files $uri /index.php; PHP",
        "autoindex on; location /a/ { try_files $uri =404; }",
        "autoindex on; location ~ ^/(?!a)/ { autoindex off; }",
        "location ~ /c/ { autoindex on; } location /a/ { location ~ /b/ { expires 1d; } }",
    ]);
    says_nothing(&[
        "location /files/ { autoindex on; } location ~ \\.css$ { expires 1d; } PHP",
        "location /files/ { autoindex on; } location /files/private/ { expires 1d; }",
        "location ^~ /files/ { autoindex on; } location ~ /private/ { expires 1d; }",
        "location /files/ { autoindex on; } location ~ ^/private/ { expires 1d; }",
        "location ^~ /a/b/ { expires 1d; } location ~ ^/c/.*/$ { autoindex on; }",
        "location /files/ { autoindex on; } location ~ /\\.ht { deny all; }",
        "location /files/ { autoindex on; location ~ \\.zip { expires 1d; } }",
        "location /files/ { autoindex on; } location /a/ { location ~ ^/a/b/ { expires 1d; } }",
        "autoindex on; location / { try_files $uri $uri/ /index.php; } PHP",
        "autoindex on; location = /a { try_files $uri /b; } location ~ \\.css$ { expires 1d; }",
    ]);
    for lines in [
        "location /files/ { autoindex on; try_files $uri /index.php; } PHP",
        "autoindex on; if (!-f $request_filename) { rewrite ^ /index.php last; } PHP",
    ] {
        let Imported { toml, report, .. } = of_server(lines);
        assert!(!toml.contains("autoindex = ") && report.keeps_access(), "{toml}\n{report}");
    }
}

/// Servers with two pools of php-fpm, of which nginx chooses one by the script.
const TWO_POOLS: [&str; 6] = [
    "FALLBACK location = /index.php { fastcgi_pass OTHER; } PHP",
    r"location ~ ^/admin/.*\.php$ { fastcgi_pass OTHER; } PHP",
    r"location /admin/ { location ~ \.php$ { fastcgi_pass OTHER; } } PHP",
    r"location ~ ^/(?!open/).*\.php$ { fastcgi_pass OTHER; } PHP",
    "location / { try_files $uri @app; } location ~ ^/old/.*\\.php$ { fastcgi_pass OTHER; } \
     location @app { fastcgi_param SCRIPT_FILENAME $document_root/index.php; \
     fastcgi_pass unix:/run/php.sock; }",
    "location ~ ^/admin/.*\\.php$ { fastcgi_pass OTHER; } \
     location ~ ^/(index|open)\\.php$ { fastcgi_pass unix:/run/php.sock; }",
];

#[test]
fn a_script_that_may_run_with_the_rights_of_another_pool_is_named() {
    for lines in TWO_POOLS {
        for other in ["unix:/run/other.sock", "127.0.0.1:9001"] {
            says_laxer(&[&expanded(lines).replace("OTHER", other)]);
        }
        says_nothing(&[&expanded(lines).replace("OTHER", "unix:/run/same.sock")]);
    }
}

#[test]
fn a_second_fastcgi_server_is_named_and_the_same_one_is_not() {
    let php = |pass: &str| {
        format!(
            "location ~ ^/admin/.*\\.php$ {{ fastcgi_pass {pass}; }} \
             location ~ \\.php$ {{ fastcgi_pass 127.0.0.1:9000; }}"
        )
    };
    says_laxer(&[&php("127.0.0.1:9001"), &php("unix:/run/other.sock")]);
    says_nothing(&[&php("127.0.0.1:9000")]);
}

#[test]
fn what_confines_the_scripts_of_a_location_is_an_entry_of_its_pool() {
    let with = |setting: &str| {
        let admin = "location ~ ^/admin/.*\\.php$ { fastcgi_pass unix:/run/same.sock; \
                     fastcgi_param PHP_ADMIN_VALUE";
        of_http(&format!("server {{ root /srv/app; {admin} \"{setting}\"; }} {PHP} }}"), "")
    };
    for (name, value) in [("open_basedir", "/srv/a"), ("auto_prepend_file", "/srv/login.php")] {
        let Imported { toml, report, .. } = with(&format!("{name}={value}"));
        let of_pool = toml.split("[pools.same]").nth(1).unwrap_or_default();
        let entry = format!("php_admin_value.{name} = \"{value}\"");
        assert!(of_pool.contains(&entry) && toml.matches(&entry).count() == 1, "{toml}");
        assert!(!report.keeps_access(), "{name}\n{report}");
    }
    assert!(with("memory_limit=1G").report.keeps_access());
}

#[test]
fn what_confines_the_scripts_of_one_location_of_a_pool_alone_is_named() {
    let php = |path: &str, setting: &str| {
        let param = format!("fastcgi_param PHP_VALUE \"{setting}\"; }}");
        PHP.replace('}', &param).replace(r"\.php$", path)
    };
    let server = |first: &str, second: &str| {
        let lines = php(r"^/open/.*\.php$", first) + &php(r"\.php$", second);
        of_http(&format!("server {{ root /srv/app; {lines} }}"), "").report
    };
    let login = "auto_prepend_file=/srv/login.php";
    assert!(!server("auto_prepend_file=none", "memory_limit=1G").keeps_access());
    assert!(!server("auto_prepend_file=none", login).keeps_access());
    assert!(server(&format!("{login};memory_limit=1G"), login).keeps_access());
    assert!(server("memory_limit=2G", "memory_limit=1G").keeps_access());
}

#[test]
fn a_site_whose_scripts_are_in_another_folder_is_named() {
    let php = |pass: &str, script: &str| {
        let end = format!("fastcgi_param SCRIPT_FILENAME {script}; }}");
        PHP.replace("/run/php.sock", pass).replace('}', &end)
    };
    says_laxer(&[
        &php("/run/php.sock", "/srv/private$fastcgi_script_name"),
        &php("/run/php.sock", "$app$fastcgi_script_name"),
        &php("/run/php.sock", "$document_root/bin$fastcgi_script_name"),
        &php("/run/php.sock", "/app$fastcgi_script_name"),
        &php("/run/other.sock", "/srv/app$fastcgi_script_name"),
        &(expanded("FALLBACK") + &php("/run/php.sock", "/srv/private/index.php")),
    ]);
    says_nothing(&[
        &php("/run/php.sock", "/srv/app$fastcgi_script_name"),
        &php("/run/php.sock", "$document_root/${fastcgi_script_name}"),
        &php("/run/php.sock", "$request_filename"),
        &php("/run/other.sock", "/app$fastcgi_script_name"),
        &php("/run/inner.sock", "$fastcgi_script_name"),
        &(php("/run/php.sock", "/srv/shop$fastcgi_script_name").replacen(
            '{',
            "{ root /srv/shop;",
            1,
        )),
    ]);
}
