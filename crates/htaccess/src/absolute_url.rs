//! Absolute URLs in substitutions.

use crate::request::Client;

/// Schemes that make a substitution absolute, and whether a query may follow (`is_absolute_uri`).
const SCHEMES: [Scheme; 18] = [
    Scheme::new("ajp://", true),
    Scheme::new("balancer://", true),
    Scheme::new("ftp://", false),
    Scheme::new("fcgi://", true),
    Scheme::new("gopher://", false),
    Scheme::new("http://", true),
    Scheme::new("https://", true),
    Scheme::new("h2://", true),
    Scheme::new("h2c://", true),
    Scheme::new("ldap://", false),
    Scheme::new("mailto:", true),
    Scheme::new("news:", false),
    Scheme::new("nntp://", false),
    Scheme::new("scgi://", true),
    Scheme::new("ws://", true),
    Scheme::new("wss://", true),
    Scheme::new("unix://", true),
    Scheme::new("unix:", true),
];

/// Longest text that is too short for an absolute URL.
const TOO_SHORT: usize = 5;

struct Scheme {
    start: &'static str,
    takes_query: bool,
}

impl Scheme {
    const fn new(start: &'static str, takes_query: bool) -> Scheme {
        Scheme { start, takes_query }
    }
}

fn scheme_of(text: &[u8]) -> Option<&'static Scheme> {
    if text.len() <= TOO_SHORT {
        return None;
    }
    SCHEMES.iter().find(|scheme| {
        let start = text.get(..scheme.start.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(scheme.start.as_bytes()))
    })
}

/// The length of the scheme of an absolute URL with its slashes; 0 for a path.
pub fn absolute_length(text: &[u8]) -> usize {
    scheme_of(text).map_or(0, |scheme| scheme.start.len())
}

/// Whether a query may follow an absolute URL.
pub fn takes_query(text: &[u8]) -> bool {
    scheme_of(text).is_some_and(|scheme| scheme.takes_query)
}

/// An absolute URL, compared with this server.
#[derive(Debug, PartialEq, Eq)]
pub enum Qualified {
    /// It leads here: its path.
    Here(Vec<u8>),
    /// It leads elsewhere, or is a path.
    Elsewhere,
}

/// Strips scheme, host and port off a URL of this server (`reduce_uri`).
pub fn reduce(url: &[u8], client: &Client) -> Qualified {
    let start = [client.scheme().as_bytes(), b"://"].concat();
    let is_ours = url.len() > start.len() && url[..start.len()].eq_ignore_ascii_case(&start);
    if !is_ours {
        return Qualified::Elsewhere;
    }
    let rest = &url[start.len()..];
    let slash = memchr::memchr(b'/', rest);
    let authority = &rest[..slash.unwrap_or(rest.len())];
    let path = slash.map_or(&b"/"[..], |slash| &rest[slash..]);
    let colon = memchr::memchr(b':', authority);
    let host = &authority[..colon.unwrap_or(authority.len())];
    let default = if client.is_https { 443 } else { 80 };
    let port = match colon {
        Some(colon) => crate::text::integer(&authority[colon + 1..]),
        None => default,
    };
    let same =
        host.eq_ignore_ascii_case(&client.server_name) && port == i64::from(client.server_port);
    if same { Qualified::Here(path.to_vec()) } else { Qualified::Elsewhere }
}
