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

use maitred_pagecache::purge::{Purge, PurgeMode};

use crate::object::Object;

/// Most purges of one site that are recorded individually. Beyond it, the whole site is purged.
pub const MAX_PURGES: usize = 128 * 1024;
/// Most bytes of the names in them (hosts, URLs, tags), which clients with POST can influence.
/// Beyond it, the same.
pub const MAX_PURGED_BYTES: usize = 64 << 20;
/// Most bytes of the purges of all sites, with [`ENTRY_BYTES`] for each. Beyond it, the whole site
/// with the most is purged. So the journal, which has them twice at most, stays readable.
pub const MAX_TABLE_BYTES: usize = 128 << 20;
/// Most lengths of prefixes of one site: each is looked up for each page. Beyond it, the same.
const MAX_PREFIX_LENGTHS: usize = 64;
/// Bytes of a recorded purge without its names, about.
const ENTRY_BYTES: usize = 128;

/// The effect of the purges on a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PurgeState {
    /// None.
    Valid,
    /// It is stale.
    Stale,
    /// It is removed.
    Removed,
}

/// The numbers of the last purges with one name; 0: none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct PurgeNumbers {
    hard: u64,
    soft: u64,
}

impl PurgeNumbers {
    fn note(&mut self, how: PurgeMode, number: u64) {
        let last = match how {
            PurgeMode::Hard => &mut self.hard,
            PurgeMode::Soft => &mut self.soft,
        };
        *last = number.max(*last);
    }

    fn with(self, other: Option<&PurgeNumbers>) -> PurgeNumbers {
        let other = other.copied().unwrap_or_default();
        PurgeNumbers { hard: self.hard.max(other.hard), soft: self.soft.max(other.soft) }
    }
}

/// The purges of one site.
#[derive(Debug, Default)]
struct SitePurges {
    known: HashMap<Purge, PurgeNumbers>,
    /// Number of prefixes by length: only these lengths are looked up.
    prefix_lengths: BTreeMap<usize, usize>,
    /// Bytes of all names; a host counts with each of its URLs.
    bytes: usize,
}

/// The purge table of all sites.
#[derive(Debug, Default)]
pub struct Purges {
    /// The number of the last purge.
    last: AtomicU64,
    /// Purges up to this number are forgotten: no stored page needs them.
    forgotten: AtomicU64,
    /// Purges up to this number are being forgotten: the pages that they concern are being removed.
    sweeping: AtomicU64,
    table: RwLock<Table>,
}

#[derive(Debug, Default)]
struct Table {
    sites: HashMap<String, SitePurges>,
    /// The sizes of all sites together.
    size: usize,
}

impl Purges {
    /// The number of the last purge: the stamp for a request that is sent now.
    pub fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// Adds a purge of a site's pages and returns its number.
    pub fn add(&self, site: &str, purge: &Purge, how: PurgeMode) -> u64 {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let number = self.last.load(Ordering::Relaxed).saturating_add(1);
        table.note(site, purge, how, number);
        self.last.store(number, Ordering::Release);
        number
    }

    /// Adds a purge from the journal, with its number.
    pub fn restore(&self, site: &str, purge: &Purge, how: PurgeMode, number: u64) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.note(site, purge, how, number);
        self.last.fetch_max(number, Ordering::AcqRel);
    }

    /// Restores the number of the last purge.
    pub fn restore_last(&self, number: u64) {
        self.last.fetch_max(number, Ordering::AcqRel);
    }

    /// The effect of the purges on a page.
    pub fn fate(&self, object: &Object) -> PurgeState {
        let last = self.last();
        match object.known(last) {
            Some(false) => return PurgeState::Valid,
            Some(true) => return PurgeState::Stale,
            None => {}
        }
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let stamp = object.stored.stamp;
        let found = table.last_about(object);
        if stamp < found.hard {
            return PurgeState::Removed;
        }
        let is_stale = stamp < found.soft;
        object.learn(last, is_stale);
        if is_stale { PurgeState::Stale } else { PurgeState::Valid }
    }

    /// Number of purges in the table.
    pub fn len(&self) -> usize {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.sites.values().map(|site| site.known.len()).sum()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `each` for every purge in the table, with its number. Those that are added meanwhile
    /// wait for one site at most, and may be left out.
    pub fn each(&self, mut each: impl FnMut(&str, &Purge, PurgeMode, u64)) {
        let read = || self.table.read().unwrap_or_else(PoisonError::into_inner);
        let names: Vec<String> = read().sites.keys().cloned().collect();
        for name in &names {
            let table = read();
            let purges = table.sites.get(name).into_iter().flat_map(|site| &site.known);
            for (purge, last) in purges {
                for (how, number) in [(PurgeMode::Hard, last.hard), (PurgeMode::Soft, last.soft)] {
                    if number > 0 {
                        each(name, purge, how, number);
                    }
                }
            }
        }
    }

    /// The number up to which purges are forgotten. If it changes during a lookup, the outcome of
    /// that lookup is not reliable.
    pub fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Acquire)
    }

    /// Whether a page must not be stored because a purge concerns it, or because it is so late that
    /// the purge may be forgotten, or is being forgotten: after a soft one it would be fresh again.
    pub fn refuses(&self, object: &Object) -> bool {
        object.stored.stamp < self.forgotten()
            || self.concerned(object, self.sweeping.load(Ordering::SeqCst))
            || self.fate(object) == PurgeState::Removed
    }

    /// Begins to forget the purges up to this number: from now on no page that they concern is
    /// stored.
    pub fn begin_to_forget(&self, number: u64) {
        self.sweeping.fetch_max(number, Ordering::SeqCst);
    }

    /// Whether one of the purges up to this number concerns a page.
    pub fn concerned(&self, object: &Object, until: u64) -> bool {
        if object.stored.stamp >= until {
            return false;
        }
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let found = table.last_about(object);
        let stamp = object.stored.stamp;
        // The last purge may have a higher number; there may have been an earlier one, too.
        stamp < found.hard.max(found.soft)
    }

    /// Forgets the purges up to this number. The caller has removed all stored pages that they
    /// concern.
    pub fn forget_until(&self, number: u64) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        self.forgotten.fetch_max(number, Ordering::AcqRel);
        for site in table.sites.values_mut() {
            site.forget_until(number);
        }
        table.sites.retain(|_, site| !site.known.is_empty());
        table.size = table.sites.values().map(SitePurges::size).sum();
    }

    /// As [`Purges::forget_until`], for the journal.
    pub fn restore_forgotten(&self, number: u64) {
        self.forgotten.fetch_max(number, Ordering::AcqRel);
        self.last.fetch_max(number, Ordering::AcqRel);
    }
}

impl Table {
    fn note(&mut self, site: &str, purge: &Purge, how: PurgeMode, number: u64) {
        if self.size >= MAX_TABLE_BYTES
            && let Some(largest) = self.sites.values_mut().max_by_key(|site| site.size())
        {
            self.size -= largest.size();
            largest.become_one();
            self.size += largest.size();
        }
        let of_site = self.sites.entry(site.to_owned()).or_default();
        let before = of_site.size();
        if of_site.known.len() >= MAX_PURGES || of_site.bytes >= MAX_PURGED_BYTES {
            of_site.become_one();
        }
        of_site.numbers(purge).note(how, number);
        if of_site.prefix_lengths.len() > MAX_PREFIX_LENGTHS {
            of_site.become_one();
        }
        self.size = self.size - before + of_site.size();
    }

    fn last_about(&self, object: &Object) -> PurgeNumbers {
        let subject = &object.subject;
        let Some(site) = self.sites.get(&*subject.site) else {
            return PurgeNumbers::default();
        };
        let (host, target) = (subject.host.to_string(), subject.target.to_string());
        let tags = object.stored.tags.iter().cloned().map(Purge::Tag);
        let mut last = site.prefixes_of(&host, &target);
        let url = Purge::Url { host: host.clone(), target };
        for purge in [Purge::All, Purge::Host(host), url].into_iter().chain(tags) {
            last = last.with(site.known.get(&purge));
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

impl SitePurges {
    /// The numbers of the purges with the same name.
    fn numbers(&mut self, purge: &Purge) -> &mut PurgeNumbers {
        self.known.entry(purge.clone()).or_insert_with(|| {
            self.bytes += named_bytes(purge);
            if let Purge::Prefix { path, .. } = purge {
                *self.prefix_lengths.entry(path.len()).or_default() += 1;
            }
            PurgeNumbers::default()
        })
    }

    /// Bytes of all, about.
    fn size(&self) -> usize {
        self.bytes + self.known.len() * ENTRY_BYTES
    }

    /// Replaces all of them by one of the whole site, as new as the last.
    fn become_one(&mut self) {
        let last = self.known.values().map(|last| last.hard.max(last.soft)).max().unwrap_or(0);
        *self = SitePurges::default();
        self.numbers(&Purge::All).note(PurgeMode::Hard, last);
    }

    /// The last purges of a prefix of a host's target.
    fn prefixes_of(&self, host: &str, target: &str) -> PurgeNumbers {
        let mut last = PurgeNumbers::default();
        for length in self.prefix_lengths.keys() {
            let Some(path) = target.get(..*length) else {
                // Beyond the end, or inside a character, where no prefix ends.
                continue;
            };
            for host in [None, Some(host)] {
                let (host, path) = (host.map(str::to_owned), path.to_owned());
                last = last.with(self.known.get(&Purge::Prefix { host, path }));
            }
        }
        last
    }

    fn forget_until(&mut self, number: u64) {
        let newer = |last: u64| if last > number { last } else { 0 };
        for (purge, last) in std::mem::take(self).known {
            let last = PurgeNumbers { hard: newer(last.hard), soft: newer(last.soft) };
            if last != PurgeNumbers::default() {
                *self.numbers(&purge) = last;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::tests::page;

    fn fate(purges: &Purges, target: &str, tags: &[&str], stamp: u64) -> PurgeState {
        purges.fate(&page(target, tags, stamp, b""))
    }

    fn url(target: &str) -> Purge {
        let host = "a.example".to_owned();
        Purge::Url { host, target: target.to_owned() }
    }

    #[test]
    fn a_purge_is_about_what_was_asked_for_before_it_and_not_what_is_asked_for_after() {
        let purges = Purges::default();
        let before = purges.last();
        let number = purges.add("site", &url("/a"), PurgeMode::Hard);
        assert_eq!(fate(&purges, "/a", &[], before), PurgeState::Removed);
        assert_eq!(fate(&purges, "/a", &[], number), PurgeState::Valid);
        assert_eq!(fate(&purges, "/b", &[], before), PurgeState::Valid);
    }

    #[test]
    fn a_page_that_was_found_alive_is_looked_at_again_after_the_next_purge() {
        let purges = Purges::default();
        let page = page("/a", &["t"], 0, b"");
        assert_eq!(purges.fate(&page), PurgeState::Valid);
        purges.add("site", &Purge::Tag("other".to_owned()), PurgeMode::Hard);
        assert_eq!(purges.fate(&page), PurgeState::Valid);
        purges.add("site", &Purge::Tag("t".to_owned()), PurgeMode::Soft);
        assert_eq!(purges.fate(&page), PurgeState::Stale);
        assert_eq!(purges.fate(&page), PurgeState::Stale);
        purges.add("site", &Purge::Tag("t".to_owned()), PurgeMode::Hard);
        assert_eq!(purges.fate(&page), PurgeState::Removed);
    }

    #[test]
    fn no_site_purges_anothers_pages() {
        let purges = Purges::default();
        for purge in [Purge::All, Purge::Host("a.example".to_owned()), url("/a")] {
            purges.add("other", &purge, PurgeMode::Hard);
        }
        assert_eq!(fate(&purges, "/a", &[], 0), PurgeState::Valid);
        purges.add("site", &Purge::All, PurgeMode::Hard);
        assert_eq!(fate(&purges, "/a", &[], 0), PurgeState::Removed);
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
            purges.add("site", &purge, PurgeMode::Hard);
            let expected = if is_gone { PurgeState::Removed } else { PurgeState::Valid };
            assert_eq!(fate(&purges, "/news/ä?page=1", &[], 0), expected, "{purge}");
        }
    }

    #[test]
    fn with_prefixes_of_more_lengths_than_are_looked_up_all_of_the_site_is_gone() {
        let purges = Purges::default();
        let prefix = |length: usize| Purge::Prefix { host: None, path: "/x".repeat(length) };
        for length in 1..=MAX_PREFIX_LENGTHS {
            purges.add("site", &prefix(length), PurgeMode::Soft);
            purges.add("site", &prefix(1), PurgeMode::Soft);
        }
        assert_eq!(purges.len(), MAX_PREFIX_LENGTHS);
        assert_eq!(fate(&purges, "/other", &[], 0), PurgeState::Valid);
        purges.add("site", &prefix(MAX_PREFIX_LENGTHS + 1), PurgeMode::Soft);
        assert_eq!(purges.len(), 1);
        assert_eq!(fate(&purges, "/other", &[], 0), PurgeState::Removed);
    }

    #[test]
    fn with_more_purges_than_are_remembered_all_of_the_site_is_gone() {
        let purges = Purges::default();
        for number in 0..=MAX_PURGES {
            purges.add("site", &url(&format!("/{number}")), PurgeMode::Soft);
        }
        assert!(purges.len() < 10);
        assert_eq!(fate(&purges, "/never-purged", &[], 0), PurgeState::Removed);
        assert_eq!(fate(&purges, "/never-purged", &[], purges.last()), PurgeState::Valid);
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
            &|number| Purge::Url { host: name(number), target: target() },
            &|number| Purge::Prefix { host: Some(name(number)), path: target() },
        ];
        for long_one in long_ones {
            let purges = Purges::default();
            for number in 0..1024 {
                purges.add("site", &long_one(number), PurgeMode::Hard);
            }
            assert_eq!(fate(&purges, "/never-purged", &[], 0), PurgeState::Valid);
            purges.add("site", &url("/one-more"), PurgeMode::Hard);
            assert_eq!(purges.len(), 2);
            assert_eq!(fate(&purges, "/never-purged", &[], 0), PurgeState::Removed);
        }
    }

    #[test]
    fn with_more_of_all_sites_than_is_remembered_the_site_with_the_most_is_gone() {
        let long = "x".repeat(1 << 20);
        let purges = Purges::default();
        let add = |site: &str, numbers: std::ops::Range<u32>| {
            for number in numbers {
                let tag = Purge::Tag(format!("{number}{long}"));
                purges.add(site, &tag, PurgeMode::Hard);
            }
        };
        add("site", 0..50);
        let last = purges.last();
        add("other", 0..49);
        add("third", 0..29);
        assert_eq!(fate(&purges, "/never-purged", &[], 0), PurgeState::Valid);
        add("fourth", 0..1);
        assert_eq!(fate(&purges, "/never-purged", &[], last - 1), PurgeState::Removed);
        assert_eq!(fate(&purges, "/never-purged", &[], last), PurgeState::Valid);
        assert_eq!(purges.len(), 1 + 49 + 29 + 1);
        add("fourth", 1..50);
        assert_eq!(purges.len(), 1 + 49 + 29 + 50, "what is forgotten does not count");
    }

    #[test]
    fn a_page_of_before_a_soft_purge_is_refused_while_that_is_forgotten() {
        let purges = Purges::default();
        let soft = purges.add("site", &url("/a"), PurgeMode::Soft);
        let at = |target: &str, stamp| page(target, &[], stamp, b"");
        assert!(!purges.refuses(&at("/a", 0)), "it is stale, and may be served for a while");
        purges.begin_to_forget(soft);
        assert!(purges.refuses(&at("/a", 0)));
        assert!(!purges.refuses(&at("/a", soft)) && !purges.refuses(&at("/b", 0)));
        // A later one is not forgotten yet.
        let later = purges.add("site", &url("/b"), PurgeMode::Soft);
        assert!(!purges.refuses(&at("/b", later - 1)));
    }

    #[test]
    fn what_comes_late_is_refused_when_it_cannot_be_told_whether_it_was_purged() {
        let purges = Purges::default();
        let first = purges.add("site", &url("/a"), PurgeMode::Hard);
        let second = purges.add("site", &url("/b"), PurgeMode::Hard);
        let at = |target: &str, stamp| page(target, &[], stamp, b"");
        assert!(purges.concerned(&at("/a", 0), first));
        assert!(!purges.concerned(&at("/a", first), second));
        assert!(!purges.concerned(&at("/c", 0), second));
        purges.forget_until(first);
        assert_eq!(purges.len(), 1);
        // One that was kept before, and was looked at, lives on.
        assert_eq!(fate(&purges, "/c", &[], 0), PurgeState::Valid);
        assert!(purges.refuses(&at("/c", 0)));
        assert!(!purges.refuses(&at("/c", first)));
        assert!(purges.refuses(&at("/b", first)));
        assert!(!purges.refuses(&at("/b", second)));
    }
}
