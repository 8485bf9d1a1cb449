//! Whatever a collector of traces says: it has rejected a number of spans, or none.

#![no_main]

use libfuzzer_sys::fuzz_target;
use maitred_trace::otlp::rejected;

fuzz_target!(|body: &[u8]| {
    let count = rejected(body);
    if count > 0 {
        let value: serde_json::Value = serde_json::from_slice(body).expect("JSON says so");
        let said = &value["partialSuccess"]["rejectedSpans"];
        let as_text = said.as_str().is_some_and(|text| text.parse() == Ok(count));
        assert!(as_text || said.as_u64() == Some(count));
    }
});
