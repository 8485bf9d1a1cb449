//! What `.htaccess` files decide in Apache and not here, the import says.

use super::*;
use crate::report::{ImportFinding, Outcome};

/// The configuration of Apache, php-fpm's, and the `.htaccess` file of the document root; none if
/// the folders cannot be looked at.
struct SiteConf {
    apache: String,
    file: Option<String>,
}

impl FileReader for SiteConf {
    fn read(&self, path: &str) -> Result<String, String> {
        match path {
            "/apache2.conf" => Ok(self.apache.clone()),
            "/fpm.conf" => Ok(["alice", "bob", "alice2"].map(pool).concat()),
            "/srv/a/.htaccess" | "/srv/a/sub/.htaccess" => {
                self.file.clone().ok_or("it is missing".to_owned())
            }
            _ => Err("it is missing".to_owned()),
        }
    }

    fn glob(&self, _: &str) -> Vec<String> {
        Vec::new()
    }

    fn below(&self, folder: &str, name: &str) -> Option<Vec<String>> {
        self.file.as_ref().map(|_| vec![format!("{folder}/{name}")])
    }

    fn resolved(&self, _: &str) -> Option<String> {
        None
    }
}

/// A pool whose user has its name without digits.
fn pool(name: &str) -> String {
    let user = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    format!(
        "[{name}]\nuser = {user}\nlisten = /run/php/{name}.sock\npm = static\n\
         pm.max_children = 3\n"
    )
}

/// The handler of a pool.
fn of_pool(name: &str) -> String {
    format!("\"proxy:unix:/run/php/{name}.sock|fcgi://localhost\"")
}

/// The import of a virtual host with PHP in the pool `alice`, its further lines, and a `.htaccess`
/// file.
fn imported(lines: &str, file: Option<&str>) -> Imported {
    let apache = format!(
        "LoadModule authz_core_module /m.so\nLoadModule rewrite_module /m.so\nListen 80\n\
         <VirtualHost *:80>\nServerName a.example\nDocumentRoot /srv/a\n\
         <Directory /srv/a>\nRequire all granted\nAllowOverride All\n</Directory>\n\
         <FilesMatch \\.php$>\nSetHandler {}\n</FilesMatch>\n{lines}\n</VirtualHost>\n",
        of_pool("alice")
    );
    let files = SiteConf { apache, file: file.map(str::to_owned) };
    import(&files, "/apache2.conf", &["/fpm.conf".to_owned()]).expect("a site")
}

/// The place of the only finding about access; none without one.
fn access_line(imported: &Imported) -> Option<String> {
    let is_access = |one: &&ImportFinding| one.outcome == Outcome::LeftOutAccess;
    let mut found = imported.report.findings().iter().filter(is_access);
    let first = found.next().map(|one| one.place.to_string());
    assert!(found.next().is_none(), "{}", imported.report);
    first
}

/// Whether one line of a `.htaccess` file, the only one about access, is left out.
fn expect_left_out(lines: &str, file: &str, line: Option<usize>) {
    let imported = imported(lines, Some(file));
    let place = line.map(|line| format!("/srv/a/.htaccess:{line}"));
    assert_eq!(access_line(&imported), place, "{lines}\n{file}\n{}", imported.report);
}

#[test]
fn a_htaccess_file_that_names_a_pool_with_another_user_is_left_out_as_access() {
    let scripts =
        |handler: &str| format!("<FilesMatch \"\\.php$\">\nSetHandler {handler}\n</FilesMatch>");
    for (pool, line) in [("alice", None), ("alice2", None), ("bob", Some(2)), ("other", Some(2))] {
        expect_left_out("", &scripts(&of_pool(pool)), line);
    }
    let unused = imported("", Some(&scripts(&of_pool("bob"))));
    assert!(!unused.toml.contains("[pools.bob]"), "{}", unused.toml);
    let several = imported("", Some(&scripts("proxy:balancer://php/")));
    assert!(several.report.to_string().contains("name one FastCGI server"), "{}", several.report);
    assert!(several.report.keeps_access(), "{}", several.report);
    let bob = of_pool("bob");
    let rule = bob.trim_matches('"');
    for file in [
        format!("SetHandler {bob}"),
        format!("AddHandler {bob} .php"),
        format!("RewriteRule \\.php$ - [H={rule}]"),
        format!("SetHandler \"expr={rule}\""),
        format!("RewriteRule ^ - [L,Handler={rule}]"),
    ] {
        expect_left_out("", &file, Some(1));
    }
    assert!(!imported("", None).report.keeps_access());
}

#[test]
fn a_handler_of_a_htaccess_file_that_apache_lacks_runs_nothing_or_is_left_out_as_access() {
    let module = "LoadModule php_module /m.so";
    for (lines, file, line) in [
        ("", "AddHandler application/x-httpd-php74 .php .phtml", None),
        ("", "AddHandler application/x-httpd-php74 .html", Some(1)),
        ("", "AddType application/x-httpd-php .jpg", Some(1)),
        ("", "AddType x-mapp-php8 .jpg", None),
        ("", "SetHandler application/x-httpd-php", Some(1)),
        ("", "<Files *.php>\nSetHandler application/x-httpd-php\n</Files>", None),
        ("", "<Files *.inc>\nForceType application/x-httpd-php\n</Files>", Some(2)),
        ("", "RewriteRule ^page$ - [T=application/x-httpd-php]", Some(1)),
        ("", "SetHandler none", None),
        (module, "AddHandler application/x-httpd-php .html", None),
    ] {
        expect_left_out(lines, file, line);
    }
}

#[test]
fn sections_for_modules_that_this_server_lacks_are_left_out_as_access_if_they_decide_on_it() {
    let ldap = "LoadModule authnz_ldap_module /m.so";
    let module = |name: &str, lines: &str| format!("<IfModule {name}>\n{lines}\n</IfModule>");
    let nested = module("mod_rewrite.c", &module("mod_authnz_ldap.c", "RewriteRule ^a - [F]"));
    let (php5, php7) = ("LoadModule php5_module /m.so", "LoadModule php7_module /m.so");
    let php8 = "LoadModule php_module /m.so";
    let shib = "LoadModule mod_shib /m.so";
    let perhaps = format!("<IfDefine LDAP>\n{ldap}\n</IfDefine>");
    for (lines, file, line) in [
        (ldap, module("mod_authnz_ldap.c", "AuthType Basic\nRequire valid-user"), Some(1)),
        (ldap, module("mod_authnz_ldap.c", "Require all granted"), None),
        (ldap, module("mod_authnz_ldap.c", "Header set X 1"), None),
        (ldap, nested, Some(2)),
        ("", module("mod_authnz_ldap.c", "Require valid-user"), None),
        ("", module("!mod_authnz_ldap.c", "Require valid-user"), None),
        (ldap, module("!mod_authnz_ldap.c", "Require all granted"), Some(1)),
        (ldap, module("!mod_authnz_ldap.c", "Require all denied"), None),
        ("", module("!mod_php.c", "SetHandler none"), Some(1)),
        ("", module("mod_php.c", "php_value memory_limit 8M"), None),
        ("", module("mod_php.c", "AddHandler application/x-httpd-php .html"), Some(1)),
        ("", module("mod_authz_core.c", "Require all denied"), None),
        (php7, module("mod_php7.c", "php_flag engine off"), Some(1)),
        (php7, module("mod_php7.c", "php_value auto_prepend_file /waf.php"), Some(1)),
        (php7, module("mod_php7.c", "php_value memory_limit 8M"), None),
        (php7, module("!mod_php7.c", "SetHandler application/x-httpd-php"), Some(1)),
        (php5, module("mod_php5.c", "php_flag engine off"), Some(1)),
        (php8, module("mod_php.c", "php_flag engine off"), None),
        (&perhaps, module("mod_authnz_ldap.c", "Require valid-user"), Some(1)),
        (&perhaps, module("!mod_authnz_ldap.c", "Require all granted"), Some(1)),
        (&perhaps, module("mod_authnz_ldap.c", "Header set X 1"), None),
        (shib, module("mod_shib", "AuthType shibboleth\nRequire shib-session"), Some(1)),
    ] {
        expect_left_out(lines, &file, line);
    }
}

#[test]
fn a_variable_for_which_a_htaccess_file_asks_is_left_out_as_access() {
    let agents = "SetEnvIfNoCase User-Agent \"sqlmap|nikto\" bad_bot";
    let rule = "RewriteEngine on\nRewriteRule ^/a - [E=bad_bot:1]";
    let browser = "BrowserMatch nikto !good bad_bot=1";
    let redirected = "RewriteCond %{ENV:REDIRECT_bad_bot} 1\nRewriteRule ^ - [F]";
    let negated = "<RequireAll>\nRequire all granted\nRequire not env bad_bot\n</RequireAll>";
    for (lines, file, is_access) in [
        (agents, "Deny from env=bad_bot", true),
        (agents, "Allow from env=!bad_bot", true),
        (agents, negated, true),
        (agents, "RewriteCond %{ENV:bad_bot} 1\nRewriteRule ^ - [F]", true),
        (rule, redirected, true),
        (browser, "<If \"-n reqenv('bad_bot')\">\nRequire all denied\n</If>", true),
        (agents, "SetEnvIf bad_bot 1 refused\nDeny from env=refused", true),
        (agents, "RewriteCond expr \"-n reqenv('bad_bot')\"\nRewriteRule ^ - [F]", true),
        (agents, "Deny from env=other", false),
        (agents, "Header set X bad_bot", false),
        ("", "Deny from env=bad_bot", false),
        (
            "SetEnvIf Authorization (.*) HTTP_AUTHORIZATION=$1",
            "RewriteRule ^ - [E=HTTP_AUTHORIZATION:%{HTTP:Authorization}]",
            false,
        ),
    ] {
        let imported = imported(lines, Some(file));
        assert_eq!(
            !imported.report.keeps_access(),
            is_access,
            "{lines}\n{file}\n{}",
            imported.report
        );
    }
}

#[test]
fn other_directives_than_those_of_a_folder_in_its_htaccess_file_are_left_out_as_access() {
    let folder =
        |names: &str| format!("<Directory /srv/a/sub>\nAllowOverride {names}\n</Directory>");
    let outcome = |names: &str, file: &str| {
        let imported = imported(&folder(names), Some(file));
        let is_line = |one: &&ImportFinding| one.what.starts_with("AllowOverride");
        let found = imported.report.findings().iter().filter(is_line).map(|one| one.outcome);
        found.max().unwrap_or_else(|| panic!("{names}\n{}", imported.report))
    };
    for (names, file, expected) in [
        ("AuthConfig", "SetHandler none", Outcome::LeftOutAccess),
        ("AuthConfig", "<Files a>\nSetHandler none\n</Files>", Outcome::LeftOutAccess),
        ("AuthConfig", "Require all denied", Outcome::Changed),
        ("Options=Indexes", "Options +ExecCGI", Outcome::LeftOutAccess),
        ("all", "SetHandler none", Outcome::Kept),
    ] {
        assert_eq!(outcome(names, file), expected, "{names}\n{file}");
    }
}

#[test]
fn the_names_of_allow_override_are_kept_and_nonfatal_alone_lets_no_file_apply() {
    for (names, setting) in [
        ("All", None),
        ("FileInfo Options=Indexes", Some(r#"["FileInfo", "Options=Indexes"]"#)),
        ("AuthConfig Nonfatal=Unknown", Some(r#"["AuthConfig", "Nonfatal=Unknown"]"#)),
        ("All Nonfatal=All", Some(r#"["All", "Nonfatal=All"]"#)),
    ] {
        let lines = format!("<Directory /srv/a>\nAllowOverride {names}\n</Directory>");
        let toml = imported(&lines, Some("")).toml;
        assert!(toml.contains("htaccess = true"), "{names}\n{toml}");
        let expected = setting.map(|setting| format!("htaccess_override = {setting}"));
        assert_eq!(toml.contains("htaccess_override"), expected.is_some(), "{names}\n{toml}");
        assert!(expected.is_none_or(|setting| toml.contains(&setting)), "{names}\n{toml}");
    }
    for names in ["None", "Nonfatal=All"] {
        let lines = format!("<Directory /srv/a>\nAllowOverride {names}\n</Directory>");
        assert!(!imported(&lines, Some("")).toml.contains("htaccess = true"), "{names}");
    }
}

#[test]
fn a_file_that_only_a_list_of_directives_permits_closes_the_folder_of_an_alias() {
    let lines = |list: &str| {
        format!(
            "Alias /x /srv/a/sub\n<Directory /srv/a/sub>\nAllowOverride None\n\
             AllowOverrideList {list}\n</Directory>"
        )
    };
    for (list, is_closed) in [("Require", true), ("None", false)] {
        let toml = imported(&lines(list), Some("Require all denied")).toml;
        assert_eq!(
            toml.contains("\"~^/x(/|$)\",  # /srv/a/sub/.htaccess"),
            is_closed,
            "{list}\n{toml}"
        );
    }
}
