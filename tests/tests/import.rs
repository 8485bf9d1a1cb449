//! `maitred import`: nginx with php-fpm, and maitred with their imported configuration, send the
//! same responses.

use maitred_tests::http::Request;
use maitred_tests::imported::{Both, Case};
use maitred_tests::rules::basic;

const WORDPRESS: Case<'_> = Case {
    http: "",
    server: r#"server_name blog.example.com;
        root ROOT;
        index index.php;
        client_max_body_size 64m;
        location = /favicon.ico { log_not_found off; access_log off; }
        location = /robots.txt { allow all; log_not_found off; access_log off; }
        location / { try_files $uri $uri/ /index.php?$args; }
        location = /xmlrpc.php { deny all; }
        location ~ /\.(?!well-known) { deny all; }
        location ~* /(?:uploads|files)/.*\.php$ { deny all; }
        location ~* \.(js|css|png|jpg|ico)$ { expires 30d; log_not_found off; }
        location ~ \.php$ {
            try_files $uri =404;
            include fastcgi_params;
            fastcgi_intercept_errors on;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            fastcgi_param PHP_VALUE "memory_limit=99M
                upload_max_filesize=17M";
            fastcgi_pass unix:FPM;
            fastcgi_read_timeout 120s;
        }"#,
    files: &[
        "index.php",
        "wp-login.php",
        "xmlrpc.php",
        "style.css",
        "robots.txt",
        "wp-admin/index.php",
        "wp-content/uploads/a.php",
        "wp-content/uploads/a.png",
    ],
};

#[test]
fn the_block_of_wordpress_is_imported_and_does_the_same() {
    let both = Both::start(&WORDPRESS);
    assert_eq!(both.imported.status.code(), Some(0), "{}", both.report());
    both.expect_same(
        "blog.example.com",
        &[
            "/",
            "/2026/a-post/?preview=1",
            "/wp-login.php?a=b",
            "/wp-admin/",
            "/xmlrpc.php",
            "/style.css",
            "/robots.txt",
            "/wp-content/uploads/a.php",
            "/wp-content/uploads/a.png",
            "//xmlrpc.php",
            "/%78mlrpc.php",
        ],
    );
    let report = both.report();
    assert!(report.contains("fastcgi_read_timeout: nginx gave up after 2m"), "{report}");
}

#[test]
fn the_block_of_laravel_is_imported_and_does_the_same() {
    let both = Both::start(&Case {
        http: "",
        server: r#"server_name shop.example.com;
        root ROOT;
        add_header X-Frame-Options "SAMEORIGIN";
        add_header X-Content-Type-Options "nosniff";
        index index.php;
        location / { try_files $uri $uri/ /index.php?$query_string; }
        location = /robots.txt { access_log off; log_not_found off; }
        error_page 404 /index.php;
        location ~ ^/index\.php(/|$) {
            fastcgi_pass unix:FPM;
            fastcgi_param SCRIPT_FILENAME $realpath_root$fastcgi_script_name;
            include fastcgi_params;
            fastcgi_hide_header X-Powered-By;
        }
        location ~ /\.(?!well-known).* { deny all; }"#,
        files: &["index.php", "build/app.js", "robots.txt"],
    });
    assert_eq!(both.imported.status.code(), Some(0), "{}", both.report());
    both.expect_same("shop.example.com", &["/", "/a/b?c=d", "/build/app.js", "/robots.txt"]);
}

#[test]
fn the_block_of_symfony_is_imported_and_does_the_same() {
    let both = Both::start(&Case {
        http: "",
        server: r#"server_name api.example.com;
        root ROOT;
        location / { try_files $uri /index.php$is_args$args; }
        location /bundles { try_files $uri =404; }
        location ~ ^/index\.php(/|$) {
            fastcgi_pass unix:FPM;
            fastcgi_split_path_info ^(.+\.php)(/.*)$;
            include fastcgi_params;
            fastcgi_param APP_ENV prod;
            fastcgi_param SCRIPT_FILENAME $realpath_root$fastcgi_script_name;
            fastcgi_param DOCUMENT_ROOT $realpath_root;
            internal;
        }
        location ~ \.php$ { return 404; }"#,
        files: &["index.php", "bundles/a.js", "other.php"],
    });
    assert_eq!(both.imported.status.code(), Some(0), "{}", both.report());
    both.expect_same("api.example.com", &["/", "/a/b?c=d", "/bundles/a.js"]);
    let other = Request::new("GET", "/other.php").header("Host", "api.example.com");
    let [theirs, ours] = both.seen(&other);
    assert!(theirs.starts_with("404") && ours.starts_with("403"), "{theirs}\n{ours}");
}

#[test]
fn the_blocks_of_ispconfig_and_of_php_fpms_monitoring_are_imported_and_do_the_same() {
    let both = Both::start(&Case {
        http: "",
        server: r#"server_name web1.example.com;
        root ROOT;
        index index.php;
        location / { try_files $uri $uri/ /index.php?$args; }
        location ~ ^/(status|ping)$ {
            allow 127.0.0.1;
            deny all;
            include fastcgi_params;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            fastcgi_pass unix:FPM;
        }
        location ~ \.php$ { try_files /b371a339cb6c1a4d0a8b6e0a3ea5ee2c.htm @php; }
        location @php {
            try_files $uri =404;
            include fastcgi_params;
            fastcgi_pass unix:FPM;
            fastcgi_index index.php;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            fastcgi_intercept_errors on;
        }"#,
        files: &["index.php", "wp-login.php", "wp-admin/index.php", "style.css"],
    });
    assert_eq!(both.imported.status.code(), Some(0), "{}", both.report());
    let targets = ["/", "/a-post/?b=c", "/wp-login.php?a=b", "/wp-admin/index.php", "/style.css"];
    both.expect_same("web1.example.com", &targets);
}

#[test]
fn redirects_access_rules_aliases_and_limits_are_imported_and_do_the_same() {
    let both = Both::start(&Case {
        http: "map $uri $new { default \"\"; /legacy /fresh; ~^/page-([0-9]+)$ /pages/$1; }",
        server: r#"server_name www.example.com;
        if ($new) { return 301 $new; }
        root ROOT;
        index index.php index.html;
        rewrite ^/old/(.*)$ /new/$1 permanent;
        rewrite ^/user/([a-z]+)$ /user.php?name=$1 last;
        auth_basic "Staff";
        auth_basic_user_file HERE/users;
        location = /health { auth_basic off; try_files /health.txt =404; }
        location ^~ /open/ { auth_basic off; }
        location ^~ /closed/ { return 404; }
        location ^~ /gone { return 410; }
        location ^~ /local/ { auth_basic off; allow 127.0.0.1; deny all; }
        location ^~ /far/ { auth_basic off; allow 192.0.2.0/24; deny all; }
        location ^~ /near/ { auth_basic off; deny 127.0.0.1; }
        location = /moved { return 302 https://example.net/here; }
        location ^~ /docs/ { auth_basic off; alias HERE/root/manual/; add_header X-Static yes; }
        location / { try_files $uri $uri/ =404; }
        location ~ \.php$ {
            include fastcgi_params;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            fastcgi_pass unix:FPM;
        }"#,
        files: &[
            "index.php",
            "user.php",
            "new/a",
            "open/a.txt",
            "closed/a.txt",
            "local/a.txt",
            "far/a.txt",
            "near/a.txt",
            "manual/a.txt",
            "private.txt",
        ],
    });
    assert_eq!(both.imported.status.code(), Some(0), "{}", both.report());
    let targets = [
        "/",
        "/old/a?b=c",
        "/user/anna",
        "/open/a.txt",
        "/open/missing",
        "/closed/a.txt",
        "/closed/",
        "/gone",
        "/goner",
        "/local/a.txt",
        "/far/a.txt",
        "/near/a.txt",
        "/moved?a=b",
        "/legacy?a=b",
        "/docs/a.txt",
        "/private.txt",
        "/openx",
        "/missing",
    ];
    both.expect_same("www.example.com", &targets);
    let authorization = basic("anna", "secret");
    for target in ["/", "/private.txt", "/user/anna", "/missing"] {
        let request = Request::new("GET", target).header("Host", "www.example.com");
        let request = request.header("Authorization", &authorization);
        let [theirs, ours] = both.seen(&request);
        assert_eq!(theirs, ours, "{target}");
    }
}

#[test]
fn the_block_of_nextcloud_is_imported_and_does_the_same() {
    let both = Both::start(&Case {
        http: "upstream php-handler { server unix:FPM; }\n\
               map $arg_v $asset_immutable { \"\" \"\"; default \", immutable\"; }",
        server: r#"server_name cloud.example.com;
        root ROOT;
        client_max_body_size 512M;
        add_header X-Frame-Options "SAMEORIGIN" always;
        add_header X-Content-Type-Options "nosniff" always;
        fastcgi_hide_header X-Powered-By;
        index index.php index.html;
        location = /robots.txt { allow all; log_not_found off; access_log off; }
        location ^~ /.well-known {
            location = /.well-known/carddav { return 301 /remote.php/dav/; }
            location = /.well-known/caldav  { return 301 /remote.php/dav/; }
            return 301 /index.php$request_uri;
        }
        location ~ ^/(?:build|tests|config|lib|3rdparty|templates|data)(?:$|/)  { return 404; }
        location ~ ^/(?:\.|autotest|occ|issue|indie|db_|console)                { return 404; }
        location ~ \.php(?:$|/) {
            rewrite OTHERS /index.php$request_uri;
            fastcgi_split_path_info ^(.+?\.php)(/.*)$;
            set $path_info $fastcgi_path_info;
            try_files $fastcgi_script_name =404;
            include fastcgi_params;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            fastcgi_param PATH_INFO $path_info;
            fastcgi_param modHeadersAvailable true;
            fastcgi_param front_controller_active true;
            fastcgi_pass php-handler;
            fastcgi_intercept_errors on;
            fastcgi_request_buffering off;
            fastcgi_max_temp_file_size 0;
        }
        location ~ \.(?:css|js|svg|gif|png|wasm)$ {
            try_files $uri /index.php$request_uri;
            access_log off;
        }
        location /remote { return 301 /remote.php$request_uri; }
        location / { try_files $uri $uri/ /index.php$request_uri; }"#,
        files: &[
            "index.php",
            "remote.php",
            "status.php",
            "core/a.css",
            "config/config.php",
            "data/a.txt",
            "occ",
            "robots.txt",
        ],
    });
    assert_eq!(both.imported.status.code(), Some(0), "{}", both.report());
    both.expect_same(
        "cloud.example.com",
        &[
            "/",
            "/status.php",
            "/core/a.css",
            "/robots.txt",
            "/config/config.php",
            "/data/a.txt",
            "/data",
            "/occ",
            "/.well-known/carddav",
            "/.well-known/webfinger?a=b",
            "/remote/dav",
        ],
    );
}

#[test]
fn the_block_of_magento_is_imported_and_does_the_same() {
    let both = Both::start(&Case {
        http: "upstream fastcgi_backend { server unix:FPM; }",
        server: r#"server_name shop.example.com;
        root ROOT;
        index index.php;
        autoindex off;
        error_page 404 403 = /errors/404.php;
        location / { try_files $uri $uri/ /index.php$is_args$args; }
        location /static/ {
            expires max;
            location ~* \.(ico|jpg|png|css|js)$ { add_header X-Static yes; expires +1y; }
            add_header X-Frame-Options "SAMEORIGIN";
        }
        location /media/customer/ { deny all; }
        location ~* ^/media/.*\.xml$ { deny all; }
        location ~ ^/(index|get|static|errors/report|errors/404|errors/503)\.php$ {
            try_files $uri =404;
            fastcgi_pass fastcgi_backend;
            fastcgi_read_timeout 600s;
            fastcgi_connect_timeout 600s;
            fastcgi_param PHP_VALUE "memory_limit=756M \n max_execution_time=18000";
            fastcgi_index index.php;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            include fastcgi_params;
        }
        location ~* (\.php$|\.phtml$|\.htaccess$|\.git) { deny all; }"#,
        files: &[
            "index.php",
            "get.php",
            "other.php",
            "static/a.css",
            "media/a.png",
            "media/a.xml",
            "media/customer/a.png",
            "a.phtml",
        ],
    });
    assert_eq!(both.imported.status.code(), Some(0), "{}", both.report());
    let targets = ["/", "/a.html?b=c", "/get.php?a", "/media/a.png", "/index.php"];
    both.expect_same("shop.example.com", &targets);
    for target in ["/other.php", "/media/a.xml", "/media/customer/a.png", "/a.phtml", "/x/.git/a"] {
        let request = Request::new("GET", target).header("Host", "shop.example.com");
        let [_, ours] = both.seen(&request);
        assert!(ours.starts_with("40"), "{target}: {ours}");
    }
}

#[test]
fn the_blocks_of_drupal_and_mediawiki_are_imported_and_do_the_same() {
    let both = Both::start(&Case {
        http: "",
        server: r#"server_name d.example.com;
        root ROOT;
        index index.php;
        location = /favicon.ico { log_not_found off; access_log off; }
        location ~* \.(txt|log)$ { deny all; }
        location ~ \..*/.*\.php$ { return 403; }
        location ~ ^/sites/.*/private/ { return 403; }
        location ~ ^/sites/[^/]+/files/.*\.php$ { deny all; }
        location / { try_files $uri /index.php?$query_string; }
        location @rewrite { rewrite ^ /index.php; }
        location ~ /vendor/.*\.php$ { deny all; return 404; }
        location ~ '\.php$|^/update.php' {
            fastcgi_split_path_info ^(.+?\.php)(|/.*)$;
            try_files $fastcgi_script_name =404;
            include fastcgi_params;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            fastcgi_param QUERY_STRING $query_string;
            fastcgi_intercept_errors on;
            fastcgi_pass unix:FPM;
        }
        location ~* \.(js|css|png)$ { try_files $uri @rewrite; expires max; }"#,
        files: &[
            "index.php",
            "update.php",
            "sites/default/private/a.png",
            "sites/default/files/a.php",
            "vendor/a.php",
            "core/misc/a.css",
            "a.txt",
        ],
    });
    assert_eq!(both.imported.status.code(), Some(0), "{}", both.report());
    let targets = [
        "/",
        "/node/1?a=b",
        "/update.php",
        "/sites/default/private/a.png",
        "/sites/default/files/a.php",
        "/vendor/a.php",
        "/a.txt",
    ];
    both.expect_same("d.example.com", &targets);
    drop(both);
    let both = Both::start(&Case {
        http: "",
        server: r#"server_name wiki.example.com;
        root ROOT;
        location ~ ^/w/(index|load|api|thumb|opensearch_desc|rest|img_auth)\.php$ {
            include fastcgi_params;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            fastcgi_pass unix:FPM;
        }
        location /w/images { }
        location /w/images/deleted { deny all; }
        location ~ ^/w/resources/(assets|lib|src) { try_files $uri =404; }
        location /wiki/ { rewrite ^/wiki/(?<pagename>.*)$ /w/index.php; }
        location = / { return 301 /wiki/Main_Page; }
        location / { return 404; }"#,
        files: &["w/index.php", "w/maintenance.php", "w/images/a.png", "w/images/deleted/a.png"],
    });
    assert_eq!(both.imported.status.code(), Some(0), "{}", both.report());
    let targets = [
        "/",
        "/wiki/A_page?action=edit",
        "/w/images/a.png",
        "/w/images/deleted/a.png",
        "/w/index.php?title=A",
        "/other",
        "/a.txt",
    ];
    both.expect_same("wiki.example.com", &targets);
}

#[test]
fn rewrites_of_paths_without_a_file_are_imported_and_do_the_same() {
    let php = r"location ~ \.php$ {
            try_files $uri =404;
            include fastcgi_params;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            fastcgi_pass unix:FPM;
        }";
    let network = format!(
        r"server_name network.example.com;
        root ROOT;
        index index.php;
        if (!-e $request_filename) {{
            rewrite ^(/[^/]+)?(/wp-.*) $2 last;
            rewrite ^(/[^/]+)?(/.*\.php) $2 last;
        }}
        location / {{ try_files $uri $uri/ /index.php?$args; }}
        {php}"
    );
    let both = Both::start(&Case {
        http: "",
        server: &network,
        files: &[
            "index.php",
            "wp-login.php",
            "wp-admin/index.php",
            "wp-admin/a.css",
            "wp-content/wp-a.css",
        ],
    });
    assert_eq!(both.imported.status.code(), Some(0), "{}", both.report());
    let targets = [
        "/",
        "/site/",
        "/site/a-post/",
        "/site/wp-login.php?a=b",
        "/site/wp-admin/",
        "/site/wp-admin/a.css",
        "/wp-admin/a.css",
        "/wp-content/wp-a.css",
        "/wp-login.php",
        "/wp-content/missing",
    ];
    both.expect_same("network.example.com", &targets);
    drop(both);
    let wiki = format!(
        r"server_name wiki.example.com;
        root ROOT;
        index doku.php;
        location ~ /(conf|inc)/ {{ deny all; }}
        location / {{ try_files $uri $uri/ @dokuwiki; }}
        location @dokuwiki {{
            rewrite ^/_media/(.*) /lib/exe/fetch.php?media=$1 last;
            rewrite ^/_export/([^/]+)/(.*) /doku.php?do=export_$1&id=$2 last;
            rewrite ^/(.*) /doku.php?id=$1 last;
        }}
        {php}"
    );
    let both = Both::start(&Case {
        http: "",
        server: &wiki,
        files: &["doku.php", "lib/exe/fetch.php", "lib/a.css", "conf/a.txt", "inc/a.php"],
    });
    assert_eq!(both.imported.status.code(), Some(0), "{}", both.report());
    let targets = [
        "/",
        "/start?a=b",
        "/start",
        "/library",
        "/_media/a.png",
        "/_export/xhtml/start",
        "/lib/a.css",
        "/doku.php?id=a",
        "/conf/a.txt",
        "/inc/a.php",
    ];
    both.expect_same("wiki.example.com", &targets);
}
