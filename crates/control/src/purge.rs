//! Purges of the page cache, on their way between processes.

use std::collections::BTreeSet;

pub use maitred_pagecache::purge::{Purge, PurgeMode};
use serde::{Deserialize, Serialize};

/// A purge order for a front.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PurgeOrder {
    /// Drop pages by address or tag, as a client names them, not by the cache's own keys.
    Asked(PurgeRequest),
    /// The same from another node, which may have sites that this one lacks: what is not known here
    /// is left out.
    OfNode(PurgeRequest),
    /// Drop pages that another front has dropped, by the cache's keys.
    Dropped(Vec<DroppedPages>),
    /// Report every purge from now on, because other fronts with caches run; or stop that.
    Company(bool),
}

impl PurgeOrder {
    /// Drop all pages.
    pub fn everything() -> PurgeOrder {
        let targets = vec![Target::Everything];
        PurgeOrder::Asked(PurgeRequest { targets, how: PurgeMode::Hard, site: None })
    }

    /// One purge in place of several: all pages of the sites that they name, or everything if one
    /// of them names no site.
    pub fn merged<'a>(orders: impl IntoIterator<Item = &'a PurgeOrder>) -> PurgeOrder {
        let mut sites = BTreeSet::new();
        for order in orders {
            match order {
                PurgeOrder::Dropped(dropped) => sites.extend(dropped.iter().map(|one| &one.site)),
                PurgeOrder::Asked(_) | PurgeOrder::OfNode(_) => return PurgeOrder::everything(),
                PurgeOrder::Company(_) => {}
            }
        }
        let all_of = |site: &String| DroppedPages {
            site: site.clone(),
            purge: Purge::All,
            how: PurgeMode::Hard,
        };
        PurgeOrder::Dropped(sites.into_iter().map(all_of).collect())
    }
}

/// A purge request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PurgeRequest {
    /// The pages to drop.
    pub targets: Vec<Target>,
    /// The mode.
    pub how: PurgeMode,
    /// The site to purge, by one of its configured hosts; none: all sites.
    #[serde(default)]
    pub site: Option<String>,
}

impl PurgeRequest {
    /// Splits the request into requests of at most `bytes` bytes as JSON.
    ///
    /// # Errors
    /// When a target alone is longer.
    pub fn split(self, bytes: usize) -> Result<Vec<PurgeRequest>, TooLong> {
        let PurgeRequest { targets, how, site } = self;
        let empty = || PurgeRequest { targets: Vec::new(), how, site: site.clone() };
        let length = |value: Option<usize>| value.unwrap_or(usize::MAX);
        let bare = length(serde_json::to_vec(&empty()).ok().map(|json| json.len()));
        let (mut parts, mut open, mut used) = (Vec::new(), empty(), bare);
        for target in targets {
            // With the comma.
            let more = length(serde_json::to_vec(&target).ok().map(|json| json.len() + 1));
            if bare.saturating_add(more) > bytes {
                return Err(TooLong);
            }
            if used.saturating_add(more) > bytes {
                parts.push(std::mem::replace(&mut open, empty()));
                used = bare;
            }
            used += more;
            open.targets.push(target);
        }
        parts.push(open);
        Ok(parts)
    }
}

/// The result of a script's purge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Fate {
    /// The front has not received it.
    Unheard = 0,
    /// The pages are dropped.
    Dropped = 1,
    /// No site of the script's pool has a cache.
    NoCache = 2,
    /// An address belongs to no cached site of the script's pool.
    NotIts = 3,
    /// The pages are dropped, but another node may still serve them.
    Unconfirmed = 4,
}

impl Fate {
    /// The result with this number.
    pub fn of(number: u32) -> Fate {
        match number {
            1 => Fate::Dropped,
            2 => Fate::NoCache,
            3 => Fate::NotIts,
            4 => Fate::Unconfirmed,
            _ => Fate::Unheard,
        }
    }
}

/// A target is longer than the space for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

/// Pages as a user names them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// A URL; with a `*` at its end, all URLs with this prefix.
    Url(String),
    /// All addresses with this prefix: of one host, or of all hosts if it starts with `/`.
    Prefix(String),
    /// All pages of a host.
    Host(String),
    /// All pages with a tag.
    Tag(String),
    /// All pages.
    Everything,
}

/// Dropped pages of one site, by the cache's keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedPages {
    /// The site.
    pub site: String,
    /// The dropped pages.
    pub purge: Purge,
    /// The mode.
    pub how: PurgeMode,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_purges_become_one_of_their_sites_or_of_everything() {
        let dropped = |site: &str, purge| {
            let (site, how) = (site.to_owned(), PurgeMode::Soft);
            PurgeOrder::Dropped(vec![DroppedPages { site, purge, how }])
        };
        let tag = |site: &str| dropped(site, Purge::Tag("t".to_owned()));
        let sites = |orders: &[PurgeOrder]| match PurgeOrder::merged(orders) {
            PurgeOrder::Dropped(all) => {
                let is_all = |one: &DroppedPages| one.purge == Purge::All;
                assert!(all.iter().all(|one| is_all(one) && one.how == PurgeMode::Hard));
                all.iter().map(|one| one.site.clone()).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(sites(&[tag("b"), tag("a"), tag("b"), PurgeOrder::Company(true)]), ["a", "b"]);
        let asked = PurgeOrder::Asked(PurgeRequest {
            targets: vec![Target::Tag("t".to_owned())],
            how: PurgeMode::Soft,
            site: None,
        });
        assert_eq!(PurgeOrder::merged(&[tag("a"), asked]), PurgeOrder::everything());
    }

    #[test]
    fn what_is_asked_for_is_split_into_parts_that_fit() {
        let asked = |targets| PurgeRequest {
            targets,
            how: PurgeMode::Soft,
            site: Some("a.example".to_owned()),
        };
        let tag = |text: &str| Target::Tag(text.repeat(100));
        let parts = asked(vec![tag("t\n"); 100]).split(4096).unwrap();
        let lengths = parts.iter().map(|part| serde_json::to_vec(part).unwrap().len());
        assert!(lengths.max().unwrap() <= 4096);
        assert!(parts.iter().all(|part| part.how == PurgeMode::Soft));
        let count: usize = parts.iter().map(|part| part.targets.len()).sum();
        assert_eq!((count, parts.len()), (100, 8));
        assert_eq!(asked(vec![tag("t")]).split(100), Err(TooLong));
        assert_eq!(asked(Vec::new()).split(100).unwrap().len(), 1);
    }
}
