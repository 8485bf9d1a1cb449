//! `maitred import`: what the report says, its exit code, and what the result has, for
//! configurations that no server runs.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use maitred_tests::imported::import;
use maitred_tests::outside::text;
use maitred_tests::server::public_folder;

/// The exit code and the report of a configuration that no server needs to run.
fn report_of(http: &str) -> (Option<i32>, String, String) {
    let folder = public_folder();
    let [nginx, fpm] = ["nginx.conf", "fpm.conf"].map(|name| folder.path().join(name));
    fs::write(&nginx, format!("events {{}}\nhttp {{\n{http}\n}}\n")).expect("it can be written");
    fs::write(&fpm, "[www]\nlisten = /run/www.sock\npm = static\npm.max_children = 3\n")
        .expect("it can be written");
    let output = import(&nginx, &fpm);
    let report = text(&output.stderr).replace(&format!("{}/", folder.path().display()), "");
    (output.status.code(), report, text(&output.stdout))
}

#[test]
fn what_decides_about_access_and_is_not_imported_makes_exit_code_3_with_its_place() {
    let cases = [
        ("frobnicate on;", "nginx.conf:5: frobnicate on"),
        ("location /a { auth_request /check; }", "nginx.conf:5: auth_request /check"),
        ("if ($http_user_agent ~ bot) { return 403; }", "nginx.conf:5: if"),
        ("location ~ ^/(?!a) { deny all; }", "look-ahead"),
        ("location /a { limit_except GET { deny all; } }", "nginx.conf:5: limit_except GET"),
        ("ssl_verify_client on;", "nginx.conf:5: ssl_verify_client on"),
        ("if ($request_uri ~ union) { return 403; }", "nginx.conf:5: if"),
        ("location ~ ^/a[x&&y] { deny all; }", "another meaning"),
        ("autoindex on; location /a/ { autoindex off; }", "nginx.conf:5: autoindex off"),
        ("location /api { fastcgi_pass unix:/run/www.sock; }", "nginx.conf:5: location /api"),
        ("location / { rewrite ^ /index.php last; }", "nginx.conf:5: rewrite"),
        ("include missing.conf;", "nginx.conf:5: include missing.conf"),
    ];
    for (line, expected) in cases {
        let http = format!("server {{ root /srv;\nserver_name a.example;\n{line}\n}}");
        let (code, report, _) = report_of(&http);
        assert_eq!(code, Some(3), "{line}\n{report}");
        let (_, left_out) = report.split_once("decides who may see what (").expect("a section");
        assert!(left_out.contains(expected), "{line}\n{report}");
    }
    let (code, report, _) = report_of("server { root /srv;\nsub_filter a b;\n}");
    assert_eq!(code, Some(0), "{report}");
    assert!(report.contains("nginx.conf:4: sub_filter a b"), "{report}");
}

#[test]
fn paths_that_lead_elsewhere_in_nginx_do_not_lead_to_files() {
    let cases = [
        ("location /a/ { proxy_pass https://b.example; }", "path = \"/a/*\", status = 404"),
        ("location /a/ { return 200 yes; }", "path = \"/a/*\", status = 404"),
        ("return 301 https://$arg_host/;", "path = \"/*\", status = 404"),
    ];
    for (line, expected) in cases {
        let (code, report, toml) = report_of(&format!("server {{ root /srv;\n{line}\n}}"));
        assert_eq!(code, Some(0), "{line}\n{report}");
        assert!(toml.contains(expected), "{line}\n{toml}");
        assert!(report.contains("nginx.conf:4: "), "{line}\n{report}");
    }
}

#[test]
fn a_site_for_this_machine_alone_stays_so() {
    let http = "server { listen 80; server_name a.example; root /srv/a; }\n\
                server { listen 127.0.0.1:80; server_name b.example; root /srv/b; }\n\
                server { listen 8443; server_name c.example; root /srv/c; }";
    let (code, report, toml) = report_of(http);
    let (_, site) = toml.split_once("\"b.example\"").expect("the site is there");
    assert!(site.contains("allow = [\"127.0.0.0/8\", \"::1\"]"), "{toml}");
    assert_eq!(code, Some(3), "{report}");
    assert!(report.contains("this one was at *:8443 only"), "{report}");
}

#[test]
fn a_server_that_redirects_to_https_becomes_the_redirect_of_tls() {
    let tls = "listen 443 ssl; ssl_certificate /c.pem; ssl_certificate_key /c.key; root /srv/a;";
    let plain = [
        "return 301 https://$host$request_uri;",
        "location / { return 301 https://$server_name$request_uri; }",
        "if ($host = a.example) { return 301 https://$host$request_uri; } return 404;",
        "rewrite ^(.*)$ https://a.example$1 permanent;",
    ];
    for lines in plain {
        let http = format!(
            "server {{ listen 80; server_name a.example; {lines} }}\n\
             server {{ server_name a.example; {tls} }}"
        );
        let (code, report, toml) = report_of(&http);
        assert_eq!(code, Some(0), "{lines}\n{report}");
        assert!(toml.contains("redirect = 301"), "{lines}\n{toml}");
        assert_eq!(toml.matches("[[sites]]").count(), 1, "{lines}\n{toml}");
    }
}

#[test]
fn what_a_site_has_to_know_about_its_front_controller_and_its_pool_is_reported() {
    let php = "location ~ \\.php$ { fastcgi_pass unix:/run/www.sock; PARAM }";
    let server = |name: &str, lines: &str| {
        format!("server {{ server_name {name}; root /srv/{name};\n{lines}\n}}\n")
    };
    let param = php.replace("PARAM", "fastcgi_param PHP_VALUE \"memory_limit=9M\";");
    let one = server(
        "a.example",
        &format!(
            "location / {{ try_files $uri /index.php; }}\n\
             location ~ \\.css$ {{ expires 7d; }}\n{param}"
        ),
    );
    let (code, report, _) = report_of(&(one + &server("b.example", &php.replace("PARAM", ""))));
    assert_eq!(code, Some(0), "{report}");
    for part in [
        "nginx.conf:5: location ~ \\.css$: the front controller runs where a file is missing",
        "nginx.conf:5: expires 7d: responses of the front controller",
        "all 2 sites of the pool www get it",
    ] {
        assert!(report.contains(part), "{part}\n{report}");
    }
}

#[test]
fn alternatives_without_look_around_are_kept_and_the_others_named() {
    let http = "server { root /srv;\nlocation ~ /(config|a(?!b)|store) { deny all; }\n\
                location ~ \\.sql$|/(\\.(?!well-known).*) { deny all; return 404; }\n\
                location ~ /(\\.(?!well-known)|composer\\.json|vendor/) { deny all; }\n}";
    let (code, report, toml) = report_of(http);
    assert_eq!(code, Some(3), "{report}");
    assert!(report.contains("look-around of `a(?!b)` has no counterpart"), "{report}");
    assert!(toml.contains("~/(?:config|store)"), "{toml}");
    assert!(toml.contains(r"~(?:\.sql$)', status = 404"), "{toml}");
    assert!(toml.contains(r"~/(?:composer\.json|vendor/)"), "{toml}");
    assert!(!report.contains("well-known"), "{report}");
}

#[test]
fn locations_that_include_one_file_all_get_what_it_says() {
    let folder = public_folder();
    let snippet = folder.path().join("login.conf");
    fs::write(&snippet, "rewrite ^ https://login.example/ redirect;\n").expect("it can be written");
    let location = |path: &str| format!("location {path} {{ include {}; }}\n", snippet.display());
    let http = format!("server {{ root /srv;\n{}{}}}", location("/a/"), location("/b/"));
    let (code, report, toml) = report_of(&http);
    assert_eq!(code, Some(0), "{report}");
    for path in ["/a/*", "/b/*"] {
        let from = format!("from = \"{path}\", to = \"https://login.example/");
        assert!(toml.contains(&from), "{path}\n{toml}");
    }
}

#[test]
fn servers_that_include_one_file_both_get_what_it_says() {
    let folder = public_folder();
    let snippet = folder.path().join("php.conf");
    let lines = "rewrite ^/old$ /new permanent;\nlocation = /secret { deny all; }\n\
                 location ~ \\.php$ { fastcgi_pass unix:/run/www.sock; }\n";
    fs::write(&snippet, lines).expect("it can be written");
    let server = |name: &str| {
        let snippet = snippet.display();
        format!("server {{ server_name {name}; root /srv/{name};\ninclude {snippet};\n}}\n")
    };
    let (code, report, toml) = report_of(&(server("a.example") + &server("b.example")));
    assert_eq!(code, Some(0), "{report}");
    for line in ["pool = \"www\"", "\"/secret\",", "from = \"~^/old$\""] {
        assert_eq!(toml.matches(line).count(), 2, "{line}\n{toml}");
    }
}

#[test]
fn a_hidden_file_is_no_site_and_no_pool_of_a_wildcard() {
    let folder = public_folder();
    let path = |name: &str| folder.path().join(name);
    let write = |name: &str, text: &str| {
        let text = text.replace("HERE", &folder.path().display().to_string());
        fs::write(path(name), text).expect("it can be written");
    };
    for name in ["sites", "pools"] {
        fs::create_dir(path(name)).expect("it can be created");
    }
    write("nginx.conf", "events {}\nhttp {\ninclude HERE/sites/[^a]*;\n}\n");
    let site = "server { root /srv; server_name NAME.example;\n\
                location ~ \\.php$ { fastcgi_pass unix:/run/www.sock; } }\n";
    write("sites/.blog.conf", &site.replace("NAME", "old"));
    write("sites/blog.conf", &site.replace("NAME", "blog"));
    write("fpm.conf", "include = HERE/pools/*.conf\n");
    let pool = "[NAME]\nlisten = /run/www.sock\nuser = NAME\npm = ondemand\n";
    write("pools/.www.conf", &pool.replace("NAME", "old"));
    write("pools/www.conf", &pool.replace("NAME", "blog"));
    let latin = OsStr::from_bytes(b"pools/\xe9.bak");
    fs::write(folder.path().join(latin), "").expect("it can be written");
    let output = import(&path("nginx.conf"), &path("fpm.conf"));
    let toml = text(&output.stdout);
    assert!(toml.contains("blog.example") && toml.contains("user = \"blog\""), "{toml}");
    assert!(!toml.contains("old"), "{toml}");
}

#[test]
fn an_include_of_a_folder_that_cannot_be_listed_is_left_out_as_access() {
    let folder = public_folder();
    // Root can list any folder, but not this one.
    std::os::unix::fs::symlink("loop", folder.path().join("loop")).expect("a link is made");
    let include = format!("include {}/loop/*.conf;", folder.path().display());
    let site = "server { root /srv; location ~ \\.php$ { fastcgi_pass unix:/run/www.sock; } }";
    let (code, report, _) = report_of(&format!("{site}\n{include}"));
    assert_eq!(code, Some(3), "{report}");
    assert!(report.contains("nginx.conf:4:") && report.contains("/loop"), "{report}");
}

#[test]
fn fastcgi_cache_is_imported_only_if_each_exception_has_a_counterpart() {
    let site = |exception: &str| {
        format!(
            "fastcgi_cache_path /var/cache/a keys_zone=WP:10m;\n\
             fastcgi_cache_key \"$scheme$request_method$host$request_uri\";\n\
             server {{ root /srv;\nset $skip 0;\nif ($request_method = POST) {{ set $skip 1; }}\n\
             if ($query_string != \"\") {{ set $skip 1; }}\n\
             if ($http_cookie ~* \"wp-postpass|wordpress_logged_in\") {{ set $skip 1; }}\n\
             {exception}\nlocation ~ \\.php$ {{ fastcgi_pass unix:/run/www.sock;\n\
             fastcgi_cache WP; fastcgi_cache_valid 200 301 60m; fastcgi_cache_bypass $skip;\n\
             fastcgi_no_cache $skip; fastcgi_cache_use_stale error updating; }}\n}}"
        )
    };
    let paths = "if ($request_uri ~* \"/wp-admin/|/feed/\") { set $skip 1; }";
    let (code, report, toml) = report_of(&site(paths));
    assert_eq!(code, Some(0), "{report}");
    for line in [
        "[sites.cache]",
        "valid = { 200 = \"1h\", 301 = \"1h\" }",
        "stale_if_error = \"1h\"",
        "\"PHPSESSID\",",
        "\"*wordpress_logged_in*\",",
        "\"*/wp-admin/*\",",
        "no_store_parameters = [",
    ] {
        assert!(toml.contains(line), "{line}\n{toml}\n{report}");
    }
    for exception in [
        "if ($http_x_preview) { set $skip 1; }",
        "if ($request_uri ~* \"/(a|b)/\\d+\") { set $skip 1; }",
        "if ($http_cookie ~ session) { set $skip 0; }",
        "location ~ ^/members/.*\\.php$ { fastcgi_pass unix:/run/www.sock; fastcgi_cache off; }",
        "location @app { fastcgi_pass unix:/run/www.sock; }",
        "location ~* ^/(cart|checkout)/ { set $skip 1; try_files $uri /index.php?$args; }",
        "location /shop/ { location /shop/cart { if ($uri) { set $SKIP 1; } } }",
        "if ($http_cookie ~ \"role=admin|sid=\") { set $skip 1; }",
        "if ($http_cookie ~* \"prestashop|wikiuserid\") { set $skip 1; }",
        "if ($request_uri ~* \"\\?\") { set $skip 1; }",
    ] {
        let (_, report, toml) = report_of(&site(exception));
        assert!(!toml.contains("[sites.cache]"), "{exception}\n{toml}");
        assert!(report.contains("no page is cached"), "{exception}\n{report}");
    }
}

#[test]
fn access_logs_are_imported_where_they_have_one_format() {
    let format = "log_format own '$remote_addr $request_time' ' $status';";
    let site = |name: &str, log: &str| {
        format!("server {{ server_name {name}; root /srv;\naccess_log {log};\n}}\n")
    };
    let http = format!("{format}\n{}{}", site("a", "/var/log/a.log own"), site("b", "off"));
    let (code, report, toml) = report_of(&http);
    assert_eq!(code, Some(0), "{report}");
    for line in [
        "access_log_format = \"$remote_addr $request_time $status\"",
        "access_log = \"/var/log/a.log\"",
        "access_log = \"off\"",
    ] {
        assert!(toml.contains(line), "{line}\n{toml}\n{report}");
    }
    let http = format!("{format}\n{}{}", site("a", "/a.log own"), site("b", "/b.log"));
    let (_, report, toml) = report_of(&http);
    assert!(report.contains("all logs have one format here"), "{report}");
    assert!(!toml.contains("/b.log"), "{toml}");
    let (_, report, _) =
        report_of(&format!("log_format own '$unknown_to_all';\n{}", site("a", "/a own")));
    assert!(report.contains("a variable that has no counterpart"), "{report}");
}
