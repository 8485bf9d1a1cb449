//! Purges: by the PURGE method, by a command through the supervisor, and by other fronts; those of
//! scripts are in `script_purges`. Purges of this front are sent to the other fronts.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use maitred_config::{Config, PoolUser};
use maitred_control::FromFront;
use maitred_control::purge::{DroppedPages, PurgeOrder, PurgeRequest, Target};
use maitred_pagecache::invalidate;
use maitred_pagecache::purge::Purge;
use maitred_pagecache::settings::KeyParts;
use maitred_pagestore::SiteMarks;
use tokio::sync::oneshot;

use crate::cache::Cache;
use crate::cache::key_host::key_host;
use crate::cache::purge_acks::PurgeAcks;
use crate::cache::purge_journal::PurgeRecord;
use crate::http::hosts::Hosts;
use crate::pool::pool_key::PoolKey;
use crate::runtime::supervisor_channel::Supervisor;

/// Most purges that a reply lists.
const MAX_TOLD: usize = 20;

/// Bytes of JSON that purges in one message to other fronts have at most, unless it is a single
/// one; a message may have 64 KiB.
const MESSAGE_BYTES: usize = 16 * 1024;

/// The sites with a cache, for purges by URL, host or tag.
#[derive(Debug, Default)]
pub struct PurgeableSites {
    sites: Vec<KnownSite>,
    hosts: Hosts,
    /// By the number of a site in the configuration: its index in `sites`.
    places: Vec<Option<usize>>,
    /// By the names of the sites in keys: a fingerprint of the rules by which their pages are
    /// stored.
    marks: SiteMarks,
}

#[derive(Debug)]
struct KnownSite {
    /// The site's first host, by which its pages are purged.
    name: String,
    /// The name of its pages in keys.
    key: String,
    hosts: Vec<String>,
    /// The pools that run its scripts.
    pools: Vec<PoolKey>,
    parts: KeyParts,
}

impl PurgeableSites {
    /// The sites of a configuration.
    pub fn of(config: &Config) -> PurgeableSites {
        let mut sites = Vec::new();
        let mut places = Vec::new();
        let mut marks = SiteMarks::new();
        for site in &config.sites {
            let hosts: Vec<String> = site.hosts.iter().map(ToString::to_string).collect();
            places.push(site.cache.as_ref().map(|cache| {
                let key = site.key(config);
                marks.insert(key.clone(), cache.rules.storing_mark());
                sites.push(KnownSite {
                    name: hosts.first().cloned().unwrap_or_default(),
                    key,
                    hosts,
                    pools: site
                        .pools()
                        .filter_map(|name| config.pool(name))
                        .map(PoolKey::of)
                        .collect(),
                    parts: cache.rules.key.clone(),
                });
                sites.len() - 1
            }));
        }
        PurgeableSites { sites, hosts: Hosts::of(&config.sites), places, marks }
    }

    /// The names of the sites in keys, each with a fingerprint of the rules by which its pages are
    /// stored.
    pub(super) fn marks(&self) -> &SiteMarks {
        &self.marks
    }

    /// The sites that have no cache among these, are another tenant's there, or store by other
    /// rules.
    pub(super) fn not_in<'a>(&'a self, others: &'a SiteMarks) -> impl Iterator<Item = &'a str> {
        let mark = |marks: &'a SiteMarks, site: &KnownSite| marks.get(&site.key);
        let missing = move |site: &&KnownSite| mark(others, site) != mark(&self.marks, site);
        self.sites.iter().filter(missing).map(|site| site.name.as_str())
    }

    /// Whether the site with this first host is one of these, and its scripts run as these users.
    pub(super) fn is_of(&self, name: &str, users: &BTreeSet<PoolUser>) -> bool {
        let site = self.sites.iter().find(|site| site.name == name);
        let own =
            |site: &KnownSite| site.pools.iter().map(|pool| pool.user).collect::<BTreeSet<_>>();
        site.is_some_and(|site| own(site) == *users)
    }

    /// Whether a site is one of these, and stores by rules with this fingerprint.
    pub(super) fn has(&self, key: &str, mark: u64) -> bool {
        self.marks.get(key) == Some(&mark)
    }

    /// The purges of a command.
    ///
    /// # Errors
    /// One sentence, when a part of it names no page.
    pub fn resolve(&self, asked: &PurgeRequest) -> Result<Vec<DroppedPages>, String> {
        let is_meant = |site: &&KnownSite| match &asked.site {
            Some(host) => site.hosts.contains(host),
            None => true,
        };
        let meant: Vec<&KnownSite> = self.sites.iter().filter(is_meant).collect();
        if meant.is_empty() {
            return Err(match &asked.site {
                Some(host) => format!("no site with a cache has the host {host}"),
                None => "no site has a cache".to_owned(),
            });
        }
        self.resolve_among(&meant, asked)
    }

    /// The purges that another node requests, as far as their sites are known.
    fn resolve_known(&self, asked: &PurgeRequest) -> Vec<DroppedPages> {
        let one = |target: &Target| {
            let targets = vec![target.clone()];
            self.resolve(&PurgeRequest { targets, ..asked.clone() }).unwrap_or_default()
        };
        asked.targets.iter().flat_map(one).collect()
    }

    /// The purges that a script of a pool requests; none if no site of that pool has a cache.
    ///
    /// # Errors
    /// As [`PurgeableSites::resolve`].
    pub fn resolve_for_pool(
        &self,
        pool: &PoolKey,
        asked: &PurgeRequest,
    ) -> Result<Option<Vec<DroppedPages>>, String> {
        let is_its = |site: &&KnownSite| site.pools.contains(pool);
        let meant: Vec<&KnownSite> = self.sites.iter().filter(is_its).collect();
        if meant.is_empty() { Ok(None) } else { self.resolve_among(&meant, asked).map(Some) }
    }

    fn resolve_among(
        &self,
        meant: &[&KnownSite],
        asked: &PurgeRequest,
    ) -> Result<Vec<DroppedPages>, String> {
        let mut dropped = Vec::new();
        for target in &asked.targets {
            let mut add = |site: &KnownSite, purge: Purge| {
                let (site, how) = (site.name.clone(), asked.how);
                let purge = purge.bounded();
                dropped.extend(purge.map(|purge| DroppedPages { site, purge, how }));
            };
            match target {
                Target::Everything => meant.iter().for_each(|site| add(site, Purge::All)),
                Target::Tag(tag) => {
                    for site in meant {
                        add(site, Purge::Tag(tag.clone()));
                    }
                }
                Target::Host(host) => {
                    let host = invalidate::host(without_own_port(host, None));
                    add(self.site_of(meant, &host)?, Purge::Host(host));
                }
                Target::Prefix(path) if path.starts_with('/') => {
                    let path = invalidate::prefix(path.strip_suffix('*').unwrap_or(path));
                    for site in meant {
                        let path = path.clone();
                        add(site, Purge::Prefix { host: None, path });
                    }
                }
                Target::Prefix(url) => {
                    let url = url.strip_suffix('*').unwrap_or(url);
                    let (site, purge) = self.address(meant, &format!("{url}*"))?;
                    add(site, purge);
                }
                Target::Url(url) => {
                    let (site, purge) = self.address(meant, url)?;
                    add(site, purge);
                }
            }
        }
        Ok(dropped)
    }

    /// The site and the page of an address.
    fn address<'s>(
        &self,
        meant: &[&'s KnownSite],
        url: &str,
    ) -> Result<(&'s KnownSite, Purge), String> {
        let wrong = |what: &str| {
            format!("`{url}` {what}; expected an address such as https://example.com/page")
        };
        let text = url.split('#').next().unwrap_or_default();
        let (is_https, rest) = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (Some(true), rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (Some(false), rest),
            Some(_) => return Err(wrong("is not of HTTP")),
            None => (None, text),
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (host, target) = match rest.split_at(end) {
            (host, "") => match host.strip_suffix('*') {
                Some(host) => (host, "/*"),
                None => (host, "/"),
            },
            split => split,
        };
        let host = invalidate::host(without_own_port(host, is_https));
        if host.is_empty() || host.contains('@') {
            return Err(wrong("names no host"));
        }
        let site = self.site_of(meant, &host)?;
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let path = if path.is_empty() { "/" } else { path };
        let purge = invalidate::purge_of(&site.parts, &host, path, query);
        Ok((site, purge))
    }

    /// Which of these sites serves a host.
    fn site_of<'s>(&self, meant: &[&'s KnownSite], host: &str) -> Result<&'s KnownSite, String> {
        let number = self.hosts.site_for(host);
        let place = number.and_then(|number| self.places.get(number).copied()?);
        let site = place.and_then(|place| self.sites.get(place));
        let found = meant.iter().find(|one| site.is_some_and(|site| std::ptr::eq(**one, site)));
        found.copied().ok_or_else(|| {
            format!("no site with a cache that may be purged here answers for {host}")
        })
    }
}

/// A host without the default port of its scheme, or of either if no scheme is given.
fn without_own_port(host: &str, is_https: Option<bool>) -> &str {
    match is_https {
        Some(is_https) => key_host(host, is_https),
        None => key_host(key_host(host, true), false),
    }
}

/// A description of the dropped pages.
pub fn words(dropped: &DroppedPages) -> String {
    let site = &dropped.site;
    match &dropped.purge {
        Purge::All => format!("everything of {site}"),
        Purge::Tag(tag) => format!("tag {tag} of {site}"),
        Purge::Prefix { host: None, path } => format!("{path}* of {site}"),
        purge @ (Purge::Host(_) | Purge::Url { .. } | Purge::Prefix { .. }) => purge.to_string(),
    }
}

/// Why pages are dropped, and so who waits for which other fronts and nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PurgeCause {
    /// A script's call or a client that may purge: it waits for all of them.
    Request,
    /// A header of a script's response: its client waits for the fronts.
    Header,
    /// The method of a client's request: any client may cause it. It waits for the fronts, too.
    Method,
}

/// The other fronts with a cache of the same pages, if there are any.
pub struct OtherFronts {
    supervisor: Arc<Supervisor>,
    any: AtomicBool,
    last: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Option<String>>>>,
    /// There are other nodes, too, which the supervisor notifies.
    has_nodes: bool,
}

impl fmt::Debug for OtherFronts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let any = self.any.load(Ordering::Relaxed);
        out.debug_struct("OtherFronts").field("any", &any).finish()
    }
}

impl OtherFronts {
    /// No other fronts; `has_nodes`: but other nodes.
    pub fn new(supervisor: Arc<Supervisor>, has_nodes: bool) -> OtherFronts {
        OtherFronts {
            supervisor,
            has_nodes,
            any: AtomicBool::new(has_nodes),
            last: AtomicU64::new(0),
            waiting: Mutex::default(),
        }
    }

    /// There are other fronts, or none any more.
    fn set(&self, any: bool) {
        self.any.store(any || self.has_nodes, Ordering::Release);
    }

    /// Sends them what was dropped here.
    fn notify(&self, dropped: &[DroppedPages], cause: PurgeCause) -> Option<PurgeAcks> {
        if !self.any.load(Ordering::Acquire) || dropped.is_empty() {
            return None;
        }
        let mut acks = PurgeAcks::default();
        for dropped in messages(dropped) {
            let mark = self.last.fetch_add(1, Ordering::Relaxed) + 1;
            let (sender, receiver) = oneshot::channel();
            {
                let waiting = self.waiting.lock();
                let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
                waiting.retain(|_, one| !one.is_closed());
                waiting.insert(mark, sender);
            }
            let report = FromFront::PagesDropped {
                dropped: dropped.to_vec(),
                mark,
                awaits_nodes: cause == PurgeCause::Request,
                by_method: cause == PurgeCause::Method,
            };
            if self.supervisor.report(&report) {
                acks.awaited.push(receiver);
            } else {
                let first = dropped.first().map(words).unwrap_or_default();
                tracing::error!(
                    "the purge of {} could not be sent to other fronts and nodes; their clients \
                     may get the pages until they expire; purge them again",
                    first.escape_debug()
                );
                acks.is_unsent = true;
            }
        }
        Some(acks)
    }

    /// Handles the acknowledgement of the message with this number.
    pub fn done(&self, mark: u64, complaint: Option<String>) {
        let waiting = self.waiting.lock();
        let sender = waiting.unwrap_or_else(PoisonError::into_inner).remove(&mark);
        if let Some(sender) = sender {
            // A request that no longer waits has dropped its receiver.
            let _ = sender.send(complaint);
        }
    }
}

/// As many as fit into one message.
fn messages(dropped: &[DroppedPages]) -> Vec<&[DroppedPages]> {
    let (mut pieces, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (at, one) in dropped.iter().enumerate() {
        // With the comma.
        let length = serde_json::to_vec(one).map_or(MESSAGE_BYTES, |json| json.len() + 1);
        if bytes + length > MESSAGE_BYTES && at > start {
            pieces.push(&dropped[start..at]);
            (start, bytes) = (at, 0);
        }
        bytes += length;
    }
    pieces.push(&dropped[start..]);
    pieces
}

/// What a command of the supervisor has done.
#[derive(Debug, Default)]
pub struct OrderedPurge {
    /// A description of the dropped pages.
    pub said: Vec<String>,
    /// Its record, if there is one.
    pub record: Option<PurgeRecord>,
}

impl Cache {
    /// Drops pages here, in the other fronts and on other nodes: the returned future is ready when
    /// they have done so.
    pub fn purge(&self, dropped: &[DroppedPages]) -> Option<PurgeAcks> {
        self.purge_and_notify(dropped, PurgeCause::Request)
    }

    /// Drops the pages that a user names, as [`Cache::purge`] does.
    ///
    /// # Errors
    /// One sentence, when it names no page.
    pub fn purge_asked(&self, asked: &PurgeRequest) -> Result<Option<PurgeAcks>, String> {
        let dropped = self.known.load().resolve(asked)?;
        Ok(self.purge(&dropped))
    }

    pub(super) fn purge_and_notify(
        &self,
        dropped: &[DroppedPages],
        cause: PurgeCause,
    ) -> Option<PurgeAcks> {
        let recorded = self.purge_here(dropped).map(PurgeAcks::of);
        let acks = self.others.notify(dropped, cause);
        [recorded, acks].into_iter().flatten().reduce(PurgeAcks::both)
    }

    pub(super) fn purge_here(&self, dropped: &[DroppedPages]) -> Option<PurgeRecord> {
        let purge = |dropped: &DroppedPages| {
            let DroppedPages { site, purge, how } = dropped;
            self.changed.notify_one();
            self.figures.purged(site);
            self.store.purge(site, purge, *how)
        };
        let number = dropped.iter().filter_map(purge).max()?;
        Some(self.purge_journal.record(number))
    }

    /// Carries out a command of the supervisor.
    ///
    /// # Errors
    /// One sentence that says why nothing was dropped.
    pub fn obey(&self, order: &PurgeOrder) -> Result<OrderedPurge, String> {
        let dropped = match order {
            PurgeOrder::Company(any) => {
                self.others.set(*any);
                return Ok(OrderedPurge::default());
            }
            PurgeOrder::Dropped(dropped) => dropped,
            PurgeOrder::Asked(asked) => &self.known.load().resolve(asked)?,
            PurgeOrder::OfNode(asked) => &self.known.load().resolve_known(asked),
        };
        let record = self.purge_here(dropped);
        let mut said: Vec<String> = dropped.iter().take(MAX_TOLD).map(words).collect();
        if dropped.len() > MAX_TOLD {
            said.push(format!("{} more", dropped.len() - MAX_TOLD));
        }
        Ok(OrderedPurge { said, record })
    }
}

/// The method by which a client drops a page.
pub const PURGE: &str = "PURGE";

#[cfg(test)]
mod tests {
    use maitred_config::{Destination, Host, Pool, Site};
    use maitred_os::channel::Channel;

    use super::*;
    use maitred_pagecache::purge::PurgeMode;

    #[tokio::test(start_paused = true)]
    async fn a_purge_that_cannot_be_sent_to_others_does_not_count_as_done() {
        let (_end, ours) = Channel::pair().unwrap();
        let supervisor = Arc::new(Supervisor::new(ours));
        let others = OtherFronts::new(supervisor.clone(), true);
        let tagged = |tag: &str| DroppedPages {
            site: "shop".to_owned(),
            purge: Purge::Tag(tag.to_owned()),
            how: PurgeMode::Hard,
        };
        let purge = |tag: &str| others.notify(&[tagged(tag)], PurgeCause::Request).unwrap();
        // Longer than a message may be.
        let too_long = purge(&"\u{1}".repeat(12_000));
        assert!(too_long.awaited.is_empty());
        assert_eq!(too_long.done().await.as_deref(), Some("not sent to other fronts and nodes"));
        let sent = purge("a");
        others.done(2, None);
        assert_eq!(sent.done().await, None);
        // The pipe is full: the purge waits, and is not confirmed.
        while supervisor.report(&FromFront::Alive) {}
        assert_eq!(purge("b").done().await.as_deref(), Some("not confirmed by another front"));
        let tag = "c".repeat(3000);
        let mut last = purge(&tag);
        while !last.awaited.is_empty() {
            last = purge(&tag);
        }
        assert_eq!(last.done().await.as_deref(), Some("not sent to other fronts and nodes"));
    }

    fn known() -> PurgeableSites {
        let site = |hosts: &[Host], pool: &str, cached: bool| Site {
            hosts: hosts.to_vec(),
            root: "/".into(),
            index: Vec::new(),
            destination: Destination::Pool(pool.to_owned()),
            front_controller: None,
            max_body_size: 0,
            access_log: Default::default(),
            cache: cached.then(Default::default),
            rules: Default::default(),
            output: Default::default(),
        };
        let exact = |name: &str| Host::Exact(name.to_owned());
        let sites = vec![
            site(&[exact("plain.example")], "www", false),
            site(&[exact("a.example"), exact("www.a.example")], "www", true),
            site(&[Host::Below("b.example".to_owned())], "other", true),
        ];
        let pools = ["www", "other"].map(Pool::named).into();
        PurgeableSites::of(&Config { sites, pools, ..Config::default() })
    }

    fn asked(target: Target, site: Option<&str>) -> PurgeRequest {
        PurgeRequest { targets: vec![target], how: PurgeMode::Hard, site: site.map(str::to_owned) }
    }

    fn said(target: Target, site: Option<&str>) -> Result<Vec<String>, String> {
        let dropped = known().resolve(&asked(target, site))?;
        Ok(dropped.iter().map(words).collect())
    }

    fn url(text: &str) -> Result<Vec<String>, String> {
        said(Target::Url(text.to_owned()), None)
    }

    #[test]
    fn what_another_node_purges_of_sites_that_are_not_here_leaves_the_rest() {
        let targets = ["https://nowhere.example/y", "https://a.example/x"];
        let targets = targets.map(|url| Target::Url(url.to_owned())).to_vec();
        let asked = PurgeRequest { targets, how: PurgeMode::Hard, site: None };
        assert!(known().resolve(&asked).is_err());
        let dropped: Vec<String> = known().resolve_known(&asked).iter().map(words).collect();
        assert_eq!(dropped, ["a.example/x"]);
    }

    #[test]
    fn an_address_is_the_page_of_the_site_that_answers_there() {
        let one = |text: &str| url(text).unwrap().join("|");
        assert_eq!(one("https://A.example:443/x?y#z"), "a.example/x?y");
        assert_eq!(one("A.example.:443/%78//?%79"), "a.example/x/?y");
        assert_eq!(one("HTTP://a.example:443/"), "a.example:443/");
        assert_eq!(one("http://a.example:8080"), "a.example:8080/");
        assert_eq!(one("x.b.example/p/*"), "x.b.example/p/*");
        assert_eq!(one("https://www.a.example/*"), "www.a.example/*");
        assert_eq!(one("https://a.example*"), "a.example/*");
    }

    #[test]
    fn what_is_nobodys_page_is_refused() {
        for text in ["https://plain.example/", "https://c.example/", "c.example"] {
            assert!(url(text).unwrap_err().contains("no site with a cache"));
        }
        for text in ["ftp://a.example/", "/x", "https:///x", "https://u@a.example/"] {
            assert!(url(text).unwrap_err().contains("expected an address"), "{text}");
        }
        let other = said(Target::Url("a.example/x".to_owned()), Some("*.b.example"));
        assert!(other.is_err());
    }

    #[test]
    fn tags_paths_and_everything_are_of_all_sites_or_of_one() {
        let tag = || Target::Tag("t".to_owned());
        assert_eq!(said(tag(), None).unwrap(), ["tag t of a.example", "tag t of *.b.example"]);
        assert_eq!(said(tag(), Some("www.a.example")).unwrap(), ["tag t of a.example"]);
        assert!(said(tag(), Some("plain.example")).is_err());
        let prefix = Target::Prefix("/news/".to_owned());
        assert_eq!(said(prefix, None).unwrap(), ["/news/* of a.example", "/news/* of *.b.example"]);
        let prefix = Target::Prefix("a.example/news/".to_owned());
        assert_eq!(said(prefix, None).unwrap(), ["a.example/news/*"]);
    }

    #[test]
    fn a_pools_scripts_reach_the_sites_of_their_pool_and_no_other() {
        let by = |name: &str, user, target| {
            let pool = PoolKey { name: name.into(), user };
            known().resolve_for_pool(&pool, &asked(target, None))
        };
        let of = |name: &str, target| by(name, PoolUser::OfServer, target);
        let all = of("www", Target::Everything).unwrap().unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].site, "a.example");
        assert_eq!(of("none", Target::Everything), Ok(None));
        let former = PoolUser::Known { uid: 1, gid: 1 };
        assert_eq!(by("www", former, Target::Everything), Ok(None));
        assert!(of("other", Target::Url("a.example/".to_owned())).is_err());
    }

    #[test]
    fn messages_to_other_fronts_are_bounded() {
        let one = DroppedPages {
            site: "a.example".to_owned(),
            purge: Purge::Tag("t".repeat(1000)),
            how: PurgeMode::Hard,
        };
        let many = vec![one; 100];
        let pieces = messages(&many);
        assert_eq!(pieces.iter().map(|piece| piece.len()).sum::<usize>(), 100);
        let largest = pieces.iter().map(|piece| piece.len()).max().unwrap();
        assert!(pieces.len() > 5 && largest < 20, "{largest}");
        let doubled = DroppedPages { purge: Purge::Tag("\u{1}".repeat(250)), ..many[0].clone() };
        let doubled = vec![doubled; 100];
        let lengths =
            messages(&doubled).into_iter().map(|piece| serde_json::to_vec(piece).unwrap());
        assert!(lengths.map(|json| json.len()).max().unwrap() <= MESSAGE_BYTES + 2);
    }
}
