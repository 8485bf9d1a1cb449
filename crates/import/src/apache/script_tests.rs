//! An imported virtual host runs the scripts that Apache runs, in their pools, and sends none.

use super::access_tests::{expect_denied, is_denied, of_host, runs_script, written};
use super::*;

/// `SetHandler` for the scripts of a pool.
fn passes_to(pool: &str) -> String {
    format!(
        "<FilesMatch \\.php$>\nSetHandler proxy:unix:/run/{pool}.sock|fcgi://localhost\n\
         </FilesMatch>"
    )
}

/// The text of a `.htaccess` file.
pub(super) fn htaccess(path: &str) -> Option<&'static str> {
    Some(match path {
        "/srv/prod/.htaccess" | "/srv/docs/.htaccess" => {
            "<IfDefine PROD>\nRequire all denied\n</IfDefine>"
        }
        "/srv/unless/.htaccess" => {
            "<IfModule a>\n<IfDefine !PROD>\nRequire all granted\n</IfDefine>\n</IfModule>"
        }
        "/srv/office/.htaccess" => "RewriteCond %{REMOTE_ADDR} x\nDeny from ${OFFICE}",
        "/srv/allowing-includes/.htaccess" => "<Files a*>\nOptions +Includes\n</Files>",
        "/srv/filtering-includes/.htaccess" => "AddOutputFilter INCLUDES .shtml",
        _ => return None,
    })
}

fn in_folder(folder: &str, lines: &str) -> String {
    format!("<Directory {folder}>\n{lines}\n</Directory>\n")
}

/// The pool of the scripts of a requested path.
fn pool_of(imported: &Imported, path: &str) -> Option<String> {
    let config = written(imported);
    let site = &config.sites[0];
    let of_path = site.rules.paths.iter().find(|rule| rule.path.matches(path.as_bytes()));
    match (of_path.and_then(|rule| rule.pool.clone()), &site.destination) {
        (Some(pool), _) => Some(pool),
        (None, maitred_config::Destination::Pool(pool)) => Some(pool.clone()),
        _ => None,
    }
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
    for line in
        ["SetHandler fcgid-script", "SetHandler application/x-httpd-cgi", "ForceType cgi-script"]
    {
        let set = format!("<Location /run>\n{line}\n</Location>");
        expect_denied(&set, &["/run/a"], &["/runs"]);
    }
    expect_denied("AddType application/x-httpd-cgi .cgi .pl", &["/a.pl"], &["/a.plx"]);
}

#[test]
fn what_an_action_passes_to_a_script_is_not_sent() {
    let gate = "Action Gate /gate.php";
    let members = in_folder("/srv/site1/members", "SetHandler gate");
    expect_denied(&format!("{gate}\n{members}"), &["/members/a.txt"], &["/a.txt"]);
    expect_denied(&format!("{gate} virtual\nAddHandler gate .pdf"), &["/a/b.pdf"], &["/a.txt"]);
    let inner = in_folder("/srv/site1/members", gate);
    expect_denied(&format!("{inner}\n<Files *.pdf>\nSetHandler gate\n</Files>"), &["/b.pdf"], &[]);
    let of_php = "Action application/x-httpd-php /php\nAction php5-fcgi /php\n\
                  <FilesMatch \"\\.php$\">\nSetHandler php5-fcgi\n</FilesMatch>";
    expect_denied(of_php, &[], &["/a.php"]);
    let of_type = of_host("Action application/pdf /gate.php");
    assert!(!of_type.report.keeps_access(), "{}", of_type.report);
    for rule in [
        r"^/members/.*\.pdf$ - [H=gate]",
        r"\.pdf$ - [NC,handler=GATE,L]",
        r"\.pdf$ - [E=HTTP_AUTHORIZATION:x,T=gate]",
        r"\.cgi$ - [H=cgi-script]",
        r"\.pdf$ - [H=proxy:http://127.0.0.1:3000]",
    ] {
        let imported = of_host(&format!("{gate}\nRewriteEngine on\nRewriteRule {rule}"));
        assert!(!imported.report.keeps_access(), "{rule}\n{}", imported.report);
    }
}

#[test]
fn what_a_htaccess_file_passes_to_the_script_of_an_action_is_left_out_as_access() {
    for (folder, action, is_access) in [
        ("gates", "gate", true),
        ("gates-pdf", "gate", true),
        ("gates-rule", "gate", true),
        ("gates-php", "gate", false),
        ("gates", "other", false),
    ] {
        let root = in_folder(&format!("/srv/{folder}"), "AllowOverride All");
        let lines = format!("Action {action} /gate.php\nDocumentRoot /srv/{folder}\n{root}");
        let imported = of_host(&lines);
        assert_eq!(!imported.report.keeps_access(), is_access, "{lines}\n{}", imported.report);
    }
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
    let anywhere = "<LocationMatch \"/run/\">\nAddHandler cgi-script .pl\n</LocationMatch>";
    expect_denied(anywhere, &["/a/run/b/x.pl"], &["/run/a.css", "/x.pl"]);
    let of_files = "<FilesMatch \"\\.pl$\">\nAddHandler cgi-script .pl\n</FilesMatch>";
    expect_denied(of_files, &["/a.pl"], &["/a.plx"]);
    let index = "<Files index.php>\nSetHandler fcgid-script\n</Files>";
    expect_denied(index, &[], &["/index.php"]);
    let mixed = "<FilesMatch \"\\.(php|pl|cgi)$\">\nSetHandler fcgid-script\n</FilesMatch>";
    expect_denied(mixed, &["/a.pl", "/b/a.cgi"], &["/a.css"]);
    let of_php = "<FilesMatch \"\\.ph(p|tml)$\">\nSetHandler fcgid-script\n</FilesMatch>";
    expect_denied(of_php, &[], &["/a.php"]);
    for lines in [
        "<FilesMatch \"^(?!x).*\\.cgi$\">\nSetHandler cgi-script\n</FilesMatch>",
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
        (&*of_app, "app/up", "SetHandler Drupal_Security_Do_Not_Remove_See_SA_2006_006"),
        (&*of_app, "app/up", "SetHandler text/plain"),
        (&*of_all, "up", "<FilesMatch \\.php$>\nSetHandler cgi-script\n</FilesMatch>"),
        (module, "up", "php_value engine off"),
        (module, "up", "SetHandler no-php"),
        (module, "up", "AddHandler no-php .php"),
        (module, "up", "SetHandler application/x-httpd-php-source"),
        (&*added, "up", "AddHandler application/x-httpd-php .php"),
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
fn a_type_decides_where_php_runs_by_a_type_alone() {
    let module = "LoadModule php_module /m.so\n";
    let added = format!("{module}AddType application/x-httpd-php .php\n");
    let by_handler = format!("{module}AddHandler application/x-httpd-php .php\n");
    let uploads = in_folder("/srv/site1/uploads", "ForceType text/html");
    let pdf = "<FilesMatch \"\\.pdf$\">\nForceType application/octet-stream\n</FilesMatch>";
    for (lines, runs) in [
        (format!("{added}{uploads}"), false),
        (format!("{uploads}{added}"), false),
        (format!("{added}{}", uploads.replace("text/html", "None")), true),
        (format!("{added}{pdf}"), true),
        (format!("{by_handler}{uploads}"), true),
        (format!("{}\n{uploads}", passes_to("www")), true),
    ] {
        let imported = of_host(&lines);
        assert!(imported.report.keeps_access(), "{lines}\n{}", imported.report);
        assert_eq!(runs_script(&imported, "/uploads/a.php"), runs, "{lines}\n{}", imported.toml);
        assert!(runs_script(&imported, "/a.php"), "{lines}\n{}", imported.toml);
    }
    for line in ["ForceType application/x-httpd-php", "SetHandler application/x-httpd-php"] {
        let all = of_host(&format!("{added}{}", in_folder("/srv/site1/a", line)));
        assert!(!all.report.keeps_access(), "{line}\n{}", all.report);
    }
}

#[test]
fn htaccess_files_that_change_the_type_of_scripts_are_left_out_as_access() {
    let module = "LoadModule php_module /m.so\n";
    for (folder, handler, is_access) in [
        ("typed", "AddType application/x-httpd-php .php", true),
        ("removed", "AddType application/x-httpd-php .php", true),
        ("added", "AddType application/x-httpd-php .php", true),
        ("on", "AddType application/x-httpd-php .php", true),
        ("pdf", "AddType application/x-httpd-php .php", false),
        ("own", "AddType application/x-httpd-php .php", false),
        ("hard", "AddType application/x-httpd-php .php", false),
        ("none", "AddType application/x-httpd-php .php", false),
        ("off", "AddType application/x-httpd-php .php", false),
        ("typed", "AddHandler application/x-httpd-php .php", false),
    ] {
        let root = in_folder(&format!("/srv/{folder}"), "AllowOverride All");
        let lines = format!("{module}{handler}\nDocumentRoot /srv/{folder}\n{root}");
        let imported = of_host(&lines);
        assert_eq!(!imported.report.keeps_access(), is_access, "{lines}\n{}", imported.report);
    }
}

#[test]
fn defined_names_in_htaccess_files_have_their_effect_below_an_alias_or_are_left_out_as_access() {
    let define = of_server("Define PROD");
    let alias = format!("Alias /docs /srv/docs\n{}", in_folder("/srv/docs", "AllowOverride All"));
    expect_denied(&format!("{alias}{define}"), &["/docs/", "/docs/a.txt"], &["/a.txt"]);
    expect_denied(&alias, &[], &["/docs/a.txt"]);
    for (folder, define, is_access) in [
        ("prod", "Define PROD", true),
        ("unless", "Define PROD", true),
        ("prod", "Define OTHER", false),
        ("unless", "", false),
        ("office", "Define OFFICE 192.0.2.1", true),
        ("office", "Define OTHER 192.0.2.1", false),
    ] {
        let root = in_folder(&format!("/srv/{folder}"), "AllowOverride All");
        let lines = format!("DocumentRoot /srv/{folder}\n{root}{}", of_server(define));
        let imported = of_host(&lines);
        assert_eq!(!imported.report.keeps_access(), is_access, "{lines}\n{}", imported.report);
    }
}

#[test]
fn the_source_of_pages_with_server_side_includes_is_denied() {
    let added = of_server("AddType text/html .shtml\nAddOutputFilter INCLUDES .shtml");
    let with = |folder: &str, options: &str| {
        format!("{}{added}", in_folder(folder, &format!("Options {options}")))
    };
    let pages = ["/a.shtml", "/b/c.SHTML", "/b/a.shtml.en"];
    for options in ["Includes", "+IncludesNoExec", "All", "Indexes Includes"] {
        expect_denied(&with("/srv/site1", options), &pages, &["/a.html", "/shtml"]);
    }
    // As of Debian and Fedora.
    expect_denied(&with("/srv/site1", "Indexes FollowSymLinks"), &[], &pages);
    expect_denied(&with("/srv/site1", "All -Includes"), &[], &pages);
    expect_denied(&with("/srv/site1/b", "+Includes"), &pages[1..], &pages[..1]);
    let within = |line: &str| in_folder("/srv/site1/b", &format!("Options Includes\n{line}"));
    expect_denied(&within("AddHandler server-parsed .html"), &["/b/a.html"], &["/a.html", "/b/a"]);
    expect_denied(&within("SetHandler server-parsed"), &["/b/a.html"], &["/a.html"]);
    let of_files = "<FilesMatch \"\\.html$\">\nSetOutputFilter includes;DEFLATE\n</FilesMatch>";
    expect_denied(&within(of_files), &["/b/a.html"], &["/a.html", "/b/a.txt"]);
    expect_denied(&within("AddOutputFilter DEFLATE .html"), &[], &["/b/a.html"]);
    for lines in [
        within("SetOutputFilter INCLUDES"),
        within("AddOutputFilterByType INCLUDES text/html"),
        within("XBitHack full"),
        format!("{of_files}\n{}", in_folder("/srv/site1/b", "Options Includes")),
    ] {
        assert!(!of_host(&lines).report.keeps_access(), "{lines}\n{}", of_host(&lines).report);
    }
}

#[test]
fn a_htaccess_file_and_the_configuration_may_together_evaluate_server_side_includes() {
    let of_root = |folder: &str, lines: &str| {
        let root = in_folder(&format!("/srv/{folder}"), &format!("AllowOverride All\n{lines}"));
        format!("DocumentRoot /srv/{folder}\n{root}")
    };
    let added = of_server("AddOutputFilter INCLUDES .shtml");
    let allowing = format!("{}{added}", of_root("allowing-includes", ""));
    expect_denied(&allowing, &["/a.shtml"], &["/a.html"]);
    expect_denied(&of_root("filtering-includes", "Options Indexes"), &[], &["/a.shtml"]);
    let filtering = of_host(&of_root("filtering-includes", "Options Includes"));
    assert!(!filtering.report.keeps_access(), "{}", filtering.report);
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

#[test]
fn scripts_of_a_folder_run_in_its_pool_and_nowhere_else() {
    let www = passes_to("www");
    let pma = in_folder("/usr/share/phpmyadmin", &passes_to("a"));
    let alias = format!("{www}\nAlias /pma /usr/share/phpmyadmin\n{pma}");
    let added =
        in_folder("/srv/site1/pma", "AddHandler proxy:unix:/run/a.sock|fcgi://localhost .php");
    let added = format!("AddHandler proxy:unix:/run/www.sock|fcgi://localhost .php\n{added}");
    let matched = "ProxyPassMatch ^/pma/(.*\\.php(/.*)?)$ \
                   unix:/run/a.sock|fcgi://localhost/srv/site1/\n\
                   ProxyPassMatch ^/(.*\\.php(/.*)?)$ \
                   unix:/run/www.sock|fcgi://localhost/srv/site1/";
    for lines in [&*alias, &*added, matched] {
        let imported = of_host(lines);
        assert!(imported.report.keeps_access(), "{lines}\n{}", imported.report);
        for (path, pool) in
            [("/pma/", "a"), ("/pma/x.php", "a"), ("/pma/x.php/y", "a"), ("/x.php", "www")]
        {
            let found = pool_of(&imported, path);
            assert_eq!(found.as_deref(), Some(pool), "{path}\n{lines}\n{}", imported.toml);
        }
    }
    let two =
        [in_folder("/srv/site1/a", &passes_to("a")), in_folder("/srv/site1/b", &passes_to("b"))];
    let two = of_host(&two.concat());
    assert_eq!(pool_of(&two, "/a/x.php").as_deref(), Some("a"), "{}", two.toml);
    assert_eq!(pool_of(&two, "/b/x.php").as_deref(), Some("b"), "{}", two.toml);
    assert!(two.toml.contains("allow_php"), "{}", two.toml);
    let apps = ["", "/crm", "/crm/www"].map(|name| format!("/srv/site1/apps{name}"));
    let nested = [
        format!("{www}\n"),
        in_folder(&apps[0], &passes_to("a")),
        in_folder(&apps[1], &passes_to("b")),
        in_folder(&apps[2], &passes_to("www")),
    ];
    let nested = of_host(&nested.concat());
    for (path, pool) in [
        ("/apps/x.php", "a"),
        ("/apps/crm/x.php", "b"),
        ("/apps/crm/www/x.php", "www"),
        ("/x.php", "www"),
    ] {
        assert_eq!(pool_of(&nested, path).as_deref(), Some(pool), "{path}\n{}", nested.toml);
    }
}

#[test]
fn scripts_that_may_run_for_paths_of_another_pool_are_left_out_as_access() {
    let module = "LoadModule php_module /m.so\nAddType application/x-httpd-php .php";
    let front = in_folder("/srv/site1", "FallbackResource /index.php");
    let files = in_folder("/srv/site1", "AllowOverride All");
    let of_folder = |name: &str, lines: &str| in_folder(&format!("/srv/{name}"), lines);
    let (www, alias) = (passes_to("www"), "Alias /pma /srv/pma\n");
    let gate = "php_value auto_prepend_file /srv/gate.php";
    let basedir = "php_admin_value open_basedir /srv/site1/app";
    for (handlers, is_access) in [
        (format!("{www}\n{}", of_folder("site1/app", &passes_to("a"))), true),
        (format!("{www}\n{}", of_folder("site1/app", &passes_to("www2"))), false),
        (format!("{www}\n{alias}{}", of_folder("pma", &passes_to("a"))), false),
        (format!("{module}\n{}", of_folder("site1/app", basedir)), true),
        (format!("{module}\n{}", of_folder("site1/app", gate)), true),
        (format!("{module}\n{}", of_folder("site1/app", "php_value memory_limit 8M")), false),
    ] {
        for rewrites in [&front, &files] {
            let imported = of_host(&format!("{handlers}\n{rewrites}"));
            let Imported { report, toml, .. } = &imported;
            assert_eq!(
                !report.keeps_access(),
                is_access,
                "{handlers}\n{rewrites}\n{toml}\n{report}"
            );
            assert!(imported.toml.contains("paths = "), "{handlers}\n{}", imported.toml);
        }
    }
    let none = of_host(&format!("{www}\n{}", of_folder("site1/app", &passes_to("a"))));
    assert!(none.report.keeps_access(), "{}", none.report);
}

#[test]
fn the_script_of_an_error_page_runs_as_in_apache_or_is_left_out_as_access() {
    let (www, alias) = (passes_to("www"), "Alias /pma /srv/pma\n");
    let app = |pool: &str| in_folder("/srv/site1/app", &passes_to(pool));
    let module = "LoadModule php_module /m.so\nAddType application/x-httpd-php .php";
    let limits = |line: &str| format!("{module}\n{}", in_folder("/srv/site1/app", line));
    let some = in_folder("/srv/site1/a", &www);
    for (handlers, page, is_access) in [
        (format!("{www}\n{}", app("a")), "/app/error.php", true),
        (format!("{www}\n{}", app("a")), "/app/", true),
        (format!("{www}\n{}", app("a")), "/app/error.php/404", true),
        (format!("{www}\n{}", app("a")), "/app/error.html", false),
        (format!("{www}\n{}", app("a")), "/error.php", false),
        (format!("{www}\n{}", app("www2")), "/app/error.php", false),
        (format!("{www}\n{alias}{}", in_folder("/srv/pma", &passes_to("a"))), "/pma/e.php", true),
        (limits("php_admin_value open_basedir /srv/site1/app"), "/app/error.php", true),
        (limits("php_value memory_limit 8M"), "/app/error.php", false),
        (limits("php_admin_flag engine off"), "/app/error.php", true),
        (limits("SetHandler none"), "/app/error.php", true),
        (some.clone(), "/e.php", true),
        (some, "/a/e.php", false),
        (String::new(), "/e.php", true),
    ] {
        let imported = of_host(&format!("{handlers}\nErrorDocument 404 {page}"));
        let Imported { report, toml, .. } = &imported;
        assert_eq!(!report.keeps_access(), is_access, "{handlers}\n{page}\n{toml}\n{report}");
        assert_eq!(!toml.contains("error_pages"), is_access, "{handlers}\n{page}\n{toml}");
    }
}

#[test]
fn scripts_whose_pool_is_unknown_do_not_run() {
    let module = "LoadModule php_module /m.so\n";
    let of_all = "<FilesMatch \\.php$>\nSetHandler application/x-httpd-php\n</FilesMatch>";
    let by_module = format!("{module}{}", in_folder("/srv/site1/a", of_all));
    for lines in [in_folder("/srv/site1/a", &passes_to("other")), by_module] {
        let imported = of_host(&format!("{}\n{lines}", passes_to("www")));
        assert!(!imported.report.keeps_access(), "{lines}\n{}", imported.report);
        assert!(!runs_script(&imported, "/a/x.php"), "{lines}\n{}", imported.toml);
        assert!(runs_script(&imported, "/x.php"), "{lines}\n{}", imported.toml);
    }
    let some = "<Files index.php>\nSetHandler proxy:unix:/run/a.sock|fcgi://localhost\n</Files>";
    let some = of_host(&format!("{}\n{some}", passes_to("www")));
    assert!(!some.report.keeps_access(), "{}", some.report);
    assert_eq!(pool_of(&some, "/index.php/a").as_deref(), Some("a"), "{}", some.toml);
}

#[test]
fn scripts_that_are_excepted_from_a_fastcgi_server_are_refused() {
    let passed = r"ProxyPassMatch ^/(.*\.php)$ fcgi://127.0.0.1:9000/srv/site1/$1";
    for (lines, runs) in [
        (format!("ProxyPass /uploads !\n{passed}"), false),
        (format!("ProxyPassMatch ^/uploads/ !\n{passed}"), false),
        (format!("{passed}\n<Location /uploads>\nProxyPass !\n</Location>"), false),
        (format!("{passed}\nProxyPass /uploads !"), true),
    ] {
        let imported = of_host(&lines);
        assert!(imported.report.keeps_access(), "{lines}\n{}", imported.report);
        assert_eq!(runs_script(&imported, "/uploads/a.php"), runs, "{lines}\n{}", imported.toml);
        assert!(runs_script(&imported, "/a.php"), "{lines}\n{}", imported.toml);
    }
}

#[test]
fn scripts_of_another_folder_than_that_of_their_paths_are_refused() {
    let site = r"ProxyPassMatch ^/(.*\.php)$ fcgi://127.0.0.1:9000/srv/site1/$1";
    let pma = "Alias /pma /usr/share/pma";
    let of_pma = r"ProxyPassMatch ^/pma/(.*\.php)$ fcgi://127.0.0.1:9000/usr/share/pma/$1";
    for (lines, path) in [
        (r"ProxyPassMatch ^/api/(.*\.php)$ fcgi://127.0.0.1:9000/srv/api/$1", "/api/x.php"),
        (r"ProxyPassMatch ^/(.*\.php)$ fcgi://127.0.0.1:9000/srv/$1", "/x.php"),
        (r"ProxyPassMatch ^/(.*\.php)$ unix:/run/www.sock|fcgi://localhost/srv", "/x.php"),
        (r"ProxyPassMatch ^/(.*\.php)$ fcgi://127.0.0.1:9000", "/x.php"),
        (r"ProxyPassMatch ^/((a)|b)/(.*\.php)$ fcgi://h:1/srv/site1/a/$3", "/b/x.php"),
        (of_pma, "/pma/x.php"),
    ] {
        for more in ["", site] {
            let imported = of_host(&format!("{lines}\n{more}"));
            let Imported { toml, report, .. } = &imported;
            assert!(!report.keeps_access(), "{lines}\n{more}\n{toml}\n{report}");
            assert!(!runs_script(&imported, path), "{lines}\n{more}\n{toml}\n{report}");
        }
    }
    for (lines, runs, stays) in [
        (site.to_owned(), vec!["/x.php", "/a/x.php"], vec![]),
        (format!("{pma}\n{of_pma}\n{site}"), vec!["/x.php", "/pma/x.php"], vec![]),
        (format!("{pma}\n{site}"), vec!["/x.php"], vec!["/pma/x.php"]),
        (
            r"ProxyPassMatch ^/.*\.php(/.*)?$ unix:/run/www.sock|fcgi://localhost/srv/site1"
                .to_owned(),
            vec!["/x.php"],
            vec![],
        ),
    ] {
        let imported = of_host(&lines);
        let Imported { toml, report, .. } = &imported;
        assert!(report.keeps_access(), "{lines}\n{report}");
        assert!(runs.iter().all(|path| runs_script(&imported, path)), "{lines}\n{toml}");
        assert!(!stays.iter().any(|path| runs_script(&imported, path)), "{lines}\n{toml}");
    }
}

#[test]
fn a_rule_that_sets_a_handler_for_scripts_is_left_out_as_access() {
    for (rule, is_access) in [
        (r"^/uploads/.*\.php$ - [H=text/plain]", true),
        (r"^/uploads/ - [T=text/plain]", true),
        (r"\.css\.gz$ - [T=text/css,E=no-gzip:1]", false),
    ] {
        let imported = of_host(&format!("RewriteEngine on\nRewriteRule {rule}"));
        assert_eq!(!imported.report.keeps_access(), is_access, "{rule}\n{}", imported.report);
    }
}

#[test]
fn settings_of_php_mean_what_they_mean_in_mod_php() {
    let module = "LoadModule php_module /m.so\nAddType application/x-httpd-php .php\n";
    for (setting, written) in [
        ("php_admin_value open_basedir None", "open_basedir = \"\""),
        ("php_value auto_prepend_file none", "auto_prepend_file = \"\""),
        ("php_admin_flag allow_url_fopen yes", "allow_url_fopen = false"),
        ("php_flag engine yes", "deny_php"),
    ] {
        let imported = of_host(&format!("{module}{}", in_folder("/srv/site1/up", setting)));
        assert!(imported.toml.contains(written), "{setting}\n{}", imported.toml);
    }
    let on = in_folder("/srv/site1/up", "php_value engine yes");
    assert!(!of_host(&format!("{module}{on}")).toml.contains("deny_php"));
}

#[test]
fn the_pool_of_a_folder_has_the_settings_of_those_around_it() {
    let module = "LoadModule php_module /m.so\nAddType application/x-httpd-php .php\n";
    let app = "php_admin_value open_basedir /srv/site1/app\nphp_value memory_limit 8M";
    let app = in_folder("/srv/site1/app", app);
    let inner = "php_value memory_limit 9M\nphp_value open_basedir /";
    let inner = in_folder("/srv/site1/app/inner", inner);
    let location = "<Location /app>\nSetEnv X 1\n</Location>\n";
    let lines = format!("{module}{inner}{app}{location}");
    let imported = of_host(&lines);
    for (path, limit) in [("/app/inner/x.php", "9M"), ("/app/x.php", "8M")] {
        let name = pool_of(&imported, path).unwrap_or_default();
        let config = written(&imported);
        let pool = config.pool(&name).expect("a pool");
        let admin = pool.php_admin_value.get("open_basedir").map(String::as_str);
        assert_eq!(admin, Some("/srv/site1/app"), "{path}\n{}", imported.toml);
        let value = pool.php_value.get("memory_limit").map(String::as_str);
        assert_eq!(value, Some(limit), "{path}\n{}", imported.toml);
        assert!(!pool.php_value.contains_key("open_basedir"), "{path}\n{}", imported.toml);
        assert!(pool.env.iter().any(|(name, _)| name == "X"), "{path}\n{}", imported.toml);
    }
    let alias = in_folder("/srv/docs", "php_value memory_limit 9M");
    let root = in_folder("/srv/site1", "php_admin_value open_basedir /srv/site1");
    let imported = of_host(&format!("{module}Alias /docs /srv/docs\n{root}{alias}"));
    let name = pool_of(&imported, "/docs/x.php").unwrap_or_default();
    let config = written(&imported);
    let pool = config.pool(&name).expect("a pool");
    assert!(!pool.php_admin_value.contains_key("open_basedir"), "{}", imported.toml);
}

#[test]
fn files_that_are_passed_to_php_are_left_out_as_access_unless_they_are_its_source() {
    let module = "LoadModule php_module /m.so\nAddType application/x-httpd-php .php";
    let files = |names: &str| passes_to("www").replace("\\.php$", names);
    for (lines, is_access) in [
        (format!("{module} .html"), true),
        (files("\"\\.(php|html)$\""), true),
        (in_folder("/srv/site1/a", &files("\"\\.(php|inc)$\"")), true),
        (format!("{module} .phtml .php5"), false),
        (files("\".+\\.ph(?:ar|p|tml)$\""), false),
    ] {
        let imported = of_host(&lines);
        assert_eq!(!imported.report.keeps_access(), is_access, "{lines}\n{}", imported.report);
    }
}

#[test]
fn paths_that_lead_elsewhere_lead_to_no_file_of_the_document_root() {
    for lines in [
        "<Location /x>\nAlias /srv/other\n</Location>",
        "<Location /x>\nSetHandler proxy:unix:/run/x.sock|http://localhost\n</Location>",
        "<Directory /srv/site1/x>\nSetHandler proxy:uwsgi://127.0.0.1:9000\n</Directory>",
        "RewriteEngine on\nRewriteRule ^/x/(.*) fcgi://127.0.0.1:9000/$1 [P]",
    ] {
        let imported = of_host(lines);
        assert!(is_denied(&imported, "/x/a"), "{lines}\n{}", imported.toml);
        assert!(!is_denied(&imported, "/a"), "{lines}\n{}", imported.toml);
    }
    // What the document root has at the path of another file.
    expect_denied("Alias /robots.txt /proxy.conf", &["/robots.txt"], &["/robots"]);
    let lines = "Alias / /srv/app/\nAlias /a /srv/a\n<Directory /srv/app/private>\n\
                 Require all denied\n</Directory>";
    expect_denied(lines, &["/private/x"], &["/x"]);
    let config = written(&of_host(lines));
    assert_eq!(config.sites[0].root, std::path::Path::new("/srv/app"));
}

#[test]
fn other_names_of_htaccess_files_and_settings_by_variables_are_left_out_as_access() {
    for lines in [
        "AccessFileName .acl",
        "AccessFileName .acl .htaccess",
        "SetEnv PHP_ADMIN_VALUE \"open_basedir=/srv/site1\"",
        "<Location /a>\nSetEnv PHP_ADMIN_VALUE \"disable_functions=exec\"\n</Location>",
        "SetEnv PHP_VALUE \"auto_prepend_file=/srv/gate.php\"",
        "<Files admin.php>\nphp_value auto_prepend_file /srv/gate.php\n</Files>",
        "<FilesMatch a>\nphp_admin_value disable_classes X\n</FilesMatch>",
        "SetEnvIf Request_URI ^/a PHP_ADMIN_VALUE=open_basedir=/srv/site1",
        "SetEnvIfExpr \"%{REQUEST_URI} =~ /a/\" PHP_VALUE=auto_prepend_file=/srv/gate.php",
        "RewriteEngine on\nRewriteRule ^/a - [E=PHP_ADMIN_VALUE:open_basedir=/srv/site1]",
        "<If true>\nSetEnv PHP_ADMIN_VALUE \"open_basedir=/srv/site1\"\n</If>",
    ] {
        let imported = of_host(lines);
        assert!(!imported.report.keeps_access(), "{lines}\n{}", imported.report);
        assert!(!imported.toml.contains("PHP_ADMIN_VALUE"), "{lines}\n{}", imported.toml);
    }
    for lines in ["AccessFileName .htaccess", "SetEnv PHP_VALUE memory_limit=99M"] {
        assert!(of_host(lines).report.keeps_access(), "{lines}");
    }
}
