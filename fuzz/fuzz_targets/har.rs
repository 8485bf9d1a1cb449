//! The requests of a HAR file go to one server, and each is one request of HTTP/1.1 as it is sent.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use maitred_measure::har::parse;
use maitred_measure::url::Url;

fuzz_target!(|text: &str| {
    let Ok(specs) = parse(text, Path::new("a.har"), None) else {
        return;
    };
    let first: &Url = &specs.first().expect("a request").url;
    for spec in &specs {
        assert!(spec.url.same_server(first) && spec.url.path.starts_with('/'));
        let sent = spec.http1(None, None, true);
        let end = sent.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.expect("the end of a header");
        assert_eq!(sent.len() - end - 4, spec.body.len());
        let lines = sent[..end].split(|byte| *byte == b'\n');
        // Every line is one that was meant: no value brings another.
        assert!(lines.count() <= spec.headers.len() + 6);
        let _ = spec.http2(None, None);
        let _ = spec.fastcgi("/srv", None, None, false);
    }
});
