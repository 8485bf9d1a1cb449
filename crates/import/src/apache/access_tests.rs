//! An imported virtual host never shows what Apache refuses, or its import says so.

use super::*;
use crate::report::Outcome;

/// The configuration of Apache.
struct AccessConf(String);

impl FileReader for AccessConf {
    fn read(&self, path: &str) -> Result<String, String> {
        match path {
            "/apache2.conf" => Ok(self.0.clone()),
            "/fpm.conf" => Ok(["www", "a", "b", "www2"].map(pool).concat()),
            "/envvars" => Ok("export APACHE_ARGUMENTS='-D OUTER -DINNER'".to_owned()),
            "/srv/typed/.htaccess" => {
                Ok("<Files *.php>\nForceType text/plain\n</Files>".to_owned())
            }
            "/srv/removed/.htaccess" => Ok("RemoveType .php .phtml".to_owned()),
            "/srv/added/.htaccess" => Ok("AddType text/plain .PHP".to_owned()),
            "/srv/pdf/.htaccess" => {
                Ok("<FilesMatch \"\\.(pdf|zip)$\">\nForceType a/b\n</FilesMatch>".to_owned())
            }
            "/srv/own/.htaccess" => Ok("AddType application/x-httpd-php .php .html".to_owned()),
            "/srv/hard/.htaccess" => Ok("RemoveHandler .php\nRemoveType .php".to_owned()),
            "/srv/none/.htaccess" => Ok("SetHandler none\nForceType text/plain".to_owned()),
            "/srv/off/.htaccess" => Ok("php_flag engine off\nRemoveType .php".to_owned()),
            "/srv/on/.htaccess" => Ok("php_flag engine on\nRemoveType .php".to_owned()),
            "/srv/gates/.htaccess" => Ok("<Files *.pdf>\nSetHandler Gate\n</Files>".to_owned()),
            "/srv/gates-pdf/.htaccess" => Ok("AddHandler gate .php .pdf".to_owned()),
            "/srv/gates-rule/.htaccess" => {
                Ok("RewriteEngine on\nRewriteRule \\.pdf$ - [H=gate]".to_owned())
            }
            "/srv/gates-php/.htaccess" => Ok("AddHandler gate .php".to_owned()),
            "/srv/ht/.htaccess" => Ok("RewriteRule ^secret - [F]".to_owned()),
            "/proxy.conf" => Ok("ProxyPass http://127.0.0.1:3000/".to_owned()),
            "/rules.conf" => Ok("RewriteEngine on\nRewriteRule ^secret - [F]\n".to_owned()),
            _ => script_tests::htaccess(path).map(str::to_owned).ok_or("there is none".to_owned()),
        }
    }

    fn glob(&self, pattern: &str) -> Vec<String> {
        match pattern.contains('*') {
            true => Vec::new(),
            false => vec![pattern.to_owned()],
        }
    }

    fn unlisted(&self, pattern: &str) -> Option<String> {
        pattern.starts_with("/unlisted/").then(|| "it cannot be read".to_owned())
    }

    fn below(&self, folder: &str, name: &str) -> Option<Vec<String>> {
        let file = format!("{folder}/{name}");
        Some(if self.read(&file).is_ok() { vec![file] } else { Vec::new() })
    }

    fn has_links(&self, folder: &str) -> Option<bool> {
        Some(folder.contains("linked"))
    }

    fn resolved(&self, _: &str) -> Option<String> {
        None
    }
}

/// A pool of php-fpm that listens on a socket of its name, with a user of its name without digits.
fn pool(name: &str) -> String {
    let user = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    format!(
        "[{name}]\nuser = {user}\nlisten = /run/{name}.sock\npm = static\npm.max_children = 3\n"
    )
}

/// The import of a virtual host with the document root `/srv/site1` and these lines.
pub(super) fn of_host(lines: &str) -> Imported {
    let conf = format!(
        "LoadModule rewrite_module /m.so\nListen 80\nListen 443\n\
         <VirtualHost *:80>\nServerName a.example\nDocumentRoot /srv/site1\n\
         <Directory /srv/site1>\nRequire all granted\n</Directory>\n\
         {lines}\n</VirtualHost>\n"
    );
    import(&AccessConf(conf), "/apache2.conf", &["/fpm.conf".to_owned()]).expect("a site")
}

/// The import of virtual hosts.
pub(super) fn of_hosts(hosts: &str) -> Imported {
    let conf = format!("LoadModule rewrite_module /m.so\nListen 80\nListen 443\n{hosts}");
    import(&AccessConf(conf), "/apache2.conf", &["/fpm.conf".to_owned()]).expect("a site")
}

/// The configuration that is written.
pub(super) fn written(imported: &Imported) -> maitred_config::Config {
    let parsed = maitred_config::parse(&imported.toml, std::path::Path::new("/x/maitred.toml"));
    parsed.unwrap_or_else(|why| panic!("{why}\n{}", imported.toml))
}

/// Whether a path is denied to all clients.
pub(super) fn is_denied(imported: &Imported, path: &str) -> bool {
    written(imported).sites[0].rules.deny.iter().any(|rule| {
        rule.from.is_empty() && rule.except.is_empty() && rule.path.matches(path.as_bytes())
    })
}

/// The file with the users of a path.
pub(super) fn users_of(imported: &Imported, path: &str) -> Option<String> {
    let config = written(imported);
    let mut rules = config.sites[0].rules.basic_auth.iter();
    let found = rules.find(|rule| rule.path.matches(path.as_bytes()))?;
    Some(found.users.display().to_string())
}

/// Whether a path is one whose script runs.
pub(super) fn runs_script(imported: &Imported, path: &str) -> bool {
    !written(imported).sites[0].rules.deny_php.iter().any(|rule| rule.path.matches(path.as_bytes()))
}

pub(super) fn expect_denied(lines: &str, denied: &[&str], open: &[&str]) {
    let imported = of_host(lines);
    let Imported { toml, report, .. } = &imported;
    assert!(report.keeps_access(), "{lines}\n{report}");
    for path in denied {
        assert!(is_denied(&imported, path), "{lines}\n{path} is open:\n{toml}\n{report}");
    }
    for path in open {
        assert!(!is_denied(&imported, path), "{lines}\n{path} is denied:\n{toml}\n{report}");
    }
}

pub(super) fn section(name: &str) -> String {
    let end = name.split(' ').next().unwrap_or_default();
    format!("<{name}>\nRequire all denied\n</{end}>")
}

fn rewrites(lines: &str) -> String {
    format!("RewriteEngine on\n{lines}")
}

#[test]
fn rules_that_are_not_of_hidden_files_alone_are_written() {
    let cases = [
        (rewrites(r"RewriteRule \.(sql|bak|inc|log)$ - [F]"), "/a/x.sql"),
        (rewrites(r"RewriteRule (^|/)\.git|composer\.json$ - [F]"), "/composer.json"),
        (section(r#"DirectoryMatch "/\.git|/vendor/""#), "/vendor/a"),
        (section(r#"LocationMatch "/\.env|/composer\.json""#), "/composer.json"),
        (section(r#"LocationMatch "\.inc$|\.phps$""#), "/a/x.inc"),
        (section(r#"LocationMatch "/\.well-known/private""#), "/.well-known/private/a"),
    ];
    for (lines, denied) in cases {
        expect_denied(&lines, &[denied], &["/a/index.html"]);
    }
    for lines in [section(r#"FilesMatch "^\.ht""#), section(r#"FilesMatch ".+\.phps$""#)] {
        expect_denied(&lines, &[], &["/.htaccess", "/a.phps"]);
    }
}

#[test]
fn a_slash_and_a_dot_begin_a_nested_hidden_name_in_a_folder_alone() {
    let in_folder = |rule: &str| {
        let lines = rewrites(&format!("RewriteRule {rule} - [F]"));
        of_host(&format!("<Directory /srv/site1>\n{lines}\n</Directory>"))
    };
    // Drupal's rule.
    let drupal = in_folder(r#""/\.|^\.(?!well-known/)""#);
    assert!(drupal.report.keeps_access(), "{}\n{}", drupal.report, drupal.toml);
    assert!(!is_denied(&drupal, "/.well-known/a"), "{}", drupal.toml);
    let optional = in_folder(r"/\.?private");
    assert!(is_denied(&optional, "/a/private"), "{}\n{}", optional.report, optional.toml);
    expect_denied(&rewrites(r"RewriteRule /\. - [F]"), &["/.well-known/a"], &["/a"]);
    expect_denied(&section(r#"LocationMatch "/\.""#), &["/.well-known/a"], &["/a"]);
}

#[test]
fn an_expression_with_no_counterpart_is_left_out_as_access() {
    let lines = section(r#"DirectoryMatch "/\.(?!well-known)|/vendor/""#);
    expect_denied(&lines, &["/vendor/a"], &["/a"]);
    let imported = of_host(&section(r#"LocationMatch "^/(?!open)""#));
    assert!(!imported.report.keeps_access(), "{}", imported.report);
}

#[test]
fn conditions_with_or_deny_what_any_of_them_names() {
    let paths = "RewriteCond %{REQUEST_URI} ^/private [OR]\n\
                 RewriteCond %{REQUEST_URI} ^/internal\nRewriteRule ^ - [F]";
    expect_denied(&rewrites(paths), &["/private/a", "/internal/a"], &["/a"]);
    let plain = "RewriteCond %{HTTPS} off [OR]\nRewriteCond %{REQUEST_URI} ^/secret\n\
                 RewriteRule ^ - [F]";
    expect_denied(&rewrites(plain), &["/a", "/secret"], &[]);
    let tls = format!("SSLEngine on\n{}", rewrites(plain));
    assert!(!of_host(&tls).report.keeps_access(), "{}", of_host(&tls).report);
    let mixed = "RewriteCond %{REQUEST_URI} ^/a [OR]\nRewriteCond %{HTTP_REFERER} x\n\
                 RewriteRule ^ - [F]";
    assert!(!of_host(&rewrites(mixed)).report.keeps_access());
}

#[test]
fn each_start_in_an_expression_is_that_of_a_name_or_of_a_folder() {
    let drupal = r#"FilesMatch "\.(engine|inc)$|^(Entries.*|composer\.(json|lock)|web\.config)$""#;
    let denied = ["/composer.lock", "/core/web.config", "/a/x.inc", "/Entries.a"];
    expect_denied(&section(drupal), &denied, &["/xcomposer.lock", "/composer.lock.txt"]);
    let in_folder =
        |path: &str, rule: &str| format!("<Directory {path}>\n{}\n</Directory>", rewrites(rule));
    let rule = r"RewriteRule \.bak$|^config/ - [F]";
    let root = in_folder("/srv/site1", rule);
    expect_denied(&root, &["/a/x.bak", "/config/a"], &["/a/config/a"]);
    let inner = in_folder("/srv/site1/up", rule);
    expect_denied(&inner, &["/up/x.bak", "/up/config/a"], &["/up/a/config/a", "/config/a"]);
    let inner = in_folder("/srv/site1/up", r"RewriteRule (^|/)secret - [F]");
    expect_denied(&inner, &["/up/secret", "/up/a/secret"], &["/up/asecret"]);
    let all = in_folder("/srv/site1", "RewriteRule ^a/|^b/ - [F]");
    expect_denied(&all, &["/a/x", "/b/x"], &["/x/a/"]);
}

#[test]
fn sections_with_shell_patterns_and_expressions_deny_what_they_name() {
    let cases = [
        (r#"DirectoryMatch "^/srv/[^/]+/private""#, "/private/a", "/a/private"),
        (r#"DirectoryMatch "/srv/site1/private""#, "/private/a", "/a/private"),
        (r#"Directory "/srv/site1/[a-z]*/private""#, "/ab/private/c", "/1/private"),
        (r#"Directory "/srv/site1/x[0-9]""#, "/x7/a", "/xa/a"),
        (r#"Location "/secret[0-9]""#, "/secret7", "/secrets"),
        (r#"Files "*.[Ii][Nn][Cc]""#, "/a/x.InC", "/a/x.ind"),
    ];
    for (name, denied, open) in cases {
        expect_denied(&section(name), &[denied], &[open]);
    }
}

#[test]
fn a_section_for_unclear_folders_is_left_out_as_access_unless_it_lets_all_in() {
    let of = |line: &str| {
        let lines = format!("<DirectoryMatch \"^/srv(/a)?/site1/b\">\n{line}\n</DirectoryMatch>");
        of_host(&lines).report
    };
    for line in ["Require all denied", "php_admin_flag engine off", "Require ip 192.0.2.1"] {
        assert!(!of(line).keeps_access(), "{line}\n{}", of(line));
    }
    assert!(of("Require all granted").keeps_access(), "{}", of("Require all granted"));
    expect_denied(&section(r#"DirectoryMatch "^/home/.*/private""#), &[], &["/private"]);
}

#[test]
fn folders_have_one_name_and_are_those_that_urls_lead_to() {
    for (lines, denied, open) in [
        (
            "Alias /docs /srv/docs\n<Directory /srv/docs>\nRequire all denied\n</Directory>\n\
             <Directory /srv/site1/docs>\nRequire all granted\n</Directory>",
            "/docs/a",
            "/a",
        ),
        (
            "Alias /docs /srv/docs\n<Directory /srv/docs>\nRequire all denied\n</Directory>\n\
             <DirectoryMatch ^/srv/site1/docs/>\nRequire all granted\n</DirectoryMatch>",
            "/docs/a",
            "/a",
        ),
        (
            "Alias /docs /srv/docs\n<DirectoryMatch \"^/srv/site1/docs/?\">\n\
             Require all denied\n</DirectoryMatch>",
            "/docs-internal/a",
            "/a",
        ),
        (
            "Define BASE /srv/\nDocumentRoot ${BASE}/site1/.\n<Directory ${BASE}/site1/private>\n\
             Require all denied\n</Directory>",
            "/private/a",
            "/a",
        ),
        (
            "<Directory /srv/site1//x/../private/>\nRequire all denied\n</Directory>",
            "/private/a",
            "/x/a",
        ),
        (
            "<Directory /srv/site1/private/.//>\nRequire all denied\n</Directory>\n\
             <Directory /srv/site1/.//>\nRequire all granted\n</Directory>",
            "/private/a",
            "/a",
        ),
    ] {
        expect_denied(lines, &[denied], &[open]);
    }
    let uploads = "Define SITE /srv/site1/\nAddHandler proxy:unix:/run/www.sock|fcgi://x .php\n\
                   <Directory ${SITE}/uploads>\nphp_admin_flag engine off\n</Directory>";
    assert!(!runs_script(&of_host(uploads), "/uploads/a.php"), "{}", of_host(uploads).toml);
    let hidden = of_host("Alias /docs/ /srv/docs\nAlias /docs/old /srv/old");
    assert!(!hidden.toml.contains("/srv/old"), "{}", hidden.toml);
}

#[test]
fn the_clear_folders_of_a_section_are_denied_beside_unclear_ones() {
    // The second one is unclear for the alias alone.
    for expression in ["^(/a)?/srv/site1/b|/vendor/", "^/srv/site1(/a)?/vendor"] {
        let lines = section(&format!("DirectoryMatch \"{expression}\""));
        let imported = of_host(&format!("Alias /docs /srv/docs\n{lines}"));
        let Imported { toml, report, .. } = &imported;
        assert!(!report.keeps_access(), "{lines}\n{report}");
        assert!(is_denied(&imported, "/vendor/a"), "{lines}\n{toml}\n{report}");
    }
}

#[test]
fn client_certificates_are_left_out_as_access_where_plain_http_needs_none() {
    let of = |name: &str, plain: &str| {
        let tls = "DocumentRoot /srv/a\nSSLEngine on\nSSLCertificateFile /c.pem\n\
                   SSLVerifyClient require\nSSLCACertificateFile /ca.pem";
        let host = format!("</VirtualHost>\n<VirtualHost *:443>\nServerName {name}\n{tls}");
        of_host(&format!("{plain}\n{host}"))
    };
    let is_left_out = |imported: &Imported| {
        let mut all = imported.report.findings().iter();
        all.any(|one| one.outcome == Outcome::LeftOutAccess && one.what.contains("SSLVerify"))
    };
    let open = of("admin.example", "");
    assert!(is_left_out(&open), "{}\n{}", open.report, open.toml);
    assert!(open.toml.contains("client_certificates = \"required\""), "{}", open.toml);
    let redirected = of("a.example", "Redirect permanent / https://a.example/");
    assert!(redirected.report.keeps_access(), "{}\n{}", redirected.report, redirected.toml);
}

#[test]
fn rules_of_a_file_that_two_sections_include_refuse_in_each() {
    let folder =
        |name: &str| format!("<Directory /srv/site1/{name}>\nInclude /rules.conf\n</Directory>");
    let lines = format!("{}\n{}", folder("a"), folder("b"));
    expect_denied(&lines, &["/a/secret", "/b/secret"], &["/c/secret"]);
}

#[test]
fn rewriting_that_is_on_around_a_section_is_on_in_it() {
    let in_folder = |path: &str, rule: &str| format!("<Directory {path}>\n{rule}\n</Directory>");
    let refuses = "RewriteRule ^private/ - [F]";
    expect_denied(&rewrites(&in_folder("/srv/site1", refuses)), &["/private/a"], &["/a"]);
    let outer = in_folder("/srv/site1", "RewriteEngine on");
    let inner = in_folder("/srv/site1/a", refuses);
    expect_denied(&format!("{outer}\n{inner}"), &["/a/private/b"], &["/private/b"]);
    let off = rewrites(&in_folder("/srv/site1", &format!("RewriteEngine off\n{refuses}")));
    expect_denied(&off, &[], &["/private/a"]);
    let off = in_folder("/srv/site1", "RewriteEngine off");
    let alias = in_folder("/srv/docs", refuses);
    let lines = rewrites(&format!("Alias /docs /srv/docs\n{off}\n{alias}"));
    expect_denied(&lines, &["/docs/private/a"], &["/private/a"]);
    // The engine of the server.
    let of_host = "RewriteRule ^/private/ - [F]\n</VirtualHost>\nRewriteEngine on\n\
                   <VirtualHost *:80>\nServerName b.example\nDocumentRoot /srv/b";
    expect_denied(of_host, &["/private/a"], &["/a"]);
}

#[test]
fn rules_that_are_on_by_a_line_elsewhere_are_left_out_as_access() {
    let of_files = "DocumentRoot /srv/ht\n<Directory /srv/ht>\nAllowOverride All\n</Directory>";
    assert!(of_host(of_files).report.keeps_access(), "{}", of_host(of_files).report);
    assert!(!of_host(&rewrites(of_files)).report.keeps_access());
    let of_server = |options: &str, rule: &str| {
        let host = "<VirtualHost *:80>\nServerName b.example\nDocumentRoot /srv/b";
        of_host(&rewrites(&format!("{options}\n</VirtualHost>\n{rule}\n{host}"))).report
    };
    let rule = "RewriteRule ^/private - [F]";
    assert!(!of_server("RewriteOptions Inherit", rule).keeps_access());
    assert!(of_server("RewriteOptions Inherit", "").keeps_access());
}

#[test]
fn a_base_is_for_targets_and_the_folder_for_patterns() {
    let lines = rewrites("RewriteBase /\nRewriteRule ^vendor/ - [F]\nRewriteRule ^a$ b.txt [L]");
    let lines = format!("<Directory /srv/site1/web>\n{lines}\n</Directory>");
    expect_denied(&lines, &["/web/vendor/x"], &["/vendor/x"]);
    let toml = of_host(&lines).toml;
    assert!(toml.contains(r#"{ from = "~^/web/a$", to = "/b.txt", end = true }"#), "{toml}");
    // The pattern is for `site1/private/` in the folder above.
    let around = |rule: &str| format!("<Directory /srv>\n{}\n</Directory>", rewrites(rule));
    assert!(!of_host(&around("RewriteRule ^site1/private/ - [F]")).report.keeps_access());
    expect_denied(&around(r"RewriteRule \.bak$ - [F]"), &["/a.bak"], &["/a"]);
}

#[test]
fn rules_that_lead_clients_elsewhere_are_left_out_as_access_where_they_hide_something() {
    let of = |condition: &str, rule: &str| {
        let condition =
            if condition.is_empty() { String::new() } else { format!("RewriteCond {condition}\n") };
        of_host(&rewrites(&format!("{condition}RewriteRule {rule}"))).report
    };
    for (condition, rule) in [
        ("%{DOCUMENT_ROOT}%{REQUEST_URI} -f", "^/files/(.*)$ /dl-file.php?file=$1 [L]"),
        ("%{REQUEST_FILENAME} -s", "^/wp-content/uploads/(.*)$ /dl-file.php?file=$1 [L]"),
        ("%{HTTP_COOKIE} !session", "^/members/ /login [R]"),
        ("%{HTTP:X-Token} !^secret$", "^/members/ /login.php [L]"),
        ("%{REMOTE_ADDR} !^192", "^ /maintenance.html [R=302,L]"),
        ("%{QUERY_STRING} !key=", "^/a /b [R]"),
        ("%{SSL:SSL_CLIENT_VERIFY} !=SUCCESS", "^/a /b [R]"),
        ("", "^/files/(?!open)(.*) /dl.php?file=$1 [L]"),
        (r"$1 !^(index\.php|images|robots\.txt)", "^(.*)$ /index.php/$1 [L]"),
        (r"%{REQUEST_URI} !\.(css|js|png)$", "^ /index.php [L]"),
        ("%{REQUEST_URI} ^/private", "^(.*)$ /dl.php?f=$1 [L]"),
        ("%{REQUEST_FILENAME} !-f [OR]\nRewriteCond %{REQUEST_FILENAME} !-d", "^ /index.php [L]"),
        ("%{DOCUMENT_ROOT}%{REQUEST_URI} !-d", "^ /index.php [L]"),
        ("%{DOCUMENT_ROOT}/cache/$1.html !-f", "^(.*)$ /index.php [L]"),
    ] {
        let report = of(condition, rule);
        assert!(!report.keeps_access(), "{condition} {rule}\n{report}");
    }
    for (condition, rule) in [
        ("%{HTTP_USER_AGENT} Mobile", "^/$ /mobile [R]"),
        ("%{HTTP:Accept-Encoding} gzip", r"^(.*)\.css $1.css.gz [L]"),
        ("%{HTTP:X-Forwarded-Proto} !https", "^ https://%{HTTP_HOST}%{REQUEST_URI} [R]"),
        ("%{HTTP:Upgrade} websocket", "^/(.*) ws://localhost:3000/$1 [P]"),
        ("%{QUERY_STRING} ^p=1$", "^/$ /new? [R=301]"),
        (
            "%{HTTP_COOKIE} !logged_in\nRewriteCond %{DOCUMENT_ROOT}/cache/$1.html -f",
            "^/(.*) /cache/$1.html [L]",
        ),
        ("%{ENV:HTTPS} !on", "^ https://%{HTTP_HOST}%{REQUEST_URI} [R]"),
    ] {
        let report = of(condition, rule);
        assert!(report.keeps_access(), "{condition} {rule}\n{report}");
    }
}

#[test]
fn a_test_of_a_file_is_one_of_the_url_itself_in_a_virtual_host() {
    let of = |condition: &str, rule: &str| {
        let rules = rewrites(&format!("RewriteCond {condition}\nRewriteRule {rule}"));
        let folder = of_host(&format!("<Directory /srv/site1>\n{rules}\n</Directory>"));
        [of_host(&rules), folder]
    };
    // Apache looks for `%{REQUEST_FILENAME}` at the root of the file system there.
    for (condition, rule) in [
        // WordPress with several sites, and Symfony.
        (
            "%{REQUEST_FILENAME} -f [OR]\nRewriteCond %{REQUEST_FILENAME} -d",
            "^ - [L]\nRewriteRule ^([_0-9a-zA-Z-]+/)?(wp-(content|admin|includes).*) /$2 [L]\n\
             RewriteRule . /index.php [L]",
        ),
        ("%{REQUEST_FILENAME} -f", ".? - [L]\nRewriteRule .? %{ENV:BASE}/app.php [L]"),
        (
            "%{REQUEST_FILENAME} -d",
            "^ - [L]\nRewriteCond %{REQUEST_FILENAME} -f\nRewriteRule ^ - [L]\n\
             RewriteRule ^ /index.php [L]",
        ),
        (
            "%{REQUEST_FILENAME} !-f\nRewriteCond %{REQUEST_FILENAME} !-d\n\
             RewriteCond $1 !^(index\\.php|images)",
            "^(.*)$ /index.php/$1 [L]",
        ),
    ] {
        let [host, folder] = of(condition, rule).map(|one| one.report);
        assert!(folder.keeps_access(), "{condition} {rule}\n{folder}");
        assert!(!host.keeps_access(), "{condition} {rule}\n{host}");
    }
    for (condition, rule, written) in [
        (
            "%{REQUEST_FILENAME} !-f\nRewriteCond %{SCRIPT_FILENAME} !-d",
            "^ /index.php [L]",
            r#"{ from = "~^", to = "/index.php", end = true }"#,
        ),
        (
            "%{REQUEST_FILENAME} !-f",
            "^/private/(.*) /login.php [L]",
            r#"{ from = "~^/private/(.*)", to = "/login.php", end = true }"#,
        ),
    ] {
        let [host, folder] = of(condition, rule);
        assert!(host.report.keeps_access() && folder.report.keeps_access(), "{condition} {rule}");
        assert!(host.toml.contains(written), "{condition} {rule}\n{}", host.toml);
        assert!(!folder.toml.contains(written), "{condition} {rule}\n{}", folder.toml);
    }
    let looked_up = "%{LA-U:REQUEST_FILENAME} -f";
    let [host, _] = of(looked_up, "^ - [L]\nRewriteRule ^ /index.php [L]");
    assert!(host.toml.contains("front_controller = \"/index.php\""), "{}", host.toml);
}

#[test]
fn the_users_of_a_path_are_those_of_its_innermost_section() {
    let of_all =
        "<Location />\nAuthType Basic\nAuthUserFile /etc/passwd\nRequire valid-user\n</Location>";
    let folder = "AuthType Basic\nAuthUserFile /etc/passwd\nRequire valid-user";
    let folder = |inner: &str| {
        format!(
            "<Directory /srv/site1>\n{folder}\n{inner}\n</Directory>\n<Location /open>\n\
                 Require all granted\n</Location>"
        )
    };
    for (lines, path) in [
        (
            folder(
                "</Directory>\n<Directory /srv/site1/admin>\nAuthUserFile /etc/group\n\
                 Require valid-user",
            ),
            "/admin/x",
        ),
        (folder("</Directory>\n<Directory /srv/site1/admin>\nAuthUserFile /etc/group"), "/admin/x"),
        (
            folder("<Files admin.php>\nAuthUserFile /etc/group\nRequire valid-user\n</Files>"),
            "/admin.php",
        ),
        (folder("<Files admin.php>\nAuthUserFile /etc/group\n</Files>"), "/a/admin.php"),
        (
            format!(
                "{of_all}\n<LocationMatch ^/admin>\nAuthUserFile /etc/group\n\
                  Require valid-user\n</LocationMatch>"
            ),
            "/admin.php",
        ),
    ] {
        let imported = of_host(&lines);
        assert!(imported.report.keeps_access(), "{lines}\n{}", imported.report);
        assert_eq!(
            users_of(&imported, path).as_deref(),
            Some("/etc/group"),
            "{lines}\n{}",
            imported.toml
        );
        assert_eq!(users_of(&imported, "/a").as_deref(), Some("/etc/passwd"), "{}", imported.toml);
    }
    let later =
        folder("</Directory>\n<Location />\nAuthUserFile /etc/group\n</Location>\n<Directory /a>");
    assert_eq!(users_of(&of_host(&later), "/a").as_deref(), Some("/etc/group"));
    let crossed = "<Directory /srv/site1/app>\nAuthType Basic\nAuthUserFile /etc/passwd\n\
                   Require valid-user\n</Directory>\n<Files admin.php>\n\
                   AuthUserFile /etc/group\n</Files>";
    assert!(!of_host(crossed).report.keeps_access());
    let complete = crossed.replace("</Files>", "AuthType Basic\nRequire valid-user\n</Files>");
    assert!(of_host(&complete).report.keeps_access());
    let other = folder("</Directory>\n<Directory /srv/site1/admin>\nAuthType Digest");
    assert!(is_denied(&of_host(&other), "/admin/x"));
    assert!(!is_denied(&of_host(&other), "/x"));
}

#[test]
fn a_virtual_host_at_an_address_of_its_own_is_open_to_no_more_clients() {
    for (listen, host) in [
        ("Listen localhost:8080", "*:8080"),
        ("Listen localhost:8080", "localhost:8080"),
        ("Listen intranet.example:8080", "*:8080"),
        ("", "localhost:80"),
        ("", "127.0.0.1"),
        ("", "127.0.0.1:*"),
        ("", "10.0.0.5"),
        ("", "[::1]"),
        ("", "intranet.example:80"),
    ] {
        let lines = format!(
            "</VirtualHost>\n{listen}\n<VirtualHost {host}>\nServerName b.example\n\
             DocumentRoot /srv/b"
        );
        let imported = of_host(&lines);
        let allows = imported.toml.contains("allow = [\"127.0.0.0/8\", \"::1\"]");
        let Imported { toml, report, .. } = &imported;
        assert!(allows == report.keeps_access(), "{lines}\n{toml}\n{report}");
        assert!(!toml.contains("0.0.0.0:8080") || !report.keeps_access(), "{lines}\n{toml}");
    }
    let named = "</VirtualHost>\n<VirtualHost *>\nServerName b.example\nDocumentRoot /srv/b";
    assert!(of_host(named).report.keeps_access(), "{}", of_host(named).report);
}

#[test]
fn a_header_with_the_address_of_clients_is_left_out_as_access_unless_proxies_are_named() {
    let of_server = |lines: &str| {
        let host = "<VirtualHost *:80>\nServerName b.example\nDocumentRoot /srv/b";
        of_host(&format!("</VirtualHost>\n{lines}\n{host}"))
    };
    let header = "RemoteIPHeader X-Forwarded-For";
    assert!(!of_server(header).report.keeps_access());
    assert!(!of_host(header).report.keeps_access());
    let named = of_server(&format!("{header}\nRemoteIPTrustedProxy 192.0.2.1"));
    assert!(named.report.keeps_access(), "{}", named.report);
    assert!(named.toml.contains("trusted_proxies = [\"192.0.2.1\"]"), "{}", named.toml);
}

#[test]
fn lists_of_folders_that_show_more_than_those_of_apache_are_left_out_as_access() {
    let of = |lines: &str| {
        let lists = "<Directory /srv/site1/pub>\nOptions Indexes\n</Directory>";
        of_host(&format!("LoadModule autoindex_module /m.so\n{lists}\n{lines}")).report
    };
    let debian = "IndexIgnore .??* *~ *# RCS CVS *,v *,t";
    assert!(of(debian).keeps_access(), "{}", of(debian));
    assert!(!of("IndexIgnore *.key").keeps_access());
    let none = "<DirectoryMatch ^/srv/site1/pub/[a-c]>\nOptions -Indexes\n</DirectoryMatch>";
    assert!(!of(none).keeps_access(), "{}", of(none));
    let elsewhere = "<DirectoryMatch ^/srv/site1/x/>\nOptions -Indexes\n</DirectoryMatch>";
    assert!(of(elsewhere).keeps_access(), "{}", of(elsewhere));
}

#[test]
fn a_file_that_two_locations_include_leads_both_to_a_server() {
    let location = |name: &str| format!("<Location {name}>\nInclude /proxy.conf\n</Location>\n");
    let imported = of_host(&[location("/a"), location("/b")].concat());
    for path in ["/a/x", "/b/x"] {
        let rules = &written(&imported).sites[0].rules.proxy;
        let mut paths = rules.iter().map(|rule| &rule.path);
        assert!(paths.any(|one| one.matches(path.as_bytes())), "{path}\n{}", imported.toml);
    }
}
