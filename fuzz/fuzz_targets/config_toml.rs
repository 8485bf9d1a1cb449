//! For any `maitred.toml`: it is read or refused, and each mistake has its place in the text and a
//! sentence in one line.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;

/// Names of settings whose values are files: what the disk of this machine has is no input.
const OF_FILES: [&str; 2] = ["include", "/"];

fuzz_target!(|text: &str| {
    if text.lines().any(|line| OF_FILES.iter().all(|part| line.contains(part))) {
        return;
    }
    let file = Path::new("/nowhere/maitred.toml");
    match maitred_config::parse(text, file) {
        Ok(config) => {
            let _ = maitred_config::remarks(text, file, &config);
        }
        Err(mistakes) => {
            assert!(mistakes.iter().count() > 0);
            for mistake in mistakes.iter() {
                assert!(!mistake.sentence.contains(['\n', '\r', '\u{1b}']), "{mistake}");
                let Some(place) = mistake.place else { continue };
                let line = text.split('\n').nth(place.line - 1).expect("a line of the text");
                assert!(place.column >= 1 && place.column <= line.chars().count() + 2, "{mistake}");
            }
        }
    }
});
