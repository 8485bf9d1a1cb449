//! `purge_log`.

use std::time::Duration;

use crate::model::config::Config;
use crate::model::purge_log::PurgeLog;
use crate::read::directive::{Directive, Needs, Preset, store};
use crate::read::directives::redis_settings::{
    CA_FILE, PASSWORD_FILE, PREFIX, URL, USERNAME, name_in, redis,
};
use crate::read::value::{BadValue, Value};

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
        URL,
        USERNAME,
        PASSWORD_FILE,
        CA_FILE,
        ("node", "a name of letters, digits, `.`, `-` and `_`"),
        PREFIX,
        ("length", "a number from 100 to 1000000"),
        ("lease", "a duration from \"1s\" to \"1h\""),
        ("timeout", "a duration from \"50ms\" to \"4s\""),
    ])?;
    let within = |name: &str, range: (Duration, Duration), default: Duration| {
        let Some(value) = record.get(name) else { return Ok(default) };
        let asked = value.duration()?;
        if range.0 <= asked && asked <= range.1 { Ok(asked) } else { Err(value.wrong()) }
    };
    let count = record.get("length").map(|value| value.count(LENGTH.0, LENGTH.1));
    Ok(PurgeLog {
        redis: redis(&record, "purge_log.url")?,
        node: name_in(&record, "node", "")?,
        prefix: name_in(&record, "prefix", ":{}")?.unwrap_or_else(|| "maitred".to_owned()),
        length: count.transpose()?.unwrap_or(DEFAULT_LENGTH),
        lease: within("lease", LEASE, DEFAULT_LEASE)?,
        timeout: within("timeout", TIMEOUT, DEFAULT_TIMEOUT)?,
    })
}
