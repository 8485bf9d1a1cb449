//! Rules of mod_rewrite lead where they lead in Apache.

use std::net::{IpAddr, Ipv4Addr};

use maitred_rules::path::clean_path;
use maitred_rules::site_rules::{RuleRequest, SiteRules, Verdict};

use super::access_tests::{of_host, written};
use super::*;

/// The path that a requested one is rewritten to, or the status of its refusal.
fn rewritten(imported: &Imported, path: &str) -> Result<String, u16> {
    let config = written(imported);
    let rules = SiteRules::compile(&config.sites[0].rules).expect("rules");
    let request = RuleRequest {
        path: &clean_path(path).expect("a path"),
        query: None,
        scheme: "http",
        host: "a.example",
        client: IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    match rules.decide(&request) {
        Verdict::Serve(serve) => {
            Ok(serve.rewritten.map_or(path.to_owned(), |rewritten| rewritten.path))
        }
        Verdict::Redirect { status, .. } => Err(status),
        Verdict::Refuse(refusal) => Err(refusal.status),
    }
}

#[test]
fn a_rule_of_a_virtual_host_that_matches_its_own_target_applies_once() {
    let missing = "RewriteCond %{REQUEST_FILENAME} !-f";
    for (rule, path, to) in [
        (r"^(.*)$ /index.php", "/x", "/index.php"),
        (r"^(.*)$ /index.php [QSA]", "/x", "/index.php"),
        (r"^ %{DOCUMENT_ROOT}/index.php [PT]", "/x", "/index.php"),
        (r"^/(.*)$ /index.php/$1", "/x", "/index.php/x"),
        (r"^/a/(.*)$ /a/b/$1?c=1", "/a/x", "/a/b/x"),
        (r"^/a/(.*)$ /a/b/$1?c=1", "/c", "/c"),
    ] {
        let lines = format!("RewriteEngine on\n{missing}\nRewriteRule {rule}");
        let imported = of_host(&lines);
        assert_eq!(rewritten(&imported, path).as_deref(), Ok(to), "{lines}\n{}", imported.toml);
    }
    let folder = "<Directory /srv/site1>\nRewriteEngine on\nRewriteRule ^(.*)$ index.php\n\
                  </Directory>";
    let imported = of_host(folder);
    assert_eq!(rewritten(&imported, "/x").as_deref(), Ok("/index.php"), "{}", imported.toml);
    // These start over.
    let chain = "RewriteEngine on\nRewriteRule ^/a$ /b\nRewriteRule ^/b$ /c";
    let imported = of_host(chain);
    assert_eq!(rewritten(&imported, "/a").as_deref(), Ok("/c"), "{}", imported.toml);
}
