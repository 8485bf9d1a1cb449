//! Headers of a trace: what is read is written in the same way, and what is passed on is valid.

#![no_main]

use libfuzzer_sys::fuzz_target;
use maitred_trace::tracestate;
use maitred_trace::{RequestTrace, Sampling, TraceParent};

fuzz_target!(|bytes: &[u8]| {
    // Lines are those of `traceparent`, and behind an empty one those of `tracestate`.
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let parents: Vec<&[u8]> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    let states: Vec<&[u8]> = lines.collect();
    let sampling = Sampling { thousandths: 500, follows_parent: true };
    let trace = RequestTrace::of(sampling, |name| match name {
        "traceparent" => parents.iter().copied(),
        _ => states.iter().copied(),
    });
    let sent = trace.for_backend();
    let read = TraceParent::parse(&sent).expect("what is sent is valid");
    assert_eq!((read.value(), read.trace_id), (sent, trace.trace_id));
    match TraceParent::of_header(parents.iter().copied()) {
        Some(parent) => {
            assert_eq!(trace.trace_id, parent.trace_id);
            assert_eq!(trace.is_sampled, parent.is_sampled);
        }
        None => assert!(trace.parent.is_none() && trace.state.is_none()),
    }
    if let Some(list) = &trace.state {
        let again = tracestate::of_header(std::iter::once(list.as_bytes()));
        assert_eq!(again.as_deref(), Some(&**list));
    }
});
