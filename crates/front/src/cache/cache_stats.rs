//! Statistics of the page cache, for each site and each thread of the front: a hit takes no lock
//! and writes no cache line that another thread writes.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use maitred_control::admin::{CachedSite, PageCache, PageTier};
use maitred_pagecache::admit::NotStored;
use maitred_pagecache::cache_status::{Forward, ON_ERROR, REVALIDATED, UPDATING};
use maitred_pagecache::eligibility::Bypass;

use crate::cache::Cache;

/// The results of the cache for a request, as label values.
pub const RESULTS: [&str; 8] =
    ["hit", "updating", "stale", "revalidated", "miss", "vary_miss", "expired", "bypass"];

/// The statistics of all sites, by site.
#[derive(Debug, Default)]
pub struct AllCacheStats {
    sites: Mutex<HashMap<String, Arc<SiteCacheStats>>>,
}

/// The statistics of a site.
#[derive(Debug)]
pub struct SiteCacheStats {
    boards: Box<[ThreadCacheStats]>,
}

/// The statistics of a site in one thread.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct ThreadCacheStats {
    saved_bytes: AtomicU64,
    saved_micros: AtomicU64,
    results: [AtomicU64; RESULTS.len()],
    bypasses: [AtomicU64; Bypass::ALL.len()],
    stored: AtomicU64,
    not_stored: [AtomicU64; NotStored::ALL.len()],
    purges: AtomicU64,
}

impl ThreadCacheStats {
    /// Counts a request that got a cached page; `detail` is the reason why a stale one was used.
    pub fn answered(&self, detail: Option<&'static str>, bytes: u64, saved: Duration) {
        let result = match detail {
            None => 0,
            Some(UPDATING) => 1,
            Some(REVALIDATED) => 3,
            Some(ON_ERROR | _) => 2,
        };
        add(&self.results[result], 1);
        add(&self.saved_bytes, bytes);
        let micros = u64::try_from(saved.as_micros()).unwrap_or(u64::MAX);
        add(&self.saved_micros, micros);
    }

    /// Counts a request that was forwarded to a script: the reason, unless its client had got a
    /// cached page, and whether the response was stored, if there was one.
    pub fn forwarded(&self, why: Option<Forward>, kept: Option<Result<(), NotStored>>) {
        if let Some(why) = why {
            let result = match why {
                Forward::UriMiss => 4,
                Forward::VaryMiss => 5,
                Forward::Stale => 6,
                Forward::Bypass(_) => 7,
            };
            add(&self.results[result], 1);
        }
        if let Some(Forward::Bypass(why)) = why {
            let at = Bypass::ALL.iter().position(|one| *one == why);
            add_at(&self.bypasses, at);
        }
        match kept {
            Some(Ok(())) => add(&self.stored, 1),
            Some(Err(why)) => {
                let at = NotStored::ALL.iter().position(|one| *one == why);
                add_at(&self.not_stored, at);
            }
            None => {}
        }
    }
}

fn add(word: &AtomicU64, more: u64) {
    word.fetch_add(more, Ordering::Relaxed);
}

fn add_at(words: &[AtomicU64], at: Option<usize>) {
    if let Some(word) = at.and_then(|at| words.get(at)) {
        add(word, 1);
    }
}

impl SiteCacheStats {
    /// The counters of one thread.
    pub fn board(&self, thread: u32) -> &ThreadCacheStats {
        let threads = self.boards.len();
        &self.boards[usize::try_from(thread).unwrap_or(0) % threads]
    }

    fn sum(&self, word: impl Fn(&ThreadCacheStats) -> &AtomicU64) -> u64 {
        let words = self.boards.iter().map(word);
        words.map(|word| word.load(Ordering::Relaxed)).sum()
    }

    fn named<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
        of: impl Fn(&ThreadCacheStats) -> &[AtomicU64],
    ) -> BTreeMap<String, u64> {
        let count = |at: usize| self.sum(|board| &of(board)[at]);
        let named = names.enumerate();
        named.map(|(at, name)| (name.to_owned(), count(at))).collect()
    }

    fn read(&self, site: &str) -> CachedSite {
        let micros = self.sum(|board| &board.saved_micros);
        CachedSite {
            site: site.to_owned(),
            requests: self.named(RESULTS.into_iter(), |board| &board.results),
            bypasses: self
                .named(Bypass::ALL.iter().map(|why| why.as_str()), |board| &board.bypasses),
            stored: self.sum(|board| &board.stored),
            not_stored: self
                .named(NotStored::ALL.iter().map(|why| why.as_str()), |board| &board.not_stored),
            purges: self.sum(|board| &board.purges),
            saved_bytes: self.sum(|board| &board.saved_bytes),
            saved_script_seconds: Duration::from_micros(micros).as_secs_f64(),
        }
    }
}

impl AllCacheStats {
    /// The statistics of a site. They survive a change of its settings; those of removed sites are
    /// dropped.
    pub fn of(&self, site: &str, threads: u32) -> Arc<SiteCacheStats> {
        let mut sites = self.lock();
        sites.retain(|name, figures| name == site || Arc::strong_count(figures) > 1);
        let figures = sites.entry(site.to_owned()).or_insert_with(|| {
            let boards = (0..threads.max(1)).map(|_| ThreadCacheStats::default());
            Arc::new(SiteCacheStats { boards: boards.collect() })
        });
        figures.clone()
    }

    /// Counts a purge of a site's pages.
    pub fn purged(&self, site: &str) {
        if let Some(figures) = self.lock().get(site) {
            add(&figures.board(0).purges, 1);
        }
    }

    fn read(&self) -> Vec<CachedSite> {
        let sites = self.lock();
        let used = sites.iter().filter(|(_, figures)| Arc::strong_count(figures) > 1);
        let mut read: Vec<CachedSite> = used.map(|(site, figures)| figures.read(site)).collect();
        read.sort_by(|one, other| one.site.cmp(&other.site));
        read
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<SiteCacheStats>>> {
        self.sites.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cache {
    /// The statistics of the cache; none if no site has one.
    pub fn figures(&self) -> Option<PageCache> {
        let sites = self.figures.read();
        if sites.is_empty() {
            return None;
        }
        let of_store = self.store.stats();
        let tier = |(pages, bytes): (usize, u64), limit_bytes, evicted| PageTier {
            pages: pages as u64,
            bytes,
            limit_bytes,
            evicted,
        };
        let disk = self.disk_limit;
        Some(PageCache {
            memory: tier(of_store.memory, self.memory_limit, of_store.evicted.0),
            disk: disk.map(|limit| tier(of_store.disk, limit, of_store.evicted.1)),
            corrupt_files: of_store.damaged,
            write_errors: of_store.failed,
            active_purges: of_store.purges as u64,
            filling: self.fills.len() as u64,
            waiting: self.fills.waiting(|waiter| !waiter.is_closed()) as u64,
            sites,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_counted_once_and_all_threads_together() {
        let all = AllCacheStats::default();
        let site = all.of("a.example", 2);
        let second = Duration::from_millis(1500);
        site.board(0).answered(None, 10, second);
        site.board(1).answered(None, 5, second);
        site.board(1).answered(Some(UPDATING), 1, Duration::ZERO);
        site.board(1).answered(Some(ON_ERROR), 1, Duration::ZERO);
        site.board(5).answered(Some(REVALIDATED), 1, Duration::ZERO);
        site.board(0).forwarded(Some(Forward::UriMiss), Some(Ok(())));
        site.board(0).forwarded(Some(Forward::VaryMiss), Some(Err(NotStored::SetCookie)));
        site.board(0).forwarded(Some(Forward::Stale), None);
        let why = Bypass::PrivateCookie;
        let kept = Some(Err(NotStored::Bypassed(why)));
        site.board(0).forwarded(Some(Forward::Bypass(why)), kept);
        all.purged("a.example");
        all.purged("b.example");
        let read = all.read().remove(0);
        assert_eq!(read.requests["hit"], 2);
        assert_eq!(read.requests.values().sum::<u64>(), 9);
        let counted = |of: &BTreeMap<String, u64>| -> Vec<String> {
            let counted = of.iter().filter(|(_, count)| **count == 1);
            counted.map(|(name, _)| name.clone()).collect()
        };
        assert_eq!(counted(&read.bypasses), ["private-cookie"]);
        assert_eq!(counted(&read.not_stored), ["set-cookie"]);
        assert_eq!((read.stored, read.purges, read.saved_bytes), (1, 1, 18));
        assert!((read.saved_script_seconds - 3.0).abs() < 1e-9);
    }

    #[test]
    fn figures_go_on_as_long_as_the_site_is_there() {
        let all = AllCacheStats::default();
        let before = all.of("a.example", 1);
        before.board(0).forwarded(Some(Forward::UriMiss), None);
        let after = all.of("a.example", 1);
        drop(before);
        assert_eq!(all.read()[0].requests["miss"], 1);
        drop(after);
        assert!(all.read().is_empty(), "the site is no more");
        let other = all.of("b.example", 1);
        assert_eq!(all.read()[0].site, "b.example");
        drop(other);
    }
}
