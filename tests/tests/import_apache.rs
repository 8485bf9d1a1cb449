//! `maitred import apache`: Apache with mod_php and php-fpm, and maitred with their imported
//! configuration, send the same responses.

use std::fs;

use maitred_tests::http::Request;
use maitred_tests::imported::{Both, import_of};
use maitred_tests::outside::text;
use maitred_tests::rules::basic;
use maitred_tests::server::public_folder;

/// Virtual hosts as guides give them, reduced.
const HOSTS: &str = r#"
HOST blog.example.com
    ServerAlias www.blog.example.com
    DocumentRoot HERE/blog
    <Directory HERE/blog>
        Options FollowSymLinks
        AllowOverride None
        Require all granted
        RewriteEngine On
        RewriteBase /
        RewriteRule .* - [E=HTTP_AUTHORIZATION:%{HTTP:Authorization}]
        RewriteRule ^index\.php$ - [L]
        RewriteCond %{REQUEST_FILENAME} !-f
        RewriteCond %{REQUEST_FILENAME} !-d
        RewriteRule . /index.php [L]
    </Directory>
    <Files xmlrpc.php>
        Require all denied
    </Files>
    <Directory HERE/blog/wp-content/uploads>
        php_admin_flag engine off
    </Directory>
    <FilesMatch "\.(bak|sql)$">
        Require all denied
    </FilesMatch>
    php_admin_value memory_limit 99M
    SetEnv APP_ENV blog
    ErrorLog ${APACHE_LOG_DIR}/error.log
</VirtualHost>
HOST shop.example.com
    DocumentRoot "HERE/shop/public"
    <Directory HERE/shop>
        AllowOverride All
        Require all granted
    </Directory>
    <FilesMatch \.php$>
        SetHandler "proxy:unix:FPM|fcgi://localhost"
    </FilesMatch>
    Header always set X-Frame-Options "SAMEORIGIN"
    Header always set X-Content-Type-Options nosniff
</VirtualHost>
HOST api.example.com
    DocumentRoot HERE/api
    <FilesMatch \.php$>
        SetHandler proxy:unix:FPM|fcgi://dummy
    </FilesMatch>
    <Directory HERE/api>
        AllowOverride None
        Require all granted
        FallbackResource /index.php
    </Directory>
    SetEnvIfNoCase ^Authorization$ "(.+)" HTTP_AUTHORIZATION=$1
</VirtualHost>
HOST cloud.example.com
    DocumentRoot HERE/cloud
    <Directory HERE/cloud/>
        Require all granted
        AllowOverride All
        Options FollowSymLinks MultiViews
        <IfModule mod_dav.c>
            Dav off
        </IfModule>
    </Directory>
    LimitRequestBody 0
</VirtualHost>
HOST drupal.example.com
    DocumentRoot HERE/drupal
    <Directory HERE/drupal>
        Options -Indexes +FollowSymLinks
        AllowOverride None
        Require all granted
        <FilesMatch "\.(engine|inc|install|module|yml)(~|\.sw[op])?$|composer\.(json|lock)$">
            Require all denied
        </FilesMatch>
        RewriteEngine on
        RewriteRule "/\.|^\.(?!well-known/)" - [F]
        RewriteRule ^core/install\.php$ core/rebuild.php [L]
        RewriteCond %{REQUEST_URI} ^/sites/[^/]+/private/
        RewriteRule ^ - [F]
        RewriteCond %{REQUEST_FILENAME} !-f
        RewriteCond %{REQUEST_FILENAME} !-d
        RewriteCond %{REQUEST_URI} !=/favicon.ico
        RewriteRule ^ index.php [L]
    </Directory>
    <DirectoryMatch "/vendor/">
        Require all denied
    </DirectoryMatch>
</VirtualHost>
HOST old.example.com
    DocumentRoot HERE/old
    ExpiresActive On
    ExpiresDefault "access plus 1 day"
    ExpiresByType text/css "access plus 1 month"
    <Directory HERE/old>
        Require all granted
    </Directory>
    Alias /closed HERE/closed
    Alias /docs HERE/manual
    <Directory HERE/manual>
        Require all granted
        Header always set X-Static yes
    </Directory>
    Redirect permanent /moved https://example.net/here
    Redirect /temp /fresh
    RedirectMatch 301 ^/page-([0-9]+)$ /pages/$1
    Redirect gone /gone
    RedirectMatch 404 \.(git|svn)
    RewriteEngine on
    RewriteRule ^/user/([a-z]+)$ /user.php?name=$1 [PT,L,QSA]
    RewriteRule ^/news/(.*)$ /fresh/$1 [R=301,L]
    ErrorDocument 404 /404.html
</VirtualHost>
HOST fcgi.example.com
    DocumentRoot HERE/fcgi
    ProxyPassMatch ^/(.*\.php)$ "unix:FPM|fcgi://localhost/HERE/fcgi/"
    <Directory HERE/fcgi>
        Order allow,deny
        Allow from all
        Require all granted
    </Directory>
    <Directory HERE/fcgi/near>
        Order allow,deny
        Allow from all
        Deny from 127.0.0.1
    </Directory>
    <Directory HERE/fcgi/far>
        Order deny,allow
        Deny from all
        Allow from 192.0.2.0/24
    </Directory>
    <Directory HERE/fcgi/local>
        Order deny,allow
        Deny from all
        Allow from 127.0.0.1
    </Directory>
</VirtualHost>
HOST static.example.com
    DocumentRoot HERE/static
    <Directory HERE/static>
        Require all denied
    </Directory>
    <Directory HERE/static/open>
        Require all granted
    </Directory>
    <Directory HERE/static/open/closed>
        Require all denied
    </Directory>
    <Location /open/local>
        Require local
    </Location>
    <Location /open/far>
        Require ip 192.0.2 198.51.100.0/24
    </Location>
</VirtualHost>
HOST secure.example.com
    ServerAlias secure2.example.com
    RewriteEngine On
    RewriteCond %{HTTPS} off
    RewriteRule ^(.*)$ https://%{HTTP_HOST}%{REQUEST_URI} [R=301,L]
</VirtualHost>
HOST moved.example.com
    ServerAlias www.moved.example.com
    DocumentRoot HERE/moved
    <Directory HERE/moved>
        Require all granted
    </Directory>
    RewriteEngine On
    RewriteCond %{HTTP_HOST} ^www\. [NC]
    RewriteRule ^(.*)$ http://moved.example.com$1 [R=301,L]
</VirtualHost>
HOST admin.example.com
    DocumentRoot HERE/admin
    <Directory HERE/admin>
        AuthType Basic
        AuthName "Staff"
        AuthUserFile USERS
        Require valid-user
    </Directory>
    <Location /health>
        Require all granted
    </Location>
    <Files "config.inc.php">
        Require all denied
    </Files>
</VirtualHost>
<FilesMatch ".+\.ph(?:ar|p|tml)$">
    SetHandler application/x-httpd-php
</FilesMatch>
<FilesMatch ".+\.phps$">
    Require all denied
</FilesMatch>
"#;

const LARAVEL: &str = "RewriteEngine On\n\
    RewriteCond %{REQUEST_FILENAME} !-d\nRewriteCond %{REQUEST_URI} (.+)/$\n\
    RewriteRule ^ %1 [L,R=301]\n\
    RewriteCond %{REQUEST_FILENAME} !-d\nRewriteCond %{REQUEST_FILENAME} !-f\n\
    RewriteRule ^ index.php [L]\n";

const NEXTCLOUD: &str = "ErrorDocument 404 /index.php/error/404\n<IfModule mod_rewrite.c>\n\
    RewriteEngine on\n\
    RewriteRule ^\\.well-known/carddav /remote.php/dav/ [R=301,L]\n\
    RewriteRule ^(?:build|tests|config|lib|3rdparty|templates)/.* - [R=404,L]\n\
    RewriteRule ^(?:\\.(?!well-known)|autotest|occ|issue|indie|db_|console).* - [R=404,L]\n\
    </IfModule>\nOptions -Indexes\n";

const FILES: [(&str, &str); 42] = [
    ("blog/index.php", ""),
    ("blog/wp-login.php", ""),
    ("blog/xmlrpc.php", ""),
    ("blog/style.css", "a file"),
    ("blog/dump.sql", "a file"),
    ("blog/wp-admin/index.php", ""),
    ("blog/wp-content/uploads/a.png", "a file"),
    ("shop/public/index.php", ""),
    ("shop/public/.htaccess", LARAVEL),
    ("shop/public/build/app.js", "a file"),
    ("shop/public/robots.txt", "a file"),
    ("api/index.php", ""),
    ("api/bundles/a.js", "a file"),
    ("api/other.php", ""),
    ("cloud/index.php", ""),
    ("cloud/.htaccess", NEXTCLOUD),
    ("cloud/status.php", ""),
    ("cloud/core/a.css", "a file"),
    ("cloud/config/config.php", ""),
    ("cloud/occ", "a file"),
    ("drupal/index.php", ""),
    ("drupal/core/rebuild.php", ""),
    ("drupal/core/a.css", "a file"),
    ("drupal/core/a.inc", "a file"),
    ("drupal/composer.json", "a file"),
    ("drupal/sites/default/private/a.png", "a file"),
    ("drupal/vendor/a.txt", "a file"),
    ("drupal/.well-known/a.txt", "a file"),
    ("old/index.php", ""),
    ("old/user.php", ""),
    ("old/style.css", "a file"),
    ("old/a.txt", "a file"),
    ("old/404.html", "a page"),
    ("manual/a.txt", "a file"),
    ("fcgi/index.php", ""),
    ("fcgi/near/a.txt", "a file"),
    ("fcgi/far/a.txt", "a file"),
    ("fcgi/local/a.txt", "a file"),
    ("static/open/a.txt", "a file"),
    ("moved/index.php", ""),
    ("admin/index.php", ""),
    ("admin/config.inc.php", ""),
];

const MORE_FILES: [(&str, &str); 8] = [
    ("closed/a.txt", "a file"),
    ("static/a.txt", "a file"),
    ("static/open/closed/a.txt", "a file"),
    ("static/open/local/a.txt", "a file"),
    ("static/open/far/a.txt", "a file"),
    ("admin/health", "a file"),
    ("admin/a.txt", "a file"),
    ("fcgi/a.txt", "a file"),
];

/// A host and targets for it.
const TARGETS: [(&str, &[&str]); 14] = [
    (
        "blog.example.com",
        &[
            "/",
            "/2026/a-post/?preview=1",
            "/wp-login.php?a=b",
            "/wp-admin/",
            "/wp-admin",
            "/xmlrpc.php",
            "/dump.sql",
            "/style.css",
            "/wp-content/uploads/a.png",
            "//xmlrpc.php",
            "/%78mlrpc.php",
        ],
    ),
    ("www.blog.example.com", &["/", "/a"]),
    ("shop.example.com", &["/", "/a/b?c=d", "/a/", "/build/app.js", "/robots.txt"]),
    ("api.example.com", &["/", "/a/b?c=d", "/bundles/a.js", "/other.php"]),
    (
        "cloud.example.com",
        &[
            "/",
            "/status.php",
            "/core/a.css",
            "/.well-known/carddav",
            "/remote.php",
            "/config/config.php",
            "/occ",
        ],
    ),
    (
        "drupal.example.com",
        &[
            "/",
            "/node/1?a=b",
            "/core/a.css",
            "/core/a.inc",
            "/core/install.php",
            "/composer.json",
            "/sites/default/private/a.png",
            "/vendor/a.txt",
            "/.well-known/a.txt",
        ],
    ),
    (
        "old.example.com",
        &[
            "/",
            "/style.css",
            "/a.txt",
            "/docs",
            "/docs/a.txt",
            "/closed/a.txt",
            "/moved",
            "/moved/a?b=c",
            "/movedx",
            "/temp/a",
            "/page-7?a=b",
            "/gone/a",
            "/.git/config",
            "/user/anna?x=y",
            "/news/a?b=c",
            "/missing",
        ],
    ),
    (
        "fcgi.example.com",
        &["/", "/index.php?a", "/a.txt", "/near/a.txt", "/far/a.txt", "/local/a.txt"],
    ),
    (
        "static.example.com",
        &[
            "/a.txt",
            "/missing",
            "/open/a.txt",
            "/open/closed/a.txt",
            "/open/local/a.txt",
            "/open/far/a.txt",
            "/open/farther",
        ],
    ),
    ("secure.example.com", &["/", "/a?b=c"]),
    ("secure2.example.com", &["/a"]),
    ("moved.example.com", &["/", "/missing"]),
    ("www.moved.example.com", &["/", "/a?b=c"]),
    ("admin.example.com", &["/", "/a.txt", "/config.inc.php", "/health"]),
];

#[test]
fn virtual_hosts_as_guides_give_them_are_imported_and_do_the_same() {
    let files: Vec<(&str, &str)> = FILES.into_iter().chain(MORE_FILES).collect();
    let both = Both::apache(HOSTS, &files);
    let mut differences = Vec::new();
    let mut compare = |request: &Request, what: &str| {
        let [theirs, ours] = both.seen(request);
        if theirs != ours {
            differences.push(format!("{what}\n  Apache:  {theirs}\n  maitred: {ours}"));
        }
    };
    for (host, targets) in TARGETS {
        for target in targets {
            let request = Request::new("GET", target).header("Host", host);
            compare(&request, &format!("{host}{target}"));
        }
    }
    let authorization = basic("anna", "secret");
    for target in ["/", "/a.txt", "/config.inc.php"] {
        let request = Request::new("GET", target).header("Host", "admin.example.com");
        compare(&request.header("Authorization", &authorization), target);
    }
    let (report, toml) = (both.report(), text(&both.imported.stdout));
    assert!(differences.is_empty(), "{}\n{toml}\n{report}", differences.join("\n"));
    assert_eq!(both.imported.status.code(), Some(0), "{report}");
}

/// The exit code and the report of a configuration that no server needs to run.
fn report_of(lines: &str) -> (Option<i32>, String, String) {
    let folder = public_folder();
    let [apache, fpm] = ["apache2.conf", "fpm.conf"].map(|name| folder.path().join(name));
    let modules = ["php", "rewrite", "autoindex", "alias", "ssl", "proxy"];
    let loads: String = modules.iter().map(|m| format!("LoadModule {m}_module /m.so\n")).collect();
    fs::write(&apache, format!("{loads}Listen 80\n{lines}\n")).expect("it can be written");
    fs::write(&fpm, "[www]\nlisten = /run/www.sock\npm = static\npm.max_children = 3\n")
        .expect("it can be written");
    let output = import_of("apache", &apache, &fpm);
    let report = text(&output.stderr).replace(&format!("{}/", folder.path().display()), "");
    (output.status.code(), report, text(&output.stdout))
}

#[test]
fn what_decides_about_access_and_is_not_imported_makes_exit_code_3_with_its_place() {
    let cases = [
        ("Frobnicate on", "apache2.conf:12: Frobnicate on"),
        ("SecRuleEngine On", "apache2.conf:12: SecRuleEngine On"),
        ("<Location /a>\nRequire host example.org\n</Location>", "Require host example.org"),
        ("<Location /a>\nRequire expr true\n</Location>", "apache2.conf:13: Require expr true"),
        ("<LimitExcept GET>\nRequire all denied\n</LimitExcept>", "<LimitExcept GET"),
        ("<If \"true\">\nRequire all denied\n</If>", "apache2.conf:12: <If true"),
        ("<Location /a>\nAuthType Digest\nRequire valid-user\n</Location>", "Require valid-user"),
        ("RewriteEngine on\nRewriteCond %{HTTP_REFERER} x\nRewriteRule ^ - [F]", "RewriteRule ^ -"),
        ("SSLVerifyClient require", "apache2.conf:12: SSLVerifyClient require"),
        ("Include missing.conf", "apache2.conf:12: Include missing.conf"),
        ("RequestHeader unset X-User", "apache2.conf:12: RequestHeader unset X-User"),
        ("AliasMatch ^/a(.*)$ /srv/b$1\n<Limit GET>\nDeny from all\n</Limit>", "<Limit GET"),
    ];
    for (line, expected) in cases {
        let lines = format!(
            "<VirtualHost *:80>\nDocumentRoot /srv\nServerName a.example\n<Directory /srv>\n\
             {line}\n</Directory>\n</VirtualHost>"
        );
        let lines = match line.starts_with("<Location") {
            true => lines.replace("<Directory /srv>\n", "\n").replace("</Directory>\n", ""),
            false => lines,
        };
        let (code, report, _) = report_of(&lines);
        assert_eq!(code, Some(3), "{line}\n{report}");
        let (_, left_out) = report.split_once("decides who may see what (").expect("a section");
        assert!(left_out.contains(expected), "{line}\n{report}");
    }
}

#[test]
fn a_virtual_host_that_redirects_to_https_becomes_the_redirect_of_tls() {
    let tls = "<VirtualHost *:443>\nServerName a.example\nDocumentRoot /srv/a\nSSLEngine on\n\
               SSLCertificateFile /c.pem\nSSLCertificateKeyFile /c.key\n</VirtualHost>\n";
    let plain = [
        "Redirect permanent / https://a.example/",
        "RewriteEngine on\nRewriteCond %{SERVER_NAME} =a.example\n\
         RewriteRule ^ https://%{SERVER_NAME}%{REQUEST_URI} [END,NE,R=permanent]",
        "RewriteEngine On\nRewriteCond %{HTTPS} !=on\n\
         RewriteRule ^/?(.*) https://%{SERVER_NAME}/$1 [R=301,L]",
    ];
    for lines in plain {
        let lines = format!(
            "Listen 443\n<VirtualHost *:80>\nServerName a.example\n{lines}\n</VirtualHost>\n{tls}\
             <Directory /srv>\nRequire all granted\n</Directory>"
        );
        let (code, report, toml) = report_of(&lines);
        assert_eq!(code, Some(0), "{lines}\n{report}\n{toml}");
        assert!(toml.contains("redirect = 301"), "{lines}\n{toml}");
        assert_eq!(toml.matches("[[sites]]").count(), 1, "{lines}\n{toml}");
    }
    let alias = "ServerName a.example\nServerAlias www.a.example";
    let hosts =
        format!("<VirtualHost *:80>\nServerName a.example\n{}\n</VirtualHost>\n{tls}", plain[0]);
    let hosts = hosts.replace("ServerName a.example", alias);
    let folder = "<Directory /srv>\nRequire all granted\n</Directory>";
    let (code, report, toml) = report_of(&format!("Listen 443\n{hosts}{folder}"));
    assert_eq!(code, Some(0), "{report}\n{toml}");
    assert!(toml.contains("redirect = 301"), "{toml}");
}

#[test]
fn variables_macros_and_conditions_are_those_of_apache() {
    let lines = "Define ROOT /srv/a\n<Macro Site $name>\n<VirtualHost *:80>\nServerName $name\n\
                 DocumentRoot ${ROOT}/$name\n</VirtualHost>\n</Macro>\nUse Site a.example\n\
                 Use Site b.example\n<IfVersion < 2.4>\nFrobnicate\n</IfVersion>\n\
                 <IfDefine !ROOT>\nFrobnicate\n</IfDefine>\n<Directory ${ROOT}>\n\
                 Require all granted\n</Directory>\n";
    let (code, report, toml) = report_of(lines);
    assert_eq!(code, Some(0), "{report}\n{toml}");
    assert!(toml.contains("root = \"/srv/a/b.example\""), "{toml}");
    assert_eq!(toml.matches("[[sites]]").count(), 2, "{toml}");
    let (code, report, _) = report_of("<Directory /srv>\n<Files x>\n</Directory>");
    assert_eq!(code, Some(2), "{report}");
    assert!(report.contains("apache2.conf:10: `</Directory>` ends no section"), "{report}");
}
