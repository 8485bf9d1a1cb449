//! Spans as `ExportTraceServiceRequest` of OTLP 1.x in its JSON form
//! (<https://opentelemetry.io/docs/specs/otlp/>, "JSON Protobuf Encoding"): ids in hexadecimal,
//! 64-bit numbers as text, enumerations as numbers.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::span::{Span, SpanValue};

/// The media type of a request (OTLP/HTTP).
pub const CONTENT_TYPE: &str = "application/json";

/// Bits of `Span.flags`: the caller's place is known, and it is another program.
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// `STATUS_CODE_ERROR`.
const STATUS_ERROR: u32 = 2;

/// An export of spans.
#[derive(Debug, Clone, Copy)]
pub struct Export<'a> {
    /// The attributes of the service, by name.
    pub resource: &'a [(String, String)],
    /// The version of this program.
    pub version: &'a str,
    /// The spans.
    pub spans: &'a [Span],
}

impl Export<'_> {
    /// The body of a request.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(&self).unwrap_or_default()
    }
}

/// The number of spans that a receiver has rejected, by its response
/// (`ExportTracePartialSuccess`). A body that is none says that it has taken all.
pub fn rejected(body: &[u8]) -> u64 {
    let value = serde_json::from_slice::<serde_json::Value>(body).unwrap_or_default();
    let found = value.pointer("/partialSuccess/rejectedSpans");
    let number = found.and_then(|found| match found {
        serde_json::Value::String(text) => text.parse().ok(),
        other => other.as_u64(),
    });
    number.unwrap_or(0)
}

impl Serialize for Export<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let attributes: Vec<Attribute<'_>> = self.resource.iter().map(Attribute::of_text).collect();
        let spans: Vec<SpanJson<'_>> = self.spans.iter().map(SpanJson).collect();
        one("resourceSpans", &ResourceSpans { attributes, version: self.version, spans }, out)
    }
}

/// Writes `{NAME: [ITEM]}`.
fn one<S: Serializer>(name: &str, item: &impl Serialize, out: S) -> Result<S::Ok, S::Error> {
    let mut map = out.serialize_map(Some(1))?;
    map.serialize_entry(name, &[item])?;
    map.end()
}

struct ResourceSpans<'a> {
    attributes: Vec<Attribute<'a>>,
    version: &'a str,
    spans: Vec<SpanJson<'a>>,
}

impl Serialize for ResourceSpans<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let scope = serde_json::json!({ "name": "maitred", "version": self.version });
        let mut map = out.serialize_map(Some(2))?;
        map.serialize_entry("resource", &Attributes(&self.attributes))?;
        map.serialize_entry("scopeSpans", &[ScopeSpans { scope, spans: &self.spans }])?;
        map.end()
    }
}

#[derive(Serialize)]
struct ScopeSpans<'a> {
    scope: serde_json::Value,
    spans: &'a [SpanJson<'a>],
}

struct Attributes<'a>(&'a [Attribute<'a>]);

impl Serialize for Attributes<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut map = out.serialize_map(Some(1))?;
        map.serialize_entry("attributes", self.0)?;
        map.end()
    }
}

struct SpanJson<'a>(&'a Span);

impl Serialize for SpanJson<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let span = self.0;
        let mut map = out.serialize_map(None)?;
        map.serialize_entry("traceId", &Shown(&span.trace_id))?;
        map.serialize_entry("spanId", &Shown(&span.span_id))?;
        let mut flags = u32::from(span.flags) | HAS_IS_REMOTE;
        if let Some(parent) = &span.parent {
            map.serialize_entry("parentSpanId", &Shown(parent))?;
            flags |= if span.is_parent_remote { IS_REMOTE } else { 0 };
        }
        map.serialize_entry("flags", &flags)?;
        if let Some(state) = &span.state {
            map.serialize_entry("traceState", state)?;
        }
        map.serialize_entry("name", &span.name)?;
        map.serialize_entry("kind", &(span.kind as u32))?;
        map.serialize_entry("startTimeUnixNano", &Shown(&span.start))?;
        map.serialize_entry("endTimeUnixNano", &Shown(&span.end))?;
        let attributes: Vec<Attribute<'_>> = span
            .attributes
            .iter()
            .map(|(key, value)| Attribute { key, value: Ok(value) })
            .collect();
        map.serialize_entry("attributes", &attributes)?;
        if span.has_failed {
            map.serialize_entry("status", &serde_json::json!({ "code": STATUS_ERROR }))?;
        }
        map.end()
    }
}

/// An attribute: a value of a span, or text of the service.
struct Attribute<'a> {
    key: &'a str,
    value: Result<&'a SpanValue, &'a str>,
}

impl<'a> Attribute<'a> {
    fn of_text(pair: &'a (String, String)) -> Attribute<'a> {
        Attribute { key: &pair.0, value: Err(&pair.1) }
    }
}

impl Serialize for Attribute<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut map = out.serialize_map(Some(2))?;
        map.serialize_entry("key", self.key)?;
        match self.value {
            Ok(value) => map.serialize_entry("value", &AnyValue(value))?,
            Err(text) => map.serialize_entry("value", &Text { string_value: text })?,
        }
        map.end()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Text<'a> {
    string_value: &'a str,
}

struct AnyValue<'a>(&'a SpanValue);

impl Serialize for AnyValue<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut map = out.serialize_map(Some(1))?;
        match self.0 {
            SpanValue::Text(text) => map.serialize_entry("stringValue", text)?,
            SpanValue::Number(number) => map.serialize_entry("intValue", &Shown(number))?,
            SpanValue::Decimal(number) => map.serialize_entry("doubleValue", number)?,
            SpanValue::Flag(flag) => map.serialize_entry("boolValue", flag)?,
        }
        map.end()
    }
}

/// A value as text.
struct Shown<'a, T>(&'a T);

impl<T: std::fmt::Display> Serialize for Shown<'_, T> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{SpanId, TraceId};
    use crate::span::SpanKind;

    #[test]
    fn spans_have_the_form_of_the_specification() {
        let span = Span {
            trace_id: TraceId::parse(b"5b8efff798038103d269b633813fc60c").unwrap(),
            span_id: SpanId::parse(b"eee19b7ec3c1b174").unwrap(),
            parent: SpanId::parse(b"eee19b7ec3c1b173"),
            is_parent_remote: true,
            flags: 1,
            state: Some("a=1".into()),
            name: "GET".to_owned(),
            kind: SpanKind::Server,
            start: 1_544_712_660_000_000_000,
            end: 1_544_712_661_000_000_000,
            attributes: vec![
                ("http.response.status_code", SpanValue::Number(500)),
                ("url.path", SpanValue::text("/\"x")),
                ("maitred.cpu_ms", SpanValue::Decimal(1.5)),
                ("maitred.kept", SpanValue::Flag(true)),
            ],
            has_failed: true,
        };
        let resource = [("service.name".to_owned(), "shop".to_owned())];
        let export = Export { resource: &resource, version: "1", spans: &[span] };
        let found: serde_json::Value = serde_json::from_slice(&export.to_json()).unwrap();
        let expected = serde_json::json!({ "resourceSpans": [{
            "resource": { "attributes": [
                { "key": "service.name", "value": { "stringValue": "shop" } } ] },
            "scopeSpans": [{ "scope": { "name": "maitred", "version": "1" }, "spans": [{
                "traceId": "5b8efff798038103d269b633813fc60c",
                "spanId": "eee19b7ec3c1b174",
                "parentSpanId": "eee19b7ec3c1b173",
                "flags": 0x301,
                "traceState": "a=1",
                "name": "GET",
                "kind": 2,
                "startTimeUnixNano": "1544712660000000000",
                "endTimeUnixNano": "1544712661000000000",
                "attributes": [
                    { "key": "http.response.status_code", "value": { "intValue": "500" } },
                    { "key": "url.path", "value": { "stringValue": "/\"x" } },
                    { "key": "maitred.cpu_ms", "value": { "doubleValue": 1.5 } },
                    { "key": "maitred.kept", "value": { "boolValue": true } } ],
                "status": { "code": 2 } }] }] }] });
        assert_eq!(found, expected);
    }

    #[test]
    fn a_receiver_says_what_it_has_rejected() {
        assert_eq!(rejected(br#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"x"}}"#), 3);
        assert_eq!(rejected(br#"{"partialSuccess":{"rejectedSpans":3}}"#), 3);
        for none in [&b"{}"[..], b"", b"ok", br#"{"partialSuccess":{}}"#] {
            assert_eq!(rejected(none), 0);
        }
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let length = |text: String| match SpanValue::text(&text) {
            SpanValue::Text(cut) => cut.len(),
            other => panic!("{other:?}"),
        };
        assert_eq!(length("\u{e9}".repeat(512)), 1024);
        assert_eq!(length("\u{e9}".repeat(1000)), 1024);
        assert_eq!(length("a".to_owned() + &"\u{e9}".repeat(1000)), 1023);
        assert_eq!(length("a".repeat(1023)), 1023);
    }
}
