//! Whatever a client says it takes, something is chosen that it takes, or nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use maitred_rules::content_encoding::{Accepted, ContentEncoding};

fuzz_target!(|field: &[u8]| {
    let accepted = Accepted::of([field].into_iter());
    let mut left = accepted;
    let mut found = 0;
    while let Some(coding) = left.best(&ContentEncoding::ALL) {
        left = left.without(coding);
        found += 1;
    }
    assert!(left.is_none() && found <= ContentEncoding::ALL.len());
    assert_eq!(accepted.is_none(), found == 0);
});
