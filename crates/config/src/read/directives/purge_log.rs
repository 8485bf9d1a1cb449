//! `purge_log`.

use std::net::SocketAddr;
use std::time::Duration;

use crate::model::config::Config;
use crate::model::purge_log::{Peers, PurgeLog, PurgeLogPlace};
use crate::read::directive::{Directive, Needs, Preset, store};
use crate::read::directives::redis_settings::{
    CA_FILE, PASSWORD_FILE, PREFIX, URL, USERNAME, name_in, redis,
};
use crate::read::value::{BadValue, Record, Value};

/// Fewest and most entries of the stream.
const LENGTH: (u32, u32) = (100, 1_000_000);

/// The default number of entries.
const DEFAULT_LENGTH: u32 = 16_384;

/// Shortest and longest time that pages are served without the log.
const LEASE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));

/// The default of that: an outage of a minute costs no page.
const DEFAULT_LEASE: Duration = Duration::from_secs(90);

/// The default with peers: a node that starts without one of them waits for about as long.
const DEFAULT_LEASE_OF_PEERS: Duration = Duration::from_secs(10);

/// Most other nodes without Redis: each is connected to each.
const MAX_PEERS: usize = 4;

/// The settings that only a log in Redis has.
const OF_REDIS: [&str; 4] = ["username", "password_file", "ca_file", "prefix"];

/// The settings that only peers have.
const OF_PEERS: [&str; 2] = ["listen", "secret_file"];

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
    doc: "The log through which the purges of each node reach all others, in Redis or, for two to \
          five nodes, without it (see [Several \
          machines](../guide/several-machines.md#purges-everywhere)). In Redis: `url` is \
          `redis://HOST:PORT/DATABASE`, `rediss://` for TLS, or `unix:/PATH`. `username` and \
          `password_file` are for its ACL, `ca_file` has the root certificates that verify it (by \
          default, those of the system). `node` is the name of this server, by default that of the \
          host; two servers cannot have the same one. `prefix` begins the names of all keys \
          (`maitred`), and servers with the same prefix purge each other's pages. Without Redis: \
          `peers` has the addresses of the other nodes, four at most, `listen` the address of \
          this one as the others have it in their list, and `secret_file` a secret of 32 bytes or \
          more that all nodes have. For both: `length` is about how many purges the log has \
          (16384): a node that was away for longer drops all its pages. `lease` is how long cached \
          pages are served after the log was last read (90 s): then they are not until it is \
          reached again. With `peers` (10 s), a peer that is not reached for three quarters of it \
          is no longer waited for, and pages are served without it. `timeout` is how long a purge \
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
        PREFIX,
        ("peers", "an array of one to four addresses such as [\"10.0.0.2:7700\"]"),
        ("listen", "the address and port of this node such as \"10.0.0.1:7700\""),
        ("secret_file", "the path of a file with a secret of 32 bytes or more"),
        ("node", "a name of letters, digits, `.`, `-` and `_`"),
        ("length", "a number from 100 to 1000000"),
        ("lease", "a duration from \"1s\" to \"1h\""),
        ("timeout", "a duration from \"50ms\" to \"4s\""),
    ])?;
    let within = |name: &str, range: (Duration, Duration), default: Duration| {
        let Some(value) = record.get(name) else { return Ok(default) };
        let asked = value.duration()?;
        if range.0 <= asked && asked <= range.1 { Ok(asked) } else { Err(value.wrong()) }
    };
    let place = place(value, &record)?;
    let default_lease = match &place {
        PurgeLogPlace::Redis { .. } => DEFAULT_LEASE,
        PurgeLogPlace::Peers(_) => DEFAULT_LEASE_OF_PEERS,
    };
    let count = record.get("length").map(|value| value.count(LENGTH.0, LENGTH.1));
    Ok(PurgeLog {
        place,
        node: name_in(&record, "node", "")?,
        length: count.transpose()?.unwrap_or(DEFAULT_LENGTH),
        lease: within("lease", LEASE, default_lease)?,
        timeout: within("timeout", TIMEOUT, DEFAULT_TIMEOUT)?,
    })
}

fn place(value: &Value<'_>, record: &Record<'_>) -> Result<PurgeLogPlace, BadValue> {
    let lonely = |names: &[&str], lacking: &str| {
        let mut found = names.iter().filter_map(|name| Some((name, record.get(name)?)));
        found.next().map_or(Ok(()), |(name, value)| {
            let why =
                format!("`purge_log.{name}` is for a purge log with `{lacking}`; leave it out");
            Err(value.because(why))
        })
    };
    match (record.get("url"), record.get("peers")) {
        (Some(_), Some(peers)) => {
            let both = "`purge_log` has `peers` and a `url`; set one of them";
            Err(peers.because(both.to_owned()))
        }
        (None, Some(addresses)) => {
            lonely(&OF_REDIS, "url")?;
            peers(record, addresses).map(PurgeLogPlace::Peers)
        }
        (Some(_), None) => {
            lonely(&OF_PEERS, "peers")?;
            Ok(PurgeLogPlace::Redis {
                redis: redis(record, "purge_log.url")?,
                prefix: name_in(record, "prefix", ":{}")?.unwrap_or_else(|| "maitred".to_owned()),
            })
        }
        (None, None) => {
            let why = "lacks `url`, the Redis that has the log, or `peers`, the other nodes";
            Err(value.refused(why))
        }
    }
}

fn peers(record: &Record<'_>, addresses: &Value<'_>) -> Result<Peers, BadValue> {
    let at = record.need("listen")?;
    let listen = at.text_as(address)?;
    let addresses_read = addresses.each(|item| {
        let peer = item.text_as(address)?;
        if peer == listen {
            return Err(item.refused("is `listen`, this node itself; leave it out"));
        }
        if peer.is_ipv4() != listen.is_ipv4() {
            return Err(
                item.refused("is of another family than `listen`; use IPv4 or IPv6 for both")
            );
        }
        Ok(peer)
    })?;
    if addresses_read.len() > MAX_PEERS {
        return Err(addresses.because(format!(
            "`purge_log.peers` has {} addresses; expected at most {MAX_PEERS}: more nodes need a \
             log in Redis (`url`)",
            addresses_read.len()
        )));
    }
    let secret_file = record.need("secret_file")?.file()?;
    Ok(Peers { listen, addresses: addresses_read, secret_file })
}

/// An address that another machine can reach: neither all of this one nor any port, nor one of a
/// link, which is another one by its interface.
fn address(text: &str) -> Option<SocketAddr> {
    let address: SocketAddr = text.parse().ok()?;
    let is_of_link = match &address {
        SocketAddr::V4(_) => false,
        SocketAddr::V6(v6) => v6.scope_id() != 0 || v6.ip().is_unicast_link_local(),
    };
    let is_one = !address.ip().is_unspecified() && !address.ip().is_multicast() && !is_of_link;
    (is_one && address.port() > 0).then_some(address)
}
