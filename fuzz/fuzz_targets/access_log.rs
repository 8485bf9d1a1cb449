//! A line of an access log has a request or none; method and path are parts of the line that a
//! request line can hold.

#![no_main]

use libfuzzer_sys::fuzz_target;
use maitred_text::access_log::Entry;

fuzz_target!(|text: &str| {
    for line in text.lines() {
        let Some(entry) = Entry::parse(line) else { continue };
        assert!(entry.path.starts_with('/'));
        for part in [entry.method, entry.path] {
            assert!(line.contains(part) && !part.contains([' ', '"']));
        }
        // Another field behind it changes nothing.
        assert_eq!(Entry::parse(&format!("{line} \"-\" 0.003")), Some(entry));
    }
});
