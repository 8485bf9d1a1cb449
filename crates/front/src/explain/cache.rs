//! Explains the page cache: its decision on a request for a script, and on the response.

use maitred_config::Site;
use maitred_pagecache::cache_request::{CacheRequest, Request};
use maitred_pagecache::eligibility::Plan;
use maitred_pagecache::invalidate;
use maitred_pagecache::key::Key;
use maitred_pagecache::settings::{Pattern, Settings, Valid};
use maitred_rules::networks::Networks;

use crate::cache::PURGE;
use crate::cache::key_host::key_host;
use crate::explain::{Explanation, Question};

/// Whether a request is a PURGE of a client that `purge_from` of its site names.
pub fn may_purge(site: &Site, asked: &Question) -> bool {
    let mut named = site.cache.iter().map(|cache| Networks::new(&cache.purge_from));
    asked.method == PURGE && named.any(|named| named.contain(asked.client))
}

/// Explains PURGE, if the request has that method and the site a cache; false if not.
pub fn purge(said: &mut Explanation, site: &Site, asked: &Question) -> bool {
    let Some(cache) = site.cache.as_ref().filter(|_| asked.method == PURGE) else {
        return false;
    };
    if !may_purge(site, asked) {
        let why = "403: purge_from does not name this client, who may not drop pages";
        said.say("response", why);
        return true;
    }
    let host = key_host(&asked.authority, asked.scheme == "https");
    let query = asked.query.as_deref();
    let purge = invalidate::purge_of(&cache.rules.key, host, &asked.path, query);
    let mut fields = asked.fields.iter();
    let has_groups = fields.any(|(name, _)| name.eq_ignore_ascii_case("cache-groups"));
    if has_groups {
        said.say("cache", "drops the pages in the groups of Cache-Groups")
    } else {
        said.say("cache", format!("drops {purge}"))
    }
    said.say("response", "200, and no script runs");
    true
}

/// Explains the cache, if the site has one.
pub fn cache(said: &mut Explanation, site: &Site, asked: &Question) {
    let Some(cache) = &site.cache else {
        return;
    };
    let settings = &cache.rules;
    let is_https = asked.scheme == "https";
    let request = Request {
        method: &asked.method,
        is_https,
        host: key_host(&asked.authority, is_https),
        port: None,
        path: &asked.path,
        query: asked.query.as_deref(),
        has_body: false,
        by_proxy: false,
        by_forwarded: false,
    };
    let fields = asked.fields.iter();
    let fields = fields.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let surveyed = CacheRequest::survey(request, fields);
    let plan = Plan::make(settings, &surveyed);
    let Ok(primary) = Key::primary("", settings, &surveyed) else {
        said.say("cache", "bypass: the address is too long to be remembered");
        return;
    };
    let query = primary.query.as_deref();
    match plan.read {
        Err(why) => said.say("cache", format!("bypass ({why}): the script runs")),
        Ok(()) => said.say("cache", format!("looks for {}", address(&request, query))),
    }
    if surveyed.has_authorization && (plan.read.is_ok() || plan.store.is_ok()) {
        let what = "Authorization: what says public, must-revalidate or s-maxage will do, and \
                    nothing else";
        said.say("cache", what);
    }
    key(said, settings);
    match plan.store {
        Err(why) => said.say("cache", format!("the response is not cached ({why})")),
        Ok(()) => {
            if query != asked.query.as_deref() {
                let query = query.unwrap_or_default();
                said.say("cache", format!("the script sees the query \"{query}\" instead"));
            }
            kept(said, settings);
        }
    }
    if settings.varies_by_session {
        let what = "Vary: Cookie of the response refers to these alone";
        said.say("private_cookies", what);
    }
    let cookies = names(&settings.private_cookies);
    said.say("private_cookies", format!("with one of {cookies}: bypass"));
}

fn address(request: &Request<'_>, query: Option<&str>) -> String {
    let scheme = if request.is_https { "https" } else { "http" };
    let query = query.map(|query| format!("?{query}"));
    let host = request.host.to_ascii_lowercase();
    format!("{scheme}://{host}{}{}", request.path, query.unwrap_or_default())
}

/// The parts of the key besides the address.
fn key(said: &mut Explanation, settings: &Settings) {
    let parts = &settings.key;
    for (about, names) in [("field", &parts.headers), ("cookie", &parts.cookies)] {
        for name in names {
            said.say("cache", format!("tells apart by the {about} {name}"));
        }
    }
}

/// For how long the response is cached.
fn kept(said: &mut Explanation, settings: &Settings) {
    let valid = |valid: &Valid| match valid.status {
        Some(status) => format!("{} s for {status}", valid.seconds),
        None => format!("{} s for all others", valid.seconds),
    };
    let valid: Vec<String> = settings.valid.iter().map(valid).collect();
    let otherwise = if valid.is_empty() {
        "what does not say for how long it is good is not kept".to_owned()
    } else {
        format!("or else {} (valid)", valid.join(", "))
    };
    said.say("cache", format!("the response is cached for as long as it says; {otherwise}"));
    for (seconds, when, name) in [
        (settings.stale_while_revalidate, "while another is made", "stale_while_revalidate"),
        (settings.stale_if_error, "when no other can be had", "stale_if_error"),
    ] {
        if seconds > 0 {
            said.say("cache", format!("stale, it will do for {seconds} s {when} ({name})"));
        }
    }
}

fn names(patterns: &[Pattern]) -> String {
    let names: Vec<String> = patterns.iter().map(ToString::to_string).collect();
    names.join(", ")
}
