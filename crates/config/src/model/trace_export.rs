//! The export of traces.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::with_defaults::with_defaults;

/// The port of OTLP over HTTP.
const OTLP_PORT: u16 = 4318;

/// The port of HTTPS.
const HTTPS_PORT: u16 = 443;

/// The path of traces (OTLP/HTTP).
const TRACES_PATH: &str = "/v1/traces";

/// Longest URL in bytes, and most attributes or headers of one setting.
const MAX_URL_BYTES: usize = 2048;
const MAX_PAIRS: usize = 64;

with_defaults! {
/// The export of traces to a collector (OTLP over HTTP).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Traces {
    /// Whether spans are exported.
    pub is_on: bool = true,
    /// The collector.
    pub endpoint: CollectorUrl = CollectorUrl::default(),
    /// A file with the root certificates that verify the collector; none: those of the system.
    pub ca_file: Option<PathBuf> = None,
    /// Headers of each export, by name.
    pub headers: Vec<(String, String)> = Vec::new(),
    /// The name of the service, the attribute `service.name`.
    pub service_name: String = "maitred".to_owned(),
    /// Further attributes of the service.
    pub resource: Vec<(String, String)> = Vec::new(),
    /// The part of traces that is exported, in thousandths.
    pub ratio: u32 = 1000,
    /// Whether the caller's decision counts for a trace that it has started.
    pub follow_parent: bool = true,
    /// A request that takes longer is exported in any case; none: no request is for that reason.
    pub slow: Option<Duration> = Some(Duration::from_secs(1)),
}
}

/// The address of a collector: HTTP, or HTTP over TLS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectorUrl {
    /// Whether the connection uses TLS.
    #[serde(default)]
    pub is_https: bool,
    /// A name or an address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The path.
    pub path: String,
}

impl Default for CollectorUrl {
    fn default() -> CollectorUrl {
        let host = "127.0.0.1".to_owned();
        CollectorUrl { is_https: false, host, port: OTLP_PORT, path: TRACES_PATH.to_owned() }
    }
}

impl CollectorUrl {
    /// Parses a URL; one without a path has that of OTLP.
    ///
    /// # Errors
    /// The reason, as the end of a sentence that starts with the setting's name.
    pub fn parse(url: &str) -> Result<CollectorUrl, String> {
        let wrong = || {
            "is no URL of a collector; expected one such as \
                        \"http://127.0.0.1:4318\""
                .to_owned()
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let is_https = scheme == "https";
        if !matches!(scheme, "http" | "https") || url.len() > MAX_URL_BYTES {
            return Err(wrong());
        }
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let path = if matches!(path, "" | "/") { TRACES_PATH } else { path };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| wrong())?)
            }
            // The port of a collector elsewhere, as a service has it, is that of HTTPS.
            _ => (authority, if is_https { HTTPS_PORT } else { OTLP_PORT }),
        };
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_good = match inner {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.bytes().all(is_host_byte),
        };
        let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
        if !is_good || !is_plain || port == 0 {
            return Err(wrong());
        }
        let host = inner.unwrap_or(host).to_owned();
        Ok(CollectorUrl { is_https, host, port, path: path.to_owned() })
    }

    /// The host and the port, as in a URL.
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._".contains(&byte)
}

/// Parses `name=value,name=value` with percent-encoded values, the form of
/// `OTEL_EXPORTER_OTLP_HEADERS` and `OTEL_RESOURCE_ATTRIBUTES`. None if it has another form.
pub fn parse_pairs(text: &str) -> Option<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let (name, value) = item.split_once('=')?;
        let (name, value) = (name.trim(), decoded(value.trim())?);
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let is_good = !name.is_empty() && name.bytes().all(is_name);
        if !is_good || value.chars().any(char::is_control) || pairs.len() == MAX_PAIRS {
            return None;
        }
        pairs.push((name.to_owned(), value));
    }
    Some(pairs)
}

/// Text with `%XX` decoded.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend_from_slice(parts.next()?.as_bytes());
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_named_by_a_url() {
        let of = |url: &str| {
            let url = CollectorUrl::parse(url).unwrap();
            format!("{}{}", url.authority(), url.path)
        };
        assert_eq!(of("http://127.0.0.1:4318"), "127.0.0.1:4318/v1/traces");
        assert_eq!(of("http://otel/"), "otel:4318/v1/traces");
        assert_eq!(of("http://[::1]:5/otlp/v1/traces"), "[::1]:5/otlp/v1/traces");
        assert_eq!(of("http://[::1]"), "[::1]:4318/v1/traces");
        assert_eq!(of("https://otlp.example/v1/traces"), "otlp.example:443/v1/traces");
        for wrong in [
            "",
            "otel:4318",
            "http://",
            "http://:1",
            "http://a:0",
            "http://a:x",
            "http://a b/",
            "http://a/\u{e9}",
            "http://u@a/",
            "http://[::1",
            "http://a/#x",
            "ftp://a",
        ] {
            assert!(CollectorUrl::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn pairs_are_written_as_opentelemetry_writes_them() {
        let pairs = |text: &str| {
            let pairs = parse_pairs(text)?.into_iter();
            Some(pairs.map(|(name, value)| format!("{name}:{value}")).collect::<Vec<_>>())
        };
        let expected = vec!["Authorization:Basic a=b".to_owned(), "x:1".to_owned()];
        assert_eq!(pairs("Authorization=Basic%20a=b, x=1,"), Some(expected));
        assert_eq!(pairs(""), Some(Vec::new()));
        for wrong in ["a", "=b", "a=%", "a=%zz", "a=%ff", "a b=c", "a=%0d%0a"] {
            assert_eq!(pairs(wrong), None, "{wrong}");
        }
    }
}
