//! Settings of a site's page cache, in `[sites.cache]`.

use maitred_pagecache::settings::{Pattern, Valid};

use super::rule_items::{NETWORKS, networks};
use crate::model::site::Cache;
use crate::read::directive::{Directive, Needs, Preset, store};
use crate::read::value::{Value, Wrong};

const NAMES: &str = "a name such as \"wordpress_logged_in_*\", or an array of them";
const FIELDS: &str = "the name of a header field, or an array of them";
const PATHS: &str = "a path such as \"/cart/*\", or an array of them";
const PARAMETERS: &str = "the name of a parameter such as \"utm_*\", or an array of them";
const METHODS: &str = "\"GET\", \"HEAD\", or an array of them";
const DURATION: &str = "a duration such as \"10s\"";
/// Most that `min_uses` may ask for.
const MAX_USES: u32 = 1_000_000;
/// Statuses that are meant where none is named, as with nginx.
const DEFAULT_STATUSES: [u16; 3] = [200, 301, 302];
/// The statuses of HTTP.
const STATUSES: std::ops::RangeInclusive<u16> = 200..=599;

fn patterns(value: &Value<'_>) -> Result<Vec<Pattern>, Wrong> {
    value.each(|item| item.text_as(|text| (!text.is_empty()).then(|| Pattern::new(text))))
}

fn names(value: &Value<'_>) -> Result<Vec<String>, Wrong> {
    value.each(|item| {
        item.text_as(|text| {
            let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            let good = !text.is_empty() && text.bytes().all(good);
            good.then(|| text.to_ascii_lowercase())
        })
    })
}

fn methods(value: &Value<'_>) -> Result<Vec<String>, Wrong> {
    value.each(|item| item.text_as(|text| matches!(text, "GET" | "HEAD").then(|| text.to_owned())))
}

fn seconds(value: &Value<'_>) -> Result<u64, Wrong> {
    Ok(value.duration()?.as_secs())
}

fn valid(value: &Value<'_>) -> Result<Vec<Valid>, Wrong> {
    if !value.is_table() {
        let seconds = seconds(value)?;
        let of = |status| Valid {
            status: Some(status),
            seconds,
        };
        return Ok(DEFAULT_STATUSES.map(of).to_vec());
    }
    let mut valid = Vec::new();
    for entry in value.entries(DURATION)? {
        let status = match &*entry.name {
            "any" => None,
            text => match text.parse::<u16>() {
                Ok(status) if STATUSES.contains(&status) => Some(status),
                _ => return Err(entry.misnamed("is no status; expected one such as 404, or any")),
            },
        };
        let seconds = seconds(&entry.value)?;
        valid.push(Valid { status, seconds });
    }
    // The statuses that are named count before the rest.
    valid.sort_by_key(|valid| valid.status.is_none());
    Ok(valid)
}

/// The directives of a site's page cache.
pub const DIRECTIVES: &[Directive<Cache>] = &[
    Directive {
        name: "enabled",
        default: Preset::Value("true"),
        unit: "",
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether there is a cache. `false` is as if the section were not there.",
        example: "false",
        read: |cache, value| store(&mut cache.is_off, value.boolean().map(|on| !on)),
    },
    Directive {
        name: "valid",
        default: Preset::Words("none: only what says itself for how long it is good is kept"),
        unit: "seconds",
        takes: "a duration, or a table of statuses such as { 200 = \"10m\", 404 = \"1m\", any = \"10s\" }",
        needs: Needs::Live,
        doc: "For how long answers are good that do not say so themselves. A duration alone is for \
              the statuses 200, 301 and 302.",
        example: "\"10m\"",
        read: |cache, value| store(&mut cache.rules.valid, valid(value)),
    },
    Directive {
        name: "private_cookies",
        default: Preset::Words("PHPSESSID, and the session cookies of the site's `app`"),
        unit: "",
        takes: NAMES,
        needs: Needs::Live,
        doc: "Cookies of people who see something of their own. What has one is neither answered \
              from the cache nor kept. `*` stands for any letters. These take the place of the \
              default.",
        example: "[\"PHPSESSID\", \"shop_session_*\"]",
        read: |cache, value| store(&mut cache.rules.private_cookies, patterns(value)),
    },
    Directive {
        name: "public_cookies",
        default: Preset::Words(
            "with `app` or `private_cookies` all others; otherwise none but well-known ones that the \
             site's scripts do not set (`_ga`, `_pk_*`, `AWSALB*` and the like)",
        ),
        unit: "",
        takes: NAMES,
        needs: Needs::Live,
        doc: "Cookies that make no difference to what the site answers, such as a language's that \
              `key_cookies` has not, or a consent's. Where a site with `valid` has neither `app` \
              nor `private_cookies`, no setting says which cookie is a login's: a request with a \
              cookie that the site has set before is not answered from the cache, and the \
              response to a request with any other cookie is not stored. The cookies named here \
              have no such effect; `\"*\"` means all.",
        example: "[\"lang\", \"cookie_notice_*\"]",
        read: |cache, value| store(&mut cache.rules.public_cookies, patterns(value)),
    },
    Directive {
        name: "bypass_cookies",
        default: Preset::Value("[]"),
        unit: "",
        takes: NAMES,
        needs: Needs::Live,
        doc: "A request with such a cookie is not answered from the cache; its answer may be kept.",
        example: "\"preview\"",
        read: |cache, value| store(&mut cache.rules.bypass.cookies, patterns(value)),
    },
    Directive {
        name: "bypass_headers",
        default: Preset::Value("[]"),
        unit: "",
        takes: FIELDS,
        needs: Needs::Live,
        doc: "A request with such a field, unless it is empty or `0`, is not answered from the cache; \
              its answer may be kept.",
        example: "\"X-Refresh\"",
        read: |cache, value| store(&mut cache.rules.bypass.headers, names(value)),
    },
    Directive {
        name: "bypass_paths",
        default: Preset::Value("[]"),
        unit: "",
        takes: PATHS,
        needs: Needs::Live,
        doc: "A request whose path, as the client writes it, is such a one is not answered from \
              the cache; its answer may be kept. `*` stands for any letters. What `no_store_paths` says of \
              scripts holds here, too.",
        example: "\"/live/*\"",
        read: |cache, value| store(&mut cache.rules.bypass.paths, patterns(value)),
    },
    Directive {
        name: "bypass_parameters",
        default: Preset::Value("[]"),
        unit: "",
        takes: PARAMETERS,
        needs: Needs::Live,
        doc: "A request whose query has such a parameter is not answered from the cache; its \
              answer may be kept.",
        example: "\"nocache\"",
        read: |cache, value| store(&mut cache.rules.bypass.parameters, patterns(value)),
    },
    Directive {
        name: "bypass_methods",
        default: Preset::Value("[]"),
        unit: "",
        takes: METHODS,
        needs: Needs::Live,
        doc: "Requests with such a method are not answered from the cache. All methods but GET \
              and HEAD never are.",
        example: "\"HEAD\"",
        read: |cache, value| store(&mut cache.rules.bypass.methods, methods(value)),
    },
    Directive {
        name: "no_store_cookies",
        default: Preset::Value("[]"),
        unit: "",
        takes: NAMES,
        needs: Needs::Live,
        doc: "The answer to a request with such a cookie is not kept; it may be answered from \
              the cache.",
        example: "\"experiment_*\"",
        read: |cache, value| store(&mut cache.rules.no_store.cookies, patterns(value)),
    },
    Directive {
        name: "no_store_headers",
        default: Preset::Value("[]"),
        unit: "",
        takes: FIELDS,
        needs: Needs::Live,
        doc: "The answer to a request with such a field, unless it is empty or `0`, is not kept; \
              it may be answered from the cache.",
        example: "\"X-Probe\"",
        read: |cache, value| store(&mut cache.rules.no_store.headers, names(value)),
    },
    Directive {
        name: "no_store_paths",
        default: Preset::Words("none, and the private paths of the site's `app`"),
        unit: "",
        takes: PATHS,
        needs: Needs::Live,
        doc: "What is never kept, by the path that the client asks for. `*` stands for any letters. \
              A script is meant with whatever stands behind it (`/account.php/x.css`), and a path \
              behind a script, too (`/index.php/cart/`).",
        example: "[\"/cart/*\", \"/checkout/*\"]",
        read: |cache, value| {
            cache.rules.no_store.paths.extend(patterns(value)?);
            Ok(())
        },
    },
    Directive {
        name: "no_store_parameters",
        default: Preset::Words("none, and those of the site's `app`"),
        unit: "",
        takes: PARAMETERS,
        needs: Needs::Live,
        doc: "The answer to a request whose query has such a parameter is not kept; it may be \
              answered from the cache.",
        example: "[\"s\", \"preview\"]",
        read: |cache, value| store(&mut cache.rules.no_store.parameters, patterns(value)),
    },
    Directive {
        name: "min_uses",
        default: Preset::Value("1"),
        unit: "",
        takes: "a number from 1 to 1000000",
        needs: Needs::Live,
        doc: "How often something is asked for before it is kept.",
        example: "2",
        read: |cache, value| store(&mut cache.rules.min_uses, value.count(1, MAX_USES)),
    },
    Directive {
        name: "stale_while_revalidate",
        default: Preset::Value("0"),
        unit: "seconds",
        takes: DURATION,
        needs: Needs::Live,
        doc: "For how long an answer that is not good any more will do while a new one is made, if it \
              does not say so itself. What says `must-revalidate`, `no-cache` or `max-age=0` \
              never does.",
        example: "\"1m\"",
        read: |cache, value| store(&mut cache.rules.stale_while_revalidate, seconds(value)),
    },
    Directive {
        name: "background_update",
        default: Preset::Value("true"),
        unit: "",
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether whoever is the first to ask for a page that will do for \
              `stale_while_revalidate` gets it at once, while it is made again, as those do who \
              ask after. If not, the first waits for the new page.",
        example: "false",
        read: |cache, value| store(&mut cache.rules.background_update, value.boolean()),
    },
    Directive {
        name: "stale_if_error",
        default: Preset::Value("0"),
        unit: "seconds",
        takes: DURATION,
        needs: Needs::Live,
        doc: "For how long an answer that is not good any more will do when no other can be had: the \
              script answers with 500, 502, 503 or 504, dies, takes too long, or finds no worker. \
              What says `must-revalidate`, `no-cache` or `max-age=0` never does.",
        example: "\"1d\"",
        read: |cache, value| store(&mut cache.rules.stale_if_error, seconds(value)),
    },
    Directive {
        name: "lock_timeout",
        default: Preset::Value("\"5s\""),
        unit: "seconds",
        takes: DURATION,
        needs: Needs::Live,
        doc: "For how long requests wait for an answer that another request has made already, before \
              they have one made of their own.",
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
        unit: "",
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether a page that is not good any more is asked for again with its `ETag` and \
              `Last-Modified`, so that the script can say with a 304 that it is still the same. \
              What says `no-cache` and has one of them is then kept.",
        example: "false",
        read: |cache, value| store(&mut cache.rules.revalidate, value.boolean()),
    },
    Directive {
        name: "heuristic",
        default: Preset::Value("false"),
        unit: "",
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether an answer that does not say for how long it is good, and for which `valid` \
              says nothing, is so for a tenth of the time since its `Last-Modified`, at most a \
              day (RFC 9111 §4.2.2).",
        example: "true",
        read: |cache, value| store(&mut cache.rules.heuristic, value.boolean()),
    },
    Directive {
        name: "obey_requests",
        default: Preset::Value("false"),
        unit: "",
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether what requests say in `Cache-Control` and `Pragma` is obeyed (RFC 9111 \
              §5.2.1). Then everybody can have the script run by asking for it, as browsers do \
              that load a page again.",
        example: "true",
        read: |cache, value| store(&mut cache.rules.obey_requests, value.boolean()),
    },
    Directive {
        name: "ignore_headers",
        default: Preset::Value("[]"),
        unit: "",
        takes: "\"X-Accel-Expires\", \"Expires\", \"Cache-Control\", \"Set-Cookie\", \"Vary\", or an \
                array of them",
        needs: Needs::Live,
        doc: "Fields of answers that are not listened to. With `Set-Cookie`, answers that set cookies \
              are kept, and everybody gets the same cookies.",
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
            "none; with an `app`, those that only say where a visitor comes from: utm_*, fbclid, gclid \
             and the like",
        ),
        unit: "",
        takes: "the name of a parameter such as \"utm_*\", an array of them, or false",
        needs: Needs::Live,
        doc: "Parameters of the query that make no difference: a request with one is answered with the \
              page that was kept of the address without. If none was, the script does not see these \
              parameters, since it could show everybody what is in them.",
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
        unit: "",
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether the order of the parameters makes no difference. Scripts see them sorted \
              by name; those of one name keep their order.",
        example: "true",
        read: |cache, value| store(&mut cache.rules.key.sort_parameters, value.boolean()),
    },
    Directive {
        name: "key_headers",
        default: Preset::Value("[]"),
        unit: "",
        takes: FIELDS,
        needs: Needs::Live,
        doc: "Header fields of requests that make a difference, beside those that answers name in \
              `Vary`.",
        example: "\"X-Device\"",
        read: |cache, value| store(&mut cache.rules.key.headers, names(value)),
    },
    Directive {
        name: "key_cookies",
        default: Preset::Value("[]"),
        unit: "",
        takes: "the name of a cookie, or an array of them",
        needs: Needs::Live,
        doc: "Cookies whose values make a difference.",
        example: "[\"currency\", \"language\"]",
        read: |cache, value| {
            store(
                &mut cache.rules.key.cookies,
                value.each(|item| item.text().map(str::to_owned)),
            )
        },
    },
    Directive {
        name: "tag_headers",
        default: Preset::Value("[]"),
        unit: "",
        takes: FIELDS,
        needs: Needs::Live,
        doc: "Fields of answers that hold tags, with spaces or commas between them, beside \
              `Cache-Groups` (RFC 9875). Clients do not see them.",
        example: "[\"Surrogate-Key\", \"Cache-Tag\"]",
        read: |cache, value| store(&mut cache.rules.tag_headers, names(value)),
    },
    Directive {
        name: "litespeed",
        default: Preset::Value("false"),
        unit: "",
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether `X-LiteSpeed-Cache-Control`, `X-LiteSpeed-Tag` and `X-LiteSpeed-Purge` of answers \
              are listened to, as plugins for LiteSpeed's cache write them. What says with \
              `X-LiteSpeed-Vary` that it depends on something else than cookies in `key_cookies` is \
              not kept.",
        example: "true",
        read: |cache, value| store(&mut cache.rules.litespeed, value.boolean()),
    },
    Directive {
        name: "max_object_size",
        default: Preset::Value("\"16M\""),
        unit: "bytes",
        takes: "a size from 1 on such as \"1M\"",
        needs: Needs::Live,
        doc: "The largest body that is kept.",
        example: "\"1M\"",
        read: |cache, value| store(&mut cache.rules.max_object_size, value.size(1)),
    },
    Directive {
        name: "purge_from",
        default: Preset::Words("nobody"),
        unit: "",
        takes: NETWORKS,
        needs: Needs::Live,
        doc: "Who may drop pages with `PURGE /path`: the page of this address, or with a `*` at its end \
              all of this host that begin so. With a field `Cache-Groups` it drops the pages of these \
              groups instead, and with `Soft-Purge: 1` pages will do until there are new ones.",
        example: "[\"127.0.0.1\", \"10.0.0.0/8\"]",
        read: |cache, value| store(&mut cache.purge_from, networks(value)),
    },
];
