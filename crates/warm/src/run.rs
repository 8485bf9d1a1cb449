//! A whole run: collects the URLs, requests them, and reports the results.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use maitred_measure::plan::Endpoint;
use maitred_measure::url::Url;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::client::PageClient;
use crate::collect;
use crate::verdict::{Verdict, verdict};

/// Lowest rate, in requests a second.
pub const MIN_RATE: f64 = 0.001;
/// Highest rate, in requests a second.
pub const MAX_RATE: f64 = 100_000.0;

/// The servers and the sites of URLs.
pub trait SiteFinder {
    /// Resolves a URL to a server.
    ///
    /// # Errors
    /// Why it is not requested.
    fn find(&self, url: &Url) -> Result<Endpoint, String>;

    /// Whether both URLs are of one site.
    fn is_same_site(&self, one: &Url, other: &Url) -> bool;
}

/// What to request, and how.
#[derive(Debug, Default)]
pub struct Plan {
    /// URLs of pages.
    pub urls: Vec<String>,
    /// URLs of sitemaps.
    pub sitemaps: Vec<String>,
    /// Most requests a second.
    pub rate: f64,
    /// Most connections.
    pub connections: usize,
    /// Most pages.
    pub limit: usize,
    /// Headers of each request.
    pub headers: HeaderMap,
}

/// The results of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The result of each page, in the request in which they were listed.
    pub pages: Vec<(String, Verdict)>,
    /// Errors of sitemaps, as messages.
    pub troubles: Vec<String>,
    /// Pages beyond the limit.
    pub left_out: usize,
}

impl Report {
    /// The number of matching results.
    pub fn count(&self, is_meant: impl Fn(&Verdict) -> bool) -> usize {
        let verdicts = self.pages.iter().map(|(_, verdict)| verdict);
        verdicts.filter(|verdict| is_meant(verdict)).count()
    }

    /// Why pages are not cached: the number for each reason, and the first page.
    pub fn reasons(&self) -> Vec<(&str, usize, &str)> {
        let mut reasons: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
        for (url, verdict) in &self.pages {
            if let Verdict::NotStored(why) | Verdict::Failed(why) = verdict {
                reasons.entry(why).or_insert((0, url)).0 += 1;
            }
        }
        let mut reasons: Vec<_> =
            reasons.into_iter().map(|(why, (count, url))| (why, count, url)).collect();
        reasons.sort_by_key(|(_, count, _)| std::cmp::Reverse(*count));
        reasons
    }
}

/// Requests all pages, and reports the results. Each server is looked up once.
///
/// # Errors
/// When there can be no runtime.
pub fn warm(plan: Plan, finder: &dyn SiteFinder) -> std::io::Result<Report> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(async {
        let mut endpoints = Endpoints { finder, known: HashMap::new() };
        let mut report = Report::default();
        let mut pages = plan.urls.clone();
        let found = collect::pages_of_sitemaps(&plan, &mut endpoints, pages.len()).await;
        pages.extend(found.pages);
        report.troubles = found.troubles;
        let mut seen = HashSet::new();
        pages.retain(|page| seen.insert(page.clone()));
        report.left_out = pages.len().saturating_sub(plan.limit);
        pages.truncate(plan.limit);
        report.pages = request_all(&plan, &mut endpoints, pages).await;
        report
    }))
}

/// Resolved servers.
pub(crate) struct Endpoints<'a> {
    pub(crate) finder: &'a dyn SiteFinder,
    known: HashMap<(bool, String, u16), Result<Arc<Endpoint>, String>>,
}

impl Endpoints<'_> {
    pub(crate) fn find(&mut self, url: &str) -> Result<(Url, Arc<Endpoint>), String> {
        let place = Url::read(url, None)?;
        let server = (place.tls, place.host.clone(), place.port);
        let found = self.known.entry(server);
        let found = found.or_insert_with(|| self.finder.find(&place).map(Arc::new));
        found.clone().map(|endpoint| (place, endpoint))
    }
}

/// A page to request, with its index.
type PageRequest = (usize, Url, Arc<Endpoint>);

async fn request_all(
    plan: &Plan,
    endpoints: &mut Endpoints<'_>,
    pages: Vec<String>,
) -> Vec<(String, Verdict)> {
    let (requests, taken) = mpsc::channel::<PageRequest>(1);
    let taken = Arc::new(tokio::sync::Mutex::new(taken));
    let verdicts = Arc::new(Mutex::new(vec![None; pages.len()]));
    let mut clients = JoinSet::new();
    for _ in 0..plan.connections.clamp(1, pages.len().max(1)) {
        let client = PageClient::new(plan.headers.clone());
        clients.spawn(request_some(client, taken.clone(), verdicts.clone()));
    }
    let every = 1.0 / plan.rate.clamp(MIN_RATE, MAX_RATE);
    let mut clock = tokio::time::interval(Duration::from_secs_f64(every));
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for (number, page) in pages.iter().enumerate() {
        match endpoints.find(page) {
            Ok((place, endpoint)) => {
                clock.tick().await;
                if requests.send((number, place, endpoint)).await.is_err() {
                    break;
                }
            }
            Err(why) => note(&verdicts, number, Verdict::Failed(why)),
        }
    }
    drop(requests);
    while clients.join_next().await.is_some() {}
    let verdicts = std::mem::take(&mut *verdicts.lock().unwrap_or_else(PoisonError::into_inner));
    let unrequested = || Verdict::Failed("it was not requested".to_owned());
    let verdicts =
        verdicts.into_iter().map(|verdict: Option<Verdict>| verdict.unwrap_or_else(unrequested));
    pages.into_iter().zip(verdicts).collect()
}

async fn request_some(
    mut client: PageClient,
    requests: Arc<tokio::sync::Mutex<mpsc::Receiver<PageRequest>>>,
    verdicts: Arc<Mutex<Vec<Option<Verdict>>>>,
) {
    loop {
        let request = requests.lock().await.recv().await;
        let Some((number, place, endpoint)) = request else {
            return;
        };
        let found = match client.get(&endpoint, &place, 0).await {
            Ok(response) => verdict("maitred", response.status, response.cache_status.as_deref()),
            Err(why) => Verdict::Failed(why),
        };
        note(&verdicts, number, found);
    }
}

fn note(verdicts: &Mutex<Vec<Option<Verdict>>>, number: usize, verdict: Verdict) {
    let mut verdicts = verdicts.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(place) = verdicts.get_mut(number) {
        *place = Some(verdict);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_with_the_first_page_that_has_each() {
        let refused = |url: &str, why: &str| (url.to_owned(), Verdict::NotStored(why.to_owned()));
        let report = Report {
            pages: vec![
                ("a".to_owned(), Verdict::Stored),
                refused("b", "private"),
                refused("c", "set-cookie"),
                refused("d", "set-cookie"),
            ],
            ..Report::default()
        };
        assert_eq!(report.reasons(), [("set-cookie", 2, "c"), ("private", 1, "b")]);
        assert_eq!(report.count(|verdict| *verdict == Verdict::Stored), 1);
    }

    struct NoServers;

    impl SiteFinder for NoServers {
        fn find(&self, url: &Url) -> Result<Endpoint, String> {
            Err(format!("{} is none of ours", url.host))
        }

        fn is_same_site(&self, one: &Url, other: &Url) -> bool {
            one.host == other.host
        }
    }

    #[test]
    fn urls_that_cannot_be_requested_are_reported_with_the_reason() {
        let plan = Plan {
            urls: vec!["http://a.example/".to_owned(), "ftp://x".to_owned()],
            sitemaps: vec!["http://b.example/s.xml".to_owned()],
            rate: 1000.0,
            connections: 2,
            limit: 10,
            ..Plan::default()
        };
        let report = warm(plan, &NoServers).unwrap();
        assert_eq!(report.count(|one| matches!(one, Verdict::Failed(_))), 2);
        assert!(report.troubles[0].contains("b.example is none of ours"));
    }
}
