//! A cookie that a response sets is known when a request sends it back; what is forwarded of a
//! `Cookie` header are the cookies of the key.
#![no_main]

use libfuzzer_sys::fuzz_target;
use maitred_pagecache::cache_request::{CacheRequest, Request};
use maitred_pagecache::cookies::{self, CookieNames, MAX_NAMES};
use maitred_pagecache::headers::Field;
use maitred_pagecache::settings::{KeyParts, Settings};

fuzz_target!(|input: (Vec<&[u8]>, Vec<&[u8]>)| {
    let (set, sent) = input;
    let key = KeyParts { cookies: vec!["lang".to_owned()], ..KeyParts::default() };
    let settings = Settings { guards_cookies: true, key, ..Settings::default() };
    let mut names = CookieNames::default();
    let response = || set.iter().map(|value| -> Field<'_> { (b"Set-Cookie", value) });
    for name in cookies::set_by(response()) {
        names = names.with(name).unwrap_or(names);
        assert!(names.contains(name));
    }
    assert!(names.all().count() <= MAX_NAMES);
    assert!(names.all().all(|name| name.iter().all(u8::is_ascii_graphic) && !name.contains(&b'[')));
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
    let fields = sent.iter().map(|value| -> Field<'_> { (b"Cookie", value) });
    let asked = CacheRequest::survey(request, fields);
    let is_known = cookies::is_known(&settings, &asked, &names);
    let sends = |name: &[u8]| asked.cookies().any(|(own, _)| own == name);
    for name in cookies::set_by(response()) {
        assert!(is_known || name == b"lang" || !sends(name));
    }
    let line = cookies::keyed(&settings, &asked);
    let forwarded = [(&b"Cookie"[..], &line[..])];
    let again = CacheRequest::survey(request, forwarded.into_iter());
    let kept: Vec<_> = asked.cookies_as_written().filter(|(name, _)| *name == b"lang").collect();
    let left: Vec<_> = again.cookies_as_written().filter(|(name, _)| !name.is_empty()).collect();
    assert_eq!(kept, left);
});
