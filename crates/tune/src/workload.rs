//! The requests of a tuning: URLs, a list of them, an access log, or the links of a page. Each page
//! is requested once before the first measurement.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use maitred_doctor::read::is_file;
use maitred_measure::endpoints::{self, EndpointError, TlsTrust};
use maitred_measure::generate::render;
use maitred_measure::harmless::may_change;
use maitred_measure::marker::Marker;
use maitred_measure::plan::{Endpoint, Expect, Load, Plan, Protocol, Request, Think};
use maitred_measure::request::{self, RequestSpec};
use maitred_measure::url::Url;
use maitred_measure::{clock, har, replay};

mod links;
mod prober;

use crate::course::profile::Route;
use crate::runner::Abort;
use links::crawl;
pub use prober::Prober;
use prober::STOPPED;

/// Most URLs that are requested: the most frequent ones.
const MOST_URLS: usize = 50;

/// Most lines of a log that are read.
const MOST_LINES: usize = 1_000_000;

/// Bytes of a page that are searched for links, markers and forms.
const MOST_BYTES: usize = 1 << 20;

/// The share of the requests that have to get the expected response.
const FITTING: f64 = 0.95;

/// How often to check whether a page is served.
const LOOK: Duration = Duration::from_millis(100);

/// Most paths that are listed of those that are skipped.
const MOST_NAMED: usize = 5;

/// The requests, and the expected responses.
#[derive(Debug, Clone, Default)]
pub struct WorkloadOptions {
    /// URLs.
    pub urls: Vec<String>,
    /// A list of URLs in the format of `maitred bench`.
    pub urls_file: Option<PathBuf>,
    /// An access log.
    pub access_log: Option<PathBuf>,
    /// A HAR file of a browser.
    pub har: Option<PathBuf>,
    /// Users store cookies.
    pub cookies: bool,
    /// Request the pages that the first URL links to.
    pub crawl: bool,
    /// Headers, as `Name: value`.
    pub headers: Vec<String>,
    /// Expected statuses; empty for 200 to 299.
    pub expect: Vec<u16>,
    /// A text that every page has to contain.
    pub contains: Option<String>,
    /// Methods other than GET and HEAD are allowed.
    pub allow_write: bool,
    /// The site is on another machine, and is the user's own.
    pub owned: bool,
    /// Trusted certificates.
    pub trust: TlsTrust,
}

/// The requests of a tuning.
#[derive(Debug, Clone)]
pub struct Workload {
    /// The encoded requests; load and times are set later.
    pub plan: Plan,
    /// Their source, for people.
    pub source: String,
    /// Paths of a log or a page that are skipped because they may change something.
    pub left_out: Vec<String>,
    /// The first page, which shows whether the site responds.
    pub first: (Endpoint, Url),
    /// How long it took, in seconds.
    pub took: Option<f64>,
}

/// Prepares the requests, and checks that the site responds as expected.
///
/// # Errors
/// A message, or that the user has stopped it.
pub fn prepare(options: &WorkloadOptions, prober: &mut Prober) -> Result<Workload, Abort> {
    match look(options, prober) {
        Ok(workload) => Ok(workload),
        Err(_) if prober.is_stopped() => Err(Abort::Stopped),
        Err(why) => Err(Abort::Failed(why)),
    }
}

fn look(options: &WorkloadOptions, prober: &mut Prober) -> Result<Workload, String> {
    let (mut specs, source) = specs(options)?;
    let mut left_out = Vec::new();
    if let Some(saved) = options.access_log.as_ref().or(options.har.as_ref()) {
        specs = only_showing(specs, &mut left_out);
        if specs.is_empty() {
            return Err(format!(
                "{} has only requests that may change something, such as {}; list allowed requests \
                 with --urls-file",
                saved.display(),
                left_out.first().map_or("", String::as_str)
            ));
        }
    }
    let first = specs.first().ok_or("name a URL, such as http://127.0.0.1/")?.url.clone();
    let endpoint = find(&first, options)?;
    if options.crawl {
        let linked = crawl(prober, &endpoint, &first)?;
        specs.extend(only_showing(linked, &mut left_out));
    }
    specs.truncate(MOST_URLS);
    if let Some(other) = specs.iter().find(|spec| !spec.url.same_server(&first)) {
        return Err(format!(
            "{} is on another server than {first}; one server is tuned at a time",
            other.url
        ));
    }
    let writes = specs.iter().find(|spec| !matches!(spec.method.as_str(), "GET" | "HEAD"));
    if let Some(spec) = writes.filter(|_| !options.allow_write) {
        return Err(format!(
            "{} may change something, many thousand times; allow that with --allow-write",
            spec.label()
        ));
    }
    let expect = Expect {
        statuses: options.expect.clone(),
        marker: options.contains.as_deref().map(Marker::new),
    };
    let FittingRequests { specs, took, unasked } =
        fitting(prober, &endpoint, specs, options, &expect)?;
    let late = match unasked {
        0 => String::new(),
        some => format!(" ({some} more were skipped: there was no time to check them)"),
    };
    let source = format!(
        "{} from {source}{late}",
        maitred_text::humanize::plural(specs.len() as u64, "URL")
    );
    Ok(Workload {
        took,
        first: (endpoint.clone(), specs.first().map_or(first, |spec| spec.url.clone())),
        plan: plan(endpoint, specs, options, expect)?,
        source,
        left_out,
    })
}

impl Workload {
    /// The requested paths in the plan's order, with their shares.
    pub fn routes(&self) -> Vec<Route> {
        let all: f64 = self.plan.requests.iter().map(|each| each.spec.weight).sum();
        let routes = self.plan.requests.iter().map(|request| Route {
            name: request.spec.label(),
            share: request.spec.weight / all.max(f64::MIN_POSITIVE),
        });
        routes.collect()
    }

    /// Checks within a time limit that the first page gets the expected response.
    ///
    /// # Errors
    /// The response that it gets instead.
    pub fn is_served(&self, prober: &mut Prober, within: Duration) -> Result<(), String> {
        let (endpoint, url) = &self.first;
        let began = Instant::now();
        // A written setting is checked to the end, even if the user stops.
        let never = AtomicBool::new(false);
        loop {
            let why = match prober.get_within(endpoint, url, within, &never) {
                Ok((status, _)) => match self.plan.expect.judge(status, true, None) {
                    Some(cause) => format!("{url} returns {cause}"),
                    None => return Ok(()),
                },
                Err(why) => format!("{url}: {why}"),
            };
            if began.elapsed() > within {
                return Err(why);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// A message that lists the skipped paths.
    pub fn left_out(&self) -> Option<String> {
        let named = self.left_out.iter().take(MOST_NAMED);
        let mut named = named.cloned().collect::<Vec<_>>().join(", ");
        match self.left_out.len() {
            0 => return None,
            all if all > MOST_NAMED => named += &format!(" and {} more", all - MOST_NAMED),
            _ => (),
        }
        Some(format!(
            "skipped, since it may change something: {named}; --urls-file lists allowed requests"
        ))
    }
}

/// The requests whose paths look read-only; the others are listed.
fn only_showing(specs: Vec<RequestSpec>, left_out: &mut Vec<String>) -> Vec<RequestSpec> {
    let (doing, showing): (Vec<RequestSpec>, Vec<RequestSpec>) =
        specs.into_iter().partition(|spec| may_change(&spec.url.path));
    left_out.extend(doing.into_iter().map(|spec| spec.url.path));
    showing
}

fn specs(options: &WorkloadOptions) -> Result<(Vec<RequestSpec>, &'static str), String> {
    let urls = options.urls.iter().map(|url| Url::read(url, None));
    let urls = urls.collect::<Result<Vec<_>, _>>()?;
    if let Some(list) = &options.urls_file {
        return Ok((request::read_list(list, urls.first())?, "a list"));
    }
    if let Some(file) = &options.har {
        let all = har::read(file, urls.first())?;
        let scripts = all.into_iter().filter(|spec| !is_file(&spec.url.path));
        return Ok((scripts.collect(), "a HAR file"));
    }
    if let Some(log) = &options.access_log {
        let like = urls.first().ok_or("an access log names no server: give its URL, too")?;
        let all = replay::popular(log, &RequestSpec::get(like.clone()), MOST_LINES)?;
        let scripts: Vec<RequestSpec> =
            all.into_iter().filter(|spec| !is_file(&spec.url.path)).collect();
        if scripts.is_empty() {
            return Err(format!(
                "{} has requests for files only, none for a script",
                log.display()
            ));
        }
        return Ok((scripts, "an access log"));
    }
    let source = if options.crawl { "the links of a page" } else { "the command line" };
    Ok((urls.into_iter().map(RequestSpec::get).collect(), source))
}

fn find(url: &Url, options: &WorkloadOptions) -> Result<Endpoint, String> {
    let found = endpoints::find(url, None, &options.trust, &[b"http/1.1"], options.owned);
    found.map_err(|why| match why {
        EndpointError::Failed(why) => why,
        EndpointError::Remote(address) => format!(
            "{address} is on another machine, whose settings cannot be measured from here; if the \
             pool here serves it (behind your load balancer), confirm with --yes-i-own-it"
        ),
    })
}

/// The requests with the expected response, how long the first took, and how many were skipped for
/// lack of time.
struct FittingRequests {
    specs: Vec<RequestSpec>,
    took: Option<f64>,
    unasked: usize,
}

/// Selects the requests with the expected response, if nearly all get it.
fn fitting(
    prober: &mut Prober,
    endpoint: &Endpoint,
    specs: Vec<RequestSpec>,
    options: &WorkloadOptions,
    expect: &Expect,
) -> Result<FittingRequests, String> {
    let (mut all, mut right, mut took, mut unasked) = (0.0, Vec::new(), None, 0);
    let whole: f64 = specs.iter().map(|spec| spec.weight).sum();
    let (mut wrong, mut lost): (Option<String>, f64) = (None, 0.0);
    for spec in specs {
        if prober.is_stopped() {
            return Err(STOPPED.to_owned());
        }
        // Too few can still fit, and each of the others may take a minute to time out.
        if let Some(why) = wrong.as_ref().filter(|_| lost > (1.0 - FITTING) * whole) {
            return Err(too_few(why, "at most ", (whole - lost) / whole));
        }
        if !right.is_empty() && prober.is_late() {
            unasked += 1;
            continue;
        }
        if !matches!(spec.method.as_str(), "GET") {
            all += spec.weight;
            right.push(spec);
            continue;
        }
        let response = prober.get(endpoint, &spec.url);
        if response.is_err() && !right.is_empty() && prober.is_late() {
            unasked += 1;
            continue;
        }
        all += spec.weight;
        let why = match response {
            Ok((status, body, seconds)) => {
                took = took.or(Some(seconds));
                why_not(&spec.url, status, &body, options, expect)
            }
            Err(why) => Some(format!("{}: {why}", spec.url)),
        };
        match why {
            None => right.push(spec),
            Some(why) => {
                lost += spec.weight;
                wrong = wrong.or(Some(why));
            }
        }
    }
    let fits: f64 = right.iter().map(|spec| spec.weight).sum();
    match wrong {
        Some(why) if fits < FITTING * all => {
            let share = fits.max(0.0) / all.max(f64::MIN_POSITIVE);
            Err(too_few(&why, "", share))
        }
        _ => Ok(FittingRequests { specs: right, took, unasked }),
    }
}

fn too_few(why: &str, at_most: &str, share: f64) -> String {
    let share = (share * 100.0).floor().abs();
    format!(
        "{why} ({at_most}{share:.0} % of the requests get the expected response; expected 95 \
             %)"
    )
}

fn why_not(
    url: &Url,
    status: u16,
    body: &[u8],
    options: &WorkloadOptions,
    expect: &Expect,
) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let has_marker = options.contains.as_ref().is_none_or(|marker| text.contains(marker.as_str()));
    if let Some(cause) = expect.judge(status, has_marker, None) {
        let hint = match status {
            301 | 302 | 303 | 307 | 308 => {
                "; name the page it leads to, or send a session with --header"
            }
            500.. => "; fix the site first",
            _ => "; expected 200 to 299, or the statuses of --expect",
        };
        return Some(format!("{url} returns {cause}{hint}"));
    }
    (options.contains.is_none() && asks_for_password(&text)).then(|| {
        format!(
            "{url} looks like a login page (it asks for a password): send a session with --header \
             'Cookie: …', or name a text of the right page with --contains"
        )
    })
}

fn asks_for_password(page: &str) -> bool {
    let page = page.to_ascii_lowercase();
    ["type=\"password\"", "type='password'", "type=password"].iter().any(|sign| page.contains(sign))
}

fn plan(
    endpoint: Endpoint,
    specs: Vec<RequestSpec>,
    options: &WorkloadOptions,
    expect: Expect,
) -> Result<Plan, String> {
    let headers = options.headers.iter().map(|text| request::read_header(text));
    let headers = headers.collect::<Result<Vec<_>, _>>()?;
    let mut plan = Plan {
        endpoints: vec![endpoint],
        protocol: Protocol::Http1,
        requests: Vec::new(),
        in_order: false,
        load: Load::Closed { users: 1, think: Think::Nothing, ramp: 0, requests: None },
        duration: clock::SECOND,
        warm_up: 0,
        timeout: 10 * clock::SECOND,
        late_after: 10 * clock::MILLISECOND,
        threads: 1,
        seed: 1,
        keep_alive: true,
        follow: false,
        cookies: options.cookies,
        expect,
    };
    for mut spec in specs {
        spec.headers.extend(headers.iter().cloned());
        let encoded = render(&plan, &spec, None, None)?;
        plan.requests.push(Request { spec, endpoint: 0, encoded });
    }
    Ok(plan)
}

#[cfg(test)]
mod tests;
