//! Directives whose effect depends on others are imported with that effect, or the report says what
//! is different.

use super::access_tests::{expect_denied, of_host, written};
use super::*;
use crate::report::Outcome;

/// The outcome of the directive that begins like this.
fn outcome(imported: &Imported, what: &str) -> Outcome {
    let mut found = imported.report.findings().iter().filter(|one| one.what.starts_with(what));
    let worst = found.by_ref().map(|one| one.outcome).max();
    worst.unwrap_or_else(|| panic!("{what}\n{}", imported.report))
}

fn of_server(lines: &str) -> Imported {
    let host = "<VirtualHost *:80>\nServerName b.example\nDocumentRoot /srv/b";
    of_host(&format!("</VirtualHost>\n{lines}\n{host}"))
}

#[test]
fn the_lines_of_a_section_name_its_index_together() {
    let index = "DirectoryIndex index.html\nDirectoryIndex index.php";
    let folder = |lines: &str| format!("<Directory /srv/site1>\n{lines}\n</Directory>");
    for (imported, names) in [
        (of_server(index), vec!["index.html", "index.php"]),
        (of_server(&format!("{index}\nDirectoryIndex disabled")), vec!["disabled"]),
        (of_server(&format!("DirectoryIndex disabled\n{index}")), vec!["index.html", "index.php"]),
        (
            of_host(&format!("DirectoryIndex a.html\n{}", folder(index))),
            vec!["index.html", "index.php"],
        ),
        (
            of_host(&format!("{index}\n{}", folder("Options Indexes"))),
            vec!["index.html", "index.php"],
        ),
    ] {
        assert_eq!(written(&imported).sites[0].index, names, "{}", imported.toml);
    }
}

#[test]
fn the_pool_of_mod_php_reads_no_user_ini() {
    let module = "LoadModule php_module /m.so\nAddType application/x-httpd-php .php";
    let imported = of_server(&format!("{module}\nphp_value memory_limit 8M"));
    let config = written(&imported);
    let name = config.pool("apache").and_then(|pool| pool.php_admin_value.get("user_ini.filename"));
    assert_eq!(name.map(String::as_str), Some(""), "{}", imported.toml);
}

#[test]
fn a_trusted_proxy_may_name_private_addresses_here_and_a_rule_that_lets_them_in_is_reported() {
    let header = "RemoteIPHeader X-Forwarded-For";
    let trusted = format!("{header}\nRemoteIPTrustedProxy 192.0.2.1");
    let internal = format!("{header}\nRemoteIPInternalProxy 192.0.2.1");
    let only = |network: &str| format!("<Location /x>\nRequire ip {network}\n</Location>");
    let of = |lines: &str, rule: &str| {
        let host = format!("<VirtualHost *:80>\nServerName b.example\nDocumentRoot /srv/b\n{rule}");
        of_host(&format!("</VirtualHost>\n{lines}\n{host}"))
    };
    for (lines, rule, expected) in [
        (&trusted, only("10.0.0.0/8"), Outcome::LeftOutAccess),
        (&trusted, only("192.0.2.0/24"), Outcome::Changed),
        (&trusted, String::new(), Outcome::Changed),
        (&internal, only("10.0.0.0/8"), Outcome::Kept),
    ] {
        let imported = of(lines, &rule);
        let found = outcome(&imported, lines.split_once('\n').expect("two").1);
        assert_eq!(found, expected, "{lines}\n{rule}\n{}", imported.report);
    }
}

#[test]
fn a_condition_about_the_path_stands_for_a_rule_without_a_folder_alone() {
    let rules = |conditions: &str| format!("RewriteEngine on\n{conditions}\nRewriteRule ^ - [F]");
    let of_php = r"RewriteCond %{REQUEST_URI} \.php$";
    let uploads = format!("<Directory /srv/site1/uploads>\n{}\n</Directory>", rules(of_php));
    let two = rules(&format!("{of_php}\nRewriteCond %{{REQUEST_URI}} ^/uploads/"));
    for lines in [uploads, two] {
        let imported = of_host(&lines);
        assert!(!imported.report.keeps_access(), "{lines}\n{}", imported.report);
        assert!(!imported.toml.contains("deny = "), "{lines}\n{}", imported.toml);
    }
    let root = format!("<Directory /srv/site1>\n{}\n</Directory>", rules(of_php));
    for lines in [rules(of_php), root] {
        expect_denied(&lines, &["/a/x.php"], &["/a/x.html"]);
    }
}

#[test]
fn directives_with_another_effect_are_reported_as_such() {
    let module = "LoadModule php_module /m.so\nAddType application/x-httpd-php .php";
    let fallback = "<Directory /srv>\nFallbackResource /index.php\n</Directory>";
    let none =
        |folder: &str| format!("<Directory {folder}>\nFallbackResource disabled\n</Directory>");
    for (lines, what, expected) in [
        ("AcceptPathInfo Off".to_owned(), "AcceptPathInfo", Outcome::LeftOut),
        ("AcceptPathInfo On".to_owned(), "AcceptPathInfo", Outcome::Kept),
        ("UserDir public_html".to_owned(), "UserDir", Outcome::LeftOut),
        ("UserDir disabled".to_owned(), "UserDir", Outcome::Kept),
        ("UseCanonicalName On".to_owned(), "UseCanonicalName", Outcome::Changed),
        ("UseCanonicalName Off".to_owned(), "UseCanonicalName", Outcome::Kept),
        (format!("{module}\n{}", none("/srv/site1")), "FallbackResource disabled", Outcome::Kept),
        (
            format!("{module}\n{fallback}\n{}", none("/srv/site1/a")),
            "FallbackResource disabled",
            Outcome::LeftOut,
        ),
        (
            "Header edit Set-Cookie ^(.*)$ $1;HttpOnly;Secure".to_owned(),
            "Header",
            Outcome::LeftOutAccess,
        ),
        ("Header edit Link a b".to_owned(), "Header", Outcome::LeftOut),
        (
            "RequestHeader set X-Forwarded-Proto https".to_owned(),
            "RequestHeader",
            Outcome::LeftOutAccess,
        ),
        ("SetEnvIf X-Forwarded-Proto https HTTPS=on".to_owned(), "SetEnvIf", Outcome::LeftOut),
    ] {
        let imported = of_host(&lines);
        assert_eq!(outcome(&imported, what), expected, "{lines}\n{}", imported.report);
    }
    let of_proxy = of_host("SetEnvIf X-Forwarded-Proto https HTTPS=on");
    assert!(of_proxy.report.to_string().contains("trusted_headers"), "{}", of_proxy.report);
    let disabled = of_host(&format!("{module}\n{fallback}\n{}", none("/srv/site1")));
    assert!(!disabled.toml.contains("/index.php"), "{}", disabled.toml);
}
