//! Cached pages that change and are purged: after a successful purge, no client sees an older one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;
use maitred_tests::http::Request;

use super::{Client, Persistent, Reply, honest_error};
use crate::kind::Kind;
use crate::ledger::Outcome;
use crate::site::{CACHED, CACHED_PAGES, Site};

/// How many of a writer's rounds read.
const READS_BETWEEN_WRITES: u32 = 10;

/// The oldest version of each page that may be served.
type Oldest = [AtomicU64; CACHED_PAGES];

struct Cached {
    http: Persistent,
    random: Rng,
    oldest: Arc<Oldest>,
    /// For the client that changes pages.
    site: Option<Arc<Site>>,
    /// The version of each page as it was written last.
    written: [u64; CACHED_PAGES],
}

/// A client that writes, and one that reads only.
pub fn clients(site: &Arc<Site>, address: SocketAddr) -> Vec<Box<dyn Client>> {
    let oldest: Arc<Oldest> = Arc::default();
    [Some(Arc::clone(site)), None]
        .into_iter()
        .map(|site| {
            Box::new(Cached {
                http: Persistent::new(address),
                random: Rng::new(),
                oldest: Arc::clone(&oldest),
                site,
                written: [0; CACHED_PAGES],
            }) as Box<dyn Client>
        })
        .collect()
}

impl Cached {
    fn change(&mut self, site: &Site, page: usize) -> Result<Outcome, String> {
        self.written[page] += 1;
        let version = self.written[page];
        site.set_version(page, version);
        let target = format!("/version.php?page={page}");
        let request = Request::new("PURGE", &target).header("Host", CACHED);
        match self.http.ask(&request)? {
            Reply::None(outcome) => Ok(outcome),
            Reply::Whole(response) if response.status == 200 => {
                self.oldest[page].fetch_max(version, Ordering::SeqCst);
                Ok(Outcome::Right)
            }
            Reply::Whole(response) => honest_error(&response, "PURGE"),
        }
    }

    fn read(&mut self, page: usize) -> Result<Outcome, String> {
        let oldest = self.oldest[page].load(Ordering::SeqCst);
        let target = format!("/version.php?page={page}");
        let request = Request::new("GET", &target).header("Host", CACHED);
        let response = match self.http.ask(&request)? {
            Reply::None(outcome) => return Ok(outcome),
            Reply::Whole(response) => response,
        };
        let text = response.text();
        let version = text.strip_prefix(&format!("page {page} version "));
        match version.and_then(|version| version.parse::<u64>().ok()) {
            Some(version) if response.status == 200 && version < oldest => Err(format!(
                "page {page}: version {version} after a successful purge of those before {oldest}"
            )),
            Some(_) if response.status == 200 => Ok(Outcome::Right),
            _ => honest_error(&response, &target),
        }
    }
}

impl Client for Cached {
    fn kind(&self) -> Kind {
        Kind::Cached
    }

    fn round(&mut self) -> Result<Outcome, String> {
        let page = self.random.usize(..CACHED_PAGES);
        match self.site.clone() {
            Some(site) if self.random.u32(..READS_BETWEEN_WRITES) == 0 => self.change(&site, page),
            _ => self.read(page),
        }
    }
}
