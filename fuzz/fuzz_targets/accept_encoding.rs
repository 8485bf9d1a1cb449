//! Whatever a client says it takes, something is chosen that it takes, or nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use maitred_rules::content_encoding::{Accepted, Coding};

fuzz_target!(|field: &[u8]| {
    let accepted = Accepted::of([field].into_iter());
    let mut left = accepted;
    let mut found = 0;
    while let Some(coding) = left.best(&Coding::ALL) {
        left = left.without(coding);
        found += 1;
    }
    assert!(left.is_none() && found <= Coding::ALL.len());
    assert_eq!(accepted.is_none(), found == 0);
});
