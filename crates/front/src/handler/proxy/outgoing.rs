//! The request to an upstream server: the client's headers without those of its connection, and
//! with headers that describe the client (`X-Forwarded-For` and others).

use std::borrow::Cow;
use std::sync::Arc;

use hyper::Request;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue,
    TRANSFER_ENCODING, UPGRADE,
};
use maitred_http1::{Framing, Head, Method, is_hop_by_hop};
use maitred_rules::Pattern;
use maitred_rules::path::encode_path;
use maitred_rules::settings::Upstream;
use maitred_trace::RequestTrace;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};

use crate::handler::context::RequestContext;
use crate::handler::proxy::early::EarlyHints;
use crate::proxy::server::Server;
use crate::proxy::upload::UploadBody;
use crate::runtime::request_id::RequestId;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A request to an upstream server.
pub struct Outgoing<'a> {
    /// The client's request at its site.
    pub context: &'a RequestContext<'a>,
    /// The server.
    pub server: &'a Server,
    /// The path, decoded and normalised.
    pub path: &'a [u8],
    /// The request's id in logs.
    pub id: RequestId,
    /// The request's trace.
    pub trace: Option<Arc<RequestTrace>>,
    /// Collects early hints, if the client may get them.
    pub early: Option<EarlyHints>,
    /// Whether it is the handshake of a WebSocket.
    pub is_websocket: bool,
}

impl Outgoing<'_> {
    /// Builds the request with this body; none if its target must not be passed on.
    pub fn request(&self, body: UploadBody) -> Option<Request<UploadBody>> {
        let request = Request::builder().method(self.context.head.method()).uri(self.target()?);
        let mut request = request.body(body).ok()?;
        *request.headers_mut() = self.header();
        if let Some(early) = &self.early {
            early.listen(&mut request);
        }
        Some(request)
    }

    /// The path as the client or a rewrite spells it, and the query.
    fn target(&self) -> Option<String> {
        let query = self.context.query().map(|query| format!("?{query}"));
        let query = query.unwrap_or_default();
        let raw: Cow<'_, str> = match dot_segments(&self.context.path) {
            DotSegments::Absent => (&*self.context.path).into(),
            // The rules were checked for the normalised path: the server must resolve to the same.
            DotSegments::Plain => encode_path(self.path).into(),
            DotSegments::Ambiguous => return None,
        };
        let path: Cow<'_, str> = match &self.server.rule.path {
            Pattern::Below(folder) if self.server.rule.strip_prefix => {
                let rest: Cow<'_, str> = match raw.strip_prefix(folder.as_str()) {
                    Some(rest) => rest.into(),
                    // The path spells the folder in another way.
                    None => encode_path(self.path.get(folder.len()..).unwrap_or_default()).into(),
                };
                format!("/{rest}").into()
            }
            _ => raw,
        };
        Some(encoded(format!("{}{query}", with_one_slash(&path))))
    }

    fn header(&self) -> HeaderMap {
        let (head, target, rule) = (self.context.head, self.context.target, &self.server.rule);
        let mut fields = HeaderMap::with_capacity(head.headers().len() + 6);
        let mut cookies: Vec<u8> = Vec::new();
        let options = head.values("Connection");
        let options: Vec<&[u8]> = options.flat_map(members).collect();
        let is_named = |name: &[u8]| options.iter().any(|one| one.eq_ignore_ascii_case(name));
        for (name, value) in head.headers() {
            let is_of_trace = self.trace.is_some()
                && (name.eq_ignore_ascii_case(b"traceparent")
                    || name.eq_ignore_ascii_case(b"tracestate"));
            if is_hop_by_hop(name) || is_ours(name) || is_named(name) || is_of_trace {
                continue;
            }
            if name.eq_ignore_ascii_case(b"cookie") {
                // HTTP/2 may split it, HTTP/1 has one (RFC 9113 §8.2.3).
                let between: &[u8] = if cookies.is_empty() { b"" } else { b"; " };
                cookies.extend_from_slice(between);
                cookies.extend_from_slice(value);
                continue;
            }
            let name = HeaderName::from_bytes(name);
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
                fields.append(name, value);
            }
        }
        let mut set = |name: HeaderName, value: &[u8]| {
            if let Ok(value) = HeaderValue::from_bytes(value) {
                fields.insert(name, value);
            }
        };
        if !cookies.is_empty() {
            set(COOKIE, &cookies);
        }
        let asked_for = target.host;
        let own = rule.host.as_deref();
        let host = own.or((!asked_for.is_empty()).then_some(asked_for));
        match (host, &rule.to) {
            (Some(host), _) => set(HOST, host.as_bytes()),
            (None, Upstream::Tcp { host, .. }) => set(HOST, host.as_bytes()),
            (None, Upstream::Unix(_)) => set(HOST, b"localhost"),
        }
        let client = target.peer.ip().to_canonical().to_string();
        set(FORWARDED_FOR, client.as_bytes());
        let scheme = if target.is_https { "https" } else { "http" };
        set(FORWARDED_PROTO, scheme.as_bytes());
        set(REQUEST_ID, self.id.as_str().as_bytes());
        if let Some(trace) = &self.trace {
            set(TRACEPARENT, &trace.for_backend());
            if let Some(state) = &trace.state {
                set(TRACESTATE, state.as_bytes());
            }
        }
        if !asked_for.is_empty() {
            set(FORWARDED_HOST, asked_for.as_bytes());
        }
        match head.body {
            Framing::None => {}
            Framing::Length(length) => {
                set(CONTENT_LENGTH, itoa::Buffer::new().format(length).as_bytes());
            }
            Framing::Chunked => set(TRANSFER_ENCODING, b"chunked"),
        }
        if self.is_websocket {
            set(CONNECTION, b"Upgrade");
            set(UPGRADE, b"websocket");
        }
        fields
    }
}

/// Whether a raw path has dot segments.
#[derive(Debug, PartialEq, Eq)]
enum DotSegments {
    Absent,
    /// `.` and `..`, in any encoding.
    Plain,
    /// `..;a=b`: a name by RFC 3986 §3.3, but `..` to servers that strip parameters first (Tomcat).
    Ambiguous,
}

fn dot_segments(raw: &str) -> DotSegments {
    if !raw.contains("/.") && !raw.contains('%') {
        return DotSegments::Absent;
    }
    let decoded: Cow<'_, [u8]> = percent_decode_str(raw).into();
    let mut dot_segments = DotSegments::Absent;
    for segment in decoded.split(|byte| *byte == b'/') {
        match segment {
            b"." | b".." => dot_segments = DotSegments::Plain,
            [b'.', b';', ..] | [b'.', b'.', b';', ..] => return DotSegments::Ambiguous,
            _ => {}
        }
    }
    dot_segments
}

/// A path whose leading slashes are one. Many servers parse a target as a URL reference, and read
/// `//a/b` as the path `/b` at the host `a` (RFC 3986 §4.2); the rules were checked for `/a/b`.
fn with_one_slash(path: &str) -> &str {
    let slashes = path.bytes().take_while(|byte| *byte == b'/').count();
    path.get(slashes.saturating_sub(1)..).unwrap_or_default()
}

/// A target without characters that are forbidden in a URI (RFC 3986 §2) and that some clients
/// send. Many servers read a backslash as a slash (WHATWG URL §4.4), the rules do not.
fn encoded(target: String) -> String {
    const FORBIDDEN: &AsciiSet = &CONTROLS.add(b'"').add(b'<').add(b'>').add(b'`').add(b'\\');
    if target.contains(['"', '<', '>', '`', '\\']) {
        percent_encode(target.as_bytes(), FORBIDDEN).to_string()
    } else {
        target
    }
}

/// Whether a request is the handshake of a WebSocket (RFC 6455 §4.1). Over HTTP/2 there is none:
/// its replacement (RFC 8441) is not announced, so browsers use HTTP/1.1.
pub fn is_websocket(head: &Head) -> bool {
    head.kind() == Method::Get
        && matches!(head.body, Framing::None | Framing::Length(0))
        && head.upgrade().is_some_and(|protocols| {
            members(protocols).any(|protocol| protocol.eq_ignore_ascii_case(b"websocket"))
        })
}

/// The members of a list (RFC 9110 §5.6.1).
pub fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let members = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    members.filter(|member| !member.is_empty())
}

/// Whether a header is for this server alone, or one that the server must be able to trust: the
/// client's value is not passed on. Some servers read `_` as `-` (CGI).
fn is_ours(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 6] =
        [b"host", b"expect", b"forwarded", b"x-real-ip", b"proxy", b"http2-settings"];
    let like = |known: &[u8]| {
        let same = |(a, b): (&u8, &u8)| a.to_ascii_lowercase() == *b || *a == b'_' && *b == b'-';
        name.len() >= known.len() && name.iter().zip(known).all(same)
    };
    like(b"x-forwarded-") || NAMES.iter().any(|known| known.len() == name.len() && like(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_says_of_proxies_is_not_passed_on_however_it_is_spelt() {
        for name in [
            "X-Forwarded-For",
            "x-forwarded-prefix",
            "X_Forwarded_Proto",
            "x-forwarded_host",
            "FORWARDED",
            "X-Real-Ip",
            "Proxy",
            "Host",
            "Expect",
        ] {
            assert!(is_ours(name.as_bytes()), "{name}");
        }
        for name in ["X-Forwarded", "X-Real-Ips", "Proxy-Status", "Cookie", "Hos"] {
            assert!(!is_ours(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn a_path_starts_with_one_slash_and_keeps_those_within() {
        for (path, passed_on) in [
            ("/", "/"),
            ("//", "/"),
            ("/a//b//", "/a//b//"),
            ("//a//b", "/a//b"),
            ("////a", "/a"),
            ("/%2Fa", "/%2Fa"),
            ("*", "*"),
            ("", ""),
        ] {
            assert_eq!(with_one_slash(path), passed_on, "{path}");
        }
    }

    #[test]
    fn what_no_uri_may_have_is_encoded_and_nothing_else_is() {
        let encoded = |target: &str| encoded(target.to_owned());
        assert_eq!(encoded("/a%2Fb[1]?q={x}|y"), "/a%2Fb[1]?q={x}|y");
        assert_eq!(encoded("/<a>`?q=\"b\"%20"), "/%3Ca%3E%60?q=%22b%22%20");
        assert_eq!(encoded("/a\\..\\b"), "/a%5C..%5Cb");
    }

    #[test]
    fn a_segment_that_leads_up_is_known_however_it_is_written() {
        for path in ["/a/../b", "/a/%2e%2E/b", "/a%2f..%2fb", "/a/./b", "/a/.", "/%2e"] {
            assert_eq!(dot_segments(path), DotSegments::Plain, "{path}");
        }
        for path in ["/a/..;/b", "/a/%2e.%3bx=1/b", "/a%2F..;", "/../..;/b", "/.;/b"] {
            assert_eq!(dot_segments(path), DotSegments::Ambiguous, "{path}");
        }
        for path in ["/a%2Fb", "/a/...", "/a/..b", "/.well-known/a", "/a.;x/b"] {
            assert_eq!(dot_segments(path), DotSegments::Absent, "{path}");
        }
    }

    #[test]
    fn a_list_has_members_and_no_empty_ones() {
        let all: Vec<_> = members(b" keep-alive ,, Upgrade,").collect();
        assert_eq!(all, [&b"keep-alive"[..], b"Upgrade"]);
        assert_eq!(members(b" , ").count(), 0);
    }
}
