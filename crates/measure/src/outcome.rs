//! The possible outcomes of a request.

use std::fmt;

use serde::Serialize;

/// Classes of outcomes, which are counted and timed separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The expected response.
    Served,
    /// The server rejected it with 503 or 429.
    Refused,
    /// No complete response, or one that reports a server error (5xx).
    Failed,
    /// No complete response in time.
    TimedOut,
    /// A complete response that is not the expected one.
    Wrong,
}

impl Class {
    /// All of them, in the order of reports.
    pub const ALL: [Class; 5] =
        [Class::Served, Class::Refused, Class::Failed, Class::TimedOut, Class::Wrong];

    /// Its index in [`Class::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Class::Served => "served",
            Class::Refused => "refused",
            Class::Failed => "failed",
            Class::TimedOut => "timed out",
            Class::Wrong => "wrong",
        }
    }
}

/// Why a request was not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The response's status.
    Status(u16),
    /// A redirect to the same host, and following is off.
    Redirect(u16),
    /// A redirect to another host, which is never followed.
    RedirectAway(u16),
    /// Too many redirects.
    TooManyRedirects,
    /// The body lacks the expected text.
    MarkerMissing,
    /// An error of the kernel (errno).
    Io(i32),
    /// What was wrong with the response.
    Fault(&'static str),
    /// A stream or a connection of HTTP/2 ended with an error (RFC 9113, 7).
    Http2 {
        /// Its code.
        code: u32,
        /// Whether the server sent it; otherwise the server broke the protocol.
        by_server: bool,
    },
    /// No complete response in time.
    TimedOut,
    /// No connection in time.
    ConnectTimedOut,
}

impl Cause {
    /// The cause of an I/O error.
    pub fn of_io(error: &std::io::Error) -> Cause {
        match error.raw_os_error() {
            Some(number) => Cause::Io(number),
            None => Cause::Fault(tls_fault(error)),
        }
    }

    /// The class of requests with this cause.
    pub fn class(self) -> Class {
        match self {
            Cause::Status(503 | 429) => Class::Refused,
            Cause::Status(500..) => Class::Failed,
            Cause::Status(_)
            | Cause::Redirect(_)
            | Cause::RedirectAway(_)
            | Cause::TooManyRedirects
            | Cause::MarkerMissing => Class::Wrong,
            Cause::Io(_) | Cause::Fault(_) | Cause::Http2 { .. } => Class::Failed,
            Cause::TimedOut | Cause::ConnectTimedOut => Class::TimedOut,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Status(status) => match reason(*status) {
                Some(reason) => write!(f, "{status} {reason}"),
                None => write!(f, "status {status}"),
            },
            Cause::Redirect(status) => write!(f, "{status}, a redirect (--follow follows it)"),
            Cause::RedirectAway(status) => {
                write!(f, "{status}, a redirect to another host, not followed")
            }
            Cause::TooManyRedirects => f.write_str("too many redirects"),
            Cause::MarkerMissing => f.write_str("the body lacks the text of --contains"),
            Cause::Io(number) => match *number {
                EADDRNOTAVAIL => f.write_str(
                    "no local port is free for another connection (net.ipv4.ip_local_port_range)",
                ),
                _ => write!(f, "{}", std::io::Error::from_raw_os_error(*number)),
            },
            Cause::Fault(words) => f.write_str(words),
            Cause::Http2 { code, by_server } => {
                let reason = h2::Reason::from(*code);
                if *by_server {
                    write!(f, "the server ended it with {reason:?} (HTTP/2)")
                } else {
                    write!(f, "not an HTTP/2 response ({reason:?})")
                }
            }
            Cause::TimedOut => f.write_str("no complete response in time"),
            Cause::ConnectTimedOut => f.write_str("no connection in time"),
        }
    }
}

/// What is wrong with a connection if the error is not the kernel's.
fn tls_fault(error: &std::io::Error) -> &'static str {
    let inner = error.get_ref();
    match inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(_)) => {
            "a certificate that is not trusted (--ca, --insecure)"
        }
        Some(rustls::Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol)) => {
            "the server does not speak this version of HTTP over TLS (ALPN)"
        }
        _ => "the connection failed; with TLS: the handshake or a record",
    }
}

/// All local ports are in use.
const EADDRNOTAVAIL: i32 = nix::errno::Errno::EADDRNOTAVAIL as i32;

/// The reason phrase of a status.
fn reason(status: u16) -> Option<&'static str> {
    http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_fails_and_one_that_says_something_else_are_told_apart() {
        for (status, class) in [
            (502, Class::Failed),
            (500, Class::Failed),
            (503, Class::Refused),
            (429, Class::Refused),
            (404, Class::Wrong),
            (200, Class::Wrong),
        ] {
            assert_eq!(Cause::Status(status).class(), class, "{status}");
        }
        assert_eq!(Cause::Status(502).to_string(), "502 Bad Gateway");
        assert_eq!(Cause::Status(799).to_string(), "status 799");
    }
}
