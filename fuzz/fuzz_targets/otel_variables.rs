//! OpenTelemetry's variables for a section `[traces]`: their values are read or refused, and no
//! sentence shows a header, which may be a key.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use maitred_config::{Environment, parse_with};

/// Shorter values are parts of sentences by chance.
const SECRET_CHARS: usize = 12;

fuzz_target!(|text: &str| {
    let pairs = text.lines().filter(|line| line.starts_with("OTEL_"));
    let pairs = pairs.filter_map(|line| line.split_once('='));
    let pairs: Vec<(String, String)> =
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let environment = Environment::of(pairs.iter().cloned()).expect("no name is a misspelling");
    assert!(environment.is_empty(), "they turn nothing on");
    let file = Path::new("/nowhere/maitred.toml");
    match parse_with("[traces]\n", file, &environment) {
        Ok(config) => {
            let traces = config.traces.expect("there is a section");
            assert!(traces.ratio <= 1000 && !traces.service_name.is_empty());
            assert!(!traces.endpoint.host.is_empty() && traces.endpoint.port > 0);
            assert!(traces.endpoint.path.starts_with('/'));
            for (name, value) in traces.headers.iter().chain(&traces.resource) {
                assert!(!name.is_empty() && !value.chars().any(char::is_control));
            }
        }
        Err(mistakes) => {
            for mistake in mistakes.iter() {
                assert!(!mistake.sentence.contains(['\n', '\r', '\u{1b}']), "{mistake}");
                for (name, value) in &pairs {
                    let is_secret = name.ends_with("_HEADERS") && value.len() >= SECRET_CHARS;
                    let elsewhere =
                        pairs.iter().any(|(of, other)| of != name && other.contains(value));
                    assert!(!is_secret || elsewhere || !mistake.sentence.contains(value));
                }
            }
        }
    }
});
