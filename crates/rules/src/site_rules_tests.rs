use std::time::{Duration, Instant};

use super::*;
use crate::networks::parse_network;
use crate::pattern::Pattern;
use crate::settings::{Deny, Expires, HeaderRule, PathSettings, PhpRule, RateLimit};

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text).unwrap()
}

fn rewrite(from: &str, to: &str) -> Rewrite {
    Rewrite { from: pattern(from), to: to.to_owned(), end: false }
}

fn redirect(from: &str, to: &str, status: u16) -> Redirect {
    Redirect { from: pattern(from), to: to.to_owned(), status }
}

fn deny(path: &str, from: &[&str], except: &[&str], status: u16) -> Deny {
    let networks = |texts: &[&str]| texts.iter().map(|text| parse_network(text).unwrap()).collect();
    Deny { path: pattern(path), from: networks(from), except: networks(except), status }
}

fn auth(path: &str) -> BasicAuth {
    BasicAuth { path: pattern(path), realm: "staff".to_owned(), users: "/etc/users".into() }
}

/// What becomes of a target for a client, in a few words.
fn ask_from(rules: &Rules, target: &str, client: &str) -> String {
    let rules = SiteRules::compile(rules).unwrap();
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let path = clean_path(path).unwrap();
    let asked = RuleRequest {
        path: &path,
        query,
        scheme: "https",
        host: "a.example",
        client: client.parse().unwrap(),
    };
    match rules.decide(&asked) {
        Verdict::Redirect { status, location } => format!("{status} {location}"),
        Verdict::Refuse(refusal) => refusal.status.to_string(),
        Verdict::Serve(serve) => {
            let path = match &serve.rewritten {
                None => "as asked".to_owned(),
                Some(Rewritten { path, query: None }) => path.clone(),
                Some(Rewritten { path, query: Some(query) }) => format!("{path}?{query}"),
            };
            let auth = serve.auth.iter().flatten().map(|at| format!(", user {at}"));
            auth.fold(path, |all, one| all + &one)
        }
    }
}

fn ask(rules: &Rules, target: &str) -> String {
    ask_from(rules, target, "192.0.2.1")
}

#[test]
fn a_redirect_takes_what_its_pattern_found_and_the_query() {
    let rules = Rules {
        redirects: vec![
            redirect("/old", "/new", 301),
            redirect("/blog/*", "/news/$1", 302),
            redirect("~^/p/(\\d+)$", "https://$host/product?id=$1", 308),
        ],
        ..Rules::default()
    };
    assert_eq!(ask(&rules, "/old?a=1"), "301 /new?a=1");
    assert_eq!(ask(&rules, "/blog/a%20b/c"), "302 /news/a%20b/c");
    assert_eq!(ask(&rules, "/p/7?x=y"), "308 https://a.example/product?id=7&x=y");
    assert_eq!(ask(&rules, "/p/x"), "as asked");
}

#[test]
fn rewrites_go_on_until_none_holds_or_one_ends_them() {
    let mut rules = Rules {
        rewrite: vec![rewrite("/a/*", "/b/$1"), rewrite("/b/*", "/c.php?p=$1")],
        ..Rules::default()
    };
    assert_eq!(ask(&rules, "/a/x%26y?q=1"), "/c.php?p=x%26y&q=1");
    rules.rewrite[0].end = true;
    assert_eq!(ask(&rules, "/a/x"), "/b/x");
}

#[test]
fn a_loop_of_rewrites_is_a_mistake_and_not_the_end_of_the_server() {
    let rules =
        Rules { rewrite: vec![rewrite("/a", "/b"), rewrite("/b", "/a")], ..Rules::default() };
    assert_eq!(ask(&rules, "/a"), "500");
    let growing = Rules { rewrite: vec![rewrite("/a/*", "/a/a/$1")], ..Rules::default() };
    assert_eq!(ask(&growing, "/a/b"), "500");
}

#[test]
fn what_is_denied_stays_so_in_every_spelling_and_through_a_rewrite() {
    let rules = Rules {
        deny: vec![deny("/private/*", &[], &[], 403), deny("*.sql", &[], &[], 404)],
        rewrite: vec![rewrite("/open/*", "/private/$1")],
        ..Rules::default()
    };
    for target in ["/private/x", "//private//x", "/a/../private/x", "/%70rivate/x", "/open/x"] {
        assert_eq!(ask(&rules, target), "403", "{target}");
    }
    assert_eq!(ask(&rules, "/dump.SQL"), "404");
    assert_eq!(ask(&rules, "/private"), "as asked");
}

#[test]
fn clients_are_let_in_and_kept_out_by_their_networks() {
    let rules = Rules {
        deny: vec![
            deny("/admin/*", &[], &["10.0.0.0/8"], 403),
            deny("/*", &["192.0.2.66", "10.6.0.0/16"], &[], 403),
        ],
        ..Rules::default()
    };
    assert_eq!(ask_from(&rules, "/admin/x", "10.1.1.1"), "as asked");
    assert_eq!(ask_from(&rules, "/admin/x", "10.6.1.1"), "403");
    assert_eq!(ask_from(&rules, "/admin/x", "192.0.2.1"), "403");
    assert_eq!(ask_from(&rules, "/", "192.0.2.66"), "403");
    let closed = Rules {
        allow: vec![parse_network("10.0.0.0/8").unwrap()],
        redirects: vec![redirect("/old", "/new", 301)],
        ..Rules::default()
    };
    assert_eq!(ask_from(&closed, "/old", "192.0.2.1"), "403");
    assert_eq!(ask_from(&closed, "/", "::ffff:10.0.0.1"), "as asked");
}

#[test]
fn a_user_is_asked_for_by_what_was_asked_and_by_what_it_became() {
    let rules = Rules {
        basic_auth: vec![auth("/a/*"), auth("/b/*")],
        rewrite: vec![rewrite("/a/in/*", "/b/$1"), rewrite("/c/*", "/b/$1")],
        ..Rules::default()
    };
    assert_eq!(ask(&rules, "/a/x"), "as asked, user 0");
    assert_eq!(ask(&rules, "/a/in/x"), "/b/x, user 0, user 1");
    assert_eq!(ask(&rules, "/c/x"), "/b/x, user 1");
}

#[test]
fn a_rewrite_cannot_leave_the_root_or_add_a_query() {
    let rules = Rules {
        rewrite: vec![rewrite("/x/*", "/y/../../$1"), rewrite("/z/*", "/w/$1")],
        ..Rules::default()
    };
    assert_eq!(ask(&rules, "/x/a"), "404");
    assert_eq!(ask(&rules, "/z/a%3Fb%23c"), "/w/a%3Fb%23c");
}

#[test]
fn scripts_run_where_they_may() {
    let rules = Rules {
        allow_php: vec![pattern("/index.php"), pattern("/tools/*")],
        deny_php: ["!/tools/uploads/a.php", "/tools/uploads/*"]
            .map(|text| PhpRule::parse(text).unwrap())
            .into(),
        ..Rules::default()
    };
    let rules = SiteRules::compile(&rules).unwrap();
    assert!(rules.may_run(b"/index.php") && rules.may_run(b"/tools/a.php"));
    assert!(!rules.may_run(b"/other.php") && !rules.may_run(b"/tools/uploads/x.php"));
    assert!(rules.may_run(b"/tools/uploads/a.php"), "an exception");
}

/// Ten thousand rules cost a request about as much as ten: paths are found by hash.
#[test]
fn ten_thousand_rules_do_not_make_a_request_slow() {
    let many = Rules {
        redirects: (0..5_000).map(|n| redirect(&format!("/old/{n}"), "/new", 301)).collect(),
        deny: (0..5_000).map(|n| deny(&format!("/private/{n}/*"), &[], &[], 403)).collect(),
        ..Rules::default()
    };
    let many = SiteRules::compile(&many).unwrap();
    let path = clean_path("/some/page/of/mine.html").unwrap();
    let asked = RuleRequest {
        path: &path,
        query: None,
        scheme: "http",
        host: "a.example",
        client: "192.0.2.1".parse().unwrap(),
    };
    let begun = Instant::now();
    for _ in 0..10_000 {
        assert!(matches!(many.decide(&asked), Verdict::Serve(_)));
    }
    // A list gone through one by one would take seconds.
    assert!(begun.elapsed().as_millis() < 1_000, "{:?}", begun.elapsed());
}

#[test]
fn each_rule_holds_for_its_paths_and_no_others() {
    let limit = |path: &str| RateLimit {
        path: pattern(path),
        requests: 1,
        per: Duration::from_secs(1),
        burst: 0,
    };
    let rules = Rules {
        autoindex: vec![pattern("/files/*")],
        paths: vec![PathSettings {
            path: pattern("/upload"),
            pool: None,
            max_body_size: Some(7),
            urgent: None,
        }],
        rate_limit: vec![limit("/login"), limit("/*")],
        error_pages: [(404, "/none.html".to_owned())].into(),
        ..Rules::default()
    };
    let site = SiteRules::compile(&rules).unwrap();
    assert_eq!(site.settings(), &rules);
    assert!(site.lists(b"/files/a/") && !site.lists(b"/"));
    let size = |path: &[u8]| site.path_settings(path).max_body_size;
    assert_eq!((size(b"/upload"), size(b"/upload/")), (Some(7), None));
    assert!(site.limits_rates());
    assert_eq!((site.rate_limits(b"/login"), site.rate_limits(b"/")), (vec![0, 1], vec![1]));
    assert_eq!((site.error_page(404), site.error_page(403)), (Some("/none.html"), None));
    let none = SiteRules::compile(&Rules::default()).unwrap();
    assert!(!none.limits_rates() && !none.has_script_rules() && !none.lists(b"/files/"));
    assert_eq!(none.error_page(404), None);
}

#[test]
fn each_setting_of_a_path_is_that_of_the_first_entry_that_has_it() {
    let entry = |path: &str| PathSettings {
        path: pattern(path),
        pool: None,
        max_body_size: None,
        urgent: None,
    };
    let pool = |path: &str, name: &str| PathSettings { pool: Some(name.to_owned()), ..entry(path) };
    let paths = vec![
        PathSettings { max_body_size: Some(7), ..entry("/*") },
        PathSettings { urgent: Some(false), ..pool("/admin/slow/*", "slow") },
        PathSettings { urgent: Some(true), ..pool("/admin/*", "admin") },
        PathSettings { max_body_size: Some(8), ..pool("/*", "www") },
    ];
    let site = SiteRules::compile(&Rules { paths, ..Rules::default() }).unwrap();
    let of = |path: &str| {
        let found = site.path_settings(path.as_bytes());
        (found.pool, found.max_body_size, found.urgent)
    };
    assert_eq!(of("/x.php"), (Some("www"), Some(7), None));
    assert_eq!(of("/admin/x.php"), (Some("admin"), Some(7), Some(true)));
    assert_eq!(of("/admin/slow/x.php"), (Some("slow"), Some(7), Some(false)));
}

#[test]
fn a_response_is_unchanged_only_without_headers_and_lifetimes_for_its_path() {
    let header = HeaderRule {
        path: pattern("/a"),
        set: vec![("X".to_owned(), "y".to_owned())],
        add: Vec::new(),
        unset: Vec::new(),
    };
    let lifetime = Expires {
        path: pattern("/b"),
        media_type: None,
        after: Duration::from_secs(60),
        immutable: false,
    };
    let rules = Rules { headers: vec![header], expires: vec![lifetime], ..Rules::default() };
    let site = SiteRules::compile(&rules).unwrap();
    let is_unchanged = [b"/a", b"/b", b"/c"].map(|path| site.header_policy(path).is_empty());
    assert_eq!(is_unchanged, [false, false, true]);
}

#[test]
fn htaccess_files_are_alone_with_all_their_settings_and_without_another_rule() {
    let alone = Rules {
        htaccess: true,
        htaccess_ignores_unknown: true,
        htaccess_override: vec!["All".to_owned()],
        htaccess_users: vec!["/etc/users".into()],
        ..Rules::default()
    };
    assert!(alone.are_htaccess_alone());
    assert!(!Rules::default().are_htaccess_alone());
    let denies = Rules { deny: vec![deny("/a", &[], &[], 403)], ..alone.clone() };
    assert!(!denies.are_htaccess_alone());
    assert!(!Rules { htaccess: false, ..alone }.are_htaccess_alone());
}

#[test]
fn a_second_rewrite_has_the_query_of_the_first() {
    let rewrites = vec![rewrite("/a", "/b?one=1"), rewrite("/b", "/c")];
    let rules = Rules { rewrite: rewrites, ..Rules::default() };
    assert_eq!(ask(&rules, "/a"), "/c?one=1");
}
