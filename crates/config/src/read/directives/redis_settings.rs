//! The settings of connections to Redis, as several directives have them.

use crate::model::redis::{Redis, RedisServer};
use crate::read::value::{BadValue, Record, Value};

/// The port of Redis.
const REDIS_PORT: u16 = 6379;

/// Longest name of a user, a node or a prefix, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// Where it is.
pub(super) const URL: (&str, &str) =
    ("url", "a URL such as \"redis://10.0.0.10:6379\", \"rediss://…\" or \"unix:/PATH\"");

/// Who logs in.
pub(super) const USERNAME: (&str, &str) = ("username", "the name of a user of Redis");

/// With which password.
pub(super) const PASSWORD_FILE: (&str, &str) =
    ("password_file", "the path of a file with the password");

/// Who verifies it.
pub(super) const CA_FILE: (&str, &str) = ("ca_file", "the path of a PEM file");

/// The beginning of all keys.
pub(super) const PREFIX: (&str, &str) =
    ("prefix", "a name of letters, digits, `.`, `-`, `_`, `:`, `{` and `}`");

/// Reads [`URL`], [`USERNAME`], [`PASSWORD_FILE`] and [`CA_FILE`] of a record. `name` is the full
/// name of the URL.
///
/// # Errors
/// The first mistake.
pub(super) fn redis(record: &Record<'_>, name: &str) -> Result<Redis, BadValue> {
    let place = record.need("url")?;
    if place.text()?.contains('@') {
        // Without the text, which is logged.
        let why =
            format!("`{name}` has a user or a password; write `username` and `password_file`");
        return Err(place.because(why));
    }
    let (server, database) = place.text_as(url)?;
    Ok(Redis {
        server,
        database,
        username: name_in(record, "username", "@")?,
        password_file: record.get("password_file").map(Value::file).transpose()?,
        ca_file: record.get("ca_file").map(Value::file).transpose()?,
    })
}

/// Reads a name of letters, digits, `.`, `-`, `_`, and the characters in `also`.
///
/// # Errors
/// When it is none.
pub(super) fn name_in(
    record: &Record<'_>,
    name: &str,
    also: &str,
) -> Result<Option<String>, BadValue> {
    record.get(name).map(|value| value.text_as(|text| plain(text, also))).transpose()
}

fn plain(text: &str, also: &str) -> Option<String> {
    let good = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c) || also.contains(c);
    let is_plain = !text.is_empty() && text.len() <= MAX_NAME_BYTES && text.chars().all(good);
    is_plain.then(|| text.to_owned())
}

/// The server and the database of a URL. A password is not part of it: it would be in a file that
/// more people read, and in messages.
fn url(text: &str) -> Option<(RedisServer, u32)> {
    if let Some(path) = text.strip_prefix("unix:") {
        return path.starts_with('/').then(|| (RedisServer::Unix(path.into()), 0));
    }
    let (has_tls, rest) = match text.split_once("://")? {
        ("redis", rest) => (false, rest),
        ("rediss", rest) => (true, rest),
        _ => return None,
    };
    let (place, database) = rest.split_once('/').unwrap_or((rest, ""));
    let database = if database.is_empty() { 0 } else { database.parse().ok()? };
    let (host, port) = match place.strip_prefix('[') {
        Some(v6) => {
            let (address, port) = v6.split_once(']')?;
            address.parse::<std::net::Ipv6Addr>().ok()?;
            (address, port.strip_prefix(':').or_else(|| port.is_empty().then_some(""))?)
        }
        None => place.split_once(':').unwrap_or((place, "")),
    };
    let port = if port.is_empty() { REDIS_PORT } else { port.parse().ok()? };
    let good = |c: char| c.is_ascii_alphanumeric() || ".-_:".contains(c);
    let is_host = !host.is_empty() && host.chars().all(good) && port > 0;
    is_host.then(|| (RedisServer::Tcp { host: host.to_owned(), port, has_tls }, database))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_keys_is_short_and_of_few_characters() {
        let is_plain = |text: &str| plain(text, ":").is_some();
        assert!(is_plain("node-1_a.b:c") && is_plain(&"n".repeat(MAX_NAME_BYTES)));
        assert!(!is_plain(&"n".repeat(MAX_NAME_BYTES + 1)));
        assert!(["", "a b", "a/b", "a\n"].iter().all(|text| !is_plain(text)));
    }

    #[test]
    fn urls_of_redis_are_read_and_those_with_a_password_refused() {
        let tcp =
            |host: &str, port, has_tls| RedisServer::Tcp { host: host.to_owned(), port, has_tls };
        assert_eq!(url("redis://10.0.0.1"), Some((tcp("10.0.0.1", 6379, false), 0)));
        assert_eq!(url("rediss://valkey:6380/2"), Some((tcp("valkey", 6380, true), 2)));
        assert_eq!(url("redis://[fd00::1]:7000/"), Some((tcp("fd00::1", 7000, false), 0)));
        assert_eq!(url("unix:/run/r.sock"), Some((RedisServer::Unix("/run/r.sock".into()), 0)));
        for wrong in [
            "",
            "10.0.0.1",
            "http://a",
            "redis://",
            "redis://u:p@a",
            "redis://:p@a:1",
            "redis://a:0",
            "redis://a/x",
            "redis://[a]",
            "unix:r.sock",
            "redis://a b",
        ] {
            assert_eq!(url(wrong), None, "{wrong}");
        }
    }
}
