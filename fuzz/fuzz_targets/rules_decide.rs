//! Whatever a site's patterns and templates are and whatever is asked: no address leads to another host by
//! what a client sent, none holds a second line, and what is denied is not served.

#![no_main]

use std::net::{IpAddr, Ipv4Addr};

use libfuzzer_sys::fuzz_target;
use maitred_rules::path::clean_path;
use maitred_rules::settings::{Deny, Redirect, Rewrite};
use maitred_rules::site::{Asked, Verdict, check_template};
use maitred_rules::{Pattern, Rules, SiteRules};

/// Rules that a site may well have, and those that the input brings.
fn rules(pattern: &str, template: &str) -> Rules {
    let of = |text| Pattern::parse(text).expect("a pattern of ours is one");
    let mut rules = Rules {
        deny: vec![Deny {
            path: of("/secret/*"),
            from: Vec::new(),
            except: Vec::new(),
            status: 403,
        }],
        ..Rules::default()
    };
    let own = Pattern::parse(pattern).ok();
    let own = own.filter(|own| check_template(own, template).is_ok());
    // Of a template that begins with what was asked for, the site has made a host itself.
    let own = own.filter(|_| template.starts_with('/'));
    let own = own.map(|own| (own, template));
    let fixed = [("/go/*", "/$1"), ("/to/*", "https://b.example/$1"), ("~^/p(.*)$", "/$1")];
    let fixed = fixed.map(|(from, to)| (of(from), to));
    for (from, to) in own.iter().chain(&fixed) {
        let (from, to) = (from.clone(), (*to).to_owned());
        rules.redirects.push(Redirect { from, to, status: 302 });
    }
    let fixed = (of("/api/*"), "/index.php?path=$1");
    for (from, to) in own.iter().chain([&fixed]) {
        let (from, to) = (from.clone(), (*to).to_owned());
        rules.rewrite.push(Rewrite { from, to, end: false });
    }
    rules
}

fn is_printed(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    let mut lines = text.split('\n');
    let mut next = || lines.next().unwrap_or_default();
    let (pattern, template, path, query) = (next(), next(), next(), next());
    // What a request's head lets through.
    if !is_printed(path) || !is_printed(query) || path.contains(['?', '#']) || query.contains('#') {
        return;
    }
    let (Ok(path), Ok(site)) = (clean_path(path), SiteRules::compile(&rules(pattern, template))) else {
        return;
    };
    let asked = Asked {
        path: &path,
        query: Some(query).filter(|query| !query.is_empty()),
        scheme: "https",
        host: "a.example",
        client: IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    match site.decide(&asked) {
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
});
