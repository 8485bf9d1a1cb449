//! The host names of a site.

use std::net::Ipv6Addr;

use serde::{Deserialize, Serialize};

/// Longest host name and longest label of one, in bytes (RFC 1035 §2.3.4, written without the
/// final dot).
const MAX_HOST_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;

/// A host name of a site, compared with the `Host` header or `:authority` without the port.
///
/// Names are in lower case and have no final dot. The most specific one wins: `Exact`, then the
/// longest `Below`, then `Any`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Host {
    /// An exact name. An IPv6 address is in brackets, as in the `Host` header (RFC 3986 §3.2.2).
    Exact(String),
    /// `*.example.com`: all subdomains of `example.com`, at any depth; stored without `*.`.
    Below(String),
    /// `*`: the default site, for names of no other site and for requests without a host.
    Any,
}

impl Host {
    /// Reads `shop.example.com`, `*.example.com` or `*`.
    ///
    /// # Errors
    /// The reason, as the end of a sentence that starts with `text`.
    pub(crate) fn parse(text: &str) -> Result<Host, String> {
        if text == "*" {
            return Ok(Host::Any);
        }
        if !text.is_ascii() {
            return Err("is not ASCII; write an international name as browsers send it, such as \
                        \"xn--bcher-kva.example\""
                .to_owned());
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        if let Some(rest) = name.strip_prefix("*.").filter(|rest| is_host_name(rest)) {
            return Ok(Host::Below(rest.to_owned()));
        }
        if is_host_name(&name) || is_bracketed_ipv6(&name) {
            return Ok(Host::Exact(name));
        }
        if name.starts_with("http://") || name.starts_with("https://") {
            return Err("is a URL; expected the host name only, such as \"example.com\"".into());
        }
        let without_port = name.rsplit_once(':').map(|(host, _)| host);
        if without_port.is_some_and(|host| is_host_name(host) || is_bracketed_ipv6(host)) {
            return Err("has a port; expected the name only, a site is on every port".into());
        }
        Err("is no host name; expected one such as \"example.com\", \"*.example.com\" or \"*\""
            .to_owned())
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Host::Exact(name) => out.write_str(name),
            Host::Below(name) => write!(out, "*.{name}"),
            Host::Any => out.write_str("*"),
        }
    }
}

/// Whether clients can ask for a host of this name: labels of letters, digits, `-` and `_`.
pub fn is_host_name(name: &str) -> bool {
    name.len() <= MAX_HOST_BYTES
        && name.split('.').all(|label| {
            (1..=MAX_LABEL_BYTES).contains(&label.len())
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        })
}

fn is_bracketed_ipv6(name: &str) -> bool {
    let inner = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inner.is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_in_lower_case_without_the_final_dot() {
        assert_eq!(Host::parse("Shop.Example.COM."), Ok(Host::Exact("shop.example.com".into())));
        assert_eq!(Host::parse("*.Example.com"), Ok(Host::Below("example.com".into())));
        assert_eq!(Host::parse("*"), Ok(Host::Any));
        assert_eq!(Host::parse("10.0.0.1"), Ok(Host::Exact("10.0.0.1".into())));
        assert_eq!(Host::parse("[::1]"), Ok(Host::Exact("[::1]".into())));
    }

    #[test]
    fn a_name_with_a_port_or_a_scheme_is_refused_with_its_own_sentence() {
        let port = "has a port; expected the name only, a site is on every port";
        assert_eq!(Host::parse("example.com:80").unwrap_err(), port);
        assert_eq!(Host::parse("[::1]:80").unwrap_err(), port);
        assert_eq!(
            Host::parse("https://example.com").unwrap_err(),
            "is a URL; expected the host name only, such as \"example.com\""
        );
        assert_eq!(
            Host::parse("bücher.example").unwrap_err(),
            "is not ASCII; write an international name as browsers send it, such as \
             \"xn--bcher-kva.example\""
        );
    }

    #[test]
    fn anything_else_is_no_host_name() {
        let long_label = "a".repeat(64);
        let long_name = "abc.".repeat(70);
        for text in [
            "",
            ".",
            "a..b",
            ".a",
            "*a.com",
            "a.*.com",
            "*.",
            "a b",
            "[::",
            "a/b",
            &long_label,
            &long_name,
        ] {
            assert_eq!(
                Host::parse(text).unwrap_err(),
                "is no host name; expected one such as \"example.com\", \"*.example.com\" or \"*\"",
                "{text}"
            );
        }
    }
}
