//! Cached pages that change and are purged on all nodes: after a successful purge, no client of
//! any node sees an older one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;
use maitred_tests::http::Request;

use super::{Client, PAUSE, Persistent, Reply, honest_error};
use crate::kind::Kind;
use crate::ledger::Outcome;
use crate::site::{CACHED, CACHED_PAGES, Site};

/// How often a writer reads before it writes.
const READS_BETWEEN_WRITES: u32 = 10;

/// The oldest version of each page that may be served.
type Oldest = [AtomicU64; CACHED_PAGES];

struct Cached {
    kind: Kind,
    http: Persistent,
    random: Rng,
    oldest: Arc<Oldest>,
    /// For the client that changes pages.
    site: Option<Arc<Site>>,
    /// The version of each page as it was written last.
    written: [u64; CACHED_PAGES],
}

/// A client that writes, one that reads only, and one that reads from the other node.
pub fn clients(site: &Arc<Site>, address: SocketAddr, other: SocketAddr) -> Vec<Box<dyn Client>> {
    let oldest: Arc<Oldest> = Arc::default();
    [(Kind::Purge, address), (Kind::Cached, address), (Kind::OtherNode, other)]
        .into_iter()
        .map(|(kind, address)| {
            Box::new(Cached {
                kind,
                http: Persistent::new(address),
                random: Rng::new(),
                oldest: Arc::clone(&oldest),
                site: (kind == Kind::Purge).then(|| Arc::clone(site)),
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
            Reply::Whole(response) if response.status == 504 => Ok(Outcome::Unconfirmed),
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
        self.kind
    }

    fn round(&mut self) -> Result<Outcome, String> {
        let page = self.random.usize(..CACHED_PAGES);
        let Some(site) = self.site.clone() else {
            return self.read(page);
        };
        for _ in 0..READS_BETWEEN_WRITES {
            match self.read(page)? {
                Outcome::Right => std::thread::sleep(PAUSE),
                other => return Ok(other),
            }
        }
        self.change(&site, page)
    }
}
