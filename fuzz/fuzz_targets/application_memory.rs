//! The memory in which an application counts, with anything in it: what is read could have been
//! written by its functions.

#![no_main]

use std::sync::atomic::{AtomicU64, Ordering};

use libfuzzer_sys::fuzz_target;
use maitred_scoreboard::{ApplicationValue, MAX_SERIES, read_application};

/// As in crates/scoreboard/src/application.rs: the index, the slots and their words.
const INDEX_AT: usize = 8;
const SLOTS_AT: usize = 4096;
const SLOT_WORDS: usize = 64;
const WORDS: usize = SLOTS_AT + 2048 * SLOT_WORDS;

fn is_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    name.bytes().next().is_some_and(is_letter)
        && name.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit())
}

fuzz_target!(|bytes: &[u8]| {
    let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
    for (place, slot) in bytes.chunks(8 * SLOT_WORDS).enumerate() {
        // Most places have a name.
        let state = if slot.len() % 16 == 1 { 1 } else { 2 };
        words[INDEX_AT + place].store(0x1230 | state, Ordering::Relaxed);
        for (at, bytes) in slot.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            let word = u64::from_ne_bytes(word);
            words[SLOTS_AT + place * SLOT_WORDS + at].store(word, Ordering::Relaxed);
        }
    }
    let reading = read_application(&words);
    assert!(reading.series.len() <= MAX_SERIES);
    for series in &reading.series {
        assert!(is_name(&series.name), "{series:?}");
        assert!(series.labels.len() <= 8 && series.labels.is_sorted_by(|a, b| a.0 < b.0));
        let is_reserved = |name: &str| name == "pool" || name == "le" || name.starts_with("__");
        let is_good = |name: &String| is_name(name) && !is_reserved(name);
        assert!(series.labels.iter().all(|(name, _)| is_good(name)), "{series:?}");
        match &series.value {
            ApplicationValue::Counter(value) => assert!(value.is_finite() && *value >= 0.0),
            ApplicationValue::Histogram { sum, .. } => assert!(sum.is_finite()),
            ApplicationValue::Gauge(_) => {}
        }
    }
    // A file that is too short.
    read_application(&words[..bytes.len().min(WORDS)]);
});
