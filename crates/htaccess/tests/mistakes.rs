//! Mistakes and remarks of files that would leave something open without them.

use std::time::{Duration, Instant};

use maitred_htaccess::file::{Reading, Verdict, parse};
use maitred_htaccess::overrides::Overrides;

/// The mistake of a file; empty: it has none.
fn mistake(text: &str, reading: &Reading) -> String {
    let parsed = parse(text.as_bytes(), b"/site/", reading);
    parsed.conf.err().map(|mistake| mistake.to_string()).unwrap_or_default()
}

#[test]
fn a_section_that_is_left_out_leaves_out_nothing_behind_it() {
    let usual = Reading::default();
    let ignoring = Reading { ignores_unknown: true, ..Reading::default() };
    let all = ["Nonfatal=Override".to_owned()];
    let allowing = Reading { overrides: Overrides::of(&all), ..Reading::default() };
    let (no_end, other) = ("before end of configuration", "but saw </IfDefine>");
    for (text, expected, reading) in [
        ("<IfModule mod_x.c>\nX 1\nRequire all denied", no_end, &usual),
        ("<IfModule mod_x.c>\n<Files a>\n</Files>\nRequire all denied", no_end, &usual),
        ("<IfModule mod_x.c>\nX 1\n</IfDefine>\nRequire all denied", other, &usual),
        ("<IfDefine A>\n<Files a>\n</IfDefine>\n</Files>", other, &usual),
        ("<IfModule !mod_rewrite.c>\nRequire all denied", no_end, &usual),
        ("<Unknown a>\nRequire all denied", no_end, &ignoring),
        ("<Unknown a>\n</IfDefine>\nRequire all denied", other, &ignoring),
        ("<Files a>\nRequire all denied", no_end, &allowing),
    ] {
        let found = mistake(text, reading);
        assert!(found.contains(expected), "{text}: {found}");
    }
    for text in [
        "<IfModule mod_x.c>\n<Files a>\n</FILES>\n</ifmodule>\n",
        "<IfModule mod_x.c>\n<IfModule mod_y.c>\nX 1\n</IfModule >\n</IfModule>\n",
    ] {
        assert_eq!(mistake(text, &usual), "", "{text}");
    }
}

#[test]
fn a_denial_that_no_client_could_match_is_a_mistake() {
    let usual = Reading::default();
    let all = |lines: &str| format!("<RequireAll>\nRequire all granted\n{lines}\n</RequireAll>");
    let none = |lines: &str| all(&format!("<RequireNone>\n{lines}\n</RequireNone>"));
    let any = |lines: &str| none(&format!("<RequireAny>\n{lines}\n</RequireAny>"));
    for text in [
        "Deny from .evil.example".to_owned(),
        "deny from 192.0.2.1 evil.example".to_owned(),
        all("Require not host evil.example"),
        all("Require not forward-dns evil.example"),
        none("Require host evil.example"),
        any("Require ip 192.0.2.1\nRequire host evil.example"),
    ] {
        let found = mistake(&text, &usual);
        assert!(found.contains("write their addresses"), "{text}: {found}");
    }
    for name in ["dbm-group", "ldap-user", "file-owner", "file-group"] {
        for text in [all(&format!("Require not {name} x")), none(&format!("Require {name} x"))] {
            assert!(mistake(&text, &usual).contains("never denies"), "{text}");
        }
    }
    for text in [
        "Deny from none".to_owned(),
        "Deny from *".to_owned(),
        "Deny from 192.0.2.1-192.0.2.9".to_owned(),
        "Deny from 192.0.2.1 - 192.0.2.9".to_owned(),
        "Allow from .friend.example".to_owned(),
        "Require host friend.example".to_owned(),
        all("Require not ip 192.0.2.1"),
        none("Require ip 192.0.2.1"),
        "<RequireAny>\nRequire ldap-user x\nRequire ip 192.0.2.1\n</RequireAny>".to_owned(),
    ] {
        assert_eq!(mistake(&text, &usual), "", "{text}");
    }
}

#[test]
fn a_type_of_authentication_or_a_variable_that_the_server_lacks_is_a_mistake() {
    let usual = Reading::default();
    let test = |name: &str| format!("<If \"%{{{name}}} == 'x'\">\nRequire all denied\n</If>");
    for text in [
        "AuthType Digest\nRequire valid-user".to_owned(),
        "AuthType form".to_owned(),
        test("SSL_PROTOCOL"),
        test("SSL_CIPHER"),
    ] {
        assert!(mistake(&text, &usual).starts_with("/site/.htaccess:1: "), "{text}");
    }
    for text in
        ["AuthType basic\nRequire valid-user".to_owned(), "AuthType None".to_owned(), test("HTTPS")]
    {
        assert_eq!(mistake(&text, &usual), "", "{text}");
    }
}

#[test]
fn a_lookup_of_a_map_is_a_mistake() {
    let usual = Reading::default();
    let condition = |text: &str| format!("RewriteCond {text} =deny\nRewriteRule ^ - [F]");
    for text in [
        condition("${allowed:%{REMOTE_ADDR}|deny}"),
        condition("${blocked:%{REMOTE_ADDR}}"),
        condition("x${lc:%{HTTP_USER_AGENT}}"),
        condition("${x}${%{HTTP:Host}:a}"),
        "RewriteRule ^(.*)$ ${pages:$1|/none.html}".to_owned(),
        "RewriteRule ^ - [E=a:${users:%{REMOTE_USER}}]".to_owned(),
        "RewriteRule ^ - [CO=;a;${users:a};.example.com]".to_owned(),
        "RewriteRule ^ - [T=${types:a}]".to_owned(),
        "RewriteRule ^ - [H=${handlers:a}]".to_owned(),
    ] {
        let found = mistake(&text, &usual);
        let is_expected = found.starts_with("/site/.htaccess:1: there is no RewriteMap here");
        assert!(is_expected, "{text}: {found}");
    }
    for text in [
        condition("${x}"),
        condition("\\${a:b}"),
        condition("${%{HTTP:Host}}"),
        condition("%{ENV:${a:b}}"),
        condition("${a:b"),
        "RewriteRule ^ ${a:b} [F]".to_owned(),
    ] {
        assert_eq!(mistake(&text, &usual), "", "{text}");
    }
}

#[test]
fn what_the_server_leaves_out_and_apache_may_not_gets_a_remark() {
    for (text, expected) in [
        ("<IfDefine PROD>\nRequire all denied\n</IfDefine>", Some("no name is defined here")),
        ("<IfDefine !PROD>\nRequire all denied\n</IfDefine>", None),
        ("<IfModule mod_x.c>\nRequire all denied\n</IfModule>", Some("no such module")),
        ("AddOutputFilter INCLUDES .shtml", Some("gets a 403")),
        ("SetOutputFilter INCLUDES", Some("gets a 403")),
        ("AddOutputFilter DEFLATE .html", Some("`compression` says")),
        ("SetOutputFilter DEFLATE", Some("`compression` says")),
    ] {
        let parsed = parse(text.as_bytes(), b"/site/", &Reading::default());
        let why = match &parsed.remarks[0].verdict {
            Verdict::Skipped(why) => Some(why.as_str()),
            _ => None,
        };
        let is_expected = match expected {
            Some(words) => why.is_some_and(|why| why.contains(words)),
            None => why.is_none(),
        };
        assert!(parsed.conf.is_ok() && is_expected, "{text}: {why:?}");
    }
}

#[test]
fn handlers_whose_programs_do_not_run_get_a_remark() {
    for (text, is_remarked) in [
        ("AddHandler CGI-Script .pl", true),
        ("AddType application/x-httpd-cgi .pl", true),
        ("SetHandler fcgid-script", true),
        ("SetHandler proxy:fcgi://127.0.0.1:9000", true),
        ("SetHandler proxy:unix:/run/php-fpm.sock|fcgi://localhost", false),
        ("AddHandler application/x-httpd-php .x", false),
        ("AddCharset cgi-script .pl", false),
    ] {
        let parsed = parse(text.as_bytes(), b"/site/", &Reading::default());
        let remarked = match &parsed.remarks[0].verdict {
            Verdict::Skipped(why) => why.contains("gets a 403"),
            _ => false,
        };
        assert!(parsed.conf.is_ok() && remarked == is_remarked, "{text}");
    }
}

#[test]
fn a_line_or_a_section_that_refuses_denies_where_unknown_ones_are_ignored() {
    let ignoring = Reading { ignores_unknown: true, ..Reading::default() };
    let denies = |text: &str| {
        let parsed = parse(text.as_bytes(), b"/site/", &ignoring);
        assert!(parsed.conf.is_ok(), "{text}");
        matches!(parsed.remarks[0].verdict, Verdict::Refused(_))
    };
    for line in ["SSLVerifyClient require", "SSLRequire %{SSL_CLIENT_S_DN_O} eq \"x\""] {
        assert!(denies(line), "{line}");
        assert_ne!(mistake(line, &Reading::default()), "", "{line}");
    }
    for value in ["none", "Optional", "\"optional_no_ca\""] {
        let line = format!("SSLVerifyClient {value}");
        assert!(!denies(&line), "{line}");
        assert_eq!(mistake(&line, &Reading::default()), "", "{line}");
    }
    let section = |line: &str| denies(&format!("<IfFile x>\n{line}\n</IfFile>"));
    for line in [
        "SSLVerifyClient require",
        "SSLRequire %{HTTPS} eq \"on\"",
        "RewriteRule ^private - [NC,F]",
        "RewriteRule \"^a b\" - [R=404,L]",
        "RewriteRule ^private - [gone]",
        "RedirectMatch 403 ^/private",
        "Redirect gone /private",
        "php_flag engine off",
        "php_value engine 0",
        "php_value open_basedir /srv/a",
        "php_value auto_prepend_file \"/srv/a/waf.php\"",
        "SetHandler none",
        "AddHandler default-handler .html .PHP",
        "AddHandler cgi-script .cgi",
        "AddHandler server-parsed .shtml",
        "RemoveHandler .html phtml",
        "RemoveHandler",
    ] {
        assert!(section(line), "{line}");
    }
    for line in [
        "SSLVerifyClient none",
        "RewriteRule ^a b.php [L,R=301]",
        "RewriteRule ^a b.php",
        "Redirect 301 /a /b",
        "RedirectMatch ^/a /b",
        "php_flag display_errors off",
        "php_flag engine On",
        "php_value engine 1",
        "php_value memory_limit 256M",
        "php_value auto_prepend_file none",
        "AddHandler application/x-httpd-php83 .php",
        "AddHandler type-map .var",
        "RemoveHandler .html .htm",
        "Require all granted",
    ] {
        assert!(!section(line), "{line}");
    }
}

#[test]
fn braces_of_a_long_line_take_linear_time() {
    // A search from each brace takes minutes.
    const BYTES: usize = 1 << 20;
    let open = "${".repeat(BYTES / 2);
    let nested = format!("{}{}", "${".repeat(BYTES / 3), "}".repeat(BYTES / 3));
    let closed = "${}".repeat(BYTES / 3);
    let before = Instant::now();
    for text in [open, nested, closed] {
        let condition = format!("RewriteCond {text} x\nRewriteRule ^ - [F]");
        assert_eq!(mistake(&condition, &Reading::default()), "");
        assert_eq!(mistake(&format!("RewriteRule ^ {text}"), &Reading::default()), "");
    }
    assert!(before.elapsed() < Duration::from_secs(30), "{:?}", before.elapsed());
}
