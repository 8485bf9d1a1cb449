//! For any caching headers of a script: no private response is cached, a cached response has no
//! hop-by-hop header and no lifetime beyond bounds, and is read from its file as it was written.
#![no_main]

use std::sync::Arc;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use maitred_pagecache::admit::{Times, admit};
use maitred_pagecache::cache_control::{CacheControl, RequestDirectives};
use maitred_pagecache::cache_request::{CacheRequest, Request};
use maitred_pagecache::eligibility::Plan;
use maitred_pagecache::freshness::MAX_SECONDS;
use maitred_pagecache::headers::{self, Field, ResponseHead};
use maitred_pagecache::key::Key;
use maitred_pagecache::settings::{Settings, Valid};
use maitred_pagestore::object::Entry;
use maitred_pagestore::{Object, Subject};

const NOW: u64 = 1_700_000_000_000;

/// The status, then the lines of an answer's header.
fn parse(input: &[u8]) -> Option<(u16, Vec<Field<'_>>)> {
    let (status, lines) = input.split_first_chunk::<2>()?;
    let fields = lines.split(|byte| *byte == b'\n').filter_map(|line| {
        let at = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = (&line[..at], line[at + 1..].trim_ascii());
        let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
        let is_field = !name.is_empty() && name.iter().all(is_token) && !value.contains(&b'\r');
        is_field.then_some((name, value))
    });
    Some((u16::from_le_bytes(*status) % 600, fields.collect()))
}

fuzz_target!(|input: &[u8]| {
    let Some((status, answer)) = parse(input) else {
        return;
    };
    let answer = || answer.iter().copied();
    _ = RequestDirectives::of(answer());
    let said = CacheControl::of(headers::values(answer(), "cache-control"));
    let request = Request {
        method: "GET",
        is_https: true,
        host: "a.example",
        port: None,
        path: "/",
        query: None,
        has_body: false,
        by_proxy: false,
        by_forwarded: false,
    };
    let asked = CacheRequest::survey(request, [].into_iter());
    let valid = Valid { status: None, seconds: 60 };
    let generous = Settings {
        valid: vec![valid],
        heuristic: true,
        litespeed: true,
        stale_if_error: u64::MAX,
        stale_while_revalidate: u64::MAX,
        tag_headers: vec!["surrogate-key".to_owned()],
        ..Settings::default()
    };
    let times = Times { asked: NOW, came: NOW, stamp: 1 };
    for settings in [Settings::default(), generous] {
        let plan = Plan::make(&settings, &asked);
        let head = ResponseHead { status, headers: answer() };
        let Ok(admitted) = admit(&settings, &asked, &plan, head, times) else {
            continue;
        };
        let stored = admitted.stored;
        let is_named = |name: &str| said.listed.iter().any(|listed| listed == name);
        let targeted = settings.litespeed || CacheControl::targeted(answer()).is_some();
        if !targeted {
            assert!(!said.private && (!said.no_store || said.must_understand));
            let sets_cookie = headers::first(answer(), "set-cookie").is_some();
            assert!(!sets_cookie || is_named("set-cookie"));
        }
        let bounded = [stored.lifetimes.fresh, stored.lifetimes.if_error, stored.initial_age];
        assert!(bounded.iter().all(|seconds| *seconds <= MAX_SECONDS), "{bounded:?}");
        assert!(stored.fields().all(|(name, _)| !headers::is_hop_by_hop(name)));
        assert!(stored.lines.starts_with(b"Date: ") && stored.lines.ends_with(b"\r\n"));
        _ = stored.merge(&settings, &asked, &plan, answer(), times);
        let key = Key::primary("site", &settings, &asked).expect("it is short").key;
        let of = |text: &str| text.into();
        let subject = Subject { site: of("site"), host: of("a.example"), target: of("/") };
        let body = Bytes::from_static(b"body");
        let page = Entry::Page(Arc::new(Object::new(subject, stored.clone(), body)));
        let (head, body) = page.write(&key, 7);
        let bytes = Bytes::from([&head[..], &body[..]].concat());
        let Ok((read_key, Entry::Page(read))) = Entry::read(&bytes, 7) else {
            panic!("what was written cannot be read: {stored:?}");
        };
        assert_eq!((read_key, &read.stored), (key, &stored));
    }
});
