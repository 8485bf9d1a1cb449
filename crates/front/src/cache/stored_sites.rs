//! Which pages in memory and in `cache_dir` are still their site's, after a reload and after a
//! restart: those of a site that had no cache meanwhile, is another tenant's or stores by other
//! rules are dropped.

use std::collections::BTreeSet;
use std::sync::Arc;

use maitred_config::Config;
use maitred_pagecache::purge::{Purge, PurgeMode};
use maitred_pagestore::journal::JournalState;

use crate::cache::fill_memory::beside_tier;
use crate::cache::purge::PurgeableSites;
use crate::cache::purge_journal::PATIENCE;
use crate::cache::{Cache, SiteCache};

impl Cache {
    /// Drops the pages in the folder whose site its last owner did not have, or had with other
    /// rules. Blocks.
    pub(super) fn settle_folder(&self, opened: JournalState) {
        if !self.store.has_disk() {
            return;
        }
        // Otherwise no file in it is used.
        if opened == JournalState::Continued {
            let before = self.store.noted_sites();
            for site in self.known.load().not_in(&before) {
                self.store.purge(site, &Purge::All, PurgeMode::Hard);
            }
            if let Err(error) = self.store.write_purges() {
                tracing::warn!("cache_dir cannot be written: {error}");
            }
        }
        self.note_sites();
    }

    /// Notes the sites in the folder: after their purges are recorded there.
    fn note_sites(&self) {
        if let Err(error) = self.store.note_sites(self.known.load().marks()) {
            tracing::warn!(
                "the names of sites cannot be written to cache_dir: {error}; its pages are \
                 dropped at the next start"
            );
        }
    }

    /// Applies the sites of a new configuration, which the threads use next. Returns those whose
    /// pages are to be dropped then, by [`Cache::drop_sites`].
    pub fn use_sites(&self, config: &Config) -> BTreeSet<String> {
        self.cookies.follow(config);
        self.fill_memory.follow(config);
        self.store.limit_detached(beside_tier(config));
        let before = self.known.swap(Arc::new(PurgeableSites::of(config)));
        let now = self.known.load();
        // While a site has no cache, or is another tenant's, changes of its pages go unnoticed.
        let changed = before.not_in(now.marks()).chain(now.not_in(before.marks()));
        changed.map(str::to_owned).collect()
    }

    /// Whether the configuration in use has a site with a cache at this one's first host, of the
    /// same tenant: its root may be another one.
    pub(crate) fn knows(&self, of: &SiteCache) -> bool {
        let known = self.known.load();
        match of.users.is_empty() {
            // An upstream server, which has no user.
            true => known.marks().contains_key(&of.key),
            false => known.is_of(&of.site, &of.users),
        }
    }

    /// Whether the configuration in use stores pages of this site, by the same rules. Where it does
    /// not, a request that began with the former configuration stores none: [`Cache::drop_sites`]
    /// would not drop that.
    pub(crate) fn stores_for(&self, of: &SiteCache) -> bool {
        self.known.load().has(&of.key, of.mark)
    }

    /// Drops all pages of sites, once no request begins with a former configuration. Waits until
    /// that is recorded, but not for long.
    pub async fn drop_sites(self: &Arc<Cache>, sites: &BTreeSet<String>) {
        if sites.is_empty() {
            return;
        }
        let purge = |site: &String| self.store.purge(site, &Purge::All, PurgeMode::Hard);
        if let Some(number) = sites.iter().filter_map(purge).max() {
            self.purge_journal.record(number).written(PATIENCE).await;
        }
        // The disk may not respond.
        let cache = self.clone();
        tokio::task::spawn_blocking(move || cache.note_sites());
    }
}
