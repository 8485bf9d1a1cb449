//! Single directives of nginx: those that decide nothing about access, and those with another
//! meaning here.

use super::laxer_tests::{of_http, of_server, says_laxer, says_nothing};
use crate::Imported;

#[test]
fn directives_that_decide_nothing_about_access_are_none_that_do() {
    for line in [
        "absolute_redirect off;",
        "aio threads;",
        "autoindex_exact_size off;",
        "autoindex_format json;",
        "autoindex_localtime on;",
        "brotli_static on;",
        "chunked_transfer_encoding off;",
        "fastcgi_ignore_client_abort on;",
        "fastcgi_next_upstream error timeout;",
        "gunzip on;",
        "http2_max_concurrent_streams 64;",
        "http3 on;",
        "limit_rate_after 1m;",
        "lingering_close off;",
        "output_buffers 2 32k;",
        "proxy_headers_hash_max_size 1024;",
        "proxy_next_upstream_tries 2;",
        "recursive_error_pages on;",
        "rewrite_log on;",
    ] {
        says_nothing(&[line]);
    }
    assert!(of_http("map_hash_bucket_size 128; server { root /srv; }", "").report.keeps_access());
    says_laxer(&["frobnicate on;"]);
}

#[test]
fn a_script_without_a_file_never_runs() {
    let php = |test: &str, line: &str| {
        format!(
            "location ~ \\.php$ {{ fastcgi_pass unix:/run/php.sock; if ({test}) {{ {line} }} }}"
        )
    };
    for test in [
        "!-f $document_root$fastcgi_script_name",
        "!-e $request_filename",
        "!-f $document_root$uri",
    ] {
        says_nothing(&[&php(test, "return 404;")]);
    }
    says_laxer(&[
        &php("!-f $document_root/open$uri", "return 404;"),
        &php("-f $request_filename", "return 404;"),
        &php("!-f $request_filename", "return 403;"),
        "if (!-f $request_filename) { return 404; }",
    ]);
}

#[test]
fn a_standard_parameter_with_another_value_is_named() {
    let of = |names: &str, params: &str| {
        let php = format!("location ~ \\.php$ {{ fastcgi_pass unix:/run/php.sock; {params} }}");
        of_http(&format!("server {{ listen 443 ssl; {names} root /srv/app; {php} }}"), "")
    };
    for value in ["HTTP_HOST $server_name", "HTTP_HOST a.example", "REMOTE_ADDR $http_x_real_ip"] {
        let imported = of("server_name a.example b.example;", &format!("fastcgi_param {value};"));
        assert!(!imported.report.keeps_access(), "{value}\n{}", imported.report);
    }
    let left_out = |imported: &Imported, value: &str| {
        let report = imported.report.to_string();
        let (_, rest) = report.split_once("\nLeft out").expect("other pools");
        rest.contains(&format!("fastcgi_param {value}: "))
    };
    for value in [
        "DOCUMENT_ROOT /srv/other",
        "HTTPS $fe_https",
        "QUERY_STRING q=$uri",
        "REMOTE_USER $http_x_user",
        "SERVER_PORT 443",
    ] {
        let imported = of("", &format!("fastcgi_param {value};"));
        assert!(left_out(&imported, value), "{value}\n{}", imported.report);
    }
    let closed = "server { return 444; } server { server_name a.example; root /srv/app; \
                  location ~ \\.php$ { fastcgi_pass unix:/run/php.sock; \
                  fastcgi_param HTTP_HOST $server_name; } }";
    assert!(of_http(&closed.replace("} server", "}\nserver"), "").report.keeps_access());
    for value in [
        "DOCUMENT_ROOT $realpath_root",
        "DOCUMENT_ROOT /srv/app/",
        "HTTPS $https if_not_empty",
        "HTTPS on",
        "HTTP_HOST $http_host",
        "HTTP_PROXY \"\"",
        "PATH_INFO $fastcgi_path_info if_not_empty",
        "PATH_TRANSLATED $document_root${fastcgi_path_info}",
        "REDIRECT_STATUS 200",
        "REMOTE_ADDR $remote_addr",
        "SCRIPT_NAME /index.php",
        "SERVER_NAME $host",
        "SERVER_SOFTWARE nginx",
    ] {
        let imported = of("", &format!("fastcgi_param {value};"));
        let name = value.split(' ').next().unwrap_or_default();
        assert!(!left_out(&imported, name), "{value}\n{}", imported.report);
        assert!(!imported.report.to_string().contains(&format!("fastcgi_param {name}")), "{value}");
    }
}

#[test]
fn types_that_browsers_do_not_run_in_nginx_are_named() {
    says_laxer(&[
        "location /up/ { types { } default_type application/octet-stream; }",
        "location /up/ { types { image/png png; } }",
        "location ~ ^/up/ { types { text/plain html htm js mjs svg svgz xhtml xml; } }",
        "types { text/plain html; }",
        "types { text/html html; text/plain HTML; }",
    ]);
    let usual = "types { text/html html htm; text/javascript js mjs; image/svg+xml svg svgz; \
                 application/xhtml+xml xhtml; text/xml xml; application/wasm wasm; }";
    let lines = [
        usual,
        "location ~ \\.mjs$ { types { text/javascript mjs; } }",
        "location = /a.css { types { } }",
    ];
    says_nothing(&lines);
    for lines in lines {
        let report = of_server(lines).report.to_string();
        assert!(report.contains("types: the type of a file is that of its ending"), "{report}");
    }
}

#[test]
fn what_http_limits_is_limited_for_each_server() {
    let http = "limit_req_zone $binary_remote_addr zone=a:1m rate=1r/s; limit_req zone=a burst=5;\n\
                server { server_name a.example; root /srv/a; }\n\
                server { server_name b.example; root /srv/b; }";
    let imported = of_http(http, "");
    let Imported { toml, report, .. } = &imported;
    assert_eq!(toml.matches("{ rate = \"1/s\", burst = 5 }").count(), 2, "{toml}");
    assert!(!report.to_string().contains("no server inherits"), "{report}");
}

#[test]
fn a_header_of_a_location_is_that_of_the_front_controller_too() {
    let lines = "location / { try_files $uri /index.php; } location /a/ { add_header X-A b; } PHP";
    let report = of_server(lines).report.to_string();
    assert!(report.contains("add_header X-A b: responses of the front controller"), "{report}");
}

#[test]
fn a_folder_without_a_slash_is_below_the_prefix_of_nginx() {
    let imported = of_http("server { root html; location /a/ { alias files/a/; } }", "");
    let Imported { toml, report, .. } = &imported;
    assert!(toml.contains("root = \"/html\""), "{toml}");
    assert!(report.to_string().contains("root html: a folder below nginx's prefix"), "{report}");
}
