use std::fmt;

/// The reason why a request is refused. The connection cannot be used after it: respond with
/// [`Refusal::status`] and close.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// A line feed without a carriage return before it.
    BareLineFeed,
    /// The request line is not `method SP target SP version CRLF`.
    RequestLine,
    /// The method is not a token; also TLS on a port for plain HTTP.
    MethodToken,
    /// The version is neither 1.0 nor 1.1.
    VersionUnknown,
    /// The client sent the HTTP/2 preface (RFC 9113 §3.4): [`crate::HTTP2_PREFACE`] was removed
    /// from the buffer.
    Http2,
    /// CONNECT, which is for proxies (RFC 9110 §9.3.6).
    Connect,
    /// The request target has none of the forms of RFC 9112 §3.2.
    TargetForm,
    /// `*` with another method than OPTIONS.
    Asterisk,
    /// The request target is longer than [`crate::Limits::max_target_bytes`].
    TargetTooLong,
    /// The head is longer than [`crate::Limits::max_head_bytes`].
    HeadTooLarge,
    /// There are more headers than [`crate::Limits::max_headers`].
    TooManyHeaders,
    /// A header line that starts with white space (obs-fold, RFC 9112 §5.2).
    FoldedLine,
    /// White space between a header's name and its colon (RFC 9112 §5.1).
    SpaceBeforeColon,
    /// A header line without a colon.
    NoColon,
    /// A header line that starts with its colon.
    EmptyName,
    /// A header name that is no token (RFC 9110 §5.6.2).
    HeaderName,
    /// A control character in a header's value; over HTTP/2 also white space at an end of it (RFC
    /// 9113 §8.2.1).
    HeaderValue,
    /// No Host, or over HTTP/2 neither `:authority` nor Host.
    NoHost,
    /// More than one Host.
    SeveralHosts,
    /// A Host that is not `host[:port]`.
    HostForm,
    /// The authority in the request target, or `:authority`, and the Host header differ.
    HostDisagrees,
    /// More than one Content-Length, or a list in one.
    SeveralLengths,
    /// A Content-Length that is not a decimal number below 2^63 (RFC 9110 §8.6).
    LengthForm,
    /// Content-Length and Transfer-Encoding in one request (RFC 9112 §6.1).
    LengthAndCoding,
    /// Transfer-Encoding in an HTTP/1.0 request.
    CodingOnHttp10,
    /// A Transfer-Encoding that repeats chunked, or is empty.
    CodingForm,
    /// A transfer coding other than chunked.
    CodingUnknown,
    /// An Expect other than 100-continue.
    Expectation,
    /// A chunk size that is not hexadecimal digits, or is followed by something else than `;` or
    /// CRLF.
    ChunkSize,
    /// A chunk size of 2^63 or more, or written with more than 16 digits.
    ChunkTooLarge,
    /// Chunk extensions longer than [`crate::MAX_EXTENSION_BYTES`] in all.
    ChunkExtensions,
    /// A control character in a chunk extension.
    ChunkExtensionForm,
    /// Chunk data that is not followed by CRLF.
    ChunkEnd,
    /// A line of a chunked body that does not end in CRLF.
    ChunkLineEnd,
    /// Trailers longer than [`crate::MAX_TRAILER_BYTES`].
    TrailersTooLarge,
    /// A trailer that is not `name: value`.
    TrailerForm,
}

impl Refusal {
    /// The status of the response.
    pub const fn status(self) -> u16 {
        self.told().0
    }

    /// The reason as one sentence, for the log and the response body.
    pub const fn reason(self) -> &'static str {
        self.told().1
    }

    const fn told(self) -> (u16, &'static str) {
        match self {
            Self::BareLineFeed => (400, "A line of the request ends in LF only; send CRLF."),
            Self::RequestLine => (
                400,
                "The request line is not `method target HTTP/1.1` with single spaces.",
            ),
            Self::MethodToken => (
                400,
                "The request does not start with a method; is this TLS on a port for plain HTTP?",
            ),
            Self::Http2 => (505, "HTTP/2 is not accepted here."),
            Self::VersionUnknown => (505, "Only HTTP/1.1 and HTTP/1.0 are supported."),
            Self::Connect => (501, "CONNECT is for proxies; this server is none."),
            Self::TargetForm => (
                400,
                "The request target is neither a path that starts with / nor an http URL.",
            ),
            Self::Asterisk => (400, "The request target * is for OPTIONS only."),
            Self::TargetTooLong => (414, "The request target is too long."),
            Self::HeadTooLarge => (431, "The request head is too large."),
            Self::TooManyHeaders => (431, "The request has too many headers."),
            Self::FoldedLine => (
                400,
                "A header line starts with white space; send each header on one line.",
            ),
            Self::SpaceBeforeColon => (
                400,
                "There is white space between a header's name and its colon.",
            ),
            Self::NoColon => (400, "A header line has no colon."),
            Self::EmptyName => (400, "A header has no name before its colon."),
            Self::HeaderName => (400, "A header's name has an invalid character."),
            Self::HeaderValue => (
                400,
                "A header's value has a control character, or white space around it.",
            ),
            Self::NoHost => (400, "The request has no Host header."),
            Self::SeveralHosts => (400, "The request has more than one Host header."),
            Self::HostForm => (
                400,
                "The Host header is not a host name with an optional port.",
            ),
            Self::HostDisagrees => (
                400,
                "The host in the request target and the Host header differ.",
            ),
            Self::SeveralLengths => (400, "The request has more than one Content-Length."),
            Self::LengthForm => (
                400,
                "The Content-Length is not a decimal number below 2^63.",
            ),
            Self::LengthAndCoding => (
                400,
                "The request has both Content-Length and Transfer-Encoding; send one.",
            ),
            Self::CodingOnHttp10 => (400, "HTTP/1.0 has no Transfer-Encoding; send HTTP/1.1."),
            Self::CodingForm => (400, "Transfer-Encoding must be `chunked`, once."),
            Self::CodingUnknown => (501, "The only supported transfer coding is `chunked`."),
            Self::Expectation => (417, "The only supported expectation is `100-continue`."),
            Self::ChunkSize => (400, "A chunk's size is not a hexadecimal number."),
            Self::ChunkTooLarge => (400, "A chunk's size is too large."),
            Self::ChunkExtensions => (400, "The chunk extensions are longer than 16 KiB in all."),
            Self::ChunkExtensionForm => (400, "A chunk extension has a control character."),
            Self::ChunkEnd => (400, "A chunk's data is not followed by CRLF."),
            Self::ChunkLineEnd => (400, "A line of the chunked body does not end in CRLF."),
            Self::TrailersTooLarge => (400, "The trailers are longer than 8 KiB."),
            Self::TrailerForm => (400, "A trailer is not `name: value`."),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for Refusal {}
