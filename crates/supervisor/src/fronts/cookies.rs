//! The names of cookies that sites have set: a front learns them from responses, and the supervisor
//! passes them on to later fronts. A front's reports are bounded here, since a front is not
//! trusted.

use std::collections::{BTreeMap, BTreeSet};

use maitred_config::{Config, Site};
use maitred_control::ToFront;
use maitred_control::front::COOKIES_PER_MESSAGE;
use serde::{Deserialize, Serialize};

use crate::fronts::Fronts;

/// Most names of a site; a front remembers fewer.
const MAX_NAMES: usize = 512;

/// Longest name, in bytes. Fronts distinguish names by fewer.
const MAX_NAME_BYTES: usize = 128;

/// Most sites with stored names.
const MAX_SITES: usize = 10_000;

/// The cookies of a site.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteCookies {
    names: BTreeSet<String>,
    /// There are more than are stored, so that every cookie counts.
    are_too_many: bool,
}

/// By the site's key ([`Site::key`]).
pub type CookieNames = BTreeMap<String, SiteCookies>;

/// Adds names that a front has reported; without names, there are too many. Returns what is new, so
/// that a front cannot have the same names sent to others again and again.
fn add(all: &mut CookieNames, site_key: &str, names: Option<&[String]>) -> SiteCookies {
    let mut new = SiteCookies::default();
    if !all.contains_key(site_key) && all.len() >= MAX_SITES {
        return new;
    }
    let known = all.entry(site_key.to_owned()).or_default();
    let mut are_too_many = names.is_none();
    for name in names.unwrap_or_default() {
        let name = cut(name);
        if known.names.contains(name) {
            continue;
        }
        if known.names.len() < MAX_NAMES {
            known.names.insert(name.to_owned());
            new.names.insert(name.to_owned());
        } else {
            are_too_many = true;
        }
    }
    new.are_too_many = are_too_many && !known.are_too_many;
    known.are_too_many |= are_too_many;
    new
}

/// The beginning of a name, of [`MAX_NAME_BYTES`] at most.
fn cut(name: &str) -> &str {
    let mut end = name.len().min(MAX_NAME_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
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
    if guarded(config, &site_key).is_none() {
        return;
    }
    let new = add(all, &site_key, names.as_deref());
    let orders = orders_of(&site_key, &new);
    for other in fronts.lines().into_iter().filter(|other| *other != line) {
        for order in &orders {
            fronts.tell(other, order.clone());
        }
    }
}

/// The orders by which a new front learns all names.
pub fn orders(all: &CookieNames) -> Vec<ToFront> {
    all.iter().flat_map(|(site_key, cookies)| orders_of(site_key, cookies)).collect()
}

/// The orders by which a front learns these names of a site.
fn orders_of(site_key: &str, cookies: &SiteCookies) -> Vec<ToFront> {
    let order = |names| ToFront::AddCookieNames { site_key: site_key.to_owned(), names };
    let names: Vec<String> = cookies.names.iter().cloned().collect();
    let pieces = names.chunks(COOKIES_PER_MESSAGE);
    let pieces = pieces.map(|piece| order(Some(piece.to_vec())));
    pieces.chain(cookies.are_too_many.then(|| order(None))).collect()
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
    use maitred_control::FromFront;
    use maitred_os::channel::MAX_MESSAGE_BYTES;

    use super::*;

    #[test]
    fn whatever_a_front_says_is_bounded() {
        let mut all = CookieNames::new();
        assert_eq!(add(&mut all, "a", Some(&["login".to_owned()])).names.len(), 1);
        let new = add(&mut all, "a", Some(&["login".to_owned(), "lang".to_owned()]));
        assert_eq!((all["a"].names.len(), new.names), (2, BTreeSet::from(["lang".to_owned()])));
        let many: Vec<String> = (0..=MAX_NAMES).map(|number| number.to_string()).collect();
        let new = add(&mut all, "a", Some(&many));
        assert!(new.are_too_many && new.names.len() == MAX_NAMES - 2);
        assert!(all["a"].are_too_many && all["a"].names.len() == MAX_NAMES);
        add(&mut all, "b", Some(&["é".repeat(MAX_NAME_BYTES)]));
        assert!(all["b"].names.iter().all(|name| name.len() <= MAX_NAME_BYTES));
        assert!(add(&mut all, "b", None).are_too_many && all["b"].are_too_many);
        assert_eq!(add(&mut all, "b", None), SiteCookies::default(), "it is known");
    }

    /// A report that is as long as one may be, by one name or by many.
    fn longest_report(mut names: Vec<String>) -> (String, Vec<String>) {
        let site_key = format!("{} {:016x}", "a".repeat(253), 1);
        let report = |names: &[String]| {
            let (site_key, names) = (site_key.clone(), Some(names.to_vec()));
            serde_json::to_vec(&FromFront::CookiesSeen { site_key, names }).unwrap().len()
        };
        let left = MAX_MESSAGE_BYTES - report(&names);
        if let Some(last) = names.last_mut() {
            last.push_str(&"x".repeat(left));
        }
        assert_eq!(report(&names), MAX_MESSAGE_BYTES);
        (site_key, names)
    }

    #[test]
    fn the_longest_report_of_a_front_leads_to_orders_that_fit_into_messages() {
        // JSON has six bytes for each of these.
        let control = |number: usize| format!("{number:03}{}", "\u{1}".repeat(MAX_NAME_BYTES - 3));
        let escaped: Vec<String> = (0..80).map(control).chain(["last".to_owned()]).collect();
        let many: Vec<String> = (0..9_000).map(|number| number.to_string()).collect();
        for names in [vec!["x".to_owned()], escaped, many] {
            let (site_key, names) = longest_report(names);
            let mut all = CookieNames::new();
            let new = add(&mut all, &site_key, Some(&names));
            let ordered = orders_of(&site_key, &new);
            assert!((1..=MAX_NAMES / COOKIES_PER_MESSAGE + 1).contains(&ordered.len()));
            for order in ordered.iter().chain(&orders(&all)) {
                let bytes = serde_json::to_vec(order).unwrap().len();
                assert!(bytes <= MAX_MESSAGE_BYTES, "{bytes}");
            }
        }
    }
}
