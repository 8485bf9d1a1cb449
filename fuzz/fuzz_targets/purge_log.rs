//! Whatever a Redis sends: a reply is read the same however it arrives, and within its limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use maitred_purgelog::fuzzing::{read_reply, read_round};

fuzz_target!(|bytes: &[u8]| {
    let Ok(Some(length)) = read_reply(bytes) else {
        return;
    };
    assert!(length <= bytes.len());
    assert_eq!(read_reply(&bytes[..length]), Ok(Some(length)));
    for end in 0..length.min(64) {
        assert_eq!(read_reply(&bytes[..end]), Ok(None));
    }
    read_round(bytes);
});
