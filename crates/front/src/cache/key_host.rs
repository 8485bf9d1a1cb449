//! The host in a cache key.

/// The host in a cache key: without the default port of the scheme.
pub fn key_host(host: &str, is_https: bool) -> &str {
    let own = if is_https { ":443" } else { ":80" };
    host.strip_suffix(own).unwrap_or(host)
}
