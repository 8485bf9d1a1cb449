//! What a site of Unit's routes never runs or sends, and Unit does not.

use maitred_config::{Config, Site};
use maitred_rules::Pattern;

use super::import;
use crate::Imported;
use crate::only_file::OnlyFile;

/// Applications `a` with the targets `direct`, `index` and `up`, and `b` with another user.
const APPLICATIONS: &str = r#"{
    "a": {"type": "php", "user": "web", "targets": {"direct": {"root": "/srv/a"},
        "index": {"root": "/srv/a", "script": "index.php"},
        "up": {"root": "/srv/a/up", "script": "get.php"}}},
    "b": {"type": "php", "user": "admin", "root": "/srv/b", "script": "index.php"},
    "same": {"type": "php", "user": "other", "root": "/srv/a", "script": "index.php"},
    "node": {"type": "external", "executable": "/srv/node"}}"#;

/// The rest of the paths: files, and a front controller.
const REST: &str = r#"{"action": {"share": "/srv/a$uri",
    "fallback": {"pass": "applications/a/index"}}}"#;

/// The import of `routes`, whose `main` a listener has.
fn of(routes: &str) -> Imported {
    let text = format!(
        r#"{{"listeners": {{"*:80": {{"pass": "routes/main"}}}}, "routes": {{{routes}}},
        "applications": {APPLICATIONS}}}"#
    );
    import(&OnlyFile(text), "unit.json").expect("it can be imported")
}

fn config(imported: &Imported) -> Config {
    let parsed = maitred_config::parse(&imported.toml, std::path::Path::new("/x/maitred.toml"));
    parsed.unwrap_or_else(|why| panic!("{why}\n{}", imported.toml))
}

/// Whether all clients are refused a path by the site of a host, which exists.
fn is_denied(imported: &Imported, host: &str, path: &str) -> bool {
    let config = config(imported);
    let mut sites = config.sites.iter();
    let is_own = |site: &&Site| site.hosts.iter().any(|own| own.to_string() == host);
    let site = sites.find(is_own).unwrap_or_else(|| panic!("no {host}\n{}", imported.toml));
    site.rules.deny.iter().any(|rule| rule.path.matches(path.as_bytes()))
}

fn is_strict(routes: &str) {
    let imported = of(routes);
    assert!(imported.report.keeps_access(), "{routes}\n{}\n{}", imported.toml, imported.report);
}

fn says_laxer(routes: &str) {
    let imported = of(routes);
    assert!(!imported.report.keeps_access(), "{routes}\n{}\n{}", imported.toml, imported.report);
}

#[test]
fn scripts_of_another_user_or_another_folder_are_named() {
    let of_step = |pass: &str| {
        let step = format!(
            r#"{{"match": {{"uri": "/admin/*"}}, "action": {{"pass": "applications/{pass}"}}}}"#
        );
        format!(r#""main": [{step}, {REST}]"#)
    };
    says_laxer(&of_step("b"));
    says_laxer(&of_step("same"));
    is_strict(&of_step("a/index"));
    let below = of(&format!(
        r#""main": [{{"match": {{"uri": "/a.php"}}, "action": {{"pass": "applications/a/direct"}}}},
        {{"match": {{"uri": "/up/*"}}, "action": {{"pass": "applications/a/up"}}}}, {REST}]"#
    ));
    assert!(below.toml.contains("to = \"/up/get.php\""), "{}", below.toml);
    assert!(below.report.keeps_access(), "{}", below.report);
}

#[test]
fn applications_of_similar_names_have_a_pool_with_their_own_user_each() {
    let text = r#"{"listeners": {"*:80": {"pass": "routes"}}, "routes": [
        {"match": {"host": "a.example"}, "action": {"pass": "applications/shop.a"}},
        {"match": {"host": "b.example"}, "action": {"pass": "applications/shop-a"}},
        {"match": {"host": "c.example"}, "action": {"pass": "applications/shop.a"}}],
        "applications": {
        "shop.a": {"type": "php", "user": "shopa", "root": "/srv/a", "script": "index.php"},
        "shop-a": {"type": "php", "user": "shopb", "root": "/srv/b", "script": "index.php"}}}"#;
    let imported = import(&OnlyFile(text.to_owned()), "unit.json").expect("it can be imported");
    let sites = imported.toml.split("[[sites]]").skip(1);
    let pools =
        sites.map(|site| site.split("pool = \"").nth(1).and_then(|pool| pool.split('"').next()));
    let users = pools.map(|pool| {
        let section = format!("[pools.{}]", pool.expect("the site has a pool"));
        let lines = imported.toml.split(&section).nth(1).expect("the pool is there");
        lines.split("user = \"").nth(1).and_then(|user| user.split('"').next())
    });
    let users: Vec<Option<&str>> = users.collect();
    assert_eq!(users, ["shopa", "shopb", "shopa"].map(Some), "{}", imported.toml);
}

#[test]
fn a_share_without_the_path_is_one_file() {
    let imported = of(&format!(
        r#""main": [{{"match": {{"host": "a.example"}}, "action": {{"share": "/srv/landing/"}}}},
            {REST}]"#
    ));
    assert!(imported.report.to_string().contains("one file /srv/landing/index.html"));
    assert!(!imported.report.keeps_access() && !imported.toml.contains("/srv/landing\""));
    assert!(is_denied(&imported, "a.example", "/zz9"), "{}", imported.toml);
    for share in
        [r#""/srv/a/""#, r#""/srv/a/a.html""#, r#"["/srv/a/a.html", "/srv/a$uri"]"#, r#""/srv/a""#]
    {
        says_laxer(&format!(r#""main": [{}]"#, REST.replace(r#""/srv/a$uri""#, share)));
    }
    let list = REST.replace(r#""/srv/a$uri""#, r#"["/srv/a$uri", "/srv/b$uri"]"#);
    let imported = of(&format!(r#""main": [{list}]"#));
    assert!(imported.report.to_string().contains("one share of 2"), "{}", imported.report);
    assert!(imported.report.keeps_access(), "{}", imported.report);
}

#[test]
fn an_application_without_a_user_is_named() {
    let text = r#"{"listeners": {"*:80": {"pass": "applications/a"}},
        "applications": {"a": {"type": "php", "root": "/srv/a"}}}"#;
    let imported = import(&OnlyFile(text.to_owned()), "unit.json").expect("it can be imported");
    assert!(imported.report.to_string().contains("set `user` of the pool"), "{}", imported.report);
}

#[test]
fn a_host_whose_routes_serve_no_files_has_a_site_that_serves_none() {
    let of_host = |action: &str| {
        of(&format!(
            r#""main": [{{"match": {{"host": "intern.example"}}, "action": {{"pass": "{action}"}}}},
                {REST}], "closed": [{{"action": {{"return": 403}}}}],
               "api": [{{"match": {{"uri": "/api/*"}},
                   "action": {{"proxy": "http://10.0.0.1:81"}}}}],
               "old": [{{"match": {{"uri": "/old"}},
                   "action": {{"return": 301, "location": "/new"}}}}]"#
        ))
    };
    for pass in ["routes/closed", "applications/node", "routes/missing", "routes/old"] {
        let imported = of_host(pass);
        assert!(imported.report.keeps_access(), "{pass}\n{}", imported.report);
        assert!(is_denied(&imported, "intern.example", "/a"), "{pass}\n{}", imported.toml);
        assert!(!is_denied(&imported, "*", "/a"), "{pass}\n{}", imported.toml);
    }
    assert!(of_host("routes/old").toml.contains("to = \"/new\""));
    let proxied = of_host("routes/api");
    assert!(proxied.report.keeps_access(), "{}", proxied.report);
    assert!(is_denied(&proxied, "intern.example", "/a"), "{}", proxied.toml);
    assert!(!is_denied(&proxied, "intern.example", "/api/a"), "{}", proxied.toml);
}

#[test]
fn the_first_step_of_a_host_has_its_requests() {
    let of_hosts = |first: &str, second: &str| {
        let step = |host: &str, route: &str| {
            format!(r#"{{"match": {{"host": "{host}"}}, "action": {{"pass": "routes/{route}"}}}}"#)
        };
        format!(
            r#""main": [{}, {}], "closed": [{{"action": {{"return": 403}}}}], "open": [{REST}]"#,
            step(first, "closed"),
            step(second, "open")
        )
    };
    says_laxer(&of_hosts("*.example.com", "b.example.com"));
    says_laxer(&of_hosts("*.example.com", "*.b.Example.com"));
    is_strict(&of_hosts("b.example.com", "*.example.com"));
    is_strict(&of_hosts("*.example.org", "b.example.com"));
    let twice = of_hosts("b.example.com", "B.example.com").replace(
        "\"main\": [",
        r#""main": [{"match": {"host": "c.example"}, "action": {"pass": "routes/open"}},"#,
    );
    assert!(is_denied(&of(&twice), "b.example.com", "/a"));
}

#[test]
fn scripts_that_a_step_refuses_after_another_has_run_some_do_not_run_unnoticed() {
    let refused = r#"{"match": {"uri": ["*.php", "*.php/*"]}, "action": {"return": 403}}"#;
    let some = r#"{"match": {"uri": ["/index.php", "/api.php"]},
        "action": {"pass": "applications/a/direct"}}"#;
    let rest = REST.replace("a/index", "a/direct");
    says_laxer(&format!(r#""main": [{some}, {refused}, {rest}]"#));
    is_strict(&format!(r#""main": [{some}, {refused}, {REST}]"#));
    let except = refused.replace("[\"*.php\"", "[\"!/b.php\", \"*.php\"");
    let later = some.replace("/api.php", "/b.php");
    is_strict(&format!(r#""main": [{some}, {except}, {later}, {REST}]"#));
    says_laxer(&format!(r#""main": [{some}, {except}, {refused}, {later}, {REST}]"#));
}

#[test]
fn a_script_that_no_step_has_does_not_run_unnoticed() {
    let all = r#"{"match": {"uri": "*.php"}, "action": {"pass": "applications/a/direct"}}"#;
    let but = |action: &str| {
        format!(r#"{{"match": {{"uri": "!/install.php"}}, "action": {{{action}}}}}"#)
    };
    let passed = but(r#""pass": "routes/rest""#);
    says_laxer(&format!(r#""main": [{passed}], "rest": [{all}, {REST}]"#));
    let proxied = of(&format!(r#""main": [{}, {REST}]"#, but(r#""proxy": "http://127.0.0.1:81""#)));
    let config = config(&proxied);
    let paths = config.sites[0].rules.proxy.iter().map(|rule| &rule.path);
    assert!(!paths.into_iter().any(|path| path.matches(b"/install.php")), "{}", proxied.toml);
    let shared = but(r#""share": "/srv/a$uri", "fallback": {"pass": "applications/a/index"}"#);
    is_strict(&format!(r#""main": [{shared}]"#));
    // Only the one script reaches the later step.
    says_laxer(&format!(r#""main": [{shared}, {all}]"#));
    let one = all.replace("*.php", "/install.php");
    is_strict(&format!(r#""main": [{shared}, {one}]"#));
}

#[test]
fn steps_that_no_request_reaches_run_nothing() {
    let all = r#"{"match": {"uri": "*.php"}, "action": {"pass": "applications/a/direct"}}"#;
    let imported = of(&format!(r#""main": [{REST}, {all}]"#));
    assert!(imported.report.keeps_access(), "{}", imported.report);
    assert!(imported.toml.contains("allow_php"), "{}", imported.toml);
}

#[test]
fn escaped_paths_are_those_that_clients_ask_for() {
    let step = |uri: &str| {
        format!(r#""main": [{{"match": {{"uri": "{uri}"}}, "action": {{"return": 403}}}}, {REST}]"#)
    };
    for uri in ["/my%20docs*", "/my%20docs/*", "*/my%20docs/a", "/my%20docs/a"] {
        let imported = of(&step(uri));
        assert!(is_denied(&imported, "*", "/my docs/a"), "{uri}\n{}", imported.toml);
    }
    says_laxer(&step("/my%2"));
}

#[test]
fn a_step_that_closes_all_hidden_files_closes_well_known_ones() {
    let of_list = |list: &str| {
        of(&format!(
            r#""main": [{{"match": {{"uri": [{list}]}}, "action": {{"return": 404}}}}, {REST}]"#
        ))
    };
    let closed = of_list(r#""*/.*""#);
    assert!(is_denied(&closed, "*", "/.well-known/a"), "{}", closed.toml);
    let open = of_list(r#""!*/.well-known/*", "*/.*""#);
    assert!(!is_denied(&open, "*", "/.well-known/a"), "{}", open.toml);
    let pattern = Pattern::parse("~/\\.").expect("it is a pattern");
    assert!(pattern.matches(b"/.well-known/a"));
}

#[test]
fn a_response_that_is_a_refusal_here_is_named() {
    let of_status = |status: u32| {
        let step = format!(r#"{{"match": {{"uri": "/ok/*"}}, "action": {{"return": {status}}}}}"#);
        of(&format!(r#""main": [{step}, {REST}]"#)).report.to_string()
    };
    for status in [200, 401, 500] {
        let report = of_status(status);
        assert!(report.contains(&format!("403 in place of {status}")), "{report}");
    }
    assert!(!of_status(403).contains("in place of"));
}

#[test]
fn hosts_that_are_not_compared_are_named() {
    let of_count = |count: usize| {
        let step = |at| {
            format!(r#"{{"match": {{"host": "h{at}.example"}}, "action": {{"return": 404}}}}"#)
        };
        let steps: Vec<String> = (0..count).map(step).collect();
        of(&format!(r#""main": [{}, {REST}]"#, steps.join(","))).report.to_string()
    };
    assert!(!of_count(64).contains("not compared"));
    let report = of_count(66);
    assert!(report.contains("of 2 hosts such as `h64.example` are not compared"), "{report}");
}
