//! The purge table.
//!
//! Purges are numbered. A page contains the number of the last purge when its request was sent (its
//! stamp), and is invalid if a later one concerns it. So a purge only records one number, however
//! many pages it concerns and in whichever tier, and is complete when that is recorded; a page that
//! is being generated at that time is rejected when it is stored. Each page is checked against the
//! table once after each purge ([`Object::known`]), so a hit usually costs one load of an atomic
//! word.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use maitred_pagecache::purge::{Purge, Thoroughness};

use crate::object::Object;

/// Most purges of one site that are recorded individually. Beyond it, the whole site is purged.
pub const MAX_PURGES: usize = 128 * 1024;
/// Most bytes of the names in them (hosts, URLs, tags), which clients with POST can influence.
/// Beyond it, the same.
pub const MAX_PURGED_BYTES: usize = 64 << 20;

/// The effect of the purges on a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// None.
    Alive,
    /// It is stale.
    Stale,
    /// It is removed.
    Gone,
}

/// The numbers of the last purges with one name; 0: none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Last {
    hard: u64,
    soft: u64,
}

impl Last {
    fn note(&mut self, how: Thoroughness, number: u64) {
        let last = match how {
            Thoroughness::Hard => &mut self.hard,
            Thoroughness::Soft => &mut self.soft,
        };
        *last = number.max(*last);
    }

    fn with(self, other: Option<&Last>) -> Last {
        let other = other.copied().unwrap_or_default();
        Last {
            hard: self.hard.max(other.hard),
            soft: self.soft.max(other.soft),
        }
    }
}

#[derive(Debug, Default)]
struct OfSite {
    all: Last,
    hosts: HashMap<String, Last>,
    /// By host and target.
    urls: HashMap<String, HashMap<String, Last>>,
    /// By host (`None`: all hosts), and by prefix of the target.
    prefixes: HashMap<Option<String>, Prefixes>,
    tags: HashMap<String, Last>,
    count: usize,
    /// Bytes of all names; a host counts with each of its URLs.
    bytes: usize,
}

#[derive(Debug, Default)]
struct Prefixes {
    by_text: HashMap<String, Last>,
    /// Number of prefixes by length: only these lengths are looked up.
    lengths: BTreeMap<usize, usize>,
}

/// The purge table of all sites.
#[derive(Debug, Default)]
pub struct Purges {
    /// The number of the last purge.
    last: AtomicU64,
    /// Purges up to this number are forgotten: no stored page needs them.
    forgotten: AtomicU64,
    table: RwLock<Table>,
}

#[derive(Debug, Default)]
struct Table {
    sites: HashMap<String, OfSite>,
}

impl Purges {
    /// The number of the last purge: the stamp for a request that is sent now.
    pub fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// Adds a purge of a site's pages and returns its number.
    pub fn add(&self, site: &str, purge: &Purge, how: Thoroughness) -> u64 {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let number = self.last.load(Ordering::Relaxed).saturating_add(1);
        table.note(site, purge, how, number);
        self.last.store(number, Ordering::Release);
        number
    }

    /// Adds a purge from the journal, with its number.
    pub fn restore(&self, site: &str, purge: &Purge, how: Thoroughness, number: u64) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.note(site, purge, how, number);
        self.last.fetch_max(number, Ordering::AcqRel);
    }

    /// Restores the number of the last purge.
    pub fn restore_last(&self, number: u64) {
        self.last.fetch_max(number, Ordering::AcqRel);
    }

    /// The effect of the purges on a page.
    pub fn fate(&self, object: &Object) -> Fate {
        let last = self.last();
        match object.known(last) {
            Some(false) => return Fate::Alive,
            Some(true) => return Fate::Stale,
            None => {}
        }
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let stamp = object.stored.stamp;
        let found = table.last_about(object);
        if stamp < found.hard {
            return Fate::Gone;
        }
        let is_stale = stamp < found.soft;
        object.learn(last, is_stale);
        if is_stale { Fate::Stale } else { Fate::Alive }
    }

    /// Number of purges in the table.
    pub fn len(&self) -> usize {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.sites.values().map(|site| site.count).sum()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `each` for every purge in the table, with its number.
    pub fn each(&self, mut each: impl FnMut(&str, &Purge, Thoroughness, u64)) {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        for (name, site) in &table.sites {
            site.each(&mut |purge, last: &Last| {
                for (how, number) in [
                    (Thoroughness::Hard, last.hard),
                    (Thoroughness::Soft, last.soft),
                ] {
                    if number > 0 {
                        each(name, &purge, how, number);
                    }
                }
            });
        }
    }

    /// The number up to which purges are forgotten. If it changes during a lookup, the outcome of
    /// that lookup is not reliable.
    pub fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Acquire)
    }

    /// Whether a page must not be stored because a purge concerns it, or because it is so late that
    /// the purge may be forgotten.
    pub fn refuses(&self, object: &Object) -> bool {
        object.stored.stamp < self.forgotten() || self.fate(object) == Fate::Gone
    }

    /// Whether one of the purges up to this number concerns a page.
    pub fn concerned(&self, object: &Object, until: u64) -> bool {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let found = table.last_about(object);
        let stamp = object.stored.stamp;
        // The last purge may have a higher number; there may have been an earlier one, too.
        stamp < until && stamp < found.hard.max(found.soft)
    }

    /// Forgets the purges up to this number. The caller has removed all stored pages that they
    /// concern.
    pub fn forget_until(&self, number: u64) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        self.forgotten.fetch_max(number, Ordering::AcqRel);
        for site in table.sites.values_mut() {
            site.forget_until(number);
        }
        table.sites.retain(|_, site| site.count > 0);
    }

    /// As [`Purges::forget_until`], for the journal.
    pub fn restore_forgotten(&self, number: u64) {
        self.forgotten.fetch_max(number, Ordering::AcqRel);
        self.last.fetch_max(number, Ordering::AcqRel);
    }
}

impl Table {
    fn note(&mut self, site: &str, purge: &Purge, how: Thoroughness, number: u64) {
        let of_site = self.sites.entry(site.to_owned()).or_default();
        if of_site.count >= MAX_PURGES || of_site.bytes >= MAX_PURGED_BYTES {
            *of_site = OfSite::default();
            of_site.place(&Purge::All).note(Thoroughness::Hard, number);
        }
        of_site.place(purge).note(how, number);
    }

    fn last_about(&self, object: &Object) -> Last {
        let subject = &object.subject;
        let Some(site) = self.sites.get(&*subject.site) else {
            return Last::default();
        };
        let (host, target) = (&*subject.host, &*subject.target);
        let url = site.urls.get(host).and_then(|urls| urls.get(target));
        let mut last = site.all.with(site.hosts.get(host)).with(url);
        if !site.prefixes.is_empty() {
            for host in [None, Some(host.to_owned())] {
                if let Some(prefixes) = site.prefixes.get(&host) {
                    last = prefixes.about(target, last);
                }
            }
        }
        if !site.tags.is_empty() {
            for tag in &object.stored.tags {
                last = last.with(site.tags.get(tag));
            }
        }
        last
    }
}

/// Bytes of a purge's names.
fn named_bytes(purge: &Purge) -> usize {
    match purge {
        Purge::All => 0,
        Purge::Host(name) | Purge::Tag(name) => name.len(),
        Purge::Url { host, target } => host.len() + target.len(),
        Purge::Prefix { host, path } => host.as_ref().map_or(0, String::len) + path.len(),
    }
}

impl Prefixes {
    fn about(&self, target: &str, mut last: Last) -> Last {
        for length in self.lengths.keys() {
            let Some(start) = target.get(..*length) else {
                // Beyond the end, or inside a character, where no prefix ends.
                continue;
            };
            last = last.with(self.by_text.get(start));
        }
        last
    }
}

impl OfSite {
    /// The numbers of the purges with the same name.
    fn place(&mut self, purge: &Purge) -> &mut Last {
        let is_new = match purge {
            Purge::All => self.all == Last::default(),
            Purge::Host(host) => !self.hosts.contains_key(host),
            Purge::Url { host, target } => !self
                .urls
                .get(host)
                .is_some_and(|urls| urls.contains_key(target)),
            Purge::Prefix { host, path } => {
                let prefixes = self.prefixes.get(host);
                !prefixes.is_some_and(|prefixes| prefixes.by_text.contains_key(path))
            }
            Purge::Tag(tag) => !self.tags.contains_key(tag),
        };
        if is_new {
            self.count += 1;
            self.bytes += named_bytes(purge);
        }
        match purge {
            Purge::All => &mut self.all,
            Purge::Host(host) => self.hosts.entry(host.clone()).or_default(),
            Purge::Url { host, target } => {
                let urls = self.urls.entry(host.clone()).or_default();
                urls.entry(target.clone()).or_default()
            }
            Purge::Prefix { host, path } => {
                let prefixes = self.prefixes.entry(host.clone()).or_default();
                if is_new {
                    *prefixes.lengths.entry(path.len()).or_default() += 1;
                }
                prefixes.by_text.entry(path.clone()).or_default()
            }
            Purge::Tag(tag) => self.tags.entry(tag.clone()).or_default(),
        }
    }

    fn each(&self, each: &mut impl FnMut(Purge, &Last)) {
        if self.all != Last::default() {
            each(Purge::All, &self.all);
        }
        for (host, last) in &self.hosts {
            each(Purge::Host(host.clone()), last);
        }
        for (host, urls) in &self.urls {
            for (target, last) in urls {
                let (host, target) = (host.clone(), target.clone());
                each(Purge::Url { host, target }, last);
            }
        }
        for (host, prefixes) in &self.prefixes {
            for (path, last) in &prefixes.by_text {
                let (host, path) = (host.clone(), path.clone());
                each(Purge::Prefix { host, path }, last);
            }
        }
        for (tag, last) in &self.tags {
            each(Purge::Tag(tag.clone()), last);
        }
    }

    fn forget_until(&mut self, number: u64) {
        let mut kept = Vec::new();
        self.each(&mut |purge, last| {
            let newer = |last: u64| if last > number { last } else { 0 };
            let last = Last {
                hard: newer(last.hard),
                soft: newer(last.soft),
            };
            if last != Last::default() {
                kept.push((purge, last));
            }
        });
        *self = OfSite::default();
        for (purge, last) in kept {
            *self.place(&purge) = last;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::tests::page;

    fn fate(purges: &Purges, target: &str, tags: &[&str], stamp: u64) -> Fate {
        purges.fate(&page(target, tags, stamp, b""))
    }

    fn url(target: &str) -> Purge {
        let host = "a.example".to_owned();
        Purge::Url {
            host,
            target: target.to_owned(),
        }
    }

    #[test]
    fn a_purge_is_about_what_was_asked_for_before_it_and_not_what_is_asked_for_after() {
        let purges = Purges::default();
        let before = purges.last();
        let number = purges.add("site", &url("/a"), Thoroughness::Hard);
        assert_eq!(fate(&purges, "/a", &[], before), Fate::Gone);
        assert_eq!(fate(&purges, "/a", &[], number), Fate::Alive);
        assert_eq!(fate(&purges, "/b", &[], before), Fate::Alive);
    }

    #[test]
    fn a_page_that_was_found_alive_is_looked_at_again_after_the_next_purge() {
        let purges = Purges::default();
        let page = page("/a", &["t"], 0, b"");
        assert_eq!(purges.fate(&page), Fate::Alive);
        purges.add("site", &Purge::Tag("other".to_owned()), Thoroughness::Hard);
        assert_eq!(purges.fate(&page), Fate::Alive);
        purges.add("site", &Purge::Tag("t".to_owned()), Thoroughness::Soft);
        assert_eq!(purges.fate(&page), Fate::Stale);
        assert_eq!(purges.fate(&page), Fate::Stale);
        purges.add("site", &Purge::Tag("t".to_owned()), Thoroughness::Hard);
        assert_eq!(purges.fate(&page), Fate::Gone);
    }

    #[test]
    fn no_site_purges_anothers_pages() {
        let purges = Purges::default();
        for purge in [Purge::All, Purge::Host("a.example".to_owned()), url("/a")] {
            purges.add("other", &purge, Thoroughness::Hard);
        }
        assert_eq!(fate(&purges, "/a", &[], 0), Fate::Alive);
        purges.add("site", &Purge::All, Thoroughness::Hard);
        assert_eq!(fate(&purges, "/a", &[], 0), Fate::Gone);
    }

    #[test]
    fn a_prefix_is_of_one_host_or_of_all() {
        let prefix = |host: Option<&str>, path: &str| Purge::Prefix {
            host: host.map(str::to_owned),
            path: path.to_owned(),
        };
        for (purge, is_gone) in [
            (prefix(None, "/news/"), true),
            (prefix(Some("a.example"), "/news/ä"), true),
            (prefix(Some("b.example"), "/news/"), false),
            (prefix(None, "/news/äx"), false),
            (prefix(None, "/news/\u{e4}?page=10"), false),
            (prefix(None, ""), true),
        ] {
            let purges = Purges::default();
            purges.add("site", &purge, Thoroughness::Hard);
            let expected = if is_gone { Fate::Gone } else { Fate::Alive };
            assert_eq!(fate(&purges, "/news/ä?page=1", &[], 0), expected, "{purge}");
        }
    }

    #[test]
    fn with_more_purges_than_are_remembered_all_of_the_site_is_gone() {
        let purges = Purges::default();
        for number in 0..=MAX_PURGES {
            purges.add("site", &url(&format!("/{number}")), Thoroughness::Soft);
        }
        assert!(purges.len() < 10);
        assert_eq!(fate(&purges, "/never-purged", &[], 0), Fate::Gone);
        assert_eq!(
            fate(&purges, "/never-purged", &[], purges.last()),
            Fate::Alive
        );
    }

    #[test]
    fn with_longer_names_than_are_remembered_all_of_the_site_is_gone() {
        let long = "x".repeat(MAX_PURGED_BYTES / 1024);
        let name = |number: u64| format!("{number}{long}");
        let target = || "/".to_owned();
        let long_ones: [&dyn Fn(u64) -> Purge; 5] = [
            &|number| url(&format!("/{number}{long}")),
            &|number| Purge::Tag(name(number)),
            &|number| Purge::Host(name(number)),
            &|number| Purge::Url {
                host: name(number),
                target: target(),
            },
            &|number| Purge::Prefix {
                host: Some(name(number)),
                path: target(),
            },
        ];
        for long_one in long_ones {
            let purges = Purges::default();
            for number in 0..1024 {
                purges.add("site", &long_one(number), Thoroughness::Hard);
            }
            assert_eq!(fate(&purges, "/never-purged", &[], 0), Fate::Alive);
            purges.add("site", &url("/one-more"), Thoroughness::Hard);
            assert_eq!(purges.len(), 2);
            assert_eq!(fate(&purges, "/never-purged", &[], 0), Fate::Gone);
        }
    }

    #[test]
    fn what_comes_late_is_refused_when_it_cannot_be_told_whether_it_was_purged() {
        let purges = Purges::default();
        let first = purges.add("site", &url("/a"), Thoroughness::Hard);
        let second = purges.add("site", &url("/b"), Thoroughness::Hard);
        let at = |target: &str, stamp| page(target, &[], stamp, b"");
        assert!(purges.concerned(&at("/a", 0), first));
        assert!(!purges.concerned(&at("/a", first), second));
        assert!(!purges.concerned(&at("/c", 0), second));
        purges.forget_until(first);
        assert_eq!(purges.len(), 1);
        // One that was kept before, and was looked at, lives on.
        assert_eq!(fate(&purges, "/c", &[], 0), Fate::Alive);
        assert!(purges.refuses(&at("/c", 0)));
        assert!(!purges.refuses(&at("/c", first)));
        assert!(purges.refuses(&at("/b", first)));
        assert!(!purges.refuses(&at("/b", second)));
    }
}
