//! The addresses of a site that are still to be requested, without those that are like others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use maitred_measure::harmless::may_change;

use crate::probe::AddressSource;

/// Most addresses of one pattern, such as `/goods/#`.
const MAX_OF_PATTERN: usize = 4;

/// Most addresses with one extension in one folder, from links and logs.
const MAX_IN_FOLDER: usize = 25;

/// Most addresses of a source, as a share of all: each leaves room for others.
fn share(source: AddressSource) -> f64 {
    match source {
        AddressSource::Start | AddressSource::Named => 1.0,
        AddressSource::Rule => 0.4,
        AddressSource::BesideRule => 0.2,
        _ => 0.5,
    }
}

/// Most addresses that are listed because they may change something.
const MAX_SKIPPED: usize = 1000;

/// What has become of an offered address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offered {
    /// It will be requested.
    Taken,
    /// It is known already.
    Known,
    /// Others like it are requested.
    Enough,
    /// It may change something, and is not requested.
    MayChange,
}

/// The addresses of a site.
#[derive(Debug)]
pub struct Frontier {
    limit: usize,
    taken: usize,
    waiting: VecDeque<(String, AddressSource)>,
    seen: BTreeSet<String>,
    patterns: BTreeMap<String, usize>,
    folders: BTreeMap<String, usize>,
    sources: BTreeMap<AddressSource, usize>,
    skipped: BTreeSet<String>,
    left_out: usize,
}

impl Frontier {
    /// No address yet, and at most `limit`.
    pub fn new(limit: usize) -> Frontier {
        Frontier {
            limit,
            taken: 0,
            waiting: VecDeque::new(),
            seen: BTreeSet::new(),
            patterns: BTreeMap::new(),
            folders: BTreeMap::new(),
            sources: BTreeMap::new(),
            skipped: BTreeSet::new(),
            left_out: 0,
        }
    }

    /// Offers a request target.
    pub fn offer(&mut self, target: &str, source: AddressSource) -> Offered {
        if self.seen.contains(target) || self.skipped.contains(target) {
            return Offered::Known;
        }
        let is_chosen = !matches!(
            source,
            AddressSource::Link | AddressSource::AccessLog | AddressSource::Sitemap
        ) && !target.contains(".php")
            || source == AddressSource::Named;
        if may_change(target) && !is_chosen && may_do(target) {
            if self.skipped.len() < MAX_SKIPPED {
                self.skipped.insert(target.to_owned());
            }
            return Offered::MayChange;
        }
        let is_found = matches!(
            source,
            AddressSource::Link
                | AddressSource::AccessLog
                | AddressSource::Sitemap
                | AddressSource::File
        );
        if is_found && !self.is_new_kind(target) {
            self.left_out += 1;
            return Offered::Enough;
        }
        let of_source = self.sources.entry(source).or_default();
        let is_full = *of_source >= (self.limit as f64 * share(source)).ceil() as usize;
        if is_full || self.taken >= self.limit {
            self.left_out += 1;
            return Offered::Enough;
        }
        *of_source += 1;
        self.taken += 1;
        self.seen.insert(target.to_owned());
        self.waiting.push_back((target.to_owned(), source));
        Offered::Taken
    }

    fn is_new_kind(&mut self, target: &str) -> bool {
        let pattern = self.patterns.entry(pattern(target)).or_default();
        let folder = self.folders.entry(folder(target)).or_default();
        let is_new = *pattern < MAX_OF_PATTERN && *folder < MAX_IN_FOLDER;
        *pattern += 1;
        *folder += 1;
        is_new
    }

    /// The next address, and its source.
    pub fn take(&mut self) -> Option<(String, AddressSource)> {
        self.waiting.pop_front()
    }

    /// Addresses that may change something.
    pub fn skipped(&self) -> impl Iterator<Item = &str> {
        self.skipped.iter().map(String::as_str)
    }

    /// The number of addresses that are left out because others like them are requested, or because
    /// of the limit.
    pub fn left_out(&self) -> usize {
        self.left_out
    }
}

/// Static files do nothing, whatever they are called.
fn may_do(target: &str) -> bool {
    let path = target.split('?').next().unwrap_or_default();
    let ends = [".css", ".js", ".png", ".jpg", ".svg", ".gif", ".webp", ".woff2"];
    !ends.iter().any(|end| path.ends_with(end))
}

/// A target without what distinguishes pages of one kind: numbers, ids, values of the query.
pub fn pattern(target: &str) -> String {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let is_id = |name: &str| {
        name.len() >= 8 && name.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
            || !name.is_empty() && name.chars().all(|c| c.is_ascii_digit())
    };
    let names = path.split('/').map(|name| {
        let mut out = String::new();
        let (stem, end) = name.rsplit_once('.').unwrap_or((name, ""));
        if is_id(stem) {
            out.push('#');
        } else {
            let mut was_digit = false;
            for letter in stem.chars() {
                match letter.is_ascii_digit() {
                    true if was_digit => {}
                    true => out.push('#'),
                    false => out.push(letter),
                }
                was_digit = letter.is_ascii_digit();
            }
        }
        if end.is_empty() { out } else { format!("{out}.{end}") }
    });
    let path = names.collect::<Vec<_>>().join("/");
    let mut keys: Vec<&str> = query.split('&').filter_map(|pair| pair.split('=').next()).collect();
    keys.sort_unstable();
    keys.dedup();
    if query.is_empty() { path } else { format!("{path}?{}", keys.join("&")) }
}

/// The folder and the extension of a target.
fn folder(target: &str) -> String {
    let path = target.split('?').next().unwrap_or_default();
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let end = name.rsplit_once('.').map_or("", |(_, end)| end);
    format!("{folder}/*.{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_one_kind_have_one_pattern() {
        assert_eq!(pattern("/goods/17"), pattern("/goods/4711"));
        assert_eq!(pattern("/a?x=1&y=2"), pattern("/a?y=3&x=4"));
        assert_eq!(pattern("/2026/11/post-12.html"), pattern("/2025/1/post-7.html"));
        assert_eq!(pattern("/f/0123456789abcdef.png"), pattern("/f/fedcba9876543210.png"));
        assert_ne!(pattern("/a"), pattern("/b"));
        assert_ne!(pattern("/a.css"), pattern("/a.js"));
    }

    #[test]
    fn an_address_is_taken_once_and_one_that_may_change_something_never() {
        let mut frontier = Frontier::new(100);
        assert_eq!(frontier.offer("/", AddressSource::Start), Offered::Taken);
        assert_eq!(frontier.offer("/", AddressSource::Link), Offered::Known);
        assert_eq!(frontier.offer("/cart/delete/7", AddressSource::Link), Offered::MayChange);
        assert_eq!(frontier.offer("/cart/delete/7", AddressSource::AccessLog), Offered::Known);
        assert_eq!(frontier.offer("/logout.css", AddressSource::Link), Offered::Taken);
        assert_eq!(frontier.skipped().collect::<Vec<_>>(), ["/cart/delete/7"]);
        for number in 0..MAX_OF_PATTERN {
            let target = format!("/goods/{number}");
            assert_eq!(frontier.offer(&target, AddressSource::Link), Offered::Taken);
        }
        assert_eq!(frontier.offer("/goods/99", AddressSource::Link), Offered::Enough);
        assert_eq!(frontier.offer("/goods/99", AddressSource::Rule), Offered::Taken);
        assert_eq!(frontier.take(), Some(("/".to_owned(), AddressSource::Start)));
    }

    #[test]
    fn the_limit_holds_and_links_leave_room_for_others() {
        let mut frontier = Frontier::new(10);
        let names = ["a", "b", "c", "d", "e", "f", "g"].map(|name| format!("/{name}/"));
        let taken =
            names.iter().filter(|name| frontier.offer(name, AddressSource::Link) == Offered::Taken);
        assert_eq!(taken.count(), 5);
        for number in 0..7 {
            frontier.offer(&format!("/rule{number}"), AddressSource::Rule);
        }
        assert_eq!(std::iter::from_fn(|| frontier.take()).count(), 9);
        assert_eq!(frontier.left_out(), 5);
    }
}
