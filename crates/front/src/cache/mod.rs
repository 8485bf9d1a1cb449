//! The page cache: what a request for a script is answered with when a page is kept, and what is kept
//! of a script's answer. The rules are in the crate `pagecache`, the pages in `pagestore`.

mod client;
mod coded;
mod cookies;
mod disk_pace;
mod figures;
mod fill;
mod look;
mod purge;
mod refresh;
mod tee;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use maitred_config::Config;
use maitred_control::FromFront;
use maitred_http1::{Framing, Head, carries_body};
use maitred_pagecache::Millis;
use maitred_pagecache::asked::{Asked, Request};
use maitred_pagecache::cookies::MAX_NAMES;
use maitred_pagecache::fields;
use maitred_pagecache::fills::{Fills, Finished, Ticket, Told};
use maitred_pagecache::key::Key;
use maitred_pagecache::purge::{Purge, Thoroughness};
use maitred_pagecache::select::{Selected, content_range, not_modified_lines, select};
use maitred_pagecache::settings::Settings;
use maitred_pagecache::status::CacheStatus;
use maitred_pagecache::stored::Stored;
use maitred_pagestore::body::FILE_LEAST_BYTES;
use maitred_pagestore::disk::DiskLimits;
use maitred_pagestore::journal::Opened;
use maitred_pagestore::{Body, Limits, Store};
use maitred_rules::networks::Networks;
use tokio::sync::{Notify, oneshot};

use crate::access::RequestRecord;
use crate::clock::since_1970;
use crate::http_client::{After, Content, HttpClient, Reply};
use crate::pool::local;
use crate::request::{Header, RequestContext, ServerHeaders};
use crate::supervisor::Supervisor;

use coded::Making;
use cookies::{AllCookies, SiteCookies};
use disk_pace::DiskPace;
use figures::{AllFigures, Board, SiteFigures};
use purge::Known;

pub use client::DetachedClient;
pub use fill::Fill;
pub use look::{Looked, look};
pub use purge::{Others, PURGE, purge};
pub use refresh::refresh;
pub use tee::Tee;

/// The field that tells what the cache has done (RFC 9211).
pub const CACHE_STATUS: &[u8] = b"Cache-Status";

/// How often what is kept is looked through for what is not wanted any more.
const SWEEP: Duration = Duration::from_secs(60);

/// Bytes of a page up to which it is read and written by whoever has it in hand: from a disk that is not
/// slow (see [`DiskPace`]), or into a file in memory, that takes less time than to have another thread do it.
const AT_ONCE_BYTES: u64 = 64 * 1024;

/// The pages of all sites, and those that are being made.
#[derive(Debug)]
pub struct Cache {
    store: Store,
    disk_pace: DiskPace,
    figures: AllFigures,
    /// The names of cookies that sites have set, and where they are written down.
    cookies: AllCookies,
    dir: Option<PathBuf>,
    threads: u32,
    /// Bytes that there may be in memory, and on disk.
    memory_limit: u64,
    disk_limit: Option<u64>,
    fills: Fills<oneshot::Sender<Told>>,
    /// Pages that are made again for requests that have been answered.
    refreshes: AtomicUsize,
    /// Pages that are being put into a coding.
    making: Making,
    /// Told when something is kept or purged, so that there is something to look through.
    changed: Notify,
    /// The sites that have one.
    known: ArcSwap<Known>,
    /// Other fronts, which hear of purges.
    pub others: Others,
    supervisor: Arc<Supervisor>,
}

/// Now, in milliseconds since 1970.
fn now() -> Millis {
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
    fn learn<'f>(self: &Arc<Cache>, of: &SiteCache, names: impl Iterator<Item = &'f [u8]>) {
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
        let report = |names| FromFront::CookiesSeen {
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
    fn finish(&self, key: &Key, ticket: Ticket, how: Finished) {
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
fn tell(opened: Opened) {
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
    purge_from: Networks,
    figures: Arc<SiteFigures>,
    cookies: Arc<SiteCookies>,
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
            thread: local::thread(),
        })
    }

    /// Where this thread counts.
    fn board(&self) -> &Board {
        self.figures.board(self.thread)
    }
}

/// The host as keys have it: without the port that belongs to the scheme.
pub fn key_host(host: &str, is_https: bool) -> &str {
    let own = if is_https { ":443" } else { ":80" };
    host.strip_suffix(own).unwrap_or(host)
}

/// The request as the cache sees it, but for the port, which its key alone has.
fn request_of<'h>(head: &'h Head, way: &'h RequestContext<'_>) -> Request<'h> {
    Request {
        method: head.method(),
        is_https: way.is_https,
        host: key_host(way.host(head), way.is_https),
        port: None,
        path: head.path(),
        query: head.query(),
        has_body: head.body != Framing::None,
        by_proxy: way.origin.is_some_and(|origin| origin.is_https.is_some()),
        by_forwarded: way.origin.is_some_and(|origin| origin.by_forwarded),
    }
}

fn whole(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

/// Lines with a field at their end: caches tell of themselves in the order in which the answer has passed them
/// (RFC 9211 §2), so that what the script says comes before.
fn with_line(lines: &Bytes, name: &[u8], value: &[u8]) -> Bytes {
    let mut all = Vec::with_capacity(lines.len() + name.len() + value.len() + 4);
    all.extend_from_slice(lines);
    fields::write_line(&mut all, name, value);
    all.into()
}

/// What is sent of a page: with which status, which bytes, and where in the page they begin.
fn part_of(status: u16, body: &Body, selected: Selected) -> (u16, Bytes, u64) {
    match selected {
        Selected::Whole => (status, Bytes::clone(body), 0),
        Selected::NotModified => (304, Bytes::new(), 0),
        Selected::Unsatisfiable => (416, Bytes::new(), 0),
        Selected::Part { start, end } => {
            let at = |place: u64| usize::try_from(place).unwrap_or(usize::MAX).min(body.len());
            (206, body.slice(at(start)..at(end)), start)
        }
    }
}

/// Answers with what is kept, which has this age and saves a worker so much time.
async fn reply(
    client: &mut impl HttpClient,
    (head, way): (&Head, &RequestContext<'_>),
    (stored, body, saved): (&Stored, &Body, Duration),
    (age, status): (u64, CacheStatus),
    record: &mut RequestRecord,
) -> io::Result<After> {
    let asked = Asked::survey(request_of(head, way), head.headers());
    let length = body.len() as u64;
    let selected = select(stored, &asked, length);
    let (date, lines) = stored.dated_lines();
    let lines = match selected {
        Selected::NotModified => not_modified_lines(stored),
        _ => lines,
    };
    let (code, part, at) = part_of(stored.status, body, selected);
    record.cache = Some(status.word());
    if let (Some(of), CacheStatus::Hit { detail, .. }) = (&way.site.cache, status) {
        let bytes = if asked.is_head() { 0 } else { part.len() };
        of.board().answered(detail, bytes as u64, saved);
    }
    let after = client.discard_body(head);
    let secured = client.secured().cloned();
    let id = record.id_sent();
    let beside = ServerHeaders::of(secured.as_deref(), id.as_ref());
    let (mut number, status) = (itoa::Buffer::new(), status.to_string());
    let range = content_range(selected, length);
    let mut headers: Vec<Header<'_>> = Vec::with_capacity(6);
    if selected != Selected::NotModified {
        headers.push((b"Date", &date));
    }
    headers.push((b"Age", number.format(age).as_bytes()));
    let lines = match fields::first(fields::of_lines(&lines), "cache-status").is_some() {
        true => with_line(&lines, CACHE_STATUS, status.as_bytes()),
        false => {
            headers.push((CACHE_STATUS, status.as_bytes()));
            lines
        }
    };
    headers.extend(
        range
            .as_ref()
            .map(|range| (&b"Content-Range"[..], range.as_bytes())),
    );
    let is_said = |name: &[u8]| {
        stored
            .fields()
            .any(|(said, _)| said.eq_ignore_ascii_case(name))
    };
    headers.extend(beside.as_slice().iter().filter(|(name, _)| !is_said(name)));
    let carries_body = carries_body(false, code);
    let reply = Reply {
        request: head,
        status: code,
        headers: &headers,
        lines: &lines,
        length: carries_body.then_some(part.len() as u64),
        after,
    };
    let content = match body.file() {
        _ if asked.is_head() || part.is_empty() => Content::Nothing,
        Some(file) if part.len() >= FILE_LEAST_BYTES => Content::Housed(&part, file, at),
        _ => Content::Kept(&part),
    };
    if code == stored.status {
        client.is_answered_by_script();
    }
    client.answer(&reply, content, record).await?;
    Ok(after)
}
