use std::fmt;

use bytes::Bytes;

use crate::ascii::list_members;

/// A supported protocol version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
    /// HTTP/2.
    Http2,
}

impl Version {
    /// The version as in a request line; for HTTP/2 in the same style.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2.0",
        }
    }
}

/// A request method. Methods are case-sensitive (RFC 9110 §9.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// GET.
    Get,
    /// HEAD.
    Head,
    /// POST.
    Post,
    /// PUT.
    Put,
    /// DELETE.
    Delete,
    /// OPTIONS.
    Options,
    /// PATCH.
    Patch,
    /// TRACE.
    Trace,
    /// Any other token; [`crate::Head::method`] has its name.
    Other,
}

impl Method {
    pub(crate) fn of(name: &str) -> Self {
        match name {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "DELETE" => Self::Delete,
            "OPTIONS" => Self::Options,
            "PATCH" => Self::Patch,
            "TRACE" => Self::Trace,
            _ => Self::Other,
        }
    }

    /// Whether the method is idempotent (RFC 9110 §9.2.2), so that the request may be retried.
    pub const fn is_idempotent(self) -> bool {
        match self {
            Self::Get | Self::Head | Self::Put | Self::Delete | Self::Options | Self::Trace => true,
            Self::Post | Self::Patch | Self::Other => false,
        }
    }
}

/// The framing of a request body (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framing {
    /// No body.
    None,
    /// By Content-Length, in bytes; below 2^63.
    Length(u64),
    /// Without a length: by chunks of HTTP/1.1 (see [`crate::ChunkedBody`]), or frames of HTTP/2.
    Chunked,
}

/// A range of a header's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) len: u32,
}

impl Span {
    pub(crate) fn of(self, bytes: &[u8]) -> &[u8] {
        let start = self.start as usize;
        bytes.get(start..start + self.len as usize).unwrap_or_default()
    }

    fn text(self, bytes: &[u8]) -> &str {
        std::str::from_utf8(self.of(bytes)).unwrap_or_default()
    }
}

/// The ranges of a header's name and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeaderSpans {
    pub(crate) name: Span,
    pub(crate) value: Span,
}

/// A checked request header: its bytes and offsets into them, two allocations in total.
#[derive(Clone, PartialEq, Eq)]
pub struct Head {
    pub(crate) bytes: Bytes,
    pub(crate) kind: Method,
    pub(crate) method: Span,
    pub(crate) target: Span,
    /// Length of the target's path; the query follows after a `?`.
    pub(crate) path_len: u32,
    pub(crate) version: Version,
    pub(crate) host: Span,
    pub(crate) headers: Vec<HeaderSpans>,
    /// The client's `If-None-Match` header, if another value replaces it.
    pub(crate) sent_tags: Span,
    pub(crate) upgrade: bool,
    /// The framing of the body.
    pub body: Framing,
    /// Whether the client keeps the connection open after the response (RFC 9112 §9.3).
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends the body (RFC 9110 §10.1.1).
    /// Never on HTTP/1.0, which ignores the expectation, nor without a body.
    pub expects_continue: bool,
}

impl Head {
    /// The method's name.
    pub fn method(&self) -> &str {
        self.method.text(&self.bytes)
    }

    /// The method.
    pub fn kind(&self) -> Method {
        self.kind
    }

    /// The request target in origin-form (RFC 9112 §3.2.1), path and query as the client sent them;
    /// `*` for the whole server. Of an absolute-form target, the part after the authority.
    pub fn target(&self) -> &str {
        match self.target.text(&self.bytes) {
            "" if self.kind == Method::Options => "*",
            "" => "/",
            target => target,
        }
    }

    /// The path of the target; not decoded.
    pub fn path(&self) -> &str {
        self.target().get(..self.path_len as usize).unwrap_or_default()
    }

    /// The query of the target, after its first `?`; not decoded.
    pub fn query(&self) -> Option<&str> {
        self.target().get(self.path_len as usize + 1..)
    }

    /// The client's protocol version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The authority of the request, `host[:port]` (RFC 3986 §3.2), as the client spelt it. Empty
    /// only on HTTP/1.0.
    pub fn host(&self) -> &str {
        self.host.text(&self.bytes)
    }

    /// All headers as the client sent them, in order; values without surrounding white space.
    pub fn headers(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> + Clone {
        self.headers
            .iter()
            .map(|header| (header.name.of(&self.bytes), header.value.of(&self.bytes)))
    }

    /// The values of all headers called `name`, case-insensitively.
    pub fn values<'a>(&'a self, name: &'a str) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        let named = move |header: &&HeaderSpans| {
            header.name.len as usize == name.len()
                && header.name.of(&self.bytes).eq_ignore_ascii_case(name.as_bytes())
        };
        self.headers.iter().filter(named).map(|header| header.value.of(&self.bytes))
    }

    /// The value of the first header called `name`, case-insensitively.
    pub fn header<'a>(&'a self, name: &'a str) -> Option<&'a [u8]> {
        self.values(name).next()
    }

    /// The number of headers called `name`, case-insensitively.
    pub fn count(&self, name: &str) -> usize {
        self.values(name).count()
    }

    /// The protocols to switch to (RFC 9110 §7.8): the first Upgrade header, if Connection lists
    /// it. Never on HTTP/1.0.
    pub fn upgrade(&self) -> Option<&[u8]> {
        if self.upgrade { self.header("Upgrade") } else { None }
    }

    /// Whether a header called `name` has `member` in its comma-separated list, both
    /// case-insensitively.
    pub fn lists(&self, name: &str, member: &str) -> bool {
        self.values(name)
            .flat_map(list_members)
            .any(|listed| listed.eq_ignore_ascii_case(member.as_bytes()))
    }

    /// A copy with other values of some headers, by their indexes.
    #[must_use]
    pub fn with_values(&self, values: &[(usize, Vec<u8>)]) -> Head {
        let mut head = self.clone();
        let mut bytes = self.bytes.to_vec();
        for (index, value) in values {
            let Some(header) = head.headers.get_mut(*index) else {
                continue;
            };
            if header.name.of(&self.bytes).eq_ignore_ascii_case(b"if-none-match") {
                head.sent_tags = header.value;
            }
            header.value = place(bytes.len(), value.len());
            bytes.extend_from_slice(value);
        }
        head.bytes = bytes.into();
        head
    }

    /// The entity tags of the `If-None-Match` header as the client sent it, the last of several,
    /// even if [`Head::with_values`] has replaced it; empty without one.
    pub fn sent_tags(&self) -> &[u8] {
        match self.sent_tags.of(&self.bytes) {
            b"" => self.header("if-none-match").unwrap_or_default(),
            sent => sent,
        }
    }

    /// A copy with this value of the `Cookie` header, which replaces all its own; none if it is
    /// empty.
    #[must_use]
    pub fn with_cookies(&self, value: &[u8]) -> Head {
        const NAME: &[u8] = b"Cookie";
        let mut head = self.clone();
        let is_cookie = |name: Span| name.of(&self.bytes).eq_ignore_ascii_case(NAME);
        head.headers.retain(|header| !is_cookie(header.name));
        if value.is_empty() {
            return head;
        }
        head.bytes = [&self.bytes[..], NAME, value].concat().into();
        let start = self.bytes.len();
        head.headers.push(HeaderSpans {
            name: place(start, NAME.len()),
            value: place(start + NAME.len(), value.len()),
        });
        head
    }

    /// Its size in memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.headers.capacity() * size_of::<HeaderSpans>()
    }

    /// Length of the header in bytes, from the request line to the empty line; over HTTP/2 that of
    /// its method, path, authority and headers, where a repeated header counts once.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }
}

fn place(start: usize, length: usize) -> Span {
    Span {
        start: u32::try_from(start).unwrap_or(u32::MAX),
        len: u32::try_from(length).unwrap_or(0),
    }
}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Head")
            .field("method", &self.method())
            .field("target", &self.target())
            .field("version", &self.version.as_str())
            .field("host", &self.host())
            .field("headers", &self.headers.len())
            .field("body", &self.body)
            .field("keep_alive", &self.keep_alive)
            .finish_non_exhaustive()
    }
}
