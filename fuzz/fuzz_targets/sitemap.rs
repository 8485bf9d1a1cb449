//! Whatever a server sends for a sitemap: URLs within bounds, or a sentence in one line.

#![no_main]

use libfuzzer_sys::fuzz_target;
use maitred_measure::url::Url;
use maitred_warm::sitemap::{MAX_ADDRESSES, Sitemap};

fuzz_target!(|bytes: &[u8]| {
    for read in [Sitemap::read(bytes), Sitemap::list(bytes)] {
        let Ok(Sitemap { pages, further }) = read else { continue };
        assert!(pages.len() <= MAX_ADDRESSES && further.len() <= MAX_ADDRESSES);
        for address in pages.iter().chain(&further) {
            assert!(!address.is_empty() && address.trim() == address);
            if let Ok(url) = Url::read(address, None) {
                // It becomes a request line and a Host header.
                let sent = [&url.path, &url.authority];
                assert!(sent.iter().all(|text| !text.contains([' ', '\r', '\n'])), "{url:?}");
            }
        }
    }
});
