//! Settings of a site's page cache, in `[sites.cache]`.

use maitred_pagecache::settings::{Pattern, Valid};

use super::rule_items::{NETWORKS, networks};
use crate::model::site::Cache;
use crate::read::directive::{Directive, Needs, Preset, store};
use crate::read::value::{BadValue, Value};

const NAMES: &str = "a name such as \"wordpress_logged_in_*\", or an array of them";
const FIELDS: &str = "the name of a header, or an array of them";
const PATHS: &str = "a path such as \"/cart/*\", or an array of them";
const PARAMETERS: &str = "the name of a parameter such as \"utm_*\", or an array of them";
const METHODS: &str = "\"GET\", \"HEAD\", or an array of them";
const DURATION: &str = "a duration such as \"10s\"";
/// Most `min_uses`.
const MAX_USES: u32 = 1_000_000;
/// Statuses of a duration alone, as with nginx.
const DEFAULT_STATUSES: [u16; 3] = [200, 301, 302];
/// The range of statuses.
const STATUSES: std::ops::RangeInclusive<u16> = 200..=599;

fn patterns(value: &Value<'_>) -> Result<Vec<Pattern>, BadValue> {
    value.each(|item| item.text_as(|text| (!text.is_empty()).then(|| Pattern::new(text))))
}

fn names(value: &Value<'_>) -> Result<Vec<String>, BadValue> {
    value.each(|item| {
        item.text_as(|text| {
            let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            let good = !text.is_empty() && text.bytes().all(good);
            good.then(|| text.to_ascii_lowercase())
        })
    })
}

fn methods(value: &Value<'_>) -> Result<Vec<String>, BadValue> {
    value.each(|item| item.text_as(|text| matches!(text, "GET" | "HEAD").then(|| text.to_owned())))
}

/// Whole seconds: a fraction would be dropped, and less than one be 0, with a meaning of its own.
fn seconds(value: &Value<'_>) -> Result<u64, BadValue> {
    let duration = value.duration()?;
    match duration.subsec_nanos() {
        0 => Ok(duration.as_secs()),
        _ => Err(value.refused("is no whole number of seconds; expected one such as \"10s\"")),
    }
}

fn valid(value: &Value<'_>) -> Result<Vec<Valid>, BadValue> {
    if !value.is_table() {
        let seconds = seconds(value)?;
        let of = |status| Valid { status: Some(status), seconds };
        return Ok(DEFAULT_STATUSES.map(of).to_vec());
    }
    let mut valid = Vec::new();
    for entry in value.entries(DURATION)? {
        let status = match &*entry.name {
            "any" => None,
            text => match text.parse::<u16>() {
                // With a zero in front, a status could have two durations.
                Ok(status) if STATUSES.contains(&status) && text.len() == 3 => Some(status),
                _ => return Err(entry.misnamed("is no status; expected one such as 404, or any")),
            },
        };
        let seconds = seconds(&entry.value)?;
        valid.push(Valid { status, seconds });
    }
    // Named statuses take precedence over `any`.
    valid.sort_by_key(|valid| valid.status.is_none());
    Ok(valid)
}

/// The directives of a site's page cache.
pub const DIRECTIVES: &[Directive<Cache>] = &[
    Directive {
        name: "enabled",
        default: Preset::Value("true"),
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether the site has a cache. With `false`, the section has no effect.",
        example: "false",
        read: |cache, value| store(&mut cache.is_off, value.boolean().map(|on| !on)),
    },
    Directive {
        name: "valid",
        default: Preset::Words(
            "none: only responses with a freshness lifetime of their own are stored",
        ),
        takes: "a duration, or a table of statuses such as { 200 = \"10m\", 404 = \"1m\", any = \
                \"10s\" }",
        needs: Needs::Live,
        doc: "Freshness lifetime of responses without one of their own. A duration alone is for \
              the statuses 200, 301 and 302.",
        example: "\"10m\"",
        read: |cache, value| store(&mut cache.rules.valid, valid(value)),
    },
    Directive {
        name: "private_cookies",
        default: Preset::Words("PHPSESSID, and the session cookies of the site's `app`"),
        takes: NAMES,
        needs: Needs::Live,
        doc: "Cookies of logged-in users. A request with one is not served from the cache, and \
              its response is not stored. `*` matches any characters. These replace the default.",
        example: "[\"PHPSESSID\", \"shop_session_*\"]",
        read: |cache, value| store(&mut cache.rules.private_cookies, patterns(value)),
    },
    Directive {
        name: "public_cookies",
        default: Preset::Words(
            "with `app` or `private_cookies` all others; otherwise none but well-known ones that \
             the site's scripts do not set (`_ga`, `_pk_*`, `AWSALB*` and the like)",
        ),
        takes: NAMES,
        needs: Needs::Live,
        doc: "Cookies without influence on responses, such as one for a language that is not in \
              `key_cookies`, or for consent. Where a site with `valid` has neither `app` nor \
              `private_cookies`, no setting says which cookie is a login's: a request with a \
              cookie that the site has set before is not served from the cache, and the response \
              to a request with any other cookie is not stored. The cookies named here have no \
              such effect; `\"*\"` means all.",
        example: "[\"lang\", \"cookie_notice_*\"]",
        read: |cache, value| store(&mut cache.rules.public_cookies, patterns(value)),
    },
    Directive {
        name: "bypass_cookies",
        default: Preset::Value("[]"),
        takes: NAMES,
        needs: Needs::Live,
        doc: "A request with such a cookie is not served from the cache; its response may be \
              stored.",
        example: "\"preview\"",
        read: |cache, value| store(&mut cache.rules.bypass.cookies, patterns(value)),
    },
    Directive {
        name: "bypass_headers",
        default: Preset::Value("[]"),
        takes: FIELDS,
        needs: Needs::Live,
        doc: "A request with such a header, unless it is empty or `0`, is not served from the \
              cache; its response may be stored.",
        example: "\"X-Refresh\"",
        read: |cache, value| store(&mut cache.rules.bypass.headers, names(value)),
    },
    Directive {
        name: "bypass_paths",
        default: Preset::Value("[]"),
        takes: PATHS,
        needs: Needs::Live,
        doc: "A request with such a path, as the client writes it, is not served from the cache; \
              its response may be stored. `*` matches any characters. For scripts, the same \
              holds as in `no_store_paths`.",
        example: "\"/live/*\"",
        read: |cache, value| store(&mut cache.rules.bypass.paths, patterns(value)),
    },
    Directive {
        name: "bypass_parameters",
        default: Preset::Value("[]"),
        takes: PARAMETERS,
        needs: Needs::Live,
        doc: "A request with such a query parameter is not served from the cache; its response \
              may be stored.",
        example: "\"nocache\"",
        read: |cache, value| store(&mut cache.rules.bypass.parameters, patterns(value)),
    },
    Directive {
        name: "bypass_methods",
        default: Preset::Value("[]"),
        takes: METHODS,
        needs: Needs::Live,
        doc: "Requests with such a method are not served from the cache. Only GET and HEAD ever \
              are.",
        example: "\"HEAD\"",
        read: |cache, value| store(&mut cache.rules.bypass.methods, methods(value)),
    },
    Directive {
        name: "no_store_cookies",
        default: Preset::Value("[]"),
        takes: NAMES,
        needs: Needs::Live,
        doc: "The response to a request with such a cookie is not stored; it may be served from \
              the cache.",
        example: "\"experiment_*\"",
        read: |cache, value| store(&mut cache.rules.no_store.cookies, patterns(value)),
    },
    Directive {
        name: "no_store_headers",
        default: Preset::Value("[]"),
        takes: FIELDS,
        needs: Needs::Live,
        doc: "The response to a request with such a header, unless it is empty or `0`, is not \
              stored; it may be served from the cache.",
        example: "\"X-Probe\"",
        read: |cache, value| store(&mut cache.rules.no_store.headers, names(value)),
    },
    Directive {
        name: "no_store_paths",
        default: Preset::Words("none, and the private paths of the site's `app`"),
        takes: PATHS,
        needs: Needs::Live,
        doc: "Paths that are never cached, as the client requests them. `*` matches any \
              characters. A script includes its path info (`/account.php/x.css`), and a path \
              also matches behind a script (`/index.php/cart/`).",
        example: "[\"/cart/*\", \"/checkout/*\"]",
        read: |cache, value| {
            cache.rules.no_store.paths.extend(patterns(value)?);
            Ok(())
        },
    },
    Directive {
        name: "no_store_parameters",
        default: Preset::Words("none, and those of the site's `app`"),
        takes: PARAMETERS,
        needs: Needs::Live,
        doc: "The response to a request with such a query parameter is not stored; it may be \
              served from the cache.",
        example: "[\"s\", \"preview\"]",
        read: |cache, value| store(&mut cache.rules.no_store.parameters, patterns(value)),
    },
    Directive {
        name: "min_uses",
        default: Preset::Value("1"),
        takes: "a number from 1 to 1000000",
        needs: Needs::Live,
        doc: "Requests for a page before it is stored.",
        example: "2",
        read: |cache, value| store(&mut cache.rules.min_uses, value.count(1, MAX_USES)),
    },
    Directive {
        name: "stale_while_revalidate",
        default: Preset::Value("0"),
        takes: DURATION,
        needs: Needs::Live,
        doc: "How long a stale page may be served while a new one is made, if the response does \
              not say so itself. One with `must-revalidate`, `no-cache` or `max-age=0` never is.",
        example: "\"1m\"",
        read: |cache, value| store(&mut cache.rules.stale_while_revalidate, seconds(value)),
    },
    Directive {
        name: "background_update",
        default: Preset::Value("true"),
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether the first request for a page that is stale within `stale_while_revalidate` \
              gets it at once, while it is updated in the background, as later requests do. If \
              not, the first request waits for the new page.",
        example: "false",
        read: |cache, value| store(&mut cache.rules.background_update, value.boolean()),
    },
    Directive {
        name: "stale_if_error",
        default: Preset::Value("0"),
        takes: DURATION,
        needs: Needs::Live,
        doc: "How long a stale page may be served when no new one can be had: the script \
              responds with 500, 502, 503 or 504, dies, times out, or finds no worker. One with \
              `must-revalidate`, `no-cache` or `max-age=0` never is.",
        example: "\"1d\"",
        read: |cache, value| store(&mut cache.rules.stale_if_error, seconds(value)),
    },
    Directive {
        name: "lock_timeout",
        default: Preset::Value("\"5s\""),
        takes: DURATION,
        needs: Needs::Live,
        doc: "How long requests wait for a page that another request is making, before each runs \
              the script itself.",
        example: "\"10s\"",
        read: |cache, value| {
            cache.rules.lock_timeout = seconds(value)?;
            cache.rules.lock_age = cache.rules.lock_timeout;
            Ok(())
        },
    },
    Directive {
        name: "revalidate",
        default: Preset::Value("true"),
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether a stale page is revalidated with its `ETag` and `Last-Modified`, so that \
              the script can respond with a 304. Responses with `no-cache` and one of these \
              headers are then stored.",
        example: "false",
        read: |cache, value| store(&mut cache.rules.revalidate, value.boolean()),
    },
    Directive {
        name: "heuristic",
        default: Preset::Value("false"),
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether a response without a freshness lifetime, of its own or by `valid`, is \
              fresh for a tenth of the time since its `Last-Modified`, at most a day (RFC 9111 \
              §4.2.2).",
        example: "true",
        read: |cache, value| store(&mut cache.rules.heuristic, value.boolean()),
    },
    Directive {
        name: "obey_requests",
        default: Preset::Value("false"),
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether `Cache-Control` and `Pragma` of requests are obeyed (RFC 9111 §5.2.1). \
              Then any client can make the script run, as browsers do on a reload.",
        example: "true",
        read: |cache, value| store(&mut cache.rules.obey_requests, value.boolean()),
    },
    Directive {
        name: "ignore_headers",
        default: Preset::Value("[]"),
        takes: "\"X-Accel-Expires\", \"Expires\", \"Cache-Control\", \"Set-Cookie\", \"Vary\", or \
                an array of them",
        needs: Needs::Live,
        doc: "Response headers that the cache ignores. With `Set-Cookie`, responses that set \
              cookies are stored, and all clients get the same cookies.",
        example: "[\"Cache-Control\", \"Expires\"]",
        read: |cache, value| {
            for name in names(value)? {
                let ignore = &mut cache.rules.ignore_headers;
                match name.as_str() {
                    "x-accel-expires" => ignore.x_accel_expires = true,
                    "expires" => ignore.expires = true,
                    "cache-control" => ignore.cache_control = true,
                    "set-cookie" => ignore.set_cookie = true,
                    "vary" => ignore.vary = true,
                    _ => return Err(value.wrong()),
                }
            }
            Ok(())
        },
    },
    Directive {
        name: "ignore_parameters",
        default: Preset::Words(
            "none; with an `app`, those of campaigns and referrers: utm_*, fbclid, gclid and the \
             like",
        ),
        takes: "the name of a parameter such as \"utm_*\", an array of them, or false",
        needs: Needs::Live,
        doc: "Query parameters without influence on the page: a request with one gets the page \
              that is cached for the address without it. If there is none, the script does not \
              see these parameters, since it could show their values to all clients.",
        example: "[\"utm_*\", \"fbclid\", \"gclid\"]",
        read: |cache, value| {
            cache.rules.key.ignore_parameters = match value.boolean() {
                Ok(false) => Vec::new(),
                Ok(true) => return Err(value.wrong()),
                Err(_) => patterns(value)?,
            };
            Ok(())
        },
    },
    Directive {
        name: "sort_parameters",
        default: Preset::Value("false"),
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether the order of query parameters has no influence on the page. Scripts see \
              them sorted by name; those of one name keep their order.",
        example: "true",
        read: |cache, value| store(&mut cache.rules.key.sort_parameters, value.boolean()),
    },
    Directive {
        name: "key_headers",
        default: Preset::Value("[]"),
        takes: FIELDS,
        needs: Needs::Live,
        doc: "Request headers that are part of the cache key, beside those that responses name \
              in `Vary`.",
        example: "\"X-Device\"",
        read: |cache, value| store(&mut cache.rules.key.headers, names(value)),
    },
    Directive {
        name: "key_cookies",
        default: Preset::Value("[]"),
        takes: "the name of a cookie, or an array of them",
        needs: Needs::Live,
        doc: "Cookies whose values are part of the cache key.",
        example: "[\"currency\", \"language\"]",
        read: |cache, value| {
            store(&mut cache.rules.key.cookies, value.each(|item| item.text().map(str::to_owned)))
        },
    },
    Directive {
        name: "tag_headers",
        default: Preset::Value("[]"),
        takes: FIELDS,
        needs: Needs::Live,
        doc: "Response headers with cache tags, separated by spaces or commas, beside \
              `Cache-Groups` (RFC 9875). They are not sent to clients.",
        example: "[\"Surrogate-Key\", \"Cache-Tag\"]",
        read: |cache, value| store(&mut cache.rules.tag_headers, names(value)),
    },
    Directive {
        name: "litespeed",
        default: Preset::Value("false"),
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether the response headers `X-LiteSpeed-Cache-Control`, `X-LiteSpeed-Tag`, \
              `X-LiteSpeed-Purge` and `X-LiteSpeed-Purge2` are obeyed, as plugins for \
              LiteSpeed's cache send them. A response whose `X-LiteSpeed-Vary` names anything \
              else than cookies in `key_cookies` is not stored, nor is one with fragments \
              (`esi=on`). Requests with a cookie `_lscache_vary` bypass the cache, unless that is \
              in `key_cookies`.",
        example: "true",
        read: |cache, value| store(&mut cache.rules.litespeed, value.boolean()),
    },
    Directive {
        name: "max_object_size",
        default: Preset::Value("\"16M\""),
        takes: "a size from 1 on such as \"1M\"",
        needs: Needs::Live,
        doc: "The largest body that is cached.",
        example: "\"1M\"",
        read: |cache, value| store(&mut cache.rules.max_object_size, value.size(1)),
    },
    Directive {
        name: "purge_from",
        default: Preset::Words("no clients"),
        takes: NETWORKS,
        needs: Needs::Live,
        doc: "Clients that may purge pages with `PURGE /path`: the page of this address, or with \
              a `*` at its end all pages of this host with this prefix. A `Cache-Groups` header \
              purges the pages of these groups instead, and with `Soft-Purge: 1` purged pages \
              are stale rather than dropped. Such a request is not redirected to HTTPS.",
        example: "[\"127.0.0.1\", \"10.0.0.0/8\"]",
        read: |cache, value| store(&mut cache.purge_from, networks(value)),
    },
];
