//! Reading the items of a site's rules.

use std::ops::Range;
use std::time::Duration;

use maitred_rules::networks::parse_network;
use maitred_rules::response_headers::{refuse_header, refuse_value};
use maitred_rules::settings::{
    BasicAuth, Deny, Expires, HeaderRule, PathSettings, PhpRule, RateLimit, Redirect, Rewrite,
};
use maitred_rules::site_rules::check_template;
use maitred_rules::{IpNet, Pattern};

use crate::read::units;
use crate::read::value::{BadValue, Record, Value};

pub(super) const PATTERN: &str = "a path (\"/a\"), a folder (\"/a/*\"), an ending (\"*.css\") or \
                                  a regular expression (\"~^/a[0-9]+$\")";
pub(super) const NETWORKS: &str = "an address such as \"192.0.2.1\", a network such as \
                                   \"192.0.2.0/24\", or an array of them";
const TARGET: &str = "a path such as \"/new/$1\" or a URL";
const FIELDS: &str = "a table of headers such as { X-Frame-Options = \"DENY\" }";
/// The largest status.
const LAST_STATUS: u32 = 599;
/// Most requests of a rate or a burst.
const MAX_RATE: u32 = 1_000_000;

pub(super) fn pattern(value: &Value<'_>) -> Result<Pattern, BadValue> {
    Pattern::parse(value.text()?).map_err(|why| value.refused(&why))
}

pub(super) fn patterns(value: &Value<'_>) -> Result<Vec<Pattern>, BadValue> {
    value.each(pattern)
}

/// The patterns of `deny_php`.
pub(super) fn php_rules(value: &Value<'_>) -> Result<Vec<PhpRule>, BadValue> {
    value.each(|item| PhpRule::parse(item.text()?).map_err(|why| item.refused(&why)))
}

/// The field `path`; default: all paths.
fn path_of(record: &Record<'_>) -> Result<Pattern, BadValue> {
    record.get("path").map_or(Ok(Pattern::all()), pattern)
}

fn network(value: &Value<'_>) -> Result<IpNet, BadValue> {
    parse_network(value.text()?).map_err(|why| value.refused(&why))
}

/// Addresses and networks.
pub(crate) fn networks(value: &Value<'_>) -> Result<Vec<IpNet>, BadValue> {
    value.each(network)
}

/// A path of the site as written in a URL, without a query.
pub(super) fn site_path(text: &str) -> Option<String> {
    let good = text.starts_with('/') && !text.contains(['?', '#', '%', '*', '\\']);
    (good && maitred_rules::path::clean_path(text).is_ok()).then(|| text.to_owned())
}

pub(super) fn read_redirect(item: &Value<'_>) -> Result<Redirect, BadValue> {
    let record =
        item.record(&[("from", PATTERN), ("to", TARGET), ("status", "301, 302, 303, 307 or 308")])?;
    let from = pattern(record.need("from")?)?;
    let to = target(&from, record.need("to")?, &["/", "http://", "https://", "$"])?;
    let status = match record.get("status") {
        Some(value) => one_of(value, &[301, 302, 303, 307, 308])?,
        None => 301,
    };
    Ok(Redirect { from, to, status })
}

pub(super) fn read_rewrite(item: &Value<'_>) -> Result<Rewrite, BadValue> {
    let known = [("from", PATTERN), ("to", "a path such as \"/new/$1\""), ("end", "true or false")];
    let record = item.record(&known)?;
    let from = pattern(record.need("from")?)?;
    let to = target(&from, record.need("to")?, &["/", "$"])?;
    let end = record.get("end").map_or(Ok(false), Value::boolean)?;
    Ok(Rewrite { from, to, end })
}

fn target(from: &Pattern, value: &Value<'_>, begins: &[&str]) -> Result<String, BadValue> {
    let text = value.text()?;
    if !begins.iter().any(|start| text.starts_with(start)) {
        return Err(value.wrong());
    }
    check_template(from, text).map_err(|why| value.refused(&why))?;
    Ok(text.to_owned())
}

fn one_of(value: &Value<'_>, statuses: &[u16]) -> Result<u16, BadValue> {
    let status = u16::try_from(value.count(0, LAST_STATUS)?).unwrap_or(0);
    if statuses.contains(&status) { Ok(status) } else { Err(value.wrong()) }
}

pub(super) fn read_deny(item: &Value<'_>) -> Result<Deny, BadValue> {
    let everybody = |path| Deny { path, from: Vec::new(), except: Vec::new(), status: 403 };
    if !item.is_table() {
        let text = item.text()?;
        if text.starts_with(['/', '~', '*']) {
            return Ok(everybody(pattern(item)?));
        }
        let from = vec![parse_network(text).map_err(|_| item.wrong())?];
        return Ok(Deny { from, ..everybody(Pattern::all()) });
    }
    let record = item.record(&[
        ("path", PATTERN),
        ("from", NETWORKS),
        ("except", NETWORKS),
        ("status", "403, 404 or 410"),
    ])?;
    if record.get("path").or(record.get("from")).is_none() {
        record.need("path")?;
    }
    Ok(Deny {
        path: path_of(&record)?,
        from: record.get("from").map_or(Ok(Vec::new()), networks)?,
        except: record.get("except").map_or(Ok(Vec::new()), networks)?,
        status: match record.get("status") {
            Some(value) => one_of(value, &[403, 404, 410])?,
            None => 403,
        },
    })
}

pub(super) fn read_basic_auth(item: &Value<'_>) -> Result<BasicAuth, BadValue> {
    let record = item.record(&[
        ("path", PATTERN),
        ("users", "the path of a file that `htpasswd -B` wrote"),
        ("realm", "a text without quotes"),
    ])?;
    let realm = match record.get("realm") {
        Some(value) => value.text_as(|text| {
            let good = !text.contains(|c: char| c.is_control() || c == '"' || c == '\\');
            good.then(|| text.to_owned())
        })?,
        None => "Restricted".to_owned(),
    };
    Ok(BasicAuth { path: path_of(&record)?, realm, users: record.need("users")?.path()? })
}

pub(super) fn read_headers(item: &Value<'_>) -> Result<HeaderRule, BadValue> {
    let has_fields_only = |item: &Value<'_>| {
        let entries = item.entries(FIELDS)?;
        let plain = |name: &str| !["path", "set", "add", "unset"].contains(&name);
        Ok::<_, BadValue>(entries.iter().all(|entry| plain(&entry.name)))
    };
    if has_fields_only(item)? {
        return Ok(HeaderRule {
            path: Pattern::all(),
            set: fields(item)?,
            add: Vec::new(),
            unset: Vec::new(),
        });
    }
    let record = item.record(&[
        ("path", PATTERN),
        ("set", FIELDS),
        ("add", FIELDS),
        ("unset", "the name of a header, or an array of names"),
    ])?;
    Ok(HeaderRule {
        path: path_of(&record)?,
        set: record.get("set").map_or(Ok(Vec::new()), fields)?,
        add: record.get("add").map_or(Ok(Vec::new()), fields)?,
        unset: match record.get("unset") {
            Some(value) => value.each(|item| {
                let name = item.text()?;
                refuse_header(name).map_or(Ok(name.to_owned()), |why| Err(item.refused(&why)))
            })?,
            None => Vec::new(),
        },
    })
}

fn fields(value: &Value<'_>) -> Result<Vec<(String, String)>, BadValue> {
    let mut fields = Vec::new();
    for field in value.entries("a text")? {
        if let Some(why) = refuse_header(&field.name) {
            return Err(field.misnamed(&why));
        }
        let text = field.value.text()?;
        if let Some(why) = refuse_value(text) {
            return Err(field.value.refused(&why));
        }
        fields.push((field.name, text.to_owned()));
    }
    Ok(fields)
}

pub(super) fn read_expires(item: &Value<'_>) -> Result<Expires, BadValue> {
    let record = item.record(&[
        ("path", PATTERN),
        ("type", "a media type such as \"text/css\" or \"image/*\""),
        ("after", "a duration of at most 366 days such as \"30d\""),
        ("immutable", "true or false"),
    ])?;
    if record.get("path").or(record.get("type")).is_none() {
        record.need("path")?;
    }
    let media_type = record.get("type").map(|value| {
        value.text_as(|text| {
            let (kind, sub) = text.split_once('/')?;
            let plain = |text: &str| {
                !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || "*;/".contains(c))
            };
            match (plain(kind), sub) {
                (true, "*") => Some(format!("{kind}/")),
                (true, sub) if plain(sub) => Some(text.to_owned()),
                _ => None,
            }
        })
    });
    Ok(Expires {
        path: path_of(&record)?,
        media_type: media_type.transpose()?,
        after: record.need("after")?.duration()?,
        immutable: record.get("immutable").map_or(Ok(false), Value::boolean)?,
    })
}

/// The settings, and the position of the pool's name.
pub(super) fn read_path(item: &Value<'_>) -> Result<SpannedPath, BadValue> {
    let record = item.record(&[
        ("path", PATTERN),
        ("pool", "the name of a pool"),
        ("max_body_size", "a size from 1 on such as \"64M\""),
        ("urgent", "true or false"),
    ])?;
    let pool = record.get("pool");
    let settings = PathSettings {
        path: pattern(record.need("path")?)?,
        pool: pool.map(|pool| pool.text().map(str::to_owned)).transpose()?,
        max_body_size: record.get("max_body_size").map(|value| value.size(1)).transpose()?,
        urgent: record.get("urgent").map(Value::boolean).transpose()?,
    };
    if settings.pool.is_none() && settings.max_body_size.is_none() && settings.urgent.is_none() {
        return Err(item.refused("has no setting; add `pool`, `max_body_size` or `urgent = true`"));
    }
    Ok((settings, pool.map(Value::span)))
}

pub(super) type SpannedPath = (PathSettings, Option<Range<usize>>);

pub(super) fn read_rate_limit(item: &Value<'_>) -> Result<RateLimit, BadValue> {
    let record = item.record(&[
        ("path", PATTERN),
        ("rate", "requests in a time such as \"10/s\", \"30/m\" or \"100/h\""),
        ("burst", "a whole number from 0 to 1000000"),
    ])?;
    let (requests, per) = record.need("rate")?.text_as(rate)?;
    Ok(RateLimit {
        path: path_of(&record)?,
        requests,
        per,
        burst: record.get("burst").map_or(Ok(0), |value| value.count(0, MAX_RATE))?,
    })
}

fn rate(text: &str) -> Option<(u32, Duration)> {
    let (requests, per) = text.split_once('/')?;
    let digits = requests.bytes().all(|byte| byte.is_ascii_digit());
    let requests = requests.parse().ok().filter(|_| digits)?;
    // `10/s` is `10/1s`, and `1/30s` is one in half a minute.
    let per = if per.starts_with(|c: char| c.is_ascii_digit()) {
        units::duration(per)?
    } else {
        units::duration(&format!("1{per}")).filter(|_| !per.is_empty())?
    };
    let good = (1..=MAX_RATE).contains(&requests) && !per.is_zero();
    good.then_some((requests, per))
}
