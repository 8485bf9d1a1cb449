//! What can become of a request.

use std::fmt;

use serde::Serialize;

/// The kinds of ends, which are counted and timed apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The answer that was expected.
    Served,
    /// The server said that it cannot now: 503 or 429.
    Refused,
    /// No whole answer, or one that says that the server failed (5xx).
    Failed,
    /// No whole answer in time.
    TimedOut,
    /// A whole answer that is not the one that was expected.
    Wrong,
}

impl Class {
    /// All of them, in the order of reports.
    pub const ALL: [Class; 5] = [
        Class::Served,
        Class::Refused,
        Class::Failed,
        Class::TimedOut,
        Class::Wrong,
    ];

    /// Its place in [`Class::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// In words.
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
    /// The answer's status.
    Status(u16),
    /// A redirect to the host that was asked, which was not to be followed.
    Redirect(u16),
    /// A redirect to another host, which is never followed.
    RedirectAway(u16),
    /// More redirects than are followed.
    TooManyRedirects,
    /// The text that was expected is not in the body.
    MarkerMissing,
    /// What the kernel said (errno).
    Io(i32),
    /// What was wrong with the answer, in words.
    Fault(&'static str),
    /// A stream or a connection of HTTP/2 ended with an error (RFC 9113, 7).
    Http2 {
        /// Its code.
        code: u32,
        /// Whether the server said so; otherwise it broke the protocol.
        by_server: bool,
    },
    /// No whole answer came in time.
    TimedOut,
    /// No connection came about in time.
    ConnectTimedOut,
}

impl Cause {
    /// The cause that an error of the kernel is.
    pub fn of_io(error: &std::io::Error) -> Cause {
        match error.raw_os_error() {
            Some(number) => Cause::Io(number),
            None => Cause::Fault(tls_fault(error)),
        }
    }

    /// The kind of end that a request has for it.
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
            Cause::TooManyRedirects => f.write_str("one redirect after another"),
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
                    write!(f, "no HTTP/2 answer ({reason:?})")
                }
            }
            Cause::TimedOut => f.write_str("no whole answer in time"),
            Cause::ConnectTimedOut => f.write_str("no connection in time"),
        }
    }
}

/// What is wrong with a connection where the kernel says nothing.
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

/// No port is left.
const EADDRNOTAVAIL: i32 = nix::errno::Errno::EADDRNOTAVAIL as i32;

/// What HTTP calls a status.
fn reason(status: u16) -> Option<&'static str> {
    http::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
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
