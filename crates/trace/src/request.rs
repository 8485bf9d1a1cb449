//! The trace of one request: where it comes from, and whether its spans are exported.

use crate::context::{self, TraceParent};
use crate::ids::{SpanId, TraceId};
use crate::tracestate;

/// The settings of sampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling {
    /// The part of traces that start here, in thousandths.
    pub thousandths: u32,
    /// Whether the flag of a caller decides about a trace that it has started.
    pub follows_parent: bool,
}

/// The trace of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestTrace {
    /// The trace.
    pub trace_id: TraceId,
    /// The span of the caller; none: the trace starts here.
    pub parent: Option<SpanId>,
    /// The span of its script or its upstream server, which those see as their caller.
    pub backend_id: SpanId,
    /// Whether it was selected before its end was known.
    pub is_sampled: bool,
    is_random: bool,
    /// The state of tracing systems, if the caller has sent any.
    pub state: Option<Box<str>>,
}

impl RequestTrace {
    /// The trace of a request with these headers.
    pub fn of<'h, V: Iterator<Item = &'h [u8]>>(
        sampling: Sampling,
        values: impl Fn(&'static str) -> V,
    ) -> RequestTrace {
        let parent = TraceParent::of_header(values("traceparent"));
        let state = parent.and_then(|_| tracestate::of_header(values("tracestate")));
        let trace_id = parent.map_or_else(TraceId::random, |parent| parent.trace_id);
        let is_sampled = match parent.filter(|_| sampling.follows_parent) {
            Some(parent) => parent.is_sampled,
            // A caller that does not decide has no influence by its choice of the id either.
            None if parent.is_some() => TraceId::random().is_within(sampling.thousandths),
            None => trace_id.is_within(sampling.thousandths),
        };
        RequestTrace {
            trace_id,
            parent: parent.map(|parent| parent.parent_id),
            backend_id: SpanId::random(),
            is_sampled,
            is_random: parent.is_none_or(|parent| parent.is_random),
            state: state.map(Into::into),
        }
    }

    /// `traceparent` for a script or an upstream server.
    pub fn for_backend(&self) -> [u8; context::BYTES] {
        self.context().value()
    }

    /// The flags of its spans.
    pub fn flags(&self) -> u8 {
        self.context().flags()
    }

    fn context(&self) -> TraceParent {
        let RequestTrace { trace_id, backend_id, is_sampled, is_random, .. } = *self;
        TraceParent { trace_id, parent_id: backend_id, is_sampled, is_random }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn of(thousandths: u32, follows_parent: bool, headers: &[(&str, &str)]) -> RequestTrace {
        let values = |name: &'static str| {
            let of_name = headers.iter().filter(move |(known, _)| *known == name);
            of_name.map(|(_, value)| value.as_bytes())
        };
        RequestTrace::of(Sampling { thousandths, follows_parent }, values)
    }

    #[test]
    fn a_trace_goes_on_with_the_callers_decision() {
        let trace = of(0, true, &[("traceparent", PARENT), ("tracestate", "a=1, b=2")]);
        assert!(trace.is_sampled);
        assert_eq!(trace.parent.map(|id| id.to_string()).as_deref(), Some("00f067aa0ba902b7"));
        let sent = String::from_utf8(trace.for_backend().into()).unwrap();
        let expected = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", trace.backend_id);
        assert_eq!((sent, trace.state.as_deref()), (expected, Some("a=1,b=2")));
        assert_eq!(trace.flags(), 1, "its caller does not say that the id is random");
        assert!(!of(1000, true, &[("traceparent", &PARENT.replace("-01", "-00"))]).is_sampled);
    }

    #[test]
    fn without_trust_in_callers_the_ratio_alone_decides() {
        assert!(!of(0, false, &[("traceparent", PARENT)]).is_sampled);
        let unsampled = PARENT.replace("-01", "-00");
        assert!(of(1000, false, &[("traceparent", &unsampled)]).is_sampled);
    }

    #[test]
    fn a_caller_without_trust_does_not_select_its_traces_by_their_ids() {
        let lowest = "00-00000000000000010000000000000000-0000000000000001-00";
        let sampled = (0..2000).filter(|_| of(1, false, &[("traceparent", lowest)]).is_sampled);
        assert!(sampled.count() < 200);
    }

    #[test]
    fn a_malformed_parent_starts_a_new_trace_without_its_state() {
        for parent in ["", "00-x", &PARENT.to_uppercase()] {
            let trace = of(1000, true, &[("traceparent", parent), ("tracestate", "a=1")]);
            assert!(trace.parent.is_none() && trace.state.is_none() && trace.is_sampled);
            assert!(trace.for_backend().ends_with(b"-03"), "its id is random");
            assert_eq!(trace.flags(), 3);
        }
        assert_ne!(of(0, true, &[]).trace_id, of(0, true, &[]).trace_id);
    }
}
