//! Exceptions from `fastcgi_cache`: each has a counterpart, or no page is cached.

use super::laxer_tests::of_server;
use crate::Imported;

/// The import of a server with a cache and these exceptions.
fn of_cache(server: &str, exceptions: &str) -> Imported {
    of_server(&format!(
        "set $skip 0; set $other 0; {server}\n\
         location ~ \\.php$ {{ fastcgi_pass unix:/run/php.sock; fastcgi_cache WP; \
         fastcgi_cache_valid 1m; {exceptions} }}"
    ))
}

/// A list of the cache is this one.
fn has_list(imported: &Imported, name: &str, items: &[&str]) {
    let toml = &imported.toml;
    let (_, list) = toml.split_once(&format!("\n{name} = [\n")).expect(toml);
    let (list, _) = list.split_once("\n]").expect(toml);
    let found: Vec<&str> = list.lines().filter_map(|line| line.split('"').nth(1)).collect();
    assert_eq!(found, items, "{name}\n{toml}");
}

#[test]
fn each_variable_of_an_exception_is_one_of_its_own() {
    let imported = of_cache("", "fastcgi_no_cache $cookie_nocache $arg_nocache$arg_comment;");
    has_list(&imported, "no_store_cookies", &["nocache", "NOCACHE"]);
    has_list(&imported, "no_store_parameters", &["nocache", "NOCACHE", "comment", "COMMENT"]);
    let imported = of_cache("", "fastcgi_cache_bypass $cookie_a${http_x_purge} $cookie_sessionId;");
    has_list(&imported, "bypass_cookies", &["a", "A", "sessionId", "sessionid", "SESSIONID"]);
    has_list(&imported, "bypass_headers", &["x-purge"]);
    assert!(imported.report.to_string().contains("compared with their case"));
}

#[test]
fn no_page_is_cached_where_an_exception_is_about_more_than_a_name_or_a_path() {
    let no_cache = "fastcgi_no_cache $skip;";
    for (server, exceptions) in [
        ("", "fastcgi_no_cache $skip$other;"),
        ("", "fastcgi_no_cache $skip$arg_a;"),
        ("", "fastcgi_no_cache $arg_add-to-cart;"),
        ("", "fastcgi_no_cache $cookie_a:$cookie_b;"),
        ("", "fastcgi_no_cache $cookie_;"),
        ("if ($http_cookie ~ \"role=admin|sid=\") { set $skip 1; }", no_cache),
        ("if ($http_cookie ~* \"prestashop|wikiuserid\") { set $skip 1; }", no_cache),
        ("if ($request_uri ~ \"\\?\") { set $skip 1; }", no_cache),
    ] {
        let imported = of_cache(server, exceptions);
        let Imported { toml, report, .. } = &imported;
        assert!(!toml.contains("[sites.cache]"), "{server}{exceptions}\n{toml}");
        assert!(report.to_string().contains("no page is cached"), "{server}{exceptions}\n{report}");
    }
}

#[test]
fn an_exception_about_the_query_is_one_of_its_parameters() {
    let server = "if ($request_uri ~* \"preview=true|\\?s=|add-to-cart=|/Cart/\") { set $skip 1; }";
    let imported = of_cache(server, "fastcgi_no_cache $skip;");
    has_list(&imported, "no_store_parameters", &["*preview", "s", "*add-to-cart"]);
    has_list(
        &imported,
        "no_store_paths",
        &["*preview=true*", "*add-to-cart=*", "*/Cart/*", "*/cart/*"],
    );
    assert!(imported.report.to_string().contains("query of an address is not compared"));
    // As OpenCart has them: /index.php?route=checkout/cart.
    let server = "if ($request_uri ~* \"checkout/cart|account|/a/\") { set $skip 1; }";
    let exceptions = "fastcgi_no_cache $skip; fastcgi_cache_bypass $skip;";
    let imported = of_cache(server, exceptions);
    has_list(&imported, "no_store_parameters", &["*"]);
    has_list(&imported, "no_store_paths", &["*checkout/cart*", "*account*", "*/a/*"]);
    assert!(!imported.report.to_string().contains("is not compared"), "{}", imported.report);
    let imported = of_cache("if ($http_cookie ~ admin) { set $skip 1; }", exceptions);
    assert!(imported.report.to_string().contains("values of cookies"), "{}", imported.report);
    let server = "if ($http_cookie ~* \"comment_author|wordpress_[a-f0-9]+|wp-postpass|\
                  wordpress_logged_in\") { set $skip 1; }";
    let imported = of_cache(server, "fastcgi_no_cache $skip;");
    has_list(
        &imported,
        "private_cookies",
        &[
            "PHPSESSID",
            "*comment_author*",
            "*wordpress_*",
            "*wp-postpass*",
            "*wordpress_logged_in*",
        ],
    );
}

#[test]
fn no_page_is_cached_where_the_front_controller_is_an_exception() {
    const FRONT: &str = "location / { try_files $uri $uri/ /index.php?$args; }";
    for (front, test, is_cached) in [
        (FRONT, "$uri ~ \"/wp-admin/|index.php|/feed/\"", false),
        (FRONT, "$uri ~* \"INDEX\"", false),
        (FRONT, "$uri ~ \"^/admin/index\\.php\"", false),
        (FRONT, "$uri ~* \"^/ADMIN/INDEX\\.PHP\"", false),
        (FRONT, "$uri ~ \"^/admin/.*\\.php\"", false),
        ("", "$uri ~ \"^/index\\.php$\"", false),
        ("", "$uri ~ \"^/index\"", false),
        ("", "$uri ~ \"^/index.php\"", false),
        ("", "$uri ~ \"^/xmlrpc\\.php\"", true),
        (FRONT, "$uri ~ \"/wp-admin/|/feed/\"", true),
        (FRONT, "$request_uri ~ \"/wp-admin/|index.php|/feed/\"", true),
    ] {
        let server = format!("index index.php; {front} if ({test}) {{ set $skip 1; }}");
        let Imported { toml, report, .. } = of_cache(&server, "fastcgi_no_cache $skip;");
        assert_eq!(toml.contains("[sites.cache]"), is_cached, "{test}\n{toml}\n{report}");
        assert_eq!(!report.to_string().contains("no page is cached"), is_cached, "{report}");
    }
}

#[test]
fn a_header_against_caches_is_named_where_pages_are_cached() {
    let is_named = |imported: &Imported| {
        imported.report.to_string().contains("the page cache stores no response with it")
    };
    for header in ["Cache-Control \"max-age=0, No-Cache\"", "Set-Cookie a=b"] {
        let header = format!("add_header {header};");
        assert!(is_named(&of_cache(&header, "")), "{header}");
        assert!(is_named(&of_cache("", &header)), "{header}");
        assert!(!is_named(&of_server(&header)), "{header}");
    }
    assert!(!is_named(&of_cache("add_header Cache-Control public; add_header X-A private;", "")));
    let ignored = "fastcgi_ignore_headers Cache-Control;";
    assert!(!is_named(&of_cache("add_header Cache-Control private;", ignored)));
}
