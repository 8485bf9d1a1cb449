//! The page cache: what a request for a script is answered with when a page is kept, and what is kept
//! of a script's answer. The rules are in the crate `pagecache`, the pages in `pagestore`.

pub(crate) mod cookies;
pub(crate) mod disk_pace;
pub(crate) mod figures;
pub(crate) mod key_host;
pub(crate) mod making;
pub(crate) mod purge;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use arc_swap::ArcSwap;
use maitred_config::Config;
use maitred_control::FromFront;
use maitred_pagecache::Millis;
use maitred_pagecache::cookies::MAX_NAMES;
use maitred_pagecache::fills::{Fills, Finished, Ticket, Told};
use maitred_pagecache::key::Key;
use maitred_pagecache::purge::{Purge, Thoroughness};
use maitred_pagecache::settings::Settings;
use maitred_pagestore::disk::DiskLimits;
use maitred_pagestore::journal::Opened;
use maitred_pagestore::{Limits, Store};
use maitred_rules::networks::Networks;
use tokio::sync::{Notify, oneshot};

use crate::cache::cookies::{AllCookies, SiteCookies};
use crate::cache::disk_pace::DiskPace;
use crate::cache::figures::{AllFigures, Board, SiteFigures};
use crate::cache::making::Making;
use crate::cache::purge::Known;
use crate::runtime::clock::since_1970;
use crate::runtime::supervisor_channel::Supervisor;
use crate::runtime::thread;

pub use crate::cache::purge::{Others, PURGE};

/// The field that tells what the cache has done (RFC 9211).
pub const CACHE_STATUS: &[u8] = b"Cache-Status";

/// How often what is kept is looked through for what is not wanted any more.
const SWEEP: Duration = Duration::from_secs(60);

/// Bytes of a page up to which it is read and written by whoever has it in hand: from a disk that is not
/// slow (see [`DiskPace`]), or into a file in memory, that takes less time than to have another thread do it.
pub(crate) const AT_ONCE_BYTES: u64 = 64 * 1024;

/// The pages of all sites, and those that are being made.
#[derive(Debug)]
pub struct Cache {
    pub(crate) store: Store,
    pub(crate) disk_pace: DiskPace,
    figures: AllFigures,
    /// The names of cookies that sites have set, and where they are written down.
    cookies: AllCookies,
    dir: Option<PathBuf>,
    threads: u32,
    /// Bytes that there may be in memory, and on disk.
    memory_limit: u64,
    disk_limit: Option<u64>,
    pub(crate) fills: Fills<oneshot::Sender<Told>>,
    /// Pages that are made again for requests that have been answered.
    pub(crate) refreshes: AtomicUsize,
    /// Pages that are being put into a coding.
    pub(crate) making: Making,
    /// Told when something is kept or purged, so that there is something to look through.
    pub(crate) changed: Notify,
    /// The sites that have one.
    known: ArcSwap<Known>,
    /// Other fronts, which hear of purges.
    pub others: Others,
    supervisor: Arc<Supervisor>,
}

/// Now, in milliseconds since 1970.
pub(crate) fn now() -> Millis {
    u64::try_from(since_1970().as_millis()).unwrap_or(u64::MAX)
}

impl Cache {
    /// The cache that a configuration asks for, for a front with so many threads, whose pages may have so
    /// many descriptors. Without its folder it is in memory alone, which is told.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(
        config: &Config,
        (threads, files): (u32, usize),
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
        let limits = |disk| Limits {
            memory,
            files,
            disk,
        };
        let opened = Store::open(limits(disk), boot.trim(), now());
        let store = match opened {
            Ok((store, opened)) => {
                tell(opened);
                store
            }
            Err(error) => {
                let me = maitred_os::users::current().name;
                let dir = config
                    .cache_dir
                    .as_deref()
                    .unwrap_or(std::path::Path::new(""))
                    .display();
                tracing::error!(
                    "cache_dir {dir} cannot be used by {me}, whom the front runs as: {error}; pages \
                     are kept in memory only"
                );
                Store::open(limits(None), "", now())?.0
            }
        };
        let fills = Fills::default();
        let changed = Notify::new();
        Ok(Cache {
            disk_limit: disk_limit.filter(|_| store.has_disk()),
            store,
            disk_pace: DiskPace::default(),
            figures: AllFigures::default(),
            cookies: read_cookies(config),
            dir: config.cache_dir.clone(),
            threads,
            memory_limit: memory,
            fills,
            refreshes: AtomicUsize::new(0),
            making: Making::default(),
            changed,
            known: ArcSwap::from_pointee(Known::of(config)),
            others: Others::new(supervisor.clone()),
            supervisor,
        })
    }

    /// Takes away what is not wanted any more: at the start, and then once in [`SWEEP`] as long as
    /// there are files, or else when something has changed.
    pub async fn sweep(self: Arc<Cache>) {
        let mut told = 0;
        loop {
            let cache = self.clone();
            let swept = tokio::task::spawn_blocking(move || cache.store.sweep(now())).await;
            if let Ok(Err(error)) = swept {
                tracing::warn!("cache_dir cannot be looked through: {error}");
            }
            let failed = self.store.figures().failed;
            if failed > told {
                let pages = failed - told;
                tracing::warn!("{pages} pages could not be written to cache_dir; is it full?");
                told = failed;
            }
            tokio::time::sleep(SWEEP).await;
            if self.store.figures().disk.0 == 0 {
                self.changed.notified().await;
            }
        }
    }

    /// If another front has the folder, or another server, it is used as soon as that lets go of it.
    pub fn await_folder(self: &Arc<Cache>) {
        if !self.store.awaits_folder() {
            return;
        }
        let cache = self.clone();
        // A thread of its own, which ends with the process: nobody can say how long it waits.
        let waits = std::thread::Builder::new().name("cache folder".to_owned());
        let begun = waits.spawn(move || match cache.store.claim_folder(now) {
            Ok(opened) => {
                tell(opened);
                cache.take_cookies_over();
                cache.changed.notify_one();
            }
            Err(error) => {
                tracing::error!("cache_dir cannot be used: {error}; pages are kept in memory only");
            }
        });
        if let Err(error) = begun {
            tracing::error!("cache_dir is not used: there is no thread to wait for it: {error}");
        }
    }

    /// What the process before has learned in the meantime, together with what this one has.
    fn take_cookies_over(&self) {
        if let Some(dir) = &self.dir {
            if let Err(error) = self.cookies.read(dir) {
                tell_unread(&error);
            }
            self.write_cookies(dir);
        }
    }

    fn write_cookies(&self, dir: &Path) {
        if let Err(error) = self.cookies.write(dir) {
            tracing::warn!("the names of cookies cannot be written to cache_dir: {error}");
        }
    }

    /// An answer of the site sets these cookies: other fronts hear of those that are new, and the
    /// folder, if there is one.
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
        let new: Vec<String> = new
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect();
        if new.is_empty() {
            return;
        }
        let report = |names| FromFront::CookieNames {
            site: of.site.clone(),
            names,
        };
        self.supervisor.report(&report(Some(new)));
        if of.cookies.names().are_too_many() {
            tracing::warn!(
                "site {}: it sets cookies of more than {MAX_NAMES} names: every cookie keeps a \
                 request out of the cache now; name the login's cookie in `private_cookies`, or \
                 those that make no difference in `public_cookies`",
                of.site
            );
            self.supervisor.report(&report(None));
        }
        if self.store.has_disk() {
            let cache = self.clone();
            tokio::task::spawn_blocking(move || {
                if let Some(dir) = &cache.dir {
                    cache.write_cookies(dir);
                }
            });
        }
    }

    /// Another front has seen a site set these, or more than are remembered.
    pub fn cookies_told(&self, site: &str, names: Option<&[String]>) {
        self.cookies.add(site, names);
    }

    /// Another front has taken over: the folder is left to it.
    pub fn leave_folder(self: &Arc<Cache>) {
        let cache = self.clone();
        // It may be looked through at the moment.
        tokio::task::spawn_blocking(move || {
            if let Err(error) = cache.store.leave_folder() {
                tracing::warn!("cache_dir cannot be written: {error}");
            }
        });
    }

    /// These are the sites from now on.
    pub fn use_sites(&self, config: &Config) {
        self.cookies.follow(config);
        let before = self.known.swap(Arc::new(Known::of(config)));
        // While a site has no cache, nobody tells what changes.
        for site in before.gone_in(&self.known.load()) {
            if let Err(error) = self.store.purge(site, &Purge::All, Thoroughness::Hard) {
                tracing::error!("site {site}: its pages in cache_dir cannot be dropped: {error}");
            }
        }
    }

    /// Says on disk that all is in order.
    pub fn close(&self) {
        if let Err(error) = self.store.close() {
            tracing::warn!("cache_dir cannot be written: {error}");
        }
    }

    /// The page under a key is not being made any more, and all who wait are told.
    pub(crate) fn finish(&self, key: &Key, ticket: Ticket, how: Finished) {
        let tell = |waiter: oneshot::Sender<_>, told| waiter.send(told).is_ok();
        self.fills.finish(key, ticket, (how, now()), tell);
    }
}

/// The names of cookies that are written down in the folder.
fn read_cookies(config: &Config) -> AllCookies {
    let cookies = AllCookies::default();
    cookies.follow(config);
    let dir = config.cache_dir.as_deref();
    if let Some(Err(error)) = dir.map(|dir| cookies.read(dir)) {
        tell_unread(&error);
    }
    cookies
}

fn tell_unread(error: &io::Error) {
    tracing::warn!(
        "the names of cookies that sites have set cannot be read in cache_dir: {error}; they are \
         learned again"
    );
}

/// Says what was found in the folder, where that is not as usual.
pub(crate) fn tell(opened: Opened) {
    match opened {
        Opened::Distrusted => tracing::warn!(
            "the machine has stopped without warning, or the file `purges` in cache_dir is damaged: \
             what was kept may be out of date, and is not used"
        ),
        Opened::Taken => tracing::info!(
            "cache_dir is another process's yet: pages are kept in memory until that has let go of it"
        ),
        Opened::New | Opened::Continued => {}
    }
}

/// How a site's pages are cached.
pub struct SiteCache {
    /// What the site says.
    pub settings: Settings,
    /// The site's first host, by which its pages are known.
    pub site: String,
    /// Who may drop pages with PURGE.
    pub(crate) purge_from: Networks,
    figures: Arc<SiteFigures>,
    pub(crate) cookies: Arc<SiteCookies>,
    /// The thread whose site this is.
    thread: u32,
}

impl SiteCache {
    /// Of a site that has a cache, as this thread sees it.
    pub fn of(site: &maitred_config::Site, all: Option<&Cache>) -> Option<SiteCache> {
        let (cache, all) = site.cache.as_ref().zip(all)?;
        let name = site.hosts.first().map(ToString::to_string);
        let site = name.unwrap_or_default();
        Some(SiteCache {
            settings: cache.rules.clone(),
            figures: all.figures.of(&site, all.threads),
            cookies: all.cookies.of(&site, &cache.rules),
            site,
            purge_from: Networks::new(&cache.purge_from),
            thread: thread::number(),
        })
    }

    /// Where this thread counts.
    pub(crate) fn board(&self) -> &Board {
        self.figures.board(self.thread)
    }
}

pub(crate) fn whole(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX)
}
