//! The trace of a web server's request: its parameters continue it, and name a span of this server
//! as the caller of the script.

use std::sync::Arc;

use maitred_fastcgi::{params, write_pair};
use maitred_trace::RequestTrace;

use crate::backend::progress::ScriptProgress;
use crate::handler::request_detail;
use crate::handler::request_spans::{self, FinishedRequest};
use crate::logging::request_record::RequestRecord;
use crate::server::fastcgi::call::FastcgiCall;
use crate::services::Shared;
use crate::services::traces::Traces;
use crate::site::fastcgi_listener::FastcgiSite;

const TRACEPARENT: &[u8] = b"HTTP_TRACEPARENT";
const TRACESTATE: &[u8] = b"HTTP_TRACESTATE";

/// The trace of a request with these parameters, in which it replaces that of the client. None if
/// they are malformed.
pub fn begin(traces: &Traces, stream: &mut Vec<u8>) -> Option<RequestTrace> {
    let mut has_own = false;
    for pair in params(stream) {
        has_own |= matches!(pair.ok()?.0, TRACEPARENT | TRACESTATE);
    }
    if !has_own {
        let trace = traces.begin(|_| std::iter::empty());
        write_pair(stream, TRACEPARENT, &trace.for_backend()).ok()?;
        return Some(trace);
    }
    let (mut rest, mut values) = (Vec::with_capacity(stream.len() + 256), Vec::new());
    let (mut pairs, mut begin) = (params(stream), 0);
    while let Some(pair) = pairs.next() {
        let (name, value) = pair.ok()?;
        let end = stream.len() - pairs.left();
        match name {
            TRACEPARENT => values.push(("traceparent", value)),
            TRACESTATE => values.push(("tracestate", value)),
            _ => rest.extend_from_slice(stream.get(begin..end)?),
        }
        begin = end;
    }
    let of = |name: &'static str| {
        let of_name = values.iter().filter(move |(known, _)| *known == name);
        of_name.map(|(_, value)| *value)
    };
    let trace = traces.begin(of);
    write_pair(&mut rest, TRACEPARENT, &trace.for_backend()).ok()?;
    if let Some(state) = &trace.state {
        write_pair(&mut rest, TRACESTATE, state.as_bytes()).ok()?;
    }
    *stream = rest;
    Some(trace)
}

/// The end of a request.
pub struct CallEnd<'a> {
    /// The status that the web server got.
    pub status: u16,
    /// Its times.
    pub progress: &'a ScriptProgress,
    /// The log lines about it.
    pub lines: Vec<String>,
}

/// Leaves the spans of a request for their export if it is to be exported, and remembers it for
/// the dashboard if it was slow or has failed.
pub fn conclude(shared: &Shared, call: &FastcgiCall, site: &FastcgiSite, end: CallEnd<'_>) {
    let CallEnd { status, progress, lines } = end;
    if call.trace.is_none() && !shared.recent_requests.is_wanted() {
        return;
    }
    let (traces, took) = (shared.traces.load(), call.begun_at.elapsed());
    let is_notable = request_detail::is_notable(shared, status, took);
    let selected = traces.as_ref().zip(call.trace.as_ref()).filter(|(traces, trace)| {
        request_spans::selected_for(traces, trace, status, took).is_some()
    });
    if selected.is_none() && !is_notable {
        return;
    }
    let text = |name: &[u8]| String::from_utf8_lossy(call.param(name).unwrap_or_default());
    let record = RequestRecord {
        status,
        is_https: text(b"HTTPS").eq_ignore_ascii_case("on"),
        queued: progress.queued,
        boot: progress.boot,
        script: progress.script,
        spent: progress.spent,
        backend_began: Some(progress.began),
        pool: Some(site.pool().name.clone()),
        trace: call.trace.clone().map(Arc::new),
        lines,
        ..RequestRecord::default()
    };
    let host = match &*text(b"HTTP_HOST") {
        "" => text(b"SERVER_NAME"),
        host => host.to_owned().into(),
    };
    let (method, target) = (call.method(), call.target());
    let request = FinishedRequest {
        method: &method,
        target: &target,
        path: target.split('?').next().unwrap_or_default(),
        version: None,
        record: &record,
        host: &host,
        begun: call.begun_at,
        took,
    };
    if let Some((traces, trace)) = selected {
        request_spans::export(traces, trace, &request);
    }
    request_detail::remember(shared, &request);
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &[u8] = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn stream(pairs: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut stream = Vec::new();
        for (name, value) in pairs {
            write_pair(&mut stream, name, value).unwrap();
        }
        stream
    }

    fn values<'s>(stream: &'s [u8], name: &[u8]) -> Vec<&'s [u8]> {
        let pairs = params(stream).map(Result::unwrap);
        pairs.filter(|(known, _)| *known == name).map(|(_, value)| value).collect()
    }

    fn traces() -> Traces {
        let settings = maitred_config::Traces { is_on: false, ..Default::default() };
        Traces::start(settings, Arc::default()).unwrap()
    }

    #[test]
    fn the_trace_of_a_web_server_goes_on_and_other_parameters_stay() {
        let long = [b'x'; 300];
        let mut params = stream(&[
            (b"SCRIPT_NAME", b"/a.php"),
            (TRACEPARENT, PARENT),
            (TRACESTATE, b"a=1, b=2"),
            (b"HTTP_LONG", &long),
        ]);
        let trace = begin(&traces(), &mut params).unwrap();
        assert_eq!(trace.trace_id.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(values(&params, TRACEPARENT), [&trace.for_backend()]);
        assert_eq!(values(&params, TRACESTATE), [b"a=1,b=2"]);
        assert_eq!(values(&params, b"SCRIPT_NAME"), [b"/a.php"]);
        assert_eq!(values(&params, b"HTTP_LONG"), [&long]);
    }

    #[test]
    fn without_a_trace_of_the_client_the_parameters_stay_as_they_are() {
        let mut params = stream(&[(b"SCRIPT_NAME", b"/a.php")]);
        let before = params.clone();
        let trace = begin(&traces(), &mut params).unwrap();
        assert!(params.starts_with(&before) && trace.parent.is_none());
        assert_eq!(values(&params, TRACEPARENT), [&trace.for_backend()]);
    }

    #[test]
    fn two_parents_start_a_new_trace_and_malformed_parameters_have_none() {
        let mut params =
            stream(&[(TRACEPARENT, PARENT), (TRACEPARENT, PARENT), (TRACESTATE, b"a=1")]);
        let trace = begin(&traces(), &mut params).unwrap();
        assert_eq!(trace.parent, None);
        assert_eq!(values(&params, TRACEPARENT).len(), 1);
        assert!(values(&params, TRACESTATE).is_empty());
        let mut cut = vec![5, 5, b'x'];
        assert_eq!(begin(&traces(), &mut cut), None);
        assert_eq!(cut, [5, 5, b'x']);
    }
}
