//! The host in a cache key.

/// The host as keys have it: without the port that belongs to the scheme.
pub fn key_host(host: &str, is_https: bool) -> &str {
    let own = if is_https { ":443" } else { ":80" };
    host.strip_suffix(own).unwrap_or(host)
}
