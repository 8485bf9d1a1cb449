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
            "/srv/a/.htaccess" => self.file.clone().ok_or("it is missing".to_owned()),
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

/// The import of a virtual host with PHP in the pool `alice`, further lines of it, and a `.htaccess`
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
