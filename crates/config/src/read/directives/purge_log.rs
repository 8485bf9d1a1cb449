//! `purge_log`.

use std::time::Duration;

use crate::model::config::Config;
use crate::model::purge_log::{PurgeLog, PurgeLogServer};
use crate::read::directive::{Directive, Needs, Preset, store};
use crate::read::value::{BadValue, Value};

/// The port of Redis.
const REDIS_PORT: u16 = 6379;

/// Fewest and most entries of the stream.
const LENGTH: (u32, u32) = (100, 1_000_000);

/// The default number of entries.
const DEFAULT_LENGTH: u32 = 16_384;

/// Shortest and longest time that pages are served without the log.
const LEASE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));

/// The default of that: an outage of a minute costs no page.
const DEFAULT_LEASE: Duration = Duration::from_secs(90);

/// Shortest and longest time that a purge waits for other nodes. Clients that purge wait for 5 s.
const TIMEOUT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(4));

/// The default of that.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest name of a node, and longest prefix, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// The directive.
pub(super) const PURGE_LOG: Directive<Config> = Directive {
    name: "purge_log",
    default: Preset::Words("none; purges are for this node"),
    takes: "a table such as { url = \"redis://10.0.0.10\" }",
    needs: Needs::Restart,
    doc: "The log in Redis or Valkey, through which the purges of each node reach all others (see \
          [Several machines](../guide/several-machines.md#purges-everywhere)). `url` is \
          `redis://HOST:PORT/DATABASE`, `rediss://` for TLS, or `unix:/PATH`. `username` and \
          `password_file` are for its ACL, `ca_file` has the root certificates that verify it (by \
          default, those of the system). `node` is the name of this server, by default that of the \
          host; two servers cannot have the same one. `prefix` begins the names of all keys \
          (`maitred`), and servers with the same prefix purge each other's pages. `length` is \
          about how many purges the log has (16384): a node that was away for longer drops all \
          its pages. `lease` is how long cached pages are served after the log was last read \
          (90 s): then they are not until it is reached again. `timeout` is how long a purge \
          waits for the other nodes (2 s, at most 4 s).",
    example: "{ url = \"redis://10.0.0.10\", node = \"node1\" }",
    read: |config, value| store(&mut config.purge_log, purge_log(value).map(Some)),
};

fn purge_log(value: &Value<'_>) -> Result<PurgeLog, BadValue> {
    let record = value.record(&[
        ("url", "a URL such as \"redis://10.0.0.10:6379\", \"rediss://…\" or \"unix:/PATH\""),
        ("username", "the name of a user of Redis"),
        ("password_file", "the path of a file with the password"),
        ("ca_file", "the path of a PEM file"),
        ("node", "a name of letters, digits, `.`, `-` and `_`"),
        ("prefix", "a name of letters, digits, `.`, `-`, `_`, `:`, `{` and `}`"),
        ("length", "a number from 100 to 1000000"),
        ("lease", "a duration from \"1s\" to \"1h\""),
        ("timeout", "a duration from \"50ms\" to \"4s\""),
    ])?;
    let place = record.need("url")?;
    if place.text()?.contains('@') {
        // Without the text, which is logged.
        let why = "`purge_log.url` has a user or a password; write `username` and `password_file`";
        return Err(place.because(why.to_owned()));
    }
    let (server, database) = place.text_as(url)?;
    let named = |name: &str, also: &'static str| {
        let one = record.get(name);
        one.map(|value| value.text_as(|text| plain(text, also))).transpose()
    };
    let within = |name: &str, range: (Duration, Duration), default: Duration| {
        let Some(value) = record.get(name) else { return Ok(default) };
        let asked = value.duration()?;
        if range.0 <= asked && asked <= range.1 { Ok(asked) } else { Err(value.wrong()) }
    };
    let count = record.get("length").map(|value| value.count(LENGTH.0, LENGTH.1));
    Ok(PurgeLog {
        server,
        database,
        username: named("username", "@")?,
        password_file: record.get("password_file").map(Value::file).transpose()?,
        ca_file: record.get("ca_file").map(Value::file).transpose()?,
        node: named("node", "")?,
        prefix: named("prefix", ":{}")?.unwrap_or_else(|| "maitred".to_owned()),
        length: count.transpose()?.unwrap_or(DEFAULT_LENGTH),
        lease: within("lease", LEASE, DEFAULT_LEASE)?,
        timeout: within("timeout", TIMEOUT, DEFAULT_TIMEOUT)?,
    })
}

fn plain(text: &str, also: &str) -> Option<String> {
    let good = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c) || also.contains(c);
    let is_plain = !text.is_empty() && text.len() <= MAX_NAME_BYTES && text.chars().all(good);
    is_plain.then(|| text.to_owned())
}

/// The server and the database of a URL. A password is not part of it: it would be in a file that
/// more people read, and in messages.
fn url(text: &str) -> Option<(PurgeLogServer, u32)> {
    if let Some(path) = text.strip_prefix("unix:") {
        return path.starts_with('/').then(|| (PurgeLogServer::Unix(path.into()), 0));
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
    is_host.then(|| (PurgeLogServer::Tcp { host: host.to_owned(), port, has_tls }, database))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_redis_are_read_and_those_with_a_password_refused() {
        let tcp = |host: &str, port, has_tls| PurgeLogServer::Tcp {
            host: host.to_owned(),
            port,
            has_tls,
        };
        assert_eq!(url("redis://10.0.0.1"), Some((tcp("10.0.0.1", 6379, false), 0)));
        assert_eq!(url("rediss://valkey:6380/2"), Some((tcp("valkey", 6380, true), 2)));
        assert_eq!(url("redis://[fd00::1]:7000/"), Some((tcp("fd00::1", 7000, false), 0)));
        assert_eq!(url("unix:/run/r.sock"), Some((PurgeLogServer::Unix("/run/r.sock".into()), 0)));
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
