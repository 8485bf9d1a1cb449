//! An imported virtual host runs the scripts that Apache runs, in their pools, and sends none.

use super::access_tests::{expect_denied, is_denied, of_host, runs_script, written};
use super::*;

/// `SetHandler` for the scripts of a pool.
fn passes_to(pool: &str) -> String {
    format!(
        "<FilesMatch \\.php$>\nSetHandler proxy:unix:/run/{pool}.sock|fcgi://localhost\n</FilesMatch>"
    )
}

fn in_folder(folder: &str, lines: &str) -> String {
    format!("<Directory {folder}>\n{lines}\n</Directory>\n")
}

/// Lines of the server, outside of its virtual hosts.
fn of_server(lines: &str) -> String {
    format!(
        "</VirtualHost>\n{lines}\n<VirtualHost *:80>\nServerName z.example\nDocumentRoot /srv/z"
    )
}

#[test]
fn the_source_of_cgi_programs_is_denied() {
    let add = "AddHandler cgi-script .pl cgi";
    expect_denied(add, &["/a.pl", "/b/a.CGI", "/a.cgi.en"], &["/a.plx", "/acgi"]);
    expect_denied("AddHandler fcgid-script .php .py", &["/a.py"], &["/a.php"]);
    let set = "<Location /run>\nSetHandler fcgid-script\n</Location>";
    expect_denied(set, &["/run/a"], &["/runs"]);
}

#[test]
fn the_programs_of_an_expression_are_denied_and_nothing_else() {
    let of_folders =
        |line: &str| format!("<DirectoryMatch \"^/srv/site1/(a|b)/\">\n{line}\n</DirectoryMatch>");
    let php = of_folders("AddHandler fcgid-script .php");
    expect_denied(&php, &[], &["/a/x.php", "/a/x.css"]);
    let perl = of_folders("AddHandler cgi-script .pl .php");
    let open = ["/a/x.php", "/a/x.css", "/c/x.pl", "/a/xpl"];
    expect_denied(&perl, &["/a/x.pl", "/b/c/x.PL", "/a/x.pl.en"], &open);
    let of_files = "<FilesMatch \"\\.pl$\">\nAddHandler cgi-script .pl\n</FilesMatch>";
    expect_denied(of_files, &["/a.pl"], &["/a.plx"]);
    let index = "<Files index.php>\nSetHandler fcgid-script\n</Files>";
    expect_denied(index, &[], &["/index.php"]);
    for lines in [
        "<FilesMatch \"^(?!x).*\\.cgi$\">\nSetHandler cgi-script\n</FilesMatch>",
        "<LocationMatch \"/run/\">\nAddHandler cgi-script .pl\n</LocationMatch>",
        "<Files *>\nAddHandler cgi-script .pl\n</Files>",
        "AliasMatch ^/(?!x)(.*)$ /srv/b/$1",
    ] {
        let imported = of_host(lines);
        assert!(!imported.report.keeps_access(), "{lines}\n{}", imported.report);
        assert!(!is_denied(&imported, "/a.css"), "{lines}\n{}", imported.toml);
    }
}

#[test]
fn scripts_that_apache_does_not_run_in_a_folder_are_refused() {
    const PROXY: &str = "proxy:unix:/run/www.sock|fcgi://localhost";
    let of_all = format!("<FilesMatch \\.php$>\nSetHandler {PROXY}\n</FilesMatch>");
    let of_app = format!("<Directory /srv/site1/app>\n{of_all}\n</Directory>");
    let added = format!("AddHandler {PROXY} .php");
    let module = "LoadModule php_module /m.so\nAddType application/x-httpd-php .php";
    for (handler, folder, line) in [
        (&*of_all, "media.example.com", "php_admin_flag engine off"),
        (&*of_all, "media.example.com", "SetHandler None"),
        (&*of_app, "app/uploads", "SetHandler None"),
        (&*added, "up", "RemoveHandler .php"),
        (&*added, "up", "AddHandler cgi-script .pl .php\nOptions -ExecCGI"),
        (module, "up", "RemoveType php"),
        (module, "up", "AddType text/plain .php"),
    ] {
        let lines = format!("{handler}\n<Directory /srv/site1/{folder}>\n{line}\n</Directory>");
        let imported = of_host(&lines);
        assert!(imported.report.keeps_access(), "{lines}\n{}", imported.report);
        let path = format!("/{folder}/x/a.php");
        assert!(!runs_script(&imported, &path), "{lines}\n{}", imported.toml);
        assert!(runs_script(&imported, "/app/a.php"), "{lines}\n{}", imported.toml);
    }
    // A type is not what runs these, nor an extension those with `SetHandler`.
    for (handler, line) in [(&*added, "RemoveType .php"), (&*of_all, "RemoveHandler .php")] {
        let lines = format!("{handler}\n<Directory /srv/site1/up>\n{line}\n</Directory>");
        assert!(runs_script(&of_host(&lines), "/up/a.php"), "{lines}");
    }
}

#[test]
fn files_of_the_server_precede_those_of_a_folder() {
    let none = "<FilesMatch \".+\\.ph(p[345]?|t|tml)$\">\nSetHandler None\n</FilesMatch>";
    let module = "LoadModule php_module /m.so\n<FilesMatch \".+\\.ph(?:ar|p|tml)$\">\n\
                  SetHandler application/x-httpd-php\n</FilesMatch>";
    let lines = format!("{}{}", in_folder("/srv/site1", none), of_server(module));
    assert!(!runs_script(&of_host(&lines), "/a.php"), "{}", of_host(&lines).toml);
    let denied = "<Files a.txt>\nRequire all denied\n</Files>";
    let open = "<Files a.txt>\nRequire all granted\n</Files>";
    let lines = format!("{}{}", in_folder("/srv/site1", denied), of_server(open));
    expect_denied(&lines, &["/a.txt"], &["/b.txt"]);
}
