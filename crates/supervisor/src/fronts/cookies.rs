//! The names of cookies that sites have set: a front learns them from responses, and the supervisor
//! passes them on to later fronts. A front's reports are bounded here, since a front is not
//! trusted.

use std::collections::{BTreeMap, BTreeSet};

use maitred_config::{Config, Site};
use maitred_control::ToFront;
use serde::{Deserialize, Serialize};

use crate::fronts::Fronts;

/// Most names of a site; a front remembers fewer.
const MAX_NAMES: usize = 512;

/// Longest name, in bytes. Fronts distinguish names by fewer.
const MAX_NAME_BYTES: usize = 128;

/// Most sites with stored names.
const MAX_SITES: usize = 10_000;

/// Names in one message, which has a size limit.
const NAMES_PER_MESSAGE: usize = 64;

/// The cookies of a site.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteCookies {
    names: BTreeSet<String>,
    /// There are more than are stored, so that every cookie counts.
    are_too_many: bool,
}

/// By the site's key ([`Site::key`]).
pub type CookieNames = BTreeMap<String, SiteCookies>;

/// Adds names that a front has reported; without names, there are too many. False if the report is
/// rejected.
fn add(all: &mut CookieNames, site_key: &str, names: Option<&[String]>) -> bool {
    let is_known = all.contains_key(site_key);
    if !is_known && all.len() >= MAX_SITES {
        return false;
    }
    let known = all.entry(site_key.to_owned()).or_default();
    known.are_too_many |= names.is_none();
    for name in names.unwrap_or_default() {
        let mut end = name.len().min(MAX_NAME_BYTES);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        match known.names.len() < MAX_NAMES {
            true => drop(known.names.insert(name[..end].to_owned())),
            false => known.are_too_many |= !known.names.contains(&name[..end]),
        }
    }
    true
}

/// Cookies that a front has seen being set.
#[derive(Debug)]
pub struct SeenCookies {
    /// The front's line.
    pub line: u32,
    /// The site's key ([`Site::key`]).
    pub site_key: String,
    /// Their names; none: more than a front remembers.
    pub names: Option<Vec<String>>,
}

/// A front has seen cookies being set: the other fronts learn their names, too.
pub fn seen(all: &mut CookieNames, config: &Config, fronts: &mut Fronts, seen: SeenCookies) {
    let SeenCookies { line, site_key, names } = seen;
    let is_guarded = guarded(config, &site_key).is_some();
    if !is_guarded || !add(all, &site_key, names.as_deref()) {
        return;
    }
    for other in fronts.lines().into_iter().filter(|other| *other != line) {
        let (site_key, names) = (site_key.clone(), names.clone());
        fronts.tell(other, ToFront::AddCookieNames { site_key, names });
    }
}

/// The orders by which a new front learns all names.
pub fn orders(all: &CookieNames) -> Vec<ToFront> {
    let mut orders = Vec::new();
    for (site_key, names) in all {
        let order = |names| ToFront::AddCookieNames { site_key: site_key.clone(), names };
        let known: Vec<String> = names.names.iter().cloned().collect();
        let pieces = known.chunks(NAMES_PER_MESSAGE);
        orders.extend(pieces.map(|piece| order(Some(piece.to_vec()))));
        if names.are_too_many {
            orders.push(order(None));
        }
    }
    orders
}

/// The site with this key, if it guards cookies.
fn guarded<'c>(config: &'c Config, site_key: &str) -> Option<&'c Site> {
    let (name, _) = site_key.split_once(' ')?;
    let is_it = |site: &&Site| {
        let host = site.hosts.first();
        host.is_some_and(|host| host.to_string() == name) && site.key(config) == site_key
    };
    let site = config.sites.iter().find(is_it)?;
    let cache = site.cache.as_ref();
    cache.is_some_and(|cache| cache.rules.guards_cookies).then_some(site)
}

/// Drops names that do not count any more after a site's settings have changed, and those of sites
/// that are another tenant's. Whether there are too many is found out again, then.
pub fn follow(all: &mut CookieNames, before: &Config, after: &Config) {
    all.retain(|site_key, names| {
        let cache = |config| guarded(config, site_key).and_then(|site| site.cache.as_ref());
        let Some(now) = cache(after) else {
            return false;
        };
        let mark = cache(before).map(|cache| cache.rules.cookie_mark());
        if mark != Some(now.rules.cookie_mark()) {
            names.are_too_many = false;
            let counts = |name: &String| now.rules.counts_cookie(name.as_bytes());
            names.names.retain(counts);
        }
        true
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_front_says_is_bounded() {
        let mut all = CookieNames::new();
        assert!(add(&mut all, "a", Some(&["login".to_owned()])));
        assert!(add(&mut all, "a", Some(&["login".to_owned(), "lang".to_owned()])));
        assert_eq!(all["a"].names.len(), 2);
        let many: Vec<String> = (0..=MAX_NAMES).map(|number| number.to_string()).collect();
        assert!(add(&mut all, "a", Some(&many)));
        assert!(all["a"].are_too_many && all["a"].names.len() == MAX_NAMES);
        assert!(add(&mut all, "b", Some(&["é".repeat(MAX_NAME_BYTES)])));
        assert!(all["b"].names.iter().all(|name| name.len() <= MAX_NAME_BYTES));
        assert!(add(&mut all, "b", None) && all["b"].are_too_many);
    }
}
