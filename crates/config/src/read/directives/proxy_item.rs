//! Reading the items of `proxy` of a site.

use std::time::Duration;

use maitred_rules::Pattern;
use maitred_rules::settings::{Proxy, Upstream};

use super::rule_items::{PATTERN, pattern};
use super::sites::parse_upstream;
use crate::read::value::{BadValue, Value};

/// Default of `connect_timeout`.
const CONNECT: Duration = Duration::from_secs(5);
/// Default of `read_timeout` and `send_timeout` (nginx's).
const SILENCE: Duration = Duration::from_secs(60);
/// The port of HTTP (RFC 9110 §4.2.1).
const HTTP_PORT: u16 = 80;

const SERVER: &str = "a server such as \"http://127.0.0.1:3000\" or \"unix:/run/app.sock\"";
const HOST: &str = "a host name such as \"app.example.com\", or one with a port";
const WAIT: &str = "a duration from \"1ms\" to 366 days such as \"60s\"";

pub(super) fn read_proxy(item: &Value<'_>) -> Result<Proxy, BadValue> {
    let record = item.record(&[
        ("path", PATTERN),
        ("to", SERVER),
        ("host", HOST),
        ("strip_prefix", "true or false"),
        ("connect_timeout", WAIT),
        ("read_timeout", WAIT),
        ("send_timeout", WAIT),
    ])?;
    let wait = |name, unless: Duration| record.get(name).map_or(Ok(unless), positive);
    let proxy = Proxy {
        path: record.get("path").map_or(Ok(Pattern::all()), whole_path)?,
        to: server(record.need("to")?)?,
        host: record.get("host").map(host).transpose()?,
        strip_prefix: record.get("strip_prefix").map_or(Ok(false), Value::boolean)?,
        connect_timeout: wait("connect_timeout", CONNECT)?,
        read_timeout: wait("read_timeout", SILENCE)?,
        send_timeout: wait("send_timeout", SILENCE)?,
    };
    match (record.get("strip_prefix"), &proxy.path) {
        (Some(value), path) if proxy.strip_prefix && !matches!(path, Pattern::Below(_)) => {
            Err(value.refused("needs a `path` that is a folder, such as \"/app/*\""))
        }
        _ => Ok(proxy),
    }
}

/// A pattern. A path with a slash at its end means a folder in nginx, and would match one address
/// alone here.
fn whole_path(value: &Value<'_>) -> Result<Pattern, BadValue> {
    match pattern(value)? {
        Pattern::Exact(path) if path.ends_with('/') => {
            let why = format!("is one address alone; write \"{path}*\" for all below it");
            Err(value.refused(&why))
        }
        pattern => Ok(pattern),
    }
}

fn positive(value: &Value<'_>) -> Result<Duration, BadValue> {
    match value.duration()? {
        Duration::ZERO => Err(value.wrong()),
        duration => Ok(duration),
    }
}

fn host(value: &Value<'_>) -> Result<String, BadValue> {
    value.text_as(|text| {
        let authority = match parse_upstream(text) {
            Ok(Upstream::Tcp { .. }) => true,
            _ => matches!(parse_upstream(&format!("{text}:1")), Ok(Upstream::Tcp { .. })),
        };
        authority.then(|| text.to_owned())
    })
}

fn server(value: &Value<'_>) -> Result<Upstream, BadValue> {
    let text = value.text()?;
    if text.starts_with("unix:") {
        return address(value, text);
    }
    if text.starts_with("https://") {
        let why = "needs TLS, which is not supported for upstream servers; expected one on this \
                   machine or in its network, with \"http://\"";
        return Err(value.refused(why));
    }
    let Some(authority) = text.strip_prefix("http://") else {
        return Err(value.wrong());
    };
    if authority.contains(['/', '?', '#']) {
        let why = "has a path; leave it out: the server gets the client's path, and `strip_prefix \
                   = true` removes the folder from it";
        return Err(value.refused(why));
    }
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    if has_port {
        address(value, authority)
    } else {
        address(value, &format!("{authority}:{HTTP_PORT}"))
    }
}

fn address(value: &Value<'_>, text: &str) -> Result<Upstream, BadValue> {
    parse_upstream(text).map_err(|why| match why {
        Some(why) => value.refused(why),
        None => value.wrong(),
    })
}
