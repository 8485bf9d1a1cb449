//! The spans of a finished request: the request itself, and its time in the queue, in its script
//! and on the way to the client.

use std::time::{Duration, Instant};

use maitred_http1::Version;
use maitred_trace::{RequestTrace, Span, SpanId, SpanKind, SpanValue};

use crate::http::hosts::host_name;
use crate::logging::request_record::RequestRecord;
use crate::pool::route_metrics::name_class;
use crate::runtime::clock;
use crate::services::traces::Traces;

/// The first status that says that the server has failed (RFC 9110 §15.6).
pub const SERVER_ERROR: u16 = 500;

/// A finished request.
pub struct FinishedRequest<'a> {
    /// Its method.
    pub method: &'a str,
    /// Its target.
    pub target: &'a str,
    /// The path of the target.
    pub path: &'a str,
    /// The client's version of HTTP; none: a web server has sent it over FastCGI.
    pub version: Option<Version>,
    /// Its record.
    pub record: &'a RequestRecord,
    /// The authority that the client requested.
    pub host: &'a str,
    /// When its header was complete.
    pub begun: Instant,
    /// The time since then.
    pub took: Duration,
}

/// Why the spans of a request with this status and duration are exported; none: they are not.
pub fn selected_for(
    traces: &Traces,
    trace: &RequestTrace,
    status: u16,
    took: Duration,
) -> Option<&'static str> {
    match (trace.is_sampled, status >= SERVER_ERROR) {
        _ if !traces.is_exporting() => None,
        (true, _) => Some("ratio"),
        (false, true) => Some("failed"),
        (false, false) => traces.is_slow(took).then_some("slow"),
    }
}

/// Leaves the spans of a request for their export if it was selected, is slow or has failed.
pub fn export(traces: &Traces, trace: &RequestTrace, request: &FinishedRequest<'_>) {
    let Some(selected_for) = selected_for(traces, trace, request.record.status, request.took)
    else {
        return;
    };
    let begun = clock::since_1970().saturating_sub(request.took);
    let spans = RequestSpans { trace, request, begun, span_id: SpanId::random() };
    traces.export(spans.all(selected_for));
}

struct RequestSpans<'a> {
    trace: &'a RequestTrace,
    request: &'a FinishedRequest<'a>,
    /// The start, since 1970.
    begun: Duration,
    /// The span of the request.
    span_id: SpanId,
}

impl RequestSpans<'_> {
    fn all(&self, selected_for: &'static str) -> Vec<Span> {
        let record = self.request.record;
        let mut spans = vec![self.whole(selected_for)];
        spans.extend(self.lookup());
        let Some(began) = record.backend_began else {
            return spans;
        };
        let offset = began.saturating_duration_since(self.request.begun);
        let assigned = offset + record.queued.unwrap_or_default();
        if let Some(queued) = record.queued {
            let queue = self.part("queue", SpanId::random(), offset, assigned);
            let boot = record.boot.map(|boot| {
                let began = assigned.saturating_sub(boot.min(queued));
                let boot = self.part("boot", SpanId::random(), began, assigned);
                Span { parent: Some(queue.span_id), ..boot }
            });
            spans.extend([Some(queue), boot].into_iter().flatten());
        }
        let Some(script) = record.script else {
            return spans;
        };
        let ended = (assigned + script).min(self.request.took.max(assigned));
        spans.push(self.backend(assigned, ended));
        spans.push(self.part("send", SpanId::random(), ended, self.request.took));
        spans
    }

    /// The span of the lookup in the page cache.
    fn lookup(&self) -> Option<Span> {
        let record = self.request.record;
        let lookup = record.lookup?;
        let offset =
            |at: Instant| at.saturating_duration_since(self.request.begun).min(self.request.took);
        let ended = lookup.ended.map_or(self.request.took, offset);
        let mut span = self.part("cache", SpanId::random(), offset(lookup.began), ended);
        if let Some(result) = record.cache {
            span.attributes.push(("maitred.cache", SpanValue::text(result)));
        }
        let wait = SpanValue::Decimal(lookup.waited.as_micros() as f64 / 1000.0);
        span.attributes.push(("maitred.cache_wait_ms", wait));
        Some(span)
    }

    fn whole(&self, selected_for: &'static str) -> Span {
        let (trace, request) = (self.trace, self.request);
        let FinishedRequest { method, record, host, .. } = *request;
        let mut route = String::new();
        name_class(request.target, &mut route);
        let mut span = self.part("", self.span_id, Duration::ZERO, self.request.took);
        let text = SpanValue::text;
        let scheme = if record.is_https { "https" } else { "http" };
        span.attributes.extend([
            ("http.request.method", text(method)),
            ("http.route", text(&route)),
            ("url.scheme", text(scheme)),
            ("url.path", text(request.path)),
            ("server.address", text(host_name(host))),
            ("http.response.status_code", SpanValue::Number(record.status.into())),
            ("maitred.selected_for", text(selected_for)),
        ]);
        if let Some(version) = request.version {
            span.attributes.extend([
                ("network.protocol.version", text(protocol_version(version))),
                ("http.response.body.size", SpanValue::Number(number(record.bytes))),
            ]);
        }
        if record.status >= SERVER_ERROR {
            span.attributes.push(("error.type", text(&record.status.to_string())));
        }
        if let Some(id) = &record.id {
            span.attributes.push(("maitred.request_id", text(id.as_str())));
        }
        if let Some(cache) = record.cache {
            span.attributes.push(("maitred.cache", text(cache)));
        }
        span.name = format!("{method} {route}");
        span.kind = SpanKind::Server;
        (span.parent, span.is_parent_remote) = (trace.parent, trace.parent.is_some());
        span.has_failed = record.status >= SERVER_ERROR;
        span
    }

    /// The span of the script or of the upstream server.
    fn backend(&self, begins: Duration, ends: Duration) -> Span {
        let record = self.request.record;
        let mut span = self.part("script", self.trace.backend_id, begins, ends);
        span.has_failed = record.status >= SERVER_ERROR;
        if let Some(upstream) = &record.upstream {
            (span.name, span.kind) = ("upstream".to_owned(), SpanKind::Client);
            span.attributes.push(("server.address", SpanValue::text(upstream)));
        }
        if let Some(pool) = &record.pool {
            span.attributes.push(("maitred.pool", SpanValue::text(pool)));
        }
        if let Some(spent) = &record.spent {
            let ms = |time: Duration| SpanValue::Decimal(time.as_micros() as f64 / 1000.0);
            span.attributes.push(("maitred.cpu_ms", ms(spent.cpu)));
            let waits = [
                ("maitred.core_wait_ms", spent.core_wait),
                ("maitred.blocked_ms", spent.blocked()),
            ];
            let known = waits.into_iter().filter_map(|(name, time)| Some((name, ms(time?))));
            span.attributes.extend(known);
            span.attributes.push(("maitred.children_cpu_ms", ms(spent.children)));
            let memory = SpanValue::Number(number(spent.peak_memory));
            span.attributes.push(("maitred.peak_memory", memory));
        }
        span
    }

    /// A part of the request between two points of its time.
    fn part(&self, name: &str, span_id: SpanId, begins: Duration, ends: Duration) -> Span {
        let at =
            |offset: Duration| u64::try_from((self.begun + offset).as_nanos()).unwrap_or(u64::MAX);
        Span {
            trace_id: self.trace.trace_id,
            span_id,
            parent: Some(self.span_id),
            is_parent_remote: false,
            flags: self.trace.flags(),
            state: self.trace.state.clone(),
            name: name.to_owned(),
            kind: SpanKind::Internal,
            start: at(begins),
            end: at(ends.max(begins)),
            attributes: Vec::new(),
            has_failed: false,
        }
    }
}

/// The version as OpenTelemetry names it.
fn protocol_version(version: Version) -> &'static str {
    match version {
        Version::Http10 => "1.0",
        Version::Http11 => "1.1",
        Version::Http2 => "2",
    }
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
