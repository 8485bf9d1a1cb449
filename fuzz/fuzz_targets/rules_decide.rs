//! For any patterns and templates of a site and any request: no address leads to another
//! host by what a client sent, none holds a second line, and what is denied is not served.

#![no_main]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use maitred_rules::path::{CleanPath, clean_path};
use maitred_rules::settings::{Deny, Redirect, Rewrite};
use maitred_rules::site_rules::{RuleRequest, Verdict, check_template};
use maitred_rules::{Pattern, Rules, SiteRules};

/// What no site may serve here.
fn denying() -> Rules {
    let path = Pattern::parse("/secret/*").expect("a pattern of ours is one");
    let (from, except) = (Vec::new(), Vec::new());
    let deny = vec![Deny { path, from, except, status: 403 }];
    Rules { deny, ..Rules::default() }
}

/// Adds a redirect and a rewrite.
fn lead(rules: &mut Rules, from: Pattern, to: &str) {
    let (redirect, to) =
        (Redirect { from: from.clone(), to: to.to_owned(), status: 302 }, to.to_owned());
    rules.redirects.push(redirect);
    rules.rewrite.push(Rewrite { from, to, end: false });
}

/// Rules that a site may well have.
static USUAL: LazyLock<SiteRules> = LazyLock::new(|| {
    let mut rules = denying();
    for (from, to) in [("/go/*", "/$1"), ("/to/*", "https://b.example/$1"), ("~^/p(.*)$", "/$1")] {
        lead(&mut rules, Pattern::parse(from).expect("a pattern of ours is one"), to);
    }
    rules.redirects.truncate(2);
    SiteRules::compile(&rules).expect("rules of ours are some")
});

/// Those that the input brings, if they are such as a configuration lets through.
fn own(pattern: &str, template: &str) -> Option<SiteRules> {
    let from = Pattern::parse(pattern).ok()?;
    if !template.starts_with('/') || check_template(&from, template).is_err() {
        return None;
    }
    let mut rules = denying();
    lead(&mut rules, from, template);
    // A redirect would always come first.
    if template.len() % 2 == 0 {
        rules.redirects.clear();
    }
    SiteRules::compile(&rules).ok()
}

fn is_printed(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    let mut lines = text.split('\n');
    let mut next = || lines.next().unwrap_or_default();
    let (pattern, template, path, query) = (next(), next(), next(), next());
    // What a request's header lets through.
    if !is_printed(path) || !is_printed(query) || path.contains(['?', '#']) || query.contains('#') {
        return;
    }
    let Ok(path) = clean_path(path) else { return };
    let asked = RuleRequest {
        path: &path,
        query: Some(query).filter(|query| !query.is_empty()),
        scheme: "https",
        host: "a.example",
        client: IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    judge(USUAL.decide(&asked), &path);
    if let Some(own) = own(pattern, template) {
        judge(own.decide(&asked), &path);
    }
});

fn judge(verdict: Verdict, path: &CleanPath<'_>) {
    match verdict {
        Verdict::Redirect { location, .. } => {
            assert!(is_printed(&location), "{location}");
            let is_here = location.starts_with('/') && !location.starts_with("//");
            assert!(is_here || location.starts_with("https://b.example/"), "{location}");
            assert!(!location.starts_with("/\\"), "{location}");
        }
        Verdict::Serve(serve) => {
            let now = match &serve.rewritten {
                Some(rewritten) => {
                    assert!(is_printed(rewritten.query.as_deref().unwrap_or_default()));
                    clean_path(&rewritten.path).expect("a path can be read")
                }
                None => path.clone(),
            };
            assert!(!now.as_bytes().starts_with(b"/secret/"));
        }
        Verdict::Refuse(refusal) => assert!((400..=500).contains(&refusal.status)),
    }
}
