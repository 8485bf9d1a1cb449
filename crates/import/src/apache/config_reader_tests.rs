//! No line of Apache's configuration is lost before it is imported.

use super::access_tests::{expect_denied, of_host, section};

#[test]
fn folders_that_cannot_be_listed_are_left_out_as_access() {
    for line in [
        "IncludeOptional /unlisted/*.conf",
        "Include /unlisted/a.conf",
        "IncludeOptional /unlisted/a",
    ] {
        let imported = of_host(line);
        assert!(!imported.report.keeps_access(), "{line}\n{}", imported.report);
    }
    assert!(of_host("IncludeOptional /listed/*.conf").report.keeps_access());
}

#[test]
fn lines_for_versions_of_an_expression_are_those_of_this_version() {
    let of = |condition: &str| {
        format!("<IfVersion {condition}>\n{}\n</IfVersion>", section("Location /a"))
    };
    // As Apache 2.4 does.
    for condition in [
        "~ ^2\\.4",
        "~ \"^2\\.4\"",
        "!~ ^2\\.2",
        "= /^2\\.4/",
        "== /^2\\.4/",
        "!= /^2\\.2/",
        "/^2\\.4/",
        "~ ^2\\.(?!2)",
        ">= 2.4",
    ] {
        expect_denied(&of(condition), &["/a"], &["/b"]);
    }
    for condition in ["~ ^2\\.2", "= /^2\\.2/", "!~ ^2\\.4", "~ /^2\\.4/", "2.4", "< 2.4"] {
        expect_denied(&of(condition), &[], &["/a"]);
    }
    for condition in ["~ [", "= /^2\\.4", "=~ ^2", "> /2/", "= 2.x"] {
        let imported = of_host(&of(condition));
        assert!(!imported.report.keeps_access(), "{condition}\n{}", imported.report);
    }
}

#[test]
fn sections_are_evaluated_with_the_names_that_apache_is_started_with() {
    let denied = section("Location /a");
    let lines = format!("<IfDefine OUTER>\n<IfDefine INNER>\n{denied}\n</IfDefine>\n</IfDefine>");
    expect_denied(&lines, &["/a"], &["/b"]);
    for name in ["IfDefine OTHER", "IfModule other_module"] {
        let end = name.split(' ').next().unwrap_or_default();
        let imported = of_host(&format!("<{name}>\n{denied}\n</{end}>"));
        let mut findings = imported.report.findings().iter();
        assert!(findings.any(|one| one.what.contains(end)), "{name}\n{}", imported.report);
    }
    assert!(!of_host("RegexDefaultOptions +ICASE").report.keeps_access());
    assert!(of_host("RegexDefaultOptions -DOTALL").report.keeps_access());
}

#[test]
fn a_section_of_a_module_is_entered_by_the_symbol_or_the_source_of_it_as_in_apache() {
    let load = ["mod_shib", "ldap_module", "mpm_prefork_module", "authz_core_module"]
        .map(|symbol| format!("LoadModule {symbol} /m.so\n"))
        .concat();
    for (name, is_entered) in [
        ("mod_shib", true),
        ("mod_shib.cpp", true),
        ("shib_module", false),
        ("rewrite_module", true),
        ("mod_rewrite.c", true),
        ("mod_rewrite", false),
        ("rewrite", false),
        ("util_ldap.c", true),
        ("mod_ldap.c", false),
        ("prefork.c", true),
        ("mod_mpm_prefork.c", false),
        ("mod_http.c", false),
        ("prefork", false),
        ("mod_so.c", true),
        ("core.c", true),
        ("http_core.c", true),
        ("log_config_module", true),
    ] {
        let of = |name: &str| {
            format!("{load}<IfModule {name}>\n{}\n</IfModule>", section("Location /a"))
        };
        let open: &[&str] = if is_entered { &[] } else { &["/a"] };
        let denied: &[&str] = if is_entered { &["/a"] } else { &[] };
        expect_denied(&of(name), denied, open);
        expect_denied(&of(&format!("!{name}")), open, denied);
    }
}

#[test]
fn a_section_of_a_name_that_is_not_defined_is_left_out_as_access_if_it_may_decide_on_it() {
    let load = "LoadModule authz_core_module /m.so\n";
    let location = section("Location /debug");
    let host = "<VirtualHost *:443>\nServerName b.example\n</VirtualHost>";
    let unknown = "<IfDefine B>\nFrobnicate\n</IfDefine>";
    for (lines, is_access) in [
        (location.as_str(), true),
        (host, true),
        (unknown, true),
        ("Include /more.conf", true),
        ("RewriteRule ^/a - [F]", true),
        ("<Location /a>\nSetHandler none\n</Location>", true),
        ("ServerAlias www.a.example", true),
        ("<Directory /srv/site1/backup>\nOptions -Indexes\n</Directory>", true),
        ("ProxyPass /intern !", true),
        ("Alias /a /srv/a", true),
        ("DocumentRoot /srv/b", true),
        ("Redirect permanent / https://a.example/", true),
        ("RewriteEngine on", true),
        ("AddHandler application/x-httpd-php .inc", true),
        ("AddHandler cgi-script .cgi", false),
        ("ErrorLog /x", false),
        ("Listen 443", false),
        ("<Location /a>\nHeader set X 1\n</Location>", false),
        ("DirectoryIndex index.htm", false),
    ] {
        let of = |name: &str| of_host(&format!("{load}<IfDefine {name}>\n{lines}\n</IfDefine>"));
        let imported = of("PROD");
        assert_eq!(!imported.report.keeps_access(), is_access, "{lines}\n{}", imported.report);
        assert!(imported.report.to_string().contains("neither defined"), "{}", imported.report);
    }
    // As Debian's serve-cgi-bin.conf: the files themselves define the name.
    let defined = format!(
        "{load}<IfModule mod_cgi.c>\nDefine CGI\n</IfModule>\n<IfDefine CGI>\n{location}\n\
         </IfDefine>\n<IfDefine !OUTER>\n{location}\n</IfDefine>"
    );
    assert!(of_host(&defined).report.keeps_access(), "{}", of_host(&defined).report);
    let perhaps = defined.replace("IfModule mod_cgi.c", "IfDefine PROD");
    let perhaps = perhaps.replacen("</IfModule>", "</IfDefine>", 1);
    assert!(!of_host(&perhaps).report.keeps_access());
    // Its modules are built in.
    let built_in = format!("<IfModule mod_alias.c>\n{location}\n</IfModule>");
    assert!(!of_host(&built_in).report.keeps_access());
}

#[test]
fn a_section_of_a_module_that_a_section_loads_which_may_apply_is_left_out_as_access() {
    let load = "LoadModule authz_core_module /m.so\n";
    let perhaps = "<IfDefine AUTHNZ_LDAP>\nLoadModule authnz_ldap_module /m.so\n</IfDefine>\n";
    let denied = section("Location /intern");
    let host = "<VirtualHost *:443>\nServerName b.example\n</VirtualHost>";
    for (name, lines, is_kept) in [
        ("IfModule mod_authnz_ldap.c", denied.as_str(), false),
        ("IfModule authnz_ldap_module", host, false),
        // Its lines are imported.
        ("IfModule !mod_authnz_ldap.c", &denied, false),
        ("IfModule mod_authnz_ldap.c", "ErrorLog /x", true),
        ("IfModule mod_other.c", &denied, true),
    ] {
        let of = |perhaps: &str| of_host(&format!("{load}{perhaps}<{name}>\n{lines}\n</IfModule>"));
        let imported = of(perhaps);
        assert_eq!(imported.report.keeps_access(), is_kept, "{name}\n{}", imported.report);
        assert!(of("").report.keeps_access(), "{name}\n{}", of("").report);
    }
    let defined = format!(
        "{load}Define AUTHNZ_LDAP\n{perhaps}<IfModule mod_authnz_ldap.c>\n{denied}\n</IfModule>"
    );
    expect_denied(&defined, &["/intern"], &[]);
    // The module defines the name, as another one does that is not there.
    let names = format!(
        "{load}{perhaps}<IfModule mod_other.c>\nDefine N\n</IfModule>\n\
         <IfModule mod_authnz_ldap.c>\nDefine N\n</IfModule>\n<IfDefine N>\n{denied}\n</IfDefine>"
    );
    assert!(!of_host(&names).report.keeps_access(), "{}", of_host(&names).report);
    let other = names.replace(perhaps, "");
    assert!(of_host(&other).report.keeps_access(), "{}", of_host(&other).report);
}
