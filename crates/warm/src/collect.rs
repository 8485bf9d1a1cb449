//! Collects the pages of sitemaps. A sitemap is a site's: it adds pages of that site only, and its
//! size and that of what it leads to have limits.

use std::collections::HashSet;

use maitred_measure::url::Url;

use crate::client::PageClient;
use crate::run::{Endpoints, Plan, SiteFinder};
use crate::sitemap::{self, Sitemap};

/// Most sitemaps that are read, including those of indexes.
const MAX_SITEMAPS: usize = 1000;

/// Most bytes of sitemaps that are read, of all together.
const MAX_TOTAL_BYTES: usize = 1 << 30;

/// Most sitemaps that are named of those that are not read.
const MAX_NAMED: usize = 5;

/// What sitemaps lead to.
#[derive(Debug, Default)]
pub(crate) struct SitemapPages {
    /// URLs of pages.
    pub(crate) pages: Vec<String>,
    /// Errors, as messages.
    pub(crate) troubles: Vec<String>,
}

/// URLs of sitemaps, each once.
#[derive(Debug, Default)]
struct SitemapQueue {
    urls: Vec<String>,
    seen: HashSet<String>,
    next: usize,
    /// How many did not fit.
    beyond: usize,
}

impl SitemapQueue {
    fn add(&mut self, urls: impl IntoIterator<Item = String>) {
        for url in urls {
            if self.urls.len() >= MAX_SITEMAPS {
                self.beyond += 1;
            } else if self.seen.insert(url.clone()) {
                self.urls.push(url);
            }
        }
    }

    fn take(&mut self) -> Option<String> {
        let url = self.urls.get(self.next)?.clone();
        self.next += 1;
        Some(url)
    }

    /// Which are not read, and why; `stopped`: why the next one is not.
    fn left_out(&self, stopped: Option<String>) -> Vec<String> {
        let rest = &self.urls[self.next..];
        let named = rest.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join(", ");
        let more = match rest.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let stopped = stopped.filter(|_| !rest.is_empty());
        let stopped = stopped.map(|why| format!("not read, since {why}: {named}{more}"));
        let beyond = (self.beyond > 0).then(|| {
            format!(
                "there are more than {MAX_SITEMAPS} sitemaps; {} addresses of sitemaps are skipped",
                self.beyond
            )
        });
        stopped.into_iter().chain(beyond).collect()
    }
}

/// Reads all sitemaps of a plan that has this many pages already.
pub(crate) async fn pages_of_sitemaps(
    plan: &Plan,
    endpoints: &mut Endpoints<'_>,
    already: usize,
) -> SitemapPages {
    let mut client = PageClient::new(plan.headers.clone());
    let mut queue = SitemapQueue::default();
    queue.add(plan.sitemaps.iter().cloned());
    let (mut found, mut bytes_left) = (SitemapPages::default(), MAX_TOTAL_BYTES);
    let stopped = loop {
        if found.pages.len() + already > plan.limit {
            break Some("those before have more pages than --limit".to_owned());
        }
        if bytes_left == 0 {
            break Some(format!("those before have more than {MAX_TOTAL_BYTES} bytes"));
        }
        let Some(url) = queue.take() else {
            break None;
        };
        let mut trouble = |why: String| found.troubles.push(format!("sitemap {url}: {why}"));
        match read_sitemap(&mut client, endpoints, &url, &mut bytes_left).await {
            Ok(mut sitemap) => {
                if let Some(why) = leave_own(&mut sitemap, &url, endpoints.finder) {
                    trouble(why);
                }
                found.pages.extend(sitemap.pages);
                queue.add(sitemap.further);
            }
            Err(why) => trouble(why),
        }
    };
    found.troubles.extend(queue.left_out(stopped));
    found
}

async fn read_sitemap(
    client: &mut PageClient,
    endpoints: &mut Endpoints<'_>,
    url: &str,
    bytes_left: &mut usize,
) -> Result<Sitemap, String> {
    let (place, endpoint) = endpoints.find(url)?;
    let response = client.get(&endpoint, &place, sitemap::MAX_BYTES + 1).await?;
    *bytes_left = bytes_left.saturating_sub(response.body.len());
    match response.status {
        200 => Sitemap::read(&response.body),
        status => Err(format!("it got status {status}")),
    }
}

/// Removes the addresses of other sites than the sitemap's own, which belong to others on a shared
/// server: requests from this machine, with the headers of the command line, are not for a site to
/// send there. Returns a message if there are any.
fn leave_own(sitemap: &mut Sitemap, url: &str, finder: &dyn SiteFinder) -> Option<String> {
    let base = Url::read(url, None).ok()?;
    let (mut count, mut first) = (0_usize, None);
    let mut is_own = |address: &String| {
        // What is no URL is no request either; the result of the page says so.
        let place = Url::read(address, None).ok();
        let is_own = place.is_none_or(|place| finder.is_same_site(&base, &place));
        if !is_own {
            count += 1;
            first.get_or_insert_with(|| address.clone());
        }
        is_own
    };
    sitemap.pages.retain(&mut is_own);
    sitemap.further.retain(&mut is_own);
    first.map(|first| {
        format!(
            "{count} of its addresses are of other sites and are left out, such as {first}; \
             request those by a --sitemap or a list of their own"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use maitred_measure::plan::Endpoint;

    struct Hosts;

    impl SiteFinder for Hosts {
        fn find(&self, _: &Url) -> Result<Endpoint, String> {
            Err("there is no server".to_owned())
        }

        fn is_same_site(&self, one: &Url, other: &Url) -> bool {
            one.host == other.host
        }
    }

    #[test]
    fn addresses_of_other_sites_are_left_out_and_counted() {
        let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect();
        let mut sitemap = Sitemap {
            pages: texts(&["http://a.example/1", "http://b.example/2", "no url"]),
            further: texts(&["http://b.example/s.xml", "https://a.example/t.xml"]),
        };
        let why = leave_own(&mut sitemap, "http://a.example/s.xml", &Hosts).unwrap();
        assert!(why.starts_with("2 of its addresses"), "{why}");
        assert!(why.contains("such as http://b.example/2;"), "{why}");
        assert_eq!(sitemap.pages, ["http://a.example/1", "no url"]);
        assert_eq!(sitemap.further, ["https://a.example/t.xml"]);
        assert_eq!(leave_own(&mut sitemap, "http://a.example/s.xml", &Hosts), None);
    }

    #[test]
    fn a_queue_has_each_sitemap_once_and_names_those_that_are_not_read() {
        let mut queue = SitemapQueue::default();
        let urls = |range: std::ops::Range<usize>| range.map(|number| format!("/{number}"));
        queue.add(urls(0..7));
        queue.add(urls(0..7));
        assert_eq!(queue.take().as_deref(), Some("/0"));
        assert_eq!(queue.left_out(None), [""; 0]);
        let why = queue.left_out(Some("it is late".to_owned()));
        assert_eq!(why, ["not read, since it is late: /1, /2, /3, /4, /5 and 1 more"]);
        queue.add(urls(0..50_000));
        assert_eq!(queue.urls.len(), MAX_SITEMAPS);
        let why = queue.left_out(None);
        assert!(why[0].starts_with("there are more than 1000 sitemaps; 49"), "{why:?}");
    }
}
