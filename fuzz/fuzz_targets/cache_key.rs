//! Whatever a client asks for: a request and the one that its script sees in its place have one
//! key, none of the parameters that make no difference is left, and those of one name keep their
//! order.
#![no_main]

use libfuzzer_sys::fuzz_target;
use maitred_pagecache::cache_request::{CacheRequest, Request};
use maitred_pagecache::eligibility::Plan;
use maitred_pagecache::headers::Field;
use maitred_pagecache::key::{Key, Primary, canonical_query};
use maitred_pagecache::settings::{KeyParts, Pattern, RequestMatcher, Settings};

fuzz_target!(|input: (bool, &str, &str, Option<&str>, Vec<(&[u8], &[u8])>)| {
    let (sorts, host, path, query, fields) = input;
    let parts = KeyParts {
        ignore_parameters: vec![Pattern::new("utm_*"), Pattern::new("gclid")],
        sort_parameters: sorts,
        headers: vec!["x-device".to_owned()],
        cookies: vec!["lang".to_owned()],
    };
    let request = |query| Request {
        method: "GET",
        is_https: false,
        host,
        port: None,
        path,
        query,
        has_body: false,
        by_proxy: false,
        by_forwarded: false,
    };
    let fields = || fields.iter().map(|(name, value)| -> Field<'_> { (name, value) });
    let asked = CacheRequest::survey(request(query), fields());
    let rules = RequestMatcher {
        parameters: vec![Pattern::new("a.b")],
        cookies: vec![Pattern::new("a_b")],
        ..RequestMatcher::default()
    };
    let settings =
        Settings { key: parts.clone(), bypass: rules, obey_requests: true, ..Settings::default() };
    _ = Plan::make(&settings, &asked);
    let Ok(Primary { key, query: seen }) = Key::primary("site", &settings, &asked) else {
        return;
    };
    let again = CacheRequest::survey(request(seen.as_deref()), fields());
    let Ok(Primary { key: same, query: still }) = Key::primary("site", &settings, &again) else {
        panic!("{seen:?} has no key, and {query:?} has one");
    };
    assert_eq!((&key, &seen), (&same, &still));
    if let (Some(query), Some(seen)) = (query, &seen) {
        keeps_what_counts(&parts, query, seen);
    }
});

fn keeps_what_counts(parts: &KeyParts, query: &str, seen: &str) {
    assert_eq!(canonical_query(parts, seen), seen);
    if query.matches('&').count() >= 255 {
        return;
    }
    let name = |parameter: &str| parameter.split('=').next().unwrap_or_default().to_owned();
    let ignored = |parameter: &&str| {
        let name = name(parameter);
        parts.ignore_parameters.iter().any(|pattern| pattern.matches(name.as_bytes()))
    };
    let kept: Vec<&str> = query.split('&').filter(|parameter| !ignored(parameter)).collect();
    let left: Vec<&str> = seen.split('&').collect();
    for parameter in &kept {
        let of = |all: &[&str]| -> Vec<String> {
            let same = all.iter().filter(|other| name(other) == name(parameter));
            same.map(|other| (*other).to_owned()).collect()
        };
        assert_eq!(of(&kept), of(&left), "{query} became {seen}");
    }
    assert!(kept.is_empty() || kept.len() == left.len(), "{query} became {seen}");
}
