//! Decisions on requests for a document root in memory.

mod memory_root;

use maitred_htaccess::process::Outcome;

use memory_root::MemoryRoot;

#[test]
fn encoded_dots_of_an_internal_redirect_lead_to_no_path_that_rules_have_not_seen() {
    let root = MemoryRoot::new()
        .file(
            "/.htaccess",
            "RewriteEngine On\n\
             RewriteCond %{REQUEST_URI} !^/(public|go)/\n\
             RewriteRule ^(.*)$ public/$1 [L]\n\
             RewriteRule ^go/(.*)$ /public/$1 [L]\n\
             RedirectMatch 403 ^/public/closed/\n",
        )
        .file("/composer.json", "")
        .file("/public/a.txt", "")
        .file("/public/closed/a.txt", "");
    assert_eq!(root.outcome("/a.txt"), Outcome::File);
    for path in ["/%2e%2e/composer.json", "/%2E%2e/%2e/composer.json", "/x/%2e%2e/%2e%2e/a"] {
        assert_eq!(root.outcome(path), Outcome::Status(404), "{path}");
    }
    for path in ["/go/x/%2e%2e/closed/a.txt", "/go/%2e/closed/a.txt"] {
        assert_eq!(root.outcome(path), Outcome::Status(403), "{path}");
    }
}

#[test]
fn encoded_control_bytes_of_an_internal_redirect_lead_to_no_script() {
    let rules = "RewriteEngine On\nRewriteCond %{REQUEST_FILENAME} !-f\n\
                 RewriteRule ^(.*)$ index.php/$1 [L]\n";
    let root = MemoryRoot::new().file("/.htaccess", rules).file("/index.php", "");
    assert_eq!(root.outcome("/admin"), Outcome::Script);
    for path in ["/admin/%0A", "/admin%09", "/%1f/admin", "/admin/%7F", "/admin\n"] {
        assert_eq!(root.outcome(path), Outcome::Status(400), "{path:?}");
    }
}

#[test]
fn a_path_with_dots_as_a_segment_is_no_path_of_a_file() {
    let root = MemoryRoot::new().file("/a.txt", "");
    for path in ["/x/../a.txt", "/./a.txt", "/..", "/a.txt/."] {
        assert_eq!(root.outcome(path), Outcome::Status(400), "{path}");
    }
    assert_eq!(root.outcome("/a.txt"), Outcome::File);
}

#[test]
fn an_expression_that_takes_too_many_steps_grants_nothing_where_it_is_negated() {
    let condition = "expr \"%{HTTP_USER_AGENT} =~ /(.*)bot(.*)evil/\"";
    let agent = format!("xbot evil{}", "bot".repeat(400));
    for text in [
        format!("<RequireAll>\nRequire all granted\nRequire not {condition}\n</RequireAll>"),
        format!(
            "<RequireAll>\nRequire all granted\n<RequireNone>\nRequire {condition}\n\
             </RequireNone>\n</RequireAll>"
        ),
    ] {
        let root = MemoryRoot::new().file("/.htaccess", &text).file("/a.txt", "");
        let of_agent = |agent| root.outcome_of("/a.txt", &[("User-Agent", agent)]);
        assert_eq!(of_agent("Mozilla"), Outcome::File, "{text}");
        assert_eq!(of_agent("xbot evil"), Outcome::Status(403), "{text}");
        assert_eq!(of_agent(&agent), Outcome::TooCostly, "{text}");
    }
}

#[test]
fn what_requires_tls_is_denied_without_it_before_a_user_is_asked_for() {
    const USERS: &str = "AuthType Basic\nAuthName x\nAuthUserFile /www/users\n";
    let root = |more: &str| {
        let text = format!("{USERS}Require valid-user\n{more}");
        MemoryRoot::new().file("/.htaccess", &text).file("/a/.htaccess", "").file("/a/a.txt", "")
    };
    assert_eq!(root("").outcome("/a/a.txt"), Outcome::NeedsUser);
    let denied = Outcome::Status(403);
    assert_eq!(root("SSLRequireSSL\n").outcome("/a/a.txt"), denied);
    assert_eq!(root("SSLRequireSSL\n").over_tls().outcome("/a/a.txt"), Outcome::NeedsUser);
    let within = "<IfModule mod_ssl.c>\nSSLRequireSSL\n</IfModule>\n";
    for text in [within.to_owned(), within.replace("mod_ssl.c", "ssl_module")] {
        assert_eq!(root(&text).outcome("/a/a.txt"), denied, "{text}");
        assert_eq!(root(&text).over_tls().outcome("/a/a.txt"), Outcome::NeedsUser, "{text}");
    }
    let without = within.replace("mod_ssl", "!mod_ssl");
    assert_eq!(root(&without).outcome("/a/a.txt"), Outcome::NeedsUser);
    let more = "SSLVerifyClient none\nSSLVerifyDepth 2\nSSLCipherSuite HIGH\n\
                SSLRenegBufferSize 10486000\nSSLUserName SSL_CLIENT_S_DN_CN\n";
    let with_more = within.replace("SSLRequireSSL\n", more);
    assert_eq!(root(&with_more).outcome("/a/a.txt"), Outcome::NeedsUser);
    // One of both is enough: a client without TLS may be a user.
    let any = "SSLRequireSSL\nSatisfy Any\n";
    assert_eq!(root(any).outcome("/a/a.txt"), Outcome::NeedsUser);
    assert_eq!(root(any).over_tls().outcome("/a/a.txt"), Outcome::File);
    let strict = |options: &str| root(&format!("{any}SSLOptions {options}\n"));
    for options in ["+StrictRequire", "StdEnvVars strictrequire", "-StrictRequire +StrictRequire"] {
        assert_eq!(strict(options).outcome("/a/a.txt"), denied, "{options}");
        assert_eq!(strict(options).over_tls().outcome("/a/a.txt"), Outcome::File, "{options}");
    }
    for options in ["+StdEnvVars", "+StrictRequire -StrictRequire", "StrictRequire StdEnvVars"] {
        assert_eq!(strict(options).outcome("/a/a.txt"), Outcome::NeedsUser, "{options}");
    }
    let granted = format!("Require all granted\n{any}SSLOptions +StrictRequire\n");
    assert_eq!(root(&granted).outcome("/a/a.txt"), Outcome::File);
}

#[test]
fn programs_that_no_interpreter_runs_are_not_sent_as_text() {
    let denied = Outcome::Status(403);
    for (text, path, expected) in [
        ("Options +ExecCGI\nAddHandler cgi-script .cgi .pl", "/a.pl", &denied),
        ("Options -ExecCGI\nAddHandler cgi-script .pl .htm .shtml", "/a.htm", &denied),
        ("AddType application/x-httpd-cgi .pl", "/a.pl", &denied),
        ("SetHandler fcgid-script", "/a.pl", &denied),
        ("SetHandler \"proxy:fcgi://127.0.0.1:9000\"", "/a.pl", &denied),
        ("Options +Includes\nAddHandler server-parsed .htm", "/a.htm", &denied),
        ("AddHandler server-parsed .htm", "/a.htm", &Outcome::File),
        ("AddHandler cgi-script .pl", "/a.htm", &Outcome::File),
        ("SetHandler Drupal_Security_Do_Not_Remove_See_SA_2006_006", "/a.pl", &Outcome::File),
        ("AddHandler cgi-script .pl\n<Files a.pl>\nSetHandler none\n</Files>", "/a.pl", {
            &Outcome::File
        }),
    ] {
        let root = MemoryRoot::new().file("/.htaccess", text).file("/a.pl", "").file("/a.htm", "");
        assert_eq!(root.outcome(path), *expected, "{text}");
    }
}

#[test]
fn the_source_of_a_program_is_not_sent_for_a_further_extension_and_no_script_runs_by_one() {
    let denied = Outcome::Status(403);
    for (text, path, expected) in [
        ("AddHandler cgi-script .pl .py\nOptions -ExecCGI", "/x.pl.bak", &denied),
        ("AddHandler fcgid-script .pl", "/x.pl.bak", &denied),
        ("Options +Includes\nAddHandler server-parsed .pl", "/x.pl.bak", &denied),
        ("AddHandler server-parsed .pl", "/x.pl.bak", &Outcome::File),
        ("AddHandler cgi-script .pl\nAddHandler x .bak", "/x.pl.bak", &Outcome::File),
        ("AddHandler cgi-script .pl", "/x.pl.php", &Outcome::Script),
        ("AddHandler application/x-httpd-php .php", "/x.php.jpg", &Outcome::File),
        ("", "/x.pl.bak", &Outcome::File),
    ] {
        let root = MemoryRoot::new().file("/.htaccess", text).file("/x.pl.bak", "");
        let root = root.file("/x.pl.php", "").file("/x.php.jpg", "");
        assert_eq!(root.outcome(path), *expected, "{path}\n{text}");
    }
}

#[test]
fn pages_with_server_side_includes_are_not_sent_as_source() {
    const PAGES: &str = "Options +Includes\nAddType text/html .shtml\n";
    let outcome = |text: &str, path: &str| {
        let root = MemoryRoot::new().file("/.htaccess", text).file("/b/.htaccess", "");
        let names = ["/a.shtml", "/a.shtml.bak", "/a.html", "/a.php", "/b/a.shtml"];
        names.into_iter().fold(root, |root, name| root.file(name, "")).outcome(path)
    };
    let added = format!("{PAGES}AddOutputFilter INCLUDES .shtml");
    let with = |more: &str| format!("{added}\n{more}");
    let of_files = "<FilesMatch \"\\.html$\">\nSetOutputFilter DEFLATE;includes\n</FilesMatch>";
    for (text, path, status) in [
        (&*added, "/a.shtml", 403),
        (&added, "/a.shtml.bak", 403),
        (&added, "/b/a.shtml", 403),
        (&added, "/a.html", 200),
        (&with("Options -Includes"), "/a.shtml", 200),
        (&with("RemoveOutputFilter .shtml"), "/a.shtml", 200),
        (&with("AddOutputFilter DEFLATE .html"), "/a.html", 200),
        ("AddOutputFilter INCLUDES .shtml", "/a.shtml", 200),
        ("Options Includes\nAddOutputFilter DEFLATE;INCLUDES html", "/a.html", 403),
        ("Options +IncludesNoExec\nSetOutputFilter INCLUDES", "/a.html", 403),
        ("Options +Includes\nSetOutputFilter INCLUDES", "/a.php", 0),
        (&format!("Options +Includes\n{of_files}"), "/a.html", 403),
        (&format!("Options +Includes\n{of_files}"), "/a.shtml", 200),
    ] {
        let expected = match status {
            200 => Outcome::File,
            0 => Outcome::Script,
            status => Outcome::Status(status),
        };
        assert_eq!(outcome(text, path), expected, "{path}\n{text}");
    }
}

#[test]
fn handlers_stand_for_php_by_the_names_that_hosts_give_it() {
    let outcome = |text: &str, path: &str| {
        let root = MemoryRoot::new().file("/.htaccess", text).file("/a.phps", "").file("/a.x", "");
        root.outcome(path)
    };
    for name in [
        "application/x-httpd-php",
        "application/x-httpd-ea-php83___lsphp",
        "application/x-lsphp82",
        "x-mapp-php8",
        "x-httpd-php5",
        "php83-script",
        "php-fcgi",
        "\"proxy:unix:/run/php/php8.2-fpm.sock|fcgi://localhost\"",
    ] {
        assert_eq!(outcome(&format!("AddHandler {name} .x"), "/a.x"), Outcome::Script, "{name}");
    }
    for text in ["SetHandler no-php", "SetHandler text/x-php", "AddType text/x-php .x"] {
        assert_eq!(outcome(text, "/a.x"), Outcome::File, "{text}");
    }
    for text in [
        "AddType application/x-httpd-php-source .phps",
        "AddHandler application/x-httpd-php-source .phps",
        "AddHandler x-httpd-php-source .phps",
    ] {
        assert_eq!(outcome(text, "/a.phps"), Outcome::Status(403), "{text}");
    }
}

#[test]
fn a_line_about_access_that_cannot_be_understood_denies_whatever_satisfy_says() {
    for text in [
        "Satisfy Any\nOrder allow,deny\nAllow from all\nDeny from 300.1.1.1",
        "Satisfy Any\nOrder wrong\nAllow from all",
        "Satisfy Any\nAllow from all\nRequire nothing",
        "Satisfy Any\nAllow from all\nDeny from .evil.example",
        "<IfFile x>\nRequire all denied\n</IfFile>",
        "<IfFile x>\n<Files a.txt>\nDeny from all\n</Files>\n</IfFile>",
        "<IfFile x>\nOrder allow,deny\n</IfFile>",
        "<IfFile x>\n<RequireNone>\nRequire all granted\n</RequireNone>\n</IfFile>",
    ] {
        let root = MemoryRoot::new().ignoring_unknown().file("/.htaccess", text);
        let root = root.file("/a/.htaccess", "").file("/a/a.txt", "");
        assert_eq!(root.outcome("/a/a.txt"), Outcome::Status(403), "{text}");
    }
    for text in [
        "<IfFile x>\nHeader set X-A b\n</IfFile>\nWrong",
        "<Directory /x>\nOrder allow,deny\nAllow from all\n</Directory>",
        "<Directory /x>\nAllowOverride All\nRequire all granted\n</Directory>",
    ] {
        let root = MemoryRoot::new().ignoring_unknown().file("/.htaccess", text).file("/a.txt", "");
        assert_eq!(root.outcome("/a.txt"), Outcome::File, "{text}");
    }
}

#[test]
fn the_options_of_the_folder_of_a_link_decide_and_not_those_of_its_target() {
    // As a deployment has its uploads, with a file in them that forbids much.
    let root = MemoryRoot::new().file("/l/.htaccess", "Options None").file("/l/x.txt", "");
    let root = root.file("/l/m/x.txt", "").link("/l").link("/l/m");
    assert_eq!(root.outcome("/l/x.txt"), Outcome::File);
    assert_eq!(root.outcome("/l/m/x.txt"), Outcome::Status(403));
    let root = MemoryRoot::new().file("/.htaccess", "Options None").file("/l/x.txt", "");
    let root = root.file("/l/.htaccess", "Options +FollowSymLinks").link("/l");
    assert_eq!(root.outcome("/l/x.txt"), Outcome::Status(403));
}

#[test]
fn links_are_not_followed_where_options_forbid_it() {
    let root = |options: &str| {
        let root = MemoryRoot::new().file("/a/.htaccess", options).file("/a/x.txt", "");
        let root = root.file("/a/link/b/x.txt", "").file("/a/link.txt", "").file("/b/x.txt", "");
        root.link("/a/link").link("/a/link.txt").link("/b").link("/b/x.txt")
    };
    let links = ["/a/link/b/x.txt", "/a/link.txt"];
    for options in ["Options None", "Options -FollowSymLinks", "Options Indexes"] {
        for path in links {
            assert_eq!(root(options).outcome(path), Outcome::Status(403), "{options} {path}");
        }
        for path in ["/a/x.txt", "/b/x.txt"] {
            assert_eq!(root(options).outcome(path), Outcome::File, "{options} {path}");
        }
    }
    for options in ["", "Options All", "Options SymLinksIfOwnerMatch", "Options -Indexes"] {
        for path in links {
            assert_eq!(root(options).outcome(path), Outcome::File, "{options} {path}");
        }
    }
}
