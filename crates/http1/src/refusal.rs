//! The reasons why requests are refused.

use std::fmt;

/// Defines the refusals, each with the status and the body of its response.
macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $status:literal, $reason:literal;)*) => {
        /// The reason why a request is refused. The connection cannot be used afterwards: respond
        /// with [`Refusal::status`] and close.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Refusal {
            $($(#[$doc])* $name,)*
        }

        impl Refusal {
            /// The status of the response.
            pub const fn status(self) -> u16 {
                match self {
                    $(Self::$name => $status,)*
                }
            }

            /// The reason as one sentence, for the log and the response body.
            pub const fn reason(self) -> &'static str {
                match self {
                    $(Self::$name => $reason,)*
                }
            }
        }
    };
}

refusals! {
    /// A line feed without a carriage return before it.
    BareLineFeed = 400, "A line of the request ends in LF only; send CRLF.";
    /// The request line is not `method SP target SP version CRLF`.
    RequestLine = 400, "The request line is not `method target HTTP/1.1` with single spaces.";
    /// The method is not a token; also TLS on a port for plain HTTP.
    MethodToken = 400,
        "The request does not start with a method; is this TLS on a port for plain HTTP?";
    /// The version is neither 1.0 nor 1.1.
    VersionUnknown = 505, "Only HTTP/1.1 and HTTP/1.0 are supported.";
    /// The client sent the HTTP/2 preface (RFC 9113 §3.4): [`crate::HTTP2_PREFACE`] was removed
    /// from the buffer.
    Http2 = 505, "HTTP/2 is not accepted here.";
    /// CONNECT, a method for proxies (RFC 9110 §9.3.6).
    Connect = 501, "CONNECT is for proxies; this server is none.";
    /// The method is longer than [`crate::MAX_METHOD_BYTES`]: longer than any that a server
    /// implements (RFC 9112 §3).
    MethodTooLong = 501, "The request method is too long.";
    /// The request target has none of the forms of RFC 9112 §3.2.
    TargetForm = 400, "The request target is neither a path that starts with / nor an http URL.";
    /// `*` with another method than OPTIONS.
    Asterisk = 400, "The request target * is for OPTIONS only.";
    /// The request target is longer than [`crate::Limits::max_target_bytes`].
    TargetTooLong = 414, "The request target is too long.";
    /// The header is longer than [`crate::Limits::max_head_bytes`].
    HeadTooLarge = 431, "The request header is too large.";
    /// There are more headers than [`crate::Limits::max_headers`].
    TooManyHeaders = 431, "The request has too many headers.";
    /// A header line that starts with white space (obs-fold, RFC 9112 §5.2).
    FoldedLine = 400, "A header line starts with white space; send each header on one line.";
    /// White space between a header's name and its colon (RFC 9112 §5.1).
    SpaceBeforeColon = 400, "There is white space between a header's name and its colon.";
    /// A header line without a colon.
    NoColon = 400, "A header line has no colon.";
    /// A header line that starts with its colon.
    EmptyName = 400, "A header has no name before its colon.";
    /// A header name that is no token (RFC 9110 §5.6.2).
    HeaderName = 400, "A header's name has an invalid character.";
    /// A control character in a header's value; over HTTP/2 also white space at an end of it (RFC
    /// 9113 §8.2.1).
    HeaderValue = 400, "A header's value has a control character, or white space around it.";
    /// No Host, or over HTTP/2 neither `:authority` nor Host.
    NoHost = 400, "The request has no Host header.";
    /// More than one Host.
    SeveralHosts = 400, "The request has more than one Host header.";
    /// A Host that is not `host[:port]`.
    HostForm = 400, "The Host header is not a host name with an optional port.";
    /// The authority in the request target, or `:authority`, and the Host header differ.
    HostDisagrees = 400, "The host in the request target and the Host header differ.";
    /// More than one Content-Length, or a list in one.
    SeveralLengths = 400, "The request has more than one Content-Length.";
    /// A Content-Length that is not a decimal number below 2^63 (RFC 9110 §8.6).
    LengthForm = 400, "The Content-Length is not a decimal number below 2^63.";
    /// Content-Length and Transfer-Encoding in one request (RFC 9112 §6.1).
    LengthAndCoding = 400, "The request has both Content-Length and Transfer-Encoding; send one.";
    /// Transfer-Encoding in an HTTP/1.0 request.
    CodingOnHttp10 = 400, "HTTP/1.0 has no Transfer-Encoding; send HTTP/1.1.";
    /// A Transfer-Encoding that repeats chunked, or is empty.
    CodingForm = 400, "Transfer-Encoding must be `chunked`, once.";
    /// A transfer coding other than chunked.
    CodingUnknown = 501, "The only supported transfer coding is `chunked`.";
    /// An Expect other than 100-continue.
    Expectation = 417, "The only supported expectation is `100-continue`.";
    /// A chunk size that is not hexadecimal digits, or is followed by something else than `;` or
    /// CRLF.
    ChunkSize = 400, "A chunk's size is not a hexadecimal number.";
    /// A chunk size of 2^63 or more, or written with more than 16 digits.
    ChunkTooLarge = 400, "A chunk's size is too large.";
    /// Chunk extensions longer than [`crate::MAX_EXTENSION_BYTES`] in all.
    ChunkExtensions = 400, "The chunk extensions are longer than 16 KiB in all.";
    /// A control character in a chunk extension.
    ChunkExtensionForm = 400, "A chunk extension has a control character.";
    /// Chunk data that is not followed by CRLF.
    ChunkEnd = 400, "A chunk's data is not followed by CRLF.";
    /// A line of a chunked body that does not end in CRLF.
    ChunkLineEnd = 400, "A line of the chunked body does not end in CRLF.";
    /// Trailers longer than [`crate::MAX_TRAILER_BYTES`].
    TrailersTooLarge = 400, "The trailers are longer than 8 KiB.";
    /// A trailer that is not `name: value`.
    TrailerForm = 400, "A trailer is not `name: value`.";
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for Refusal {}
