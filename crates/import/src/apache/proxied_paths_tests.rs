//! Paths lead to the servers of `ProxyPass` as in Apache, or the import says so.

use super::access_tests::{is_denied, of_host, written};
use super::*;

/// Whether a path leads to another server.
fn is_proxied(imported: &Imported, path: &str) -> bool {
    let config = written(imported);
    config.sites[0].rules.proxy.iter().any(|rule| rule.path.matches(path.as_bytes()))
}

#[test]
fn an_exception_is_one_from_the_servers_of_later_lines_alone() {
    let api = "ProxyPass /api http://127.0.0.1:3000/api";
    for (lines, proxied, here) in [
        (
            format!("ProxyPass /api/internal !\n{api}"),
            &["/api", "/api/x"][..],
            &["/api/internal"][..],
        ),
        (format!("{api}\nProxyPass /api/internal !"), &["/api/internal"], &["/x"]),
        (format!("ProxyPass /api !\n{api}"), &[], &["/api", "/api/x"]),
        (
            format!("ProxyPass /api !\n{api}\nProxyPass /api/x http://127.0.0.1:3000"),
            &[],
            &["/api/x"],
        ),
        ("ProxyPass / http://b/\nProxyPass /data !".to_owned(), &["/data/x", "/x"], &[]),
        (
            format!("{api}\n<Location /api/internal>\nProxyPass !\n</Location>"),
            &["/api/x"],
            &["/api/internal/x"],
        ),
        (
            "<Location /api/internal>\nProxyPass !\n</Location>\n<Location /api>\n\
             ProxyPass http://127.0.0.1:3000/api\n</Location>"
                .to_owned(),
            &["/api/internal/x"],
            &["/x"],
        ),
        (
            "ProxyPass /api !\n<Location /api>\nProxyPass http://127.0.0.1:3000/api\n</Location>"
                .to_owned(),
            &["/api/x"],
            &["/x"],
        ),
        (format!("ProxyPassMatch ^/static/ !\n{api}"), &["/api/x"], &["/static/x"]),
    ] {
        let imported = of_host(&lines);
        assert!(imported.report.keeps_access(), "{lines}\n{}", imported.report);
        for (path, leads) in
            proxied.iter().map(|path| (path, true)).chain(here.iter().map(|path| (path, false)))
        {
            assert_eq!(is_proxied(&imported, path), leads, "{path}\n{lines}\n{}", imported.toml);
            assert!(!is_denied(&imported, path), "{path}\n{lines}\n{}", imported.toml);
        }
    }
}

#[test]
fn exceptions_that_no_pattern_has_are_left_out_as_access_and_lead_nowhere() {
    let api = "ProxyPass /api http://127.0.0.1:3000/api";
    let many: String = (0..30).map(|at| format!("ProxyPass /api/x{at} !\n")).collect();
    for lines in [
        format!(
            "<LocationMatch \"^/api/v[0-9]+/internal/\">\nProxyPass !\n</LocationMatch>\n{api}"
        ),
        format!(
            "ProxyPassMatch ^/api/internal !\n{api}\nProxyPassMatch ^/(.*\\.php)$ \
             fcgi://127.0.0.1:9000/srv/site1/$1"
        ),
        format!("ProxyPassMatch ^/(x|api)/internal !\n{api}"),
        format!("ProxyPassMatch ^/static|^/api/internal !\n{api}"),
        format!("ProxyPassMatch ^/apis?/internal !\n{api}"),
        format!("{many}{api}"),
    ] {
        let imported = of_host(&lines);
        assert!(!imported.report.keeps_access(), "{lines}\n{}", imported.report);
        for path in ["/api/v1/internal/x", "/api/internal", "/api/x1", "/api"] {
            assert!(!is_proxied(&imported, path), "{path}\n{lines}\n{}", imported.toml);
            assert!(is_denied(&imported, path), "{path}\n{lines}\n{}", imported.toml);
        }
    }
}

#[test]
fn exceptions_below_a_prefix_that_is_taken_off_are_left_out_as_access_and_lead_nowhere() {
    for exception in ["ProxyPass /app/static !", "ProxyPassMatch ^/app/v[0-9]+ !"] {
        for app in
            ["ProxyPass /app/ http://127.0.0.1:3000/", "ProxyPass /app http://127.0.0.1:3000"]
        {
            let lines = format!("{exception}\n{app}");
            let imported = of_host(&lines);
            assert!(!imported.report.keeps_access(), "{lines}\n{}", imported.report);
            for path in ["/app/static/x", "/app/x"] {
                assert!(!is_proxied(&imported, path), "{path}\n{lines}\n{}", imported.toml);
                assert!(is_denied(&imported, path), "{path}\n{lines}\n{}", imported.toml);
            }
        }
    }
    let other = of_host("ProxyPass /static !\nProxyPass /app/ http://127.0.0.1:3000/");
    assert!(other.report.keeps_access(), "{}", other.report);
    assert!(other.toml.contains("strip_prefix = true"), "{}", other.toml);
}

#[test]
fn a_variable_that_excepts_requests_from_other_servers_is_left_out_as_access() {
    for line in [
        "SetEnvIf Request_URI ^/api/internal no-proxy",
        "SetEnvIfExpr \"%{REQUEST_URI} =~ /x/\" no-proxy=1",
        "BrowserMatch curl x no-proxy",
        "RewriteEngine on\nRewriteRule ^/api/internal - [E=no-proxy:1]",
    ] {
        assert!(!of_host(line).report.keeps_access(), "{line}");
    }
    for line in ["BrowserMatch MSIE nokeepalive", "SetEnvIfExpr \"true\" x=1"] {
        assert!(of_host(line).report.keeps_access(), "{line}");
    }
}
