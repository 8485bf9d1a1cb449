//! The page cache: cached responses of scripts. The crate `pagecache` has the rules, `pagestore`
//! the pages.

pub(crate) mod cache_stats;
pub(crate) mod compressing;
pub(crate) mod cookies;
pub(crate) mod disk_pace;
pub(crate) mod fill_memory;
pub(crate) mod invalidation;
pub(crate) mod key_host;
pub(crate) mod lease;
pub(crate) mod pool_budgets;
pub(crate) mod purge;
pub(crate) mod purge_acks;
pub(crate) mod purge_journal;
pub(crate) mod refresh_budget;
pub(crate) mod running_uses;
pub(crate) mod script_purges;
pub(crate) mod slow_disk;
mod stored_sites;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use maitred_config::{Config, PoolUser};
use maitred_control::FromFront;
use maitred_control::front::COOKIES_PER_MESSAGE;
use maitred_os::own_files;
use maitred_pagecache::Millis;
use maitred_pagecache::cookies::{MAX_NAMES, base_name};
use maitred_pagecache::fills::{FillNotice, FillResult, Fills, Ticket};
use maitred_pagecache::key::Key;
use maitred_pagecache::purge::{Purge, PurgeMode};
use maitred_pagecache::settings::Settings;
use maitred_pagestore::disk::DiskLimits;
use maitred_pagestore::journal::{self, JournalState};
use maitred_pagestore::{Limits, Object, Store};
use maitred_rules::networks::Networks;
use tokio::sync::{Notify, oneshot};

use crate::cache::cache_stats::{AllCacheStats, SiteCacheStats, ThreadCacheStats};
use crate::cache::compressing::CompressingKeys;
use crate::cache::cookies::{AllCookies, SiteCookies};
use crate::cache::disk_pace::DiskPace;
use crate::cache::fill_memory::{FillMemory, beside_tier};
use crate::cache::lease::PurgeLease;
use crate::cache::purge::PurgeableSites;
use crate::cache::purge_journal::PurgeJournal;
use crate::cache::refresh_budget::RefreshBudget;
use crate::cache::slow_disk::SlowDisk;
use crate::runtime::clock::since_1970;
use crate::runtime::supervisor_channel::Supervisor;
use crate::runtime::thread;

pub use crate::cache::purge::{OtherFronts, PURGE};

/// The `Cache-Status` header (RFC 9211).
pub const CACHE_STATUS: &[u8] = b"Cache-Status";

/// How often the store is swept for pages to remove.
const SWEEP: Duration = Duration::from_secs(60);

/// Bytes of the largest page that the serving thread reads and writes itself: from a disk that is
/// not slow (see [`DiskPace`]), or in a memfd, that takes less time than another thread would need
/// to take over.
pub(crate) const AT_ONCE_BYTES: u64 = 64 * 1024;

/// The cached pages of all sites, and the pages that are being generated.
#[derive(Debug)]
pub struct Cache {
    pub(crate) store: Store,
    pub(crate) disk_pace: DiskPace,
    pub(crate) slow_disk: SlowDisk,
    purge_journal: PurgeJournal,
    figures: AllCacheStats,
    /// The names of cookies that sites have set, and their file.
    cookies: AllCookies,
    dir: Option<PathBuf>,
    threads: u32,
    /// Largest sizes in memory and on disk, in bytes.
    memory_limit: u64,
    disk_limit: Option<u64>,
    pub(crate) fills: Fills<oneshot::Sender<FillNotice>>,
    fill_memory: Arc<FillMemory>,
    pub(crate) refreshes: RefreshBudget,
    /// Pages that are being compressed.
    pub(crate) compressing: CompressingKeys,
    /// Notified when a page is stored or purged: there may be something to sweep.
    pub(crate) changed: Notify,
    /// The sites with a cache.
    known: ArcSwap<PurgeableSites>,
    /// The other fronts, which also have to drop purged pages.
    pub others: OtherFronts,
    /// How long cached pages may be served.
    pub lease: PurgeLease,
    supervisor: Arc<Supervisor>,
}

/// Now, in milliseconds since 1970.
pub(crate) fn now() -> Millis {
    u64::try_from(since_1970().as_millis()).unwrap_or(u64::MAX)
}

impl Cache {
    /// Whether other threads than the serving ones have to use the disk.
    pub(crate) fn has_slow_disk(&self) -> bool {
        self.disk_pace.is_slow(now()) || self.slow_disk.is_stuck()
    }

    /// Runs a function that reads or writes a page of the site with this key on another thread.
    /// None if that takes too long: then it ends without the caller.
    pub(crate) async fn run_elsewhere<T: Send + 'static>(
        &self,
        site_key: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        match self.has_slow_disk() {
            true => self.slow_disk.run(work).await,
            false => self.slow_disk.run_large(site_key, work).await,
        }
    }

    /// Drops an outdated page, so that no later request gets it.
    pub(crate) fn drop_page(self: &Arc<Cache>, key: &Key, page: &Arc<Object>) {
        if !self.has_slow_disk() {
            return self.disk_pace.measure(|| self.store.drop_page(key, page), now);
        }
        self.store.drop_from_memory(key, page);
        let (cache, key, dropped) = (self.clone(), key.clone(), page.clone());
        if !self.slow_disk.try_start(move || cache.store.drop_page(&key, &dropped)) {
            // Its file stays until the disk responds: a purge keeps it from being served.
            let (host, target) = (page.subject.host.to_string(), page.subject.target.to_string());
            let url = Purge::Url { host, target };
            self.store.purge(&page.subject.site, &url, PurgeMode::Hard);
        }
    }

    /// Opens the cache of a configuration, for a front with this number of threads and of file
    /// descriptors for pages. If its directory cannot be used, the cache is in memory only, which
    /// is logged.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(
        config: &Config,
        threads: u32,
        files: usize,
        supervisor: Arc<Supervisor>,
    ) -> io::Result<Cache> {
        let disk = config.cache_dir.as_ref().map(|dir| DiskLimits {
            dir: dir.clone(),
            max_size: config.cache_max_size,
            inactive: u64::try_from(config.cache_inactive.as_millis()).unwrap_or(u64::MAX),
        });
        let memory = config.cache_memory;
        let disk_limit = disk.as_ref().map(|disk| disk.max_size);
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let limits = |disk| Limits { memory, files, disk };
        let opened = Store::open(limits(disk), boot.trim(), now());
        if let Some(dir) = &config.cache_dir
            && let Err(error) = own_files::check_folder(dir)
        {
            warn_of_folder(dir, &error);
        }
        let (store, opened) = match opened {
            Ok((store, opened)) => {
                log_state(opened);
                (store, opened)
            }
            Err(error) => {
                let me = maitred_os::users::current().name;
                let dir = config.cache_dir.as_deref();
                let outcome = dir.map_or(MEMORY_ONLY, leave_unused);
                let dir = dir.unwrap_or(Path::new("")).display();
                tracing::error!(
                    "cache_dir {dir} cannot be used by {me}, the user of the front: {error}; \
                     {outcome}"
                );
                Store::open(limits(None), "", now())?
            }
        };
        let (fills, fill_memory) = (Fills::default(), Arc::<FillMemory>::default());
        fill_memory.follow(config);
        store.limit_detached(beside_tier(config));
        let changed = Notify::new();
        let cache = Cache {
            disk_limit: disk_limit.filter(|_| store.has_disk()),
            store,
            disk_pace: DiskPace::default(),
            slow_disk: SlowDisk::default(),
            purge_journal: PurgeJournal::default(),
            figures: AllCacheStats::default(),
            cookies: read_cookies(config),
            dir: config.cache_dir.clone(),
            threads,
            memory_limit: memory,
            fills,
            fill_memory,
            refreshes: RefreshBudget::default(),
            compressing: CompressingKeys::default(),
            changed,
            known: ArcSwap::from_pointee(PurgeableSites::of(config)),
            others: OtherFronts::new(supervisor.clone(), config.purge_log.is_some()),
            lease: PurgeLease::new(config.purge_log.is_some()),
            supervisor,
        };
        cache.settle_folder(opened);
        Ok(cache)
    }

    /// Removes expired and purged pages: at the start, then once per [`SWEEP`] while there are
    /// files, or else after a page was stored or purged.
    pub async fn sweep(self: Arc<Cache>) {
        let mut logged = 0;
        loop {
            let cache = self.clone();
            let swept = tokio::task::spawn_blocking(move || cache.store.sweep(now())).await;
            match swept {
                Ok(Ok(_)) => self.purge_journal.note_complete(),
                Ok(Err(error)) => tracing::warn!("a part of cache_dir cannot be swept: {error}"),
                Err(_) => {}
            }
            self.note_recorded();
            let failed = self.store.stats().failed;
            if failed > logged {
                let times = failed - logged;
                tracing::warn!(
                    "writing or evicting a page in cache_dir failed {times} times; is it full or \
                     read-only, or a file in it another user's?"
                );
                logged = failed;
            }
            tokio::time::sleep(SWEEP).await;
            if self.store.stats().disk.0 == 0 {
                self.changed.notified().await;
            }
        }
    }

    /// Waits for the cache directory if another front or another server uses it, and uses it from
    /// then on.
    pub fn await_folder(self: &Arc<Cache>) {
        if !self.store.awaits_folder() {
            return;
        }
        let cache = self.clone();
        let fail = |dir: Option<&Path>, error: io::Error| {
            let outcome = dir.map_or(MEMORY_ONLY, leave_unused);
            tracing::error!("cache_dir cannot be used: {error}; {outcome}");
        };
        // A thread of its own, which ends with the process: the wait has no bound.
        let waits = std::thread::Builder::new().name("cache folder".to_owned());
        let begun = waits.spawn(move || match cache.store.claim_folder(now) {
            Ok(opened) => {
                log_state(opened);
                cache.settle_folder(opened);
                cache.take_over_cookies();
                cache.changed.notify_one();
            }
            Err(error) => fail(cache.dir.as_deref(), error),
        });
        if let Err(error) = begun {
            fail(self.dir.as_deref(), error);
        }
    }

    /// Merges the names that the previous process has learned in the meantime.
    fn take_over_cookies(&self) {
        if let Some(dir) = &self.dir
            && let Err(error) = self.cookies.read(dir)
        {
            log_unread_cookies(&error);
        }
        if self.cookies.want_writer() {
            self.write_cookies();
        }
    }

    /// Writes the names of cookies, until none are new.
    fn write_cookies(&self) {
        while self.cookies.writer_continues() {
            let written = self.dir.as_deref().map_or(Ok(()), |dir| self.cookies.write(dir));
            if let Err(error) = written {
                tracing::warn!("the names of cookies cannot be written to cache_dir: {error}");
            }
        }
    }

    /// Takes the cookies that a response of the site sets. New ones are sent to the other fronts
    /// and written to the folder, if there is one.
    pub(crate) fn learn<'f>(
        self: &Arc<Cache>,
        of: &SiteCache,
        names: impl Iterator<Item = &'f [u8]>,
    ) {
        if !of.settings.guards_cookies {
            return;
        }
        let counts = |name: &&[u8]| of.settings.counts_cookie(name);
        let new = names.filter(counts).filter(|name| of.cookies.learn(name));
        // What is remembered of a name: the name itself may be as long as a response header.
        let text = |name: &[u8]| String::from_utf8_lossy(&base_name(name)).into_owned();
        let new: Vec<String> = new.map(text).collect();
        if new.is_empty() {
            return;
        }
        let report = |names| FromFront::CookiesSeen { site_key: of.key.clone(), names };
        for names in new.chunks(COOKIES_PER_MESSAGE) {
            self.supervisor.report(&report(Some(names.to_vec())));
        }
        if of.cookies.names().are_too_many() {
            tracing::warn!(
                "site {}: it sets cookies of more than {MAX_NAMES} names: every cookie keeps a \
                 request out of the cache now; name the login's cookie in `private_cookies`, or \
                 those that make no difference in `public_cookies`",
                of.site
            );
            self.supervisor.report(&report(None));
        }
        if self.store.has_disk() && self.cookies.want_writer() {
            let cache = self.clone();
            tokio::task::spawn_blocking(move || cache.write_cookies());
        }
    }

    /// Adds cookies that another front has seen; none: more than can be stored.
    pub fn add_cookies(&self, site_key: &str, names: Option<&[String]>) {
        self.cookies.add(site_key, names);
    }

    /// Releases the cache directory to the front that has taken over.
    pub fn leave_folder(self: &Arc<Cache>) {
        let cache = self.clone();
        // The sweep may be running.
        tokio::task::spawn_blocking(move || {
            if let Err(error) = cache.store.leave_folder() {
                tracing::warn!("cache_dir cannot be written: {error}");
            }
            cache.note_recorded();
        });
    }

    /// Closes the cache directory, marked as consistent.
    pub fn close(&self) {
        if let Err(error) = self.store.close() {
            tracing::warn!("cache_dir cannot be written: {error}");
        }
    }

    /// Ends the fetch of a page, and notifies the requests that wait.
    pub(crate) fn finish(&self, key: &Key, ticket: Ticket, how: FillResult) {
        let tell = |waiter: oneshot::Sender<_>, notice| waiter.send(notice).is_ok();
        self.fills.finish(key, ticket, how, now(), tell);
    }
}

/// The names of cookies in the file of the folder.
fn read_cookies(config: &Config) -> AllCookies {
    let cookies = AllCookies::default();
    cookies.follow(config);
    let dir = config.cache_dir.as_deref();
    if let Some(Err(error)) = dir.map(|dir| cookies.read(dir)) {
        log_unread_cookies(&error);
    }
    cookies
}

fn log_unread_cookies(error: &io::Error) {
    tracing::warn!(
        "the names of cookies that sites have set cannot be read in cache_dir: {error}; they are \
         learned again"
    );
}

/// The consequence of a failed `cache_dir`.
const MEMORY_ONLY: &str = "pages are cached in memory only";

/// Has the pages in the folder dropped when it is used again, since purges are not recorded there
/// meanwhile. Returns the outcome, for the log.
fn leave_unused(dir: &Path) -> &'static str {
    match journal::discard(dir) {
        Ok(()) => "pages are cached in memory only; the pages in that folder are discarded",
        Err(_) => {
            "pages are cached in memory only, and purges are not recorded in that folder: empty \
             it before it is used again"
        }
    }
}

/// Another user's files are not read: it could only remove pages, or bring those of before back.
fn warn_of_folder(dir: &Path, error: &io::Error) {
    let me = maitred_os::users::current().name;
    tracing::warn!(
        "cache_dir {}: {error}: pages that were purged could come back; give it to {me}, the user \
         of the front, with mode 0700",
        dir.display()
    );
}

/// Logs an unusual state of the folder.
pub(crate) fn log_state(opened: JournalState) {
    match opened {
        JournalState::Distrusted => tracing::warn!(
            "the machine has stopped without warning, or the file `purges` in cache_dir is \
             damaged or was missing: its pages may be out of date, and are not used"
        ),
        JournalState::InUse => tracing::info!(
            "cache_dir is still in use by another process: until it is free, pages are cached in \
             memory"
        ),
        JournalState::New | JournalState::Continued => {}
    }
}

/// The cache settings of a site.
pub struct SiteCache {
    /// The settings.
    pub settings: Settings,
    /// The site's first host, by which its pages are purged.
    pub site: String,
    /// The name of its pages in keys, and of its cookies ([`maitred_config::Site::key`]).
    pub key: String,
    /// The users of its scripts: its tenant.
    users: BTreeSet<PoolUser>,
    /// A fingerprint of the rules by which its pages are stored.
    mark: u64,
    /// Clients that may send PURGE.
    pub(crate) purge_from: Networks,
    figures: Arc<SiteCacheStats>,
    pub(crate) cookies: Arc<SiteCookies>,
    pub(crate) fill_memory: Arc<FillMemory>,
    /// The thread of this site.
    thread: u32,
}

impl SiteCache {
    /// The cache of a site in this thread, if the site has one.
    pub fn of(
        config: &Config,
        site: &maitred_config::Site,
        all: Option<&Cache>,
    ) -> Option<SiteCache> {
        let (cache, all) = site.cache.as_ref().zip(all)?;
        let key = site.key(config);
        let name = site.hosts.first().map(ToString::to_string);
        let users = users_of(site, config);
        let site = name.unwrap_or_default();
        Some(SiteCache {
            mark: cache.rules.storing_mark(),
            settings: cache.rules.clone(),
            figures: all.figures.of(&site, all.threads),
            cookies: all.cookies.of(&key, &cache.rules),
            fill_memory: all.fill_memory.clone(),
            site,
            key,
            users,
            purge_from: Networks::new(&cache.purge_from),
            thread: thread::number(),
        })
    }

    /// The counters of this thread.
    pub(crate) fn board(&self) -> &ThreadCacheStats {
        self.figures.board(self.thread)
    }
}

/// The users of a site's scripts.
fn users_of(site: &maitred_config::Site, config: &Config) -> BTreeSet<PoolUser> {
    site.pools().filter_map(|name| config.pool(name)).map(|pool| pool.runs_as).collect()
}

pub(crate) fn whole(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use bytes::Bytes;
    use maitred_os::channel::Channel;
    use maitred_pagecache::freshness::Lifetimes;
    use maitred_pagecache::stored::Stored;
    use maitred_pagecache::vary::Vary;
    use maitred_pagestore::{Lookup, Subject};

    use super::*;

    fn opened(dir: Option<&Path>) -> Arc<Cache> {
        let (_end, ours) = Channel::pair().unwrap();
        let cache_dir = dir.map(Path::to_owned);
        let config = Config {
            cache_dir,
            cache_memory: 1 << 20,
            cache_max_size: 1 << 20,
            ..Config::default()
        };
        Arc::new(Cache::open(&config, 1, 0, Arc::new(Supervisor::new(ours))).unwrap())
    }

    /// A use of the disk that does not end before the sender is dropped.
    fn hanging() -> (mpsc::Sender<()>, impl Fn() + Clone + Send + 'static) {
        let (release, stuck) = mpsc::channel::<()>();
        let stuck = Arc::new(Mutex::new(stuck));
        (release, move || _ = stuck.lock().map(|one| one.recv()))
    }

    fn page() -> Object {
        let subject = Subject { site: "site".into(), host: "a.example".into(), target: "/".into() };
        let stored = Stored {
            status: 200,
            lines: Bytes::new(),
            came: 1,
            initial_age: 0,
            lifetimes: Lifetimes { fresh: 60, ..Lifetimes::default() },
            no_cache: false,
            must_revalidate: false,
            for_authorized: false,
            has_validator: false,
            server_compresses: false,
            has_own_lifetimes: false,
            tags: Box::default(),
            stamp: 0,
        };
        Object::new(subject, stored, Bytes::from_static(b"page"))
    }

    #[test]
    fn a_site_of_a_former_configuration_stores_no_page_by_its_rules() {
        let config = |rules: &str| {
            let text = format!("[[sites]]\nroot = \"/srv\"\n[sites.cache]\n{rules}\n");
            maitred_config::parse(&text, Path::new("/maitred.toml")).unwrap()
        };
        let (former, alike) = (config(""), config("min_uses = 2"));
        let strict = config("no_store_paths = \"/account/*\"");
        let cache = opened(None);
        let site = SiteCache::of(&former, &former.sites[0], Some(&cache)).unwrap();
        for (current, stores) in [(&former, true), (&alike, true), (&strict, false)] {
            cache.use_sites(current);
            assert_eq!(cache.stores_for(&site), stores);
        }
    }

    #[tokio::test]
    async fn no_page_of_any_size_waits_long_for_a_disk_that_is_known_to_hang() {
        let cache = opened(None);
        let (release, hang) = hanging();
        assert!(!cache.has_slow_disk());
        assert!(cache.slow_disk.run(hang.clone()).await.is_none());
        assert!(cache.has_slow_disk());
        let large = tokio::time::timeout(SWEEP / 3, cache.run_elsewhere("site", hang)).await;
        assert!(large.is_ok_and(|stored| stored.is_none()));
        drop(release);
    }

    #[tokio::test]
    async fn a_page_whose_file_a_hanging_disk_does_not_remove_is_served_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let cache = opened(Some(dir.path()));
        let key = Key::of(b"key".to_vec()).unwrap();
        let fields = || std::iter::empty::<(&[u8], &[u8])>();
        let stored = cache.store.insert(&key, &Vary::default(), fields(), page(), now()).unwrap();
        let load = || cache.store.load(&key, fields(), now(), u64::MAX);
        assert!(matches!(load(), Lookup::Page { .. }));
        let (release, hang) = hanging();
        assert!(cache.slow_disk.run(hang.clone()).await.is_none());
        while cache.slow_disk.try_start(hang.clone()) {}
        cache.drop_page(&key, &stored);
        assert!(matches!(load(), Lookup::Miss { .. }));
        drop(release);
    }
}
