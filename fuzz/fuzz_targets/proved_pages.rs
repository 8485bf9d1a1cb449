//! Two pages of any server: what is learnt from both fits both, and a link is a request target.

#![no_main]

use libfuzzer_sys::fuzz_target;
use maitred_prove::page_links::{PageAddress, links};
use maitred_prove::varying::Template;

/// Where the second page begins.
const SEPARATOR: char = '\u{1}';

fuzz_target!(|text: &str| {
    let (first, second) = text.split_once(SEPARATOR).unwrap_or((text, text));
    let template = Template::of(first, second);
    for page in [first, second] {
        assert_eq!(template.fits(page), Ok(()));
    }
    assert_eq!(template.is_fixed(), first == second);
    let page = PageAddress { authority: "a.example:8080", target: "/b/c?d=1" };
    for link in links(first.as_bytes(), page) {
        assert!(link.starts_with('/'), "{link:?}");
        assert!(link.bytes().all(|byte| byte.is_ascii_graphic()), "{link:?}");
    }
});
