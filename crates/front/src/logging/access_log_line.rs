//! Formats a line of the access log.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::io::Write;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use maitred_config::log_format::{LogFormat, Part, Quoting, Unit, Variable};
use maitred_http1::Head;
use maitred_trace::TraceParent;

use crate::http::headers::basic_user;
use crate::http::hosts::host_name;
use crate::logging::request_record::RequestRecord;
use crate::net::tls::Secured;
use crate::runtime::clock;

/// Most bytes of one value; longer ones are cut.
const VALUE_BYTES: usize = 8 * 1024;

/// A request with a complete response, or an invalid request.
#[derive(Debug)]
pub struct Line<'a> {
    /// The client.
    pub peer: IpAddr,
    /// The header of the request, if it is valid.
    pub head: Option<&'a Head>,
    /// The time of the request.
    pub time: Option<Time>,
    /// The TLS data of the connection, if it uses TLS.
    pub secured: Option<&'a Secured>,
    /// The record of the request.
    pub record: &'a RequestRecord,
}

/// The time from the complete header to the complete response.
#[derive(Debug, Clone, Copy)]
pub enum Time {
    /// From this start until now. The clock is read only if the format needs it.
    Since(Instant),
    /// A measured time.
    Over(Duration),
}

impl Time {
    /// This time, measured now.
    pub fn stop(self) -> Time {
        Time::Over(self.length())
    }

    fn length(self) -> Duration {
        match self {
            Time::Since(begun) => begun.elapsed(),
            Time::Over(time) => time,
        }
    }
}

thread_local! {
    static SECOND: Cell<u64> = const { Cell::new(0) };
    static STAMPS: RefCell<[String; 2]> = const { RefCell::new([String::new(), String::new()]) };
}

impl Line<'_> {
    /// Writes the line, without its end.
    pub fn write(&self, out: &mut Vec<u8>, format: &LogFormat) {
        for part in format.parts() {
            match part {
                Part::Text(text) => out.extend_from_slice(text.as_bytes()),
                Part::Value(variable, place) => self.write_value(out, variable, *place),
                Part::StatusColor => out.extend_from_slice(status_color(self.record.status)),
            }
        }
    }

    fn write_value(&self, out: &mut Vec<u8>, variable: &Variable, place: Quoting) {
        let mut digits = itoa::Buffer::new();
        match self.value(variable) {
            Value::Text(Some(text)) => escape(out, place, &text),
            Value::Text(None) => absent(out, place),
            Value::Count(count) => number(out, place, count.map(|count| digits.format(count))),
            Value::Time(time, unit) => duration(out, place, time, unit),
            Value::Stamp(at) => stamped(|stamps| escape(out, place, stamps[at].as_bytes())),
            Value::Now => {
                let now = clock::since_1970();
                let now = format!("{}.{:03}", now.as_secs(), now.subsec_millis());
                number(out, place, Some(&now));
            }
        }
    }

    fn value<'v>(&'v self, variable: &'v Variable) -> Value<'v> {
        use Value::{Count, Text, Time};
        let (record, head, secured) = (self.record, self.head, self.secured);
        let (spent, script) = (record.spent, record.script);
        match variable {
            Variable::RemoteAddr if record.is_client_unknown => Text(None),
            Variable::RemoteAddr => Text(Some(self.peer.to_string().into_bytes().into())),
            Variable::RemoteUser => Text(self.user()),
            Variable::TimeLocal => Value::Stamp(0),
            Variable::TimeIso8601 => Value::Stamp(1),
            Variable::Msec => Value::Now,
            Variable::Request => Text(head.map(request_line)),
            Variable::Method => text(head.map(Head::method)),
            Variable::RequestUri => text(head.map(Head::target)),
            Variable::Uri => text(head.map(Head::path)),
            Variable::Args => text(head.and_then(Head::query)),
            Variable::IsArgs => text(head.map(|head| head.query().map_or("", |_| "?"))),
            Variable::Protocol => text(head.map(|head| head.version().as_str())),
            Variable::Scheme => text(head.map(|_| match record.is_https {
                true => "https",
                false => "http",
            })),
            Variable::Host => text(head.map(|head| host_name(head.host()))),
            Variable::Status => Count(Some(record.status.into())),
            Variable::BodyBytesSent => Count(Some(record.bytes)),
            Variable::BytesSent => Count(Some(record.bytes + record.head_bytes)),
            Variable::RequestLength => {
                Count(head.map(|head| head.len_bytes() as u64 + record.body_bytes))
            }
            Variable::RequestTime(unit) => Time(self.time.map(self::Time::length), *unit),
            Variable::QueueTime(unit) => Time(record.queued, *unit),
            Variable::ScriptTime(unit) => Time(script, *unit),
            Variable::CpuTime(unit) => Time(spent.map(|spent| spent.cpu), *unit),
            Variable::CoreWaitTime(unit) => Time(spent.and_then(|spent| spent.core_wait), *unit),
            Variable::BlockedTime(unit) => Time(spent.and_then(|spent| spent.blocked()), *unit),
            Variable::ChildrenCpuTime(unit) => Time(spent.map(|spent| spent.children), *unit),
            Variable::PeakMemory => Count(spent.map(|spent| spent.peak_memory)),
            Variable::UpstreamTime => Time(self.upstream_time(), Unit::Seconds),
            Variable::RequestId => text(record.id.as_ref().map(|id| id.as_str())),
            Variable::TraceId => Text(self.trace_id()),
            Variable::Pool => text(record.pool.as_deref()),
            Variable::CacheStatus => text(record.cache),
            Variable::SslProtocol => text(secured.map(|secured| secured.protocol)),
            Variable::SslCipher => text(secured.map(|secured| secured.cipher)),
            Variable::Pid => Count(Some(std::process::id().into())),
            Variable::Header(name) => {
                Text(head.and_then(|head| head.header(name)).map(Cow::Borrowed))
            }
        }
    }

    /// The id of the request's trace: its own, or that of the client where requests have none.
    fn trace_id(&self) -> Option<Cow<'_, [u8]>> {
        let own = self.record.trace.as_ref().map(|trace| trace.trace_id);
        let id = own.or_else(|| {
            let parent = TraceParent::of_header(self.head?.values("traceparent"));
            parent.map(|parent| parent.trace_id)
        });
        id.map(|id| id.to_string().into_bytes().into())
    }

    fn user(&self) -> Option<Cow<'_, [u8]>> {
        let authorization = self.head.and_then(|head| head.header("authorization"));
        let user = basic_user(authorization);
        (!user.is_empty()).then_some(user.into())
    }

    /// From the request for a worker to the complete response.
    fn upstream_time(&self) -> Option<Duration> {
        let (queued, script) = self.record.queued.zip(self.record.script)?;
        Some(queued + script.saturating_sub(self.record.rest))
    }
}

/// The control sequence of a status: green, cyan, yellow or red, by its class.
fn status_color(status: u16) -> &'static [u8] {
    match status {
        0..=299 => b"\x1b[32m",
        300..=399 => b"\x1b[36m",
        400..=499 => b"\x1b[33m",
        _ => b"\x1b[31m",
    }
}

/// The value of a variable.
enum Value<'a> {
    /// Text, mostly the client's.
    Text(Option<Cow<'a, [u8]>>),
    Count(Option<u64>),
    Time(Option<Duration>, Unit),
    /// The time of day, at this index of the stamps.
    Stamp(usize),
    /// The time of day in seconds since 1970.
    Now,
}

fn request_line(head: &Head) -> Cow<'_, [u8]> {
    let (method, target) = (head.method(), head.target());
    let line = [method, " ", target, " ", head.version().as_str()].concat();
    line.into_bytes().into()
}

fn text(text: Option<&str>) -> Value<'_> {
    Value::Text(text.map(|text| Cow::Borrowed(text.as_bytes())))
}

fn absent(out: &mut Vec<u8>, place: Quoting) {
    match place {
        Quoting::Line => out.push(b'-'),
        Quoting::WithinString => {}
        Quoting::JsonString | Quoting::JsonNumber => out.extend_from_slice(b"null"),
    }
}

fn number(out: &mut Vec<u8>, place: Quoting, digits: Option<&str>) {
    match (digits, place) {
        (None, _) => absent(out, place),
        (Some(digits), Quoting::JsonString) => {
            let _ = write!(out, "\"{digits}\"");
        }
        (Some(digits), _) => out.extend_from_slice(digits.as_bytes()),
    }
}

fn duration(out: &mut Vec<u8>, place: Quoting, time: Option<Duration>, unit: Unit) {
    let text = time.map(|time| match unit {
        Unit::Seconds => format!("{}.{:06}", time.as_secs(), time.subsec_micros()),
        Unit::Milliseconds => {
            let micros = time.as_micros();
            format!("{}.{:03}", micros / 1000, micros % 1000)
        }
    });
    number(out, place, text.as_deref());
}

/// Calls `with` with `$time_local` and `$time_iso8601`, which are formatted once a second per
/// thread.
fn stamped(with: impl FnOnce(&[String; 2])) {
    let second = clock::since_1970().as_secs();
    STAMPS.with_borrow_mut(|stamps| {
        if SECOND.get() != second || stamps[0].is_empty() {
            SECOND.set(second);
            *stamps = [clock::common_log_time(second), clock::iso_8601(second)];
        }
        with(stamps);
    });
}

/// Escapes a value: no byte from a client ends a line, a quoted value or a JSON string, or controls
/// the terminal that shows the log (some control characters of ISO 6429 are above 0x7f).
fn escape(out: &mut Vec<u8>, place: Quoting, value: &[u8]) {
    let value = value.get(..VALUE_BYTES).unwrap_or(value);
    // Most values need no escaping.
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    if place != Quoting::JsonString && place != Quoting::JsonNumber && value.iter().all(is_plain) {
        return out.extend_from_slice(value);
    }
    match place {
        Quoting::Line => put_visible(out, value, &['"', '\\']),
        Quoting::WithinString => escape_json(out, value),
        Quoting::JsonString | Quoting::JsonNumber => {
            out.push(b'"');
            escape_json(out, value);
            out.push(b'"');
        }
    }
}

/// Appends a value with escapes in place of control characters and of invalid UTF-8, and with a
/// backslash before each of the characters `quoted`.
pub fn put_visible(out: &mut Vec<u8>, value: &[u8], quoted: &[char]) {
    for chunk in value.utf8_chunks() {
        for c in chunk.valid().chars() {
            if quoted.contains(&c) {
                out.push(b'\\');
            }
            let mut buffer = [0; 4];
            let bytes = c.encode_utf8(&mut buffer).as_bytes();
            match c.is_control() {
                true => escape_bytes(out, bytes),
                false => out.extend_from_slice(bytes),
            }
        }
        escape_bytes(out, chunk.invalid());
    }
}

fn escape_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(out, "\\x{byte:02X}");
    }
}

/// RFC 8259 §7. Invalid UTF-8 becomes U+FFFD.
fn escape_json(out: &mut Vec<u8>, value: &[u8]) {
    for c in String::from_utf8_lossy(value).chars() {
        match c {
            '"' | '\\' => out.extend_from_slice(&[b'\\', c as u8]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::request_id::RequestId;
    use bytes::BytesMut;
    use maitred_http1::{HeadParser, Limits};
    use maitred_seat::Spent;

    fn head(text: &str) -> Head {
        let mut bytes = BytesMut::from(text);
        let parsed = HeadParser::new().parse(&mut bytes, &Limits::default());
        parsed.unwrap().unwrap()
    }

    fn line(format: &str, head: Option<&Head>, record: &RequestRecord) -> String {
        let line = Line {
            peer: "192.0.2.7".parse().unwrap(),
            head,
            time: head.map(|_| Time::Since(Instant::now())),
            secured: None,
            record,
        };
        let mut out = Vec::new();
        line.write(&mut out, &LogFormat::parse(format).unwrap());
        String::from_utf8(out).unwrap()
    }

    fn answered() -> RequestRecord {
        RequestRecord {
            status: 200,
            bytes: 5,
            head_bytes: 100,
            queued: Some(Duration::from_micros(1_234)),
            script: Some(Duration::from_micros(2_000_001)),
            spent: Some(Spent {
                held: Duration::from_micros(2_000_001),
                cpu: Duration::from_micros(300_000),
                core_wait: Some(Duration::from_micros(1)),
                children: Duration::from_micros(5),
                peak_memory: 2 << 20,
            }),
            ..RequestRecord::default()
        }
    }

    const ASKED: &str = "POST /a%20b?c=\"d\" HTTP/1.1\r\nHost: Shop.example:81\r\n\
                         Authorization: Basic YW5uOng=\r\nUser-Agent: x\\y\u{1}\r\n\r\n";

    #[test]
    fn every_variable_has_its_value() {
        let asked = ASKED.replace('\u{1}', "\u{7e}");
        let (head, record) = (head(&asked), answered());
        let written = |format: &str| line(format, Some(&head), &record);
        assert_eq!(
            written("$remote_addr $remote_user $request_method $request_uri $uri $is_args$args"),
            "192.0.2.7 ann POST /a%20b?c=\\\"d\\\" /a%20b ?c=\\\"d\\\""
        );
        assert_eq!(
            written("$scheme $host $http_host $server_protocol $status"),
            "http Shop.example Shop.example:81 HTTP/1.1 200"
        );
        assert_eq!(
            written("$body_bytes_sent $bytes_sent $queue_ms $script_ms $queue_time $script_time"),
            "5 105 1.234 2000.001 0.001234 2.000001"
        );
        assert_eq!(
            written("$upstream_response_time $pool $ssl_protocol $ssl_cipher $http_referer"),
            "2.001235 - - - -"
        );
        assert_eq!(
            written("$cpu_time $core_wait_time $blocked_time $children_cpu_time $peak_memory"),
            "0.300000 0.000001 1.700000 0.000005 2097152"
        );
        assert_eq!(
            written("$cpu_ms $core_wait_ms $blocked_ms $children_cpu_ms"),
            "300.000 0.001 1700.000 0.005"
        );
        let length = asked.len();
        assert_eq!(written("$request_length"), length.to_string());
        assert!(written("$time_iso8601").contains("T"));
    }

    #[test]
    fn nothing_a_client_sends_ends_a_line_or_a_field() {
        let mut out = Vec::new();
        escape(&mut out, Quoting::Line, b"a\"b\\c\nd\x7f");
        assert_eq!(out, b"a\\\"b\\\\c\\x0Ad\\x7F");
        out.clear();
        escape(&mut out, Quoting::Line, "Übung \u{9b}31m".as_bytes());
        escape(&mut out, Quoting::Line, b"\x9b31m\xff");
        assert_eq!(out, "Übung \\xC2\\x9B31m\\x9B31m\\xFF".as_bytes());
        out.clear();
        escape(&mut out, Quoting::WithinString, "é\u{9b}".as_bytes());
        assert_eq!(out, "é\\u009b".as_bytes());
        out.clear();
        escape(&mut out, Quoting::JsonString, b"a\"b\\c\nd\x7f\xff");
        let text: String = serde_json::from_slice(&out).unwrap();
        assert_eq!(text, "a\"b\\c\nd\x7f\u{fffd}");
        out.clear();
        escape(&mut out, Quoting::Line, &[b'x'; 2 * VALUE_BYTES]);
        assert_eq!(out.len(), VALUE_BYTES);
    }

    #[test]
    fn json_is_json_with_and_without_a_request() {
        let asked = ASKED.replace('\u{1}', "\u{7e}");
        let head = head(&asked);
        let mut record = answered();
        record.id = Some(RequestId::next());
        let read = |text: String| serde_json::from_str::<serde_json::Value>(&text).unwrap();
        let whole = read(line("json", Some(&head), &record));
        assert_eq!(whole["user_agent"], "x\\y~");
        assert_eq!(whole["status"], 200);
        assert_eq!(whole["script_time"], 2.000_001);
        assert_eq!(whole["request_id"].as_str().unwrap().len(), 32);
        let bare = read(line("json", None, &RequestRecord::default()));
        assert!(bare["target"].is_null() && bare["queue_time"].is_null());
        assert!(bare["blocked_time"].is_null() && bare["peak_memory"].is_null());
        let own = r#"{"a":"[$host]","b":"$status"}"#;
        assert_eq!(line(own, None, &record), r#"{"a":"[]","b":"200"}"#);
    }

    #[test]
    fn what_was_no_request_has_a_line_too() {
        let record = RequestRecord { status: 400, bytes: 7, ..RequestRecord::default() };
        let said = line("combined", None, &record);
        assert!(said.starts_with("192.0.2.7 - - ["), "{said}");
        assert!(said.ends_with("] \"-\" 400 7 \"-\" \"-\" - - -"), "{said}");
    }
}
