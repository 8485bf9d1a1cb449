//! A line of the access log, as its format says.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::io::Write;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use maitred_config::log_format::{LogFormat, Part, Place, Unit, Variable};
use maitred_http1::Head;

use super::Answered;
use crate::clock;
use crate::params::basic_user;
use crate::sites::host_name;
use crate::tls::Secured;

/// Most bytes of one value; what is longer is cut.
const VALUE_BYTES: usize = 8 * 1024;

/// A request that has been answered, or what was none.
#[derive(Debug)]
pub struct Line<'a> {
    /// The client.
    pub peer: IpAddr,
    /// Its request, if it could be read.
    pub head: Option<&'a Head>,
    /// How long it took.
    pub time: Option<Time>,
    /// What TLS says of it, if it came over that.
    pub secured: Option<&'a Secured>,
    /// What became of it.
    pub answered: &'a Answered,
}

/// The time from when a request's head was there until it had been answered.
#[derive(Debug, Clone, Copy)]
pub enum Time {
    /// It is over now, and began then. The clock is looked at if somebody wants to know.
    Since(Instant),
    /// It is over.
    Over(Duration),
}

impl Time {
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
            }
        }
    }

    fn write_value(&self, out: &mut Vec<u8>, variable: &Variable, place: Place) {
        let (answered, head) = (self.answered, self.head);
        let mut digits = itoa::Buffer::new();
        let value: Option<Cow<'_, [u8]>> = match variable {
            Variable::RemoteAddr => Some(self.peer.to_string().into_bytes().into()),
            Variable::RemoteUser => {
                let user = basic_user(head.and_then(|head| head.header("authorization")));
                (!user.is_empty()).then_some(user.into())
            }
            Variable::TimeLocal => {
                return stamped(|stamps| escape(out, place, stamps[0].as_bytes()));
            }
            Variable::TimeIso8601 => {
                return stamped(|stamps| escape(out, place, stamps[1].as_bytes()));
            }
            Variable::Msec => {
                let now = clock::since_1970();
                let now = format!("{}.{:03}", now.as_secs(), now.subsec_millis());
                return number(out, place, Some(&now));
            }
            Variable::Request => head.map(|head| {
                let (method, target) = (head.method(), head.target());
                [method, " ", target, " ", head.version().as_str()]
                    .concat()
                    .into_bytes()
                    .into()
            }),
            Variable::Method => text(head.map(Head::method)),
            Variable::RequestUri => text(head.map(Head::target)),
            Variable::Uri => text(head.map(Head::path)),
            Variable::Args => text(head.and_then(Head::query)),
            Variable::IsArgs => text(head.map(|head| head.query().map_or("", |_| "?"))),
            Variable::Protocol => text(head.map(|head| head.version().as_str())),
            Variable::Scheme => text(head.map(|_| match answered.is_https {
                true => "https",
                false => "http",
            })),
            Variable::Host => text(head.map(|head| host_name(head.host()))),
            Variable::Status => return number(out, place, Some(digits.format(answered.status))),
            Variable::BodyBytesSent => {
                return number(out, place, Some(digits.format(answered.bytes)));
            }
            Variable::BytesSent => {
                let bytes = answered.bytes + answered.head_bytes;
                return number(out, place, Some(digits.format(bytes)));
            }
            Variable::RequestLength => {
                let bytes = head.map(|head| head.len_bytes() as u64 + answered.body_bytes);
                return number(out, place, bytes.map(|bytes| digits.format(bytes)));
            }
            Variable::RequestTime(unit) => {
                let time = self.time.map(Time::length);
                return duration(out, place, time, *unit);
            }
            Variable::QueueTime(unit) => return duration(out, place, answered.queued, *unit),
            Variable::ScriptTime(unit) => return duration(out, place, answered.script, *unit),
            Variable::CpuTime(unit) => {
                let time = answered.spent.map(|spent| spent.cpu);
                return duration(out, place, time, *unit);
            }
            Variable::CoreWaitTime(unit) => {
                let time = answered.spent.and_then(|spent| spent.core_wait);
                return duration(out, place, time, *unit);
            }
            Variable::BlockedTime(unit) => {
                let time = answered.spent.and_then(|spent| spent.blocked());
                return duration(out, place, time, *unit);
            }
            Variable::ChildrenCpuTime(unit) => {
                let time = answered.spent.map(|spent| spent.children);
                return duration(out, place, time, *unit);
            }
            Variable::PeakMemory => {
                let bytes = answered.spent.map(|spent| spent.peak_memory);
                return number(out, place, bytes.map(|bytes| digits.format(bytes)));
            }
            Variable::UpstreamTime => {
                let both = answered.queued.zip(answered.script);
                let until_answered = |script: Duration| script.saturating_sub(answered.rest);
                let both = both.map(|(queued, script)| queued + until_answered(script));
                return duration(out, place, both, Unit::Seconds);
            }
            Variable::RequestId => text(answered.id.as_ref().map(|id| id.as_str())),
            Variable::Pool => text(answered.pool.as_ref().map(|pool| pool.name.as_str())),
            Variable::CacheStatus => text(answered.cache),
            Variable::SslProtocol => text(self.secured.map(|secured| secured.protocol)),
            Variable::SslCipher => text(self.secured.map(|secured| secured.cipher)),
            Variable::Pid => return number(out, place, Some(digits.format(std::process::id()))),
            Variable::Header(name) => head.and_then(|head| head.header(name)).map(Cow::Borrowed),
        };
        match value {
            Some(value) => escape(out, place, &value),
            None => absent(out, place),
        }
    }
}

fn text(text: Option<&str>) -> Option<Cow<'_, [u8]>> {
    text.map(|text| Cow::Borrowed(text.as_bytes()))
}

fn absent(out: &mut Vec<u8>, place: Place) {
    match place {
        Place::Line => out.push(b'-'),
        Place::WithinString => {}
        Place::JsonString | Place::JsonNumber => out.extend_from_slice(b"null"),
    }
}

fn number(out: &mut Vec<u8>, place: Place, digits: Option<&str>) {
    match (digits, place) {
        (None, _) => absent(out, place),
        (Some(digits), Place::JsonString) => {
            let _ = write!(out, "\"{digits}\"");
        }
        (Some(digits), _) => out.extend_from_slice(digits.as_bytes()),
    }
}

fn duration(out: &mut Vec<u8>, place: Place, time: Option<Duration>, unit: Unit) {
    let text = time.map(|time| match unit {
        Unit::Seconds => format!("{}.{:06}", time.as_secs(), time.subsec_micros()),
        Unit::Milliseconds => {
            let micros = time.as_micros();
            format!("{}.{:03}", micros / 1000, micros % 1000)
        }
    });
    number(out, place, text.as_deref());
}

/// Calls `with` with `$time_local` and `$time_iso8601`, which are made once a second and thread.
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

/// Nothing a client sends can end a line, a quoted field or a JSON string.
fn escape(out: &mut Vec<u8>, place: Place, value: &[u8]) {
    let value = value.get(..VALUE_BYTES).unwrap_or(value);
    match place {
        Place::Line => escape_line(out, value),
        Place::WithinString => escape_json(out, value),
        Place::JsonString | Place::JsonNumber => {
            out.push(b'"');
            escape_json(out, value);
            out.push(b'"');
        }
    }
}

fn escape_line(out: &mut Vec<u8>, value: &[u8]) {
    for &byte in value {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0x20..=0x7e | 0x80.. => out.push(byte),
            _ => {
                let _ = write!(out, "\\x{byte:02X}");
            }
        }
    }
}

/// RFC 8259 §7. Bytes that are no UTF-8 become U+FFFD.
fn escape_json(out: &mut Vec<u8>, value: &[u8]) {
    for byte in String::from_utf8_lossy(value).bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0x20..=0x7e | 0x80.. => out.push(byte),
            _ => {
                let _ = write!(out, "\\u{byte:04x}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_id::RequestId;
    use bytes::BytesMut;
    use maitred_http1::{HeadParser, Limits};
    use maitred_seat::Spent;

    fn head(text: &str) -> Head {
        let mut bytes = BytesMut::from(text);
        let parsed = HeadParser::new().parse(&mut bytes, &Limits::default());
        parsed.unwrap().unwrap()
    }

    fn line(format: &str, head: Option<&Head>, answered: &Answered) -> String {
        let line = Line {
            peer: "192.0.2.7".parse().unwrap(),
            head,
            time: head.map(|_| Time::Since(Instant::now())),
            secured: None,
            answered,
        };
        let mut out = Vec::new();
        line.write(&mut out, &LogFormat::parse(format).unwrap());
        String::from_utf8(out).unwrap()
    }

    fn answered() -> Answered {
        Answered {
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
            ..Answered::default()
        }
    }

    const ASKED: &str = "POST /a%20b?c=\"d\" HTTP/1.1\r\nHost: Shop.example:81\r\n\
                         Authorization: Basic YW5uOng=\r\nUser-Agent: x\\y\u{1}\r\n\r\n";

    #[test]
    fn every_variable_has_its_value() {
        let asked = ASKED.replace('\u{1}', "\u{7e}");
        let (head, answered) = (head(&asked), answered());
        let written = |format: &str| line(format, Some(&head), &answered);
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
        escape_line(&mut out, b"a\"b\\c\nd\x7f");
        assert_eq!(out, b"a\\\"b\\\\c\\x0Ad\\x7F");
        out.clear();
        escape(&mut out, Place::JsonString, b"a\"b\\c\nd\x7f\xff");
        let text: String = serde_json::from_slice(&out).unwrap();
        assert_eq!(text, "a\"b\\c\nd\x7f\u{fffd}");
        out.clear();
        escape(&mut out, Place::Line, &[b'x'; 2 * VALUE_BYTES]);
        assert_eq!(out.len(), VALUE_BYTES);
    }

    #[test]
    fn json_is_json_with_and_without_a_request() {
        let asked = ASKED.replace('\u{1}', "\u{7e}");
        let head = head(&asked);
        let mut answered = answered();
        answered.id = Some(RequestId::next());
        let read = |text: String| serde_json::from_str::<serde_json::Value>(&text).unwrap();
        let whole = read(line("json", Some(&head), &answered));
        assert_eq!(whole["user_agent"], "x\\y~");
        assert_eq!(whole["status"], 200);
        assert_eq!(whole["script_time"], 2.000_001);
        assert_eq!(whole["request_id"].as_str().unwrap().len(), 32);
        let bare = read(line("json", None, &Answered::default()));
        assert!(bare["target"].is_null() && bare["queue_time"].is_null());
        assert!(bare["blocked_time"].is_null() && bare["peak_memory"].is_null());
        let own = r#"{"a":"[$host]","b":"$status"}"#;
        assert_eq!(line(own, None, &answered), r#"{"a":"[]","b":"200"}"#);
    }

    #[test]
    fn what_was_no_request_has_a_line_too() {
        let answered = Answered {
            status: 400,
            bytes: 7,
            ..Answered::default()
        };
        let said = line("combined", None, &answered);
        assert!(said.starts_with("192.0.2.7 - - ["), "{said}");
        assert!(said.ends_with("] \"-\" 400 7 \"-\" \"-\" - - -"), "{said}");
    }
}
